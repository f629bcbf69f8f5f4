"""Mixtures, Poisson samples under replace-one and permute-and-flip, against their exact laws."""

import itertools
import math
from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from expost.accounting import (
    ApproxEvent,
    ExPostEvent,
    GaussianEvent,
    LaplaceEvent,
    Mixture,
    PermuteAndFlipEvent,
    PoissonSampled,
    PureEvent,
    Repeat,
    Sequence,
    account,
)
from expost.accounting.privacy_profile import profile_of
from expost.accounting.renyi import renyi_divergences
from expost.accounting.rounding import Floats
from expost.accounting.scenario import event_under
from expost.core import Adjacency, InvalidRequest

GRID = np.linspace(0, 3, 61)
ORDERS = (1.5, 2.0, 3.0, 8.0, 32.0)


def profile(p: Floats, q: Floats) -> Floats:
    return np.maximum(p - np.exp(GRID)[:, None] * q, 0).sum(axis=1)


def divergences(p: Floats, q: Floats) -> Floats:
    return np.array([math.log((p**a * q ** (1 - a)).sum()) / (a - 1) for a in ORDERS])


def response(epsilon: float) -> tuple[Floats, Floats]:
    high = 1 / (1 + math.exp(-epsilon))
    return np.array([high, 1 - high]), np.array([1 - high, high])


def flipped_law(scores: Floats, epsilon: float) -> Floats:
    """The law of permute-and-flip for scores of sensitivity 1, over all sets of heads."""
    chances = np.exp(-epsilon / 2 * (scores.max() - scores))
    law = np.zeros(len(scores))
    for heads in itertools.product((0, 1), repeat=len(scores)):
        shown = np.array(heads)
        if shown.any():
            law += np.where(shown, chances, 1 - chances).prod() * shown / shown.sum()
    return law


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_permute_and_flip_stays_below_laplace_noise_and_two_candidates_reach_it(epsilon: float) -> None:
    rng, event = np.random.default_rng(3), PermuteAndFlipEvent(epsilon)
    known, claimed = profile_of(event), renyi_divergences(event, ORDERS)
    assert known is not None
    bound, largest = known.forward(GRID), np.zeros(len(GRID))
    for size in (2, 3, 5):
        for _ in range(150):
            scores = rng.uniform(-6, 0, size) / epsilon
            one, other = (flipped_law(scores + rng.choice([-1, 0, 1], size), epsilon) for _ in range(2))
            middle = flipped_law(scores, epsilon)
            for p, q in ((one, middle), (middle, one), (other, middle)):
                assert np.all(profile(p, q) <= bound + 1e-12)
                assert np.all(divergences(p, q) <= claimed + 1e-12)
    for gap in np.linspace(-1, 3, 401):
        # The difference of two scores moves by 2 while each of them moves by 1.
        p, q = (flipped_law(np.array([gap + move, -move]), epsilon) for move in (0, -1))
        largest = np.maximum(largest, profile(p, q))
    assert np.allclose(largest, bound, atol=2e-3)


def test_permute_and_flip_is_composed_like_laplace_noise_elsewhere() -> None:
    theirs = PLDAccountant().compose(dp_accounting.LaplaceDpEvent(2.0), 20)
    ours = account(Repeat(PermuteAndFlipEvent(0.5), 20))

    assert ours.epsilon(1e-6) == pytest.approx(theirs.get_epsilon(1e-6), rel=1e-3)
    assert ours.epsilon(1e-6) < account(Repeat(PureEvent(0.5), 20)).epsilon(1e-6)


