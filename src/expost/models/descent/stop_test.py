"""What tells a training that it is good enough, and the test that costs nothing because its rows are nobody's secret."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from expost.core import InvalidRequest, Measure, Outcome
from expost.models.descent.learner import Learner
from expost.models.descent.validation import ScoreRule, ValidationTest

__all__ = ["PrivateTest", "PublicTest", "StopTest", "Verdict"]


@dataclass(frozen=True)
class Verdict:
    """A test's answer after a phase: private, or about public rows, so it may be shown.

    ``gap`` is the released gap of a private test that was passed; ``score`` is what is known of the score by then.

    >>> print(Verdict(False))
    target not reached yet
    """

    passed: bool
    gap: int | None = None
    score: float | None = None
    rows: str = "rows"

    def __str__(self) -> str:
        text = "target reached" if self.passed else "target not reached yet"
        return text if self.score is None else f"{text}, score of the {self.rows} {self.score:.3f}"


class StopTest(Protocol):
    """Asked after each phase whether the target is reached."""

    outcome: Outcome
    """What a training ended with if it was."""
    citation: str
    rows: str
    """Whose score it is, for the receipt."""

    @property
    def spent(self) -> Fraction:
        """What the answers so far cost a row that is tested."""
        ...

    def judge(self, learner: Learner, phase: int) -> Verdict:
        """Whether the model of this phase reaches the target."""
        ...

    def recalled(self, verdict: Verdict, learner: Learner, phase: int) -> Verdict:
        """The answer of a training that was interrupted after it passed."""
        ...


class PrivateTest:
    """``ValidationTest``, with its guarantee, on the rows that a learner holds out: about ``expected_rows`` of them."""

    outcome, citation, rows = Outcome.TESTED, "docs/proofs/sgd-validation.md", "rows held out"

    def __init__(self, test: ValidationTest, expected_rows: float) -> None:
        self._test, self._expected_rows = test, expected_rows

    @property
    def spent(self) -> Fraction:
        """What the answers so far cost a validation row."""
        return self._test.spent

    def judge(self, learner: Learner, phase: int) -> Verdict:
        """One private question; the gap is released with the answer "above", so a guess from it costs nothing more."""
        crossing = self._test.ask(learner.score(self._test.rule, self._test.margin(phase)), phase)
        score = None
        if crossing.gap is not None and self._expected_rows:
            score = self._test.accuracy(crossing.gap, phase, self._expected_rows)
        return Verdict(crossing.above, crossing.gap, score, f"{self.rows} about")

    def recalled(self, verdict: Verdict, learner: Learner, phase: int) -> Verdict:
        """What was answered: to ask again would cost again."""
        return verdict


class PublicTest:
    """Whether the target is met on public rows: exact, and free, since it reads a private model and no private row.

    Its answers are a function of released sums and of rows that are the same under both neighbours, so they cost nothing
    (docs/proofs/sgd-stopping.md, Setting). What they say of other rows is a matter of how alike these are.
    """

    outcome, citation, rows = Outcome.CERTIFIED, "docs/proofs/sgd-stopping.md, Setting", "public rows"
    spent = Fraction(0)

    def __init__(self, rule: ScoreRule, rows: Any, count: int) -> None:
        if count < 1:
            raise InvalidRequest("Expected public rows to validate on", got="none", do="Pass at least one")
        self._rule, self._public, self.count = rule, rows, count

    def judge(self, learner: Learner, phase: int) -> Verdict:
        """The score of this phase's model, in full."""
        total = learner.public_score(self._rule, self._public)
        score = None
        if self._rule.measure is Measure.ACCURACY:
            score = (self._rule.pass_mark + total / self.count) / self._rule.span
        return Verdict(total >= 0, None, score, self.rows)

    def recalled(self, verdict: Verdict, learner: Learner, phase: int) -> Verdict:
        """Asked anew, for it is free, and the rows may be others by now."""
        return self.judge(learner, phase)
