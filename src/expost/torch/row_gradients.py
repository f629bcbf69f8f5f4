"""Sums of clipped per-row gradients of a module, without holding a gradient per row."""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from expost.core import InvalidRequest

__all__ = ["ClippedRows", "Loss", "SampledGradients", "SummedLayers", "lattice_unit", "places_of"]

Loss = Callable[[Tensor, Tensor], Tensor]
"""From the model's outputs and the targets of a batch to one loss a row."""

_MARGIN = 1 - 2.0**-12  # for norms computed in float32: their relative error is far below
_SHORT = 1 << 11  # numbers: so many squares add up with a relative error below 2^-13
_FINEST, _FINEST_SINGLE = 24, 21  # binary digits of the clip on the lattice
_BY_HAND = (nn.Linear, nn.Conv2d)
_VANISHING = 2.0**-125  # float32 may take smaller squares for zero


class ClippedRows(ABC):
    """A way to compute the sum of clipped per-row gradients, times ``unit``; flat, in the order of the parameters.

    ``stretch`` is the number of rows that are added in float32 at a time; the sums of stretches are added in float32 too.
    None is for float64 throughout. A row whose gradient is not a number, or infinite, counts for nothing. Only the first
    ``rows`` rows count, if that is given: the others are there so that the kernels see whole blocks.
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self._model, self._loss = model, loss
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._places = places_of(self._parameters)

    def total(
        self,
        inputs: Tensor,
        targets: Tensor,
        clip: float,
        stretch: int | None = None,
        *,
        unit: float = 1.0,
        rows: int | None = None,
    ) -> Tensor:
        """The sum over some rows: all norms first, then each part's sum with the factors they lead to."""
        parts = self._parts(inputs, targets, slice(rows))
        factors, finite = _factors([part.squares() for part in parts], clip, unit)
        sums = _Sums(list(self._places.values()), stretch, inputs.device)
        column = factors.to(sums.kind)[:, None]
        for part in parts:
            if finite is not None:
                part.keep(finite)
            part.add_to(sums, column)
        return sums.whole()

    @abstractmethod
    def _parts(self, inputs: Tensor, targets: Tensor, counted: slice) -> Sequence[_Part]:
        """The gradients of the rows that count, parameter by parameter or layer by layer."""


class _Part(Protocol):
    """Some parameters' gradients in a batch."""

    def squares(self) -> Tensor:
        """The squared norm of each row's gradient in this part."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Put zeros in place of the other rows: a factor of zero would not do for what is not a number."""
        ...

    def add_to(self, sums: _Sums, factors: Tensor) -> None:
        """The sums of the part's parameters, each row times its factor; factors are a column."""
        ...


