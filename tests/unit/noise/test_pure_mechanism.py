"""Every mechanism of one epsilon reads it exactly, promises it and bills it."""

from collections.abc import Iterator
from fractions import Fraction

import pytest

from expost.core import InvalidRequest, PureGuarantee, PureLoss
from expost.noise import (
    ExponentialQuantile,
    LatticeBounds,
    SmoothInterquartileRange,
    SmoothQuantile,
    SmoothVariance,
)
from expost.noise.mechanism import PureMechanism

BOUNDED = (ExponentialQuantile, SmoothInterquartileRange, SmoothQuantile, SmoothVariance)
MORE = dict.fromkeys(BOUNDED, (LatticeBounds(0, 10),))


def mechanisms_below(kind: type) -> Iterator[type]:
    """Yield the classes that derive from a class, without the bases that they share."""
    for each in kind.__subclasses__():
        if not each.__name__.startswith("_"):
            yield each
        yield from mechanisms_below(each)


KINDS = sorted(mechanisms_below(PureMechanism), key=lambda kind: kind.__name__)


def test_there_are_several() -> None:
    assert {"LaplaceMechanism", "NoisyMax", "PermuteAndFlip", "RandomizedResponse"} <= {kind.__name__ for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_epsilon_is_read_exactly_promised_and_billed(kind: type[PureMechanism]) -> None:
    mechanism = kind(0.1, *MORE.get(kind, ()))

    assert mechanism.epsilon == Fraction(1, 10)
    assert mechanism.guarantee == PureGuarantee(Fraction(1, 10)) and mechanism.loss == PureLoss(Fraction(1, 10))
    assert repr(mechanism).startswith(f"{kind.__name__}(epsilon=Fraction(1, 10)")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0, -1, None, "1", float("nan"), True])
def test_what_is_no_epsilon_is_refused(kind: type[PureMechanism], epsilon: object) -> None:
    with pytest.raises(InvalidRequest, match="epsilon"):
        kind(epsilon, *MORE.get(kind, ()))
