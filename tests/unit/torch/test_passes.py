"""Whatever the way through a model, layers are given the same and have the same errors."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from tests.unit.torch.row_by_row import by_hand  # noqa: E402
from torch import nn  # noqa: E402

from expost.torch.layer_parts import (  # noqa: E402
    Chain,
    Layer,
    Tapped,
)
from expost.torch.loss_tap import LossTap  # noqa: E402
from expost.torch.network_training import _cross_entropy  # noqa: E402
from expost.torch.row_gradients import SummedLayers  # noqa: E402


def batch(*shape: int) -> tuple["torch.Tensor", "torch.Tensor"]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(16, *shape, generator=generator), torch.randint(0, 3, (16,), generator=generator)


def layers_of(model: nn.Module) -> dict[nn.Module, Layer]:
    """With places, though they do not matter here."""
    return {
        module: Layer(module, slice(0), slice(0))
        for module in model.modules()
        if isinstance(module, nn.Linear | nn.Conv2d) and module.weight.requires_grad
    }


def frozen(model: nn.Sequential, *places: int) -> nn.Sequential:
    for place in places:
        model[place].requires_grad_(False)
    return model


CHAINS: dict[str, Any] = {
    "one layer": lambda: nn.Sequential(nn.Flatten(), nn.Linear(8, 3)),
    "perceptron": lambda: nn.Sequential(nn.Flatten(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)),
    "in place": lambda: nn.Sequential(nn.Flatten(), nn.Linear(8, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)),
    "smooth": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 4, bias=False), nn.Sigmoid(), nn.Linear(4, 3), nn.Tanh()
    ),
    "places": lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Flatten(), nn.ReLU(), nn.Linear(10, 3)),
    "first frozen": lambda: frozen(nn.Sequential(nn.Flatten(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)), 1),
    "middle frozen": lambda: frozen(
        nn.Sequential(nn.Flatten(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 3)), 3
    ),
}


@pytest.mark.parametrize("make", CHAINS.values(), ids=CHAINS)
def test_a_chain_sees_to_the_last_bit_what_autograd_sees(make: Any) -> None:
    torch.manual_seed(0)
    model, (inputs, targets) = make(), batch(2, 4)
    layers, loss = layers_of(model), LossTap(_cross_entropy)

    assert Chain.supports_model(model)
    chained = Chain(model, layers)(inputs.clone(), targets, loss)
    tapped = Tapped(model, layers)(inputs.clone(), targets, loss)

    assert [seen.layer for seen in chained] == [seen.layer for seen in tapped] == list(layers.values())
    for ours, autograds in zip(chained, tapped, strict=True):
        assert torch.equal(ours.given, autograds.given)
        assert torch.equal(ours.error, autograds.error)
        assert not ours.given.requires_grad and not autograds.given.requires_grad


class Doubled(nn.Linear):
    def forward(self, rows: Any) -> Any:
        return 2 * super().forward(rows)


def hooked() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3))
    model[1].register_forward_hook(lambda module, given, output: 2 * output)
    return model


def overridden() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3))
    model[1].forward = lambda rows: 2 * rows
    return model


OTHERS: dict[str, Any] = {
    "hook": hooked,
    "other forward": overridden,
    "dropout": lambda: nn.Sequential(nn.Linear(8, 5), nn.Dropout(0.0), nn.Linear(5, 3)),
    "subclass": lambda: nn.Sequential(nn.Linear(8, 5), Doubled(5, 3).requires_grad_(False)),
    "within one another": lambda: nn.Sequential(nn.Sequential(nn.Linear(8, 5), nn.ReLU()), nn.Linear(5, 3)),
    "normalised": lambda: nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(8, 5)).requires_grad_(False), nn.Linear(5, 3)
    ),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_a_model_that_does_more_goes_through_autograd(make: Any) -> None:
    torch.manual_seed(0)
    model, (inputs, targets) = make(), batch(8)

    ours = SummedLayers(model, _cross_entropy).total(inputs, targets, 0.5)

    assert not Chain.supports_model(model)
    assert torch.allclose(ours, by_hand(model, inputs, targets, 0.5), rtol=1e-3, atol=1e-4)


class Both(nn.Module):
    """Two layers side by side: autograd hands both the same tensor of errors."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.head = nn.Linear(8, 5), nn.Linear(8, 5), nn.Linear(5, 3)

    def forward(self, rows: Any) -> Any:
        return self.head((self.left(rows) + self.right(rows)).relu_())


class InPlace(nn.Module):
    """What comes out of a layer on places is a view, and is worked on in place."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 5), nn.Linear(10, 3)

    def forward(self, rows: Any) -> Any:
        return self.head(self.body(rows.view(-1, 2, 4)).mul_(2).relu_().flatten(1))


def only_biases() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3))
    model[0].weight.requires_grad_(False)
    model[2].weight.requires_grad_(False)
    return model


def only_weights() -> nn.Module:
    model = Both()
    model.left.bias.requires_grad_(False)
    return model


@pytest.mark.parametrize("make", [Both, InPlace, only_biases, only_weights])
@pytest.mark.parametrize("clip", [0.05, 100.0])
def test_unusual_models_are_summed_as_row_by_row(make: Any, clip: float) -> None:
    torch.manual_seed(0)
    model, (inputs, targets) = make(), batch(8)

    ours = SummedLayers(model, _cross_entropy).total(inputs, targets, clip)

    assert torch.allclose(ours, by_hand(model, inputs, targets, clip), rtol=1e-3, atol=1e-4)


def test_hooks_hold_nothing_between_passes() -> None:
    model = nn.Linear(8, 3)
    passes, (inputs, targets) = Tapped(model, layers_of(model)), batch(8)

    def stopped(outputs: Any, targets: Any) -> Any:
        raise KeyboardInterrupt

    passes(inputs, targets, LossTap(_cross_entropy))
    model(inputs)
    with pytest.raises(KeyboardInterrupt):
        passes(inputs, targets, LossTap(stopped))
    with pytest.raises(RuntimeError):
        passes(inputs[:, :2], targets, LossTap(_cross_entropy))

    assert not any(isinstance(value, torch.Tensor | list) for value in vars(passes).values())
