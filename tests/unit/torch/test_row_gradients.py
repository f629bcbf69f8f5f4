"""Clipped sums of per-row gradients equal those taken row by row, and one row moves them by the clip."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from tests.unit.torch.row_by_row import by_hand  # noqa: E402
from torch import nn  # noqa: E402

from expost.core import InvalidRequest, unseal  # noqa: E402
from expost.models.descent.stopping_test import ScoreRule  # noqa: E402
from expost.models.descent.training_schedule import Phase  # noqa: E402
from expost.torch.mapped_gradients import MappedGradients  # noqa: E402
from expost.torch.module_learner import ModuleProblem, _find_stretch  # noqa: E402
from expost.torch.network_rows import TensorRows, read_rows  # noqa: E402
from expost.torch.network_trial import find_gradients  # noqa: E402
from expost.torch.row_gradients import SampledGradients, SummedLayers  # noqa: E402


def cross_entropy(outputs: "torch.Tensor", targets: "torch.Tensor") -> "torch.Tensor":
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


class Mean(nn.Module):
    def forward(self, values: "torch.Tensor") -> "torch.Tensor":
        return values.mean(1)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(inplace=True), nn.Linear(16, 3))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 5, 3, padding="same", bias=False),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(80, 3),
    )


def tokens() -> nn.Module:
    return nn.Sequential(nn.Flatten(1, 2), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3), Mean())


def normed() -> nn.Module:
    pytest.importorskip("opacus", reason="the extra torch is not installed")
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))


def frozen() -> nn.Module:
    model = mlp()
    model[1].requires_grad_(False)
    return model


def batch(rows: int = 7) -> tuple["torch.Tensor", "torch.Tensor"]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, 1, 8, 8, generator=generator), torch.randint(0, 3, (rows,), generator=generator)


@pytest.mark.parametrize("make", [mlp, cnn, normed, frozen], ids=lambda make: make.__name__)
@pytest.mark.parametrize("clip", [0.01, 1.0, 100.0])
def test_the_clipped_sum_equals_one_taken_row_by_row(make: object, clip: float) -> None:
    torch.manual_seed(0)
    model = make()  # type: ignore[operator]
    inputs, targets = batch()

    ours = find_gradients(model, cross_entropy, batch(3)).total(inputs, targets, clip)

    assert torch.allclose(ours, by_hand(model, inputs, targets, clip), rtol=1e-3, atol=1e-4 * clip)
    assert all(
        parameter.requires_grad == (make is not frozen or place > 1)
        for place, parameter in enumerate(model.parameters())
    )


def test_layers_on_sequences_are_right_too() -> None:
    torch.manual_seed(0)
    model, (inputs, targets) = tokens(), batch()

    ours = find_gradients(model, cross_entropy, batch(3)).total(inputs, targets, 0.5)

    assert torch.allclose(ours, by_hand(model, inputs, targets, 0.5), rtol=1e-3, atol=1e-4)


def test_common_layers_are_done_by_hand_and_others_are_mapped() -> None:
    assert isinstance(find_gradients(mlp(), cross_entropy, batch(3)), SummedLayers)
    assert isinstance(find_gradients(cnn(), cross_entropy, batch(3)), SummedLayers)
    assert isinstance(find_gradients(normed(), cross_entropy, batch(3)), MappedGradients)


@pytest.mark.parametrize("affine", [True, False])
def test_batch_normalisation_is_refused(affine: bool) -> None:
    pytest.importorskip("opacus", reason="the extra torch is not installed")
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8, affine=affine), nn.Linear(8, 3))

    with pytest.raises(InvalidRequest, match=r"independent; layer '2' \(BatchNorm1d\)"):
        find_gradients(model, cross_entropy, batch(3))


def test_a_model_that_remembers_rows_in_a_buffer_is_refused() -> None:
    class Remembers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 3)
            self.register_buffer("seen", torch.zeros(64))

        def forward(self, values: "torch.Tensor") -> "torch.Tensor":
            if self.training:
                self.seen += values.flatten(1).sum(0).detach()
            return self.layer(values.flatten(1))

    with pytest.raises(InvalidRequest, match="keeps nothing"):
        find_gradients(Remembers(), cross_entropy, batch(3))


def test_dropout_is_allowed_and_modes_are_put_back() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Dropout(0.5), nn.Linear(8, 3)).eval()

    find_gradients(model, cross_entropy, batch(3))

    assert not any(module.training for module in model.modules())


def test_recurrent_layers_of_opacus_are_taken_too() -> None:
    layers = pytest.importorskip("opacus.layers", reason="the extra torch is not installed")

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = layers.DPLSTM(8, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, values: "torch.Tensor") -> "torch.Tensor":
            return self.head(self.body(values.flatten(1, 2))[0][:, -1])

    assert isinstance(find_gradients(Recurrent(), cross_entropy, batch(3)), MappedGradients)


def test_opacus_is_the_last_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MappedGradients, "_row_parts", lambda *given: 1 / 0)

    assert isinstance(find_gradients(normed(), cross_entropy, batch(3)), SampledGradients)


def test_rows_that_see_each_other_are_refused() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 3)

        def forward(self, values: "torch.Tensor") -> "torch.Tensor":
            flat = values.flatten(1)
            return self.layer(flat - flat.mean(0, keepdim=True) + flat)

    with pytest.raises(InvalidRequest, match="independent"):
        find_gradients(Mixed(), cross_entropy, batch(3))


def problem(model: nn.Module, clip: float = 0.1) -> ModuleProblem:
    return ModuleProblem(
        model,
        cross_entropy,
        clip,
        lambda parameters: torch.optim.Adam(parameters, lr=0.01),
        8.0,
        torch.device("cpu"),
    )


@pytest.mark.parametrize("make", [mlp, cnn], ids=lambda make: make.__name__)
def test_one_row_moves_the_sealed_sum_by_the_sensitivity_at_most(make: object) -> None:
    torch.manual_seed(0)
    learner = problem(make()).table(TensorRows(*batch(40))).learner(slice(None), None)  # type: ignore[operator]
    limit = float(learner.open(Phase(1, 2), 40.0).amount)  # type: ignore[arg-type]
    whole = unseal(learner.measure(np.arange(40))).astype(float)

    moves = [np.linalg.norm(whole - unseal(learner.measure(np.delete(np.arange(40), row)))) for row in range(40)]

    assert max(moves) <= limit
    assert max(moves) > 0.9 * limit  # clipped rows use it nearly all


@pytest.mark.parametrize("make", [mlp, cnn, normed], ids=lambda make: make.__name__)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
def test_a_row_that_is_no_number_counts_for_nothing(make: object, value: float) -> None:
    torch.manual_seed(0)
    inputs, targets = batch(12)
    inputs[5, 0, 2, 3] = value
    learner = problem(make()).table(TensorRows(inputs, targets)).learner(slice(None), None)  # type: ignore[operator]
    limit = float(learner.open(Phase(1, 2), 12.0).amount)  # type: ignore[arg-type]

    whole = unseal(learner.measure(np.arange(12))).astype(float)
    without = unseal(learner.measure(np.delete(np.arange(12), 5)))

    assert np.linalg.norm(whole) > 2 * limit  # the other rows are there
    assert np.linalg.norm(whole - without) <= (limit if value == 3e38 else limit / 100)  # a large one may be clipped


@pytest.mark.parametrize("make", [mlp, cnn, normed], ids=lambda make: make.__name__)
@pytest.mark.parametrize("stretch", [1, 3, 4, 7, 100])
def test_sums_by_stretches_in_single_precision_are_those_in_double(make: object, stretch: int) -> None:
    torch.manual_seed(0)
    rows = find_gradients(make(), cross_entropy, batch(3))  # type: ignore[operator]

    exact = rows.total(*batch(), 0.1, unit=2.0**20)
    single = rows.total(*batch(), 0.1, unit=2.0**20, stretch=stretch)

    assert (exact.dtype, single.dtype) == (torch.float64, torch.float32)
    assert float((single - exact).norm()) <= 14 * 2.0**-24 * 7 * 0.1 * 2**20


@pytest.mark.parametrize("rows", [0, 1, 200, 256, 331, 332, 400, 500])
def test_batches_are_cut_so_that_single_precision_errs_by_less_than_is_declared(rows: int) -> None:
    stretch = _find_stretch(rows)

    assert stretch is not None
    parts = -(-rows // stretch)
    assert (((stretch + 1) * (2 * stretch + 1) / 6) ** 0.5 + parts + 2) * rows * 2.0**-24 * 1.01 <= 2.0**-8
    assert parts <= 4
    assert (parts <= 1) == (rows <= 331)
    assert rows * 2**21 * (1 + 2.0**-8) < 2**30


def test_squared_depths_of_a_tree_add_up_to_no_more_than_those_of_a_chain() -> None:
    trees = {1: {(0, 0)}}  # for so many leaves, the sums of depths and of their squares that can be
    for leaves in range(2, 21):
        trees[leaves] = {
            (one + two + leaves, one2 + 2 * one + two2 + 2 * two + leaves)
            for left in range(1, leaves // 2 + 1)
            for one, one2 in trees[left]
            for two, two2 in trees[leaves - left]
        }
        most = max(squares for _, squares in trees[leaves])
        assert most == sum(depth**2 for depth in range(1, leaves)) + (leaves - 1) ** 2  # a chain
        assert most <= leaves * (leaves + 1) * (2 * leaves + 1) / 6


def errors_of_chains(rows: np.ndarray, orders: np.ndarray) -> float:
    """How far sums in float32, each entry's one after the other in its own order, are from the exact ones."""
    taken = np.take_along_axis(rows, orders, axis=0)
    total = np.zeros(rows.shape[1], np.float32)
    for row in taken:
        total += row
    return float(np.linalg.norm(total - rows.astype(float).sum(axis=0)))


