"""What all hypothesis tests share: query, plan and verdict."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from expost.core import (
    Adjacency,
    Ladder,
    PlanContext,
    PureGuarantee,
    PureLoss,
    Receipt,
    Release,
    Sealed,
    Unit,
    explain_arguments,
    share_parameters,
)
from expost.core.rational import probability
from expost.data import Dataset
from expost.noise import BitSource, DiscreteLaplacePath
from expost.stats.hypothesis.hypothesis_input import Alternative, Number
from expost.stats.hypothesis.hypothesis_price import HypothesisPrice, PriceTerms
from expost.stats.query_terms import describe_plan

__all__ = [
    "ASYMPTOTIC",
    "PROVED",
    "HypothesisPlan",
    "HypothesisQuery",
    "HypothesisVerdict",
    "add_laplace_noise",
    "hypothesis_power",
    "hypothesis_query",
    "hypothesis_test",
    "take_terms",
    "tail_to_p_value",
]

PROVED = "proved"
"""Printed on receipts whose p-value p has P(p <= level) <= level under every law of the null hypothesis."""

ASYMPTOTIC = "asymptotic, checked by simulation"
"""Printed where the level relies on sums being nearly normal; docs/hypothesis-tests.md lists the worst level found."""

C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., Any])

_TEST_TERMS = {
    "alternative": '{"two-sided", "greater", "less"}, default "two-sided"\nThe alternative hypothesis.',
    "adjacency": '{"replace-one", "add-remove"}, default "replace-one"\n'
    "Under replace-one the number of rows is public, under add-remove it is private.",
    "bounds": "pair of float\nThe public bounds (low, high) to which values are clipped.",
    "epsilon": "float, optional\nThe privacy cost. Pass either this or ``power``.",
    "power": "float, optional\n"
    "The power that the test must have at ``effect``; the smallest epsilon that gives it is used.",
    "deviation": "float, optional\nA guess of the standard deviation within groups. Required with ``power``.",
    "level": "float, default 0.05\nThe significance level at which the power is needed.",
    "max_epsilon": "float, optional\nA cap on the price.",
    "confidence": "float, default 0.95\nThe confidence level of the interval.",
    "expected_sizes": "sequence of int, optional\nA public guess of the number of rows of each group, for ``power``.",
    "expected_rows": "int, optional\nA public guess of the number of rows, for ``power`` under add-remove.",
    "bits": "BitSource, optional\nThe source of random bits. Default: the system's cryptographic source.",
}
"""What the parameters of tests mean, unless a test documents its own."""

_POWER_TERMS = {
    "rows": "int\nThe number of rows.",
    "sizes": "sequence of int\nThe number of rows of each group.",
    "epsilon": "float\nThe privacy cost.",
    "deviation": "float\nThe standard deviation within groups.",
    "bounds": "pair of float\nThe public bounds (low, high).",
    "level": "float, default 0.05\nThe significance level.",
    "public_sizes": "bool, default True\nWhether the sizes of the groups are public; under add-remove they never are.",
    "equal_spread": "bool, default False\nWhether the test takes the spreads to be equal.",
}
"""What the parameters of power functions mean; the rest as in tests."""

_OUT_OF_RANGE = """
InvalidRequest
    If an argument is out of range.
"""
_ABOVE_CAP = """
BudgetExceeded
    If the price is above ``max_epsilon``.
"""


@dataclass_transform(frozen_default=True, eq_default=False)
def hypothesis_query(cls: type[C]) -> type[C]:
    """Make a class a frozen dataclass whose constructor explains misspelt arguments."""
    frozen = dataclass(frozen=True, eq=False)(cls)
    frozen.__init__ = explain_arguments(frozen.__init__)  # type: ignore[method-assign]
    return share_parameters(_TEST_TERMS, raises=_OUT_OF_RANGE)(frozen)


def hypothesis_test(query: type) -> Callable[[F], F]:
    """Decorate the function that runs a test on arrays; parameters mean what they mean in its query."""
    describe = share_parameters(query, _TEST_TERMS, raises=_OUT_OF_RANGE.rstrip() + _ABOVE_CAP)
    return _documented(describe, "Release of HypothesisVerdict")


def hypothesis_power(function: F) -> F:
    """Decorate the function that computes the power of a test."""
    return _documented(share_parameters(_POWER_TERMS, _TEST_TERMS, raises=_OUT_OF_RANGE), "float")(function)


def _documented(describe: Callable[[F], F], returns: str) -> Callable[[F], F]:
    """Return a decorator that completes the docstring and explains misspelt arguments."""

    def decorate(function: F) -> F:
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nReturns\n-------\n{returns}"
        return explain_arguments(describe(function))  # type: ignore[return-value]

    return decorate


def take_terms(query: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a test's arguments (its ``locals()``) that its query takes under the same name."""
    return {each.name: arguments[each.name] for each in fields(query) if each.name in arguments}


