"""Trial of a model on synthetic rows, before any private row is touched: are rows independent, does nothing of them stay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from expost.core import ExpostError, InvalidRequest, MissingExtra
from expost.torch.layer_blame import describe_layer, find_chancy_layer, find_mixing_layer, trace_layers
from expost.torch.loss_tap import NetworkLoss
from expost.torch.mapped_gradients import MappedGradients
from expost.torch.model_inputs import ModelInputs, call_model, input_parts, map_inputs, pack_inputs
from expost.torch.row_gradients import ClippedRows, SampledGradients, SummedLayers

__all__ = ["KeptState", "find_example", "find_gradients", "frozen_layers", "kept_state", "same_state"]

_ROWS = 8  # of an example: enough that they are in no order that a model might bring them into
_TOLERANCE = 1e-3  # of comparisons: far above rounding, far below what mixing rows does
_MANY = 96  # rows of a trial: models may treat short batches otherwise
_HUGE = 1e4
_WIDE = 7  # whole numbers of a synthetic row are below this, if the model takes them
_MOST_TRIES = 200  # of synthetic batches
_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))  # that every module has
_PLAIN = (int, float, complex, str, bytes, type(None))
_DEEPEST = 6


def find_example(
    model: nn.Module, loss: NetworkLoss, inputs: ModelInputs, targets: Tensor
) -> tuple[tuple[ModelInputs, Tensor], Any]:
    """Return a synthetic batch that the model and the loss accept, and the model's outputs; rows differ if possible.

    ``inputs`` and ``targets`` are empty batches. Equal rows would hide that a model mixes them. Integers are tried as
    small numbers, then as 0 and 1, then as 0 alone: they may index a short table, or classes.

    >>> example, outputs = find_example(
    ...     nn.Linear(2, 3), nn.CrossEntropyLoss(reduction="none"), torch.empty(0, 2), torch.empty(0).long())
    >>> example[1].tolist(), tuple(outputs.shape)
    ([0, 1, 0, 1, 0, 1, 0, 1], (8, 3))
    """
    made = product(*(_synthetic_batches(part, wide=True) for part in input_parts(inputs)))
    misfit = "the model has nothing to try"
    # In evaluation mode: modules that remember rows in training must not remember these.
    with _switch_mode(model, training=False), trace_layers(model) as trace:
        for parts, labels in islice(product(made, _synthetic_batches(targets)), _MOST_TRIES):
            synthetic = pack_inputs(parts, inputs), labels
            try:
                with torch.no_grad():
                    outputs = call_model(model, synthetic[0])
                    misfit = f"the loss does not take the model's outputs ({type(outputs).__name__}) and these targets"
                    loss(outputs, synthetic[1])
            except InvalidRequest:
                raise
            except Exception:
                if trace.running:
                    misfit = f"{describe_layer(model, trace.running[-1].layer)} does not take these inputs"
                    trace.running.clear()
                continue
            return synthetic, outputs
    whole = misfit.endswith("these inputs") and not any(part.is_floating_point() for part in input_parts(inputs))
    raise InvalidRequest(
        f"Expected a model, a loss and rows that fit together: shapes, types, and a loss for each row; {misfit}",
        do="Pass floats, such as images.float() / 255; whole numbers are for embeddings"
        if whole
        else "Try the loss of the model on a synthetic batch first",
    )


def _synthetic_batches(empty: Tensor, *, wide: bool = False) -> Iterator[Tensor]:
    """Yield synthetic batches: rows that differ, then zeros. ``wide`` begins with whole numbers of a wider range."""
    shape = (_ROWS, *empty.shape[1:])
    zeros = torch.zeros(shape, dtype=empty.dtype, device=empty.device)
    if zeros.is_floating_point():
        yield _synthetic_numbers(zeros)
    else:
        turns = torch.arange(_ROWS, device=empty.device).view(-1, *[1] * (zeros.dim() - 1))
        if empty.dtype == torch.bool:  # a mask: all of a row may be too much
            yield (turns + 2 * _places_like(zeros)).remainder(3) == 0
        elif wide and empty.device.type == "cpu":  # elsewhere an index out of range cannot be caught
            yield (turns + 2 * _places_like(zeros)).remainder(_WIDE).to(empty.dtype)
        yield turns.remainder(2).expand(shape).to(empty.dtype).clone()
    yield zeros


def _places_like(rows: Tensor) -> Tensor:
    """Return the number of each entry within its row."""
    return torch.arange(max(rows[0].numel(), 1), device=rows.device).view(1, *rows.shape[1:])


def _synthetic_numbers(like: Tensor) -> Tensor:
    """Return numbers from -1 to 1 without any order, shaped like a tensor."""
    return torch.sin(1.7 * torch.arange(like.numel(), device=like.device)).view(like.shape).to(like.dtype)


def find_gradients(model: nn.Module, loss: NetworkLoss, example: tuple[ModelInputs, Tensor]) -> ClippedRows:
    """Return the fastest correct way to compute clipped gradients, checked against plain ones on synthetic rows.

    ``example`` is a synthetic batch of the right shapes. Refuses models whose rows are not independent (batch
    normalization, missing values filled by a batch's mean), in training and in use, that remember rows, that fail for
    rows of missing or huge numbers, or whose gradients come out wrong for any other reason. The refusal names the layer.
    """
    _check_layers(model)
    numbers = [(part, part.detach().clone()) for part in (*model.parameters(), *model.buffers())]
    try:
        with _switch_mode(model, training=True):
            gradients = _find_agreeing(model, loss, example)
        changed = [place for place, (now, before) in enumerate(numbers) if not torch.equal(now, before)]
        if changed:
            raise InvalidRequest(
                f"Expected a model that keeps nothing of the rows it sees; {_name_number(model, changed[0])} changes with them",
                do="Leave spectral normalization and running statistics out, or freeze that layer: layer.eval()",
            )
        for training in (True, False):
            with _switch_mode(model, training=training):
                _check_independence(model, loss, example)
        if gradients is None:
            with _switch_mode(model, training=True):
                failed = _find_failing(model, loss, example)
            raise InvalidRequest(
                "Expected a model whose rows are independent and whose gradients can be taken row by row; that fails for"
                f" {describe_layer(model, failed)}",
                do="Let no branch, length or index of a computation depend on what is in the rows",
            )
    finally:
        with torch.no_grad():  # synthetic rows leave no trace
            for now, before in numbers:
                now.copy_(before)
    return gradients


def _check_layers(model: nn.Module) -> None:
    """Raise ``InvalidRequest`` for layers that are known to mix rows, or to change with them."""
    frozen = frozen_layers(model)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module not in frozen:
            raise InvalidRequest(
                f"Expected a model whose rows are independent; {describe_layer(model, module)} mixes those of a batch",
                do="Replace batch normalization by nn.GroupNorm or nn.LayerNorm, or keep its statistics: layer.eval()",
            )
        if getattr(module, "max_norm", None) is not None:
            # Entries are rescaled when they are read: that depends on rows, without any noise.
            raise InvalidRequest(
                f"Expected a model that keeps nothing of the rows it sees; {describe_layer(model, module)} has max_norm and"
                " rescales the entries that are read",
                do="Leave max_norm out",
            )


def frozen_layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers whose buffers stay as they are: layers with buffers that were given in evaluation mode.

    Such a layer, batch normalization with statistics for one, is a fixed function of its weights, which may be trained.

    >>> model = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2).eval())
    >>> frozen_layers(model) == [model[1]]
    True
    """
    return [
        module
        for module in model.modules()
        if not module.training and [*module.buffers(recurse=False)] and not [*module.children()]
    ]


def _name_number(model: nn.Module, place: int) -> str:
    """Return what the number at a place among parameters and buffers is."""
    owned = [name for name, _ in (*model.named_parameters(), *model.named_buffers())]
    owner = owned[place].rpartition(".")[0]
    return f"{owned[place]!r} of {describe_layer(model, model.get_submodule(owner))}"


def _find_agreeing(model: nn.Module, loss: NetworkLoss, example: tuple[ModelInputs, Tensor]) -> ClippedRows | None:
    """Return gradients that agree with those taken row by row, for usual rows and rows of very different lengths."""
    lengths = torch.tensor([0.3, 5.0, 1.0, 8.0])

    def stretch(part: Tensor) -> Tensor:
        if not part.is_floating_point():
            return part
        return part * lengths.to(part).repeat(len(part))[: len(part)].view(-1, *[1] * (part.dim() - 1))

    batches = (example[0], map_inputs(stretch, example[0]))
    ways: list[Callable[..., ClippedRows]] = [MappedGradients, SampledGradients]
    if SummedLayers.supports_model(model):
        ways.insert(0, SummedLayers)
    for way in ways:
        try:
            found = way(model, loss)
            if all(_agrees_rowwise(found, model, loss, rows, example[1]) for rows in batches):
                return found
        except MissingExtra:
            return None  # Opacus is the last way, and optional
        except ExpostError:
            raise
        except Exception:  # the rows are synthetic, so the message is not needed
            continue
    return None


def _find_failing(model: nn.Module, loss: NetworkLoss, example: tuple[ModelInputs, Tensor]) -> nn.Module | None:
    """Return the layer in which gradients by row fail; None if they are wrong, or fail outside of the model."""
    with trace_layers(model) as trace:
        try:
            MappedGradients(model, loss).total(*example, 1.0)
        except Exception:
            return trace.running[-1].layer if trace.running else None
    return None


def _agrees_rowwise(
    ours: ClippedRows, model: nn.Module, loss: NetworkLoss, inputs: ModelInputs, targets: Tensor
) -> bool:
    """Return whether clipped sums equal those of gradients taken one row at a time."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    expected = []
    for place in range(len(inputs)):
        value = loss(call_model(model, inputs[place : place + 1]), targets[place : place + 1]).sum()
        found = torch.autograd.grad(value, parameters, allow_unused=True)
        flat = [
            torch.zeros_like(parameter) if grad is None else grad
            for parameter, grad in zip(parameters, found, strict=True)
        ]
        row = torch.cat([grad.reshape(-1) for grad in flat]).double().cpu()
        expected.append(row if bool(row.isfinite().all()) else torch.zeros_like(row))  # such a row contributes zero
    longest = max(float(row.norm()) for row in expected)
    total = ours.total(inputs, targets, longest / 2).cpu()
    limits = [min(1.0, longest / 2 / max(float(row.norm()), 1e-300)) for row in expected]
    clipped = torch.stack([row * limit for row, limit in zip(expected, limits, strict=True)])
    # Compared with the sum of norms: rows may cancel each other, their errors do not.
    return float((total - clipped.sum(0)).norm()) <= _TOLERANCE * float(clipped.norm(dim=1).sum()) + 1e-12


def _check_independence(model: nn.Module, loss: NetworkLoss, example: tuple[ModelInputs, Tensor]) -> None:
    """Raise unless the losses of all rows but the first ignore what the first is and whether it is there."""
    targets = _repeat_rows(example[1])
    for inputs in _trial_batches(map_inputs(_repeat_rows, example[0])):
        losses = _row_losses(model, loss, inputs, targets)
        before, chance = kept_state(model), torch.get_rng_state()
        changed = [map_inputs(_first_replaced(way), inputs) for way in range(3)]
        others = [_row_losses(model, loss, batch, targets)[1:] for batch in changed]
        others.append(_row_losses(model, loss, inputs[1:], targets[1:]))
        if not torch.equal(chance, torch.get_rng_state()):
            layer = find_chancy_layer(model, _calling(model, inputs))
            raise InvalidRequest(
                f"Expected a model that draws nothing at random but in dropout layers; {describe_layer(model, layer)} does",
                do="Use nn.Dropout instead of functions, and leave augmentations out",
            )
        alike = all(_all_close(losses[1:], found) for found in others)
        if not alike or not _all_close(losses[1:4], _row_losses(model, loss, inputs[1:4], targets[1:4])):
            blamed = [find_mixing_layer(model, _calling(model, inputs), _calling(model, batch)) for batch in changed]
            layer = next((found for found in blamed if found is not None), None)
            mixing = "the model or its loss" if layer is None else describe_layer(model, layer)
            raise InvalidRequest(
                f"Expected a model and a loss whose rows are independent, whatever is in them; {mixing} mixes them",
                do="Take no numbers from a whole batch, such as its mean or its largest value",
            )
        if not same_state(before, kept_state(model)):
            raise InvalidRequest(
                f"Expected a model that keeps nothing of the rows it sees; {_find_keeping(model, inputs)} does",
                do="Do not store inputs or activations in its attributes: they would leave with it",
            )


def _first_replaced(way: int) -> Callable[[Tensor], Tensor]:
    """Return a function that replaces the first row: by huge, missing and zero numbers, or by other whole ones."""

    def replace_first(part: Tensor) -> Tensor:
        floating = (-_HUGE * part[3], part[3] * torch.nan, part[3] * 0) if part.is_floating_point() else None
        first = floating[way] if floating is not None else part[(3, 4, 1)[way]]
        return torch.cat([first[None], part[1:]])

    return replace_first


def _calling(model: nn.Module, inputs: ModelInputs) -> Callable[[], Any]:
    return lambda: call_model(model, inputs)


def _find_keeping(model: nn.Module, inputs: ModelInputs) -> str:
    """Return which layer keeps something of a batch."""
    before = {id(module): _own_state(module) for module in model.modules()}
    with torch.no_grad():
        call_model(model, inputs)
    kept = (module for module in model.modules() if not same_state(before[id(module)], _own_state(module)))
    return describe_layer(model, next(kept, None))


def _row_losses(model: nn.Module, loss: NetworkLoss, inputs: ModelInputs, targets: Tensor) -> Tensor:
    try:
        with torch.no_grad():
            return loss(call_model(model, inputs), targets).double()
    except InvalidRequest:
        raise
    except Exception:
        with torch.no_grad(), trace_layers(model) as trace, suppress(Exception):
            call_model(model, inputs)
        failed = describe_layer(model, trace.running[-1].layer) if trace.running else "the loss"
        raise InvalidRequest(
            "Expected a model and a loss that accept any number of rows, and rows of missing or huge numbers;"
            f" {failed} does not",
            do="Return anything for such rows, which contribute zero: an exception would reveal them",
        ) from None


def _all_close(found: Tensor, expected: Tensor) -> bool:
    return bool(torch.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True))


def _trial_batches(usual: ModelInputs) -> Iterator[ModelInputs]:
    """Yield synthetic batches: usual rows, then some rows of missing and huge numbers, if some inputs are numbers."""
    if not any(part.is_floating_point() for part in input_parts(usual)):
        yield usual
        return

    def spread(part: Tensor) -> Tensor:
        return _synthetic_numbers(part) if part.is_floating_point() else part

    def spoil(part: Tensor) -> Tensor:
        odd = part.clone()
        if part.is_floating_point():
            odd[1].view(-1)[::2] = torch.nan
            odd[2] *= _HUGE
        return odd

    usual = map_inputs(spread, usual)
    yield usual
    yield map_inputs(spoil, usual)


def _repeat_rows(example: Tensor) -> Tensor:
    return example.repeat(-(-_MANY // len(example)), *[1] * (example.dim() - 1))[:_MANY]


@contextmanager
def _switch_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Put the model in training or evaluation mode, with dropout alone switched off, during this context."""
    modes, still = [(module, module.training) for module in model.modules()], frozen_layers(model)
    # Attention and recurrent layers drop out by a number of their own.
    shares = [(module, module.dropout) for module, _ in modes if isinstance(module, nn.MultiheadAttention | nn.RNNBase)]
    model.train(training)
    for module, _ in modes:
        if isinstance(module, nn.modules.dropout._DropoutNd) or module in still:
            module.eval()
    try:
        for module, _ in shares:
            module.dropout = 0.0
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for module, share in shares:
            module.dropout = share


@dataclass(frozen=True)
class KeptState:
    """One thing that a model keeps besides its parameters. Tensors and arrays that change in place change their version."""

    value: Any
    version: Any

    def is_same(self, other: KeptState) -> bool:
        """Return whether the thing was neither replaced nor written to."""
        if isinstance(self.value, _PLAIN) and type(self.value) is type(other.value):
            return repr(self.value) == repr(other.value)  # NaN equals NaN
        return self.value is other.value and bool(self.version == other.version)


def kept_state(model: nn.Module) -> list[KeptState]:
    """Return everything in the attributes of a model's modules, and its buffers: there rows could leave with it.

    >>> model = nn.Linear(2, 2)
    >>> before = kept_state(model)
    >>> model.seen = [1.0]
    >>> same_state(before, kept_state(model))
    False
    """
    return [kept for module in model.modules() for kept in _own_state(module)]


def _own_state(module: nn.Module) -> list[KeptState]:
    """Return what a module keeps itself."""
    attributes = [value for name, value in vars(module).items() if name not in _MODULE_ATTRIBUTES]
    return [kept for value in (*attributes, *module.buffers(recurse=False)) for kept in _walk_parts(value, _DEEPEST)]


def same_state(before: list[KeptState], after: list[KeptState]) -> bool:
    """Return whether a model keeps what it kept before, and nothing else."""
    return len(before) == len(after) and all(a.is_same(b) for a, b in zip(before, after, strict=True))


def _walk_parts(value: Any, depth: int) -> Iterator[KeptState]:
    """Yield a thing and its parts, down to a depth."""
    version = (
        value._version if isinstance(value, Tensor) else value.tobytes() if isinstance(value, np.ndarray) else None
    )
    yield KeptState(value, version)
    if not depth or isinstance(value, (*_PLAIN, Tensor, np.ndarray, nn.Module, type)):
        return
    parts: Collection[Any]
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, Collection):
        parts = value
    else:
        parts = getattr(value, "__dict__", {}).values()
    for part in parts:
        yield from _walk_parts(part, depth - 1)