@pytest.mark.parametrize("alike", [True, False])
def test_sums_in_any_order_err_by_less_than_is_declared(alike: bool) -> None:
    rng, count = np.random.default_rng(0), 331
    rows = rng.normal(size=(1 if alike else count, 50)).repeat(count if alike else 1, axis=0)
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    small_first = np.argsort(np.abs(rows), axis=0)

    for orders in (small_first, small_first[::-1], rng.permuted(small_first, axis=0)):
        assert errors_of_chains(rows, orders) <= 2.0**-8


def test_many_more_rows_in_one_stretch_would_err_by_more_than_is_declared() -> None:
    rows = np.full((20_000, 50), 50**-0.5, np.float32)

    assert errors_of_chains(rows, np.tile(np.arange(20_000)[:, None], 50)) > 2.0**-8


def test_a_batch_much_larger_than_expected_keeps_its_type_and_range() -> None:
    torch.manual_seed(0)
    inputs, targets = (
        part.repeat_interleave(700, 0) for part in batch(1)
    )  # all rows alike: sums are as large as can be
    learner = problem(mlp()).table(TensorRows(inputs, targets)).learner(slice(None), None)
    learner.open(Phase(1, 2), 40.0)  # type: ignore[arg-type]

    small, large = (unseal(learner.measure(np.arange(rows))) for rows in (500, 700))

    assert small.dtype == large.dtype == np.int32
    assert abs(small).max() < 2**30
    assert abs(large).max() < 2**30
    assert np.corrcoef(small, large)[0, 1] > 0.99


