"""The claims of docs/proofs/pure-tabular-models.md, checked in exact integers, by density ratios and by simulation."""

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from expost.core import Measure, Outcome, Target, Unit
from expost.models.tabular.column_encoding import CategoryColumn, FlagColumn, NumberColumn
from expost.models.tabular.date_column import DateColumn
from expost.models.tabular.encoded_shape import EncodedShape
from expost.models.tabular.laplace_sum import LaplaceSum
from expost.models.tabular.pure_schedule import MOST_PURE_RUNGS, plan_pure_score
from expost.models.tabular.pure_score import PureScoreSum, TableSummary
from expost.models.tabular.pure_training import PureTraining, _PureStop
from expost.models.tabular.score_sum import MeasuredScore
from expost.models.tabular.table_encoder import TableEncoder
from expost.models.tabular.table_moments import TableMoments
from expost.models.tabular.table_profile import TableProfile
from expost.models.tabular.tabular_rows import RowChunk
from expost.models.tabular.tilted_table import EncodedBall, EncodedRows, TiltedTable
from expost.noise import SeededBits

SEEDS = range(12)
ENCODER = TableEncoder(
    (
        NumberColumn("age", 0, 100),
        CategoryColumn("job", ["a", "b", "c"]),
        FlagColumn("member"),
        DateColumn("since", "2020-01-01", "2024-12-31", hours=True),
    )
)
SHAPE = EncodedShape.of(ENCODER)
SMALL = EncodedShape.of(TableEncoder((NumberColumn("age", 0, 100, missing=False), CategoryColumn("job", ["a"]))))


def shared_weights(rng: np.random.Generator, rows: int) -> Any:
    """Weights of one unit's rows as the rows have them."""
    return np.full(rows, np.float32(math.floor(2**24 / rows) / 2**24))


def extreme_rows(shape: EncodedShape, rng: np.random.Generator, rows: int) -> np.ndarray:
    """Rows of the public set whose entries are as large as they can be, at signs and places drawn at random."""
    out = np.zeros((rows, shape.width), np.float32)
    for start, width, length, exclusive in zip(shape.starts, shape.widths, shape.lengths, shape.exclusive, strict=True):
        if exclusive:
            place = rng.integers(0, width, rows)
            indicator = np.array(shape.indicators)[start + place]
            out[np.arange(rows), start + place] = np.where(indicator, 1, rng.choice([-1, 1], rows))
        else:
            parts = rng.dirichlet(np.ones(width), rows) * length * (1 - 1e-6)
            out[:, start : start + width] = parts * rng.choice([-1, 1], (rows, width))
    return out