@pytest.mark.parametrize("share", [Fraction(1, 100), Fraction(1, 3), Fraction(9, 10)])
def test_the_prices_of_a_mixture_bound_every_pair_of_laws(share: Fraction) -> None:
    small, large = 0.4, 2.0
    event = Mixture((PureEvent(large), PureEvent(small)), (share, 1 - share))
    shares = (float(share), 1 - float(share))
    pairs = [response(large), response(small)]
    shown = [np.concatenate([part * pair[side] for part, pair in zip(shares, pairs, strict=True)]) for side in (0, 1)]
    hidden = [sum(part * pair[side] for part, pair in zip(shares, pairs, strict=True)) for side in (0, 1)]
    known, claimed = profile_of(event), renyi_divergences(event, ORDERS)
    assert known is not None

    assert np.allclose(profile(*shown), known.forward(GRID), atol=1e-12)
    assert np.allclose(divergences(*shown), claimed, rtol=1e-9)
    assert np.all(claimed >= divergences(*shown))
    assert np.all(profile(*hidden) <= known.forward(GRID) + 1e-12)
    assert np.all(divergences(*hidden) <= claimed)
    assert account(event).epsilon() == pytest.approx(large)
    three = [np.einsum("i,j,k->ijk", *[law] * 3).ravel() for law in shown]
    for currency in ("rdp", "pld", "auto"):
        found = account(Repeat(event, 3), currency=currency)
        for epsilon, exact in zip(GRID[::10], profile(*three)[::10], strict=True):
            assert found.delta(float(epsilon)) >= exact - 1e-12
    assert account(Repeat(event, 3), currency="pld").delta(1.0) == pytest.approx(profile(*three)[20], rel=0.02)


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_a_poisson_sample_under_replace_one_costs_at_most_its_mixture_and_can_reach_it(rate: float) -> None:
    rng, loss = np.random.default_rng(4), 1.5
    event = event_under(PoissonSampled(rate, PureEvent(loss)), Adjacency.REPLACE_ONE)
    known, claimed = profile_of(event), renyi_divergences(event, ORDERS)
    assert known is not None
    with_unit = [np.append(law, 0.0) for law in response(loss)]
    outsider = np.array([0.0, 0.0, 1.0])
    for absent in (outsider, *rng.dirichlet(np.ones(3), 200)):
        p, q = ((1 - rate) * absent + rate * law for law in with_unit)
        assert np.all(profile(p, q) <= known.forward(GRID) + 1e-12)
        assert np.all(divergences(p, q) <= claimed)
    p, q = ((1 - rate) * outsider + rate * law for law in with_unit)
    assert np.allclose(profile(p, q), known.forward(GRID), atol=1e-12)
    assert np.allclose(divergences(p, q), claimed, rtol=1e-9)
    # The price under add/remove, which has the epsilon amplified, would be too small.
    amplified = profile_of(PoissonSampled(rate, PureEvent(loss)))
    assert amplified is not None
    assert np.any(profile(p, q) > amplified.forward(GRID) + 1e-3)


def test_a_sample_under_replace_one_lies_between_the_amplified_price_and_the_whole() -> None:
    training = Repeat(PoissonSampled(0.01, GaussianEvent(2)), 200)
    amplified, sampled = (account(training, adjacency=each).epsilon(1e-6) for each in ("add-remove", "replace-one"))
    whole = account(Repeat(GaussianEvent(2), 200), adjacency="replace-one").epsilon(1e-6)

    assert amplified < sampled < whole / 2


def test_failures_of_a_mixture_are_averaged() -> None:
    mixture = Mixture((ApproxEvent(1, 1e-6), PureEvent(2)), (Fraction(1, 4), Fraction(3, 4)))

    assert account(mixture, currency="approx").epsilon(Fraction(1, 4 * 10**6)) == pytest.approx(2)
    assert account(mixture).delta(2) <= 2.5e-7 * (1 + 1e-9)
    assert account(mixture, currency="rdp").epsilon(2e-7) == math.inf


def test_a_mixture_of_equal_or_certain_parts_is_the_part() -> None:
    step = LaplaceEvent(2)

    assert account(Mixture((step, step), (0.5, 0.5))).epsilon(1e-6) == account(step).epsilon(1e-6)
    assert account(Mixture((step, GaussianEvent(1)), (1, 0))).epsilon() == account(step).epsilon()
    assert account(Mixture((Sequence(), PureEvent(0)), (0.5, 0.5))).epsilon() == 0


def test_ex_post_parts_of_a_mixture_stay_ex_post() -> None:
    mixture = Mixture((ExPostEvent(0.1, 1), Sequence()), (0.5, 0.5))

    assert account(mixture).epsilon() == pytest.approx(0.1)
    assert account(Mixture((ExPostEvent(0.1, 1), GaussianEvent(1)), (0.5, 0.5)), currency="rdp").epsilon(1e-3) > 0


@pytest.mark.parametrize(
    ("events", "probabilities", "message"),
    [
        ((PureEvent(1),), (0.5,), "add up to 1"),
        ((PureEvent(1),), (0.5, 0.5), "for each of 1 events, got 2"),
        ((PureEvent(1), PureEvent(2)), (-1, 2), "probabilities"),
        ((PureEvent(1),), 1, "list of probabilities"),
        ((1,), (1,), "Expected an event"),
    ],
)
def test_a_mixture_that_is_not_one_is_refused(events, probabilities, message) -> None:
    with pytest.raises(InvalidRequest, match=message):
        Mixture(events, probabilities)
