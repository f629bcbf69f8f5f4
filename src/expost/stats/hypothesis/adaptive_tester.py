"""Many tests on one sample, each chosen after seeing the last: which rejections still mean something?"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from expost.core import Adjacency, BudgetExceeded, InvalidRequest, PureLoss, Receipt, Release, Unit
from expost.core.one_process import OneProcess
from expost.core.rational import probability, rational
from expost.ledger import Hold, Ledger, Protected
from expost.ledger.account import checked_name
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
    decision does.

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

    Each test may be chosen after seeing everything earlier tests said. What they said is little: a yes or no each
    (``shows="decisions"``), or private numbers (``shows="verdicts"``). Each test's level is lowered by just that much.
    With decisions, tests that do not reject are free.

    P(some true null hypothesis is rejected) <= ``level`` over the whole series, for independent rows (LeeNotes, Theorem
    2.1 and RRST16, Section 1.1: correction by max-information; DFHPRR15, Section 4: description length; proofs in
    docs/proofs/generalization.md). The privacy cost is the sum of the tests' own; ``tests_left`` and ``most_tests`` say
    how many more tests keep a given power.

    Tests must be about single rows with a public number of them (``adjacency="replace-one"``), which the corrections
    are proved for; so must the account of the table be, if a ledger pays.

    A series is counted in one place: a copy is the series itself, and neither pickles nor forked processes continue it.

    >>> tester = AdaptiveTester(10_000, max_tests=20)
    >>> round(tester.next_level, 5)
    0.00125
    """

    _called = "series of tests"

    def __init__(
        self,
        rows: int,
        *,
        max_tests: int,
        level: object = 0.05,
        shows: Shows = "decisions",
        ledger: Ledger | None = None,
        accounts: Sequence[str] = (),
    ) -> None:
        for name, value in (("rows", rows), ("max_tests", max_tests)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidRequest(f"Expected {name} to be a positive whole number", got=value, do="Pass 1 or more")
        if not isinstance(shows, str) or shows not in ("decisions", "verdicts"):
            raise InvalidRequest("Expected shows to be 'decisions' or 'verdicts'", got=shows, do="Name one of them")
        self._rows, self._max_tests, self._shows = rows, max_tests, shows
        self._level = probability(level, "level")
        self._ledger, self._accounts = ledger, tuple(accounts)
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

    def run(self, test: Callable[[Fraction], Release[Verdict]], *, epsilon: object) -> Finding:
        """Run ``test`` at this epsilon and decide it at the corrected level.

        >>> import numpy as np
        >>> from expost.noise import SeededBits
        >>> from expost.stats.hypothesis import binomial_test
        >>> tester, sample = AdaptiveTester(400, max_tests=5), np.arange(400) % 4 == 0
        >>> finding = tester.run(lambda e: binomial_test(sample, 0.5, epsilon=e, bits=SeededBits(1)), epsilon=0.1)
        >>> finding.rejected, finding.tests_left
        (True, 4)
        """
        price = level_of(epsilon)
        self._check_process()
        with self._lock:  # one test after the other: each level follows from what was said before
            return self._run(test, price)

    def _run(self, test: Callable[[Fraction], Release[Verdict]], price: Fraction) -> Finding:
        if self._done >= self._max_tests:
            raise BudgetExceeded("Expected tests left in the series", got=0, do="Start a new series on fresh rows")
        level, hold = self.next_level, self._hold(price)
        # Counted before it runs: a test that fails half-way has still looked at the sample.
        self._done, self._spent = self._done + 1, self._spent + price
        release = self._settled(hold, _checked(test(price), price))
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
        >>> def power_at(level):
        ...     return binomial_power(10_000, 0.5, 0.55, epsilon=0.05, level=level)
        >>> AdaptiveTester(10_000, max_tests=50).tests_left(power_at, epsilon=0.05)
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
        >>> def power_at(epsilon, level):
        ...     return binomial_power(10_000, 0.5, 0.55, epsilon=epsilon, level=level)
        >>> AdaptiveTester(10_000, max_tests=50).most_tests(power_at, epsilons=[0.01, 0.1, 1])
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


def _checked(release: Release[Verdict], price: Fraction) -> Release[Verdict]:
    if not isinstance(release, Release) or not isinstance(release.value, Verdict):
        raise InvalidRequest(
            "Expected a test that gives a release of a verdict",
            got=type(release).__name__,
            do="Return what binomial_test and its like return",
        )
    receipt, bill = release.receipt, release.receipt.bill
    if (receipt.adjacency, receipt.unit) != (_ADJACENCY, _UNIT):
        raise InvalidRequest(
            f"Expected a test about {_UNIT} and {_ADJACENCY.value} neighbours",
            got=f"{receipt.unit}, {receipt.adjacency.value}",
            do='Pass adjacency="replace-one" to the test',
        )
    if not isinstance(bill, PureLoss) or bill.epsilon > price:
        raise InvalidRequest(
            "Expected a test that costs at most the epsilon it was given", do="Pass the epsilon on to the test"
        )
    return release
