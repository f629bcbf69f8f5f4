"""Planted faults: a mechanism with too little noise, to measure which faults its attack detects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, wraps
from pkgutil import resolve_name
from typing import Any
from unittest.mock import patch

from expost.core import InvalidRequest


@dataclass(frozen=True)
class Noise:
    """A place in the package that decides how much noise is drawn.

    ``where`` is the dotted name of a function, a method or a property whose result is a scale (``power`` 1), a variance
    (2) or a rate (-1). With ``argument`` it is not the result but that argument of the call, counted without ``self``.

    >>> from expost.core import Sensitivity
    >>> from expost.noise import LaplaceMechanism
    >>> with planted([Noise("expost.noise.mechanism.LaplaceMechanism.scale")], Fraction(1, 2)):
    ...     LaplaceMechanism(1).scale(Sensitivity(1))
    Fraction(1, 2)
    """

    where: str
    power: int = 1
    argument: int | None = None

    @contextmanager
    def scaled(self, factor: Fraction) -> Iterator[None]:
        """Multiply the scale of this noise by the factor, in this block."""
        owner, name = self.place
        kept = vars(owner)[name]
        times = factor**self.power
        if isinstance(kept, property):
            assert kept.fget is not None
            changed: Any = property(self._scale_call(kept.fget, times))
        elif isinstance(kept, cached_property):
            changed = property(self._scale_call(kept.func, times))
        elif isinstance(kept, classmethod):
            changed = classmethod(self._scale_call(kept.__func__, times, skip=1))
        else:
            changed = self._scale_call(kept, times, skip=int(isinstance(owner, type)))
        with patch.object(owner, name, changed):
            yield

    @property
    def place(self) -> tuple[Any, str]:
        """The module or class that holds it, and its name there."""
        parent, _, name = self.where.rpartition(".")
        with suppress(ImportError, AttributeError, ValueError):
            owner = resolve_name(parent)
            if name in getattr(owner, "__dict__", {}):
                return owner, name
        raise InvalidRequest("Expected the dotted name of what decides a noise", got=self.where, do="Name its module")

    def _scale_call(self, function: Callable[..., Any], times: Fraction, skip: int = 0) -> Callable[..., Any]:
        """Wrap a function so that its result, or one of its arguments, is multiplied."""

        def scale_value(value: Any) -> Any:
            return value * (float(times) if isinstance(value, float) else times)

        @wraps(function)
        def call_scaled(*arguments: Any, **options: Any) -> Any:
            if self.argument is None:
                return scale_value(function(*arguments, **options))
            place = self.argument + skip
            moved = (*arguments[:place], scale_value(arguments[place]), *arguments[place + 1 :])
            return function(*moved, **options)

        return call_scaled


@contextmanager
def planted(noises: Sequence[Noise], factor: Fraction) -> Iterator[None]:
    """Multiply all these noises by a factor: 9/10 is a tenth too little noise."""
    with ExitStack() as stack:
        for noise in noises:
            stack.enter_context(noise.scaled(Fraction(factor)))
        yield


LAPLACE = (Noise("expost.noise.mechanism.LaplaceMechanism.scale"),)
GAUSSIAN = (Noise("expost.noise.mechanism.GaussianMechanism.variance", power=2),)
SPHERICAL = (Noise("expost.noise.spherical_noise.SphericalLaplaceMechanism.scale"),)
PATHS = (Noise("expost.noise.jump_noise.JumpNoise.draw", argument=1),)
"""Discrete Laplace and geometric paths; the argument is the sensitivity that their scales are made of."""
GAUSSIAN_PATH = (Noise("expost.noise.gaussian_path.GaussianPath._variance", power=2),)
GAUSSIAN_STREAM = (Noise("expost.noise.gaussian_stream.stream_variance", power=2),)
RADIAL = (Noise("expost.noise.spherical_noise.check_norm"),)
CHOICES = (
    Noise("expost.noise.selection_mechanism.ExponentialMechanism.rate", power=-1),
    Noise("expost.noise.selection_mechanism.PermuteAndFlip.rate", power=-1),
    Noise("expost.noise.selection_mechanism.NoisyMax.scale"),
)
RECORDS = (Noise("expost.noise.exponential_quantile.ExponentialQuantile.rate", power=-1),)
RESPONSE = (Noise("expost.noise.mechanism.sample_bernoulli_exp", power=-1, argument=0),)
SMOOTH = (Noise("expost.noise.smooth_sensitivity.SmoothNoise.steepness"),)
PROPOSED = (Noise("expost.noise.propose_test_release.sample_laplace", argument=0),)
ABOVE_THRESHOLD = (
    Noise("expost.noise.above_threshold.AboveThreshold.threshold_scale"),
    Noise("expost.noise.above_threshold.AboveThreshold.query_scale"),
)
REDUCED = (
    *PATHS,
    Noise("expost.noise.rising_threshold.ReducedAboveThreshold.query_scale"),
    Noise("expost.noise.rising_threshold.RenewedThreshold.threshold_scale"),
    Noise("expost.noise.rising_threshold.RenewedThreshold.query_scale"),
)
TILTS = (
    Noise("expost.models.linear.tilted_risk.LaplaceTilt.scale_at"),
    Noise("expost.models.linear.tilted_risk.SphericalTilt.scale_at"),
    Noise("expost.models.linear.tilted_risk.GaussianTilt.deviation_at"),
)
