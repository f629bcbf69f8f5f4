"""One row moves what is measured by the sensitivity at most, in models and rows made to break that."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from torch import nn  # noqa: E402

from expost import InvalidRequest  # noqa: E402
from expost.core import unseal  # noqa: E402
from expost.models.descent.training_schedule import Full, Phase  # noqa: E402
from expost.models.descent.training_watch import Watch, Watching  # noqa: E402
from expost.noise import SeededBits  # noqa: E402
from expost.torch.module_learner import ModuleProblem  # noqa: E402
from expost.torch.network_rows import read_rows  # noqa: E402
from expost.torch.network_training import _cross_entropy  # noqa: E402


def learner_of(model: nn.Module, inputs: Any, labels: Any, *, clip: float = 1.0, watched: bool = False) -> Any:
    problem = ModuleProblem(
        model=model,
        loss=_cross_entropy,
        clip=clip,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        averaging=0.0,
        device=torch.device("cpu"),
        watched=watched,
    )
    return problem.table(read_rows((inputs, labels))).learner(slice(None), None)


class Spare(nn.Module):
    """A layer is trained and never used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(3, 2), nn.Linear(200, 300)

    def forward(self, rows: Any) -> Any:
        return self.used(rows)


class Mixing(nn.Module):
    """Rows are told apart from the others of their batch."""

    def __init__(self, middle: Any) -> None:
        super().__init__()
        self.words, self.head, self.middle = nn.Embedding(5, 4), nn.Linear(4, 2), middle

    def forward(self, rows: Any) -> Any:
        return self.head(self.middle(self.words(rows)))


class Filling(nn.Module):
    """Missing values get the mean of their batch."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, rows: Any) -> Any:
        return self.head(torch.where(rows.isnan(), rows.nanmean(0, keepdim=True), rows))


class Rescaling(Filling):
    """A batch that looks like bytes is scaled."""

    def forward(self, rows: Any) -> Any:
        return self.head(rows / 255 if len(rows) and rows.max() > 2 else rows)


class LongOnly(Filling):
    """Only long batches are scaled by what is in them."""

    def forward(self, rows: Any) -> Any:
        return self.head(rows / rows.norm(dim=1).quantile(0.5) if len(rows) > 16 else rows)


class InUse(Filling):
    """Rows are mixed in use alone, which a test of the score would see."""

    def forward(self, rows: Any) -> Any:
        return self.head(rows if self.training else rows - rows.mean(0))


class Fragile(Filling):
    """One missing value stops it."""

    def forward(self, rows: Any) -> Any:
        if rows.isnan().any():
            raise ValueError(rows)
        return self.head(rows)


class Chancy(Filling):
    """Chance that no dropout layer makes."""

    def forward(self, rows: Any) -> Any:
        return self.head(nn.functional.dropout(rows, 0.5, self.training))


def hardest(outputs: Any, labels: Any) -> Any:
    """Only the 64 largest losses of a batch count."""
    losses = nn.functional.cross_entropy(outputs, labels, reduction="none")
    return losses * (losses >= losses.detach().topk(min(64, len(losses))).values[-1])


class Sorting(Filling):
    """Rows go through the layers in another order, and come back."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, rows: Any) -> Any:
        order = rows[:, 0].argsort()
        return self.head(torch.tanh(self.body(rows[order]))[order.argsort()])


class Folding(Filling):
    """Places of a row go through a layer as if they were rows."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(2, 2)

    def forward(self, rows: Any) -> Any:
        return self.head(torch.tanh(self.body(rows.reshape(-1, 2))).reshape(-1, 4))


class Experts(Filling):
    """Each row goes to one of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(4, 2)

    def forward(self, rows: Any) -> Any:
        large, found = rows[:, 0].abs() > 2, rows.new_zeros(len(rows), 2)
        if (~large).any():
            found[~large] = self.head(rows[~large])
        if large.any():
            found[large] = self.other(rows[large])
        return found


