"""What rows kept for tests cost: the fits' total, wherever the two forms of a replaced row are."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from expost.core import InvalidRequest, Measure, unseal
from expost.data.row_source import read_rows
from expost.data.unit_ball import GRID_BITS, UnitBall, UnitRows, grid_numbers
from expost.models.linear import tested_score
from expost.models.linear.classifier_fit import grid_labels, known_labels
from expost.models.linear.linear_fit import Aim, Problem
from expost.models.linear.row_loss import LogisticLoss, TruncatedSquare
from expost.models.linear.tested_score import ScoreQuery, TestedFit
from expost.noise import SeededBits

SHARE = Fraction(1, 4)  # of the test's level, for its threshold
SCORES = [("accuracy", 0.85), ("accuracy", 0.5), ("log_loss", 0.5), ("log_loss", 0.05), ("rmse", 0.3), ("r2", 0.5)]
MEASURES = {
    "accuracy": Measure.ACCURACY,
    "log_loss": Measure.LOG_LOSS,
    "rmse": Measure.RMSE,
    "r2": Measure.R2,
}


def fit_for(score: tuple[str, float], *, every: int, rows: int = 4000, penalty: float = 0.001) -> TestedFit:
    problem = Problem(UnitBall(3), rows, penalty, Aim.of(score=score, failure_probability=0.2, max_epsilon=3.0))
    if score[0] in ("rmse", "r2"):
        return TestedFit(problem, TruncatedSquare(1.0), grid_numbers(1.0), validation=every)
    pair = (-1.0, 1.0)
    return TestedFit(problem, LogisticLoss(), grid_labels(pair), validation=every, known_target=known_labels(pair))


@pytest.mark.parametrize("score", SCORES, ids=str)
@pytest.mark.parametrize(("every", "rows", "penalty"), [(2, 200, 0.1), (5, 4000, 0.001), (20, 10**6, 1e-5)])
def test_no_case_of_a_replaced_row_costs_more_than_the_fits(
    score: tuple[str, float], every: int, rows: int, penalty: float
) -> None:
    fit = fit_for(score, every=every, rows=rows, penalty=penalty)
    down, up = fit._query.interval
    for index in range(len(fit._levels)):
        fitted, tested = sum(fit._levels[: index + 1]), fit._rule.ladder[index]
        tilts = [fit._risk.prices.split(level)[0] for level in fit._levels[: index + 1]]
        # docs/proofs/row-identity.md, Theorem 2; an added row written out anew, from above-threshold.md, Intervals.
        added = tested * SHARE * Fraction(max(down, up), down + up) + tested * (1 - SHARE) * Fraction(1, 2)
        assert tested <= fitted
        assert fitted - sum(tilts) / 2 + added <= fitted
        assert max(tested / fitted, (fitted - sum(tilts) / 2 + added) / fitted) > 0.99  # and nothing is given away
    assert fit.worst_case.epsilon <= 3


def reduced_law(queries, levels, *, reach: int, query_reach: int, depth: int = 100):
    """P(first above at rung r, gap g) for gaps 0 to 3 and P(below at both rungs), from the definition, threshold 0."""
    a = [math.exp(-float(SHARE) * level / reach) for level in levels]
    b = [math.exp(-(1 - float(SHARE)) * level / query_reach) for level in levels]
    last, steps = np.arange(depth), np.arange(4 * depth)
    weight = (1 - a[1]) * a[1] ** last
    step = np.where(steps == 0, 1.0, (a[0] - a[1]) * a[0] ** np.maximum(steps - 1, 0)) * (1 - a[0]) / (1 - a[1])
    mass = weight[:, None] * step
    first, second = last[:, None] + steps, last[:, None]

    def noise(rung, least):
        return np.where(least >= 0, (1 - b[rung]) * b[rung] ** np.maximum(least, 0), 0.0)

    def tail(rung, least):
        return b[rung] ** np.maximum(least, 0)

    law = {}
    for gap in range(4):
        law[0, gap] = (mass * noise(0, first - queries[0] + gap)).sum()
        law[1, gap] = (mass * (1 - tail(0, first - queries[0])) * noise(1, second - queries[1] + gap)).sum()
    law["below"] = (mass * (1 - tail(0, first - queries[0])) * (1 - tail(1, second - queries[1]))).sum()
    return law


DOWN, UP = 3, 1  # an accuracy of 3/4, in quarters of a row
LEVELS = (1.5, 4.0)


def excess(moves: tuple[int, int], start: tuple[int, int]) -> float:
    """The loss of an added row over what the theorem says of it, at most, over all outcomes and both directions."""
    span = DOWN + UP
    laws = [
        reduced_law([q + m for q, m in zip(start, move, strict=True)], LEVELS, reach=span, query_reach=2 * span)
        for move in ((0, 0), moves)
    ]
    worst = 0.0
    share = float(SHARE) * max(DOWN, UP) / span
    for outcome in laws[0]:
        bill = LEVELS[1] * share if outcome == "below" else LEVELS[outcome[0]] * (share + (1 - float(SHARE)) / 2)
        here, there = (law[outcome] for law in laws)
        if min(here, there) > 1e-12:
            worst = max(worst, abs(math.log(here / there)) / bill)
        else:
            assert max(here, there) < 1e-9
    return worst


def test_an_added_row_costs_the_test_what_the_lemma_says() -> None:
    found = [
        excess(moves, start)
        for moves in itertools.product((-DOWN, 0, UP), repeat=2)
        for start in itertools.product((-4, 0, 3), repeat=2)
    ]

    assert max(found) <= 1 + 1e-6
    assert max(found) > 0.9


def test_a_row_that_moves_further_is_noticed() -> None:
    assert max(excess((move, move), start) for move in (-6, 6) for start in ((-4, -4), (3, 3), (-4, 3))) > 1.05


def densities(rows: list[tuple[float, float]], level: float, *, total: int, penalty: float) -> np.ndarray:
    """The density of the exact minimum of a tilted logistic risk with one coefficient, on a grid of coefficients."""
    theta = np.linspace(-6, 6, 2001)
    slope = sum((-y * x / (1 + np.exp(y * x * theta)) for x, y in rows), np.zeros_like(theta)) + total * penalty * theta
    curve = sum((x * x / (2 + 2 * np.cosh(x * theta)) for x, _ in rows), np.zeros_like(theta)) + total * penalty
    scale = 2 / level  # made for a replaced row
    return np.exp(-np.abs(slope) / scale) / (2 * scale) * curve


@pytest.mark.parametrize("extra", [(1.0, 1.0), (-1.0, 1.0), (0.5, -1.0)])
def test_a_removed_row_costs_a_fit_half_of_its_tilt_and_the_jacobian(extra: tuple[float, float]) -> None:
    rows = [(0.9, 1.0), (-0.4, 1.0), (0.7, -1.0)]
    for level, penalty in itertools.product((0.2, 1.0, 3.0), (0.05, 1.0)):
        here = densities([*rows, extra], level, total=8, penalty=penalty)
        there = densities(rows, level, total=8, penalty=penalty)
        loss = np.abs(np.log(here / there)).max()
        assert loss <= level / 2 + math.log1p(0.25 / (8 * penalty)) + 1e-9
    assert loss > 0.9 * abs(extra[0]) * level / 2


@pytest.mark.parametrize("score", SCORES, ids=str)
def test_an_added_row_moves_a_query_within_its_interval_and_a_replaced_one_within_the_span(
    score: tuple[str, float],
) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-0.3, 0.3, (9, 3)), rng.uniform(-1, 1, 9)
    signed = score[0] in ("accuracy", "log_loss")
    query = ScoreQuery(MEASURES[score[0]], score[1], None, radius=4.0)
    theta = query.cut_to_grid(np.array([2.0, -3.0, 1.0]), UnitBall(3))

    def value(features: np.ndarray, targets: np.ndarray) -> int:
        rows = UnitRows(read_rows(features, targets), UnitBall(3), np.asarray if signed else grid_numbers(1.0))
        if query.measure is Measure.R2:
            return query._sum_explained(rows, theta)
        return sum(query._share_of_chunk(f @ (theta * 2.0**-GRID_BITS), t) for f, t in rows.chunks())

    labels = np.sign(y) if signed else y
    without = value(x, labels)
    corners = [(s * unit, label) for unit in np.eye(3) for s in (-1, 1) for label in (-1.0, 1.0)]
    moves = [value(np.vstack([x, row]), np.append(labels, label)) - without for row, label in corners]

    down, up = query.interval
    assert min(moves) >= -down and max(moves) <= up
    assert max(moves) - min(moves) <= query.sensitivity.amount == down + up


@pytest.mark.parametrize("name", ["accuracy", "log_loss", "rmse"])
def test_without_a_number_of_rows_zero_is_reached_exactly_when_the_score_is(name: str) -> None:
    rng = np.random.default_rng(2)
    x, y = rng.uniform(-0.3, 0.3, (200, 3)), rng.uniform(-1, 1, 200)
    labels = np.sign(y) if name != "rmse" else y
    rows = UnitRows(read_rows(x, labels), UnitBall(3), np.asarray if name != "rmse" else grid_numbers(1.0))
    for _ in range(20):
        theta = ScoreQuery(MEASURES[name], 0.5, None, 4.0).cut_to_grid(rng.normal(size=3), UnitBall(3))
        known = [ScoreQuery(MEASURES[name], goal, len(x), 4.0) for goal in np.linspace(0.1, 0.9, 17)]
        hidden = [ScoreQuery(MEASURES[name], goal, None, 4.0) for goal in np.linspace(0.1, 0.9, 17)]
        reached = [
            [int(np.asarray(unseal(query.seal_score(rows, theta))).item()) >= query.threshold for query in each]
            for each in (known, hidden)
        ]
        assert reached[0] == reached[1]


def test_scores_of_exact_coefficients_do_not_depend_on_where_a_row_stands() -> None:
    rng = np.random.default_rng(3)
    for norm_rows, width in ((500, 3), (300, 37), (64, 700)):
        ball = UnitBall(width)
        query = ScoreQuery(Measure.ACCURACY, 0.9, None, radius=30.0)
        theta = query.cut_to_grid(rng.normal(size=width), ball) * 2.0**-GRID_BITS
        features = np.trunc(ball.scale_rows(rng.normal(size=(norm_rows, width))) * 2.0**GRID_BITS)
        together = features @ theta
        alone = np.array([row @ theta for row in features])
        backwards = (features[::-1, ::-1] @ theta[::-1])[::-1]
        assert (together == alone).all() and (together == backwards).all()


@pytest.mark.parametrize("every", [1, -3, 4001])
def test_a_split_without_rows_on_both_sides_is_refused_before_it_costs_anything(every: int) -> None:
    with pytest.raises(InvalidRequest, match="leaves rows on both sides"):
        fit_for(("accuracy", 0.85), every=every)


def test_the_rows_tested_are_those_that_were_not_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[float]] = []
    original = tested_score.split_rows

    def watched(source, every):
        parts = original(source, every)
        seen.extend([sorted(np.concatenate([f[:, 0] for f, _ in part.read()]).tolist()) for part in parts])
        return parts

    monkeypatch.setattr(tested_score, "split_rows", watched)
    x = np.random.default_rng(8).uniform(-0.5, 0.5, (4000, 3))
    fit = fit_for(("accuracy", 0.85), every=5)

    release = fit.climb(fit.measure(read_rows(x, np.sign(x[:, 0]))), SeededBits(1))

    assert sorted(seen[0] + seen[1]) == sorted(x[:, 0].tolist())
    assert release.receipt.bill.epsilon == release.receipt.breakdown["generation"]
    assert release.receipt.terms["rows kept for tests"] == "about 1 in 5"
