"""Random events for the law tests; a new event class joins by its field names and types."""

import dataclasses
import typing
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from expost.accounting import (
    DiscreteGaussianEvent,
    ExPostEvent,
    Mixture,
    Parallel,
    PoissonSampled,
    PrivacyEvent,
    RenyiEvent,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
)

LEAVES = [kind for kind in PrivacyEvent.kinds.values() if kind.is_leaf]
SMALLER_IS_SAFER = {"epsilon", "delta", "rho", "sensitivity", "loss", "cap", "rate"}
LARGER_IS_SAFER = {"noise_multiplier", "scale"}


def decimals(least: int, most: int, over: int) -> st.SearchStrategy[Fraction]:
    return st.integers(least, most).map(lambda value: Fraction(value, over))


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "epsilon": decimals(1, 300, 100),
    "rho": decimals(1, 200, 100),
    "delta": decimals(1, 50, 10**9),
    "noise_multiplier": decimals(40, 2000, 100),
    "scale": decimals(50, 4000, 100),
    "sensitivity": st.integers(1, 4),
    "rate": decimals(1, 99, 100),
    "dimension": st.integers(1, 3),
}


@st.composite
def ex_post(draw: Callable[..., Any]) -> ExPostEvent:
    cap = draw(decimals(0, 200, 100))
    return ExPostEvent(cap * draw(decimals(0, 10, 10)), cap)


@st.composite
def renyi(draw: Callable[..., Any]) -> RenyiEvent:
    slope = draw(decimals(1, 50, 100))
    return RenyiEvent(tuple((order, slope * order) for order in (2, 4, 16, 64)))


SPECIAL: dict[type[PrivacyEvent], st.SearchStrategy[PrivacyEvent]] = {ExPostEvent: ex_post(), RenyiEvent: renyi()}


def of_kind(
    kind: type[PrivacyEvent], inner: st.SearchStrategy[PrivacyEvent] | None = None
) -> st.SearchStrategy[PrivacyEvent]:
    """Random events of one class; ``inner`` fills the nested ones."""
    if kind in SPECIAL:
        return SPECIAL[kind]
    nested = st.deferred(leaves) if inner is None else inner
    if kind is Mixture:
        share = decimals(0, 20, 20)
        return st.builds(lambda one, two, part: Mixture((one, two), (part, 1 - part)), nested, nested, share)
    if kind is SampledWithoutReplacement:
        return st.builds(kind, st.integers(1, 50), st.just(1000), nested)
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: _field(name, hints[name], nested) for name in _names(kind)})


def _names(kind: type[PrivacyEvent]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _field(name: str, hint: Any, inner: st.SearchStrategy[PrivacyEvent]) -> st.SearchStrategy[Any]:
    if name in FIELDS:
        return FIELDS[name]
    if hint is PrivacyEvent:
        return inner
    if hint == tuple[PrivacyEvent, ...]:
        return st.lists(inner, max_size=3).map(tuple)
    if hint is bool:
        return st.booleans()
    return st.integers(0, 5) if hint is int else decimals(1, 100, 100)


def leaves() -> st.SearchStrategy[PrivacyEvent]:
    return st.one_of([of_kind(kind) for kind in LEAVES])


def trees(*, parallel: bool = True) -> st.SearchStrategy[PrivacyEvent]:
    """Random trees under add/remove adjacency."""
    kinds = [Sequence, Repeat, PoissonSampled, Mixture, *([Parallel] if parallel else [])]
    base = st.one_of(leaves(), ex_post())
    return st.recursive(base, lambda inner: st.one_of([of_kind(kind, inner) for kind in kinds]), max_leaves=5)


def noisier(event: PrivacyEvent) -> PrivacyEvent:
    """The same event with every parameter moved to the private side."""
    changes: dict[str, Any] = {}
    for name in _names(type(event)):
        value = getattr(event, name)
        if name in LARGER_IS_SAFER:
            changes[name] = value * Fraction(11, 10)
        elif name in SMALLER_IS_SAFER and isinstance(value, Fraction):
            changes[name] = value * Fraction(9, 10)
        elif name == "probabilities":
            changes[name] = value
        elif name == "curve":
            changes[name] = tuple((order, cost * Fraction(9, 10)) for order, cost in value)
        elif isinstance(value, PrivacyEvent):
            changes[name] = noisier(value)
        elif isinstance(value, tuple):
            changes[name] = tuple(map(noisier, value))
        else:
            changes[name] = value
    if isinstance(event, DiscreteGaussianEvent):
        changes["sensitivity"] = event.sensitivity
    return type(event)(**changes)
