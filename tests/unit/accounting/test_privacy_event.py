"""Events are frozen, exact and refuse nonsense."""

from fractions import Fraction

import pytest

from expost.accounting import (
    ApproxEvent,
    DiscreteLaplaceEvent,
    ExPostEvent,
    GaussianEvent,
    LaplaceEvent,
    Parallel,
    PoissonSampled,
    PrivacyEvent,
    PureEvent,
    RenyiEvent,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
)
from expost.core import InvalidRequest


def test_a_decimal_is_taken_at_its_word() -> None:
    assert PureEvent(0.1).epsilon == Fraction(1, 10)


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        PureEvent(1).epsilon = Fraction(2)  # type: ignore[misc]


@pytest.mark.parametrize(
    "build",
    [
        lambda: PureEvent(-1),
        lambda: PureEvent(float("nan")),
        lambda: PureEvent("1"),  # type: ignore[arg-type]
        lambda: ApproxEvent(1, 1),
        lambda: GaussianEvent(0),
        lambda: LaplaceEvent(float("inf")),
        lambda: DiscreteLaplaceEvent(1, 0),
        lambda: DiscreteLaplaceEvent(1, True),
        lambda: RenyiEvent(((1, 1),)),
        lambda: RenyiEvent(((3, 1), (2, 1))),
        lambda: RenyiEvent(()),
        lambda: ExPostEvent(2, 1),
        lambda: PoissonSampled(1.5, PureEvent(1)),
        lambda: PoissonSampled(0.5, "pure"),  # type: ignore[arg-type]
        lambda: SampledWithoutReplacement(11, 10, PureEvent(1)),
        lambda: Sequence(PureEvent(1)),  # type: ignore[arg-type]
        lambda: Sequence([PureEvent(1), None]),  # type: ignore[list-item]
        lambda: Repeat(PureEvent(1), -1),
        lambda: Repeat(PureEvent(1), 1.5),  # type: ignore[arg-type]
        lambda: Parallel([PureEvent(1)], fixed_parts=1),  # type: ignore[arg-type]
    ],
)
def test_nonsense_is_refused(build: object) -> None:
    with pytest.raises(InvalidRequest, match="Expected"):
        build()  # type: ignore[operator]


def test_the_json_is_plain_and_exact() -> None:
    event = Repeat(PoissonSampled(Fraction(1, 3), GaussianEvent(1.1)), 7)

    assert event.to_json() == {
        "kind": "repeat",
        "event": {
            "kind": "poisson-sampled",
            "rate": "1/3",
            "event": {"kind": "gaussian", "noise_multiplier": "11/10"},
        },
        "count": 7,
    }


@pytest.mark.parametrize("data", [{}, {"kind": "no such event"}, {"kind": None}])
def test_unknown_json_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match="known event"):
        PrivacyEvent.from_json(data)


def test_json_that_would_be_nonsense_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="Expected epsilon"):
        PrivacyEvent.from_json({"kind": "pure", "epsilon": "-1"})


def test_numpy_numbers_are_numbers() -> None:
    np = pytest.importorskip("numpy")

    assert Repeat(GaussianEvent(np.float64(1.1)), np.int64(3)) == Repeat(GaussianEvent(1.1), 3)
