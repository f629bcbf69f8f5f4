"""Every exported name has an explicit, typed signature and a numpydoc docstring that documents each parameter.

``faults_of`` is tested on planted examples first, so that the rule itself cannot rot.
"""

import dataclasses
import enum
import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator

import pytest

docscrape = pytest.importorskip("numpydoc.docscrape")

PACKAGES = [
    "expost",
    "expost.accounting",
    "expost.data",
    "expost.holdout",
    "expost.ledger",
    "expost.models",
    "expost.models.tabular",
    "expost.noise",
    "expost.robustness",
    "expost.session",
    "expost.stats",
    "expost.stats.hypothesis",
    "expost.torch",
]
POSITIONAL = 3
"""How many arguments may be passed by position; scikit-learn's fit(X, y) and score(X, y) need two beside self."""


def exported(package: str) -> Iterator[tuple[str, object]]:
    """Yield the functions and classes that a package exports."""
    try:
        module = importlib.import_module(package)
    except ImportError:  # an optional package is not installed
        return
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            yield name, thing


def parse(thing: object) -> dict[str, list]:
    """Parse a docstring into numpydoc's sections."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return docscrape.NumpyDocString(inspect.getdoc(thing) or "")


def parameters_of(function: Callable) -> list[inspect.Parameter]:
    """Return the parameters of a function without self and cls."""
    return [each for each in inspect.signature(function).parameters.values() if each.name not in ("self", "cls")]


def documented_names(sections: dict[str, list]) -> set[str]:
    """Return the names under Parameters; one entry may document several."""
    return {name.strip(" *") for entry in sections["Parameters"] for name in entry.name.split(",")}


def faults_of_function(name: str, function: Callable, sections: dict[str, list], *, example: bool) -> list[str]:
    """Return what is wrong with a function's signature and docstring."""
    found = []
    parameters = parameters_of(function)
    for each in parameters:
        if each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL) and each.annotation in ("Any", inspect.Parameter.empty):
            found.append(f"{name}: {each} hides its arguments")
        elif each.annotation is inspect.Parameter.empty:
            found.append(f"{name}: {each.name} has no type")
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if len(positional) > POSITIONAL:
        found.append(f"{name}: {len(positional)} positional arguments; make all but {POSITIONAL} keyword-only")
    missing = [each.name for each in parameters if each.name not in documented_names(sections)]
    if missing:
        found.append(f"{name}: undocumented {', '.join(missing)}")
    untyped = [entry.name for entry in sections["Parameters"] if not entry.type]
    if untyped:
        found.append(f"{name}: no type in the docstring for {', '.join(untyped)}")
    if example and not sections["Examples"]:
        found.append(f"{name}: no Examples")
    return found


def returns_something(function: Callable) -> bool:
    """Return whether a function is annotated to return a value."""
    return inspect.signature(function).return_annotation not in (None, "None", "NoReturn", "Self")


def faults_of(name: str, thing: object) -> list[str]:
    """Return what is wrong with an exported function or class; an empty list if nothing is."""
    if not inspect.getdoc(thing):
        return [f"{name}: no docstring"]
    sections = parse(thing)
    if inspect.isfunction(thing):
        found = faults_of_function(name, thing, sections, example=True)
        if returns_something(thing) and not (sections["Returns"] or sections["Yields"]):
            found.append(f"{name}: no Returns")
        return found
    assert inspect.isclass(thing)
    found = []
    if issubclass(thing, Exception | enum.Enum) or getattr(thing, "_is_protocol", False):
        found = [] if ">>>" in inspect.getdoc(thing) or not issubclass(thing, Exception) else [f"{name}: no example"]
    elif "__init__" in vars(thing) or dataclasses.is_dataclass(thing):
        found = faults_of_function(name, thing.__init__, sections, example=True)
    for method, value in sorted(vars(thing).items()):
        function = getattr(value, "__func__", value.fget if isinstance(value, property) else value)
        if method.startswith("_") or not inspect.isfunction(function):
            continue
        label = f"{name}.{method}"
        if not inspect.getdoc(getattr(thing, method) if not isinstance(value, property) else value):
            found.append(f"{label}: no docstring")
        elif not isinstance(value, property):
            inner = parse(getattr(thing, method))
            found += faults_of_function(label, function, inner, example=False)
    return found


CASES = sorted({(package, name) for package in PACKAGES for name, _ in exported(package)})


@pytest.mark.parametrize(("package", "name"), CASES)
def test_an_exported_name_is_typed_and_documented_parameter_by_parameter(package: str, name: str) -> None:
    thing = getattr(importlib.import_module(package), name)

    assert faults_of(name, thing) == []


def well_documented(column: str, *, within: float = 1.0) -> float:
    """Return the mean.

    Parameters
    ----------
    column : str
        The column.
    within : float, default 1.0
        The error, in the column's units.

    Returns
    -------
    float

    Examples
    --------
    >>> 1 + 1
    2
    """
    return within


def hidden(column: str, **terms) -> None:
    """Return the mean.

    Parameters
    ----------
    column : str
        The column.

    Examples
    --------
    >>> 1 + 1
    2
    """


def crowded(a: int, b: int, c: int, d: int) -> None:
    """Add."""


def test_a_good_signature_passes() -> None:
    assert faults_of("well_documented", well_documented) == []


@pytest.mark.parametrize(
    ("function", "fault"),
    [(hidden, "hides its arguments"), (crowded, "positional arguments"), (crowded, "undocumented a, b, c, d")],
)
def test_a_planted_fault_is_found(function: Callable, fault: str) -> None:
    assert any(fault in each for each in faults_of(function.__name__, function))


def test_every_package_exports_something() -> None:
    assert {package for package, _ in CASES} >= set(PACKAGES) - {"expost.torch"}