def blocks_of(features: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> Any:
    def read() -> Iterable[RowChunk]:
        return [RowChunk(features, targets, weights)]

    return read


def test_encoded_rows_lie_in_the_public_set() -> None:
    rng = np.random.default_rng(0)
    rows = 2000
    days = (
        np.datetime64("2020-01-01T00:00:00", "us") + rng.integers(0, 5 * 366 * 24, rows) * np.timedelta64(1, "h")
    ).astype(object)
    missing = rng.random(rows) < 0.1
    import pyarrow as pa

    table = pa.table(
        {
            "age": pa.array(np.where(missing, np.nan, rng.uniform(-50, 150, rows)), from_pandas=True),
            "job": pa.array(
                [None if gone else job for gone, job in zip(missing, rng.choice(list("abcd"), rows), strict=True)]
            ),
            "member": pa.array(
                [None if gone else bool(flag) for gone, flag in zip(missing, rng.random(rows) < 0.5, strict=True)]
            ),
            "since": pa.array(
                [None if gone else day for gone, day in zip(missing, days, strict=True)], pa.timestamp("us")
            ),
        }
    )
    from expost.models.tabular.tabular_source import encode_frame

    features = encode_frame(table, ENCODER)

    assert SHAPE.contains(features).all()
    sums = np.add.reduceat(np.abs(features), SHAPE.starts, axis=1)
    assert (sums.max(axis=0) > 0.99 * np.array(SHAPE.lengths) - 0.6).all()
    for start, width, exclusive in zip(SHAPE.starts, SHAPE.widths, SHAPE.exclusive, strict=True):
        assert not exclusive or ((features[:, start : start + width] != 0).sum(axis=1) <= 1).all()
    assert np.isin(features[:, np.array(SHAPE.indicators)], (0, 1)).all()
    assert not SHAPE.contains(features * 1.01).all()
    assert not SHAPE.contains(np.full((1, SHAPE.width), np.nan)).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_one_unit_moves_a_laplace_sum_by_the_sensitivity_at_most(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, most = int(rng.integers(1, 12)), int(rng.choice([1, 3, 40]))
    longest, floor = float(rng.choice([0.3, 1.06, 3.0])), bool(rng.random() < 0.5)
    lattice = LaplaceSum(size, longest, most, floor_first=floor)
    one = rng.laplace(size=size)
    vectors = np.tile(one / np.abs(one).sum() * longest, (most, 1))
    total = lattice.start()
    lattice.add(total, vectors, shared_weights(rng, most))

    moved = int(np.abs(total).sum())
    assert moved <= lattice.sensitivity.amount
    assert moved >= 0.999 * 2**20
    long = lattice.start()
    lattice.add(long, vectors * 1.1, np.ones(most))
    lattice.add(long, vectors * np.nan, np.ones(most))
    assert not long.any()


@pytest.mark.parametrize("seed", SEEDS)
def test_one_unit_moves_the_moments_by_the_sensitivity_at_most(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.choice([1, 3, 20]))
    moments = TableMoments(SHAPE)
    features = extreme_rows(SHAPE, rng, rows)
    features = np.tile(features[:1], (rows, 1)) if rng.random() < 0.5 else features
    targets = rng.choice([-1.0, 1.0], rows)
    moved = int(np.abs(moments.measure(blocks_of(features, targets, shared_weights(rng, rows)))).sum())

    assert moved <= moments.sensitivity.amount


def test_the_sensitivity_of_moments_is_reached() -> None:
    moments, features = TableMoments(SMALL), np.array([[1.0, 1.0, 0.0]], np.float32)
    moved = np.abs(moments.measure(blocks_of(features, np.ones(1), np.ones(1)))).sum()

    # (1, number, one level, target): six products of two different ones, and the squares of all but the level.
    assert moved == 9 * 4**15
    assert 0 <= moments.sensitivity.amount - moved <= 9 * 4**15 / 10**8 + 1


def test_moments_of_exclusive_features_need_no_noise() -> None:
    rng = np.random.default_rng(1)
    features, targets = extreme_rows(SHAPE, rng, 500), rng.uniform(-1, 1, 500)
    moments = TableMoments(SHAPE)
    matrix = moments.unpack(moments.measure(blocks_of(features, targets, np.ones(500))))
    whole = np.column_stack([np.ones(500), features, targets]).astype(float)

    assert np.allclose(matrix, whole.T @ whole, atol=500 * 2.0**-13)
    # 18 features of 4 columns: only the products within a category and its squares are left out.
    assert len(moments._free[0]) < (SHAPE.width + 2) * (SHAPE.width + 3) // 2 - 10


def test_rows_outside_the_public_set_are_left_out_of_moments_and_fits() -> None:
    features, targets = np.full((3, SMALL.width), 5.0, np.float32), np.zeros(3)
    blocks = blocks_of(features, targets, np.ones(3))
    profile = TableProfile(1.0, np.zeros(SMALL.width), np.ones(SMALL.width), 1.0)

    assert not TableMoments(SMALL).measure(blocks).any()
    rows = EncodedRows(blocks, SMALL, profile, units=10, classes=False)
    assert all(len(targets) == 0 for _, targets, _ in rows.weighted_chunks())


@pytest.mark.parametrize("shape", [SMALL, SHAPE])
def test_rows_in_the_ball_keep_both_norms(shape: EncodedShape) -> None:
    rng = np.random.default_rng(2)
    ball = EncodedBall.of(shape)
    unit = ball.grid_features(extreme_rows(shape, rng, 4000)) / 2.0**20

    assert np.abs(unit).sum(axis=1).max() <= 1
    assert np.abs(unit).sum(axis=1).max() > 0.9
    slopes, constant = ball.unscale(np.arange(1.0, ball.dimension + 1))
    assert np.allclose(slopes * ball.bound, np.arange(1.0, ball.dimension)) and constant > 0


@pytest.mark.parametrize("classes", [True, False])
@pytest.mark.parametrize("persons", [False, True])
def test_the_density_of_a_fit_moves_by_epsilon_at_most(classes: bool, persons: bool) -> None:
    """Evaluate the exact log density of the minimum with and without one unit, where the ratio is largest."""
    rng = np.random.default_rng(3)
    count, unit = (4, Unit("id")) if persons else (1, Unit())
    way = TiltedTable(SMALL, classes, unit, count)
    profile = TableProfile(50.0, np.zeros(SMALL.width), np.ones(SMALL.width), 1.0, target_spread=0.4)
    epsilon, units = Fraction(1, 2), 50
    risk = way.build_risk(epsilon, profile, units)
    level, output = risk.prices.split(epsilon)
    scale = float(risk.law.scale_at(level))  # type: ignore[union-attr]

    def log_density(parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]], theta: np.ndarray, scale: float) -> float:
        gradient, bend = units * risk.penalty * theta, units * risk.penalty * np.eye(len(theta))
        for features, targets, weights in parts:
            score = features @ theta
            gradient = gradient + (risk.loss.slope_at(score, targets) * weights) @ features
            bend = bend + (features * (risk.loss.curvature_at(score, targets) * weights)[:, None]).T @ features
        return -float(np.abs(gradient).sum()) / scale + float(np.linalg.slogdet(bend)[1])

    ball, worst, halved = EncodedBall.of(SMALL), 0.0, 0.0
    for _ in range(400):
        parts = []
        for rows in (int(rng.integers(0, 6)), count):
            features = ball.grid_features(extreme_rows(SMALL, rng, rows)) / 2.0**20
            targets = rng.choice([-1.0, 1.0], rows) * (1 if classes else 5)
            if rows > 1 and rng.random() < 0.5:  # rows of one kind pull in one direction
                features, targets = np.tile(features[:1], (rows, 1)), np.tile(targets[:1], rows)
            parts.append((features, targets, np.full(rows, 1 / max(rows, 1)) if rows == count else np.ones(rows)))
        theta = rng.normal(size=ball.dimension) * rng.choice([0.0, 1.0, 30.0])
        worst = max(worst, abs(log_density(parts, theta, scale) - log_density(parts[:1], theta, scale)))
        halved = max(halved, abs(log_density(parts, theta, scale / 2) - log_density(parts[:1], theta, scale / 2)))

    assert worst <= float(epsilon - output) < halved


