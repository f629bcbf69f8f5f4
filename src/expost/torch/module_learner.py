"""A PyTorch module in training."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from expost.core import Adjacency, InvalidRequest, Measure, Norm, Sealed, Sensitivity
from expost.models.descent.schedule import Phase
from expost.models.descent.validation import ScoreRule
from expost.models.descent.watch import Tally
from expost.noise.gaussian_stream import SHORT
from expost.torch.entries import with_known_entries
from expost.torch.loss_tap import Loss, LossTap
from expost.torch.made_up import tried
from expost.torch.row_gradients import ClippedRows, lattice_unit
from expost.torch.rows import Batch, Rows
from expost.torch.trial import clipped_rows

__all__ = ["ModuleLearner", "ModuleProblem", "ModuleTable"]

_CHUNK = 512  # rows worked on at a time
_CONTENTS = 1 << 12  # rows named at a time
_BLOCK = 16  # of which kernels always see a multiple: they treat very short batches otherwise, and some models no batch
_FLOAT_ERROR = 2.0**-8  # of the clip: what adding rows in float32 may move a sum (docs/proofs/sgd-torch.md)
_MOST_STRETCHES = 4  # a batch is cut into; with more, float32 is no faster than float64
_MOST_SINGLE = 500  # rows: so many of 2^21 lattice units each stay below 2^30


@dataclass(frozen=True)
class ModuleProblem:
    """The public side of a training: model, loss, clip, and how released gradients are used.

    What is trained is a copy, the ``worker``. Of all it may have kept of the rows, by its own doing or because someone
    stopped it in the middle of a step, only its weights come back.
    """

    model: nn.Module
    loss: Loss
    clip: float
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer]
    averaging: float
    device: torch.device
    watched: bool = False
    """Whether scores and losses are counted along; the loss must then be the cross-entropy of classes."""

    def table(self, rows: Rows) -> ModuleTable:
        """The rows, with the way their gradients are computed; the check uses made-up values."""
        tap = LossTap(self.loss)
        inputs, targets = (self.placed(part) for part in rows.shapes())
        example, outputs = tried(self.worker, tap, inputs, targets)
        classes = outputs.shape[1] if outputs.dim() == 2 and _are_classes(targets) else 0
        filler = (_block_of(example[0]), _block_of(example[1]))
        return ModuleTable(self, rows, clipped_rows(self.worker, tap, example), tap, classes, filler)

    def placed(self, values: Tensor) -> Tensor:
        """Numbers as the model takes them, on its device; class numbers as its loss does."""
        return values.to(self.device, self._kind if values.is_floating_point() else torch.long)

    @cached_property
    def worker(self) -> nn.Module:
        """The copy that sees the rows."""
        try:
            return with_known_entries(copy.deepcopy(self.model))
        except Exception:
            raise InvalidRequest("Expected a model that can be copied", do="Try copy.deepcopy(model)") from None

    def begin(self) -> None:
        """The worker is as the model is: nothing of an earlier training is left in its weights."""
        with torch.no_grad():
            for mine, given in zip(self.worker.parameters(), self.model.parameters(), strict=True):
                mine.copy_(given)

    @cached_property
    def _kind(self) -> torch.dtype:
        return next(self.model.parameters()).dtype


@dataclass(frozen=True)
class ModuleTable:
    """Private rows that a module learns from."""

    problem: ModuleProblem
    rows: Rows
    gradients: ClippedRows
    tap: LossTap
    classes: int
    """How many there are; 0 if targets are something else."""
    filler: Batch
    """Made-up rows to fill a block with."""

    def batch(self, rows: Rows, index: NDArray[np.intp]) -> Batch:
        """Some rows as the model takes them, followed by made-up ones up to whole blocks, at least one."""
        missing = -len(index) % _BLOCK if len(index) else _BLOCK
        inputs, targets = map(self.problem.placed, rows.take(index, room=missing))
        for part, filler in zip((inputs, targets), self.filler, strict=True):
            part[len(index) :] = filler[:missing]
        return inputs, targets

    def __len__(self) -> int:
        return len(self.rows)

    def learner(self, training: NDArray[np.intp] | slice, validation: NDArray[np.intp] | None) -> ModuleLearner:
        """A learner of some rows, tested on others."""
        index = np.arange(len(self.rows)) if isinstance(training, slice) else training
        return ModuleLearner(self, index, validation)

    def contents(self) -> Iterator[tuple[NDArray[np.float64], ...]]:
        """Inputs and targets as numbers, all rows once."""
        for start in range(0, len(self.rows), _CONTENTS):
            index = np.arange(start, min(start + _CONTENTS, len(self.rows)))
            yield tuple(column for part in self.rows.take(index) for column in _as_floats(part))


class ModuleLearner:
    """Clipped sums by ``row_gradients``, put on an integer lattice; updates by any optimiser.

    The sum of a batch is rounded to the lattice, which moves it by at most half a unit in each of n coordinates, so
    one row moves the rounded sum by clip * unit + sqrt(n) units at most. Small batches are added in float32, large
    ones in float64; the error of that is inside the sensitivity. What a row contributes is computed in the model's
    own precision, see docs/known-limits.md.
    """

    def __init__(self, table: ModuleTable, training: NDArray[np.intp], validation: NDArray[np.intp] | None) -> None:
        problem = table.problem
        self._problem, self._table = problem, table
        self._training, self._validation = training, validation
        problem.begin()
        self._parameters = [parameter for parameter in problem.worker.parameters() if parameter.requires_grad]
        self._sizes = [parameter.numel() for parameter in self._parameters]
        self._optimizer = problem.optimizer(self._parameters)
        # Gradients are overwritten in every step, as under zero_grad(set_to_none=False).
        self._mean = torch.zeros(sum(self._sizes), device=problem.device)
        parts = zip(torch.split(self._mean, self._sizes), self._parameters, strict=True)
        self._gradients = [part.view(parameter.shape) for part, parameter in parts]
        # Without averaging the weights are their own average.
        self._average = [part.detach().clone() if problem.averaging else part.detach() for part in self._parameters]
        self._steps, self._unit, self._scale = 0, 0.0, 0.0
        self._single = False
        self._sensitivity: Sensitivity | None = None
        self._height, self._tally = 0, Tally(0, 0)

    @property
    def size(self) -> int:
        """The number of weights."""
        return sum(self._sizes)

    @property
    def rows(self) -> int:
        """The number of training rows: private."""
        return len(self._training)

    def open(self, phase: Phase, expected_size: float) -> Sensitivity:
        """Begin a phase."""
        clip = self._problem.clip
        # A public choice: whether small batches, if any come, may be added in float32.
        small = _stretch(math.ceil(expected_size)) is not None
        self._single = small and all(parameter.dtype == torch.float32 for parameter in self._parameters)
        self._unit = lattice_unit(clip, float(phase.noise_multiplier), single=self._single)
        self._scale = 1 / (self._unit * expected_size)
        slack = 2 * _FLOAT_ERROR if self._single else 0.0
        amount = math.ceil(clip * self._unit * (1 + slack)) + math.isqrt(self.size) + 2
        self._sensitivity = Sensitivity(amount, Norm.L2, Adjacency.ADD_REMOVE)
        self._problem.worker.train()
        return self._sensitivity

    def measure(self, index: NDArray[np.intp] | slice) -> Sealed:
        """The sum of clipped gradients at the current weights, on the lattice."""
        assert self._sensitivity is not None
        chosen = self._training[index]
        self._tally = Tally(self._height, self.watchable[0])
        stretch = _stretch(len(chosen)) if self._single else None
        if stretch is not None:
            total = self._part(chosen, stretch)
        else:
            total = self._part(chosen[:_CHUNK], None)
            for start in range(_CHUNK, len(chosen), _CHUNK):
                total += self._part(chosen[start : start + _CHUNK], None)
        if self._single and stretch is None:
            # A batch much larger than expected. Cutting entries brings no two sums further apart.
            total.clamp_(1 - SHORT, SHORT - 1)
        kind = torch.int32 if self._single else torch.int64
        return Sealed(total.round_().to(kind).cpu().numpy(), self._sensitivity)

    def _part(self, chosen: NDArray[np.intp], stretch: int | None) -> Tensor:
        inputs, targets = self._table.batch(self._table.rows, chosen)
        terms: dict[str, Any] = {"stretch": stretch, "unit": self._unit, "rows": len(chosen)}
        if not self._height:
            return self._table.gradients.total(inputs, targets, self._problem.clip, **terms)
        with self._table.tap.shown_to(partial(self._count, len(chosen))):
            return self._table.gradients.total(inputs, targets, self._problem.clip, **terms)

    def _count(self, rows: int, *seen: Tensor) -> None:
        outputs, targets, losses = (part[:rows] for part in seen)
        right = (outputs.argmax(1) == targets).double() * 2 - 1
        known = (targets >= 0) & (targets < self._table.classes)
        kept = torch.where(known, 1 - losses.double() / math.log(self._table.classes), 0.0)
        self._tally.add(torch.stack([right, kept]).cpu().numpy())

    @property
    def watchable(self) -> tuple[int, float | None]:
        """Right predictions and losses, of a classifier with the usual loss."""
        classes = self._table.classes
        return (2, math.log(classes)) if self._problem.watched and classes > 1 else (0, None)

    def watch(self, height: int) -> None:
        """Count them along from the next measure on."""
        self._height = height

    def watched(self) -> Sealed:
        """The numbers of the rows measured last."""
        return self._tally.sealed()

    def descend(self, noisy: NDArray[Any]) -> None:
        """One step of the optimiser along the released sum over its expected number of rows."""
        self._mean.copy_(torch.from_numpy(noisy)).mul_(self._scale)
        for parameter, part in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = part if parameter.dtype == torch.float32 else part.to(parameter.dtype)
        self._optimizer.step()
        self._steps += 1
        self._averaged()

    def _averaged(self) -> None:
        power = self._problem.averaging
        if not power:
            return
        share = (power + 1) / (self._steps + power)  # SZ13, equation (4)
        with torch.no_grad():
            for kept, parameter in zip(self._average, self._parameters, strict=True):
                kept.lerp_(parameter, share)

    def score(self, rule: ScoreRule, margin: int) -> Sealed:
        """How many validation rows the averaged model gets right, in the rule's units."""
        assert self._validation is not None
        if rule.measure is not Measure.ACCURACY:
            raise InvalidRequest("Expected a target of accuracy", got=rule.measure.value, do="Pass an accuracy")
        return Sealed(self._total(rule, self._table.rows, self._validation) - margin, rule.sensitivity)

    def public_score(self, rule: ScoreRule, rows: Rows) -> int:
        """How many public rows the averaged model gets right, in the rule's units."""
        return self._total(rule, rows, np.arange(len(rows)))

    def _total(self, rule: ScoreRule, rows: Rows, index: NDArray[np.intp]) -> int:
        right = 0
        with self._averaged_weights(), torch.no_grad():
            for start in range(0, len(index), _CHUNK):
                part = index[start : start + _CHUNK]
                inputs, targets = self._table.batch(rows, part)
                right += int((self._problem.worker(inputs).argmax(1) == targets)[: len(part)].sum())
        return rule.counted(right, len(index))

    def _averaged_weights(self) -> _Swapped:
        return _Swapped(self._problem.worker, self._parameters, self._average)

    def state(self) -> dict[str, NDArray[Any]]:
        """Weights, averages and the optimiser's memory, all post-processing of released sums."""
        found: dict[str, NDArray[Any]] = {"steps": np.array([self._steps])}
        for number, (parameter, average) in enumerate(zip(self._parameters, self._average, strict=True)):
            found[f"weights/{number}"] = _numbers(parameter.detach())
            found[f"average/{number}"] = _numbers(average)
        for number, memory in self._optimizer.state_dict()["state"].items():
            for name, value in memory.items():
                found[f"optimizer/{number}/{name}"] = (
                    _numbers(value) if isinstance(value, Tensor) else np.asarray(value)
                )
        return found

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a checkpoint."""
        if any(f"weights/{number}" not in state for number in range(len(self._parameters))):
            raise InvalidRequest("Expected a checkpoint of this model", do="Start anew without the checkpoint")
        self._steps = int(state["steps"][0])
        with torch.no_grad():
            for number, (parameter, average) in enumerate(zip(self._parameters, self._average, strict=True)):
                parameter.copy_(torch.from_numpy(np.array(state[f"weights/{number}"])))
                average.copy_(torch.from_numpy(np.array(state[f"average/{number}"])))
        memories = self._optimizer.state_dict()
        memories["state"] = _memories(state)
        self._optimizer.load_state_dict(memories)

    def result(self) -> nn.Module:
        """The caller's model with the averaged weights, ready for use; all else in it is as it was."""
        released = [parameter for parameter in self._problem.model.parameters() if parameter.requires_grad]
        with torch.no_grad():
            for parameter, average in zip(released, self._average, strict=True):
                parameter.copy_(average)
                parameter.grad = None
        return self._problem.model.eval()


