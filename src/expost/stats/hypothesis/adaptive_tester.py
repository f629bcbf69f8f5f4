"""Many tests on one sample, each chosen after seeing the last, with one bound on any false rejection."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from expost.answer import check_unchanged, noted_receipt
from expost.core import (
    Adjacency,
    BudgetExceeded,
    EngineFailed,
    InvalidRequest,
    PureLoss,
    Receipt,
    Release,
    SingleOwner,
    TableChanged,
    Unit,
    explain_arguments,
    share_parameters,
)
from expost.core.rational import probability, rational
from expost.data import Dataset
from expost.ledger import Hold, Ledger, Protected
from expost.ledger.ledger_account import check_name
from expost.noise import BitSource
from expost.noise.bits import resolve_randomness
from expost.stats.hypothesis.anova import AnovaTest
from expost.stats.hypothesis.binomial import BinomialTest
from expost.stats.hypothesis.goodness_of_fit import GoodnessOfFitTest
from expost.stats.hypothesis.hypothesis_input import Alternative, Number, read_public_rows, read_test_epsilon
from expost.stats.hypothesis.hypothesis_plan import HypothesisPlan, HypothesisQuery, HypothesisVerdict
from expost.stats.hypothesis.independence import IndependenceTest
from expost.stats.hypothesis.kruskal_wallis import KruskalWallisTest
from expost.stats.hypothesis.linear_correlation import LinearCorrelationTest
from expost.stats.hypothesis.mann_whitney import MannWhitneyTest
from expost.stats.hypothesis.mean_difference import MeanDifferenceTest
from expost.stats.hypothesis.rank_correlation import CorrelationTest
from expost.stats.hypothesis.signed_rank import SignedRankTest
from expost.stats.hypothesis.split import SplitTest

__all__ = ["AdaptiveTester", "SeriesFinding", "level_after_answers", "level_after_decisions"]

NAMED_TESTS: Mapping[str, Callable[..., HypothesisQuery]] = {
    "anova": AnovaTest,
    "binomial": BinomialTest,
    "correlation": CorrelationTest,
    "fit": GoodnessOfFitTest,
    "independence": IndependenceTest,
    "kruskal_wallis": KruskalWallisTest,
    "linear_correlation": LinearCorrelationTest,
    "mann_whitney": MannWhitneyTest,
    "mean_difference": MeanDifferenceTest,
    "signed_rank": SignedRankTest,
    "split": SplitTest,
}
"""The queries by the names of their functions, without ``_test``."""

_LEAST_LEVEL = 1e-12  # a corrected level below this counts as zero
_SHARES = [2.0**-k for k in range(1, 20)]
_ADJACENCY, _UNIT = Adjacency.REPLACE_ONE, Unit.row()  # the max-information bounds are proved for independent rows
_PLAIN_TYPES = (type(None), bool, int, float, str, Fraction)
_DEEPEST = 4  # nesting of lists


@dataclass(frozen=True, kw_only=True)
class SeriesFinding:
    """One test of an adaptive series: the decision at the corrected level, and its receipt.

    Parameters
    ----------
    rejected : bool
        Whether the null hypothesis is rejected at the corrected level.
    corrected_level : float
        The level at which the test was decided; public before it ran.
    tests_left : int
        How many more tests the series allows.
    receipt : Receipt
        What was run and what it cost; public before it ran.
    verdict : HypothesisVerdict, optional
        The statistic and its p-value, only if the series shows verdicts: they reveal more about the sample than the
        decision does.

    Examples
    --------
    >>> from expost.core import PureGuarantee
    >>> receipt = Receipt(question="q", method="m", promise=PureGuarantee(1), bill=PureLoss(1))
    >>> SeriesFinding(rejected=True, corrected_level=0.01, tests_left=3, receipt=receipt).verdict is None
    True
    """

    rejected: bool
    corrected_level: float
    tests_left: int
    receipt: Receipt
    verdict: HypothesisVerdict | None = None


class AdaptiveTester(SingleOwner):
    """Keeps the chance of any false rejection in a series of adaptive private tests below one level.

    The tester holds the dataset and runs the tests itself. The analyst names a test, its columns and its terms, and sees
    what ``shows`` allows. Each test may be chosen after seeing everything earlier tests showed; its level is lowered by
    what that can reveal about the sample. With decisions, tests that do not reject are free.

    P(some true null hypothesis is rejected) <= ``level`` over the whole series, for independent rows and tests that keep
    their own level (LeeNotes, Theorem 2.1 and RRST16, Section 1.1: correction by max-information; DFHPRR15, Section 4:
    description length; proofs in docs/proofs/generalization.md). The privacy cost is the sum of the tests' own;
    ``tests_left`` and ``most_tests`` compute how many more tests keep a given power.

    A series is counted in one place: a copy is the series itself, and neither pickles nor forked processes continue it.

    Parameters
    ----------
    dataset : Dataset
        The sample. It must be about single rows with a public number of them (``adjacency="replace-one"``), for which
        the corrections are proved.
    max_tests : int
        The number of tests that share the level.
    level : float, default 0.05
        The bound on the probability of any false rejection.
    shows : {"decisions", "verdicts"}, default "decisions"
        What the analyst sees of each test: a yes or no, or the private numbers too.
    ledger : Ledger, optional
        Where tests are charged.
    accounts : sequence of str, default ()
        The accounts that pay; exactly one of them belongs to the table.
    bits : BitSource, optional
        The source of random bits. Default: the system's cryptographic source.
    simulation : bool, default False
        Allow seeded bits. Receipts then state that the answers are not private.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"late": [True, False, False, False] * 2500})
    >>> tester = AdaptiveTester(Dataset(table, adjacency="replace-one", rows=10_000), max_tests=20)
    >>> round(tester.next_level, 5)
    0.00125
    """

    _owned_noun, _copies_are_itself = "series of tests", True

    @explain_arguments
    def __init__(
        self,
        dataset: Dataset,
        *,
        max_tests: int,
        level: Number = 0.05,
        shows: Literal["decisions", "verdicts"] = "decisions",
        ledger: Ledger | None = None,
        accounts: Sequence[str] = (),
        bits: BitSource | None = None,
        simulation: bool = False,
    ) -> None:
        if not isinstance(dataset, Dataset):
            raise InvalidRequest(
                "Expected the dataset that the tests are about",
                got=type(dataset).__name__,
                do='Pass Dataset(table, adjacency="replace-one", rows=...)',
            )
        if isinstance(max_tests, bool) or not isinstance(max_tests, int) or max_tests < 1:
            raise InvalidRequest("Expected max_tests to be a positive whole number", got=max_tests, do="Pass 1 or more")
        if not isinstance(shows, str) or shows not in ("decisions", "verdicts"):
            raise InvalidRequest("Expected shows to be 'decisions' or 'verdicts'", got=shows, do="Name one of them")
        self._dataset, self._rows = dataset, read_public_rows(dataset)
        self._max_tests, self._shows = max_tests, shows
        self._level = probability(level, "level")
        self._ledger, self._accounts = ledger, tuple(accounts)
        self._bits, self._simulation = resolve_randomness(bits, simulation), simulation
        self._done, self._rejected, self._spent = 0, 0, Fraction(0)
        super().__init__()

    @property
    def spent(self) -> PureLoss:
        """Return what the tests so far have cost."""
        return PureLoss(self._spent)

    @property
    def next_level(self) -> float:
        """Return the level at which the next test is decided."""
        return self._level_at(self._done, self._rejected, self._spent)

    @explain_arguments
    @share_parameters(BinomialTest, MeanDifferenceTest, SplitTest)
    def run(
        self,
        test: str,
        *subject: str | Sequence[float],
        epsilon: Number,
        equals: bool | float | str | None = None,
        null: Number | None = None,
        by: str | None = None,
        groups: Sequence[Any] | None = None,
        alternative: Alternative | None = None,
        equal_spread: bool | None = None,
        confidence: Number | None = None,
        parts: int | None = None,
    ) -> SeriesFinding:
        """Run a test by its name and decide it at the corrected level.

        Only plain values are accepted. A function or a query is refused: it could see the release that the series
        hides.

        Parameters
        ----------
        test : str
            One of "binomial", "fit", "independence", "mean_difference", "anova", "mann_whitney", "kruskal_wallis",
            "signed_rank", "correlation", "linear_correlation" and "split".
        *subject : str or list of float
            The positional arguments of the test's query: its columns, for "fit" also the probabilities, for "split" the
            relation first.
        epsilon : float
            The privacy cost of this test.

        Raises
        ------
        InvalidRequest
            If the test does not exist or does not take these arguments; nothing is spent.
        BudgetExceeded
            If all tests of the series were used, or an account cannot pay; nothing is spent.
        EngineFailed
            If the data source failed; the test stays charged and counted.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from expost.noise import SeededBits
        >>> table = pa.table({"late": [True, False, False, False] * 100})
        >>> dataset = Dataset(table, adjacency="replace-one", rows=400)
        >>> tester = AdaptiveTester(dataset, max_tests=5, bits=SeededBits(1), simulation=True)
        >>> finding = tester.run("binomial", "late", equals=True, null=0.5, epsilon=0.1)
        >>> finding.rejected, finding.tests_left
        (True, 4)
        """
        price = read_test_epsilon(epsilon)
        self._check_owner()
        terms = {
            "equals": equals,
            "null": null,
            "by": by,
            "groups": groups,
            "alternative": alternative,
            "equal_spread": equal_spread,
            "confidence": confidence,
            "parts": parts,
        }
        given = {name: value for name, value in terms.items() if value is not None}
        check_unchanged(self._dataset.has_changed)
        plan = build_named_query(test, subject, given | {"epsilon": price}).plan(self._dataset)
        with self._draw_alone():  # one test after the other: each level follows from what was shown before
            return self._run_plan(plan, price)

    def _run_plan(self, plan: HypothesisPlan, price: Fraction) -> SeriesFinding:
        """Hold, run, settle and decide one test."""
        if self._done >= self._max_tests:
            raise BudgetExceeded("All tests in this series have been used", do="Start a new series on fresh rows")
        level, hold = self.next_level, self._hold_price(price)
        # Counted before it runs: a test that fails half-way has still read the sample.
        self._done, self._spent = self._done + 1, self._spent + price
        release = _run_quietly(lambda: plan.climb(plan.measure(self._dataset), self._bits), plan.question)
        if self._dataset.has_changed():
            raise TableChanged
        release = replace(release, receipt=replace(release.receipt, simulation=self._simulation))
        if self._ledger is not None and hold is not None:
            release = replace(release, receipt=noted_receipt(hold, release.receipt))
            release = release.entered(self._ledger.settle(hold, release.receipt))
        rejected = release.value.p_value <= level
        self._rejected += rejected
        return SeriesFinding(
            rejected=rejected,
            corrected_level=level,
            tests_left=self._max_tests - self._done,
            receipt=release.receipt,
            verdict=release.value if self._shows == "verdicts" else None,
        )

    @explain_arguments
    def tests_left(self, power_at: Callable[[float], float], *, epsilon: Number, power: Number = 0.8) -> int:
        """Compute how many more tests at this epsilon the sample carries, each with ``power`` at its corrected level.

        The worst pattern of rejections to come is supposed.

        Parameters
        ----------
        power_at : callable
            ``power_at(level)`` is the power of one test at a level.
        epsilon : float
            The privacy cost of each test.
        power : float, default 0.8
            The power that each test must have.

        Examples
        --------
        >>> from expost.stats.hypothesis import binomial_power
        >>> import pyarrow as pa
        >>> dataset = Dataset(pa.table({"late": [True, False] * 5000}), adjacency="replace-one", rows=10_000)
        >>> def power_at(level):
        ...     return binomial_power(10_000, 0.5, 0.55, epsilon=0.05, level=level)
        >>> AdaptiveTester(dataset, max_tests=50).tests_left(power_at, epsilon=0.05)
        14
        """
        price, wanted = rational(epsilon, "epsilon"), float(probability(power, "power"))
        carried = 0
        while self._done + carried < self._max_tests:
            level = min(
                self._level_at(self._done + carried, self._rejected + more, self._spent + carried * price)
                for more in range(carried + 1)
            )
            if level <= _LEAST_LEVEL or power_at(level) < wanted:
                break
            carried += 1
        return carried

    @explain_arguments
    @share_parameters(tests_left)
    def most_tests(
        self, power_at: Callable[[float, float], float], *, epsilons: Sequence[float], power: Number = 0.8
    ) -> tuple[int, float]:
        """Find the epsilon per test that allows the most further tests of this power.

        Returns the number of tests, and the smallest of ``epsilons`` that allows it.

        Parameters
        ----------
        power_at : callable
            ``power_at(epsilon, level)`` is the power of one test.
        epsilons : sequence of float
            The privacy costs to choose from.

        Examples
        --------
        >>> from expost.stats.hypothesis import binomial_power
        >>> import pyarrow as pa
        >>> dataset = Dataset(pa.table({"late": [True, False] * 5000}), adjacency="replace-one", rows=10_000)
        >>> def power_at(epsilon, level):
        ...     return binomial_power(10_000, 0.5, 0.55, epsilon=epsilon, level=level)
        >>> AdaptiveTester(dataset, max_tests=50).most_tests(power_at, epsilons=[0.01, 0.1, 1])
        (24, 0.1)
        """
        counts = []
        for epsilon in epsilons:
            price = float(rational(epsilon, "epsilon"))
            count = self.tests_left(lambda level, e=price: power_at(e, level), epsilon=epsilon, power=power)  # type: ignore[misc]
            counts.append((count, -price))
        if not counts:
            raise InvalidRequest("Expected epsilons to choose from", do="Pass epsilons=[0.01, 0.1, 1]")
        most, negative = max(counts)
        return most, -negative

    def _level_at(self, done: int, rejected: int, spent: Fraction) -> float:
        """Return the corrected level after this many tests and rejections at this cost."""
        share = float(self._level) / self._max_tests
        if self._shows == "verdicts":
            return level_after_answers(share, epsilon=spent, rows=self._rows)
        # Both corrections hold for decisions; each gets half of the level, and the better one decides.
        return max(
            level_after_answers(share / 2, epsilon=spent, rows=self._rows),
            level_after_decisions(share / 2, done=done, rejected=rejected),
        )

    def _hold_price(self, price: Fraction) -> Hold | None:
        """Charge the accounts before the test runs; the table's account must be about single rows under replace-one."""
        if self._ledger is None:
            return None
        names = [check_name(account) for account in self._accounts]
        # The account of an analyst is about many tables.
        tables = {self._ledger.root_of(name) for name in names if not name.startswith("analyst:")}
        if len(tables) != 1:
            raise InvalidRequest(
                "Expected the account of one table, or of its parts", got=self._accounts, do='Pass ["dataset:flights"]'
            )
        protected = Protected(tables.pop(), _ADJACENCY, _UNIT)
        question = "a test of an adaptive series"
        return self._ledger.hold(self._accounts, PureLoss(price), question=question, protected=protected)


