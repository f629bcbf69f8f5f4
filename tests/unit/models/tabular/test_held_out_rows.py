"""Promises about a population: rows dealt to training and to one test, and the error of sampling in its margin."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import expost
from expost.core import InvalidRequest, Measure, Outcome, Target, TargetNotMet
from expost.models.tabular.held_out_rows import HELD_OUT, SAMPLED, DealtRows, HeldOutConfirmation, find_sampling_margin
from expost.models.tabular.laplace_test import LaplaceTest
from expost.models.tabular.score_confirmation import OpenSums
from expost.models.tabular.score_sum import MeasuredScore, ScoreSum
from expost.models.tabular.table_profile import TableProfile
from expost.models.tabular.tabular_rows import RowChunk
from expost.noise.bits import SeededBits

LEVEL, FAILURE = 0.8, Fraction(1, 10)
TARGET = Target(Measure.ACCURACY, Fraction(8, 10), FAILURE)
RNG = np.random.default_rng(0)
PLACE = RNG.normal(size=12_000)
TABLE = {"place": PLACE, "rich": PLACE + RNG.logistic(size=len(PLACE)) * 0.3 > 0}
TABLE["who"] = np.arange(len(PLACE)) // 2


def classifier(**more: Any) -> expost.Classifier:
    terms = {"about": "population", "columns": {"place": (-4, 4)}, "classes": [False, True], "simulation_seed": 3}
    return expost.Classifier(**terms | {"score": ("accuracy", 0.8)} | more)


def chunks(*numbers: float) -> list[RowChunk]:
    features = np.array(numbers, np.float32)[:, None]
    return [RowChunk(part, part[:, 0] > 0, np.ones(len(part), np.float32)) for part in np.array_split(features, 3)]


def test_a_row_changes_its_own_side_only_in_every_order() -> None:
    numbers = RNG.integers(0, 50, 600).astype(float).tolist()

    def sides(*rows: float) -> list[list[float]]:
        dealt = DealtRows(lambda: chunks(*rows), SeededBits(4))
        return [
            sorted(np.concatenate([part.features[:, 0] for part in read()]))
            for read in (dealt.training, dealt.held_out)
        ]

    before, after = sides(*numbers), sides(*reversed([*numbers, 7.0]))
    larger = [len(two) - len(one) for one, two in zip(before, after, strict=True)]
    assert sorted(larger) == [0, 1] and before[larger.index(0)] == after[larger.index(0)]
    assert abs(len(before[1]) / 600 - HELD_OUT) < 0.1


@pytest.mark.parametrize("known", [True, False])
def test_a_sum_exceeds_its_sampling_margin_as_seldom_as_it_says(known: bool) -> None:
    rng, rows, runs, failure, wrong = np.random.default_rng(5), 4_000, 4_000, 0.2, 0
    sums, error = ScoreSum(TARGET, 2), 0.0 if known else 40.0
    for _ in range(runs):
        held = rng.binomial(rows, HELD_OUT)
        profile = TableProfile(rows - held + error * rng.normal(), np.zeros(1), np.ones(1), 1.0, rows_error=error)
        surplus = rng.binomial(held, LEVEL) - LEVEL * held
        wrong += surplus > find_sampling_margin(sums, profile, failure)

    assert 0.02 < wrong / runs <= failure  # and it is not far too large


def test_a_model_that_misses_on_the_population_is_seldom_accepted() -> None:
    rng, bits, runs, wrong, looked = np.random.default_rng(6), SeededBits(6), 1_000, 0, 0
    sums, rows = ScoreSum(TARGET, 2), 5_000
    for _ in range(runs):
        held = rng.binomial(rows, HELD_OUT)
        # On the rows of the training it looks good; on the population it just misses.
        total = round((rng.binomial(held, LEVEL) - LEVEL * held) / sums.height * sums.deciding.unit)
        source = OpenSums(
            lambda sums, total=total: LaplaceTest(np.array([total], np.int64), sums.deciding, sums.height, bits),
            lambda center: pytest.fail("a share of right answers needs no mean"),
        )
        stops = HeldOutConfirmation(TARGET, FAILURE, Fraction(2))
        profile = TableProfile(float(rows - held), np.zeros(1), np.ones(1), 1.0)
        score = MeasuredScore(0.1 * (rows - held), 10.0, {})
        reason = stops.confirm(score, sums, profile, source, Fraction(1, 2), following=Fraction(1))
        wrong, looked = wrong + stops.met, looked + bool(stops.looks)
        assert reason  # whatever it says, there is no other test

    assert looked == runs and wrong / runs <= float(FAILURE)
    assert find_sampling_margin(sums, profile, float(FAILURE) * SAMPLED) > 0


def test_the_one_test_is_made_when_the_model_is_likely_to_pass() -> None:
    rng, bits, runs, rows = np.random.default_rng(7), SeededBits(7), 300, 20_000
    sums, trained = ScoreSum(TARGET, 2), rows * (1 - HELD_OUT)

    def confirm(gap: float) -> HeldOutConfirmation:
        held = rng.binomial(rows, HELD_OUT)
        total = round((rng.binomial(held, LEVEL + gap) - LEVEL * held) / sums.height * sums.deciding.unit)
        source = OpenSums(
            lambda sums: LaplaceTest(np.array([total], np.int64), sums.deciding, sums.height, bits),
            lambda center: pytest.fail("a share of right answers needs no mean"),
        )
        stops = HeldOutConfirmation(TARGET, FAILURE, Fraction(2))
        profile = TableProfile(trained, np.zeros(1), np.ones(1), 1.0)
        stops.confirm(
            MeasuredScore(gap * trained, 30.0, {}), sums, profile, source, Fraction(1, 5), following=Fraction(1, 4)
        )
        return stops

    least = next(gap for gap in np.arange(0.01, 0.06, 0.001) if confirm(gap).looks)
    assert sum(confirm(least).met for _ in range(runs)) > 0.8 * runs


def test_a_score_on_the_population_is_promised_with_the_margin_of_sampling() -> None:
    model = classifier().fit(TABLE, target="rich")

    assert model.receipt_.outcome is Outcome.TESTED and "population" in model.receipt_.terms["measured on"]
    assert abs(model.receipt_.terms["rows, about"] - len(PLACE)) < 2_000
    rows, population = (classifier(about=about).price(rows=12_000).accepted for about in ("rows", "population"))
    assert all(population[each] > rows[each] for each in rows if population[each] is not None)
    with pytest.raises(TargetNotMet, match=r"out of reach|did not pass"):
        classifier(score=("accuracy", 0.855)).fit(TABLE, target="rich")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"about": "people"}, '"rows" or "population"'),
        ({"epsilon": 1, "score": None}, "no epsilon"),
        ({"score": ("auc", 0.8)}, "another score"),
        ({"class_weight": "balanced"}, "no class_weight"),
        ({"delta": 0}, "a delta"),
        ({"unit": "who", "max_rows_per_unit": 2}, "drawn independently"),
    ],
)
def test_what_has_no_promise_about_a_population_is_refused_unpaid(more: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        classifier(**more).fit(TABLE, target="rich")