class RunningMean(Filling):
    """A parameter that is not trained, and follows the rows instead."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(4), requires_grad=False)

    def forward(self, rows: Any) -> Any:
        self.mean.data.lerp_(rows.detach().mean(0), 0.5)
        return self.head(rows)


class RareMixing(Filling):
    """Now and then two rows are mixed."""

    def forward(self, rows: Any) -> Any:
        return self.head((rows + rows.flip(0)) / 2 if self.training and float(torch.rand(())) < 1e-9 else rows)


REFUSED: list[Any] = [Filling, Rescaling, LongOnly, InUse, Fragile, Chancy, Experts, RunningMean]


@pytest.mark.parametrize("model", [*REFUSED, RareMixing])
def test_models_that_mix_rows_somehow_are_refused(model: Any) -> None:
    reasons = r"rows are independent|accept any number of rows|at random|keeps nothing of the rows"
    with pytest.raises(InvalidRequest, match=reasons) as caught:
        learner_of(model(), torch.zeros(9, 4), torch.zeros(9).long())
    assert f"the model itself ({model.__name__})" in str(caught.value)  # that is where the code stands


@pytest.mark.parametrize("model", [Sorting, Folding])
def test_models_that_reorder_rows_and_bring_them_back_are_clipped_row_by_row(model: Any) -> None:
    torch.manual_seed(0)
    rows = torch.randn(9, 4)
    learner = learner_of(model(), rows, torch.zeros(9).long(), clip=0.1)
    limit = float(learner.open(Phase(1, Fraction(1)), 9.0).amount)
    whole = unseal(learner.measure(np.arange(9))).astype(float)

    moves = [np.linalg.norm(whole - unseal(learner.measure(np.delete(np.arange(9), row)))) for row in range(9)]

    assert 0.9 * limit < max(moves) <= limit


def test_a_table_that_is_changed_by_looking_into_it_is_refused() -> None:
    pytest.importorskip("opacus", reason="the extra torch is not installed")
    model = nn.Sequential(nn.Embedding(5, 4, max_norm=9.0), nn.Flatten(), nn.Linear(8, 2))

    with pytest.raises(InvalidRequest, match="max_norm"):
        learner_of(model, torch.zeros(9, 2).long(), torch.zeros(9).long())


def test_nothing_but_weights_comes_back_from_a_stopped_step() -> None:
    """Ctrl-C between a pass forward and back: hooks of Opacus hold the rows' activations then."""
    pytest.importorskip("opacus", reason="the extra torch is not installed")
    model, calls = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2)), []

    def stopped(outputs: Any, labels: Any) -> Any:
        calls.append(len(outputs))
        if len(calls) > before:
            raise KeyboardInterrupt
        return _cross_entropy(outputs, labels)

    problem = ModuleProblem(model, stopped, 1.0, torch.optim.SGD, 0.0, torch.device("cpu"))
    before = 10**9
    learner = problem.table(read_rows((torch.ones(9, 4), torch.zeros(9).long()))).learner(slice(None), None)
    learner.open(Phase(1, Fraction(1)), 9.0)
    before = len(calls)
    with pytest.raises(KeyboardInterrupt):
        learner.measure(slice(None))

    released = learner.build_result()
    assert released is model
    for module in released.modules():
        assert not vars(module).keys() - vars(type(module)(*_SHAPES[type(module)])).keys()
        assert not module._forward_hooks and not module._backward_hooks
    assert not any(vars(part) for part in released.parameters())


_SHAPES: dict[Any, Any] = {nn.Sequential: (), nn.Linear: (1, 1), nn.LayerNorm: (1,)}


def test_a_loss_that_takes_the_hardest_rows_of_a_batch_is_refused() -> None:
    problem = ModuleProblem(nn.Linear(4, 2), hardest, 1.0, torch.optim.SGD, 0.0, torch.device("cpu"))

    with pytest.raises(InvalidRequest, match="rows are independent"):
        problem.table(read_rows((torch.zeros(9, 4), torch.zeros(9).long())))