class SummedLayers(ClippedRows):
    """Linear and 2-d convolution layers by hand: norms from activations and back-propagated errors, one backward pass.

    For a linear layer the gradient of a row is the outer product of its input a and its error b, of norm |a| |b|;
    the clipped sum is one matrix product of inputs and scaled errors. A convolution is a linear layer on patches.
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__(model, loss)
        self._layers: dict[nn.Module, _Layer] = {
            module: _Layer(module, self._places.get(id(module.weight)), self._places.get(id(module.bias)))
            for module in model.modules()
            if type(module) in _BY_HAND
        }

    @staticmethod
    def supports(model: nn.Module) -> bool:
        """Whether every parameter that is trained belongs to one of these layers, and to one only."""
        layers = [module for module in model.modules() if type(module) in _BY_HAND]  # others of their kind may do more
        owned = [id(parameter) for layer in layers for parameter in layer.parameters(recurse=False)]
        trained = [id(parameter) for parameter in model.parameters() if parameter.requires_grad]
        plain = all(
            not isinstance(layer, nn.Conv2d) or (layer.groups == 1 and layer.padding_mode == "zeros")
            for layer in layers
        )
        return plain and len(set(owned)) == len(owned) and set(trained) <= set(owned)

    def _parts(self, inputs: Tensor, targets: Tensor, counted: slice) -> Sequence[_Part]:
        """One forward pass, one pass back through the activations; two products a layer are left."""
        losses, taps = self._forward(inputs, targets)
        _check_lengths([given for _, given, _ in taps], inputs)
        errors = torch.autograd.grad(losses, [output for _, _, output in taps], torch.ones_like(losses))
        return [
            _LayerPart(layer, given.detach()[counted], error[counted])
            for (layer, given, _), error in zip(taps, errors, strict=True)
        ]

    def _forward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, list[_Tap]]:
        """The rows' losses, and what went into the layers and came out.

        Meanwhile parameters ask for no gradients of their own, so that going back costs half.
        """
        taps: list[_Tap] = []

        def keep(module: nn.Module, given: Any, output: Tensor) -> Tensor:
            if not output.requires_grad:
                output.requires_grad_(True)
            taps.append((self._layers[module], given[0], output))
            # What follows may work in place; it gets a view of its own, so that the tap stays what it was.
            return output.clone()

        handles = []
        try:
            for parameter in self._parameters:
                parameter.requires_grad_(False)
            for module in self._layers:
                handles.append(module.register_forward_hook(keep))
            return self._loss(self._model(inputs), targets), taps
        finally:
            for handle in handles:
                handle.remove()
            for parameter in self._parameters:
                parameter.requires_grad_(True)


@dataclass(frozen=True)
class _Layer:
    """A layer, and where the sums of its parameters go if they are trained."""

    module: nn.Module
    weight: slice | None
    bias: slice | None


_Tap = tuple[_Layer, Tensor, Tensor]


class _LayerPart:
    """One layer's inputs and errors in a batch."""

    def __init__(self, layer: _Layer, given: Tensor, error: Tensor) -> None:
        self._weight, self._bias, module = layer.weight, layer.bias, layer.module
        if isinstance(module, nn.Conv2d):
            padding = module.padding if not isinstance(module.padding, str) else _same_padding(module)
            columns = nn.functional.unfold(given, module.kernel_size, module.dilation, padding, module.stride)
            given, error = columns.transpose(1, 2), error.flatten(2).transpose(1, 2)  # rows, places, values
        elif error.dim() > 2:
            given, error = given.flatten(1, -2), error.flatten(1, -2)
        self._given, self._error = _at_least_single(given), _at_least_single(error)
        self._rows: Tensor | None = None

    def squares(self) -> Tensor:
        """The squared norm of each row's gradient in this layer."""
        given, error = self._given, self._error
        if given.dim() == 2:
            own = 0.0 if self._bias is None else 1.0
            length = torch.full_like(given[:, 0], own) if self._weight is None else _squared_lengths(given, own)
            return length.mul_(_squared_lengths(error))
        self._rows = torch.bmm(error.transpose(1, 2), given)
        weight, bias = self._rows.square().sum((1, 2)), error.sum(1).square().sum(1)
        return weight * float(self._weight is not None) + bias * float(self._bias is not None)

    def keep(self, rows: Tensor) -> None:
        """Put zeros in place of the other rows: a factor of zero would not do for what is not a number."""
        self._given, self._error = (_zeroed(values, rows) for values in (self._given, self._error))
        if self._rows is not None:
            self._rows = _zeroed(self._rows, rows)

    def add_to(self, sums: _Sums, factors: Tensor) -> None:
        """The sums of the layer's parameters, each row times its factor; factors are a column."""
        if self._weight is not None and self._rows is not None:
            sums.put_products(self._weight, factors, self._rows.flatten(1))
        elif self._weight is not None:
            sums.put_products(self._weight, self._error * factors, self._given)
        if self._bias is not None:
            error = self._error if self._error.dim() == 2 else self._error.sum(1)
            sums.put_products(self._bias, error, factors)


class _Sums:
    """Sums over rows, each put in its parameter's place of one flat vector."""

    def __init__(self, places: list[slice], stretch: int | None, device: torch.device) -> None:
        self._stretch, self._missing = stretch, {place.start: place for place in places}
        self.kind = torch.float64 if stretch is None else torch.float32
        self._flat = torch.empty(places[-1].stop, dtype=self.kind, device=device)

    def put_products(self, place: slice, left: Tensor, right: Tensor) -> None:
        """The sum over rows of outer products of left and right, a stretch at a time."""
        self._missing.pop(place.start, None)
        out = self._flat[place].view(-1, right.shape[1])
        left, right = left.to(self.kind).T, right.to(self.kind)
        stretch = self._stretch or len(right)
        if stretch >= len(right):
            torch.mm(left, right, out=out)
            return
        torch.mm(left[:, :stretch], right[:stretch], out=out)
        for start in range(stretch, len(right), stretch):
            part = slice(start, start + stretch)
            out += left[:, part] @ right[part]

    def whole(self) -> Tensor:
        """All sums; zeros, not whatever was there, where nothing was put: a layer may not be used."""
        for place in self._missing.values():
            self._flat[place] = 0.0
        return self._flat


