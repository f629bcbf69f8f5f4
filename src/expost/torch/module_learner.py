"""A PyTorch module in training: the public problem, the private rows, the learner."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from expost.core import Adjacency, InvalidRequest, Measure, Norm, Sealed, Sensitivity
from expost.data.row_identity import Names, RowIdentity
from expost.models.descent.feature_grid import Index
from expost.models.descent.stopping_test import ScoreRule
from expost.models.descent.training_schedule import Phase
from expost.models.descent.training_watch import WatchTally
from expost.noise.gaussian_stream import SHORT
from expost.torch.loss_tap import LossTap, NetworkLoss
from expost.torch.model_inputs import call_model, input_parts, map_inputs
from expost.torch.network_defaults import replay_scheduler
from expost.torch.network_rows import Batch, NetworkRows
from expost.torch.network_trial import find_example, find_gradients, frozen_layers
from expost.torch.person_batches import PersonBatches, PersonIds
from expost.torch.row_gradients import ClippedRows, lattice_unit

__all__ = ["ModuleLearner", "ModuleProblem", "ModuleTable"]

_CHUNK = 512  # rows worked on at a time
_CONTENTS = 1 << 12  # rows hashed at a time
_BLOCK = (
    16  # kernels always see a multiple: they treat very short batches differently, and some models refuse empty ones
)
_FLOAT_ERROR = 2.0**-8  # share of the clip by which float32 additions may move a sum (docs/proofs/sgd-torch.md)
_MOST_STRETCHES = 4  # parts of a batch; with more, float32 is not faster than float64
_MOST_SINGLE = 500  # rows: this many of 2^21 lattice units each stay below 2^30


@dataclass(frozen=True)
class ModuleProblem:
    """The public side of a training: model, loss, clip, and how released gradients are used.

    A copy is trained, the ``worker``. Whatever it may have kept of the rows, by its own code or because it was stopped in
    the middle of a step, only its weights come back. If ``watched``, scores and losses are counted too; the loss must
    then be the cross-entropy of classes.
    """

    model: nn.Module
    loss: NetworkLoss
    clip: float
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer]
    averaging: float
    device: torch.device
    watched: bool = False
    scheduler: Callable[[torch.optim.Optimizer], Any] | None = None
    """Makes what changes the learning rate after each step, if anything does."""

    def table(self, rows: NetworkRows) -> ModuleTable:
        """Return the rows with a way to compute their gradients, which is checked on synthetic values."""
        tap = LossTap(self.loss)
        empty = rows.empty_batch()
        inputs, targets = map_inputs(self.convert_values, empty[0]), self.convert_targets(empty[1])
        example, outputs = find_example(self.worker, tap, inputs, targets)
        labelled = targets.dim() == 1 and not targets.is_floating_point()
        has_classes = labelled and isinstance(outputs, Tensor) and outputs.dim() == 2

        def fill_block(part: Tensor) -> Tensor:
            return part.repeat(_BLOCK, *[1] * (part.dim() - 1))[:_BLOCK]

        filler = map_inputs(fill_block, example[0]), fill_block(example[1])
        gradients = find_gradients(self.worker, tap, example)
        classes = outputs.shape[1] if has_classes else 0
        return ModuleTable(self, rows, gradients, tap, classes, filler)

    def convert_values(self, values: Tensor) -> Tensor:
        """Convert numbers to the model's type and device, and indices to integers; masks stay what they are."""
        if values.dtype == torch.bool:
            return values.to(self.device)
        return values.to(self.device, self._float_type if values.is_floating_point() else torch.long)

    def convert_targets(self, values: Tensor) -> Tensor:
        """Convert targets as ``convert_values`` does; truths are the classes 0 and 1."""
        return self.convert_values(values.long() if values.dtype == torch.bool else values)

    @property
    def worker(self) -> nn.Module:
        """Return the copy that sees the rows."""
        return self._copy[0]

    def set_training(self) -> None:
        """Put the worker into training mode, but for layers that were given frozen."""
        worker, still = self._copy
        worker.train()
        for module in still:
            module.eval()

    @cached_property
    def _copy(self) -> tuple[nn.Module, list[nn.Module]]:
        """Make the worker, and find its frozen layers while it is in the modes it was given in.

        An index that an embedding does not have is clamped to its first or last entry: PyTorch would raise, and so
        reveal that such a row exists. Gradients are dense, because noise is.
        """
        try:
            worker = copy.deepcopy(self.model)
        except Exception:
            raise InvalidRequest(
                "Expected a model that can be copied",
                do="Try copy.deepcopy(model). Use nn.utils.parametrizations.weight_norm, not nn.utils.weight_norm",
            ) from None
        for module in worker.modules():
            if isinstance(module, nn.Embedding | nn.EmbeddingBag):
                module.register_forward_pre_hook(_clamp_indices)
                module.sparse = False
        return worker, frozen_layers(worker)

    def begin_training(self) -> None:
        """Copy the model's weights to the worker: nothing of an earlier training is left in them."""
        with torch.no_grad():
            _copy_weights(self.model.parameters(), self.worker.parameters())

    @cached_property
    def _float_type(self) -> torch.dtype:
        return next(self.model.parameters()).dtype


