"""The gradients of a batch's rows in parts: how long they are, and their weighted sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from expost.core import InvalidRequest

__all__ = ["Layer", "Part", "RowsPart", "Seen", "Sums", "parts_of"]

_SHORT = 1 << 11  # numbers: so many squares add up with a relative error below 2^-13
_VANISHING = 2.0**-125  # float32 may take smaller squares for zero


class Part(Protocol):
    """Some parameters' gradients in a batch."""

    def squares(self) -> Tensor:
        """The squared norm of each row's gradient in this part."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Put zeros in place of the other rows: a factor of zero would not do for what is not a number."""
        ...

    def add_to(self, sums: Sums, factors: Tensor) -> None:
        """The sums of the part's parameters, each row times its factor; factors are a column."""
        ...


@dataclass(frozen=True)
class Layer:
    """A layer, and where the sums of its parameters go if they are trained."""

    module: nn.Module
    weight: slice | None
    bias: slice | None


class Seen(NamedTuple):
    """What a layer was given in a batch, and the derivatives of the rows' losses by what it made of it."""

    layer: Layer
    given: Tensor
    error: Tensor


def parts_of(seen: Sequence[Seen]) -> list[Part]:
    """A part for each layer."""
    return [FlatLayer(each) if each.error.dim() == 2 else PlacedLayer(each) for each in seen]


class FlatLayer:
    """A linear layer that sees one vector a row: a row's gradient is an outer product, as long as one side times the other."""

    def __init__(self, seen: Seen) -> None:
        self._weight, self._bias = seen.layer.weight, seen.layer.bias
        self._given, self._error = _at_least_single(seen.given), _at_least_single(seen.error)

    def squares(self) -> Tensor:
        """The squared norms; a bias is the weight of a one that all rows have."""
        given = self._given if self._weight is not None else self._given[:, :0]
        one = 0.0 if self._bias is None else 1.0
        return _squared_lengths(given, one).mul_(_squared_lengths(self._error))

    def keep(self, rows: Tensor) -> None:
        """Put zeros in place of the other rows."""
        self._given, self._error = _zeroed(self._given, rows), _zeroed(self._error, rows)

    def add_to(self, sums: Sums, factors: Tensor) -> None:
        """The sums of the layer's parameters."""
        scaled = self._error * factors
        if self._weight is not None:
            sums.put_products(self._weight, scaled, self._given)
        if self._bias is not None:
            sums.put(self._bias, scaled)


class PlacedLayer:
    """A layer that sees several vectors a row, such as patches of an image: a row's gradient is a sum of outer products."""

    def __init__(self, seen: Seen) -> None:
        given, error, module = seen.given, seen.error, seen.layer.module
        if isinstance(module, nn.Conv2d):
            padding = module.padding if not isinstance(module.padding, str) else _same_padding(module)
            columns = nn.functional.unfold(given, module.kernel_size, module.dilation, padding, module.stride)
            given, error = columns.transpose(1, 2), error.flatten(2).transpose(1, 2)  # rows, places, values
        else:
            given, error = given.flatten(1, -2), error.flatten(1, -2)
        self._weight, self._bias = seen.layer.weight, seen.layer.bias
        error = _at_least_single(error)
        self._rows = torch.bmm(error.transpose(1, 2), _at_least_single(given))
        self._errors = error.sum(1)

    def squares(self) -> Tensor:
        """The squared norms of weights and biases that are trained."""
        weight, bias = self._rows.square().sum((1, 2)), self._errors.square().sum(1)
        return weight * float(self._weight is not None) + bias * float(self._bias is not None)

    def keep(self, rows: Tensor) -> None:
        """Put zeros in place of the other rows."""
        self._rows, self._errors = _zeroed(self._rows, rows), _zeroed(self._errors, rows)

    def add_to(self, sums: Sums, factors: Tensor) -> None:
        """The sums of the layer's parameters."""
        if self._weight is not None:
            sums.put_products(self._weight, factors, self._rows.flatten(1))
        if self._bias is not None:
            sums.put_products(self._bias, factors, self._errors)


class RowsPart:
    """One parameter's gradients, a row each."""

    def __init__(self, place: slice, rows: Tensor) -> None:
        self._place, self._rows = place, _at_least_single(rows)

    def squares(self) -> Tensor:
        """The squared norms, added by pairs."""
        return self._rows.square().sum(1)

    def keep(self, rows: Tensor) -> None:
        """Put zeros in place of the other rows."""
        self._rows = _zeroed(self._rows, rows)

    def add_to(self, sums: Sums, factors: Tensor) -> None:
        """The sum of the parameter."""
        sums.put_products(self._place, factors, self._rows)


class Sums:
    """Sums over rows, each put in its parameter's place of one flat vector.

    >>> sums = Sums([slice(0, 2), slice(2, 3)], None, torch.device("cpu"))
    >>> sums.put_products(slice(0, 2), torch.ones(4, 1), torch.ones(4, 2))
    >>> sums.whole()
    tensor([4., 4., 0.], dtype=torch.float64)
    """

    def __init__(self, places: Sequence[slice], stretch: int | None, device: torch.device) -> None:
        self._stretch, self._missing = stretch, {place.start: place for place in places}
        self.kind = torch.float64 if stretch is None else torch.float32
        self._flat = torch.empty(places[-1].stop, dtype=self.kind, device=device)

    def put_products(self, place: slice, left: Tensor, right: Tensor) -> None:
        """The sum over rows of outer products of left and right, a stretch at a time."""
        out = self._place(place).view(-1, right.shape[1])
        if right.dtype is not self.kind:
            left, right = left.to(self.kind), right.to(self.kind)
        if self._stretch is None or self._stretch >= len(right):
            torch.mm(left.T, right, out=out)
            return
        out.zero_()
        for some, others in zip(torch.split(left, self._stretch), torch.split(right, self._stretch), strict=True):
            out += some.T @ others

    def put(self, place: slice, rows: Tensor) -> None:
        """The sum over rows, a stretch at a time."""
        out = self._place(place)
        if self._stretch is None or self._stretch >= len(rows):
            torch.sum(rows, 0, out=out)
            return
        torch.sum(torch.stack([part.sum(0) for part in torch.split(rows, self._stretch)]), 0, out=out)

    def _place(self, place: slice) -> Tensor:
        self._missing.pop(place.start, None)
        return self._flat[place]

    def whole(self) -> Tensor:
        """All sums; zeros, not whatever was there, where nothing was put: a layer may not be used."""
        for place in self._missing.values():
            self._flat[place] = 0.0
        return self._flat


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


def _at_least_single(values: Tensor) -> Tensor:
    """In float32 if less: norms must be better than the margin."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _same_padding(layer: nn.Conv2d) -> tuple[int, int]:
    if layer.padding == "valid":
        return 0, 0
    sizes = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
    if any(size % 2 for size in sizes):
        raise InvalidRequest("Expected odd kernels under padding='same'", do="Give the padding in numbers")
    return sizes[0] // 2, sizes[1] // 2
