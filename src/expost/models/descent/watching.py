"""A training that is being watched: its numbers are released beside its gradients."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.core import Sensitivity
from expost.models.descent.batches import Batches, Poisson
from expost.models.descent.learner import Learner
from expost.models.descent.schedule import Phase
from expost.models.descent.watch import Reading, RunningReading, Watch
from expost.noise import BitSource
from expost.noise.gaussian_stream import GaussianStream

__all__ = ["Watching"]


class Watching:
    """Opens phases with room for the numbers, and makes a reading of those that were released.

    Guarantee: that of ``Watch``: a step's gradient and numbers are one Gaussian event of the phase's noise multiplier.
    Adjacency: add/remove of one row.
    Sensitivity: L2, of gradient and numbers together.
    Accuracy: none promised; a ``Reading`` says its standard deviation.
    Numerics: exact; integer sums and noise.
    Reference: docs/proofs/sgd-gradient.md (watching).
    """

    def __init__(self, watch: Watch, learner: Learner, batches: Batches, bits: BitSource) -> None:
        self._watch, self._learner, self._bits = watch, learner, bits
        self._count, zero_loss = learner.watchable
        self._running = RunningReading(zero_loss, scale=watch.scale)
        self._rows = float(batches.expected_size)
        # A sampled batch is not all rows: its mean strays by one over the root of its size at most.
        self._sampling = 1 / self._rows if isinstance(batches, Poisson) and batches.rate < 1 else 0.0
        self._height, self._deviation = 0, math.inf
        self._stream: GaussianStream | None = None
        self.released: NDArray[Any] = np.zeros(self._count)
        """The numbers of the last step as they were released, in lattice units."""

    def open(self, phase: Phase) -> Sensitivity:
        """Begin a phase; the sensitivity that the gradient's noise must be made for."""
        wider = replace(phase, noise_multiplier=phase.noise_multiplier * self._watch.factor(self._count))
        gradient = self._learner.open(wider, self._rows)
        joined, self._height = self._watch.joined(gradient, self._count), self._watch.height(gradient)
        self._learner.watch(self._height)
        noise = Fraction(phase.noise_multiplier)
        self._stream = GaussianStream(noise, joined, size=self._count, releases=phase.steps, bits=self._bits)
        self._deviation = float(noise * joined.amount) / (self._height * self._rows)
        return joined

    def look(self) -> None:
        """Release the numbers of the step that was measured last."""
        assert self._stream is not None
        self.released = self._stream.release(self._learner.watched())
        self._running.feed(
            self.released / self._height, rows=self._rows, noise=math.sqrt(self._deviation**2 + self._sampling)
        )

    @property
    def reading(self) -> Reading | None:
        """What the numbers so far say."""
        return self._running.reading
