"""A training can be stopped by rows that are nobody's secret: exactly, for free, and without holding rows out."""

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from expost.core import InvalidRequest, Measure, Outcome, Target
from expost.models.descent.stopping_test import PublicTest, ScoreRule, StopVerdict
from expost.models.descent.training_checkpoint import TrainingProgress
from expost.models.descent.training_query import TrainingPlan
from expost.noise import SeededBits

from .conftest import Small


def on_public(small: Small, accuracy: float = 0.85, rows: slice = slice(None)) -> TrainingPlan:
    """The small training, stopped by public rows that look like the private ones."""
    request = small.aimed(accuracy)
    rng = np.random.default_rng(7)
    features = rng.normal(size=(1000, 2))[rows]
    labels = (features @ [1.0, -1.0] > 0).astype(np.intp)
    assert request.rule is not None
    public = PublicTest(request.rule, (features, labels), len(labels))
    return replace(request, public=public, validation_share=Fraction(0))


def trained(request: TrainingPlan, small: Small, seed: int = 1) -> Any:
    return request.climb(request.measure(small.data), SeededBits(seed))


def test_the_score_of_public_rows_is_exact_and_costs_nothing(small: Small) -> None:
    request = on_public(small)
    release = trained(request, small)
    features, labels = request.public._public  # type: ignore[union-attr]

    score = np.mean((release.value.compute_scores(features)[:, 0] > 0) == labels)
    receipt = release.receipt
    assert receipt.outcome is Outcome.CERTIFIED
    assert receipt.terms["score of the public rows"] == pytest.approx(score) and score >= 0.85
    assert receipt.achieved == pytest.approx(score)
    assert receipt.breakdown["validation (public rows)"] == 0
    assert receipt.bill.amounts()["epsilon"] == request.prices.epsilons[receipt.rung]


def test_it_stops_after_the_first_phase_whose_model_reaches_the_target(small: Small) -> None:
    class Remembering(PublicTest):
        scores: list[float]

        def judge_model(self, learner: Any, phase: int) -> StopVerdict:
            verdict = super().judge_model(learner, phase)
            assert verdict.score is not None
            self.scores.append(verdict.score)
            return verdict

    request = on_public(small, 0.9)
    assert request.rule is not None and request.public is not None
    for seed in range(8):
        test = Remembering(request.rule, request.public._public, request.public.count)
        test.scores = []
        receipt = trained(replace(request, public=test), small, seed).receipt

        assert all(score < 0.9 for score in test.scores[:-1])
        assert receipt.outcome.met == (test.scores[-1] >= 0.9)
        assert receipt.rung == len(test.scores) - 1


def test_all_private_rows_are_learned_from(small: Small) -> None:
    request = on_public(small)
    _, learner, test = request.split_rows(
        request.measure(small.data), TrainingProgress(request.public_terms()), SeededBits(1)
    )

    assert learner.rows == 4000
    assert test is request.public


def test_a_target_out_of_reach_is_missed_and_the_score_is_told(small: Small) -> None:
    receipt = trained(on_public(small, 0.9999), small).receipt

    assert receipt.outcome is Outcome.NOT_MET and receipt.achieved is None
    assert receipt.terms["score of the public rows"] < 0.9999
    assert receipt.terms["public validation rows"] == 1000


def test_the_errors_of_a_regression_are_compared_on_the_public_rows() -> None:
    rule = ScoreRule.of(Target(Measure.RMSE, Fraction(1, 2), Fraction(1, 10)))

    class Said:
        def public_score(self, rule: ScoreRule, rows: Any) -> int:
            return int(rows)

    assert PublicTest(rule, 0, 1).judge_model(Said(), 0) == StopVerdict(True, None, None, "public rows")  # type: ignore[arg-type]
    assert not PublicTest(rule, -1, 1).judge_model(Said(), 0).passed  # type: ignore[arg-type]


def test_no_public_rows_are_refused(small: Small) -> None:
    with pytest.raises(InvalidRequest, match=re.escape("Expected public rows to validate on")):
        on_public(small, rows=slice(0))


def test_a_target_needs_rows_to_be_tested_on(small: Small) -> None:
    for plan, changes in (
        (small.aimed(), {"validation_share": Fraction(0)}),
        (on_public(small), {"target": None, "rule": None}),
    ):
        with pytest.raises(InvalidRequest, match="together with rows to test it on"):
            replace(plan, **changes)
