"""Per-row gradients of generated networks equal row-by-row autograd; networks that mix rows are refused by name."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from tests.unit.torch.row_by_row import compare, table_of  # noqa: E402
from torch import nn  # noqa: E402

from expost.core import InvalidRequest  # noqa: E402
from expost.torch.loss_tap import LossTap  # noqa: E402
from expost.torch.model_inputs import SeveralInputs, call_model, input_parts  # noqa: E402
from expost.torch.network_training import _cross_entropy  # noqa: E402

ROWS, WIDTH = 5, 8


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, values: Any) -> Any:
        return values + self.inner(values)


class Twice(Residual):
    """One layer, used twice."""

    def forward(self, values: Any) -> Any:
        return self.inner(torch.tanh(self.inner(values)))


class Taken(nn.Module):
    """A layer that returns a tuple, of which the first entry counts."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, values: Any) -> Any:
        return self.inner(values)[0]


class Attention(nn.Module):
    def __init__(self, **terms: Any) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(WIDTH, 2, batch_first=True, **terms)

    def forward(self, values: Any) -> Any:
        return self.inner(values, values, values, need_weights=False)[0]


class Scaled(nn.Module):
    """A parameter that belongs to no known layer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))

    def forward(self, values: Any) -> Any:
        return values * self.scale


class LowRank(nn.Module):
    """A frozen layer with a small trained one beside it, as LoRA has it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.down, self.up = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH, bias=False)

    def forward(self, values: Any) -> Any:
        return self.base(values) + self.up(self.down(values))


def frozen_norm() -> nn.Module:
    layer = nn.BatchNorm1d(WIDTH)
    layer.running_mean.copy_(torch.linspace(-1, 1, WIDTH))
    layer.running_var.copy_(torch.linspace(0.5, 2, WIDTH))
    return layer.eval().requires_grad_(False)


