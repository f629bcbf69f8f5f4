"""Numbers for the pages in docs/proofs: each inequality on cases chosen to be close to equality, in long arithmetic."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.accounting import DiscreteLaplaceEvent, ExponentialEvent, LaplaceEvent, PureEvent
from expost.accounting.amplification import amplified_epsilon, poisson_renyi, without_replacement_renyi
from expost.accounting.privacy_profile import profile_of
from expost.accounting.renyi import ex_post_divergences, renyi_divergences
from expost.accounting.rounding import Floats

SEEDED = settings(max_examples=150, deadline=None, derandomize=True)
RNG = np.random.default_rng(7)


def random_pair(size: int, spread: float) -> tuple[Floats, Floats]:
    """Two laws on a few outcomes, close where ``spread`` is small."""
    p = RNG.dirichlet(np.ones(size))
    q = p * np.exp(RNG.uniform(-spread, spread, size))
    return p, q / q.sum()


def hockey_stick(p: Floats, q: Floats, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


class TestExPostRenyi:
    """docs/proofs/ex-post-renyi.md, Theorem 1."""

    def moment(self, p: Floats, q: Floats, order: float) -> float:
        loss = np.log(p / q)
        cap = Fraction(float(np.abs(loss).max()))
        charge = np.array([ex_post_divergences(Fraction(float(abs(one))), cap, (order,))[0] for one in loss])
        return float((p * np.exp((order - 1) * (loss - charge))).sum())

    @pytest.mark.parametrize("order", [1.1, 2.0, 5.0, 30.0])
    def test_the_smaller_charge_may_be_taken_after_the_fact(self, order: float) -> None:
        worst = max(
            self.moment(*random_pair(size, spread), order)
            for size in (2, 3, 6)
            for spread in (0.1, 1, 4)
            for _ in range(15)
        )

        assert worst <= 1 + 1e-9

    def test_randomised_response_meets_it_with_equality(self) -> None:
        keep = math.exp(1.2) / (1 + math.exp(1.2))

        assert self.moment(np.array([keep, 1 - keep]), np.array([1 - keep, keep]), 3.0) == pytest.approx(1, abs=1e-9)

    def test_a_charge_one_per_cent_lower_would_fail(self) -> None:
        keep, order = math.exp(1.2) / (1 + math.exp(1.2)), 3.0
        p, q = np.array([keep, 1 - keep]), np.array([1 - keep, keep])
        charge = 0.99 * ex_post_divergences(Fraction(12, 10), Fraction(12, 10), (order,))[0]

        assert float((p * np.exp((order - 1) * (np.log(p / q) - charge))).sum()) > 1.01


class TestLaplaceDomination:
    """docs/proofs/laplace-domination.md."""

    @pytest.mark.parametrize(("one", "other"), [(0.5, 0.5), (1.5, 0.2), (3.0, 2.0)])
    def test_one_coordinate_is_the_worst_of_two(self, one: float, other: float) -> None:
        # The loss of a coordinate shifted by t: t and -t with masses, e^((l - t)/2)/4 between them.
        grid = np.linspace(-other, other, 20_001)
        weights = np.exp((grid - other) / 2) / 4 * (grid[1] - grid[0])
        weights[[0, -1]] = np.exp(-other) / 2, 0.5
        curve = profile_of(LaplaceEvent(1 / Fraction(one)))
        assert curve is not None
        scalar = profile_of(LaplaceEvent(1 / Fraction(one + other)))
        assert scalar is not None
        for epsilon in np.linspace(0, one + other, 30):
            inner = epsilon - grid
            at = np.where(
                inner >= 0,
                curve.forward(np.maximum(inner, 0)),
                1 - np.exp(inner) + np.exp(inner) * curve.forward(np.maximum(-inner, 0)),
            )

            assert float(np.dot(weights, at)) <= float(scalar.forward(np.array([epsilon]))[0]) + 2e-4

    @pytest.mark.parametrize("scale", [0.7, 3.0, 20.0])
    @pytest.mark.parametrize("shifts", [(1, 1), (2, 3), (1, 2, 2)])
    def test_one_integer_coordinate_is_the_worst_of_several(self, scale: float, shifts: tuple[int, ...]) -> None:
        reach = math.ceil(40 * scale) + 10
        points = np.arange(-reach, reach + 1)
        weights = np.exp(-np.abs(points) / scale)
        weights /= weights.sum()
        losses, masses = np.zeros(1), np.ones(1)
        for shift in shifts:
            one = (np.abs(points - shift) - np.abs(points)) / scale
            values, where = np.unique(one.round(12), return_inverse=True)
            mass = np.bincount(where, weights)
            losses, masses = (losses[:, None] + values).ravel(), (masses[:, None] * mass).ravel()
        profile = profile_of(DiscreteLaplaceEvent(Fraction(scale), sum(shifts)))
        assert profile is not None
        for epsilon in np.linspace(0, sum(shifts) / scale, 25):
            product = float(np.dot(masses, np.maximum(-np.expm1(epsilon - losses), 0)))

            assert product <= float(profile.forward(np.array([epsilon]))[0]) + 1e-12

    @pytest.mark.parametrize(("scale", "shift"), [(0.7, 1), (3.0, 4), (11.0, 7)])
    def test_the_lattice_profile_and_divergence_are_those_of_the_law(self, scale: float, shift: int) -> None:
        reach = math.ceil(60 * scale) + shift
        points = np.arange(-reach, reach + 1)
        p = np.exp(-np.abs(points) / scale)
        q = np.exp(-np.abs(points - shift) / scale)
        p, q = p / p.sum(), q / p.sum()
        event = DiscreteLaplaceEvent(Fraction(scale), shift)
        profile = profile_of(event)
        assert profile is not None
        for epsilon in np.linspace(0, shift / scale * 1.1, 23):
            assert float(profile.forward(np.array([epsilon]))[0]) == pytest.approx(
                hockey_stick(p, q, epsilon), abs=1e-12
            )
        for order in (1.3, 2.0, 9.0):
            exact = math.log(float((p**order * q ** (1 - order)).sum())) / (order - 1)
            assert renyi_divergences(event, (order,))[0] == pytest.approx(exact, rel=1e-9)


class TestPureToConcentrated:
    """docs/proofs/pure-to-zcdp.md."""

    @SEEDED
    @given(epsilon=st.floats(1e-3, 30), order=st.floats(1.0001, 500))
    def test_no_order_exceeds_the_tangent(self, epsilon: float, order: float) -> None:
        with mp.workdps(40):
            exact = mp.log(mp.cosh((mp.mpf(order) - 0.5) * epsilon) / mp.cosh(mp.mpf(epsilon) / 2)) / (
                mp.mpf(order) - 1
            )

            assert exact <= order * epsilon * mp.tanh(mp.mpf(epsilon) / 2) * (1 + mp.mpf(10) ** -30)


class TestBoundedRange:
    """docs/proofs/bounded-range.md."""

    def pair(self, top: float, length: float) -> tuple[Floats, Floats]:
        """Losses top and top - length with the probabilities that make both laws sum to one."""
        high = (math.exp(length) - math.exp(top)) / math.expm1(length)
        p = np.array([high, 1 - high])
        return p, p * np.exp([-top, length - top])

    @pytest.mark.parametrize("length", [0.1, 1.0, 4.0])
    @pytest.mark.parametrize("order", [1.2, 2.0, 8.0, 100.0])
    def test_the_divergence_is_the_largest_over_all_positions(self, length: float, order: float) -> None:
        found = []
        for top in np.linspace(0, length, 2001)[1:-1]:
            p, q = self.pair(top, length)
            terms = order * np.log(p) + (1 - order) * np.log(q)
            found.append(float(np.logaddexp(*terms)) / (order - 1))

        claimed = renyi_divergences(ExponentialEvent(Fraction(length)), (order,))[0]
        assert max(found) <= claimed * (1 + 1e-9)
        assert max(found) == pytest.approx(min(claimed, 1e9), rel=1e-3)

    @pytest.mark.parametrize("length", [0.3, 2.0])
    def test_the_profile_is_the_largest_over_all_positions(self, length: float) -> None:
        profile = profile_of(ExponentialEvent(Fraction(length)))
        assert profile is not None
        for epsilon in np.linspace(0, length, 11)[:-1]:
            found = max(hockey_stick(*self.pair(top, length), epsilon) for top in np.linspace(0, length, 4001)[1:-1])

            assert float(profile.forward(np.array([epsilon]))[0]) == pytest.approx(found, rel=1e-4, abs=1e-9)


class TestSampling:
    """docs/proofs/sampling.md."""

    @SEEDED
    @given(loss=st.floats(1e-3, 12), rate=st.floats(1e-4, 0.999), order=st.floats(1.0, 64))
    def test_with_against_without_is_the_larger_direction(self, loss: float, rate: float, order: float) -> None:
        with mp.workdps(60):
            r, q, a = mp.exp(mp.mpf(loss)), mp.mpf(rate), mp.mpf(order)
            up, down = 1 - q + q * r, 1 - q + q / r

            assert up**a + r * down**a >= (up ** (1 - a) + r * down ** (1 - a)) * (1 - mp.mpf(10) ** -40)

    @pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
    def test_poisson_bounds_hold_for_any_pair(self, rate: float) -> None:
        orders = (1.5, 2.0, 3.0, 6.5, 20.0)
        for _ in range(40):
            without, with_unit = random_pair(4, 1.5)

            def curve(at: tuple[float, ...], pair: tuple[Floats, Floats] = (without, with_unit)) -> Floats:
                return np.array([_renyi(*pair, order) for order in at])

            mixed = (1 - rate) * without + rate * with_unit
            bounds = poisson_renyi(orders, rate, curve)
            assert all(
                _renyi(mixed, without, order) <= bound * (1 + 1e-9) for order, bound in zip(orders, bounds, strict=True)
            )

    @pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
    def test_without_replacement_bounds_hold_for_any_three_laws(self, rate: float) -> None:
        orders = (1.5, 2.0, 3.0, 6.5, 20.0)
        for _ in range(40):
            other, one = random_pair(4, 1.0)
            two = other * np.exp(RNG.uniform(-1, 1, 4))
            two /= two.sum()
            pairs = ((other, one), (other, two), (one, two))

            def curve(at: tuple[float, ...], pairs: tuple[tuple[Floats, Floats], ...] = pairs) -> Floats:
                return np.array([max(_renyi(*pair, order) for pair in pairs) for order in at])

            here, there = ((1 - rate) * other + rate * law for law in (one, two))
            bounds = without_replacement_renyi(orders, rate, curve)
            assert all(
                _renyi(here, there, order) <= bound * (1 + 1e-9) for order, bound in zip(orders, bounds, strict=True)
            )

    @pytest.mark.parametrize("rate", [0.05, 0.5, 0.95])
    def test_sampled_profiles_are_those_of_the_mixture(self, rate: float) -> None:
        keep = math.exp(1.5) / (1 + math.exp(1.5))
        with_unit, without = np.array([keep, 1 - keep]), np.array([1 - keep, keep])
        mixed = (1 - rate) * without + rate * with_unit
        from expost.accounting import PoissonSampled

        profile = profile_of(PoissonSampled(Fraction(rate), PureEvent(Fraction(3, 2))))
        assert profile is not None
        for epsilon in np.linspace(0, 1.6, 33):
            at = np.array([epsilon])
            assert float(profile.forward(at)[0]) == pytest.approx(hockey_stick(mixed, without, epsilon), abs=1e-14)
            assert float(profile.backward(at)[0]) == pytest.approx(hockey_stick(without, mixed, epsilon), abs=1e-14)

    def test_ex_post_losses_amplify_outcome_by_outcome(self) -> None:
        for _ in range(50):
            rate = Fraction(int(RNG.integers(1, 100)), 100)
            without, with_unit = random_pair(5, 2.0)
            mixed = (1 - float(rate)) * without + float(rate) * with_unit
            for o in range(5):
                own = Fraction(float(abs(np.log(with_unit[o] / without[o]))))
                assert abs(math.log(mixed[o] / without[o])) <= float(amplified_epsilon(own, rate)) + 1e-12


def _renyi(p: Floats, q: Floats, order: float) -> float:
    """The larger direction, in log space."""
    logs = [a * np.log(x) + (1 - a) * np.log(y) for a in (order,) for x, y in ((p, q), (q, p))]
    return max(float(np.logaddexp.reduce(one)) for one in logs) / (order - 1)


class TestPureToGaussian:
    """docs/proofs/pure-to-gdp.md."""

    @pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.5, 2.0, 10.0, 60.0])
    def test_the_curve_stays_above_the_gaussian_one_and_touches_it(self, epsilon: float) -> None:
        from expost.accounting import pure_to_gdp

        with mp.workdps(50):
            mu = mp.sqrt(mp.mpf(pure_to_gdp(Fraction(epsilon)).numerator) / pure_to_gdp(Fraction(epsilon)).denominator)
            kink = 1 / (1 + mp.exp(mp.mpf(epsilon)))
            touch = mp.ncdf(-mu / 2)

            assert touch <= kink
            assert touch >= kink * (1 - mp.mpf("1e-7"))
            for share in (0.01, 0.3, 0.9, 1.0):
                # The hockey-stick form of the same ordering: delta of randomised response within the Gaussian one.
                e = mp.mpf(epsilon) * share
                gaussian = mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)
                assert (mp.exp(epsilon) - mp.exp(e)) / (1 + mp.exp(epsilon)) <= gaussian * (1 + mp.mpf("1e-12"))