def test_large_batches_are_added_in_double_precision() -> None:
    assert _find_stretch(501) is None
    assert _find_stretch(10**6) is None


def test_a_model_in_double_precision_stays_there() -> None:
    torch.manual_seed(0)
    inputs, targets = batch(6)
    learner = problem(mlp().double()).table(TensorRows(inputs.double(), targets)).learner(slice(None), None)
    single = problem(mlp()).table(TensorRows(inputs, targets)).learner(slice(None), None)

    fine, coarse = (each.open(Phase(1, 2), 6.0).amount for each in (learner, single))  # type: ignore[arg-type]

    assert fine < 8 * coarse  # its lattice is eight times finer, and nothing is added for float32
    assert unseal(learner.measure(np.arange(6))).dtype == np.int64
    assert unseal(single.measure(np.arange(6))).dtype == np.int32


@pytest.mark.parametrize("make", [mlp, cnn], ids=lambda make: make.__name__)
def test_models_in_half_precision_are_clipped_as_well(make: object) -> None:
    torch.manual_seed(0)
    model = make().bfloat16()  # type: ignore[operator]
    inputs, targets = batch(20)

    rows = SummedLayers(model, lambda outputs, labels: cross_entropy(outputs.float(), labels))
    alone = [rows.total(inputs[i : i + 1].bfloat16(), targets[i : i + 1], 0.1) for i in range(20)]

    assert 0.0999 < max(float(row.norm()) for row in alone) <= 0.1


