"""Private training of a PyTorch model: to an accuracy, at an epsilon, or with a given noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from expost.answer import answer
from expost.core import Adjacency, InvalidRequest, Measure, Release, Target, Unit
from expost.core.rational import rational
from expost.ledger import Protected
from expost.ledger.opening import ledger_with_account
from expost.models.descent.checkpoint import Checkpoint
from expost.models.descent.order import Order, Plan
from expost.models.descent.progress import RichProgress
from expost.models.descent.request import TrainingRequest
from expost.models.descent.resumable import train_resumably
from expost.models.descent.stop_test import PublicTest
from expost.models.descent.validation import ScoreRule
from expost.models.descent.watch import Watch
from expost.noise import BitSource, SeededBits, system_bits
from expost.torch.checks import (
    check_module,
    check_noise,
    check_optimizer,
    checked_call,
    checked_clip,
    checked_public,
    checked_table,
    chosen_device,
)
from expost.torch.loss_tap import KnownLabels, Loss
from expost.torch.module_learner import ModuleProblem, ModuleTable
from expost.torch.rows import read_rows
from expost.torch.settings import settings_of

__all__ = ["train"]

_ACCOUNT = "dataset:table"
_BATCH = 1024  # rows of a batch, where there are as many


def train(
    model: nn.Module,
    data: Any,
    *,
    rows: int | str,
    target: tuple[str, float] | None = None,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    max_epsilon: float = 1.0,
    delta: float = 1e-6,
    failure_probability: float = 0.1,
    loss: Loss | None = None,
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
    """Train ``model`` in place and release it with a receipt; stops by itself once a ``target`` is reached.

    ``data`` is a pair of arrays or tensors, a ``Dataset`` or a ``DataLoader``, whose own sampler and batch size are not
    used: batches are drawn by exact coins. ``rows`` is a public number, about how many rows there are;
    ``rows="observed"`` says that the true number is public. ``loss`` gives one loss a row (default: cross-entropy).
    ``optimizer`` makes an optimiser of parameters; it sees noisy gradients only. Models must treat rows
    independently: batch normalisation is refused. ``TargetNotMet`` carries the last private model. With
    ``public_validation``, inputs and labels that are nobody's secret, the target is tested on them, exactly and for free,
    and no private row is held out.

    Guarantee: that of expost.models.descent.trainer.Trainer: approximate ex-post, known only after the run, the price of
        the phase it stopped in; at most (max_epsilon, delta), or (epsilon, delta).
    Adjacency: add/remove of one row.
    Sensitivity: L2, clip plus the rounding of the sum to the lattice.
    Accuracy: if the target is met, so it is on the rows held out, with probability 1 - failure_probability; or on the
        public rows, surely.
    Numerics: noise and sampling are exact; gradients are computed in the model's floats, see docs/known-limits.md.
    Reference: ACG16, Algorithm 1; docs/proofs/sgd-stopping.md; docs/proofs/sgd-torch.md.

    >>> inputs = torch.linspace(-1, 1, 4000).reshape(-1, 1)
    >>> labels = (inputs[:, 0] > 0).long()
    >>> release = train(nn.Linear(1, 2), (inputs, labels), rows=4000, epsilon=1.0, steps=20, batches="full")
    >>> float((release.value(inputs).argmax(1) == labels).float().mean()) > 0.9
    True
    """
    order = Order(
        rows=_public_rows(rows, data),
        delta=delta,
        epsilon=epsilon,
        noise_multiplier=noise_multiplier,
        target=target,
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
        falling=False,  # networks do not forget what early, noisy steps did to them
    )
    plan = order.plan()
    check_module(model)
    if not isinstance(progress, bool):
        raise InvalidRequest("Expected progress to be True or False", got=progress, do="Pass one of them")
    place = chosen_device(model, device)
    rate = float(rational(learning_rate, "learning_rate"))
    problem = ModuleProblem(
        model=model.to(place),
        loss=_row_loss(loss),
        clip=checked_clip(clip),
        optimizer=(lambda parameters: torch.optim.SGD(parameters, lr=rate, momentum=0.9))
        if optimizer is None
        else checked_call(optimizer, "optimizer"),
        averaging=float(rational(averaging, "averaging", positive=False)),
        device=place,
        watched=progress and loss is None,
    )
    check_optimizer(problem)
    # From shapes and made-up rows alone, so that what does not fit together is refused before it is paid for.
    table = checked_table(problem, data)
    check_noise(table, plan.schedule)
    if table.classes == 1 and isinstance(problem.loss, KnownLabels):
        raise InvalidRequest(
            "Expected a model with one output a class", got="one output", do="Give it two, or pass a loss of your own"
        )
    if plan.target is not None and not table.classes:
        raise InvalidRequest("Expected one class number a row for an accuracy", do="Pass labels, or an epsilon")
    request = _request(plan, problem, table, progress)
    if public_validation is not None:
        rows_tested = checked_public(table, public_validation)
        request = replace(request, public=PublicTest(_rule(order.aim()), rows_tested, len(rows_tested)))
    return _paid(request, data, ledger, _ACCOUNT if account is None else account, checkpoint, simulation_seed)


def _request(plan: Plan, problem: ModuleProblem, table: ModuleTable, progress: bool) -> TrainingRequest:
    batches = plan.schedule.batches
    return TrainingRequest(
        question=f"train {type(problem.model).__name__}",
        schedule=plan.schedule,
        prices=plan.prices,
        table=lambda _: table,
        target=plan.target,
        rule=None if plan.target is None else _rule(plan.target),
        validation_share=plan.validation_share,
        terms={
            "batches": type(batches).__name__.lower(),
            "expected batch size": float(batches.expected_size),
            "rows (public)": batches.rows,
            "weights": sum(part.numel() for part in problem.model.parameters() if part.requires_grad),
            "clip": problem.clip,
            "averaging": problem.averaging,
            "settings": settings_of(problem),
        },
        progress=RichProgress if progress else None,
        watch=Watch() if problem.watched else None,
    )


def _rule(target: Target) -> ScoreRule:
    if target.measure is not Measure.ACCURACY:
        raise InvalidRequest("Expected a target of accuracy", got=target.measure.value, do='Pass ("accuracy", 0.95)')
    return ScoreRule.of(target)


def _paid(
    request: TrainingRequest, data: Any, url: str | None, account: str, checkpoint: str | None, seed: int | None
) -> Release[nn.Module]:
    bits: BitSource = system_bits() if seed is None else SeededBits(seed)
    ledger = ledger_with_account(url, account, promise=request.worst_case.promise())
    terms: dict[str, Any] = {
        "ledger": ledger,
        "accounts": (account,),
        "bits": bits,
        "simulation": seed is not None,
        "protected": Protected(ledger.root_of(account), Adjacency.ADD_REMOVE, Unit.row()),
    }
    try:
        if checkpoint is not None:
            return train_resumably(request, data, checkpoint=Checkpoint(checkpoint), **terms)
        return answer(request, data, **terms)
    finally:
        ledger.close()


def _public_rows(rows: int | str, data: Any) -> int:
    if isinstance(rows, str) and rows == "observed":
        # The caller says that the number of rows is public; only then may it be read off the data.
        return len(read_rows(data))
    if isinstance(rows, str):
        raise InvalidRequest("Expected rows to be a public number", got=rows, do='Pass rows=60_000, or "observed"')
    return rows


_cross_entropy = KnownLabels(nn.CrossEntropyLoss(reduction="none"))


def _row_loss(loss: Any) -> Loss:
    if loss is None:
        return _cross_entropy
    known = checked_call(loss, "loss")
    return KnownLabels(known) if isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss) else known