def _check_lengths(parts: list[Tensor], inputs: Tensor) -> None:
    """A layer that sees something else than the rows, one by one, would have that clipped."""
    if any(len(part) != len(inputs) for part in parts):
        raise RuntimeError("Expected layers to be given one entry a row.")


def _factors(parts: list[Tensor], clip: float, unit: float) -> tuple[Tensor, Tensor | None]:
    """What rows whose squared norms have these parts are multiplied by; zero if not finite, and then also which are."""
    squares = parts[0]
    for part in parts[1:]:
        squares = squares + part
    # The root of zero leads to infinity, which is cut to the unit like all that is not clipped.
    factors = squares.rsqrt().mul_(clip * _MARGIN * unit).clamp_max_(unit)
    if math.isfinite(float(squares.sum())):
        return factors, None
    finite = squares.isfinite()
    return torch.where(finite, factors, 0.0), finite


def _squared_lengths(rows: Tensor, further: float = 0.0) -> Tensor:
    """Of rows of numbers; right to within the margin in any order of summation if they are short, else by pairs.

    Squares that are too small for their type vanish; what is added is more than all of a row's could be. And a further
    square, of a number that all rows have.
    """
    vanished = rows.shape[1] * _VANISHING + further
    if rows.shape[1] <= _SHORT:
        lengths: Tensor = torch.linalg.vector_norm(rows, dim=1)
        return lengths.square_().add_(vanished)
    return rows.square().sum(1).add_(vanished)


def _zeroed(values: Tensor, rows: Tensor) -> Tensor:
    return torch.where(rows.view(-1, *[1] * (values.dim() - 1)), values, torch.zeros_like(values))


def places_of(parameters: list[nn.Parameter]) -> dict[int, slice]:
    """Where in a flat vector the numbers of each parameter are, by its identity.

    >>> list(places_of(list(nn.Linear(3, 2).parameters())).values())
    [slice(0, 6, None), slice(6, 8, None)]
    """
    borders = pairwise(accumulate((parameter.numel() for parameter in parameters), initial=0))
    return {id(parameter): slice(*border) for parameter, border in zip(parameters, borders, strict=True)}


def _at_least_single(values: Tensor) -> Tensor:
    """In float32 if less: norms must be better than the margin."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


class SampledGradients(ClippedRows):
    """Any layer that Opacus knows, through its per-sample gradients, held for the time of a call."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__(model, loss)
        # Opacus is needed for unusual layers only.
        self._per_sample: Any = importlib.import_module("expost.torch.per_sample").per_sample

    def _parts(self, inputs: Tensor, targets: Tensor, counted: slice) -> Sequence[_Part]:
        """One forward pass, one back, and a gradient a row in memory."""
        with self._per_sample(self._model) as hooked:
            torch.autograd.backward(self._loss(hooked(inputs), targets).sum())
            found = [parameter.grad_sample.flatten(1) for parameter in self._parameters]  # type: ignore[attr-defined]
        self._model.zero_grad(set_to_none=True)
        _check_lengths(found, inputs)
        return [_RowsPart(place, rows[counted]) for place, rows in zip(self._places.values(), found, strict=True)]


class _RowsPart:
    """One parameter's gradients, a row each."""

    def __init__(self, place: slice, rows: Tensor) -> None:
        self._place, self._rows = place, _at_least_single(rows)

    def squares(self) -> Tensor:
        return self._rows.square().sum(1)

    def keep(self, rows: Tensor) -> None:
        self._rows = _zeroed(self._rows, rows)

    def add_to(self, sums: _Sums, factors: Tensor) -> None:
        sums.put_products(self._place, factors, self._rows)


def _same_padding(layer: nn.Conv2d) -> tuple[int, int]:
    if layer.padding == "valid":
        return 0, 0
    sizes = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
    if any(size % 2 for size in sizes):
        raise InvalidRequest("Expected odd kernels under padding='same'", do="Give the padding in numbers")
    return sizes[0] // 2, sizes[1] // 2


def lattice_unit(clip: float, noise_multiplier: float, *, single: bool = False) -> float:
    """Lattice units of a gradient entry of 1: as fine as the noise sampler's range allows.

    Batches that are added in float32 have at most 2^9 rows; the sums of clip * 2^21 each fit 32-bit integers.

    >>> lattice_unit(1.0, 1.0) == 2.0**24, lattice_unit(1.0, 1.0, single=True) == 2.0**21
    (True, True)
    """
    finest = _FINEST_SINGLE if single else _FINEST
    return 2.0 ** min(finest, math.floor(29 - math.log2(max(noise_multiplier, 1.0)))) / clip
