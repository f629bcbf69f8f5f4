"""Weights of classes: never above those of rows, public or released, and the promise is about them."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import expost
from expost.core import InvalidRequest, Outcome
from expost.models.tabular.class_weight import ClassWeights, read_class_weight, weigh_rows
from expost.models.tabular.tabular_rows import RowChunk
from expost.noise import SeededBits

RNG = np.random.default_rng(0)
N = 6000
AGE = RNG.uniform(18, 80, N)
RICH = np.where(RNG.random(N) < 1 / (1 + np.exp(-(AGE - 75) / 8)), "yes", "no")
TABLE = {"age": AGE, "rich": RICH}


def classifier(**more: Any) -> expost.Classifier:
    terms = {"columns": {"age": (18, 80)}, "classes": ["no", "yes"], "epsilon": 1.0, "simulation_seed": 1}
    return expost.Classifier(**terms | more)


@pytest.mark.parametrize("seed", range(5))
def test_weights_of_a_unit_never_grow(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = np.nextafter(rng.dirichlet(np.ones(20)).astype(np.float32), np.float32(0))
    chunk = RowChunk(np.zeros((20, 1), np.float32), rng.integers(-1, 3, 20), weights)
    factors = (*np.sort(rng.uniform(0.01, 1, 2)).tolist(), 1.0)
    (found,) = weigh_rows(lambda: [chunk], factors)()

    assert (found.weights <= weights).all() and found.weights.dtype == np.float32
    assert (found.weights[chunk.targets < 0] == weights[chunk.targets < 0]).all()  # other labels count in full


def test_balanced_weights_follow_released_counts() -> None:
    chunk = RowChunk(np.zeros((1000, 1), np.float32), (np.arange(1000) < 100).astype(int), np.ones(1000, np.float32))
    weights = ClassWeights(2, None)
    found = weights.find_factors(lambda: [chunk], rows_per_unit=1, noise=Fraction(1), bits=SeededBits(0))

    assert found[1] == 1.0 and found[0] == pytest.approx(1 / 9, rel=0.2)
    assert weights.least <= min(found)


def test_a_heavier_class_is_predicted_more_often_and_the_score_is_weighted() -> None:
    plain, heavy = (classifier(class_weight=each).fit(TABLE, target="rich") for each in (None, {"yes": 8, "no": 1}))

    assert (heavy.predict(TABLE) == "yes").sum() > (plain.predict(TABLE) == "yes").sum() + 500
    factors = np.where(RICH == "yes", 1.0, 1 / 8)
    measured = float(heavy.receipt_.terms["measured accuracy"].split(" ")[0])
    assert measured == pytest.approx(np.average(heavy.predict(TABLE) == RICH, weights=factors), abs=0.05)
    assert "each times the weight of its class" in heavy.receipt_.terms["measured on"]
    assert heavy.receipt_.terms["class weights"] == "no 0.125, yes 1"
    assert "class weights" not in plain.receipt_.terms


def test_a_promise_is_about_the_weighted_rows() -> None:
    model = classifier(epsilon=None, score=("accuracy", 0.6), class_weight={"no": 1, "yes": 4}, max_epsilon=10)
    model.fit(TABLE, target="rich")

    factors = np.where(RICH == "yes", 1.0, 0.25)
    assert model.receipt_.outcome is Outcome.TESTED
    assert np.average(model.predict(TABLE) == RICH, weights=factors) >= 0.6


def test_balanced_weights_are_inside_the_same_bill() -> None:
    model = classifier(class_weight="balanced").fit(TABLE, target="rich")

    assert model.receipt_.epsilon <= 1.0
    no, yes = (float(each.split(" ")[1]) for each in model.receipt_.terms["class weights"].split(", "))
    assert yes == 1.0 and no == pytest.approx(np.mean(RICH == "yes") / np.mean(RICH == "no"), rel=0.3)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("heavy", "mapping or"),
        ({"yes": 1}, "one weight for each class"),
        ({"yes": 1, "no": 1, "?": 1}, "one weight for each class"),
        ({"yes": 0, "no": 1}, "positive"),
        ({"yes": float("nan"), "no": 1}, "positive"),
        ({"yes": True, "no": 1}, "positive"),
        ({"yes": 1, "no": 1e9}, "factor"),
        ([1, 2], "mapping or"),
    ],
    ids=str,
)
def test_wrong_weights_are_refused(given: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        read_class_weight(given, ["no", "yes"])


def test_a_declared_number_of_rows_is_refused_next_to_weights() -> None:
    with pytest.raises(InvalidRequest, match="rows or class_weight"):
        classifier(class_weight="balanced", rows=N).fit(TABLE, target="rich")
    with pytest.raises(expost.core.errors.WrongArguments):
        classifier().fit(TABLE, target="rich", sample_weight=np.ones(N))  # type: ignore[call-arg]