def _block_of(example: Tensor) -> Tensor:
    return example.repeat(_BLOCK, *[1] * (example.dim() - 1))[:_BLOCK]


def _are_classes(targets: Tensor) -> bool:
    return targets.dim() == 1 and not targets.is_floating_point()


def _numbers(values: Tensor) -> NDArray[Any]:
    """For a checkpoint; NumPy has no half precision of the second kind."""
    return (values.float() if values.dtype == torch.bfloat16 else values).cpu().numpy().copy()


def _stretch(rows: int) -> int | None:
    """How many rows of a batch may be added in float32 at a time; None if float64 is as good."""
    for parts in range(1, _MOST_STRETCHES + 1):
        stretch = -(-rows // parts)
        if rows <= _MOST_SINGLE and rows * _roundings(stretch, parts) <= _FLOAT_ERROR * 2**24:
            return max(stretch, 1)
    return None


def _roundings(stretch: int, parts: int) -> float:
    """How often a row's products are rounded, at most, in the mean of squares: see docs/proofs/sgd-torch.md."""
    return (stretch + 1) / math.sqrt(3) + parts + 5


class _Swapped:
    """The model in evaluation mode under other weights, for a while."""

    def __init__(self, model: nn.Module, parameters: list[nn.Parameter], weights: list[Tensor]) -> None:
        self._model, self._parameters, self._weights = model, parameters, weights

    def __enter__(self) -> None:
        self._kept = [parameter.detach().clone() for parameter in self._parameters]
        self._put(self._weights)
        self._model.eval()

    def __exit__(self, *_: object) -> None:
        self._put(self._kept)
        self._model.train()

    def _put(self, weights: list[Tensor]) -> None:
        with torch.no_grad():
            for parameter, weight in zip(self._parameters, weights, strict=True):
                parameter.copy_(weight)


def _memories(state: Mapping[str, NDArray[Any]]) -> dict[int, dict[str, Tensor]]:
    found: dict[int, dict[str, Tensor]] = {}
    for key, value in state.items():
        if key.startswith("optimizer/"):
            _, number, name = key.split("/")
            found.setdefault(int(number), {})[name] = torch.from_numpy(np.array(value))
    return found


def _as_floats(part: Tensor) -> Iterator[NDArray[np.float64]]:
    """One or two tables of floats, from which a tensor could be made again; whole numbers in halves."""
    flat = part.detach().reshape(len(part), -1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(len(part), -1)
    if flat.is_floating_point():
        yield flat.double().cpu().numpy()
        return
    whole = flat.long()
    yield (whole >> 32).double().cpu().numpy()
    yield (whole & 0xFFFFFFFF).double().cpu().numpy()
