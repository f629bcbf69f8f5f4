"""What a caller asks of a training, and the schedule and prices that follow from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral
from typing import Any

from expost.core import BudgetExceeded, InvalidRequest, Measure, Target
from expost.core.rational import probability, rational
from expost.models.descent.batches import Batches, batches_named
from expost.models.descent.prices import ACCOUNTANTS, PriceList
from expost.models.descent.schedule import Phase, Schedule

__all__ = ["Order", "Plan"]

_MEASURES = {"accuracy": Measure.ACCURACY, "rmse": Measure.RMSE}
_SPREAD = 32  # the cap over the price of the first phase, where the target does not say
_LEAST_SPREAD = 4
_EVEN_SPREAD = 4  # the same where noise does not fall: a sixteenth of the steps come before the first test
_MOST = 10**12  # rows or steps: beyond it floats lose count
_MOST_STOPS = 1000  # phases: each has a share of delta, and is priced
_OPTIONAL = ("phases", "batch_size")
_LARGEST_DELTA = Fraction(1, 10)  # more is no privacy, and prices fall to nothing
_SMALLEST_DELTA = Fraction(1, 10**18)  # less is rounded up in a ledger, whose budgets it would exceed
_FINEST = 10**6  # parts of an accuracy, in which rows are counted
_LEEWAY = 12.0  # over the validation rows and the errors allowed: the price at which a test can first tell
# Of prices from phase to phase. Stops overlap the more the closer they are, so that many cost little more than few, and noise
# that a test keeps hides no more for them; but where noise falls each is made for its own phase.
_GROWTH, _EVEN_GROWTH = 1.25, 1.06
_MOST_PHASES = 24
# Where a test costs nothing stops are closer to each other, until their shares of delta eat that up, and begin earlier: where
# the noise of a training's sums, a few over epsilon, is a hundredth of the rows. On MNIST 1.1 and 1.15 did alike, 1.25 worse.
_FREE_GROWTH, _MOST_FREE_PHASES, _FREE_SPREAD, _FREE_LEEWAY = 1.15, 32, 64, 900
_WORK = 1 << 25  # feature values a step may read before batches are sampled
_LARGEST_SHARE, _SMALLEST_SHARE = Fraction(1, 5), Fraction(1, 50)  # of the rows that are held out for a target
_HELD_OUT_ERRORS = 12.5  # over epsilon: the square of the share held out times all errors that are allowed, see _share


@dataclass(frozen=True)
class Plan:
    """A schedule, its prices, and the target it is run for."""

    schedule: Schedule
    prices: PriceList
    target: Target | None
    validation_share: Fraction


@dataclass(frozen=True, kw_only=True)
class Order:
    """The public terms of a training; exactly one of ``epsilon``, ``noise_multiplier`` and ``target`` leads.

    ``rows`` is a public number: about how many rows there are. It sets sampling rates and what sums are divided by. A
    wrong one costs accuracy, never privacy; the true number of rows is never used.

    >>> order = Order(rows=1000, epsilon=1.0, delta=1e-6, steps=10, batches="full")
    >>> order.plan().schedule.phases[0].noise_multiplier
    Fraction(334, 25)
    """

    rows: int
    delta: Any
    epsilon: Any = None
    noise_multiplier: Any = None
    target: Any = None
    max_epsilon: Any = 1.0
    failure_probability: Any = 0.1
    batches: str = "auto"
    batch_size: int | None = None
    usual_batch: int | None = None
    """The size of a batch where none is given, if there are as many rows; else a sixteenth of them."""
    steps: int = 100
    phases: int | None = None
    validation_share: Any = None
    accountant: str = "auto"
    width: int = 1
    falling: bool = True
    """Whether the noise of a training to a target falls from phase to phase, or is the same in all."""
    public_test: bool = False
    """Whether the target is tested on public rows: none are held out then, and asking is free."""

    def plan(self) -> Plan:
        """The schedule and its prices; reads no data."""
        self._check()
        delta = probability(self.delta, "delta")
        share, target = self._share(), self._target()
        batches = self._batches(max(1, int(self.rows * (1 - share))))
        if target is not None:
            schedule, prices = self._ladder(batches, delta, target, share)
        elif self.epsilon is not None:
            level = rational(self.epsilon, "epsilon")
            schedule = Schedule.fixed(batches, steps=self.steps, epsilon=level, delta=delta, accountant=self.accountant)
            prices = schedule.prices(delta, accountant=self.accountant)
        else:
            noise = rational(self.noise_multiplier, "noise_multiplier")
            schedule = Schedule(batches, (Phase(self.steps, noise),))
            prices = schedule.prices(delta, accountant=self.accountant)
        return Plan(schedule, prices, target, share)

    def aim(self) -> Target:
        """The target, read."""
        self._check()
        target = self._target()
        if target is None:
            raise InvalidRequest("Expected a target", do='Pass target=("accuracy", 0.95)')
        return target

    def drawn_from(self, held_out: Fraction) -> Batches:
        """The batches of the rows that are not held out."""
        self._check()
        return self._batches(max(1, int(self.rows * (1 - held_out))))

    def _check(self) -> None:
        for name in ("rows", "steps", "phases", "batch_size"):
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            most = _MOST_STOPS if name == "phases" else _MOST
            if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= most:
                raise InvalidRequest(
                    f"Expected {name} to be a whole number from 1 to {most}", got=value, do="Pass a public number"
                )
            object.__setattr__(self, name, int(value))  # NumPy's integers overflow
        if self.epsilon is None and self.noise_multiplier is None and self.target is None:
            raise InvalidRequest("Expected a target, an epsilon or a noise_multiplier", do="Pass the one you need")
        if self.epsilon is not None and (self.noise_multiplier is not None or self.target is not None):
            raise InvalidRequest("Expected epsilon alone", do="Leave target and noise_multiplier out")
        if self.phases is not None and self.phases > self.steps:
            raise InvalidRequest(
                "Expected phases of at least one step",
                got=f"{self.phases} phases, {self.steps} steps",
                do="Lower phases",
            )
        if self.accountant not in ACCOUNTANTS:
            names = ", ".join(ACCOUNTANTS)
            raise InvalidRequest(f"Expected accountant to be one of {names}", got=self.accountant, do="Name one")
        if self.public_test and (self.target is None or self.validation_share is not None):
            raise InvalidRequest(
                "Expected a target and no validation_share beside public rows to validate on",
                do="Pass target= and leave validation_share out",
            )
        # Also where nothing reads them: a wrong word is better said than ignored.
        rational(self.max_epsilon, "max_epsilon")
        probability(self.failure_probability, "failure_probability")
        if self.validation_share is not None:
            probability(self.validation_share, "validation_share")
        if not _SMALLEST_DELTA <= probability(self.delta, "delta") <= _LARGEST_DELTA:
            raise InvalidRequest(
                f"Expected delta from {float(_SMALLEST_DELTA)} to {float(_LARGEST_DELTA)}",
                got=self.delta,
                do="Pass one far below 1 / rows, such as 1e-9",
            )

    @property
    def _even(self) -> bool:
        """Whether all phases have the same noise."""
        return not self.falling or self.noise_multiplier is not None

    def _share(self) -> Fraction:
        if self.target is None or self.public_test:
            return Fraction(0)
        if self.validation_share is not None:
            return probability(self.validation_share, "validation_share")
        target, cap = self._target(), rational(self.max_epsilon, "max_epsilon")
        if target is None or target.measure is not Measure.ACCURACY or target.tolerance >= 1:
            return _LARGEST_SHARE
        # A share f costs the training f of its rows, and leaves the test a margin of a few rows over epsilon among the
        # errors allowed, f (1 - accuracy) rows of them: the sum of both is least at a root. Epsilon is taken as an eighth of
        # the cap, or as half of it where prices begin at a quarter.
        expected = cap / (2 if self._even else 8)
        wanted = math.sqrt(_HELD_OUT_ERRORS / float(expected * self.rows * (1 - target.tolerance)))
        return max(_SMALLEST_SHARE, min(_LARGEST_SHARE, Fraction(round(100 * min(wanted, 1.0)), 100)))

    def _target(self) -> Target | None:
        if self.target is None:
            return None
        name, value = self.target if isinstance(self.target, tuple | list) and len(self.target) == 2 else (None, None)
        if not isinstance(name, str) or name not in _MEASURES:
            raise InvalidRequest("Expected target to name accuracy or rmse", do='Pass ("accuracy", 0.95)')
        wanted = rational(value, "target")
        if name == "accuracy" and wanted.denominator > _FINEST:
            raise InvalidRequest("Expected an accuracy of a few decimals", got=value, do="Round it, e.g. to 0.95")
        return Target(_MEASURES[name], wanted, probability(self.failure_probability, "failure_probability"))

    def _batches(self, rows: int) -> Batches:
        size = rows if self.batches == "full" else self.batch_size  # all rows, whatever a batch would be elsewhere
        if self.batches != "auto":
            usual = min(self.usual_batch, rows) if self.usual_batch else max(1, rows // 16)
            return batches_named(self.batches, rows=rows, batch_size=size or usual)
        if size is None and rows * self.width <= _WORK:
            return batches_named("full", rows=rows, batch_size=rows)
        return batches_named("poisson", rows=rows, batch_size=size or max(1, _WORK // self.width))

    def _ladder(self, batches: Batches, delta: Fraction, target: Target, share: Fraction) -> tuple[Schedule, PriceList]:
        cap = rational(self.max_epsilon, "max_epsilon")
        lowest = self._lowest(cap, target, share)
        phases = self.phases or self._stops(float(cap / lowest), self.steps // batches.period)
        if self.noise_multiplier is None:
            return Schedule.ladder(
                batches,
                steps=self.steps,
                phases=phases,
                lowest=lowest,
                highest=cap,
                delta=delta,
                accountant=self.accountant,
                falling=self.falling,
            )
        noise = rational(self.noise_multiplier, "noise_multiplier")
        schedule = Schedule.even(batches, steps=self.steps, phases=phases, ratio=lowest / cap, noise_multiplier=noise)
        prices = schedule.prices(delta, accountant=self.accountant)
        if prices.cap.epsilon > cap:
            raise BudgetExceeded(
                "Expected steps that max_epsilon can pay for",
                got=f"epsilon {float(prices.cap.epsilon):.4g}",
                do="Raise max_epsilon or noise_multiplier, or lower steps",
            )
        return schedule, prices

    def _stops(self, spread: float, passes: int) -> int:
        """How many phases prices have from the first to the cap: as many as there are passes, where these would not be enough."""
        most = _MOST_FREE_PHASES if self.public_test else _MOST_PHASES
        growth = _FREE_GROWTH if self.public_test else _GROWTH
        usual = min(most, 1 + math.ceil(math.log(spread) / math.log(growth)))
        if not self._even:
            return usual
        # A phase has one pass at least, so that more of them than there are would prolong the training.
        fine = min(most, 1 + math.ceil(math.log(spread) / math.log(_EVEN_GROWTH)))
        return max(usual, min(fine, passes))

    def _lowest(self, cap: Fraction, target: Target, share: Fraction) -> Fraction:
        """The price of the first phase: below it, the test's margin eats a quarter of the errors that are allowed."""
        if self._even:
            return cap / _EVEN_SPREAD
        if self.public_test:
            return min(cap / _LEAST_SPREAD, max(cap / _FREE_SPREAD, Fraction(_FREE_LEEWAY, self.rows)))
        if target.measure is not Measure.ACCURACY or target.tolerance >= 1:
            return cap / _SPREAD
        errors_allowed = float(self.rows * share * (1 - target.tolerance))
        return min(cap / _LEAST_SPREAD, Fraction(_LEEWAY / errors_allowed).limit_denominator(10**6))