def level_after_answers(level: float, *, epsilon: Number, rows: int) -> float:
    """Return the level for one test chosen after epsilon-private answers about the same independent rows.

    P(rejected) <= exp(k) corrected + beta <= level, with k the beta-approximate max-information
    min(epsilon n, epsilon^2 n / 8 + epsilon sqrt(n ln(1/beta) / 2)) of the answers (docs/proofs/generalization.md);
    beta is chosen to leave the most.

    >>> round(level_after_answers(0.05, epsilon=0.01, rows=10_000), 4)
    0.0078
    >>> level_after_answers(0.05, epsilon=0, rows=10_000)
    0.05
    """
    spent = float(rational(epsilon, "epsilon", positive=False))
    best = level * math.exp(-min(spent * rows, 700.0))
    for share in _SHARES:
        beta = share * level
        nats = spent**2 * rows / 8 + spent * math.sqrt(rows * math.log(1 / beta) / 2)
        best = max(best, (level - beta) * math.exp(-min(nats, 700.0)))
    return best


def level_after_decisions(level: float, *, done: int, rejected: int) -> float:
    """Return the level for one test chosen after ``done`` yes-or-no answers, ``rejected`` of them yes.

    Given the noise, at most C(done, rejected) series of decisions with that many rejections lead here, and each fixes
    the test before the sample is drawn; the number of rejections gets the share 1/((r + 1)(r + 2)) of the level, which
    sums to 1 (DFHPRR15, Section 4; docs/proofs/generalization.md).

    >>> level_after_decisions(0.05, done=10, rejected=0)
    0.025
    """
    log = math.lgamma(done + 1) - math.lgamma(rejected + 1) - math.lgamma(done - rejected + 1)
    return level / ((rejected + 1) * (rejected + 2)) * math.exp(-min(log, 700.0))


