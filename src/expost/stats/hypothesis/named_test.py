"""Tests asked for by name, with plain values: nothing the asker wrote runs beside the data."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from expost.core import InvalidRequest, Release
from expost.data import Dataset
from expost.noise import BitSource
from expost.stats.hypothesis.anova import AnovaTest
from expost.stats.hypothesis.binomial import BinomialTest
from expost.stats.hypothesis.correlation import CorrelationTest
from expost.stats.hypothesis.goodness_of_fit import GoodnessOfFitTest
from expost.stats.hypothesis.independence import IndependenceTest
from expost.stats.hypothesis.linear_correlation import LinearCorrelationTest
from expost.stats.hypothesis.means import MeanDifferenceTest
from expost.stats.hypothesis.split import SplitTest
from expost.stats.hypothesis.verdict import Verdict

__all__ = ["TESTS", "NamedTest", "request_named"]


class NamedTest(Protocol):
    """A test that a tester built itself."""

    @property
    def question(self) -> str: ...

    def check(self, dataset: Dataset) -> None: ...

    def measure(self, dataset: Dataset) -> Any: ...

    def climb(self, sealed: Any, bits: BitSource | None) -> Release[Verdict]: ...


TESTS: Mapping[str, Any] = {
    "anova": AnovaTest,
    "binomial": BinomialTest,
    "correlation": CorrelationTest,
    "fit": GoodnessOfFitTest,
    "independence": IndependenceTest,
    "linear_correlation": LinearCorrelationTest,
    "mean_difference": MeanDifferenceTest,
    "split": SplitTest,
}
"""The requests by the names of their functions, without ``_test``."""

_PLAIN = (type(None), bool, int, float, str, Fraction)
_DEEPEST = 4  # lists in lists


def request_named(name: object, *subject: Any, epsilon: Fraction, **terms: Any) -> NamedTest:
    """Build the request of a test from its name and plain values.

    Only exact built-in types are taken: a subclass could carry methods that run beside the data.

    >>> request_named("binomial", "late", equals=True, null=0.5, epsilon=Fraction(1)).question
    'binomial test: share of rows with late = True, null 0.5, two-sided'
    """
    if type(name) is not str:
        raise InvalidRequest(
            "Expected the name of a test; a function or a request could see the release that the series hides",
            got=type(name).__name__,
            do='Pass e.g. run("binomial", "late", equals=True, null=0.5, epsilon=0.3)',
        )
    if name not in TESTS:
        raise InvalidRequest("Expected the name of a test", got=name, do=f"Pass one of {', '.join(TESTS)}")
    given = [_plain(each) for each in subject]
    named = {term: _plain(value) for term, value in terms.items()}
    taken = inspect.signature(TESTS[name])
    try:
        taken.bind(*given, epsilon=epsilon, **named)
    except TypeError as wrong:
        raise InvalidRequest(
            f"Expected the arguments of {name}{taken}".replace(" -> None", ""), do=f"It has {wrong}"
        ) from None
    request: NamedTest = TESTS[name](*given, epsilon=epsilon, **named)
    return request


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value of exact built-in type, with NumPy's converted."""
    if type(value) in _PLAIN:
        return value
    if type(value) is np.ndarray or (isinstance(value, np.generic) and type(value).__module__ == "numpy"):
        value = value.tolist()
        return value if type(value) in _PLAIN else _plain(value, depth + 1)
    if type(value) in (list, tuple) and depth < _DEEPEST:
        return type(value)(_plain(each, depth + 1) for each in value)
    raise InvalidRequest(
        "Expected plain values: numbers, texts, and lists of them",
        got=type(value).__name__,
        do="Pass the values themselves, not objects or functions",
    )