class Keeping(nn.Module):
    """What it saw last stays in an attribute, or somewhere below one."""

    def __init__(self, keep: Any) -> None:
        super().__init__()
        self.head, self.keep = nn.Linear(4, 2), keep
        self.seen: Any = {"all": [], "last": None}
        self.table: Any = None

    def forward(self, rows: Any) -> Any:
        if self.table is None:
            self.table = torch.ones(4)  # a constant that is made once is nobody's
        self.keep(self, rows)
        return self.head(rows * self.table)


KEEPING: dict[str, Any] = {
    "an attribute": lambda model, rows: setattr(model, "last", rows),
    "a number": lambda model, rows: setattr(model, "last", float(rows.nan_to_num().sum())),
    "a list": lambda model, rows: model.seen["all"].append(rows),
    "a dictionary": lambda model, rows: model.seen.update(last=rows.numpy()),
    "in place": lambda model, rows: model.table.mul_(1.0),
}


@pytest.mark.parametrize("keep", KEEPING.values(), ids=KEEPING)
def test_models_that_keep_what_they_saw_are_refused(keep: Any) -> None:
    with pytest.raises(InvalidRequest, match="keeps nothing"):
        learner_of(Keeping(keep), torch.zeros(9, 4), torch.zeros(9).long())


def test_a_model_that_keeps_a_constant_is_trained() -> None:
    learner_of(Keeping(lambda model, rows: None), torch.zeros(9, 4), torch.zeros(9).long())


def test_a_trial_leaves_no_trace_in_a_model() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}

    with pytest.raises(InvalidRequest):
        learner_of(model, torch.zeros(9, 4), torch.zeros(9).long())

    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_short_ends_of_a_batch_are_computed_as_long_ones() -> None:
    """The last rows of 515, three, would go through another kernel than four: a unit that one of them finds just off and the
    other just on then moves the sum by all rows at once."""
    torch.manual_seed(1)
    model, row = nn.Sequential(nn.Linear(1000, 1), nn.ReLU(), nn.Linear(1, 2, bias=False)), 3 * torch.randn(1, 1000)
    with torch.no_grad():
        model[2].weight.copy_(torch.tensor([[5.0], [-5.0]]))
        model[0].bias.copy_(-model[0](row.expand(16, -1).contiguous())[0] + model[0].bias)
    seen = set()
    model[0].register_forward_hook(lambda layer, given, output: seen.add(len(given[0])))
    sums = []
    for rows in (0, 1, 3, 4, 33, 512, 515, 516):
        learner = learner_of(model, row.expand(rows, -1).contiguous(), torch.zeros(rows).long())
        seen.clear()
        sensitivity = learner.open(Phase(1, Fraction(1)), 1000.0)
        sums.append(np.asarray(unseal(learner.measure(slice(None))), float))
        assert seen and all(length % 16 == 0 and length > 0 for length in seen)
    assert np.linalg.norm(sums[-1] - sums[-2]) <= float(sensitivity.amount)


def test_entries_that_no_table_has_stop_nothing() -> None:
    pytest.importorskip("opacus", reason="the extra torch is not installed")
    model = Mixing(lambda words: words.mean(1))
    rows = torch.tensor([[0, 1], [4, 2], [7, -3]])
    learner = learner_of(model, rows, torch.zeros(3).long())
    sensitivity = learner.open(Phase(1, Fraction(1)), 3.0)

    total = np.asarray(unseal(learner.measure(slice(None))), float)

    bounded = learner_of(model, rows.clamp(0, 4), torch.zeros(3).long())
    bounded.open(Phase(1, Fraction(1)), 3.0)
    assert np.array_equal(total, unseal(bounded.measure(slice(None)))) and np.linalg.norm(total) <= 3 * float(
        sensitivity.amount
    )
    assert not any(module._forward_pre_hooks for module in model.modules())


