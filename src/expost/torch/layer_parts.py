"""The gradients of a batch's rows, layer by layer: passes through a model, norms per row, and weighted sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from expost.core import InvalidRequest
from expost.torch.loss_tap import LossTap
from expost.torch.model_inputs import ModelInputs, call_model

__all__ = ["Chain", "GradientPart", "Layer", "Passes", "RowsPart", "Seen", "Sums", "Tapped", "make_parts"]

_SHORT = 1 << 11  # numbers: this many squares add up with a relative error below 2^-13
_VANISHING = 2.0**-125  # float32 may round smaller squares to zero


@dataclass(frozen=True)
class Layer:
    """A layer, and where the sums of its parameters go if they are trained."""

    module: nn.Module
    weight: slice | None
    bias: slice | None


class Seen(NamedTuple):
    """The input of a layer in a batch, and the derivatives of the rows' losses by its output."""

    layer: Layer
    given: Tensor
    error: Tensor


Layers = Mapping[nn.Module, Layer]
"""The layers that are trained."""


class Passes(Protocol):
    """A pass through a model and back. Gradients of parameters are not computed, which saves half of the way back."""

    def __call__(self, inputs: Any, targets: Tensor, loss: LossTap) -> Sequence[Seen]:
        """Return what trained layers saw, once for each time that one is used."""


_Tap = tuple[Layer, Tensor, GradientEdge]


class Tapped:
    """A pass through any model by autograd. Permanent hooks record inputs of layers and where derivatives will pass."""

    def __init__(self, model: nn.Module, layers: Layers) -> None:
        self._model, self._layers = model, layers
        self._taps: list[_Tap] | None = None
        for module in layers:
            module.register_forward_hook(self._record_input)

    def __call__(self, inputs: ModelInputs, targets: Tensor, loss: LossTap) -> Sequence[Seen]:
        taps: list[_Tap] = []
        self._taps = taps
        try:
            outputs = call_model(self._model, inputs)
        finally:
            self._taps = None
        errors = torch.autograd.grad(outputs, [edge for _, _, edge in taps], loss.output_errors(outputs, targets))
        return [Seen(layer, given.detach(), error) for (layer, given, _), error in zip(taps, errors, strict=True)]

    def _record_input(self, module: nn.Module, given: Any, output: Tensor) -> Tensor | None:
        if self._taps is None:
            return None
        self._taps.append((self._layers[module], given[0], get_gradient_edge(output)))
        # If a later module works in place, this edge of the graph is unchanged; but that of a view is replaced.
        return output.clone() if output._is_view() else None


_Back = Callable[[Any, Tensor, Tensor, Tensor], Tensor]
"""Maps (module, derivative by its output, input, output) to the derivative by the input."""

_BACK: dict[type[nn.Module], _Back] = {  # the kernels that autograd calls
    nn.Flatten: lambda module, error, given, output: error.reshape(given.shape),
    nn.Linear: lambda module, error, given, output: error @ module.weight,
    nn.ReLU: lambda module, error, given, output: torch.ops.aten.threshold_backward(error, output, 0),
    nn.Sigmoid: lambda module, error, given, output: torch.ops.aten.sigmoid_backward(error, output),
    nn.Tanh: lambda module, error, given, output: torch.ops.aten.tanh_backward(error, output),
}