@dataclass(frozen=True)
class ModuleTable:
    """Private rows that a module learns from. It implements ``trainer.TrainingTable``.

    ``classes`` is their number, 0 if targets are not classes. ``filler`` are synthetic rows to fill a block with. With
    ``by_person`` the unit is a person: entries of the table are ``people``, which are known once ids were read.
    """

    problem: ModuleProblem
    rows: NetworkRows
    gradients: ClippedRows
    tap: LossTap
    classes: int
    filler: Batch
    by_person: bool = False
    people: PersonBatches | None = None

    def with_people(self, ids: PersonIds, secret: bytes) -> ModuleTable:
        """Return the table of persons; ``secret`` decides which rows they keep."""
        names: Names | None = None
        if ids.most is not None:
            identity = RowIdentity(secret)
            parts = [identity.name_rows(blocks) for blocks in replace(self, people=None).yield_contents()]
            names = np.concatenate([np.empty(0, "S16"), *parts])
        return replace(self, people=PersonBatches(ids, names, secret))

    def take_batch(self, rows: NetworkRows, index: NDArray[np.intp]) -> Batch:
        """Return some rows as the model takes them, followed by synthetic ones up to whole blocks, at least one."""
        missing = -len(index) % _BLOCK if len(index) else _BLOCK
        inputs, targets = rows.take_rows(index, spare=missing)
        inputs, targets = map_inputs(self.problem.convert_values, inputs), self.problem.convert_targets(targets)
        for part, filler in zip(
            (*input_parts(inputs), targets), (*input_parts(self.filler[0]), self.filler[1]), strict=True
        ):
            part[len(index) :] = filler[:missing]
        return inputs, targets

    def __len__(self) -> int:
        return len(self.rows if self.people is None else self.people)

    def learner(self, training: Index, validation: NDArray[np.intp] | None) -> ModuleLearner:
        index = np.arange(len(self)) if isinstance(training, slice) else training
        return ModuleLearner(self, index, validation)

    def yield_contents(self) -> Iterator[tuple[NDArray[np.float64], ...]]:
        if self.people is not None:
            yield tuple(self.people.names)
            return
        for start in range(0, len(self.rows), _CONTENTS):
            index = np.arange(start, min(start + _CONTENTS, len(self.rows)))
            inputs, targets = self.rows.take_rows(index)
            yield tuple(column for part in (*input_parts(inputs), targets) for column in _as_floats(part))


