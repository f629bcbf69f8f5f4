"""Sums of clipped gradients are exact integers that one row moves by the clip at most."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from expost.core import InvalidRequest, Norm, unseal
from expost.models.descent import clipped_gradient as module
from expost.models.descent import score_head as heads
from expost.models.descent.clipped_gradient import ClippedGradient
from expost.models.descent.feature_grid import FeatureGrid
from expost.models.descent.score_head import Huber, Logistic, Softmax, Squared
from expost.noise.gaussian_stream import SHORT

HEADS = [Softmax(10), Logistic(), Squared(), Huber(width=0.2)]


class Case:
    """A table, weights, and the sums over them."""

    def __init__(
        self, head: object = HEADS[0], *, clip: float = 0.5, noise: float = 3.0, rows: int = 300, width: int = 12
    ) -> None:
        rng = np.random.default_rng(5)
        self.raw = rng.normal(size=(rows, width)) * rng.lognormal(size=(rows, 1))
        labels = head.name in ("softmax", "logistic")
        self.targets = rng.integers(0, max(head.outputs, 2), rows) if labels else rng.uniform(-1, 1, rows)
        self.weights = rng.normal(size=(head.outputs, width + 1))
        self.grid = FeatureGrid(width, bound=2.0)
        self.rows = self.grid.encode_rows(self.raw)
        self.rule = ClippedGradient(self.grid, head, clip, noise)

    def total(self, index: object = slice(None)) -> np.ndarray:
        return unseal(self.rule.measure(self.rows, self.targets, self.weights, index))  # type: ignore[arg-type]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.name)
def test_one_row_moves_the_sum_by_the_sensitivity_at_most(head: object) -> None:
    case = Case(head)
    limit = int(case.rule.sensitivity.amount)
    assert case.rule.sensitivity.norm is Norm.L2

    for row in range(300):
        alone = [int(value) for value in case.total(np.array([row]))]
        assert sum(value * value for value in alone) <= limit * limit


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.name)
def test_the_sum_is_the_sum_of_its_rows_exactly(head: object) -> None:
    case = Case(head)

    alone = sum(case.total(np.array([row])) for row in range(300))

    assert (case.total() == alone).all()
    assert (case.total(np.random.default_rng(0).permutation(300)) == alone).all()


def test_chunks_do_not_change_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case()
    whole = case.total()

    for size in (1, 7, 64, 299):
        monkeypatch.setattr(module, "_MOST_ROWS", size)
        assert (case.total() == whole).all()
        assert (case.total(np.arange(300)) == whole).all()
        assert (case.total(slice(5, 250)) == case.total(np.arange(5, 250))).all()


def test_the_sum_is_the_clipped_gradient_up_to_rounding() -> None:
    case = Case(clip=0.5, noise=1.0)
    encoded = case.rows.integers() / case.grid.unit
    scores = case.weights @ encoded.T
    odds = np.exp(scores) / np.exp(scores).sum(axis=0)
    odds[case.targets, np.arange(300)] -= 1
    lengths = np.linalg.norm(odds, axis=0) * np.linalg.norm(encoded, axis=1)

    expected = (odds * np.minimum(1, 0.5 / lengths)) @ encoded

    assert np.allclose(case.total().reshape(10, 13) / case.rule.unit, expected, atol=1e-3)
    assert (lengths > 0.5).any() and (lengths < 0.5).any()


def test_an_empty_batch_is_a_vector_of_zeros() -> None:
    case = Case()

    assert case.total(np.array([], np.intp)).tolist() == [0] * case.rule.size


def test_a_gradient_at_the_clip_uses_nearly_all_of_the_sensitivity() -> None:
    case = Case(Logistic(), clip=0.01)

    lengths = [np.linalg.norm(case.total(np.array([row])).astype(float)) for row in range(300)]

    assert max(lengths) > 0.999 * float(case.rule.sensitivity.amount)


def test_without_clipping_the_sensitivity_would_be_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(clip=0.05)
    monkeypatch.setattr(
        ClippedGradient,
        "clip_residuals",
        lambda self, residuals, squares, weights=None: np.rint(residuals * self.residual_unit),
    )

    lengths = [np.linalg.norm(case.total(np.array([row])).astype(float)) for row in range(300)]

    assert max(lengths) > 5 * float(case.rule.sensitivity.amount)


@pytest.mark.parametrize("noise", [0.1, 1.0, 50.0, 2000.0])
def test_the_lattice_leaves_room_for_the_noise(noise: float) -> None:
    rule = Case(noise=noise).rule

    assert float(rule.sensitivity.amount) * noise <= 2.0**29.01
    assert float(rule.sensitivity.amount) / np.sqrt(rule.grid.longest) > 16


def test_weights_of_any_size_keep_scores_exact() -> None:
    case = Case()
    for size in (1e-9, 1.0, 1e6):
        case.weights = np.random.default_rng(0).normal(size=(10, 13)) * size
        alone = sum(case.total(np.array([row])) for row in range(300))
        assert (case.total() == alone).all()


def test_senseless_terms_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="clip"):
        Case(clip=0.0)
    with pytest.raises(InvalidRequest, match="noise multiplier"):
        Case(noise=1e8)


@pytest.mark.parametrize("residual", [24.0, -24.0, 23.0, 25.0, 1176.0, -1176.0, 1195.0, 1196.0, -1196.0])
def test_sums_by_digits_are_exact_for_rows_as_long_as_can_be(residual: float) -> None:
    rows = np.zeros((1000, 300), np.float32)
    rows[:, 0] = 4096  # all of a row's length in one column
    assert abs(residual) * 4096 <= module._LARGEST_SHORT < 1197 * 4096

    found = module._sum_by_digits(np.full((4, 1000), residual, np.float32), rows)

    assert found[:, 0].tolist() == [int(residual) * 4096 * 1000] * 4
    assert not found[:, 1:].any()


def test_digits_of_every_residual_are_as_small_as_the_proof_says() -> None:
    residuals = np.arange(module._LARGEST_SHORT + 1, dtype=np.float32)  # of the shortest row, which has the longest

    high = np.rint(residuals * np.float32(1 / module._BASE))
    low = residuals - high * np.float32(module._BASE)

    assert np.abs(low).max() <= module._BASE / 2
    assert (high.astype(np.int64) * module._BASE + low.astype(np.int64) == np.arange(len(residuals))).all()
    rows, longest = module._DIGIT_ROWS, 1 << 12
    assert rows * longest * module._BASE // 2 <= 1 << 24
    assert rows * (module._LARGEST_SHORT / module._BASE + 0.513 * longest) <= 1 << 24
    assert 2 * rows * module._LARGEST_SHORT < 1 << 31


def test_sums_by_digits_are_those_in_double_precision() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(-256, 257, (777, 300)).astype(np.float32)
    residuals = np.rint(rng.normal(size=(5, 777)) * 1500).astype(np.float32)

    assert (module._sum_by_digits(residuals, rows) == module._sum_products(residuals, rows)).all()


@pytest.mark.parametrize("clip", [0.001, 0.5, 30.0])
@pytest.mark.parametrize("noise", [0.5, 3.0, 300.0])
def test_wide_models_keep_to_their_sensitivity_and_to_the_sum_of_their_rows(clip: float, noise: float) -> None:
    case = Case(clip=clip, noise=noise, rows=150, width=299)
    limit = int(case.rule.sensitivity.amount)
    assert limit <= module._LARGEST_SHORT

    alone = [case.total(np.array([row])) for row in range(150)]

    assert (case.total() == sum(alone)).all()
    assert all(sum(int(value) ** 2 for value in row if value) <= limit * limit for row in alone)
    if clip < 1:
        assert max(np.linalg.norm(row.astype(float)) for row in alone) > 0.97 * limit


@pytest.mark.parametrize(("expected", "kind"), [(1.0, np.int32), (256.0, np.int32), (300.0, np.int64), (5e4, np.int64)])
def test_the_type_of_a_sum_depends_on_public_numbers_alone(expected: float, kind: type) -> None:
    case = Case(rows=1000, width=299)
    case.rule = ClippedGradient(case.grid, HEADS[0], 0.05, 1.0, expected)

    for size in (0, 1, 160, 161, 320, 321, 1000):
        assert case.total(np.arange(size)).dtype == kind
    alone = sum(case.total(np.array([row])).astype(np.int64) for row in range(1000))
    assert (case.total() == alone).all()
    assert int(case.rule.sensitivity.amount) * module._FEW_ROWS < SHORT or kind == np.int64


def test_sums_of_batches_much_larger_than_expected_are_cut() -> None:
    grid = FeatureGrid(299, bound=1.0, intercept=False)
    rows = grid.encode_rows(np.eye(1, 299).repeat(1000, axis=0))  # all of a row's gradient in one column
    rule = ClippedGradient(grid, HEADS[0], 1e-3, 1.0, 256.0)
    limit = int(rule.sensitivity.amount)

    def total(count: int) -> np.ndarray:
        sealed = rule.measure(rows, np.zeros(1000, np.intp), np.zeros((10, 299)), np.arange(count))
        return unseal(sealed).astype(np.int64)

    sums = [total(count) for count in (320, 400, 600, 601, 1000)]

    assert np.abs(sums[0]).max() > 250 * limit and np.abs(sums[1]).max() < SHORT - 1
    assert np.abs(sums[-1]).max() == SHORT - 1
    assert np.linalg.norm((sums[3] - sums[2]).astype(float)) <= limit


def test_a_row_alone_is_added_up_like_a_row_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(rows=400, width=299)
    case.grid = FeatureGrid(299, bound=2.0, intercept=False)
    case.rows = case.grid.encode_rows(case.raw * 1e-4)  # short rows have long residuals, on which a last bit is seen
    case.rule = ClippedGradient(case.grid, HEADS[0], 0.01, 1.0)
    case.weights = case.weights[:, :299] * 100

    def differences() -> int:
        alone = sum(case.total(np.array([row])) for row in range(400))
        return int(np.count_nonzero(case.total() != alone))

    assert differences() == 0
    monkeypatch.setattr(module, "row_sums", lambda values, start=0.0: np.add.reduce(values, axis=0, initial=start))
    monkeypatch.setattr(heads, "row_sums", lambda values, start=0.0: np.add.reduce(values, axis=0, initial=start))
    assert differences() > 0


def test_two_threads_do_not_share_a_desk() -> None:
    case = Case(rows=300, width=299)
    batches = [np.arange(start, start + 150) for start in (0, 150)]
    expected = [case.total(batch) for batch in batches]

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(case.total, batches * 40))

    assert all((each == expected[number % 2]).all() for number, each in enumerate(found))


@pytest.mark.parametrize("columns", [1, 12, 784, 5000])
@pytest.mark.parametrize("size", [0.0, 1e-9, 0.3, 1.0, 1e7])
def test_scores_are_exact_sums_of_integers_and_close_to_those_of_the_weights(columns: int, size: float) -> None:
    rng = np.random.default_rng(columns)
    grid = FeatureGrid(columns, bound=3.0)
    chosen = grid.encode_rows(rng.normal(size=(40, columns)) * 100).integers()  # as long as rows may be
    weights = rng.normal(size=(3, columns + 1)) * size

    rounded = module._RoundedWeights.of(weights, grid)
    found = rounded.compute_scores(chosen.astype(np.float32))

    high, low = rounded.pieces[:3].astype(object), rounded.pieces[3:].astype(object)
    exact = ((high * 2**rounded.gap + low).astype(object) @ chosen.T.astype(object)).astype(np.float64)
    assert (found == exact * rounded.scale).all()
    lengths = np.sqrt((rounded.pieces.astype(np.float64) ** 2).sum(axis=1))
    assert lengths.max() * math.sqrt(grid.longest) <= 2**24
    wanted = weights @ chosen.T.astype(float) / grid.unit
    reach = (
        (np.linalg.norm(weights, axis=1).max() + 2.0**-20) * np.linalg.norm(chosen.astype(float), axis=1) / grid.unit
    )
    worst = (columns + 1) / (3663 - math.sqrt(columns + 1) / 2) ** 2  # docs/proofs/sgd-gradient.md, item 2
    assert (np.abs(found - wanted) <= reach * worst).all()


@pytest.mark.parametrize("columns", [256, 784, 5000])
@pytest.mark.parametrize("size", [0.0, 1e-9, 0.3, 1.0, 1e7, 1e100])
def test_coarse_scores_are_exact_sums_of_integers_too(columns: int, size: float) -> None:
    rng = np.random.default_rng(columns)
    grid = FeatureGrid(columns, bound=3.0)
    chosen = grid.encode_rows(rng.normal(size=(40, columns)) * 100).integers()  # as long as rows may be
    weights = rng.normal(size=(5, columns + 1)) * size

    rounded = module._RoundedWeights.of(weights, grid, coarse=True)
    found = rounded.compute_scores(chosen.astype(np.float32))

    exact = (rounded.pieces.astype(object) @ chosen.T.astype(object)).astype(np.float32)
    assert found.dtype == np.float32 and np.isfinite(found).all()
    assert (found == exact * np.float32(rounded.scale)).all()
    lengths = np.sqrt((rounded.pieces.astype(np.float64) ** 2).sum(axis=1))
    assert lengths.max() * math.sqrt(grid.longest) <= 2**24
    wanted = weights @ chosen.T.astype(float) / grid.unit
    if size > module._LARGEST_SCALE:  # far beyond what float32 can hold: the largest score takes all, as it should
        assert (found.argmax(axis=0) == wanted.argmax(axis=0)).all()
        return
    reach = (
        (np.linalg.norm(weights, axis=1).max() + 2.0**-20) * np.linalg.norm(chosen.astype(float), axis=1) / grid.unit
    )
    spare = math.sqrt(columns + 1) / 2
    worst = spare / (3663 - spare) + 2.0**-22  # docs/proofs/sgd-gradient.md, item 2
    assert (np.abs(found - wanted) <= reach * worst).all()
    assert np.sqrt(np.mean(((found - wanted) / reach) ** 2)) < 1e-4  # roundings do not conspire


def test_weights_along_one_axis_are_held_exactly_too() -> None:
    grid = FeatureGrid(3, bound=1.0, intercept=False)
    chosen = grid.encode_rows(np.array([[1.0, 0.0, 0.0]])).integers()
    weights = np.array([[1e3, 0.0, 0.0]])

    assert module._RoundedWeights.of(weights, grid).compute_scores(chosen.astype(np.float32))[0, 0] == pytest.approx(
        1e3, rel=1e-3
    )