class Chain:
    """A pass through a sequence of linear layers and simple activations: faster than autograd for small layers."""

    def __init__(self, model: nn.Sequential, layers: Layers) -> None:
        modules = list(model)
        first = next(place for place, module in enumerate(modules) if module in layers)
        self._before, self._modules, self._layers = modules[:first], modules[first:], layers

    @staticmethod
    def supports_model(model: nn.Module) -> bool:
        """Return whether the model is a sequence of known modules without hooks or a replaced ``forward``."""
        if type(model) is not nn.Sequential or not all(type(module) in _BACK for module in model):
            return False
        return not any(
            module._forward_hooks
            or module._forward_pre_hooks
            or module._backward_hooks
            or module._backward_pre_hooks
            or "forward" in vars(module)
            for module in model.modules()
        )

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def __call__(self, inputs: Tensor, targets: Tensor, loss: LossTap) -> Sequence[Seen]:
        for module in self._before:
            inputs = module.forward(inputs)  # there are no hooks to call
        values = [inputs]
        for module in self._modules:
            values.append(module.forward(values[-1]))
        errors = [loss.output_errors(values[-1], targets)]
        for place in range(len(self._modules) - 1, 0, -1):
            module = self._modules[place]
            errors.append(_BACK[type(module)](module, errors[-1], values[place], values[place + 1]))
        seen = zip(self._modules, values[:-1], errors[::-1], strict=True)
        return [Seen(self._layers[module], given, error) for module, given, error in seen if module in self._layers]


class GradientPart(Protocol):
    """The gradients of some parameters in a batch."""

    def row_squares(self) -> Tensor:
        """Return the squared norm of each row's gradient in this part."""

    def keep_rows(self, rows: Tensor) -> None:
        """Replace the other rows by zeros: a factor of zero would leave NaN as it is."""

    def add_to(self, sums: Sums, factors: Tensor) -> None:
        """Add the sums of the part's parameters, each row times its factor; factors are a column."""


def make_parts(seen: Sequence[Seen]) -> list[GradientPart]:
    """Return a part for each layer."""
    return [FlatLayer(each) if each.error.dim() == 2 else PlacedLayer(each) for each in seen]


class FlatLayer:
    """A linear layer that sees one vector per row.

    A row's gradient is an outer product, so its norm is the product of two norms.
    """

    def __init__(self, seen: Seen) -> None:
        self._weight, self._bias = seen.layer.weight, seen.layer.bias
        self._given, self._error = _at_least_single(seen.given), _at_least_single(seen.error)

    def row_squares(self) -> Tensor:
        """Return the squared norms; a bias is the weight of a constant input of one."""
        given = self._given if self._weight is not None else self._given[:, :0]
        one = 0.0 if self._bias is None else 1.0
        return _squared_lengths(given, one).mul_(_squared_lengths(self._error))

    def keep_rows(self, rows: Tensor) -> None:
        self._given, self._error = _zero_others(self._given, rows), _zero_others(self._error, rows)

    def add_to(self, sums: Sums, factors: Tensor) -> None:
        scaled = self._error * factors
        if self._weight is not None:
            sums.put_products(self._weight, scaled, self._given)
        if self._bias is not None:
            sums.put_rows(self._bias, scaled)


class PlacedLayer:
    """A layer that sees several vectors per row, such as patches of an image: gradients are sums of outer products."""

    def __init__(self, seen: Seen) -> None:
        given, error, module = seen.given, seen.error, seen.layer.module
        if isinstance(module, nn.Conv2d):
            # A convolution is a linear layer on patches.
            padding = module.padding if not isinstance(module.padding, str) else _pad_as_named(module)
            columns = nn.functional.unfold(given, module.kernel_size, module.dilation, padding, module.stride)
            given, error = columns.transpose(1, 2), error.flatten(2).transpose(1, 2)  # rows, places, values
        else:
            given, error = given.flatten(1, -2), error.flatten(1, -2)
        self._weight, self._bias = seen.layer.weight, seen.layer.bias
        error = _at_least_single(error)
        self._rows = torch.bmm(error.transpose(1, 2), _at_least_single(given))
        self._errors = error.sum(1)

    def row_squares(self) -> Tensor:
        weight, bias = self._rows.square().sum((1, 2)), self._errors.square().sum(1)
        return weight * float(self._weight is not None) + bias * float(self._bias is not None)

    def keep_rows(self, rows: Tensor) -> None:
        self._rows, self._errors = _zero_others(self._rows, rows), _zero_others(self._errors, rows)

    def add_to(self, sums: Sums, factors: Tensor) -> None:
        if self._weight is not None:
            sums.put_products(self._weight, factors, self._rows.flatten(1))
        if self._bias is not None:
            sums.put_products(self._bias, factors, self._errors)


