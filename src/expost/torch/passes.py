"""Ways through a model and back: what its layers are given, and the derivatives of the rows' losses by what they make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from expost.torch.loss_tap import LossTap
from expost.torch.row_parts import Layer, Seen

__all__ = ["Chain", "Layers", "Passes", "Tapped"]

Layers = Mapping[nn.Module, Layer]
"""The layers that are trained."""

_Tap = tuple[Layer, Tensor, GradientEdge]


class Passes(Protocol):
    """A way through a model and back. Gradients of parameters are not computed, which saves half of the way back."""

    def __call__(self, inputs: Tensor, targets: Tensor, loss: LossTap) -> Sequence[Seen]:
        """What trained layers saw, once for each time that one is used."""
        ...


class Tapped:
    """Through any model, by autograd. Hooks, put there once, note what layers are given and where derivatives will pass.

    >>> model = nn.Linear(2, 1)
    >>> passes = Tapped(model, {model: Layer(model, slice(0, 2), slice(2, 3))})
    >>> passes(torch.ones(4, 2), torch.zeros(4), LossTap(lambda outputs, targets: 3 * outputs.sum(1)))[0].error.tolist()
    [[3.0], [3.0], [3.0], [3.0]]
    """

    def __init__(self, model: nn.Module, layers: Layers) -> None:
        self._model, self._layers = model, layers
        self._taps: list[_Tap] | None = None
        for module in layers:
            module.register_forward_hook(self._note)

    def __call__(self, inputs: Tensor, targets: Tensor, loss: LossTap) -> Sequence[Seen]:
        """Forward, then back to the layers' outputs."""
        taps: list[_Tap] = []
        self._taps = taps
        try:
            outputs = self._model(inputs)
        finally:
            self._taps = None
        errors = torch.autograd.grad(outputs, [edge for _, _, edge in taps], loss.errors(outputs, targets))
        return [Seen(layer, given.detach(), error) for (layer, given, _), error in zip(taps, errors, strict=True)]

    def _note(self, module: nn.Module, given: Any, output: Tensor) -> Tensor | None:
        if self._taps is None:
            return None
        self._taps.append((self._layers[module], given[0], get_gradient_edge(output)))
        # If what follows works in place, this edge of the graph stays where it is; but that of a view is drawn anew.
        return output.clone() if output._is_view() else None


_Back = Callable[[Any, Tensor, Tensor, Tensor], Tensor]
"""From a module, the derivative by what it made of its input, the input and the output to the derivative by the input."""

_BACK: dict[type[nn.Module], _Back] = {  # the kernels that autograd calls
    nn.Flatten: lambda module, error, given, output: error.reshape(given.shape),
    nn.Linear: lambda module, error, given, output: error @ module.weight,
    nn.ReLU: lambda module, error, given, output: torch.ops.aten.threshold_backward(error, output, 0),
    nn.Sigmoid: lambda module, error, given, output: torch.ops.aten.sigmoid_backward(error, output),
    nn.Tanh: lambda module, error, given, output: torch.ops.aten.tanh_backward(error, output),
}


class Chain:
    """Through linear layers and simple activations, one after the other: small layers take less time than autograd's books.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    >>> Chain.supports(model), Chain.supports(nn.Sequential(nn.Linear(2, 2), nn.Dropout()))
    (True, False)
    """

    def __init__(self, model: nn.Sequential, layers: Layers) -> None:
        modules = list(model)
        first = next(place for place, module in enumerate(modules) if module in layers)
        self._before, self._modules, self._layers = modules[:first], modules[first:], layers

    @staticmethod
    def supports(model: nn.Module) -> bool:
        """Whether the model is a sequence of known modules in which nobody interferes."""
        if type(model) is not nn.Sequential or any(map(_interfered, model.modules())):
            return False
        return all(type(module) in _BACK for module in model)

    @torch.no_grad()
    def __call__(self, inputs: Tensor, targets: Tensor, loss: LossTap) -> Sequence[Seen]:
        """Forward, then back as far as the first layer that is trained."""
        for module in self._before:
            inputs = module.forward(inputs)  # there are no hooks to call
        values = [inputs]
        for module in self._modules:
            values.append(module.forward(values[-1]))
        errors = self._errors(values, loss.errors(values[-1], targets))
        seen = zip(self._modules, values[:-1], errors, strict=True)
        return [Seen(self._layers[module], given, error) for module, given, error in seen if module in self._layers]

    def _errors(self, values: list[Tensor], last: Tensor) -> list[Tensor]:
        """The derivatives by what each module made of its input, from those by what the last one made."""
        errors = [last]
        for place in range(len(self._modules) - 1, 0, -1):
            module = self._modules[place]
            errors.append(_BACK[type(module)](module, errors[-1], values[place], values[place + 1]))
        return errors[::-1]


def _interfered(module: nn.Module) -> bool:
    """Whether hooks see or change what goes through, or it was given another way to compute."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in vars(module)
