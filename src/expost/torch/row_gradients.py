"""Sums of clipped per-row gradients of a module."""

from __future__ import annotations

import importlib
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from expost.core import MissingExtra
from expost.torch.layer_parts import Chain, GradientPart, Layer, Passes, RowsPart, Seen, Sums, Tapped, make_parts
from expost.torch.loss_tap import LossTap, NetworkLoss
from expost.torch.model_inputs import ModelInputs, call_model

__all__ = ["ClippedRows", "SampledGradients", "SummedLayers", "lattice_unit", "parameter_places", "rows_for_memory"]

_MARGIN = 1 - 2.0**-12  # for norms computed in float32: their relative error is far below
_FINEST, _FINEST_SINGLE = 24, 21  # binary digits of the clip on the lattice
_HELD_NUMBERS = 1 << 26  # of gradients per row: a quarter of a gigabyte in float32
_BY_HAND = (nn.Linear, nn.Conv2d)


class ClippedRows(ABC):
    """A way to compute the sum of clipped per-row gradients, times ``unit``; flat, in the order of the parameters.

    ``stretch`` is the number of rows that are added in float32 at a time; the sums of stretches are added in float32
    too. None means float64 throughout. A row whose gradient is NaN or infinite contributes zero. Only the first ``rows``
    rows count, if that is given: the others fill blocks, so that kernels see whole ones.
    """

    def __init__(self, model: nn.Module, loss: NetworkLoss) -> None:
        self._model = model
        self._loss = loss if isinstance(loss, LossTap) else LossTap(loss)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._places = parameter_places(self._parameters)

    @property
    def rows_at_once(self) -> int | None:
        """Return how many rows may be worked on at a time, a public number; None if memory does not matter."""
        return None

    def total(
        self,
        inputs: ModelInputs,
        targets: Tensor,
        clip: float,
        stretch: int | None = None,
        *,
        unit: float = 1.0,
        rows: int | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the sum over some rows: all norms first, then each part's sum with the factors they lead to.

        ``weights`` between 0 and 1, one for each row that counts, multiply clipped gradients.
        """
        parts = self._row_parts(inputs, targets, slice(rows))
        pieces = [part.row_squares() for part in parts]
        squares = sum(pieces[1:], pieces[0])
        finite = None if math.isfinite(squares.sum().item()) else squares.isfinite()
        # A norm of zero gives an infinite quotient, which is cut to the unit like that of any row within the clip.
        factors = squares.rsqrt().mul_(clip * _MARGIN * unit).clamp_max_(unit)
        if weights is not None:
            factors = factors * weights.to(factors)
        if finite is not None:
            factors = torch.where(finite, factors, 0.0)
        sums = Sums(list(self._places.values()), stretch, inputs.device)
        column = factors.to(sums.kind)[:, None]
        for part in parts:
            if finite is not None:
                part.keep_rows(finite)
            part.add_to(sums, column)
        return sums.whole_sum()

    @abstractmethod
    def _row_parts(self, inputs: ModelInputs, targets: Tensor, counted: slice) -> Sequence[GradientPart]:
        """Return the gradients of the rows that count, parameter by parameter or layer by layer."""


class SummedLayers(ClippedRows):
    """Linear and 2-d convolution layers by hand: norms from activations and back-propagated errors, one backward pass.

    For a linear layer the gradient of a row is the outer product of its input a and its error b, of norm |a| |b|;
    the clipped sum is one matrix product of inputs and scaled errors. No gradient per row is held.
    """

    def __init__(self, model: nn.Module, loss: NetworkLoss) -> None:
        super().__init__(model, loss)
        layers = {
            module: Layer(module, self._places.get(id(module.weight)), self._places.get(id(module.bias)))
            for module in model.modules()
            if type(module) in _BY_HAND and any(id(part) in self._places for part in module.parameters(recurse=False))
        }
        self._passes: Passes = (
            Chain(model, layers)
            if isinstance(model, nn.Sequential) and Chain.supports_model(model)
            else Tapped(model, layers)
        )

    @staticmethod
    def supports_model(model: nn.Module) -> bool:
        """Return whether every parameter that is trained belongs to one of these layers, and to one only."""
        layers = [module for module in model.modules() if type(module) in _BY_HAND]  # subclasses may do more
        owned = [id(parameter) for layer in layers for parameter in layer.parameters(recurse=False)]
        trained = [id(parameter) for parameter in model.parameters() if parameter.requires_grad]
        plain = all(
            not isinstance(layer, nn.Conv2d) or (layer.groups == 1 and layer.padding_mode == "zeros")
            for layer in layers
        )
        return plain and len(set(owned)) == len(owned) and set(trained) <= set(owned)

    def _row_parts(self, inputs: ModelInputs, targets: Tensor, counted: slice) -> Sequence[GradientPart]:
        seen = self._passes(inputs, targets, self._loss)
        _check_lengths([each.given for each in seen], inputs)
        return make_parts([Seen(layer, given[counted], error[counted]) for layer, given, error in seen])


class SampledGradients(ClippedRows):
    """Any layer that Opacus supports, through its per-sample gradients, held for the time of a call."""

    def __init__(self, model: nn.Module, loss: NetworkLoss) -> None:
        super().__init__(model, loss)
        try:  # on demand: Opacus is needed for unusual layers only
            self._wrapper: Any = importlib.import_module("opacus.grad_sample").GradSampleModule
        except ModuleNotFoundError:
            raise MissingExtra("torch", package="opacus") from None

    @property
    def rows_at_once(self) -> int:
        return rows_for_memory(self._parameters)

    def _row_parts(self, inputs: ModelInputs, targets: Tensor, counted: slice) -> Sequence[GradientPart]:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message="Full backward hook is firing"
            )  # the first input needs no gradient
            # The loss is a sum over rows, so per-sample gradients are not rescaled.
            hooked = self._wrapper(self._model, batch_first=True, loss_reduction="sum")
            try:
                torch.autograd.backward(self._loss(call_model(hooked, inputs), targets).sum())
                found = [part.grad_sample.reshape(len(targets), -1) for part in self._parameters]  # type: ignore[attr-defined]
            finally:
                hooked._close()
        self._model.zero_grad(set_to_none=True)
        _check_lengths(found, inputs)
        return [RowsPart(place, rows[counted]) for place, rows in zip(self._places.values(), found, strict=True)]


def rows_for_memory(parameters: Sequence[nn.Parameter]) -> int:
    """Return how many rows' gradients may be held at a time: a multiple of 16.

    >>> rows_for_memory([*nn.Linear(3, 2).parameters()]), rows_for_memory([nn.Parameter(torch.empty(10**6))])
    (4096, 64)
    """
    size = sum(parameter.numel() for parameter in parameters)
    return min(max(_HELD_NUMBERS // max(size, 1) // 16, 1), 256) * 16


def _check_lengths(parts: list[Tensor], inputs: ModelInputs) -> None:
    """Raise if a layer sees something else than one entry per row: then not the rows would be clipped."""
    if any(len(part) != len(inputs) for part in parts):
        raise RuntimeError("Expected layers to be given one entry per row.")


def parameter_places(parameters: list[nn.Parameter]) -> dict[int, slice]:
    """Return where in a flat vector the numbers of each parameter are, by its identity.

    >>> list(parameter_places(list(nn.Linear(3, 2).parameters())).values())
    [slice(0, 6, None), slice(6, 8, None)]
    """
    borders = pairwise(accumulate((parameter.numel() for parameter in parameters), initial=0))
    return {id(parameter): slice(*border) for parameter, border in zip(parameters, borders, strict=True)}


def lattice_unit(clip: float, noise_multiplier: float, *, single: bool = False) -> float:
    """Return the lattice units of a gradient entry of 1: as fine as the noise sampler's range allows.

    Batches that are added in float32 have at most 2^9 rows; their sums of clip * 2^21 each fit 32-bit integers.

    >>> lattice_unit(1.0, 1.0) == 2.0**24, lattice_unit(1.0, 1.0, single=True) == 2.0**21
    (True, True)
    """
    finest = _FINEST_SINGLE if single else _FINEST
    return 2.0 ** min(finest, math.floor(29 - math.log2(max(noise_multiplier, 1.0)))) / clip
