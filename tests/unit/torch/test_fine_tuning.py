"""Models as people fine-tune them: adapters, frozen statistics, unusual parameters, losses and outputs."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from tests.unit.torch.row_by_row import compare, table_of  # noqa: E402
from torch import nn  # noqa: E402

from expost.core import InvalidRequest  # noqa: E402
from expost.torch import train  # noqa: E402
from expost.torch.model_inputs import SeveralInputs, call_model  # noqa: E402

functional = nn.functional
ROWS = 5


class Made(nn.Module):
    """Parts, and a function of them and the inputs."""

    def __init__(self, run: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self._run = [run]

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self._run[0](self, *inputs, **named)


def numbers(*shape: int) -> Any:
    return torch.randn(ROWS, *shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def words(most: int, *shape: int) -> Any:
    return torch.randint(0, most, (ROWS, *shape), generator=torch.Generator().manual_seed(4))


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape))


class Lowered(nn.Module):
    """A weight and a trained change of low rank, as PEFT's LoRA merges them."""

    def __init__(self, outputs: int, inputs: int) -> None:
        super().__init__()
        self.up, self.down = parameter(outputs, 2), parameter(2, inputs)

    def forward(self, weight: Any) -> Any:
        return weight + self.up @ self.down


def low_rank() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 7)).requires_grad_(False)
    nn.utils.parametrize.register_parametrization(model[0], "weight", Lowered(6, 8))
    nn.utils.parametrize.register_parametrization(model[2], "weight", Lowered(7, 6))
    return model


def biases_only() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 7))
    for name, part in model.named_parameters():
        part.requires_grad_("bias" in name)
    return model


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).requires_grad_(False)


def residual_network() -> nn.Module:
    def norm() -> nn.Module:
        layer = nn.BatchNorm2d(6)
        layer.running_mean.copy_(torch.linspace(-1, 1, 6))
        return layer.eval()

    def run(model: Any, rows: Any) -> Any:
        first = functional.relu(model.norm(model.first(rows)))
        return model.head((first + model.other(model.second(first))).mean((2, 3)))

    return Made(
        run,
        first=nn.Conv2d(3, 6, 3, padding=1, bias=False),
        norm=norm().requires_grad_(False),
        second=nn.Conv2d(6, 6, 3, padding=1, bias=False),
        other=norm(),  # its scale and shift are trained
        head=nn.Linear(6, 7),
    )


def tied_language_model() -> nn.Module:
    model = Made(
        lambda model, text: model.head(torch.tanh(model.inner(model.words(text)))),
        words=nn.Embedding(9, 5, padding_idx=0),
        inner=nn.Linear(5, 5),
        head=nn.Linear(5, 9, bias=False),
    )
    model.head.weight = model.words.weight
    return model


def layer_under_two_names() -> nn.Module:
    shared = nn.Linear(8, 8)
    return nn.Sequential(shared, nn.Tanh(), nn.Sequential(shared, nn.ReLU(), shared), nn.Linear(8, 7))


def by_token(outputs: Any, targets: Any) -> Any:
    return functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none", ignore_index=0)


def start_with(model: Any, rows: Any, state: Any) -> Any:
    return model.head(model.inner(rows, state)[0][:, -1])


