"""Find which layer of a refused model is to blame, by passes of synthetic rows through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["LayerCall", "LayerTrace", "describe_layer", "find_chancy_layer", "find_mixing_layer", "trace_layers"]

_TOLERANCE = 1e-3


class LayerCall:
    """One call of a layer: what it was given, what it returned, and the state of the random numbers before and after."""

    def __init__(self, layer: nn.Module, given: list[Tensor]) -> None:
        self.layer, self.given, self.returned = layer, given, list[Tensor]()
        self.before, self.after = torch.get_rng_state(), torch.get_rng_state()


class LayerTrace:
    """The calls of a model's layers in the order in which they ended, and the layers that have not ended yet."""

    def __init__(self) -> None:
        self.calls: list[LayerCall] = []
        self.running: list[LayerCall] = []

    def begin_call(self, layer: nn.Module, given: Any, named: Any) -> None:
        self.running.append(LayerCall(layer, [*_tensors_in((given, named))]))

    def end_call(self, layer: nn.Module, given: Any, returned: Any) -> None:
        call = self.running.pop()
        call.returned, call.after = [*_tensors_in(returned)], torch.get_rng_state()
        self.calls.append(call)


@contextmanager
def trace_layers(model: nn.Module) -> Iterator[LayerTrace]:
    """Record the calls of all layers during this context; after an exception the layers that failed are ``running``."""
    trace = LayerTrace()
    handles = []
    for module in model.modules():
        handles.append(module.register_forward_pre_hook(trace.begin_call, with_kwargs=True))
        handles.append(module.register_forward_hook(trace.end_call))
    try:
        yield trace
    finally:
        for handle in handles:
            handle.remove()


def describe_layer(model: nn.Module, layer: nn.Module | None) -> str:
    """Return a layer's name and type.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    >>> describe_layer(model, model[1]), describe_layer(model, model)
    ("layer '1' (BatchNorm1d)", 'the model itself (Sequential)')
    """
    names = {id(module): name for name, module in model.named_modules()}
    name = names.get(id(layer), "")
    return f"layer {name!r} ({type(layer).__name__})" if name else f"the model itself ({type(model).__name__})"


def find_mixing_layer(model: nn.Module, one: Callable[[], Any], other: Callable[[], Any]) -> nn.Module | None:
    """Return the first layer whose other rows change although only its first row did, in two passes.

    ``one`` and ``other`` call the model on batches that differ in their first row. Layers inside end before the one
    around them, so a function in a module's own code is blamed on that module.
    """
    traces = []
    for run in (one, other):
        with trace_layers(model) as trace, torch.no_grad():
            try:
                run()
            except Exception:
                return trace.running[-1].layer if trace.running else None
        traces.append(trace.calls)
    for left, right in zip(*traces, strict=False):
        if left.layer is not right.layer:
            return None
        if _rows_alike(left.given, right.given) and not _rows_alike(left.returned, right.returned):
            return left.layer
    return None


def find_chancy_layer(model: nn.Module, run: Callable[[], Any]) -> nn.Module | None:
    """Return the first layer in which random numbers are drawn in a pass."""
    with trace_layers(model) as trace, torch.no_grad():
        run()
    return next((call.layer for call in trace.calls if not torch.equal(call.before, call.after)), None)


def _rows_alike(left: list[Tensor], right: list[Tensor]) -> bool:
    """Return whether all rows but the first are the same."""
    return all(
        one.shape == other.shape
        and torch.allclose(one[1:].double(), other[1:].double(), rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
        for one, other in zip(left, right, strict=False)
        if one.dim() and other.dim()
    )


def _tensors_in(values: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested tuples, lists and dictionaries."""
    if isinstance(values, Tensor):
        yield values.detach().clone()
    elif isinstance(values, tuple | list):
        for value in values:
            yield from _tensors_in(value)
    elif isinstance(values, dict):
        yield from _tensors_in([*values.values()])