class Turned(nn.Module):
    """A layer on channels, given places first."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, values: Any) -> Any:
        return self.inner(values.transpose(1, 2)).transpose(1, 2)


# Blocks that take and return rows x places x WIDTH.
BLOCKS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "no bias": lambda: nn.Linear(WIDTH, WIDTH, bias=False),
    "convolution": lambda: Turned(nn.Conv1d(WIDTH, WIDTH, 3, padding=1)),
    "grouped convolution": lambda: Turned(nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=4, padding_mode="circular")),
    "layer norm": lambda: nn.LayerNorm(WIDTH),
    "group norm": lambda: Turned(nn.GroupNorm(2, WIDTH)),
    "instance norm": lambda: Turned(nn.InstanceNorm1d(WIDTH, affine=True)),
    "frozen batch norm": lambda: Turned(frozen_norm()),
    "trained batch norm with frozen statistics": lambda: Turned(frozen_norm().requires_grad_(True)),
    "attention": Attention,
    "attention with dropout": lambda: Attention(dropout=0.0),
    "transformer": lambda: nn.TransformerEncoderLayer(WIDTH, 2, 12, dropout=0.0, batch_first=True, norm_first=True),
    "lstm": lambda: Taken(nn.LSTM(WIDTH, WIDTH, batch_first=True)),
    "gru": lambda: Taken(nn.GRU(WIDTH, WIDTH // 2, num_layers=2, bidirectional=True, batch_first=True)),
    "rnn": lambda: Taken(nn.RNN(WIDTH, WIDTH, batch_first=True)),
    "residual": lambda: Residual(nn.Sequential(nn.Linear(WIDTH, 5), nn.GELU(), nn.Linear(5, WIDTH))),
    "shared": lambda: Twice(nn.Linear(WIDTH, WIDTH)),
    "shared norm": lambda: Twice(nn.LayerNorm(WIDTH)),
    "own parameter": Scaled,
    "prelu": lambda: Turned(nn.PReLU(WIDTH)),
    "low rank": LowRank,
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
    "dropout": lambda: nn.Dropout(0.0),
}


class Network(nn.Module):
    """Words, numbers or images; blocks; and a head that may be tied to the words."""

    def __init__(self, kind: str, blocks: list[nn.Module], tied: bool) -> None:
        super().__init__()
        self.kind = kind
        if kind in ("words", "words and numbers"):
            self.words = nn.Embedding(7, WIDTH, padding_idx=2)
        if kind == "words and numbers":
            self.numbers = nn.Linear(3, WIDTH)
        if kind == "images":
            self.patches = nn.Conv2d(1, WIDTH, 3, stride=2)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(WIDTH, 7)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, rows: Any, numbers: Any = None) -> Any:
        if self.kind == "images":
            values = self.patches(rows).flatten(2).transpose(1, 2)
        else:
            values = rows if self.kind == "numbers" else self.words(rows)
        if numbers is not None:
            values = values + self.numbers(numbers)[:, None]
        return self.head(self.blocks(values).mean(1))


def batch(kind: str) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Any:
        return torch.randn(ROWS, *shape, generator=generator, dtype=torch.float64)

    words = torch.randint(0, 7, (ROWS, 4), generator=generator)
    inputs = {
        "words": words,
        "numbers": draw(4, WIDTH),
        "images": draw(1, 6, 6),
        "words and numbers": SeveralInputs((words, draw(3)), ("rows", "numbers")),
    }
    return inputs[kind], torch.randint(0, 7, (ROWS,), generator=generator)


KINDS = ("numbers", "words", "images", "words and numbers")
FAMILY = [
    *((name, "numbers", False) for name in BLOCKS),
    *(
        (f"{one}, {two}", kind, kind.startswith("words") and number % 2 == 0)
        for number, ((one, two), kind) in enumerate(
            zip(itertools.pairwise([*BLOCKS, "linear", "lstm", "convolution"]), itertools.cycle(KINDS), strict=False)
        )
    ),
]


@pytest.mark.parametrize(("names", "kind", "tied"), FAMILY, ids=lambda value: str(value))
def test_gradients_of_a_row_are_those_of_autograd(names: str, kind: str, tied: bool) -> None:
    torch.manual_seed(0)
    model = Network(kind, [BLOCKS[name]() for name in names.split(", ")], tied).double()

    compare(model, *batch(kind))


def test_the_entry_of_a_padding_index_is_not_trained() -> None:
    torch.manual_seed(0)
    model = Network("words", [nn.Linear(WIDTH, WIDTH)], False).double()
    inputs, targets = batch("words")
    inputs[:, 0] = 2

    total = table_of(model, inputs, targets).gradients.total(inputs, targets, 1e6)

    words = total[: 7 * WIDTH].view(7, WIDTH)
    assert not words[2].any() and words[[0, 1, 3]].any()


def test_a_frozen_backbone_of_any_kind_is_allowed() -> None:
    torch.manual_seed(0)
    body = [BLOCKS[name]() for name in ("convolution", "transformer", "lstm", "shared")]
    model = Network("numbers", [*body, frozen_norm_on_places()], False).double()
    model.requires_grad_(False)
    model.head.requires_grad_(True)

    compare(model, *batch("numbers"))


def frozen_norm_on_places() -> nn.Module:
    return Turned(frozen_norm())


def test_statistics_and_modes_of_a_frozen_normalisation_stay() -> None:
    torch.manual_seed(0)
    model = Network("numbers", [frozen_norm_on_places()], False).double()
    norm = model.blocks[0].inner
    before = norm.running_mean.clone()
    learner = table_of(model, *batch("numbers")).learner(slice(None), None)
    from fractions import Fraction

    import numpy as np

    from expost.models.descent.training_schedule import Phase

    learner.open(Phase(1, Fraction(1)), 5.0)
    learner.measure(np.arange(5))

    assert torch.equal(norm.running_mean, before)
    assert not learner._problem.worker.blocks[0].inner.training
    assert torch.equal(learner._problem.worker.blocks[0].inner.running_mean, before)


class Pair(nn.Module):
    """Two inputs by place; the second is a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.MultiheadAttention(WIDTH, 2, batch_first=True), nn.Linear(WIDTH, 7)

    def forward(self, values: Any, mask: Any) -> Any:
        return self.head(self.inner(values, values, values, key_padding_mask=mask)[0].mean(1))