def build_named_query(name: object, subject: Sequence[Any], terms: Mapping[str, Any]) -> HypothesisQuery:
    """Build the query of a test from its name and plain values.

    Only exact built-in types are accepted: a subclass could carry methods that run where the data is.

    >>> terms = {"equals": True, "null": 0.5, "epsilon": Fraction(1)}
    >>> build_named_query("binomial", ["late"], terms).question
    'binomial test: share of rows with late = True, null 0.5, two-sided'
    """
    if type(name) is not str:
        raise InvalidRequest(
            "Expected the name of a test; a function or a query could see the release that the series hides",
            got=type(name).__name__,
            do='Pass e.g. run("binomial", "late", equals=True, null=0.5, epsilon=0.3)',
        )
    if name not in NAMED_TESTS:
        raise InvalidRequest("Expected the name of a test", got=name, do=f"Pass one of {', '.join(NAMED_TESTS)}")
    plain = {term: _convert_to_plain(value) for term, value in terms.items()}
    return NAMED_TESTS[name](*(_convert_to_plain(each) for each in subject), **plain)


def _convert_to_plain(value: Any, depth: int = 0) -> Any:
    """Return a value of exact built-in type, with NumPy's converted."""
    if type(value) in _PLAIN_TYPES:
        return value
    if type(value) is np.ndarray or (isinstance(value, np.generic) and type(value).__module__ == "numpy"):
        value = value.tolist()
        return value if type(value) in _PLAIN_TYPES else _convert_to_plain(value, depth + 1)
    if type(value) in (list, tuple) and depth < _DEEPEST:
        return type(value)(_convert_to_plain(each, depth + 1) for each in value)
    raise InvalidRequest(
        "Expected plain values: numbers, texts, and lists of them",
        got=type(value).__name__,
        do="Pass the values themselves, not objects or functions",
    )


def _run_quietly(steps: Callable[[], Release[HypothesisVerdict]], question: str) -> Release[HypothesisVerdict]:
    """Measure and test. Errors and warnings may carry rows or the release, so none leaves, not even chained."""
    stopped = False
    try:
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return steps()
    except KeyboardInterrupt:
        stopped = True
    if stopped:
        raise KeyboardInterrupt(f"{question!r} was stopped before it had an answer; it stays charged and counted.")
    raise EngineFailed(
        f"Failed while running {question!r}", do="Check the data source; the test stays charged and counted"
    )