@dataclass(frozen=True, kw_only=True)
class HypothesisVerdict:
    """The released statistic and its p-value; the noise is part of the reference distribution.

    Parameters
    ----------
    test : str
        The name of the test.
    statistic : float
        The released statistic, noise included.
    p_value : float
        The probability, under the null hypothesis and over sampling *and* noise, of a statistic at least as extreme.
        Rejecting when it is at most a level keeps that level.
    estimate : float, optional
        An estimate of the tested quantity in its own units, where the test has one.
    alternative : {"two-sided", "greater", "less"}, default "two-sided"
        The alternative hypothesis.

    Examples
    --------
    >>> verdict = HypothesisVerdict(test="binomial", statistic=61.3, p_value=0.03, estimate=0.61, alternative="greater")
    >>> verdict.rejects(0.05)
    True
    """

    test: str
    statistic: float
    p_value: float
    estimate: float | None = None
    alternative: Alternative = "two-sided"

    def rejects(self, level: Number) -> bool:
        """Return whether the null hypothesis is rejected at this level.

        Parameters
        ----------
        level : float
            The significance level, between 0 and 1.
        """
        return self.p_value <= float(probability(level, "level"))


@dataclass(frozen=True, kw_only=True)
class HypothesisPlan(ABC):
    """A hypothesis test fitted to a table's public description: the price is known, no row was read.

    Subclasses release all numbers they need in ``release_numbers``; everything after that is post-processing.
    """

    question: str
    price: HypothesisPrice

    @property
    def worst_case(self) -> PureLoss:
        """Return the price, which is also the bill."""
        return PureLoss(self.price.epsilon)

    @abstractmethod
    def measure(self, dataset: Dataset) -> Any:
        """Compute the exact totals and return them sealed."""

    @abstractmethod
    def release_numbers(self, sealed: Any, bits: BitSource | None) -> Any:
        """Return the noisy numbers on which the verdict is based."""

    @abstractmethod
    def climb(self, sealed: Any, bits: BitSource | None) -> Release[HypothesisVerdict]:
        """Add noise, compute the verdict and write the receipt."""

    def release_verdict(
        self,
        verdict: HypothesisVerdict,
        *,
        method: str,
        bits: BitSource,
        terms: Mapping[str, Any],
        level: str,
        citations: tuple[str, ...],
        interval: tuple[float, float] | None = None,
        adjacency: Adjacency = Adjacency.REPLACE_ONE,
        unit: Unit = Unit(),
        breakdown: Mapping[str, Fraction] | None = None,
    ) -> Release[HypothesisVerdict]:
        """Return the verdict with its receipt; ``level`` states what the level of the p-value rests on."""
        power = {} if self.price.basis is None else {"power": self.price.basis}
        receipt = Receipt(
            question=self.question,
            method=method,
            promise=PureGuarantee(self.price.epsilon),
            bill=self.worst_case,
            adjacency=adjacency,
            unit=unit,
            outcome=self.price.outcome,
            target=self.price.target,
            terms={**terms, "level": level, **power},
            breakdown=breakdown or {},
            citations=citations,
            simulation=not bits.private,
        )
        return Release(verdict, receipt, interval)


class HypothesisQuery(ABC):
    """A hypothesis test asked of a dataset. A frozen value: nothing about a table is stored in it."""

    epsilon: Number | None
    power: Number | None
    level: Number
    max_epsilon: Number | None

    def _read_price_terms(self) -> PriceTerms:
        """Read the terms of the price, or raise if they do not fit together."""
        return PriceTerms.read(epsilon=self.epsilon, power=self.power, level=self.level, max_epsilon=self.max_epsilon)

    @property
    @abstractmethod
    def question(self) -> str:
        """Return the question in public words, as printed on the receipt."""

    @describe_plan
    def plan(self, dataset: Dataset, context: PlanContext | None = None) -> HypothesisPlan:
        """Fit the test to a dataset's public description and find its price. Reads no rows.

        >>> import pyarrow as pa
        >>> from expost.stats.hypothesis import BinomialTest
        >>> dataset = Dataset(pa.table({"late": [True, False]}))
        >>> BinomialTest("late", equals=True, null=0.2, epsilon=0.5).plan(dataset).worst_case
        PureLoss(epsilon=Fraction(1, 2))
        """
        return self._plan_for_dataset(dataset)

    @abstractmethod
    def _plan_for_dataset(self, dataset: Dataset) -> HypothesisPlan:
        """Fit the test to a dataset's public description."""


def add_laplace_noise(sealed: Sealed, epsilon: Fraction, bits: BitSource | None) -> Any:
    """Release sealed integers under discrete Laplace noise. Nothing else of the data leaves a test."""
    return DiscreteLaplacePath(sealed, Ladder((epsilon,)), bits=bits).at(0)


def tail_to_p_value(upper: Any, alternative: Alternative) -> Any:
    """Convert P(statistic >= seen) to the p-value of an alternative; two-sided is twice the smaller tail."""
    if alternative == "greater":
        return upper
    if alternative == "less":
        return 1 - upper
    return 2 * np.minimum(upper, 1 - upper)
