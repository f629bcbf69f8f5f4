"""What a mechanism did, as small frozen values. Mechanisms write events, accountants read them; neither imports the other.

Every number is an exact rational. An event never changes its meaning once released, because ledgers store its JSON.
A noise multiplier is the scale of the noise divided by the sensitivity, under the adjacency of the account.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar

from expost.accounting.rounding import read_count, read_curve
from expost.core.errors import InvalidRequest
from expost.core.rational import rational

__all__ = [
    "ApproxEvent",
    "ConcentratedEvent",
    "DiscreteGaussianEvent",
    "DiscreteLaplaceEvent",
    "ExPostEvent",
    "ExponentialEvent",
    "GaussianEvent",
    "LaplaceEvent",
    "Mixture",
    "Parallel",
    "PermuteAndFlipEvent",
    "PoissonSampled",
    "PrivacyEvent",
    "PureEvent",
    "RenyiEvent",
    "Repeat",
    "SampledWithoutReplacement",
    "Sequence",
    "check_event",
]


@dataclass(frozen=True)
class PrivacyEvent:
    """The base class of all events. A subclass with a ``kind`` joins the JSON format and the law tests by itself.

    It has no parameters of its own.

    Examples
    --------
    >>> PrivacyEvent.from_json(GaussianEvent(1.1).to_json())
    GaussianEvent(noise_multiplier=Fraction(11, 10))
    """

    kind: ClassVar[str] = ""
    """The name of the event in JSON; never reused for another meaning."""
    kinds: ClassVar[dict[str, type[PrivacyEvent]]] = {}
    """All event classes by their kind."""
    is_leaf: ClassVar[bool] = True
    """Whether a currency prices the event itself; otherwise its parts are priced."""

    def __init_subclass__(cls) -> None:
        if cls.kind:
            PrivacyEvent.kinds[cls.kind] = cls

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object without loss of precision; rationals become ``"p/q"``.

        Returns
        -------
        dict
        """
        return {"kind": self.kind} | {field.name: _encode_field(getattr(self, field.name)) for field in fields(self)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> PrivacyEvent:
        """Return the event that ``to_json`` wrote.

        Parameters
        ----------
        data : mapping
            The JSON object, with its ``kind``.

        Returns
        -------
        PrivacyEvent

        Raises
        ------
        InvalidRequest
            If the kind is unknown to this version.
        """
        name = data.get("kind") if isinstance(data, Mapping) else data
        # As text, because a list or a mapping in this place does not hash.
        kind = PrivacyEvent.kinds.get(str(name))
        if kind is None or not isinstance(data, Mapping):
            raise InvalidRequest("Expected a known event", got=name, do="Read it with a newer version")
        return kind(**{name: _decode_field(value) for name, value in data.items() if name != "kind"})

    def _set_fields(self, **values: Any) -> None:
        """Write fields of the frozen value while it is being built."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _read_numbers(self, *names: str, positive: bool = False) -> None:
        """Replace fields by the exact numbers that the caller typed."""
        self._set_fields(**{name: rational(getattr(self, name), name, positive=positive) for name in names})


@dataclass(frozen=True)
class PureEvent(PrivacyEvent):
    """Any mechanism that is epsilon-differentially private (DMNS06, Definition 1).

    Parameters
    ----------
    epsilon : number >= 0
        The privacy parameter.

    Examples
    --------
    >>> PureEvent(0.5)
    PureEvent(epsilon=Fraction(1, 2))
    """

    kind: ClassVar[str] = "pure"
    epsilon: Fraction

    def __post_init__(self) -> None:
        self._read_numbers("epsilon")


@dataclass(frozen=True)
class ApproxEvent(PrivacyEvent):
    """Any mechanism that is (epsilon, delta)-differentially private (DKMMN06, Definition 1).

    Parameters
    ----------
    epsilon : number >= 0
        The privacy parameter.
    delta : number in [0, 1)
        The probability that epsilon does not cover.

    Examples
    --------
    >>> ApproxEvent(1, 1e-6).delta
    Fraction(1, 1000000)
    """

    kind: ClassVar[str] = "approx"
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        self._read_numbers("epsilon", "delta")
        if self.delta >= 1:
            raise InvalidRequest("Expected delta below 1", got=self.delta, do="Pass a small delta such as 1e-6")


@dataclass(frozen=True)
class ConcentratedEvent(PrivacyEvent):
    """Any mechanism that is rho-zero-concentrated private (BS16, Definition 1.1).

    Parameters
    ----------
    rho : number >= 0
        The privacy parameter.

    Examples
    --------
    >>> ConcentratedEvent(0.5).rho
    Fraction(1, 2)
    """

    kind: ClassVar[str] = "zcdp"
    rho: Fraction

    def __post_init__(self) -> None:
        self._read_numbers("rho")


@dataclass(frozen=True)
class RenyiEvent(PrivacyEvent):
    """Any mechanism with these Renyi divergences (Mir17, Definition 4).

    Parameters
    ----------
    curve : pairs of an order > 1 and an epsilon >= 0
        The divergence at each order, orders increasing.

    Examples
    --------
    >>> RenyiEvent(((2, 0.1), (4, 0.3))).curve[0]
    (Fraction(2, 1), Fraction(1, 10))
    """

    kind: ClassVar[str] = "rdp"
    curve: tuple[tuple[Fraction, Fraction], ...]

    def __post_init__(self) -> None:
        curve = read_curve(self.curve)
        # Increasing, because divergences between two listed orders are interpolated.
        orders = [order for order, _ in curve]
        if not curve or orders[0] <= 1 or sorted(set(orders)) != orders:
            raise InvalidRequest("Expected increasing Renyi orders above 1", do="Sort the orders and drop repeats")
        self._set_fields(curve=curve)


@dataclass(frozen=True)
class LaplaceEvent(PrivacyEvent):
    """Independent noise of density exp(-|z|/scale)/(2 scale) on each coordinate.

    At equal l1 sensitivity one coordinate is the worst case (docs/proofs/laplace-domination.md).

    Parameters
    ----------
    noise_multiplier : number > 0
        The scale divided by the l1 sensitivity.

    Examples
    --------
    >>> LaplaceEvent(2).noise_multiplier
    Fraction(2, 1)
    """

    kind: ClassVar[str] = "laplace"
    noise_multiplier: Fraction

    def __post_init__(self) -> None:
        self._read_numbers("noise_multiplier", positive=True)


@dataclass(frozen=True)
class GaussianEvent(PrivacyEvent):
    """Independent normal noise on each coordinate.

    Parameters
    ----------
    noise_multiplier : number > 0
        The standard deviation divided by the l2 sensitivity.

    Examples
    --------
    >>> GaussianEvent(1.1).mu_squared
    Fraction(100, 121)
    """

    kind: ClassVar[str] = "gaussian"
    noise_multiplier: Fraction

    def __post_init__(self) -> None:
        self._read_numbers("noise_multiplier", positive=True)

    @property
    def mu_squared(self) -> Fraction:
        """The square of the Gaussian-DP parameter (DRS22, Theorem 2.7)."""
        return 1 / self.noise_multiplier**2


@dataclass(frozen=True)
class DiscreteLaplaceEvent(PrivacyEvent):
    """Integer noise with P[z] proportional to exp(-|z|/scale) on each coordinate.

    Parameters
    ----------
    scale : number > 0
        The scale, in lattice units.
    sensitivity : int >= 1, default 1
        The l1 sensitivity, in lattice units.

    Examples
    --------
    >>> DiscreteLaplaceEvent(20, 2).epsilon
    Fraction(1, 10)
    """

    kind: ClassVar[str] = "discrete-laplace"
    scale: Fraction
    sensitivity: int = 1

    def __post_init__(self) -> None:
        self._read_numbers("scale", positive=True)
        # Whole lattice units: the profile counts the lattice points that the answer can move over.
        self._set_fields(sensitivity=read_count(self.sensitivity, "sensitivity", least=1))

    @property
    def epsilon(self) -> Fraction:
        """The pure epsilon, exact."""
        return self.sensitivity / self.scale


@dataclass(frozen=True)
class DiscreteGaussianEvent(PrivacyEvent):
    """Integer noise with P[z] proportional to exp(-z^2 / (2 scale^2)) on each coordinate.

    Parameters
    ----------
    scale : number > 0
        The scale, in lattice units.
    sensitivity : number > 0, default 1
        The l2 sensitivity, in lattice units.
    dimension : int >= 1, default 1
        The number of coordinates.

    Examples
    --------
    >>> DiscreteGaussianEvent(10, 2).rho
    Fraction(1, 50)
    """

    kind: ClassVar[str] = "discrete-gaussian"
    scale: Fraction
    sensitivity: Fraction = Fraction(1)
    dimension: int = 1

    def __post_init__(self) -> None:
        self._read_numbers("scale", "sensitivity", positive=True)
        # rho does not depend on the dimension; the profile is known for one coordinate only.
        self._set_fields(dimension=read_count(self.dimension, "dimension", least=1))

    @property
    def rho(self) -> Fraction:
        """The concentrated cost, exact (CKS20, Theorems 4 and 14)."""
        return self.sensitivity**2 / (2 * self.scale**2)


@dataclass(frozen=True)
class ExponentialEvent(PrivacyEvent):
    """The exponential mechanism with weights exp(epsilon score / (2 sensitivity)); its loss has bounded range.

    Parameters
    ----------
    epsilon : number >= 0
        The privacy parameter.

    Examples
    --------
    >>> ExponentialEvent(1).epsilon
    Fraction(1, 1)
    """

    kind: ClassVar[str] = "exponential"
    epsilon: Fraction

    def __post_init__(self) -> None:
        self._read_numbers("epsilon")


@dataclass(frozen=True)
class PermuteAndFlipEvent(PrivacyEvent):
    """Permute-and-flip, or the index of a noisy maximum with exponential noise; it costs what Laplace noise costs.

    The scale of the noise is 2 sensitivity / epsilon, or half of it where all scores move the same way. Proof:
    docs/proofs/permute-and-flip.md, 6.

    Parameters
    ----------
    epsilon : number >= 0
        The privacy parameter.

    Examples
    --------
    >>> PermuteAndFlipEvent(1).epsilon
    Fraction(1, 1)
    """

    kind: ClassVar[str] = "permute-and-flip"
    epsilon: Fraction

    def __post_init__(self) -> None:
        self._read_numbers("epsilon")


@dataclass(frozen=True)
class ExPostEvent(PrivacyEvent):
    """A pure ex-post mechanism. Before the run use ``ExPostEvent.promise(cap)``.

    Parameters
    ----------
    loss : number >= 0
        The epsilon that the outcome cost.
    cap : number >= loss
        The largest epsilon that any outcome could have cost.
    before : number >= 0, default 0
        What the same account paid before for the release that this step refines. ``loss`` and ``cap`` are then what
        the refinement adds. Sums of losses need no more (LNRWW17, Theorem 2.7); at a Renyi order the step by itself
        can lose ``before`` twice over on top (docs/proofs/refined-release.md).

    Examples
    --------
    >>> ExPostEvent(0.1, 1.0).cap
    Fraction(1, 1)
    """

    kind: ClassVar[str] = "ex-post"
    is_leaf: ClassVar[bool] = False
    loss: Fraction
    cap: Fraction
    before: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        self._read_numbers("loss", "cap", "before")
        # Refused, not cut: a loss above its cap means that the run broke its promise.
        if self.loss > self.cap:
            raise InvalidRequest("Expected a loss within its cap", got=self.loss, do="Raise the cap of the run")

    @classmethod
    def promise(cls, cap: float | Fraction, *, before: float | Fraction = 0) -> ExPostEvent:
        """Return the event before its run, charged at the cap.

        Parameters
        ----------
        cap : number >= 0
            The largest epsilon that the run can cost.
        before : number >= 0, default 0
            What was paid before for the release that is refined.

        Returns
        -------
        ExPostEvent
        """
        # Before the run the loss is unknown, so the cap takes its place.
        exact = rational(cap, "cap", positive=False)
        return cls(exact, exact, rational(before, "before", positive=False))


@dataclass(frozen=True)
class PoissonSampled(PrivacyEvent):
    """An event on a sample that holds each unit independently with the same probability.

    Under replace-one adjacency the event says what a replaced unit of the sample costs. That bounds nothing about a unit
    that enters the sample, so the price is that of a ``Mixture``: the event with the probability ``rate``, else nothing
    (docs/proofs/sampling.md). Account for sums of clipped rows under add/remove, where sampling saves more.

    Parameters
    ----------
    rate : number in [0, 1]
        The probability that a unit is in the sample.
    event : PrivacyEvent
        What was run on the sample.

    Examples
    --------
    >>> PoissonSampled(0.01, GaussianEvent(1.1)).rate
    Fraction(1, 100)
    """

    kind: ClassVar[str] = "poisson-sampled"
    is_leaf: ClassVar[bool] = False
    rate: Fraction
    event: PrivacyEvent

    def __post_init__(self) -> None:
        self._read_numbers("rate")
        # A rate of 1 is allowed: the sample is then the whole table and nothing is saved.
        if self.rate > 1:
            raise InvalidRequest("Expected a sampling rate of at most 1", got=self.rate, do="Pass a probability")
        check_event(self.event)


@dataclass(frozen=True)
class SampledWithoutReplacement(PrivacyEvent):
    """An event on a sample of fixed size, drawn uniformly; replace-one adjacency.

    Parameters
    ----------
    sample_size : int >= 0
        The number of units in the sample.
    population_size : int >= sample_size
        The number of units in the table.
    event : PrivacyEvent
        What was run on the sample.

    Examples
    --------
    >>> SampledWithoutReplacement(10, 1000, GaussianEvent(1.1)).rate
    Fraction(1, 100)
    """

    kind: ClassVar[str] = "sampled-without-replacement"
    is_leaf: ClassVar[bool] = False
    sample_size: int
    population_size: int
    event: PrivacyEvent

    def __post_init__(self) -> None:
        population = read_count(self.population_size, "population_size", least=1)
        sample = read_count(self.sample_size, "sample_size", least=0)
        if sample > population:
            raise InvalidRequest("Expected a sample within its population", got=sample, do="Lower the sample size")
        self._set_fields(sample_size=sample, population_size=population, event=check_event(self.event))

    @property
    def rate(self) -> Fraction:
        """The share of the population in the sample."""
        return Fraction(self.sample_size, self.population_size)


@dataclass(frozen=True)
class Sequence(PrivacyEvent):
    """Events one after the other on the same data. The empty sequence is free.

    Parameters
    ----------
    events : iterable of PrivacyEvent, default ()
        The events; their order does not change the cost.

    Examples
    --------
    >>> len(Sequence([PureEvent(1), PureEvent(2)]).events)
    2
    """

    kind: ClassVar[str] = "sequence"
    is_leaf: ClassVar[bool] = False
    events: tuple[PrivacyEvent, ...] = ()

    def __post_init__(self) -> None:
        self._set_fields(events=_read_events(self.events))


@dataclass(frozen=True)
class Repeat(PrivacyEvent):
    """One event, many times on the same data.

    Parameters
    ----------
    event : PrivacyEvent
        The event.
    count : int >= 0
        How often it ran.

    Examples
    --------
    >>> Repeat(GaussianEvent(1.1), 10_000).count
    10000
    """

    kind: ClassVar[str] = "repeat"
    is_leaf: ClassVar[bool] = False
    event: PrivacyEvent
    count: int

    def __post_init__(self) -> None:
        self._set_fields(event=check_event(self.event), count=read_count(self.count, "count", least=0))


@dataclass(frozen=True)
class Parallel(PrivacyEvent):
    """Events on disjoint parts of the units. A unit is in one part, so the most expensive part is the cost.

    Parameters
    ----------
    events : iterable of PrivacyEvent, default ()
        One event per part.
    fixed_parts : bool, default False
        Whether the part of each unit is public and cannot change (its row number, for example). Required under
        replace-one adjacency, where a replacement could otherwise move a unit to another part and affect both.

    Examples
    --------
    >>> Parallel([PureEvent(1), PureEvent(2)]).fixed_parts
    False
    """

    kind: ClassVar[str] = "parallel"
    is_leaf: ClassVar[bool] = False
    events: tuple[PrivacyEvent, ...] = ()
    fixed_parts: bool = False

    def __post_init__(self) -> None:
        self._set_fields(events=_read_events(self.events))
        # A promise about the data must be made on purpose: 1 or "no" do not count as True.
        if not isinstance(self.fixed_parts, bool):
            raise InvalidRequest("Expected fixed_parts to be True or False", got=self.fixed_parts, do="Pass a bool")


@dataclass(frozen=True)
class Mixture(PrivacyEvent):
    """One of several events, chosen at random with public probabilities that do not depend on the data.

    It does not matter whether the choice is shown. Proof of the prices: docs/proofs/sampling.md.

    Parameters
    ----------
    events : iterable of PrivacyEvent
        The events among which one is chosen.
    probabilities : iterable of number in [0, 1]
        The probability of each event. They add up to 1 exactly; pass fractions where decimals cannot.

    Examples
    --------
    >>> Mixture([GaussianEvent(1), Sequence()], [0.1, 0.9]).probabilities
    (Fraction(1, 10), Fraction(9, 10))
    """

    kind: ClassVar[str] = "mixture"
    is_leaf: ClassVar[bool] = False
    events: tuple[PrivacyEvent, ...]
    probabilities: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.probabilities, Iterable):
            raise InvalidRequest(
                "Expected a list of probabilities", got=self.probabilities, do="Pass one probability per event"
            )
        events = _read_events(self.events)
        shares = tuple(rational(share, "probabilities", positive=False) for share in self.probabilities)
        if len(shares) != len(events):
            raise InvalidRequest(
                f"Expected one probability for each of {len(events)} events", got=len(shares), do="Pass as many"
            )
        if sum(shares) != 1:
            raise InvalidRequest(
                "Expected probabilities that add up to 1", got=str(sum(shares)), do="Pass fractions such as 1/3 exactly"
            )
        self._set_fields(events=events, probabilities=shares)

    @property
    def parts(self) -> tuple[tuple[Fraction, PrivacyEvent], ...]:
        """The probabilities above zero, each with its event."""
        return tuple(pair for pair in zip(self.probabilities, self.events, strict=True) if pair[0])


def check_event(value: object) -> PrivacyEvent:
    """Return the value if it is an event; raise ``InvalidRequest`` otherwise."""
    if not isinstance(value, PrivacyEvent):
        raise InvalidRequest("Expected an event", got=value, do="Pass one of expost.accounting's events")
    return value


def _read_events(values: object) -> tuple[PrivacyEvent, ...]:
    """Read a list of events."""
    if not isinstance(values, Iterable):
        raise InvalidRequest("Expected a list of events", got=values, do="Pass several events in a list")
    return tuple(check_event(value) for value in values)


def _encode_field(value: Any) -> Any:
    """Turn a field into JSON."""
    if isinstance(value, PrivacyEvent):
        return value.to_json()
    if isinstance(value, tuple):
        return [_encode_field(item) for item in value]
    return str(value) if isinstance(value, Fraction) else value


def _decode_field(value: Any) -> Any:
    """Turn JSON into a field."""
    if isinstance(value, Mapping):
        return PrivacyEvent.from_json(value)
    if isinstance(value, list | tuple):
        return tuple(_decode_field(item) for item in value)
    # Besides its kind an event has no text fields, so every text is a rational.
    return Fraction(value) if isinstance(value, str) else value
