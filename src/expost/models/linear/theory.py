"""A utility theorem turned around: the level at which the theorem promises the accuracy, run once (LNRWW17)."""

from __future__ import annotations

from fractions import Fraction

from expost.core import Ladder, Loss, PureLoss, Release
from expost.core.rational import round_up
from expost.data.matrix import RowSource, UnitRows
from expost.models.linear.model import LinearModel
from expost.models.linear.paper_fit import PaperFit
from expost.noise import BitSource

__all__ = ["TheoryInversion"]


class TheoryInversion:
    """One hypothesis at the level that the (corrected) utility theorem asks for.

    The theorems bound the *expected* excess risk; Markov's inequality turns that into a probability, so the level is the
    one whose expected excess risk is failure_probability times the target.

    Guarantee: pure DP, known before the run.
    Adjacency: replace-one, one row; the number of rows is public.
    Sensitivity: that of NoiseReduction's hypotheses.
    Accuracy: excess risk within the target except with the failure probability, by Markov's inequality.
    Numerics: exact integer noise.
    Reference: LNRWW17, Theorems 3.1 and 3.3; docs/errata-2017.md for their corrected constants.
    """

    def __init__(self, fit: PaperFit) -> None:
        self._fit = fit
        level = fit.numbers.epsilon_by_theory(fit.tolerance * fit.failure)
        self._epsilon = fit.problem.aim.afford(round_up(level))

    @property
    def question(self) -> str:
        return f"linear model minimising {self._fit.loss.name}"

    @property
    def worst_case(self) -> Loss:
        return PureLoss(self._epsilon)

    def check(self, source: RowSource) -> None:
        self._fit.check(source)

    def measure(self, source: RowSource) -> UnitRows:
        return self._fit.measure(source)

    def climb(self, rows: UnitRows, bits: BitSource | None) -> Release[LinearModel]:
        fit, ladder = self._fit, Ladder((self._epsilon,))
        return fit.release(
            fit.hypotheses(rows, ladder, bits=bits).block(0, 1)[0],
            method=f"{fit.task.value} perturbation at the level of its utility theorem (2017)",
            generation=self._epsilon,
            testing=Fraction(0),
            promise=self._epsilon,
            met=True,
        )
