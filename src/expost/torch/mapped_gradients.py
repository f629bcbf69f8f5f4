"""Gradients of any model, one per row, by PyTorch's vectorized map over rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from expost.torch.layer_parts import GradientPart, RowsPart
from expost.torch.model_inputs import ModelInputs, call_model, input_parts, pack_inputs
from expost.torch.row_gradients import ClippedRows, rows_for_memory

__all__ = ["MappedGradients"]


class MappedGradients(ClippedRows):
    """The gradient of each row's loss, as if the row were a batch of its own, held for the time of a call.

    By construction a row's gradient is a function of that row and the public weights, whatever the layers are: shared or
    tied weights, embeddings with a padding index, attention, recurrent and normalization layers, frozen ones. A model
    that writes to its buffers, or whose path depends on values, is an error here, and hence refused.

    >>> from expost.torch.loss_tap import LossTap
    >>> rows = MappedGradients(nn.LayerNorm(2), LossTap(lambda outputs, targets: (outputs * targets).sum(1)))
    >>> rows.total(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]), 10.0).round().tolist()
    [-1.0, 0.0, 1.0, 0.0]
    """

    @property
    def rows_at_once(self) -> int:
        return rows_for_memory(self._parameters)

    def _row_parts(self, inputs: ModelInputs, targets: Tensor, counted: slice) -> Sequence[GradientPart]:
        trained = {name: part.detach() for name, part in self._model.named_parameters() if part.requires_grad}

        places = _parameter_places(self._model)

        def row_loss(weights: dict[str, Tensor], row: tuple[Tensor, ...], target: Tensor) -> Any:
            alone = pack_inputs([part[None] for part in row], inputs)
            placed = {place: weights[name] for place, name in places.items() if name in weights}

            def call(*given: Any, **named: Any) -> Any:
                return functional_call(self._model, placed, given, named, tie_weights=False)

            outputs = call_model(call, alone)
            losses = self._loss.row_losses(outputs, target[None])
            # An observer needs the outputs of classifiers, which are tensors.
            return losses.sum(), ((outputs if isinstance(outputs, Tensor) else losses)[0], losses[0])

        # Attention by plain products, and no notice about operations that are mapped slowly.
        mapped: Callable[..., Any] = vmap(grad(row_loss, has_aux=True), in_dims=(None, 0, 0), randomness="different")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _given_starts(self._model), sdpa_kernel(SDPBackend.MATH):
                found, (outputs, losses) = mapped(trained, input_parts(inputs), targets)
        self._loss.show_rows(outputs, targets, losses)
        # Tied weights have one name here, the first, as they are one parameter of the model.
        return [
            RowsPart(place, found[name].detach().reshape(len(targets), -1)[counted])
            for name, place in zip(trained, self._places.values(), strict=True)
        ]


def _parameter_places(model: nn.Module) -> dict[str, str]:
    """Return the name of the parameter at each place of a model, where a layer that is used under two names counts once.

    ``functional_call`` ties such a layer to itself and does not put its weights back.

    >>> layer = nn.Linear(2, 2)
    >>> _parameter_places(nn.Sequential(layer, nn.ReLU(), layer))
    {'0.weight': '0.weight', '0.bias': '0.bias'}
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{path}.{own}" if path else own: names[parameter]
        for path, module in model.named_modules()
        for own, parameter in module.named_parameters(recurse=False, remove_duplicate=False)
    }


@contextmanager
def _given_starts(model: nn.Module) -> Iterator[None]:
    """Pass recurrent layers a first state of each row's own during this context: they write to it."""
    layers = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
    handles = [module.register_forward_pre_hook(_add_start, with_kwargs=True) for module in layers]
    try:
        # A fused kernel of oneDNN would be called row by row.
        with torch.backends.mkldnn.flags(enabled=False) if layers else nullcontext():
            yield
    finally:
        for handle in handles:
            handle.remove()


def _add_start(module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return the arguments of a recurrent layer with a first state that belongs to each row: zeros, or the one given."""
    if len(given) not in (1, 2) or named or not isinstance(given[0], Tensor) or given[0].dim() != 3:
        return None
    first = given[0][:, 0] if module.batch_first else given[0][0]
    count = module.num_layers * (2 if module.bidirectional else 1)
    zero = torch.zeros_like(first[:, :1])

    def start(width: int) -> Tensor:
        return zero.expand(-1, width).unsqueeze(0).expand(count, -1, -1).contiguous()

    if isinstance(module, nn.LSTM):
        zeros = start(module.proj_size or module.hidden_size), start(module.hidden_size)
        states = given[1] if len(given) == 2 and given[1] is not None else zeros
        return (given[0], tuple(state + made for state, made in zip(states, zeros, strict=True))), named
    state = start(module.hidden_size)
    return (given[0], state if len(given) == 1 or given[1] is None else state + given[1]), named