def test_a_larger_cap_changes_no_earlier_pure_level() -> None:
    for refines in (False, True):
        for classes in (False, True):
            large = plan_pure_score(Fraction(50), classes=classes, refines=refines)
            assert len(large.rungs) <= MOST_PURE_RUNGS
            for cap in ("0.001", "0.02", "0.1", "0.37", "1", "3"):
                small = plan_pure_score(Fraction(cap), classes=classes, refines=refines)
                common = len(small.rungs) - 1
                assert small.rungs[:common] == large.rungs[:common]
                assert small.cap <= Fraction(cap)
                assert small.cap >= Fraction(cap) * Fraction(2, 5)


def test_no_outcome_of_a_pure_training_costs_more_than_its_cap() -> None:
    schedule = plan_pure_score(Fraction(1), classes=False)
    tests = [rung.test for rung in schedule.rungs]
    fits = [rung.fit for rung in schedule.rungs]

    prices = [schedule.price(fits[: k + 1], tests[: k + 1], k) for k in range(len(tests))]
    assert prices == sorted(prices) and prices[-1] == schedule.cap <= 1


@pytest.mark.parametrize("path", ["at the target", "rising", "near and looked at again"])
def test_a_model_that_misses_the_target_is_seldom_accepted_under_laplace_noise(path: str) -> None:
    failure, runs = Fraction(1, 10), 3000
    plan = PureTraining(
        question="test",
        schedule=plan_pure_score(Fraction(4), classes=True),
        read=lambda _: blocks_of(np.zeros((0, 3)), np.zeros(0), np.zeros(0)),
        shape=SMALL,
        classes=2,
        target=Target(Measure.ACCURACY, Fraction(8, 10), failure),
        failure_probability=failure,
    )
    profile = TableProfile(20_000.0, np.zeros(SMALL.width), np.ones(SMALL.width), 1.0)
    sums = plan.score_sum(profile)
    rng = np.random.default_rng(5)
    from expost.models.tabular.table_model import TableModel

    model = TableModel(profile, np.zeros((1, SMALL.width + 1)))
    wrong = 0
    for _ in range(runs):
        stops = _PureStop(plan)
        for number, rung in enumerate(plan.schedule.rungs):
            truth = -1e-6 if path != "rising" else -600.0 / 2**number
            look = stops.find_look(number, model) if path == "near and looked at again" else None
            for level in [] if look is None else [look]:
                noise = rng.laplace(0, sums.lattice.scale(level) * sums.height)
                score = MeasuredScore(truth + noise, sums.deviation(level), {"accuracy": (0.8, 0.01)})
                stops.judge(score, level, profile, last=False, looked=True)
            if stops.met:
                break
            test = rung.far_test if stops.is_far else rung.test
            noise = rng.laplace(0, sums.lattice.scale(test) * sums.height)
            score = MeasuredScore(truth + noise, sums.deviation(test), {"accuracy": (0.8, 0.01)})
            if stops.judge(score, test, profile, last=number + 1 == len(plan.schedule.rungs), fit=rung.fit):
                break
        wrong += stops.met

    # Three standard errors of a share of 0.1 among 3000 runs.
    assert wrong / runs <= float(failure) + 0.017
    assert wrong > 0 or path == "rising"


