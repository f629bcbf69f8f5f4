"""Many tests on one sample, each chosen after seeing the last: which rejections still mean something?"""

from __future__ import annotations

import contextlib
import math
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from expost.core import Adjacency, BudgetExceeded, EngineFailed, InvalidRequest, PureLoss, Receipt, Release, Unit
from expost.core.one_process import OneProcess
from expost.core.rational import probability, rational
from expost.data import Dataset
from expost.ledger import Hold, Ledger, Protected
from expost.ledger.account import checked_name
from expost.noise import BitSource
from expost.noise.bits import randomness
from expost.stats.hypothesis.column import public_rows
from expost.stats.hypothesis.named_test import NamedTest, request_named
from expost.stats.hypothesis.price import level_of
from expost.stats.hypothesis.verdict import Verdict

__all__ = ["AdaptiveTester", "Finding", "level_after_answers", "level_after_decisions"]

Shows = Literal["decisions", "verdicts"]

_LEAST_LEVEL = 1e-12  # a corrected level below this is taken for none
_SHARES = [2.0**-k for k in range(1, 20)]
_ADJACENCY, _UNIT = Adjacency.REPLACE_ONE, Unit.row()  # what the max-information of independent rows is bounded for


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One test of an adaptive series: the decision at the corrected level, and its receipt.

    ``verdict`` is there only if the series shows verdicts; its p-value would tell more about the sample than the
    decision does. Everything else is public before the test runs.

    >>> from expost.core import PureGuarantee
    >>> receipt = Receipt(question="q", method="m", promise=PureGuarantee(1), bill=PureLoss(1))
    >>> Finding(rejected=True, corrected_level=0.01, tests_left=3, receipt=receipt).verdict is None
    True
    """

    rejected: bool
    corrected_level: float
    tests_left: int
    receipt: Receipt
    verdict: Verdict | None = None


class AdaptiveTester(OneProcess):
    """Keeps the chance of any false rejection in a series of adaptive private tests below one level.

    The tester holds the dataset and runs the tests itself. The analyst names a test, its columns and its terms, and sees
    what ``shows`` allows: a yes or no each (``"decisions"``), or private numbers too (``"verdicts"``). Each test may be
    chosen after seeing everything earlier tests showed; its level is lowered by what that can tell about the sample.
    With decisions, tests that do not reject are free.

    P(some true null hypothesis is rejected) <= ``level`` over the whole series, for independent rows and tests that keep
    their own level (LeeNotes, Theorem 2.1 and RRST16, Section 1.1: correction by max-information; DFHPRR15, Section 4:
    description length; proofs in docs/proofs/generalization.md). The privacy cost is the sum of the tests' own;
    ``tests_left`` and ``most_tests`` say how many more tests keep a given power.

    The dataset must be about single rows with a public number of them (``adjacency="replace-one"``), which the
    corrections are proved for; so must the account of the table be, if a ledger pays.

    A series is counted in one place: a copy is the series itself, and neither pickles nor forked processes continue it.

    >>> import pyarrow as pa
    >>> table = pa.table({"late": [True, False, False, False] * 2500})
    >>> tester = AdaptiveTester(Dataset(table, adjacency="replace-one", rows=10_000), max_tests=20)
    >>> round(tester.next_level, 5)
    0.00125
    """

    _called = "series of tests"

    def __init__(
        self,
        dataset: Dataset,
        *,
        max_tests: int,
        level: object = 0.05,
        shows: Shows = "decisions",
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
        self._dataset, self._rows = dataset, public_rows(dataset)
        self._max_tests, self._shows = max_tests, shows
        self._level = probability(level, "level")
        self._ledger, self._accounts = ledger, tuple(accounts)
        self._bits, self._simulation = randomness(bits, simulation), simulation
        self._done, self._rejected, self._spent = 0, 0, Fraction(0)
        super().__init__()
        self._lock = threading.RLock()

    @property
    def spent(self) -> PureLoss:
        """What the tests so far have cost."""
        return PureLoss(self._spent)

    @property
    def next_level(self) -> float:
        """The level at which the next test is decided."""
        return self._level_at(self._done, self._rejected, self._spent)

    def run(self, test: str, *subject: Any, epsilon: object, **terms: Any) -> Finding:
        """Run the test of this name and decide it at the corrected level.

        ``test`` is "binomial", "fit", "independence", "mean_difference", "anova", "correlation", "linear_correlation" or
        "split"; ``subject`` and ``terms`` are the arguments of its request (``BinomialTest`` and so on), as plain values.
        A function or a request is refused: it could see the release that the series hides.

        >>> import pyarrow as pa
        >>> from expost.noise import SeededBits
        >>> table = pa.table({"late": [True, False, False, False] * 100})
        >>> dataset = Dataset(table, adjacency="replace-one", rows=400)
        >>> tester = AdaptiveTester(dataset, max_tests=5, bits=SeededBits(1), simulation=True)
        >>> finding = tester.run("binomial", "late", equals=True, null=0.5, epsilon=0.1)
        >>> finding.rejected, finding.tests_left
        (True, 4)
        """
        price = level_of(epsilon)
        self._check_process()
        request = request_named(test, *subject, epsilon=price, **terms)
        request.check(self._dataset)
        with self._lock:  # one test after the other: each level follows from what was shown before
            return self._run(request, price)

    def _run(self, request: NamedTest, price: Fraction) -> Finding:
        if self._done >= self._max_tests:
            raise BudgetExceeded("All tests in this series have been used", do="Start a new series on fresh rows")
        level, hold = self.next_level, self._hold(price)
        # Counted before it runs: a test that fails half-way has still looked at the sample.
        self._done, self._spent = self._done + 1, self._spent + price
        release = _quietly(lambda: request.climb(request.measure(self._dataset), self._bits), request.question)
        release = replace(release, receipt=replace(release.receipt, simulation=self._simulation))
        release = self._settled(hold, release)
        rejected = release.value.p_value <= level
        self._rejected += rejected
        return Finding(
            rejected=rejected,
            corrected_level=level,
            tests_left=self._max_tests - self._done,
            receipt=release.receipt,
            verdict=release.value if self._shows == "verdicts" else None,
        )

    def tests_left(self, power_at: Callable[[float], float], *, epsilon: object, power: object = 0.8) -> int:
        """How many more tests at this epsilon the sample carries: each with ``power`` at its own corrected level.

        ``power_at`` gives the power at a level. The worst pattern of rejections to come is supposed.

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

    def most_tests(
        self, power_at: Callable[[float, float], float], *, epsilons: Sequence[float], power: object = 0.8
    ) -> tuple[int, float]:
        """The largest number of further tests with this power, and the smallest of ``epsilons`` per test to give it.

        ``power_at(epsilon, level)`` is the power of one test.

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
        share = float(self._level) / self._max_tests
        if self._shows == "verdicts":
            return level_after_answers(share, epsilon=spent, rows=self._rows)
        # Both corrections hold for decisions; each gets half of the level, and the better one decides.
        return max(
            level_after_answers(share / 2, epsilon=spent, rows=self._rows),
            level_after_decisions(share / 2, done=done, rejected=rejected),
        )

    def _hold(self, price: Fraction) -> Hold | None:
        if self._ledger is None:
            return None
        protected = Protected(_table_of(self._ledger, self._accounts), _ADJACENCY, _UNIT)
        question = "a test of an adaptive series"
        return self._ledger.hold(self._accounts, PureLoss(price), question=question, protected=protected)

    def _settled(self, hold: Hold | None, release: Release[Verdict]) -> Release[Verdict]:
        if self._ledger is None or hold is None:
            return release
        return release.entered(self._ledger.settle(hold, release.receipt))


def _table_of(ledger: Ledger, accounts: Sequence[str]) -> str:
    """The account of the whole table that the sample is from; an analyst's is about many tables."""
    names = [checked_name(account) for account in accounts]
    tables = {ledger.root_of(name) for name in names if not name.startswith("analyst:")}
    if len(tables) != 1:
        raise InvalidRequest(
            "Expected the account of one table, or of its parts", got=tuple(accounts), do='Pass ["dataset:flights"]'
        )
    return tables.pop()


def level_after_answers(level: float, *, epsilon: object, rows: int) -> float:
    """The level for one test chosen after epsilon-private answers about the same independent rows.

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
    """The level for one test chosen after ``done`` yes-or-no answers, ``rejected`` of them yes.

    Given the noise, at most C(done, rejected) series of decisions with that many rejections lead here, and each fixes
    the test before the sample is drawn; the number of rejections gets the share 1/((r + 1)(r + 2)) of the level, which
    sums to 1 (DFHPRR15, Section 4; docs/proofs/generalization.md).

    >>> level_after_decisions(0.05, done=10, rejected=0)
    0.025
    """
    log = math.lgamma(done + 1) - math.lgamma(rejected + 1) - math.lgamma(done - rejected + 1)
    return level / ((rejected + 1) * (rejected + 2)) * math.exp(-min(log, 700.0))


def _quietly(steps: Callable[[], Release[Verdict]], question: str) -> Release[Verdict]:
    """Measure and test; errors and warnings on the way may carry rows or the release, so none leaves, not even chained."""
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
