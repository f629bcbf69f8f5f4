"""The hypothesis tests and models that the page offers: their words, their fields, and how a form becomes a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from expost.core import InvalidRequest
from expost.service.question_menu import read_number

__all__ = ["ModelLine", "TestLine", "kind_of", "list_models", "list_tests", "read_fit", "read_test"]

_Columns = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class TestLine:
    """One hypothesis test of the menu.

    Parameters
    ----------
    test : str
        Its name under /v1.
    text : str
        The question in words.
    columns : mapping
        The fields with its columns: the argument that each fills, and the kind of column that it takes.
    fields : tuple of str
        The other fields that it needs.
    power : tuple of str
        The fields, besides the power, from which a power has its price; empty if the form offers a privacy level only.
    """

    __test__ = False  # for pytest it is none of its tests

    test: str
    text: str
    columns: Mapping[str, tuple[str, str]]
    fields: tuple[str, ...] = ()
    power: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelLine:
    """One model of the menu: its name under /v1, its words, the kind of its target, and the measures of its score."""

    estimator: str
    text: str
    target: str
    measures: tuple[tuple[str, str], ...]


_GROUPED = {"first": ("value", "number"), "second": ("by", "category")}
_NUMBERS = {"first": ("first", "number"), "second": ("second", "number")}
_ONE = {"first": ("column", "category")}
_TESTS = (
    TestLine(
        "MeanDifferenceTest",
        "Do two groups have different means?",
        _GROUPED,
        ("groups", "alternative"),
        ("effect", "deviation", "rows"),
    ),
    TestLine("MannWhitneyTest", "Are values larger in one group? (Mann-Whitney)", _GROUPED, ("groups", "alternative")),
    TestLine("AnovaTest", "Do the means of all groups differ? (ANOVA)", _GROUPED),
    TestLine("KruskalWallisTest", "Do the values of all groups differ? (Kruskal-Wallis)", _GROUPED),
    TestLine(
        "SignedRankTest",
        "Is one column larger than another? (signed ranks)",
        _NUMBERS,
        ("alternative",),
        ("effect", "rows"),
    ),
    TestLine(
        "CorrelationTest", "Do two columns move together? (rank correlation)", _NUMBERS, ("alternative",), ("effect",)
    ),
    TestLine(
        "LinearCorrelationTest", "Do two columns move together on a line? (correlation)", _NUMBERS, ("alternative",)
    ),
    TestLine(
        "IndependenceTest",
        "Do two columns depend on each other? (chi-squared)",
        {"first": ("first", "category"), "second": ("second", "category")},
    ),
    TestLine(
        "BinomialTest",
        "Is the share of a value as supposed? (binomial)",
        _ONE,
        ("equals", "null", "alternative"),
        ("effect", "rows"),
    ),
    TestLine("GoodnessOfFitTest", "Are the shares of all values as supposed? (goodness of fit)", _ONE, ("chances",)),
)
_MODELS = (
    ModelLine(
        "Classifier",
        "A category (classifier)",
        "category",
        (
            ("accuracy", "accuracy, at least"),
            ("auc", "area under the curve, at least"),
            ("log_loss", "log loss, at most"),
        ),
    ),
    ModelLine(
        "Regressor",
        "A number (regressor)",
        "number",
        (("r2", "R², at least"), ("rmse", "root mean squared error, at most"), ("mae", "mean absolute error, at most")),
    ),
)
_FEATURE = "feature."
_POWER_WORDS = {"effect": "the effect", "deviation": "the standard deviation", "rows": "the number of rows"}


def kind_of(column: Mapping[str, Any]) -> str:
    """Return what a column can be asked about: number, category, time, or an empty text."""
    kinds = {"bounds": "number", "categories": "category", "time_range": "time"}
    return next((kind for fact, kind in kinds.items() if column[fact]), "")


def list_tests(columns: _Columns) -> list[TestLine]:
    """Return the tests that a table's public description allows.

    >>> list_tests([])
    []
    """
    kinds = [kind_of(each) for each in columns]

    def fits(line: TestLine) -> bool:
        needed = [kind for _, kind in line.columns.values()]
        return all(kinds.count(kind) >= needed.count(kind) for kind in needed)

    return [line for line in _TESTS if fits(line)]


def list_models(columns: _Columns) -> list[ModelLine]:
    """Return the models that a table's public description allows: those with a target and a feature.

    >>> list_models([])
    []
    """
    usable = [kind_of(each) for each in columns if kind_of(each) in ("number", "category")]
    return [line for line in _MODELS if line.target in usable and len(usable) > 1]


def read_test(form: Mapping[str, str], columns: _Columns) -> dict[str, Any]:
    """Return the test of a form, as the routes under /v1 take it.

    Parameters
    ----------
    form : mapping
        The fields.
    columns : sequence
        The public columns of the table.

    Examples
    --------
    >>> city = {"name": "city", "bounds": None, "categories": ["Oslo", "Rome"], "time_range": None}
    >>> form = {"test": "GoodnessOfFitTest", "test-first": "city", "chances": "", "test-epsilon": "0.1"}
    >>> read_test(form, [city])["arguments"]
    {'column': 'city', 'chances': [0.5, 0.5], 'level': 0.05, 'epsilon': 0.1}
    """
    line = next((each for each in _TESTS if each.test == form.get("test")), None)
    if line is None:
        raise InvalidRequest("Expected a test of the menu", got=form.get("test", ""), do="Choose one")
    given: dict[str, Any] = {name: form.get(f"test-{field}", "") for field, (name, _) in line.columns.items()}
    listed = _categories_of(given.get("by") or given.get("column"), columns)
    if "groups" in line.fields:
        pair = [form.get("group-1", ""), form.get("group-2", "")]
        given["groups"] = [_find_category(each, listed) for each in pair] if any(pair) else listed[:2]
    if "equals" in line.fields:
        given["equals"] = _find_category(form["equals"], listed) if form.get("equals") else next(iter(listed), "")
    if "null" in line.fields:
        given["null"] = read_number(form.get("null", ""), "the supposed share")
    if "chances" in line.fields:
        given["chances"] = _read_chances(form.get("chances", ""), len(listed))
    if "alternative" in line.fields:
        given["alternative"] = form.get("alternative") or "two-sided"
    given["level"] = read_number(form.get("level") or "0.05", "the level")
    if form.get("test-state") == "power" and line.power:
        given["power"] = read_number(form.get("power", ""), "the power")
        for field in line.power:
            if form.get(field):  # where the number of rows is public, nobody has to guess it
                number = read_number(form[field], _POWER_WORDS[field])
                given["expected_rows" if field == "rows" else field] = round(number) if field == "rows" else number
    else:
        given["epsilon"] = read_number(form.get("test-epsilon", ""), "epsilon")
    return {"statistic": line.test, "arguments": given}


def read_fit(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the fit of a form, as the routes under /v1 take it.

    >>> form = {"estimator": "Regressor", "target-number": "pay", "feature.age": "on", "feature.pay": "on"}
    >>> read_fit(form | {"fit-state": "score", "measure-Regressor": "r2", "score": "0.5"})
    {'estimator': 'Regressor', 'settings': {'score': ['r2', 0.5]}, 'features': ['age'], 'target': 'pay'}
    """
    line = next((each for each in _MODELS if each.estimator == form.get("estimator")), None)
    if line is None:
        raise InvalidRequest("Expected a model of the menu", got=form.get("estimator", ""), do="Choose one")
    target = form.get(f"target-{line.target}", "")
    features = [name.removeprefix(_FEATURE) for name in form if name.startswith(_FEATURE)]
    features = [each for each in features if each != target]
    if not features:
        raise InvalidRequest("Expected a column to predict from besides the target", do="Choose one or more")
    if form.get("fit-state") == "epsilon":
        settings: dict[str, Any] = {"epsilon": read_number(form.get("fit-epsilon", ""), "epsilon")}
    else:
        measure = form.get(f"measure-{line.estimator}", "")
        settings = {"score": [measure, read_number(form.get("score", ""), "the score")]}
    return {"estimator": line.estimator, "settings": settings, "features": features, "target": target}


def _categories_of(name: str | None, columns: _Columns) -> list[Any]:
    found = next((each["categories"] for each in columns if each["name"] == name), None)
    return list(found or [])


def _find_category(text: str, listed: Sequence[Any]) -> Any:
    """Return the public category that somebody typed; the text itself if there is none, which is refused later."""
    return next((each for each in listed if str(each) == text), text)


def _read_chances(text: str, count: int) -> list[float]:
    if not text:
        return [1 / count] * count
    return [read_number(each.strip(), "the supposed shares") for each in text.split(",")]
