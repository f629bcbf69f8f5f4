"""Areas under the curve from noisy counts: sensitivity, exactness, and bounds on the safe side."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri
from sklearn.metrics import roc_auc_score

from expost.core import InvalidRequest, Measure, Target
from expost.models.tabular.rank_tree import AucSum, RankCounts, RankTree, center_of
from expost.models.tabular.score_sum import combine_scores, read_score
from expost.models.tabular.table_profile import TableProfile
from expost.noise import SeededBits


def scored_rows(seed: int, rows: int = 4000, share: float = 0.3) -> Any:
    rng = np.random.default_rng(seed)
    classes = (rng.random(rows) < share).astype(float)
    return np.column_stack([rng.normal(size=rows) * 1.5 + 1.2 * classes - 1, classes])


def exact_counts(scored: Any, tree: RankTree, weights: Any = None) -> RankCounts:
    total = tree.start()
    tree.add(total, scored, np.ones(len(scored)) if weights is None else weights)
    return tree.read(total.astype(float), Fraction(1, 10**9))


@pytest.mark.parametrize("seed", range(10))
def test_one_unit_moves_the_counts_by_the_sensitivity_at_most(seed: int) -> None:
    rng = np.random.default_rng(seed)
    most = int(rng.choice([1, 3, 50]))
    rows = int(rng.integers(1, most + 1))
    tree = RankTree(most, float(rng.normal()))
    total = tree.start()
    shares = np.full(rows, np.float32(math.floor(2**24 / rows) / 2**24))
    scored = np.tile(
        [[rng.normal() * 10, float(rng.integers(0, 2))]], (rows, 1)
    )  # all in the same nodes: the worst case
    tree.add(total, scored, shares)

    moved = sum(int(each) ** 2 for each in total)
    assert 0.999 * float(tree.sensitivity.square) * 0.99 <= moved <= tree.sensitivity.square


def test_rows_that_are_not_of_a_class_or_not_numbers_move_nothing_too_far() -> None:
    tree = RankTree()
    for odd in ([3.0, -1.0], [np.nan, 1.0], [np.inf, 0.0], [0.0, 2.0], [0.0, np.nan]):
        total = tree.start()
        tree.add(total, np.array([odd]), np.array([np.nan if odd[0] == 3.0 else 1.0]))
        assert sum(int(each) ** 2 for each in total) <= tree.sensitivity.square
        assert bool(total.any()) == (odd[1] in (0.0, 1.0) and odd[0] != 3.0)


@pytest.mark.parametrize("share", [0.5, 0.05])
def test_without_noise_the_area_is_that_of_scikit_learn_and_the_bound_is_below_it(share: float) -> None:
    scored = scored_rows(0, share=share)
    true = roc_auc_score(scored[:, 1], scored[:, 0])
    counts = exact_counts(scored, RankTree())

    assert counts.area[0] == pytest.approx(true, abs=1e-3)
    for depth in (3, 9):
        surplus, _ = counts.bound_area(true, 1e-4, depth=depth, least_weight=1.0)
        pairs = counts.totals[0] * counts.totals[1]
        assert -(2.0**-depth) * 1.5 < surplus / pairs < 0  # pairs in one node count as lost


def test_weights_count_as_shares_of_rows() -> None:
    scored = scored_rows(1)
    weights = np.where(scored[:, 1] == 1, 1.0, 1 / 3)
    weighed = exact_counts(scored, RankTree(), weights)

    assert weighed.area[0] == pytest.approx(exact_counts(scored, RankTree()).area[0], abs=1e-4)
    assert weighed.totals[0] == pytest.approx(np.sum(scored[:, 1] == 0) / 3, rel=1e-4)


def test_a_model_that_misses_the_area_is_seldom_accepted_and_a_better_one_often() -> None:
    scored, tree, noise = scored_rows(2, rows=20_000), RankTree(), Fraction(4)
    true = roc_auc_score(scored[:, 1], scored[:, 0])
    total = tree.start()
    tree.add(total, scored, np.ones(len(scored)))
    profile = TableProfile(20_000.0, np.zeros(1), np.ones(1), 1.0, shares=(0.7, 0.3))

    def passed(level: float, failure: float) -> float:
        score = AucSum(Target(Measure.AUC, Fraction(level).limit_denominator(10**6), Fraction(1, 2)), tree)
        released = (tree.release(total, noise, SeededBits(seed)) for seed in range(150))
        return float(np.mean([score.read(each, noise, profile).passes(failure) for each in released]))

    # At most 150 * 0.45 of 150 on average; 0.62 would be five deviations above it.
    assert passed(true + 1e-5, 0.45) < 0.62
    assert passed(true - 0.03, 0.1) > 0.9


def test_deviations_are_those_of_the_noise() -> None:
    scored, tree, noise = scored_rows(3, rows=20_000), RankTree(), Fraction(10)
    total = tree.start()
    tree.add(total, scored, np.ones(len(scored)))
    found = [tree.read(tree.release(total, noise, SeededBits(seed)), noise).area for seed in range(200)]
    values, deviations = np.transpose(found)

    assert np.std(values) / np.mean(deviations) == pytest.approx(1.0, abs=0.25)  # 200 draws: 5 % deviation
    assert abs(np.mean(values) - roc_auc_score(scored[:, 1], scored[:, 0])) < 5 * np.std(values) / 200**0.5 + 1e-3


def test_smoothed_counts_agree_between_levels_and_have_less_noise() -> None:
    scored, tree, noise = scored_rows(4), RankTree(), Fraction(20)
    exact = exact_counts(scored, tree)
    total = tree.start()
    tree.add(total, scored, np.ones(len(scored)))
    errors = []
    for seed in range(40):
        counts = tree.read(tree.release(total, noise, SeededBits(seed)), noise)
        fine, coarse = counts.smooth(5), counts.smooth(3)
        assert np.allclose(fine.reshape(2, 8, 4).sum(axis=2), coarse)
        errors.append([np.abs(each.sum() - exact.levels[5].sum()) for each in (fine, counts.levels[5])])
    smooth, raw = np.mean(errors, axis=0)
    assert smooth < raw / 2


def test_measurements_of_one_model_are_combined_by_weights_that_no_noise_chose() -> None:
    scored, tree = scored_rows(5), RankTree()
    total = tree.start()
    tree.add(total, scored, np.ones(len(scored)))
    profile = TableProfile(4000.0, np.zeros(1), np.ones(1), 1.0, shares=(0.7, 0.3))
    target = read_score(("auc", 0.7), 0.1, classifier=True)
    assert target is not None
    score = AucSum(target, tree)
    first, second = (
        score.read(tree.release(total, noise, SeededBits(1)), noise, profile) for noise in (Fraction(2), Fraction(1))
    )
    both = combine_scores(first, second)

    assert both.precision == first.precision + second.precision == 1.25
    assert both.surplus == pytest.approx(0.2 * first.surplus + 0.8 * second.surplus)
    assert both.deviation == pytest.approx(math.hypot(0.2 * first.deviation, 0.8 * second.deviation))
    assert both.passes(0.1) == (both.surplus >= -ndtri(0.1) * both.deviation)


def test_an_area_of_1_is_refused_and_one_sided_profiles_have_a_center() -> None:
    with pytest.raises(InvalidRequest, match="auc below 1"):
        read_score(("auc", 1.0), 0.1, classifier=True)
    for shares in ((0.0, 0.0), (1.0, 0.0), (), (0.2, 0.3, 0.5)):
        assert math.isfinite(center_of(TableProfile(1.0, np.zeros(1), np.ones(1), 1.0, shares=shares)))
