"""Private training of a PyTorch model: to an accuracy, at an epsilon, or with a given noise."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from expost.core import Adjacency, ExpostError, InvalidRequest, Measure, Release, explain_arguments, share_parameters
from expost.core.argument import check_unmasked
from expost.core.rational import rational
from expost.models.descent.gradient_model import PrivateGradientModel
from expost.models.descent.stopping_test import PublicTest, ScoreRule
from expost.models.descent.training_checkpoint import hash_settings
from expost.models.descent.training_order import TrainingOrder
from expost.models.descent.training_query import TrainingPlan, run_training
from expost.models.descent.training_schedule import Schedule
from expost.models.descent.training_watch import RichProgress, Watch
from expost.models.estimator import FITTED_ROWS, PrivateEstimator, check_flag, pay_for_query
from expost.noise.gaussian_stream import gaussian_table, stream_variance
from expost.torch.loss_tap import KnownLabels, NetworkLoss
from expost.torch.module_learner import ModuleProblem, ModuleTable
from expost.torch.network_rows import NetworkRows, TypedRows, read_rows

__all__ = ["hash_problem", "train"]

_ACCOUNT = "dataset:table"
_BATCH = 1024  # default batch size
_LEAST_CLIP = 1e-12  # squares of float32 can tell it from zero
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # in the default text of an object: it differs between processes
_PLAIN = (bool, int, float, str, type(None))
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
    clip: float = 1.0,
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None,
    learning_rate: float = 0.5,
    averaging: float = 8.0,
    batches: str = "poisson",
    batch_size: int | None = None,
    steps: int = 200,
    phases: int | None = None,
    validation_share: float | None = None,
    public_validation: Any = None,
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
    be independent in the model: batch normalization is refused. That is checked on synthetic rows.

    Parameters
    ----------
    model : torch.nn.Module
        The model. Its weights are the public start of the training.
    data : (inputs, targets), torch.utils.data.Dataset or DataLoader
        The private rows, arrays or tensors. The sampler and batch size of a loader are not used: batches are drawn by
        exact coins.
    score : ("accuracy", number), optional
        The accuracy to reach, ``("accuracy", 0.95)``. Training stops as soon as a private test on rows held out passes,
        at a bill of at most ``max_epsilon``.
    noise_multiplier : float, optional
        Train with this noise, in units of the clip.
    loss : callable, optional
        Maps outputs and targets of a batch to one loss per row. Default: cross-entropy.
    clip : float, default 1.0
        The largest Euclidean norm of a row's gradient.
    optimizer : callable, optional
        Makes an optimizer of a list of parameters; it sees noisy gradients only. Default: SGD with momentum 0.9.
    learning_rate : float, default 0.5
        The step size of the default optimizer.
    batches : {"poisson", "disjoint", "full", "auto"}, default "poisson"
        How the rows of a step are drawn.
    batch_size : int, optional
        Expected number of rows of a batch. Default: 1024, or all rows if there are fewer.
    steps : int, default 200
        Number of steps.
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
    Adjacency: add/remove of one row.
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
    order = TrainingOrder(
        rows=_read_row_count(rows, data),
        delta=delta,
        epsilon=epsilon,
        noise_multiplier=noise_multiplier,
        score=score,
        max_epsilon=max_epsilon,
        failure_probability=failure_probability,
        batches=batches,
        batch_size=batch_size,
        usual_batch=_BATCH,
        steps=steps,
        phases=phases,
        validation_share=validation_share,
        public_test=public_validation is not None,
        accountant=accountant,
        falling=False,  # early, noisy steps have lasting effects on a network, unlike on a convex model
    )
    course = order.plan_course()
    problem = _make_problem(model, loss, clip, optimizer, learning_rate, averaging, progress, device)
    # From shapes and synthetic rows alone, so that misfits are refused before they are paid for.
    table = _make_table(problem, data)
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
    query = TrainingPlan.along(
        course,
        question=f"train {type(problem.model).__name__}",
        table=lambda _: table,
        rule=rule,
        public=public,
        terms={
            "weights": sum(part.numel() for part in problem.model.parameters() if part.requires_grad),
            "clip": problem.clip,
            "averaging": problem.averaging,
            "settings": hash_problem(problem),
        },
        progress=RichProgress if progress else None,
        watch=Watch() if problem.watched else None,
    )
    return pay_for_query(
        query,
        data,
        ledger=ledger,
        account=_ACCOUNT if account is None else account,
        simulation_seed=simulation_seed,
        adjacency=Adjacency.ADD_REMOVE,
        run=partial(run_training, checkpoint=checkpoint),
    )


def _read_row_count(rows: int | str, data: Any) -> int:
    if isinstance(rows, str) and rows == "observed":
        # The caller declares the number of rows public; only then may it be read from the data.
        return len(read_rows(data))
    if isinstance(rows, str):
        raise InvalidRequest("Expected rows to be a public number", got=rows, do='Pass rows=60_000, or "observed"')
    return rows


def _make_problem(
    model: Any, loss: Any, clip: Any, optimizer: Any, learning_rate: Any, averaging: Any, progress: Any, device: Any
) -> ModuleProblem:
    """Check the public arguments and move the model to its device."""
    _check_module(model)
    watched = check_flag(progress, "progress")
    place = _choose_device(model, device)
    rate = float(rational(learning_rate, "learning_rate"))
    for name, given in (("loss", loss), ("optimizer", optimizer)):
        if given is not None and not callable(given):
            raise InvalidRequest(
                f"Expected {name} to be a function", got=type(given).__name__, do="Pass one, or leave it out"
            )
    length = float(rational(clip, "clip"))
    if not _LEAST_CLIP <= length <= 1 / _LEAST_CLIP:
        raise InvalidRequest(f"Expected a clip from {_LEAST_CLIP} to {1 / _LEAST_CLIP}", got=clip, do="Scale the loss")
    row_loss = _cross_entropy if loss is None else loss
    problem = ModuleProblem(
        model=model.to(place),
        loss=KnownLabels(loss) if isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss) else row_loss,
        clip=length,
        optimizer=optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=rate, momentum=0.9)),
        averaging=float(rational(averaging, "averaging", positive=False)),
        device=place,
        watched=watched and loss is None,
    )
    _check_optimizer(problem)
    return problem


def _check_module(model: Any) -> None:
    """Raise ``InvalidRequest`` for a model that cannot be trained."""
    if not isinstance(model, nn.Module):
        raise InvalidRequest("Expected a torch.nn.Module", got=type(model).__name__, do="Pass a model")
    if any(nn.parameter.is_lazy(part) for part in (*model.parameters(), *model.buffers())):
        raise InvalidRequest(
            "Expected a model whose layers have their sizes", do="Run a lazy model once on synthetic rows"
        )
    if not any(part.requires_grad for part in model.parameters()):
        raise InvalidRequest("Expected a model with weights to train", do="Set requires_grad on some of them")
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


def _make_optimizer(problem: ModuleProblem) -> Any:
    """Make an optimizer of stand-ins for the weights, with gradients of zero."""
    stand_ins = [nn.Parameter(torch.zeros_like(part)) for part in problem.model.parameters() if part.requires_grad]
    for part in stand_ins:
        part.grad = torch.zeros_like(part)
    return problem.optimizer(stand_ins)


def _check_optimizer(problem: ModuleProblem) -> None:
    """Make an optimizer and take a step, to find out before the charge whether that works."""
    try:
        made = _make_optimizer(problem)
        if isinstance(made, torch.optim.Optimizer):
            made.step()  # some need more than gradients
    except Exception:
        raise InvalidRequest(
            "Expected optimizer to make an optimizer of a list of parameters", do=_OPTIMIZER_HINT
        ) from None
    if not isinstance(made, torch.optim.Optimizer):
        raise InvalidRequest(
            "Expected optimizer to make a torch.optim.Optimizer", got=type(made).__name__, do=_OPTIMIZER_HINT
        )


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
        if inputs.shape[1:] == known.shape[1:] and targets.shape == classes.shape:
            rows = TypedRows(found, known.dtype, classes.dtype)
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


def hash_problem(problem: ModuleProblem) -> str:
    """Return a hash of layers, fixed weights, loss and optimizer, stable across processes.

    It covers what a step depends on besides rows and noise. Of a function only the name is known.
    """
    weights = dict(problem.model.named_parameters())
    fixed: dict[str, Tensor] = {name: part for name, part in weights.items() if not part.requires_grad}
    fixed |= dict(problem.model.named_buffers())
    made = _make_optimizer(problem)
    groups = [
        {name: _describe_value(value) for name, value in group.items() if name != "params"}
        for group in made.param_groups
    ]
    settings = {
        "model": _ADDRESS.sub("", repr(problem.model)),
        "weights": [(name, [*part.shape], str(part.dtype)) for name, part in weights.items()],
        "fixed": {name: _hash_tensor(part) for name, part in fixed.items()},
        "loss": _describe_loss(problem.loss.inner if isinstance(problem.loss, KnownLabels) else problem.loss),
        "optimizer": [type(made).__name__, groups],
    }
    return hash_settings(settings)


def _describe_value(value: Any) -> Any:
    """Return a number or several; of anything else its type."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [_describe_value(each) for each in value]
    return value if isinstance(value, _PLAIN) else type(value).__name__


def _describe_loss(loss: Any) -> Any:
    """Return the name of a function; the class and the numbers of an object."""
    name = getattr(loss, "__qualname__", None)
    if name is not None:
        return f"{loss.__module__}.{name}"
    numbers = {name: _describe_value(value) for name, value in vars(loss).items() if not name.startswith("_")}
    weights = loss.state_dict() if isinstance(loss, nn.Module) else {}
    return [type(loss).__name__, numbers, {name: _hash_tensor(part) for name, part in weights.items()}]


def _hash_tensor(values: Tensor) -> str:
    plain = values.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(plain.numpy().tobytes()).hexdigest()