Case = tuple[Callable[[], nn.Module], Any, Any, Any]
CLASSES = words(7)
CASES: dict[str, Case] = {
    "low rank by parametrization": (low_rank, numbers(8), CLASSES, None),
    "biases only": (biases_only, numbers(8), CLASSES, None),
    "frozen encoder and adapter": (
        lambda: Made(
            lambda model, rows: model.head(model.adapter(model.body(rows)).mean(1)),
            body=encoder(),
            adapter=nn.Sequential(nn.Linear(8, 2), nn.GELU(), nn.Linear(2, 8)),
            head=nn.Linear(8, 7),
        ),
        numbers(4, 8),
        CLASSES,
        None,
    ),
    "trained prompt": (
        lambda: Made(
            lambda model, text: model.head(
                model.body(torch.cat([model.prompt.expand(len(text), -1, -1), model.words(text)], 1)).mean(1)
            ),
            words=nn.Embedding(9, 8).requires_grad_(False),
            prompt=parameter(1, 2, 8),
            body=encoder(),
            head=nn.Linear(8, 7),
        ),
        words(9, 4),
        CLASSES,
        None,
    ),
    "residual network with frozen statistics": (residual_network, numbers(3, 6, 6), CLASSES, None),
    "frozen running statistics of instances": (
        lambda: nn.Sequential(
            nn.Conv1d(3, 4, 3),
            nn.InstanceNorm1d(4, track_running_stats=True, affine=True).eval(),
            nn.Flatten(),
            nn.Linear(24, 7),
        ),
        numbers(3, 8),
        CLASSES,
        None,
    ),
    "frozen spectral norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 6)).eval(), nn.Linear(6, 7)),
        numbers(8),
        CLASSES,
        None,
    ),
    "a single number": (
        lambda: Made(lambda model, rows: model.head(rows) * model.scale.exp(), head=nn.Linear(8, 7), scale=parameter()),
        numbers(8),
        CLASSES,
        None,
    ),
    "sparse embedding": (
        lambda: Made(
            lambda model, text: model.head(model.words(text).mean(1)),
            words=nn.Embedding(9, 5, sparse=True),
            head=nn.Linear(5, 7),
        ),
        words(9, 4),
        CLASSES,
        None,
    ),
    "two towers that share a layer": (
        lambda: Made(
            lambda model, left, right: model.head(torch.cat([model.tower(left), model.tower(right)], 1)),
            tower=nn.Sequential(nn.Linear(8, 4), nn.Tanh()),
            head=nn.Linear(8, 7),
        ),
        SeveralInputs((numbers(8), numbers(8).flip(0))),
        CLASSES,
        None,
    ),
    "lstm with a trained first state": (
        lambda: Made(
            lambda model, rows: start_with(model, rows, [model.state.expand(1, len(rows), 6).contiguous()] * 2),
            inner=nn.LSTM(8, 6, batch_first=True),
            state=parameter(1, 1, 6),
            head=nn.Linear(6, 7),
        ),
        numbers(4, 8),
        CLASSES,
        None,
    ),
    "gru with a first state from the row": (
        lambda: Made(
            lambda model, rows: start_with(model, rows, model.first(rows[:, 0])[None].contiguous()),
            inner=nn.GRU(8, 6, batch_first=True),
            first=nn.Linear(8, 6),
            head=nn.Linear(6, 7),
        ),
        numbers(4, 8),
        CLASSES,
        None,
    ),
    "a layer under two names": (layer_under_two_names, numbers(8), CLASSES, None),
    "tied language model, a loss per token": (tied_language_model, words(9, 4), words(9, 4), by_token),
    "a class per pixel": (lambda: nn.Conv2d(1, 7, 3, padding=1), numbers(1, 6, 6), words(7, 6, 6), None),
    "one number": (lambda: nn.Linear(8, 1), numbers(8), numbers(1), nn.MSELoss(reduction="none")),
    "several labels": (
        lambda: nn.Linear(8, 3),
        numbers(8),
        words(2, 3).double(),
        nn.BCEWithLogitsLoss(reduction="none"),
    ),
    "logits in a dictionary": (
        lambda: Made(lambda model, rows: {"logits": model.head(rows)}, head=nn.Linear(8, 7)),
        numbers(8),
        CLASSES,
        None,
    ),
    "two heads and a loss of both": (
        lambda: Made(lambda model, rows: (model.one(rows), model.two(rows)), one=nn.Linear(8, 7), two=nn.Linear(8, 3)),
        numbers(8),
        CLASSES,
        lambda outputs, targets: (
            functional.cross_entropy(outputs[0], targets, reduction="none") + outputs[1].square().mean(1)
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_a_row_are_those_of_autograd(name: str) -> None:
    make, inputs, targets, loss = CASES[name]
    torch.manual_seed(0)

    compare(make().double(), inputs, targets, loss)


@pytest.mark.parametrize("name", ["residual network with frozen statistics", "frozen spectral norm"])
def test_buffers_of_frozen_layers_stay_and_their_weights_may_be_trained(name: str) -> None:
    make, inputs, targets, _ = CASES[name]
    torch.manual_seed(0)
    model = make()
    before = copy.deepcopy(model)

    data = (inputs.float().repeat(40, *[1] * (inputs.dim() - 1)), targets.repeat(40))
    trained = train(model, data, rows=40 * ROWS, epsilon=8.0, steps=3, simulation_seed=0).value

    assert all(torch.equal(a, b) for a, b in zip(trained.buffers(), before.buffers(), strict=True))
    moved = [not torch.equal(a, b) for a, b in zip(trained.parameters(), before.parameters(), strict=True)]
    assert moved == [part.requires_grad for part in before.parameters()]


@pytest.mark.parametrize("label", [-1, -100, 7, 10**9])
def test_a_pixel_whose_label_is_not_a_class_counts_nothing_and_stops_nothing(label: int) -> None:
    torch.manual_seed(0)
    model, inputs, targets = nn.Conv2d(1, 7, 3, padding=1).double(), numbers(1, 6, 6), words(7, 6, 6)
    table = table_of(model, inputs, targets)
    wrong = targets.clone()
    wrong[0] = label

    total = table.gradients.total(inputs, wrong, 1e6)

    assert torch.allclose(total, table.gradients.total(inputs[1:], targets[1:], 1e6))


REFUSED: dict[str, tuple[Callable[[], nn.Module], Any, Any, str]] = {
    "a width that does not fit": (
        lambda: nn.Sequential(nn.Linear(8, 6), nn.Linear(5, 7)),
        numbers(8),
        None,
        r"layer '1' \(Linear\) does not take",
    ),
    "a tuple for the usual loss": (
        lambda: Made(lambda model, rows: (model.head(rows), rows), head=nn.Linear(8, 7)),
        numbers(8),
        None,
        r"model's outputs \(tuple\)",
    ),
    "targets of another shape": (
        lambda: nn.Linear(8, 1),
        numbers(8),
        lambda outputs, targets: (outputs - targets).square(),
        "mixes them",  # one column of outputs less one row of targets is a square
    ),
    "packed sequences": (
        lambda: Made(
            lambda model, rows, lengths: model.head(
                model.inner(nn.utils.rnn.pack_padded_sequence(rows, lengths.clamp(1, 4), True, enforce_sorted=False))[
                    1
                ][0]
            ),
            inner=nn.GRU(8, 6, batch_first=True),
            head=nn.Linear(6, 7),
        ),
        SeveralInputs((numbers(4, 8), words(4))),
        None,
        r"length or index",
    ),
    "random activations": (
        lambda: nn.Sequential(nn.Linear(8, 6), nn.RReLU(), nn.Linear(6, 7)),
        numbers(8),
        None,
        r"layer '1' \(RReLU\)",
    ),
    "softmax over the batch": (
        lambda: nn.Sequential(nn.Linear(8, 7), nn.Softmax(dim=0)),
        numbers(8),
        None,
        r"layer '1' \(Softmax\) mixes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_where(name: str) -> None:
    make, inputs, loss, expected = REFUSED[name]
    torch.manual_seed(0)

    with pytest.raises(InvalidRequest, match=expected):
        table_of(make().double(), inputs, CLASSES if loss is None else CLASSES.double(), loss)


class Compiled(nn.Module):
    """What ``torch.compile`` returns has the module that it wraps under this name."""

    def __init__(self) -> None:
        super().__init__()
        self._orig_mod = nn.Linear(8, 7)


UNUSUAL: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], str]] = {
    "compiled": (lambda: nn.Sequential(Compiled()), {}, r"layer '0' is compiled"),
    "complex": (lambda: nn.Sequential(nn.Linear(8, 7, dtype=torch.complex64)), {}, "complex ones in '0.weight'"),
    "LBFGS": (lambda: nn.Linear(8, 7), {"optimizer": torch.optim.LBFGS}, "closure"),
    "Muon": (lambda: nn.Linear(8, 7), {"optimizer": torch.optim.Muon}, "Muon only supports 2D"),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_cannot_be_trained_is_named(name: str) -> None:
    make, terms, expected = UNUSUAL[name]

    with pytest.raises(InvalidRequest, match=expected):
        train(make(), (numbers(8).float(), CLASSES), rows=ROWS, epsilon=1.0, steps=1, **terms)


def test_outputs_by_name_are_read_from_objects_and_mappings() -> None:
    rows = numbers(8)

    assert call_model(lambda given: {"logits": given, "loss": None}, rows) is rows
    assert call_model(lambda given: {"other": given}, rows) == {"other": rows}