class RowsPart:
    """One parameter's gradients, one per row."""

    def __init__(self, place: slice, rows: Tensor) -> None:
        self._place, self._rows = place, _at_least_single(rows)

    def row_squares(self) -> Tensor:
        return self._rows.square().sum(1)

    def keep_rows(self, rows: Tensor) -> None:
        self._rows = _zero_others(self._rows, rows)

    def add_to(self, sums: Sums, factors: Tensor) -> None:
        sums.put_products(self._place, factors, self._rows)


class Sums:
    """Sums over rows, each put in its parameter's place of one flat vector."""

    def __init__(self, places: Sequence[slice], stretch: int | None, device: torch.device) -> None:
        self._stretch, self._missing = stretch, {place.start: place for place in places}
        self.kind = torch.float64 if stretch is None else torch.float32
        self._flat = torch.empty(places[-1].stop, dtype=self.kind, device=device)

    def put_products(self, place: slice, left: Tensor, right: Tensor) -> None:
        """Put the sum over rows of outer products of left and right, a stretch at a time."""
        out = self._reserve_space(place).view(-1, right.shape[1])
        if right.dtype is not self.kind:
            left, right = left.to(self.kind), right.to(self.kind)
        if self._stretch is None or self._stretch >= len(right):
            torch.mm(left.T, right, out=out)
            return
        out.zero_()
        for some, others in zip(torch.split(left, self._stretch), torch.split(right, self._stretch), strict=True):
            out += some.T @ others

    def put_rows(self, place: slice, rows: Tensor) -> None:
        """Put the sum over rows, a stretch at a time."""
        out = self._reserve_space(place)
        if self._stretch is None or self._stretch >= len(rows):
            torch.sum(rows, 0, out=out)
            return
        torch.sum(torch.stack([part.sum(0) for part in torch.split(rows, self._stretch)]), 0, out=out)

    def _reserve_space(self, place: slice) -> Tensor:
        self._missing.pop(place.start, None)
        return self._flat[place]

    def whole_sum(self) -> Tensor:
        """Return all sums; zeros, not uninitialized memory, for a layer that was not used."""
        for place in self._missing.values():
            self._flat[place] = 0.0
        return self._flat


def _squared_lengths(rows: Tensor, further: float = 0.0) -> Tensor:
    """Return squared lengths of rows plus ``further``, the square of a number that all rows have.

    The result is within the clip's margin: in any order of summation if rows are short, else because ``sum`` adds by
    pairs. Squares too small for their type vanish; what is added bounds all that a row may lose.
    """
    vanished = rows.shape[1] * _VANISHING + further
    if rows.shape[1] <= _SHORT:
        lengths: Tensor = torch.linalg.vector_norm(rows, dim=1)
        return lengths.square_().add_(vanished)
    return rows.square().sum(1).add_(vanished)


def _zero_others(values: Tensor, rows: Tensor) -> Tensor:
    return torch.where(rows.view(-1, *[1] * (values.dim() - 1)), values, torch.zeros_like(values))


def _at_least_single(values: Tensor) -> Tensor:
    """Convert half precision to float32: errors of norms must be below the margin."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _pad_as_named(layer: nn.Conv2d) -> tuple[int, int]:
    """Convert ``padding="same"`` or ``"valid"`` to numbers."""
    if layer.padding == "valid":
        return 0, 0
    sizes = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
    if any(size % 2 for size in sizes):
        raise InvalidRequest("Expected odd kernels under padding='same'", do="Give the padding in numbers")
    return sizes[0] // 2, sizes[1] // 2