@pytest.mark.parametrize("adversarial", [False, True])
def test_looks_whose_levels_follow_earlier_readings_seldom_accept_a_model_that_misses(
    adversarial: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The training itself, with a fit that always returns one model just below the target. A level that follows from an
    # earlier reading is harmless only because every measurement draws its own noise.
    failure, runs, rows, declared = Fraction(1, 5), 200, 100, 40_000  # so many that no test is left out for its margin
    right = np.arange(rows) >= rows // 5 + 1
    table = blocks_of(np.zeros((rows, SMALL.width), np.float32), right.astype(np.intp), np.full(rows, 0.01))
    plan = PureTraining(
        question="test",
        schedule=plan_pure_score(Fraction(4), classes=True),
        read=lambda _: table,
        shape=SMALL,
        classes=2,
        target=Target(Measure.ACCURACY, Fraction(8, 10), failure),
        public_rows=declared,
        failure_probability=failure,
    )
    monkeypatch.setattr(TiltedTable, "release", lambda *_, **__: (np.zeros(SMALL.width), 1.0))
    find_look, judge = _PureStop.find_look, _PureStop.judge
    looks: list[
        tuple[float, bool]
    ] = []  # the probability with which each may pass, and whether its sum was large enough

    def find_any_look(stops: _PureStop, number: int, model: Any) -> Fraction | None:
        if not adversarial:
            return find_look(stops, number, model)
        # The level at which the earlier reading itself would pass, as it would if its noise were kept.
        sums, surplus = plan.score_sum(model.profile), stops._history[-1][0] * declared if stops._history else 0.0
        if surplus <= sums.find_margin(model.profile, 0.1):
            return None
        level = Fraction(sums.passing_surplus(Fraction(1), stops._allowed, 0.0) / surplus * 1.01)
        return level.limit_denominator(10**6) if level <= plan.schedule.rungs[number].fit / 4 else None

    def judge_look(stops: _PureStop, score: MeasuredScore, test: Fraction, profile: TableProfile, **more: Any) -> str:
        if more.get("looked"):
            needed = plan.score_sum(profile).passing_surplus(test, stops._allowed, 0.0)
            looks.append((stops._allowed, score.surplus >= needed))
        return judge(stops, score, test, profile, **more)

    monkeypatch.setattr(_PureStop, "find_look", find_any_look)
    monkeypatch.setattr(_PureStop, "judge", judge_look)
    bits = SeededBits(8)
    receipts = [plan.climb(plan.measure(None), bits).receipt for _ in range(runs)]
    wrong = sum(receipt.outcome is Outcome.TESTED for receipt in receipts)
    allowed, passed = np.sum(looks, axis=0)

    assert wrong / runs <= float(failure) + 4 * math.sqrt(float(failure * (1 - failure)) / runs)
    # Given all that was released before it, a look errs as seldom as its own share says.
    assert passed <= allowed + 4 * math.sqrt(allowed)
    assert wrong > 0 and len(looks) > runs / 10  # the promise was tried
    assert all(receipt.epsilon <= plan.schedule.cap for receipt in receipts)


def test_a_summary_is_near_the_truth_and_its_errors_are_those_it_states() -> None:
    rng = np.random.default_rng(6)
    targets = np.clip(rng.normal(-0.4, 0.2, 5000), -1, 1)
    summary = TableSummary(2, 2.0, None)
    ladder = plan_pure_score(Fraction(1), classes=False).summary_ladder
    blocks = blocks_of(np.zeros((5000, 2), np.float32), targets, np.ones(5000))
    found = []
    for seed in range(200):
        path = summary.open_path(blocks, ladder, SeededBits(seed))
        found.append(summary.read(path.at(5), ladder[5]))
    rows = np.array([profile.rows for profile, _ in found])
    middles = np.array([profile.target_middle for profile, _ in found])

    assert abs(rows.mean() - 5000) < 60 and 0.7 < rows.std() / found[0][0].rows_error < 1.3
    assert 0.7 < middles.std() / math.hypot(found[0][0].target_error, 0.4 * found[0][0].rows_error / 5000) < 1.3
    assert all(units >= 5000 / 4 for _, units in found)
    few = summary.read(
        summary.open_path(blocks_of(np.zeros((0, 2)), np.zeros(0), np.zeros(0)), ladder, SeededBits(1)).at(0), ladder[0]
    )
    assert few[1] >= 17 * summary.lattice.scale(ladder[0])


def test_the_margin_of_r2_covers_a_noisy_middle() -> None:
    target = Target(Measure.R2, Fraction(1, 2), Fraction(1, 10))
    scale = 40.0
    profile = TableProfile(
        2000.0,
        np.zeros(2),
        np.ones(2),
        1.0,
        target_middle=0.3,
        target_spread=0.3,
        target_error=math.sqrt(2) * scale / 2000,
        rows_error=math.sqrt(2) * scale,
    )
    sums = PureScoreSum(target, None, 1, 1.0, 0.3, 2.0)
    rng = np.random.default_rng(7)
    failure, missed, runs = 0.05, 0, 4000
    margin = sums.find_margin(profile, failure)
    for noise_sum, noise_count in rng.laplace(0, scale, (runs, 2)):
        # The truth behind the released numbers: count 2000 - noise, sum 0.3 * 2000 - noise.
        count = 2000 - noise_count
        mean = (0.3 * 2000 - noise_sum) / count
        missed += (1 - 0.5) * count * (0.3 - mean) ** 2 > margin
    assert missed / runs <= failure
