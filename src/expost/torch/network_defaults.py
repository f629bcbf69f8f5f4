"""Settings of a network's training that follow from public numbers: rows, noise, and the size of the model."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from expost.core import InvalidRequest

__all__ = [
    "USUAL_CLIP",
    "FallingRate",
    "check_scheduler",
    "make_usual_optimizer",
    "replay_scheduler",
    "usual_batch_size",
    "usual_rate",
    "usual_steps",
]

USUAL_CLIP = 0.1
"""Below the gradients of most rows: a step then counts rows, whatever the scale of a loss and its inputs."""

_SMALLEST_BATCH, _BATCH_ROOTS = 1024, 4  # batches of four roots of the number of rows are cheap and sampled well
_PASSES, _LEAST_STEPS, _MOST_STEPS, _FULL_STEPS = 10, 300, 5000, 100
_STOPPED = 2  # factor of passes that a test is expected to cut short
# The noise of the first step's update in one weight, times the fourth root of their number. Large steps learn fastest at
# the start and stop improving soon, small ones learn on; so steps fall from the one to far below the other. On networks of
# 22,000 and 26,000 weights half as large a start, or one twice as large that falls twice as fast, was worse; one of 106,000
# weights wants nearly the same rate as these, where the square root of the number of weights would halve it (docs/torch.md).
_STEP_NOISE = 0.026
_LARGEST_STEP = 1.6  # learning rate times clip: more is unstable whatever the noise
_FALL = 10.0
_MOMENTUM = 0.9
_SCHEDULER_HINT = "Pass lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 100)"


def usual_batch_size(rows: int) -> int:
    """Return a batch size for a public number of rows.

    >>> usual_batch_size(600), usual_batch_size(60_000), usual_batch_size(4_000_000)
    (600, 1024, 8000)
    """
    return min(rows, max(_SMALLEST_BATCH, _BATCH_ROOTS * math.isqrt(rows)))


def usual_steps(rows: int, batch_size: int, *, stopped: bool = False) -> int:
    """Return a number of steps: ten passes within limits, or fewer where every step reads all rows.

    Privacy hardly limits steps: at a given price the noise that adds up over the way that the weights go is the same
    for many small steps as for few large ones. If a test may stop the training, twice as many are planned: each then has
    more noise, and the first ones, which most trainings need only, cost less.

    >>> usual_steps(60_000, 1024), usual_steps(4_000, 1024), usual_steps(4_000, 4_000)
    (586, 300, 100)
    >>> usual_steps(60_000, 1024, stopped=True)
    1172
    """
    if batch_size >= rows:
        return _FULL_STEPS if rows > _SMALLEST_BATCH else _LEAST_STEPS
    passes = _PASSES * (_STOPPED if stopped else 1)
    return min(max(-(-passes * rows // batch_size), _LEAST_STEPS), _MOST_STEPS)


def usual_rate(*, clip: float, noise_multiplier: float, batch_size: float, weights: int) -> float:
    """Return a learning rate that falls with the noise of a step and, slowly, with the number of weights.

    A released mean has noise of deviation clip * noise_multiplier / batch_size in each of ``weights`` entries.

    >>> round(usual_rate(clip=0.1, noise_multiplier=2.0, batch_size=1024, weights=26_010), 1)
    10.5
    """
    noise = noise_multiplier / batch_size * weights**0.25
    return min(_STEP_NOISE / max(noise, 1e-9), _LARGEST_STEP) / clip


class FallingRate(LRScheduler):
    """A learning rate that falls as one over the number of steps: to half after a tenth of them, to 1/11 at the end."""

    def __init__(self, optimizer: torch.optim.Optimizer, steps: int) -> None:
        self.steps = steps
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        """Return the rate of each group."""
        factor = 1 / (1 + _FALL * self.last_epoch / self.steps)
        return [base * factor for base in self.base_lrs]


def make_usual_optimizer(rate: float) -> Callable[[list[nn.Parameter]], torch.optim.Optimizer]:
    """Return what makes the default optimizer."""
    return lambda parameters: torch.optim.SGD(parameters, lr=rate, momentum=_MOMENTUM)


def check_scheduler(made: Any, steps: int) -> None:
    """Raise ``InvalidRequest`` unless a scheduler follows the number of steps alone, and lasts for all of them."""
    if isinstance(made, ReduceLROnPlateau):
        raise InvalidRequest(
            "Expected a scheduler that follows the number of steps",
            got="ReduceLROnPlateau",
            do="It would need a private score after every step; pass StepLR, CosineAnnealingLR or OneCycleLR",
        )
    if not isinstance(made, LRScheduler):
        raise InvalidRequest(
            "Expected scheduler to make a torch.optim.lr_scheduler.LRScheduler",
            got=type(made).__name__,
            do=_SCHEDULER_HINT,
        )
    try:
        replay_scheduler(made, steps)
    except Exception:
        raise InvalidRequest(
            f"Expected a scheduler that lasts for all {steps} steps", do=f"Make it for {steps} steps, or set steps="
        ) from None


def replay_scheduler(made: Any, steps: int) -> None:
    """Bring a fresh scheduler to where it is after some steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no step of the optimizer comes before each
        for _ in range(steps):
            made.step()