class ModuleLearner:
    """A module with clipped sums on an integer lattice and updates by any optimizer. It implements ``trainer.Learner``.

    The sum of a batch is rounded to the lattice, which moves it by at most half a unit in each of n coordinates, so
    one row moves the rounded sum by clip * unit + sqrt(n) units at most. Small batches are added in float32, large
    ones in float64; the error of that is inside the sensitivity (docs/proofs/sgd-torch.md). What a row contributes is
    computed in the model's own precision, see docs/known-limits.md.
    """

    def __init__(self, table: ModuleTable, training: NDArray[np.intp], validation: NDArray[np.intp] | None) -> None:
        problem = table.problem
        self._problem, self._table = problem, table
        self._training, self._validation = training, validation
        problem.begin_training()
        self._parameters = [parameter for parameter in problem.worker.parameters() if parameter.requires_grad]
        self._sizes = [parameter.numel() for parameter in self._parameters]
        self._optimizer = problem.optimizer(self._parameters)
        self._scheduler = None if problem.scheduler is None else problem.scheduler(self._optimizer)
        # Gradients are overwritten in every step, as under zero_grad(set_to_none=False).
        self._mean = torch.zeros(sum(self._sizes), device=problem.device)
        parts = zip(torch.split(self._mean, self._sizes), self._parameters, strict=True)
        self._gradients = [part.view(parameter.shape) for part, parameter in parts]
        # Without averaging the weights are their own average.
        self._average = [part.detach().clone() if problem.averaging else part.detach() for part in self._parameters]
        self._steps, self._unit, self._scale = 0, 0.0, 0.0
        self._single, self._chunk = False, _CHUNK
        self._sensitivity: Sensitivity | None = None
        self._height, self._tally = 0, WatchTally(0, 0)
        self._measured = np.zeros(0, np.intp)

    @property
    def size(self) -> int:
        return sum(self._sizes)

    @property
    def rows(self) -> int:
        return len(self._training)

    def open(self, phase: Phase, expected_size: float) -> Sensitivity:
        clip = self._problem.clip
        # Chosen from public numbers: whether small batches may be added in float32.
        at_once = self._table.gradients.rows_at_once or _CHUNK
        self._chunk = min(_CHUNK, at_once)
        small = _find_stretch(math.ceil(expected_size)) is not None and self._chunk >= _CHUNK
        small = small and not self._table.by_person  # how many rows persons have is not public
        self._single = small and all(parameter.dtype == torch.float32 for parameter in self._parameters)
        self._unit = lattice_unit(clip, float(phase.noise_multiplier), single=self._single)
        self._scale = 1 / (self._unit * expected_size)
        slack = 2 * _FLOAT_ERROR if self._single else 0.0
        # Rounding two neighboring sums to the lattice moves each coordinate by half a unit: sqrt(size) units together.
        amount = math.ceil(clip * self._unit * (1 + slack)) + math.isqrt(self.size) + 2
        self._sensitivity = Sensitivity(amount, Norm.L2, Adjacency.ADD_REMOVE)
        self._problem.set_training()
        return self._sensitivity

    def measure(self, index: Index) -> Sealed:
        assert self._sensitivity is not None
        chosen = self._measured = self._training[index]
        self._tally = WatchTally(self._height, self.watchable[0])
        stretch = _find_stretch(len(chosen)) if self._single else None
        weights = None
        if self._table.people is not None:
            chosen, weights, _ = self._table.people.take_persons(chosen)
        if stretch is not None:
            total = self._sum_rows(chosen, stretch)
        else:
            total = self._sum_rows(chosen[: self._chunk], None, weights)
            for start in range(self._chunk, len(chosen), self._chunk):
                part = slice(start, start + self._chunk)
                total += self._sum_rows(chosen[part], None, None if weights is None else weights[part])
        if self._single and stretch is None:
            # A batch much larger than expected. Clipping entries brings no two sums further apart.
            total.clamp_(1 - SHORT, SHORT - 1)
        kind = torch.int32 if self._single else torch.int64
        return Sealed(total.round_().to(kind).cpu().numpy(), self._sensitivity)

    def _sum_rows(
        self, chosen: NDArray[np.intp], stretch: int | None, weights: NDArray[np.float32] | None = None
    ) -> Tensor:
        inputs, targets = self._table.take_batch(self._table.rows, chosen)
        observer = partial(self._count_metrics, len(chosen)) if self._height else None
        with self._table.tap.shown_to(observer):
            return self._table.gradients.total(
                inputs,
                targets,
                self._problem.clip,
                stretch=stretch,
                unit=self._unit,
                rows=len(chosen),
                weights=None if weights is None else torch.from_numpy(weights[: len(chosen)]),
            )

    def _count_metrics(self, rows: int, *seen: Tensor) -> None:
        """Add the metrics of the rows that count, not of the filler, to the tally."""
        outputs, targets, losses = (part[:rows] for part in seen)
        right = (outputs.argmax(1) == targets).double() * 2 - 1
        known = (targets >= 0) & (targets < self._table.classes)
        kept = torch.where(known, 1 - losses.double() / math.log(self._table.classes), 0.0)
        self._tally.add(torch.stack([right, kept]).cpu().numpy())

    @property
    def watchable(self) -> tuple[int, float | None]:
        classes = self._table.classes
        watched = self._problem.watched and classes > 1 and not self._table.by_person
        return (2, math.log(classes)) if watched else (0, None)

    def start_watch(self, height: int) -> None:
        self._height = height

    def read_watch(self) -> Sealed:
        return self._tally.sealed()

    def read_average_watch(self) -> Sealed:
        right = self._find_right(self._table.rows, self._measured) * 2.0 - 1
        tally = WatchTally(self._height, self.watchable[0])
        tally.add(np.stack([right, np.zeros_like(right)]))
        return tally.sealed()

    def take_step(self, noisy: NDArray[Any]) -> None:
        self._mean.copy_(torch.from_numpy(noisy)).mul_(self._scale)
        for parameter, part in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = part if parameter.dtype == torch.float32 else part.to(parameter.dtype)
        self._optimizer.step()
        if self._scheduler is not None:
            self._scheduler.step()
        self._steps += 1
        power = self._problem.averaging
        if power:
            share = (power + 1) / (self._steps + power)  # SZ13, equation (4)
            with torch.no_grad():
                for kept, parameter in zip(self._average, self._parameters, strict=True):
                    kept.lerp_(parameter, share)

    def score(self, rule: ScoreRule, margin: int) -> Sealed:
        assert self._validation is not None
        if rule.measure is not Measure.ACCURACY:
            raise InvalidRequest("Expected a score of accuracy", got=rule.measure.value, do="Pass an accuracy")
        people = self._table.people
        if people is None:
            right = int(self._find_right(self._table.rows, self._validation).sum())
            total = rule.sum_correct(right, len(self._validation))
        else:
            # A person counts with the share of its rows that are right, rounded down, and so within the same interval.
            found = self._find_right(self._table.rows, people.take_persons(self._validation).rows)
            total = people.sum_shares(self._validation, found, rule.span) - rule.pass_mark * len(self._validation)
        return Sealed(total - margin, rule.sensitivity)

    def public_score(self, rule: ScoreRule, rows: NetworkRows) -> int:
        return rule.sum_correct(int(self._find_right(rows, np.arange(len(rows))).sum()), len(rows))

    def _find_right(self, rows: NetworkRows, index: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which predictions of the averaged model are correct, in evaluation mode."""
        worker, found = self._problem.worker, [np.zeros(0, bool)]
        kept = [parameter.detach().clone() for parameter in self._parameters]
        with torch.no_grad():
            _copy_weights(self._average, self._parameters)
            worker.eval()
            try:
                for start in range(0, len(index), _CHUNK):
                    part = index[start : start + _CHUNK]
                    inputs, targets = self._table.take_batch(rows, part)
                    found.append((call_model(worker, inputs).argmax(1) == targets)[: len(part)].cpu().numpy())
            finally:
                _copy_weights(kept, self._parameters)
                self._problem.set_training()
        return np.concatenate(found)

    def copy_state(self) -> dict[str, NDArray[Any]]:
        found: dict[str, NDArray[Any]] = {"steps": np.array([self._steps])}
        for number, (parameter, average) in enumerate(zip(self._parameters, self._average, strict=True)):
            found[f"weights/{number}"] = _to_numpy(parameter.detach())
            found[f"average/{number}"] = _to_numpy(average)
        for number, memory in self._optimizer.state_dict()["state"].items():
            for name, value in memory.items():
                kept = _to_numpy(value) if isinstance(value, Tensor) else np.asarray(value)
                found[f"optimizer/{number}/{name}"] = kept
        return found

    def restore_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        if any(f"weights/{number}" not in state for number in range(len(self._parameters))):
            raise InvalidRequest("Expected a checkpoint of this model", do="Start again without the checkpoint")
        self._steps = int(state["steps"][0])
        with torch.no_grad():
            for number, (parameter, average) in enumerate(zip(self._parameters, self._average, strict=True)):
                parameter.copy_(torch.from_numpy(np.array(state[f"weights/{number}"])))
                average.copy_(torch.from_numpy(np.array(state[f"average/{number}"])))
        memories = self._optimizer.state_dict()
        found: dict[int, dict[str, Tensor]] = {}
        for key, value in state.items():
            if key.startswith("optimizer/"):
                _, place, name = key.split("/")
                found.setdefault(int(place), {})[name] = torch.from_numpy(np.array(value))
        memories["state"] = found
        self._optimizer.load_state_dict(memories)
        if self._scheduler is not None:
            replay_scheduler(self._scheduler, self._steps)

    def build_result(self) -> nn.Module:
        """Return the caller's model with the averaged weights, in evaluation mode; everything else in it is unchanged."""
        released = [parameter for parameter in self._problem.model.parameters() if parameter.requires_grad]
        with torch.no_grad():
            for parameter, average in zip(released, self._average, strict=True):
                parameter.copy_(average)
                parameter.grad = None
        return self._problem.model.eval()


def _copy_weights(source: Iterable[Tensor], parameters: Iterable[nn.Parameter]) -> None:
    for parameter, weight in zip(parameters, source, strict=True):
        parameter.copy_(weight)


def _clamp_indices(module: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    return (given[0].clamp(0, module.num_embeddings - 1), *given[1:])


def _to_numpy(values: Tensor) -> NDArray[Any]:
    """Convert for a checkpoint; NumPy has no bfloat16."""
    found: NDArray[Any] = (values.float() if values.dtype == torch.bfloat16 else values).cpu().numpy().copy()
    return found


def _find_stretch(rows: int) -> int | None:
    """Return how many rows of a batch may be added in float32 at a time; None if float64 is as good."""
    for parts in range(1, _MOST_STRETCHES + 1):
        stretch = -(-rows // parts)
        # How often a row's products are rounded, at most, in the mean of squares: see docs/proofs/sgd-torch.md.
        roundings = (stretch + 1) / math.sqrt(3) + parts + 5
        if rows <= _MOST_SINGLE and rows * roundings <= _FLOAT_ERROR * 2**24:
            return max(stretch, 1)
    return None


def _as_floats(part: Tensor) -> Iterator[NDArray[np.float64]]:
    """Yield one or two tables of floats that determine a tensor; integers are split into halves of 32 bits."""
    flat = part.detach().reshape(len(part), -1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(len(part), -1)
    if flat.is_floating_point():
        yield flat.double().cpu().numpy()
        return
    whole = flat.long()
    yield (whole >> 32).double().cpu().numpy()
    yield (whole & 0xFFFFFFFF).double().cpu().numpy()
