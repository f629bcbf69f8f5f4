"""The public terms of a training as the caller gives them, and the schedule and prices that follow from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Integral
from typing import Any

from expost.core import BudgetExceeded, InvalidRequest, Measure, Target
from expost.core.question_cap import read_cap
from expost.core.rational import probability, rational
from expost.models.descent.measured_ladder import plan_measured_ladder
from expost.models.descent.open_ladder import plan_open_ladder, usual_price
from expost.models.descent.stopping_price import PriceList, check_accountant
from expost.models.descent.training_schedule import Batches, Full, Phase, Schedule, choose_batches
from expost.noise.gaussian_stream import LARGEST_MULTIPLIER

__all__ = ["TrainingCourse", "TrainingOrder"]

_MEASURES = {"accuracy": Measure.ACCURACY, "rmse": Measure.RMSE, "r2": Measure.R2}
_SPREAD = 32  # cap over first price, where the score gives no hint
_LEAST_SPREAD = 4
_EVEN_SPREAD = 4  # the same where noise does not fall: a sixteenth of the steps come before the first test
_LARGEST_COUNT = 10**12  # rows or steps: beyond it floats lose count
_LARGEST_PHASES = 1000  # each phase has a share of delta and must be priced
_LARGEST_DELTA = Fraction(1, 10)  # a larger delta does not protect, and prices fall to zero
_SMALLEST_DELTA = Fraction(1, 10**18)  # a smaller one is rounded up in a ledger and would exceed its budget
_FINEST_SCORE = 10**6  # largest denominator of an accuracy: the test counts rows in these units
_LEEWAY = 12.0  # the test's first useful epsilon, times the number of errors allowed on the validation rows
# Growth of prices from phase to phase. Close stops overlap, so that many cost little more than few. Where noise falls
# each phase is calibrated to its own stop, so stops are further apart there.
_GROWTH, _EVEN_GROWTH = 1.25, 1.06
_MOST_PHASES = 24
# A test on public rows is free, so stops are closer, until their shares of delta cost more than that saves, and start
# where the noise of a sum, a few over epsilon, is a hundredth of the rows. On MNIST 1.1 and 1.15 were equal, 1.25 worse.
_FREE_GROWTH, _MOST_FREE_PHASES, _FREE_SPREAD, _FREE_LEEWAY = 1.15, 32, 64, 900
_PHASES_PER_STEPS = 25  # phases that the steps of a training are divided among, where a score is measured on all rows
_WORK = 1 << 25  # feature values that a step may read before batches are sampled
_LARGEST_SHARE, _SMALLEST_SHARE = Fraction(1, 5), Fraction(1, 50)  # of the rows that are held out for a test
_HELD_OUT_ERRORS = 12.5  # share held out, squared, times epsilon times all errors allowed; see validation_part


@dataclass(frozen=True)
class TrainingCourse:
    """A schedule, its prices, the target it runs for and the share of rows held out to test it."""

    schedule: Schedule
    prices: PriceList
    target: Target | None
    validation_share: Fraction
    measured: bool = False
    """Whether the score is measured on all rows, so that none are held out."""
    open_ended: bool = False
    """Whether a larger cap would go on with the same phases."""

    @property
    def uses_all_rows(self) -> bool:
        """Return whether all rows are in every step."""
        return isinstance(self.schedule.batches, Full) and not self.validation_share


@dataclass(frozen=True, kw_only=True)
class TrainingOrder:
    """The public terms of a training. Exactly one of ``epsilon``, ``noise_multiplier`` and ``score`` leads.

    ``rows`` is about how many rows there are, as a public number. It sets sampling rates and what sums are divided by. A
    wrong one costs accuracy, never privacy; the true number of rows is never used.

    Terms that are not explained at their field are those of ``SGDClassifier``.
    """

    rows: int
    delta: Any
    epsilon: Any = None
    noise_multiplier: Any = None
    score: Any = None
    max_epsilon: Any = None
    failure_probability: Any = 0.1
    batches: str = "auto"
    batch_size: int | None = None
    usual_batch: int | None = None
    """Batch size where none is given and there are as many rows. Default: a sixteenth of the rows."""
    steps: int = 100
    phases: int | None = None
    validation_share: Any = None
    accountant: str = "auto"
    width: int = 1
    falling: bool = True
    """Whether the noise of a training to a score falls from phase to phase, or is the same in all."""
    open_ended: bool = False
    """Whether ``steps`` is a usual number: a training to a score takes fewer or more, as far as its cap allows."""
    public_test: bool = False
    """Whether the score is tested on public rows: then none are held out, and tests are free."""

    def __post_init__(self) -> None:
        for name in ("rows", "steps", "phases", "batch_size"):
            value = getattr(self, name)
            if value is None and name in ("phases", "batch_size"):
                continue
            most = _LARGEST_PHASES if name == "phases" else _LARGEST_COUNT
            if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= most:
                raise InvalidRequest(
                    f"Expected {name} to be a whole number from 1 to {most}", got=value, do="Pass a public number"
                )
            object.__setattr__(self, name, int(value))  # NumPy's integers overflow
        if self.epsilon is None and self.noise_multiplier is None and self.score is None:
            raise InvalidRequest("Expected a score, an epsilon or a noise_multiplier", do="Pass the one you need")
        if self.epsilon is not None and (self.noise_multiplier is not None or self.score is not None):
            raise InvalidRequest("Expected epsilon alone", do="Leave score and noise_multiplier out")
        if self.noise_multiplier is not None:
            noise = rational(self.noise_multiplier, "noise_multiplier")
            if noise > LARGEST_MULTIPLIER:
                raise InvalidRequest(
                    "Expected a noise_multiplier of at most 2^24", got=self.noise_multiplier, do="Pass a smaller one"
                )
        if self.phases is not None and self.phases > self.steps:
            raise InvalidRequest(
                "Expected phases of at least one step",
                got=f"{self.phases} phases, {self.steps} steps",
                do="Lower phases",
            )
        check_accountant(self.accountant)
        if self.public_test and (self.score is None or self.validation_share is not None):
            raise InvalidRequest(
                "Expected a score and no validation_share together with public_validation",
                do="Pass score= and leave validation_share out",
            )
        # Checked even where they are not used: a wrong value should be reported, not ignored.
        read_cap(self.max_epsilon)
        probability(self.failure_probability, "failure_probability")
        if self.validation_share is not None:
            probability(self.validation_share, "validation_share")
        if not _SMALLEST_DELTA <= probability(self.delta, "delta") <= _LARGEST_DELTA:
            raise InvalidRequest(
                f"Expected delta from {float(_SMALLEST_DELTA)} to {float(_LARGEST_DELTA)}",
                got=self.delta,
                do="Pass one far below 1 / rows, such as 1e-9",
            )

    def plan_course(self) -> TrainingCourse:
        """Return the schedule and its prices; reads no data."""
        delta = probability(self.delta, "delta")
        share, target = self.validation_part(), self._read_target()
        batches = self.draw_from(share)
        if target is not None and self.measures_all_rows:
            schedule, prices = plan_measured_ladder(
                batches,
                rows=batches.rows,
                steps=max(1, round(self.steps / _PHASES_PER_STEPS)),
                cap=read_cap(self.max_epsilon),
                delta=delta,
                accountant=self.accountant,
            )
            return TrainingCourse(schedule, prices, target, share, measured=True)
        if target is not None:
            schedule, prices = self._open_plan or self._plan_ladder(batches, delta, target, share)
            return TrainingCourse(schedule, prices, target, share, open_ended=self.is_open)
        if self.epsilon is not None:
            level = rational(self.epsilon, "epsilon")
            schedule = Schedule.fixed(batches, steps=self.steps, epsilon=level, delta=delta, accountant=self.accountant)
        else:
            noise = rational(self.noise_multiplier, "noise_multiplier")
            schedule = Schedule(batches, (Phase(self.steps, noise),))
        return TrainingCourse(schedule, schedule.prices(delta, accountant=self.accountant), None, share)

    def build_target(self) -> Target:
        """Return the score asked for as a target."""
        target = self._read_target()
        if target is None:
            raise InvalidRequest("Expected a score to reach", do='Pass score=("accuracy", 0.95)')
        return target

    def validation_part(self) -> Fraction:
        """Return the share of the rows held out for a private test.

        A share f costs the training f of its rows. It leaves the test a margin of a few rows over epsilon among the
        errors allowed, f (1 - accuracy) of the rows. The sum of both losses is least at a square root. Epsilon is not
        known yet: an eighth of the cap is assumed, or half of it where prices start at a quarter of the cap.
        """
        if self.score is None or self.public_test or self.measures_all_rows:
            return Fraction(0)
        if self.validation_share is not None:
            return probability(self.validation_share, "validation_share")
        target, cap = self._read_target(), read_cap(self.max_epsilon)
        if target is None or target.measure is not Measure.ACCURACY or target.tolerance >= 1:
            return _LARGEST_SHARE
        expected = usual_price(self.rows) / 2 if self._may_be_open else cap / (2 if self._even_noise else 8)
        wanted = math.sqrt(_HELD_OUT_ERRORS / float(expected * self.rows * (1 - target.tolerance)))
        return max(_SMALLEST_SHARE, min(_LARGEST_SHARE, Fraction(round(100 * min(wanted, 1.0)), 100)))

    @property
    def _may_be_open(self) -> bool:
        chosen = self.phases is not None or self.noise_multiplier is not None
        return self.open_ended and self.score is not None and not chosen

    @property
    def is_open(self) -> bool:
        """Return whether the cap cuts a schedule short that does not depend on it."""
        return self._open_plan is not None

    @cached_property
    def _open_plan(self) -> tuple[Schedule, PriceList] | None:
        """Return a schedule that does not depend on the cap; None where its first stop is above the cap."""
        target = self._read_target()
        if not self._may_be_open or target is None:
            return None
        share, usual = self.validation_part(), usual_price(self.rows)
        try:
            return plan_open_ladder(
                self.draw_from(share),
                steps=self.steps,
                first=self._first_useful_price(usual, target, share),
                usual=usual,
                cap=read_cap(self.max_epsilon),
                delta=probability(self.delta, "delta"),
                accountant=self.accountant,
            )
        except BudgetExceeded:
            return None

    @property
    def measures_all_rows(self) -> bool:
        """Return whether the score is measured on all rows, by Gaussian releases that share a phase with its steps.

        Every step then sees all rows. Where batches are sampled, noise is the same in all phases, or the caller chooses
        phases or rows to hold out, the test is on rows held out.
        """
        held_out = self.validation_share is not None or self.phases is not None or self.public_test
        return self.score is not None and self.samples_none and not held_out and not self._even_noise

    @property
    def samples_none(self) -> bool:
        """Return whether all rows are in every batch unless there are too many."""
        return self.batches == "full" or (self.batches == "auto" and self.batch_size is None)

    @property
    def _even_noise(self) -> bool:
        """Return whether all phases have the same noise."""
        return not self.falling or self.noise_multiplier is not None

    def _read_target(self) -> Target | None:
        """Read ``score``."""
        if self.score is None:
            return None
        name, value = self.score if isinstance(self.score, tuple | list) and len(self.score) == 2 else (None, None)
        if not isinstance(name, str) or name not in _MEASURES:
            raise InvalidRequest("Expected score to name accuracy, rmse or r2", do='Pass score=("accuracy", 0.95)')
        wanted = rational(value, "score")
        if name == "accuracy" and wanted.denominator > _FINEST_SCORE:
            raise InvalidRequest("Expected an accuracy of a few decimals", got=value, do="Round it, e.g. to 0.95")
        return Target(_MEASURES[name], wanted, probability(self.failure_probability, "failure_probability"))

    def draw_from(self, held_out: Fraction) -> Batches:
        """Return the batches of the rows that are not held out."""
        rows = max(1, int(self.rows * (1 - held_out)))
        size = rows if self.batches == "full" else self.batch_size  # all rows, whatever batch_size is
        if self.batches != "auto":
            usual = min(self.usual_batch, rows) if self.usual_batch else max(1, rows // 16)
            return choose_batches(self.batches, rows=rows, batch_size=size or usual)
        # A measured score reads all rows anyway, and full batches cost least.
        if size is None and (rows * self.width <= _WORK or self.measures_all_rows):
            return choose_batches("full", rows=rows, batch_size=rows)
        return choose_batches("poisson", rows=rows, batch_size=size or max(1, _WORK // self.width))

    def _plan_ladder(
        self, batches: Batches, delta: Fraction, target: Target, share: Fraction
    ) -> tuple[Schedule, PriceList]:
        """Plan phases whose prices rise to the cap, with a test after each."""
        cap = read_cap(self.max_epsilon)
        lowest = self._lowest_price(cap, target, share)
        phases = self.phases or self._count_phases(float(cap / lowest), self.steps // batches.period)
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
                f"These steps cost epsilon {float(prices.cap.epsilon):.4g}, above max_epsilon={float(cap):g}",
                do="Raise max_epsilon or noise_multiplier, or lower steps",
            )
        return schedule, prices

    def _count_phases(self, spread: float, passes: int) -> int:
        """Return the number of phases from the first price to the cap."""
        most = _MOST_FREE_PHASES if self.public_test else _MOST_PHASES
        growth = _FREE_GROWTH if self.public_test else _GROWTH
        usual = min(most, 1 + math.ceil(math.log(spread) / math.log(growth)))
        if not self._even_noise:
            return usual
        # A phase has at least one pass, so more phases than passes would prolong the training.
        fine = min(most, 1 + math.ceil(math.log(spread) / math.log(_EVEN_GROWTH)))
        return max(usual, min(fine, passes))

    def _lowest_price(self, cap: Fraction, target: Target, share: Fraction) -> Fraction:
        """Return the price of the first phase: below it the test's margin takes a quarter of the errors allowed."""
        if self._even_noise:
            return cap / _EVEN_SPREAD
        return self._first_useful_price(cap, target, share)

    def _first_useful_price(self, cap: Fraction, target: Target, share: Fraction) -> Fraction:
        """Return the price from which on a test can pass."""
        if self.public_test:
            return min(cap / _LEAST_SPREAD, max(cap / _FREE_SPREAD, Fraction(_FREE_LEEWAY, self.rows)))
        if target.measure is not Measure.ACCURACY or target.tolerance >= 1:
            return cap / _SPREAD
        errors_allowed = float(self.rows * share * (1 - target.tolerance))
        return min(cap / _LEAST_SPREAD, Fraction(_LEEWAY / errors_allowed).limit_denominator(10**6))