class Gated(nn.Module):
    """A tiny input and a huge gate: the square of the one vanishes, the product with the other does not."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(784, 1, bias=False), nn.Linear(1, 2).requires_grad_(False)

    def forward(self, rows: Any) -> Any:
        return self.head(self.inner(rows[:, :784]) * rows[:, 784:])


@pytest.mark.parametrize("trial", range(12))
def test_a_layer_that_is_not_used_is_zero_in_every_sum(trial: int) -> None:
    rubbish = torch.full((61_000,), 1e6 + trial)  # memory that the next vector may be given
    learner = learner_of(Spare(), torch.ones(6, 3), torch.zeros(6).long())
    del rubbish
    learner.open(Phase(1, Fraction(2)), 6.0)

    measured = unseal(learner.measure(np.arange(6)))

    assert np.abs(measured[:8]).max() > 0 and not measured[8:].any()


@pytest.mark.parametrize(
    "middle",
    [lambda rows: rows - rows.mean(0), nn.BatchNorm1d(4, affine=False, track_running_stats=False)],
    ids=["mean", "batch normalisation"],
)
def test_models_that_mix_rows_of_whole_numbers_are_refused(middle: Any) -> None:
    pytest.importorskip("opacus", reason="the extra torch is not installed")
    with pytest.raises(InvalidRequest, match="independent"):
        learner_of(Mixing(middle), torch.arange(10) % 5, torch.zeros(10).long())


def test_a_table_of_words_is_learned_from() -> None:
    pytest.importorskip("opacus", reason="the extra torch is not installed")
    learner = learner_of(Mixing(nn.Identity()), torch.arange(10) % 5, torch.zeros(10).long())

    assert learner.size == 20 + 10


@pytest.mark.parametrize("clip", [1e-4, 1e-3, 1.0])
def test_squares_too_small_for_their_type_hide_no_gradient(clip: float) -> None:
    torch.manual_seed(0)
    rows = torch.full((1, 785), 2.5e-23)
    rows[0, 784] = 1e19
    learner = learner_of(Gated(), rows, torch.zeros(1).long(), clip=clip)
    sensitivity = learner.open(Phase(1, Fraction(2)), 1.0)

    assert np.linalg.norm(unseal(learner.measure(np.arange(1))).astype(float)) <= float(sensitivity.amount)


@pytest.mark.parametrize(
    "model", [nn.Linear(3, 2), nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2))], ids=["ours", "other"]
)
def test_an_empty_batch_is_watched_like_any_other(model: Any) -> None:
    pytest.importorskip("opacus", reason="the extra torch is not installed")
    learner = learner_of(model, torch.ones(6, 3), torch.zeros(6).long(), watched=True)
    watching = Watching(Watch(), learner, Full(6), SeededBits(1))
    watching.open(Phase(2, Fraction(3)))
    learner.measure(np.arange(0))
    watching.release_metrics()

    assert watching.reading is not None


def test_an_unknown_label_counts_as_knowing_nothing() -> None:
    learner = learner_of(nn.Linear(3, 2), torch.ones(2, 3), torch.tensor([77, -1]), watched=True)
    learner.open(Phase(1, Fraction(2)), 2.0)
    learner.start_watch(100)
    learner.measure(np.arange(2))

    assert unseal(learner.read_watch()).tolist() == [-200, 0]


def test_a_training_begins_where_the_model_is_whatever_was_trained_before() -> None:
    """One table may be learned from again, by an audit for one: what was released before is no part of it."""
    model = nn.Linear(2, 2)
    begun = model.weight.detach().clone()
    problem = ModuleProblem(
        model, _cross_entropy, 1.0, lambda weights: torch.optim.SGD(weights, lr=1.0), 0.0, torch.device("cpu")
    )
    table = problem.table(read_rows((torch.ones(4, 2), torch.zeros(4, dtype=torch.long))))
    first = table.learner(slice(None), None)
    first.open(Phase(1, Fraction(1)), 4.0)
    first.take_step(np.full(first.size, 1000))
    assert not torch.equal(problem.worker.weight, begun)

    table.learner(slice(None), None)

    assert torch.equal(problem.worker.weight, begun)