def test_an_empty_batch_is_a_vector_of_zeros() -> None:
    for make in (mlp, normed):
        learner = problem(make()).table(TensorRows(*batch(5))).learner(slice(None), None)
        learner.open(Phase(1, 2), 5.0)  # type: ignore[arg-type]
        assert not unseal(learner.measure(np.array([], np.intp))).any()


def test_a_restored_learner_goes_on_as_if_nothing_had_happened() -> None:
    torch.manual_seed(0)
    noises = [np.random.default_rng(step).integers(-(2**20), 2**20, 1091) for step in range(6)]

    def walked(learner: object, steps: list[np.ndarray]) -> object:
        learner.open(Phase(1, 2), 5.0)
        for noise in steps:
            learner.take_step(noise)
        return learner

    model, twin = mlp(), mlp()
    twin.load_state_dict(model.state_dict())
    straight = walked(problem(model).table(TensorRows(*batch(5))).learner(slice(None), None), noises)
    first = walked(problem(twin).table(TensorRows(*batch(5))).learner(slice(None), None), noises[:3])
    second = problem(mlp()).table(TensorRows(*batch(5))).learner(slice(None), None)
    second.restore_state(first.copy_state())
    walked(second, noises[3:])

    for one, two in zip(straight.build_result().parameters(), second.build_result().parameters(), strict=True):
        assert torch.allclose(one, two)
    with pytest.raises(InvalidRequest, match="checkpoint"):
        second.restore_state({})


def test_the_score_is_taken_at_the_averaged_weights() -> None:
    from fractions import Fraction

    from expost.core import Measure, Target

    torch.manual_seed(0)
    rule = ScoreRule.of(Target(Measure.ACCURACY, Fraction(1, 2), Fraction(1, 10)))
    learner = problem(mlp()).table(TensorRows(*batch(30))).learner(np.arange(10), np.arange(10, 30))
    learner.open(Phase(1, 2), 10.0)  # type: ignore[arg-type]

    score = unseal(learner.score(rule, 3))
    inputs, targets = batch(30)
    right = int((learner.build_result()(inputs[10:]).argmax(1) == targets[10:]).sum())

    assert score == rule.sum_correct(right, 20) - 3


def test_rows_come_from_arrays_datasets_and_loaders() -> None:
    from torch.utils.data import DataLoader, Dataset, TensorDataset

    inputs, targets = batch(9)

    class Listed(Dataset):
        def __len__(self) -> int:
            return 9

        def __getitem__(self, place: int) -> tuple["torch.Tensor", "torch.Tensor"]:
            return inputs[place], targets[place]

    index = np.array([3, 1])
    for data in (
        (inputs.numpy(), targets.numpy()),
        TensorDataset(inputs, targets),
        DataLoader(TensorDataset(inputs, targets), batch_size=2),
        Listed(),
    ):
        rows = read_rows(data)
        assert len(rows) == 9
        assert torch.equal(rows.take_rows(index)[0], inputs[[3, 1]])
        assert len(rows.take_rows(np.array([], np.intp))[1]) == 0
        assert "private" in repr(rows)
    with pytest.raises(InvalidRequest):
        read_rows(7)
    with pytest.raises(InvalidRequest):
        read_rows((inputs, targets[:3]))
