"""Private training of a PyTorch model: to an accuracy, at an epsilon, or with a given noise."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from numbers import Integral
from typing import Any, Literal

import torch
from torch import nn

from expost.core import (
    Adjacency,
    ExpostError,
    InvalidRequest,
    Measure,
    Release,
    TargetNotMet,
    Unit,
    explain_arguments,
    share_parameters,
)
from expost.core.argument import check_unmasked
from expost.core.rational import rational
from expost.models.descent.gradient_model import PrivateGradientModel
from expost.models.descent.open_ladder import usual_price
from expost.models.descent.stopping_test import PublicTest, ScoreRule
from expost.models.descent.training_order import TrainingOrder
from expost.models.descent.training_query import run_training
from expost.models.descent.training_schedule import Schedule
from expost.models.descent.training_watch import RichProgress, Watch
from expost.models.estimator import FITTED_ROWS, PrivateEstimator, check_flag, pay_for_query
from expost.noise.gaussian_stream import gaussian_table, stream_variance
from expost.torch.loss_tap import KnownLabels, NetworkLoss
from expost.torch.model_inputs import SeveralInputs, input_parts
from expost.torch.module_learner import ModuleProblem, ModuleTable
from expost.torch.network_defaults import (
    USUAL_CLIP,
    FallingRate,
    check_scheduler,
    make_usual_optimizer,
    usual_batch_size,
    usual_rate,
    usual_steps,
)
from expost.torch.network_plan import UnitTraining, advise_after_miss
from expost.torch.network_rows import NetworkRows, TypedRows, read_rows
from expost.torch.person_batches import PersonIds
from expost.torch.problem_hash import hash_problem, make_stand_in

__all__ = ["hash_problem", "train"]

_ACCOUNT = "dataset:table"
_PATIENCE = 4  # a plateau is believed from this part of the usual price on: networks may learn nothing at first
_LEAST_CLIP = 1e-12  # squares of float32 can tell it from zero
_OPTIMIZER_HINT = "Pass lambda parameters: torch.optim.SGD(parameters, lr=0.5)"
_cross_entropy = KnownLabels(nn.CrossEntropyLoss(reduction="none"))


@share_parameters(PrivateGradientModel, PrivateEstimator, FITTED_ROWS)
@explain_arguments
def train(
    model: nn.Module,
    data: Any,
    *,
    rows: int | Literal["observed"],
    score: tuple[str, float] | None = None,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    max_epsilon: float | None = None,
    delta: float = 1e-6,
    failure_probability: float = 0.1,
    loss: NetworkLoss | None = None,
    clip: float | None = None,
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None,
    scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
    learning_rate: float | None = None,
    averaging: float = 8.0,
    batches: str = "poisson",
    batch_size: int | None = None,
    steps: int | None = None,
    phases: int | None = None,
    validation_share: float | None = None,
    public_validation: Any = None,
    unit: Any = None,
    max_rows_per_unit: int | None = None,
    accountant: str = "auto",
    ledger: str | None = None,
    account: str | None = None,
    checkpoint: str | None = None,
    progress: bool = False,
    device: str | torch.device | None = None,
    simulation_seed: int | None = None,
) -> Release[nn.Module]:
    """Train a model in place and release it with a receipt.

    Give exactly one of ``score``, ``epsilon`` and ``noise_multiplier``, or ``score`` with ``noise_multiplier``. Rows must
    be independent in the model: batch normalization is refused unless it is in evaluation mode, which freezes its
    statistics. That is checked on synthetic rows.
    Batch size, number of steps, clip and learning rate follow from public numbers where they are not given.

    Parameters
    ----------
    model : torch.nn.Module
        The model. Its weights are the public start of the training.
    data : (inputs, targets), torch.utils.data.Dataset or DataLoader
        The private rows, arrays or tensors. Several inputs are a tuple, or a dictionary by the names of the model's
        arguments: ``((words, numbers), targets)``. The sampler and batch size of a loader are not used: batches are drawn
        by exact coins.
    score : ("accuracy", number), optional
        The accuracy to reach, ``("accuracy", 0.95)``. Training stops as soon as a private test on rows held out passes,
        at a bill of at most ``max_epsilon``.
    noise_multiplier : float, optional
        Train with this noise, in units of the clip.
    loss : callable, optional
        Maps outputs and targets of a batch to one loss per row; of several losses per row the mean counts. Default:
        cross-entropy.
    clip : float, optional
        The largest Euclidean norm of a row's gradient. Default: 0.1; 1 with an optimizer or a learning rate of your own.
    optimizer : callable, optional
        Makes an optimizer of a list of parameters; it sees noisy gradients only: ``torch.optim.Adam``, or
        ``lambda parameters: torch.optim.SGD(parameters, lr=0.5)``. Default: SGD with momentum 0.9.
    scheduler : callable, optional
        Makes a scheduler of the optimizer, which is stepped after every step:
        ``lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 100)``. Default: for the default optimizer with its
        default rate, one that falls as one over the number of steps; else none.
    learning_rate : float, optional
        The step size of the default optimizer. Default: from the noise, the batch size and the number of weights.
    batches : {"poisson", "disjoint", "full", "auto"}, default "poisson"
        How the rows of a step are drawn.
    batch_size : int, optional
        Expected number of rows of a batch. Default: 1024, four roots of the number of rows if that is more, or all rows
        if there are fewer.
    steps : int, optional
        Number of steps. Default: ten passes over the rows, 20 with a score, and 300 to 5000 steps; 100 if batches have all
        rows.
    unit : array, optional
        One id per row: all rows with the same id are one person, who is protected as a whole. Persons are drawn into
        batches with all their rows, which share one weight, so a person costs what a row costs. ``rows`` is then the number
        of persons, and a score is the mean over persons of their shares of correct rows. Rows without an id are left out.
        Default: each row is one person.
    max_rows_per_unit : int, optional
        How many rows of a person are kept, with ``unit``. Default: all, up to 2^20.
    account : str, optional
        The account that pays. Default: ``"dataset:table"``.
    progress : bool, default False
        Show the progress, the epsilon charged so far and, for the default loss, private metrics of the training rows.
    device : str or torch.device, optional
        Where to train. Default: where the model is.

    Returns
    -------
    Release
        The model in evaluation mode, as ``value``, with its receipt.

    Raises
    ------
    InvalidRequest, BudgetExceeded
        Before the data is touched; nothing is spent.
    TargetNotMet
        The score was not reached under ``max_epsilon``. The exception carries the last private model.

    Notes
    -----
    Guarantee: that of expost.models.descent.trainer.Trainer: approximate ex-post, known only after the run, the price of
        the phase it stopped in; at most (max_epsilon, delta), or (epsilon, delta).
    Adjacency: add/remove of one row, or of all rows of one id.
    Sensitivity: L2, clip plus the rounding of the sum to the lattice.
    Accuracy: if the score is reached, so it is on the rows held out, with probability 1 - failure_probability; or on the
        public rows, surely.
    Numerics: noise and sampling are exact; gradients are computed in the model's floats, see docs/known-limits.md.
    Reference: ACG16, Algorithm 1; docs/proofs/sgd-stopping.md; docs/proofs/sgd-torch.md.

    Examples
    --------
    >>> inputs = torch.linspace(-1, 1, 4000).reshape(-1, 1)
    >>> labels = (inputs[:, 0] > 0).long()
    >>> release = train(nn.Linear(1, 2), (inputs, labels), rows=4000, epsilon=1.0, steps=20, batches="full")
    >>> float((release.value(inputs).argmax(1) == labels).float().mean()) > 0.9
    True
    """
    ids = _read_unit(unit, max_rows_per_unit, data, checkpoint)
    count = _read_row_count(rows, data, ids)
    order = TrainingOrder(
        rows=count,
        delta=delta,
        epsilon=epsilon,
        noise_multiplier=noise_multiplier,
        score=score,
        max_epsilon=max_epsilon,
        failure_probability=failure_probability,
        batches=batches,
        batch_size=batch_size,
        usual_batch=usual_batch_size(int(count)) if _is_count(count) else None,
        steps=_choose_steps(steps, count, batches, batch_size, stopped=score is not None),
        open_ended=steps is None,
        phases=phases,
        validation_share=validation_share,
        public_test=public_validation is not None,
        accountant=accountant,
        falling=False,  # early, noisy steps have lasting effects on a network, unlike on a convex model
    )
    course = order.plan_course()
    # What is read of the training rows on the way shows whether a score is out of reach.
    watched = check_flag(progress, "progress") or score is not None
    problem = _make_problem(
        model,
        loss,
        clip,
        optimizer,
        scheduler,
        learning_rate,
        averaging,
        watched,
        device,
        course.schedule,
        order.steps if order.is_open else course.schedule.steps,
    )
    # From shapes and synthetic rows alone, so that misfits are refused before they are paid for.
    table = replace(_make_table(problem, data), by_person=ids is not None)
    _check_noise(table, course.schedule)
    if table.classes == 1 and isinstance(problem.loss, KnownLabels):
        raise InvalidRequest(
            "Expected a model with one output per class", got="one output", do="Give it two, or pass your own loss"
        )
    rule = public = None
    if course.target is not None:
        if not table.classes:
            raise InvalidRequest("Expected one class index per row for an accuracy", do="Pass labels, or an epsilon")
        if course.target.measure is not Measure.ACCURACY:
            raise InvalidRequest(
                "Expected a score of accuracy", got=course.target.measure.value, do='Pass score=("accuracy", 0.95)'
            )
        rule = ScoreRule.of(course.target)
        if public_validation is not None:
            tested = _read_public(table, public_validation)
            public = PublicTest(rule, tested, len(tested))
    protected = Unit.row() if ids is None else Unit.of(ids.name)
    query = UnitTraining.along(
        course,
        unit=protected,
        question=f"train {type(problem.model).__name__}",
        ids=ids,
        table=lambda _: table,
        rule=rule,
        public=public,
        terms={
            "weights": sum(part.numel() for part in problem.model.parameters() if part.requires_grad),
            "clip": problem.clip,
            "averaging": problem.averaging,
            "settings": hash_problem(problem),
            **({} if ids is None else {"rows of a person": "all" if ids.most is None else f"at most {ids.most}"}),
        },
        progress=RichProgress if progress else None,
        watch=Watch() if problem.watched else None,
        patience=usual_price(order.rows) / _PATIENCE if order.is_open else Fraction(0),
    )
    try:
        return pay_for_query(
            query,
            data,
            ledger=ledger,
            account=_ACCOUNT if account is None else account,
            simulation_seed=simulation_seed,
            adjacency=Adjacency.ADD_REMOVE,
            unit=protected,
            run=partial(run_training, checkpoint=checkpoint),
        )
    except TargetNotMet as missed:
        if "stopped" in missed.receipt.terms:
            raise
        usual = clip is None and learning_rate is None and optimizer is None
        advice = advise_after_miss(query, cap=float(course.prices.cap.epsilon), usual=usual)
        raise TargetNotMet(f"{missed} {advice}", missed.release) from None


def _read_unit(unit: Any, most: Any, data: Any, checkpoint: Any) -> PersonIds | None:
    """Read ids of persons, of which there must be one for each row."""
    if unit is None:
        if most is not None:
            raise InvalidRequest("Expected unit together with max_rows_per_unit", do="Pass one id per row as unit")
        return None
    if checkpoint is not None:
        raise InvalidRequest(
            "Expected no checkpoint together with unit",
            do="Leave it out: which rows persons keep is drawn again in every run",
        )
    ids = PersonIds.read(unit, most)
    if len(ids) != len(read_rows(data)):
        raise InvalidRequest("Expected one id for each row", do="Pass unit with as many entries as there are rows")
    return ids


def _choose_steps(steps: Any, rows: Any, batches: Any, batch_size: Any, *, stopped: bool) -> Any:
    """Return the number of steps that was given, or the usual one for these rows and batches."""
    if steps is not None:
        return steps
    if not _is_count(rows) or not (batch_size is None or _is_count(batch_size)):
        return 1  # TrainingOrder refuses what is wrong
    if batches in ("full", "auto"):
        return usual_steps(int(rows), int(rows))
    size = usual_batch_size(int(rows)) if batch_size is None else int(batch_size)
    return usual_steps(int(rows), size, stopped=stopped)


def _is_count(number: Any) -> bool:
    """Return whether a number is one that ``TrainingOrder`` takes for rows."""
    return not isinstance(number, bool) and isinstance(number, Integral) and int(number) > 0


def _read_row_count(rows: int | str, data: Any, ids: PersonIds | None) -> int:
    if isinstance(rows, str) and rows == "observed":
        # The caller declares the number of rows public; only then may it be read from the data.
        return len(read_rows(data)) if ids is None else ids.count_persons()
    if isinstance(rows, str):
        raise InvalidRequest("Expected rows to be a public number", got=rows, do='Pass rows=60_000, or "observed"')
    return rows


def _make_problem(
    model: Any,
    loss: Any,
    clip: Any,
    optimizer: Any,
    scheduler: Any,
    learning_rate: Any,
    averaging: Any,
    watched: bool,
    device: Any,
    schedule: Schedule,
    steps: int,
) -> ModuleProblem:
    """Check the public arguments and move the model to its device."""
    _check_module(model)
    place = _choose_device(model, device)
    for name, given in (("loss", loss), ("optimizer", optimizer), ("scheduler", scheduler)):
        if given is not None and not callable(given):
            raise InvalidRequest(
                f"Expected {name} to be a function", got=type(given).__name__, do="Pass one, or leave it out"
            )
    usual = optimizer is None and learning_rate is None
    if clip is None:
        clip = USUAL_CLIP if usual else 1.0
    length = float(rational(clip, "clip"))
    if not _LEAST_CLIP <= length <= 1 / _LEAST_CLIP:
        raise InvalidRequest(f"Expected a clip from {_LEAST_CLIP} to {1 / _LEAST_CLIP}", got=clip, do="Scale the loss")
    if learning_rate is None:
        rate = usual_rate(
            clip=length,
            noise_multiplier=float(schedule.phases[0].noise_multiplier),
            batch_size=float(schedule.batches.expected_size),
            weights=sum(part.numel() for part in model.parameters() if part.requires_grad),
        )
    else:
        rate = float(rational(learning_rate, "learning_rate"))
    if scheduler is None and usual:
        scheduler = partial(FallingRate, steps=steps)
    given = loss
    if isinstance(loss, nn.modules.loss._Loss) and loss.reduction == "mean":  # PyTorch's default
        given = copy.copy(loss)
        given.reduction = "none"
    row_loss = _cross_entropy if given is None else given
    problem = ModuleProblem(
        model=model.to(place),
        loss=KnownLabels(given) if isinstance(given, nn.CrossEntropyLoss | nn.NLLLoss) else row_loss,
        clip=length,
        optimizer=optimizer or make_usual_optimizer(rate),
        scheduler=scheduler,
        averaging=float(rational(averaging, "averaging", positive=False)),
        device=place,
        watched=watched and loss is None,
    )
    _check_optimizer(problem, schedule.steps)
    return problem


def _check_module(model: Any) -> None:
    """Raise ``InvalidRequest`` for a model that cannot be trained."""
    if not isinstance(model, nn.Module):
        raise InvalidRequest("Expected a torch.nn.Module", got=type(model).__name__, do="Pass a model")
    for name, part in model.named_modules():
        if isinstance(part, torch.jit.ScriptModule) or hasattr(part, "_orig_mod"):
            raise InvalidRequest(
                f"Expected a plain torch.nn.Module; {f'layer {name!r}' if name else 'the model'} is compiled",
                got=type(part).__name__,
                do="Pass the model without torch.compile or torch.jit, and compile the release",
            )
    if any(nn.parameter.is_lazy(part) for part in (*model.parameters(), *model.buffers())):
        raise InvalidRequest(
            "Expected a model whose layers have their sizes", do="Run a lazy model once on synthetic rows"
        )
    if not any(part.requires_grad for part in model.parameters()):
        raise InvalidRequest("Expected a model with weights to train", do="Set requires_grad on some of them")
    for name, weights in model.named_parameters():
        if weights.requires_grad and weights.is_complex():
            raise InvalidRequest(
                "Expected real weights to train",
                got=f"complex ones in {name!r}",
                do="Hold real and imaginary parts as two parameters, or freeze them",
            )
    if not all(bool(part.isfinite().all()) for part in model.parameters()):
        raise InvalidRequest("Expected finite weights", do="Initialize the model again")


def _choose_device(model: nn.Module, device: Any) -> torch.device:
    if device is None:
        return next(model.parameters()).device
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError):
        raise InvalidRequest("Expected a device that this PyTorch has", got=device, do='Pass "cpu"') from None
    return place


def _check_optimizer(problem: ModuleProblem, steps: int) -> None:
    """Make an optimizer and take a step, to find out before the charge whether that works; so with a scheduler."""
    try:
        made = make_stand_in(problem)
        if isinstance(made, torch.optim.Optimizer):
            made.step()  # some need more than gradients
    except Exception as error:
        # Shown in full: stand-ins for the weights have their shapes, and nothing of the rows.
        raise InvalidRequest(
            "Expected an optimizer that takes these parameters and steps by their gradients alone",
            got=f"{type(error).__name__}: {error}",
            do=_OPTIMIZER_HINT,
        ) from None
    if not isinstance(made, torch.optim.Optimizer):
        raise InvalidRequest(
            "Expected optimizer to make a torch.optim.Optimizer", got=type(made).__name__, do=_OPTIMIZER_HINT
        )
    if problem.scheduler is not None:
        try:
            scheduled = problem.scheduler(made)
        except Exception:
            scheduled = None
        check_scheduler(scheduled, steps)


def _make_table(problem: ModuleProblem, data: Any) -> ModuleTable:
    """Return the rows with their gradients. Errors of PyTorch are not repeated: they could show what is in the rows."""
    try:
        return problem.table(read_rows(data))
    except ExpostError:
        raise
    except Exception:
        raise InvalidRequest(
            "Expected rows of numbers, all of one shape, and a target for each",
            do="Pass (inputs, targets), a torch.utils.data.Dataset or a DataLoader",
        ) from None


def _read_public(table: ModuleTable, data: Any) -> NetworkRows:
    """Read public rows to test a model on, of the shapes and types of the private ones."""
    if isinstance(data, tuple | list):
        check_unmasked(*data)
    rows: NetworkRows | None = None
    try:
        found = read_rows(data)
        (inputs, targets), (known, classes) = found.empty_batch(), table.rows.empty_batch()
        shapes = [part.shape[1:] for part in input_parts(inputs)], [part.shape[1:] for part in input_parts(known)]
        names = [part.names if isinstance(part, SeveralInputs) else None for part in (inputs, known)]
        if shapes[0] == shapes[1] and names[0] == names[1] and targets.shape == classes.shape:
            rows = TypedRows(found, (known, classes))
    except Exception:
        rows = None
    if rows is None:
        raise InvalidRequest(
            "Expected public_validation to have the form of the private rows",
            do="Pass (inputs, labels) of those shapes",
        )
    return rows


def _check_noise(table: ModuleTable, schedule: Schedule) -> None:
    """Raise ``InvalidRequest`` for noise that the lattice cannot represent; reads no rows."""
    learner = table.learner(slice(None), None)
    for phase in schedule.phases:
        # Always as if watched, so that progress=True does not decide what is refused.
        wider = replace(phase, noise_multiplier=phase.noise_multiplier * Watch().factor(2))
        sensitivity = learner.open(wider, float(schedule.batches.expected_size))
        try:
            gaussian_table(stream_variance(Fraction(wider.noise_multiplier), sensitivity))
        except InvalidRequest:
            raise InvalidRequest(
                "Expected a noise multiplier that the lattice can represent",
                got=float(phase.noise_multiplier),
                do="Raise epsilon, or take fewer steps",
            ) from None