def test_masks_are_inputs_too() -> None:
    torch.manual_seed(0)
    values, targets = batch("numbers")
    mask = torch.zeros(ROWS, 4, dtype=torch.bool)
    mask[1, 2:] = True

    compare(Pair().double(), SeveralInputs((values, mask)), targets)


class Logits(nn.Module):
    """A model that returns its outputs by name, as those of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, 7)

    def forward(self, rows: Any) -> Any:
        from types import SimpleNamespace

        return SimpleNamespace(loss=None, logits=self.head(rows.mean(1)))


def test_outputs_may_be_called_logits() -> None:
    torch.manual_seed(0)
    compare(Logits().double(), *batch("numbers"))


class Centred(nn.Module):
    def forward(self, values: Any) -> Any:
        return values - values.mean(0, keepdim=True)


class Noisy(nn.Module):
    def forward(self, values: Any) -> Any:
        return nn.functional.dropout(values, 0.5)


class Kept(nn.Module):
    def forward(self, values: Any) -> Any:
        self.last = values.detach()
        return values


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, values: Any) -> Any:
        chosen = values.flatten(1).sum(1) > 0
        found = torch.zeros_like(values)
        if chosen.any():
            found[chosen] = self.one(values[chosen])
        if (~chosen).any():
            found[~chosen] = self.other(values[~chosen])
        return found


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "batch norm": (lambda: Turned(nn.BatchNorm1d(WIDTH)), r"layer 'blocks.1.inner' \(BatchNorm1d\).*nn.GroupNorm"),
    "moving norm": (lambda: Turned(nn.BatchNorm1d(WIDTH).requires_grad_(False)), r"'blocks.1.inner'.*\.eval\(\)"),
    "no statistics": (
        lambda: Turned(nn.BatchNorm1d(WIDTH, track_running_stats=False).eval().requires_grad_(False)),
        r"'blocks.1.inner' \(BatchNorm1d\) mixes",
    ),
    "running statistics": (
        lambda: Turned(nn.InstanceNorm1d(WIDTH, track_running_stats=True)),
        r"running_mean' of layer 'blocks.1.inner' \(InstanceNorm1d\)",
    ),
    "spectral norm": (
        lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)),
        r"of layer 'blocks.1.parametrizations.weight.0' \(_SpectralNorm\)",
    ),
    "mean of a batch": (Centred, r"layer 'blocks.1' \(Centred\) mixes"),
    "chance": (Noisy, r"layer 'blocks.1' \(Noisy\) does.*nn.Dropout"),
    "memory": (Kept, r"layer 'blocks.1' \(Kept\) does"),
    "branches": (Branching, r"layer 'blocks.1' \(Branching\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_layer_and_what_to_do(name: str) -> None:
    make, expected = REFUSED[name]
    torch.manual_seed(0)
    model = Network("numbers", [nn.Linear(WIDTH, WIDTH), make()], False).double()
    before = copy.deepcopy(model.state_dict())

    with pytest.raises(InvalidRequest, match=expected):
        table_of(model, *batch("numbers"))

    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_rows_of_several_inputs_must_be_independent_in_each() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(WIDTH, 7)

        def forward(self, values: Any, weights: Any) -> Any:
            return self.head((values * (weights / weights.abs().sum())[:, None, None]).mean(1))

    inputs, targets = batch("numbers")
    with pytest.raises(InvalidRequest, match="mixes"):
        table_of(Masked().double(), SeveralInputs((inputs, torch.ones(ROWS).double())), targets)


def test_dropout_of_attention_is_dropout() -> None:
    model = nn.TransformerEncoderLayer(WIDTH, 2, 12, dropout=0.3, batch_first=True)

    inputs, targets = batch("numbers")
    table = table_of(Network("numbers", [model], False), inputs.float(), targets)

    assert table.problem.worker.blocks[0].self_attn.dropout == 0.3


def test_losses_are_shown_once_whatever_the_way() -> None:
    torch.manual_seed(0)
    model = Network("numbers", [nn.LayerNorm(WIDTH)], False).double()
    inputs, targets = batch("numbers")
    table = table_of(model, inputs, targets)
    seen: list[Any] = []

    with table.tap.shown_to(lambda *parts: seen.append(parts)):
        table.gradients.total(inputs, targets, 1.0)

    ((outputs, labels, losses),) = seen
    assert torch.allclose(losses, LossTap(_cross_entropy)(call_model(model, inputs), targets))
    assert outputs.shape == (ROWS, 7) and torch.equal(labels, targets)
    assert len(input_parts(inputs)) == 1


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(2, 3), nn.Linear(1, 3)

    def forward(self, left: Any, right: Any) -> Any:
        return self.left(left) + self.right(right)


class Named(torch.utils.data.Dataset):
    def __init__(self, left: Any, right: Any, labels: Any) -> None:
        self.parts = left, right, labels

    def __len__(self) -> int:
        return len(self.parts[2])

    def __getitem__(self, place: int) -> Any:
        left, right, labels = (part[place] for part in self.parts)
        return {"right": right, "left": left}, labels


def test_several_inputs_come_from_arrays_datasets_and_loaders() -> None:
    from torch.utils.data import DataLoader, TensorDataset

    from expost.torch import train

    left, right, labels = torch.randn(60, 2), torch.randn(60, 1), torch.arange(60) % 3
    torch.manual_seed(0)
    begun = Two().state_dict()
    weights = []
    for data in (
        ((left, right), labels),
        ((left.numpy(), right.numpy()), labels.numpy()),
        ({"left": left, "right": right}, labels),
        TensorDataset(left, right, labels),
        DataLoader(TensorDataset(left, right, labels), batch_size=7),
        Named(left, right, labels),
    ):
        model = Two()
        model.load_state_dict(begun)
        release = train(model, data, rows=60, epsilon=4.0, steps=2, simulation_seed=3)
        weights.append(torch.cat([part.detach().reshape(-1) for part in release.value.parameters()]))

    assert all(torch.allclose(weights[0], other, atol=1e-6) for other in weights[1:])


@pytest.mark.parametrize(
    "data",
    [
        ((torch.ones(4, 2), torch.ones(3, 1)), torch.zeros(4).long()),
        ((), torch.zeros(4).long()),
        ({}, torch.zeros(4).long()),
        ((torch.ones(4, 2), "b"), torch.zeros(4).long()),
        ({"left": torch.ones(4, 2), "wrong": torch.ones(4, 1)}, torch.zeros(4).long()),
    ],
    ids=["lengths", "none", "no names", "a word", "a wrong name"],
)
def test_inputs_that_do_not_fit_are_refused(data: Any) -> None:
    from expost.torch import train

    with pytest.raises(InvalidRequest, match="Expected"):
        train(Two(), data, rows=4, epsilon=1.0, steps=1)


def test_public_rows_of_several_inputs_are_read_in_their_form() -> None:
    from expost.torch import train

    torch.manual_seed(0)
    left, right = torch.randn(400, 2), torch.randn(400, 1)
    rows = ({"left": left, "right": right}, (left[:, 0] > 0).long())
    terms: dict[str, Any] = {"rows": 400, "score": ("accuracy", 0.3), "max_epsilon": 8.0, "steps": 20}

    release = train(Two(), rows, public_validation=rows, simulation_seed=0, **terms)
    assert release.receipt.outcome.met
    with pytest.raises(InvalidRequest, match="form of the private rows"):
        train(Two(), rows, public_validation=((left, right), rows[1]), **terms)
