"""What happened, as small frozen values: mechanisms write events, accountants read them, neither knows the other.

Every number is an exact rational and an event never changes its meaning once released, because ledgers keep its JSON.
A noise multiplier is the noise's scale divided by the sensitivity, under the adjacency of the account.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from numbers import Integral
from typing import Any, ClassVar

from expost.accounting.typed import curve_of
from expost.core.errors import InvalidRequest
from expost.core.rational import rational

__all__ = [
    "ApproxEvent",
    "ConcentratedEvent",
    "DiscreteGaussianEvent",
    "DiscreteLaplaceEvent",
    "Event",
    "ExPostEvent",
    "ExponentialEvent",
    "GaussianEvent",
    "LaplaceEvent",
    "Parallel",
    "PoissonSampled",
    "PureEvent",
    "RenyiEvent",
    "Repeat",
    "SampledWithoutReplacement",
    "Sequence",
]


@dataclass(frozen=True)
class Event:
    """Base of all events; a subclass with a ``kind`` joins the JSON format and the law tests by itself.

    >>> Event.from_json(GaussianEvent(1.1).to_json())
    GaussianEvent(noise_multiplier=Fraction(11, 10))
    """

    kind: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type[Event]]] = {}
    is_leaf: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        if cls.kind:
            Event.kinds[cls.kind] = cls

    def to_json(self) -> dict[str, Any]:
        """A JSON object without loss; rationals as ``"p/q"``."""
        return {"kind": self.kind} | {field.name: _encode(getattr(self, field.name)) for field in fields(self)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Event:
        """The event that ``to_json`` wrote."""
        name = data.get("kind") if isinstance(data, Mapping) else data
        kind = Event.kinds.get(str(name))
        if kind is None or not isinstance(data, Mapping):
            raise InvalidRequest("Expected a known event", got=name, do="Read it with a newer version")
        return kind(**{name: _decode(value) for name, value in data.items() if name != "kind"})

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _exact(self, *names: str, positive: bool = False) -> None:
        self._set(**{name: rational(getattr(self, name), name, positive=positive) for name in names})


@dataclass(frozen=True)
class PureEvent(Event):
    """Any mechanism that is epsilon-differentially private (DMNS06, Definition 1).

    >>> PureEvent(0.5)
    PureEvent(epsilon=Fraction(1, 2))
    """

    kind: ClassVar[str] = "pure"
    epsilon: Fraction

    def __post_init__(self) -> None:
        self._exact("epsilon")


@dataclass(frozen=True)
class ApproxEvent(Event):
    """Any mechanism that is (epsilon, delta)-differentially private (DKMMN06, Definition 1).

    >>> ApproxEvent(1, 1e-6).delta
    Fraction(1, 1000000)
    """

    kind: ClassVar[str] = "approx"
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        self._exact("epsilon", "delta")
        if self.delta >= 1:
            raise InvalidRequest("Expected delta below 1", got=self.delta, do="Pass a small delta such as 1e-6")


@dataclass(frozen=True)
class ConcentratedEvent(Event):
    """Any mechanism that is rho-zero-concentrated private (BS16, Definition 1.1).

    >>> ConcentratedEvent(0.5).rho
    Fraction(1, 2)
    """

    kind: ClassVar[str] = "zcdp"
    rho: Fraction

    def __post_init__(self) -> None:
        self._exact("rho")


@dataclass(frozen=True)
class RenyiEvent(Event):
    """Any mechanism with these Renyi divergences, as pairs of order and epsilon (Mir17, Definition 4).

    >>> RenyiEvent(((2, 0.1), (4, 0.3))).curve[0]
    (Fraction(2, 1), Fraction(1, 10))
    """

    kind: ClassVar[str] = "rdp"
    curve: tuple[tuple[Fraction, Fraction], ...]

    def __post_init__(self) -> None:
        curve = curve_of(self.curve)
        orders = [order for order, _ in curve]
        if not curve or orders[0] <= 1 or sorted(set(orders)) != orders:
            raise InvalidRequest("Expected increasing Renyi orders above 1", do="Sort the orders and drop repeats")
        self._set(curve=curve)


@dataclass(frozen=True)
class LaplaceEvent(Event):
    """Independent noise of density exp(-|z|/scale)/(2 scale) on each coordinate; multiplier = scale / l1 sensitivity.

    At equal l1 sensitivity one coordinate is the worst case (docs/proofs/laplace-domination.md).

    >>> LaplaceEvent(2).noise_multiplier
    Fraction(2, 1)
    """

    kind: ClassVar[str] = "laplace"
    noise_multiplier: Fraction

    def __post_init__(self) -> None:
        self._exact("noise_multiplier", positive=True)


@dataclass(frozen=True)
class GaussianEvent(Event):
    """Independent normal noise on each coordinate; multiplier = standard deviation / l2 sensitivity.

    >>> GaussianEvent(1.1).mu_squared
    Fraction(100, 121)
    """

    kind: ClassVar[str] = "gaussian"
    noise_multiplier: Fraction

    def __post_init__(self) -> None:
        self._exact("noise_multiplier", positive=True)

    @property
    def mu_squared(self) -> Fraction:
        """The square of the Gaussian-DP parameter (DRS22, Theorem 2.7)."""
        return 1 / self.noise_multiplier**2


@dataclass(frozen=True)
class DiscreteLaplaceEvent(Event):
    """Integer noise with P[z] proportional to exp(-|z|/scale) on each coordinate; l1 sensitivity in lattice units.

    >>> DiscreteLaplaceEvent(20, 2).epsilon
    Fraction(1, 10)
    """

    kind: ClassVar[str] = "discrete-laplace"
    scale: Fraction
    sensitivity: int = 1

    def __post_init__(self) -> None:
        self._exact("scale", positive=True)
        self._set(sensitivity=_whole(self.sensitivity, "sensitivity", least=1))

    @property
    def epsilon(self) -> Fraction:
        """The pure epsilon, exact."""
        return self.sensitivity / self.scale


@dataclass(frozen=True)
class DiscreteGaussianEvent(Event):
    """Integer noise, P[z] proportional to exp(-z^2 / (2 scale^2)), on ``dimension`` coordinates; l2 sensitivity.

    >>> DiscreteGaussianEvent(10, 2).rho
    Fraction(1, 50)
    """

    kind: ClassVar[str] = "discrete-gaussian"
    scale: Fraction
    sensitivity: Fraction = Fraction(1)
    dimension: int = 1

    def __post_init__(self) -> None:
        self._exact("scale", "sensitivity", positive=True)
        self._set(dimension=_whole(self.dimension, "dimension", least=1))

    @property
    def rho(self) -> Fraction:
        """The concentrated cost, exact (CKS20, Theorem 4 and 14)."""
        return self.sensitivity**2 / (2 * self.scale**2)


@dataclass(frozen=True)
class ExponentialEvent(Event):
    """The exponential mechanism at epsilon, weights exp(epsilon score / (2 sensitivity)); its loss has bounded range.

    >>> ExponentialEvent(1).epsilon
    Fraction(1, 1)
    """

    kind: ClassVar[str] = "exponential"
    epsilon: Fraction

    def __post_init__(self) -> None:
        self._exact("epsilon")


@dataclass(frozen=True)
class ExPostEvent(Event):
    """A pure ex-post mechanism: ``loss`` is what the outcome cost, ``cap`` what it could have cost at most.

    Before the run: ``ExPostEvent.promise(cap)``.

    >>> ExPostEvent(0.1, 1.0).cap
    Fraction(1, 1)
    """

    kind: ClassVar[str] = "ex-post"
    is_leaf: ClassVar[bool] = False
    loss: Fraction
    cap: Fraction

    def __post_init__(self) -> None:
        self._exact("loss", "cap")
        if self.loss > self.cap:
            raise InvalidRequest("Expected a loss within its cap", got=self.loss, do="Raise the cap of the run")

    @classmethod
    def promise(cls, cap: float | Fraction) -> ExPostEvent:
        """The event before its run: charged at the cap."""
        exact = rational(cap, "cap", positive=False)
        return cls(exact, exact)


@dataclass(frozen=True)
class PoissonSampled(Event):
    """An event on a sample that holds each unit independently with probability ``rate``; add/remove adjacency.

    >>> PoissonSampled(0.01, GaussianEvent(1.1)).rate
    Fraction(1, 100)
    """

    kind: ClassVar[str] = "poisson-sampled"
    is_leaf: ClassVar[bool] = False
    rate: Fraction
    event: Event

    def __post_init__(self) -> None:
        self._exact("rate")
        if self.rate > 1:
            raise InvalidRequest("Expected a sampling rate of at most 1", got=self.rate, do="Pass a probability")
        checked_event(self.event)


@dataclass(frozen=True)
class SampledWithoutReplacement(Event):
    """An event on ``sample_size`` of ``population_size`` units, drawn uniformly; replace-one adjacency.

    >>> SampledWithoutReplacement(10, 1000, GaussianEvent(1.1)).rate
    Fraction(1, 100)
    """

    kind: ClassVar[str] = "sampled-without-replacement"
    is_leaf: ClassVar[bool] = False
    sample_size: int
    population_size: int
    event: Event

    def __post_init__(self) -> None:
        population = _whole(self.population_size, "population_size", least=1)
        sample = _whole(self.sample_size, "sample_size", least=0)
        if sample > population:
            raise InvalidRequest("Expected a sample within its population", got=sample, do="Lower the sample size")
        self._set(sample_size=sample, population_size=population, event=checked_event(self.event))

    @property
    def rate(self) -> Fraction:
        """The share of the population in the sample."""
        return Fraction(self.sample_size, self.population_size)


@dataclass(frozen=True)
class Sequence(Event):
    """Events one after the other on the same data; none at all is free.

    >>> len(Sequence([PureEvent(1), PureEvent(2)]).events)
    2
    """

    kind: ClassVar[str] = "sequence"
    is_leaf: ClassVar[bool] = False
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        self._set(events=_events(self.events))


@dataclass(frozen=True)
class Repeat(Event):
    """One event, ``count`` times.

    >>> Repeat(GaussianEvent(1.1), 10_000).count
    10000
    """

    kind: ClassVar[str] = "repeat"
    is_leaf: ClassVar[bool] = False
    event: Event
    count: int

    def __post_init__(self) -> None:
        self._set(event=checked_event(self.event), count=_whole(self.count, "count", least=0))


@dataclass(frozen=True)
class Parallel(Event):
    """Events on disjoint parts of the units: a unit is in one part, so the dearest part is the cost.

    Under replace-one adjacency a replacement may move a unit from one part to another and touch both; ``fixed_parts``
    says that the part of a unit is public and stays (its row number, say), and is required there.

    >>> Parallel([PureEvent(1), PureEvent(2)]).fixed_parts
    False
    """

    kind: ClassVar[str] = "parallel"
    is_leaf: ClassVar[bool] = False
    events: tuple[Event, ...] = ()
    fixed_parts: bool = False

    def __post_init__(self) -> None:
        self._set(events=_events(self.events))
        if not isinstance(self.fixed_parts, bool):
            raise InvalidRequest("Expected fixed_parts to be True or False", got=self.fixed_parts, do="Pass a bool")


def checked_event(value: object) -> Event:
    if not isinstance(value, Event):
        raise InvalidRequest("Expected an event", got=value, do="Pass one of expost.accounting's events")
    return value


def _events(values: object) -> tuple[Event, ...]:
    if not isinstance(values, Iterable):
        raise InvalidRequest("Expected a list of events", got=values, do="Pass several events in a list")
    return tuple(checked_event(value) for value in values)


def _whole(value: object, name: str, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidRequest(f"Expected {name} to be a whole number >= {least}", got=value, do="Pass an int")
    return int(value)


def _encode(value: Any) -> Any:
    if isinstance(value, Event):
        return value.to_json()
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return str(value) if isinstance(value, Fraction) else value


def _decode(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Event.from_json(value)
    if isinstance(value, list | tuple):
        return tuple(_decode(item) for item in value)
    return Fraction(value) if isinstance(value, str) else value
