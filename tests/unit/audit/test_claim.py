import math

import numpy as np
import pytest
from scipy import stats

from expost.audit.privacy_claim import ExPost, bound_from_cells, bound_from_event, limit_of, unit_of
from expost.core import InvalidRequest, RenyiGuarantee, approx, epsilon, gdp, zcdp


def bound(claim, p, q):
    return float(bound_from_event(claim, np.array([p]), np.array([q]))[0])


def test_pure_and_approximate_bounds_are_log_ratios():
    assert bound(epsilon(1), 0.5, 0.1) == pytest.approx(math.log(5))
    assert bound(approx(1, 0.01), 0.51, 0.1) == pytest.approx(math.log(5))
    assert bound(ExPost(epsilon(1)), 0.5, 0.1) == pytest.approx(math.log(5))


@pytest.mark.parametrize("claim", [epsilon(1), approx(1, 0.1), zcdp(1), gdp(1), ExPost(zcdp(1))])
def test_an_event_that_is_not_likelier_says_nothing(claim):
    assert bound(claim, 0.3, 0.3) == 0
    assert bound(claim, 0.0, 0.5) == 0


@pytest.mark.parametrize("threshold", [-1.0, 0.5, 3.0])
def test_a_threshold_event_gives_back_the_mu_of_gaussians(threshold):
    p, q = stats.norm.sf(threshold - 1.3), stats.norm.sf(threshold)

    assert bound(gdp(1.3), p, q) == pytest.approx(1.3)


@pytest.mark.parametrize("threshold", np.linspace(-2, 4, 7))
def test_no_event_of_gaussians_exceeds_their_rho(threshold):
    p, q = stats.norm.sf(threshold - 1), stats.norm.sf(threshold)

    assert bound(zcdp(0.5), p, q) <= 0.5
    assert bound(ExPost(zcdp(0.5)), p, q) <= 0.5
    curve = RenyiGuarantee(((1.5, 0.75), (2, 1), (8, 4)))
    assert bound(curve, p, q) <= 1


def test_a_far_event_of_gaussians_nearly_reaches_their_rho():
    p, q = stats.norm.sf(2.0), stats.norm.sf(3.0)

    assert bound(zcdp(0.5), p, q) > 0.2
    assert bound(zcdp(0.5), stats.norm.sf(-0.5), stats.norm.sf(0.5)) > 0.3


@pytest.mark.parametrize("claim", [epsilon(1), approx(1, 0.01), zcdp(1), gdp(1), ExPost(zcdp(1)), ExPost(epsilon(1))])
def test_bounds_grow_with_the_likely_and_fall_with_the_rare_probability(claim):
    p = np.linspace(0.2, 0.9, 8)

    assert (np.diff(bound_from_event(claim, p, np.full(8, 0.1))) >= -1e-12).all()
    assert (np.diff(bound_from_event(claim, np.full(8, 0.95), p)) <= 1e-12).all()


def test_limits_and_units_are_those_of_the_claim():
    claims = [epsilon(2), approx(3, 0.1), zcdp(4), gdp(5), ExPost(zcdp(6))]

    assert [limit_of(claim) for claim in claims] == [2, 3, 4, 5, 6]
    assert [unit_of(claim) for claim in claims] == ["epsilon", "epsilon", "rho", "mu", "rho"]


def test_an_unknown_claim_is_refused():
    with pytest.raises(InvalidRequest):
        limit_of("private")
    with pytest.raises(InvalidRequest):
        bound("private", 0.5, 0.1)


@pytest.mark.parametrize("groups", [2, 8, 64])
def test_cells_never_find_more_than_the_divergence(groups):
    """Two Gaussians at distance 1 have a Renyi divergence of order / 2: any cells find less, fine ones nearly all."""
    edges = stats.norm.ppf(np.linspace(0, 1, groups + 1))
    p, q = (np.diff(stats.norm.cdf(edges - mean)) for mean in (1, 0))
    found = bound_from_cells(zcdp(0.5), p, q)

    assert found <= 0.5
    assert found > {2: 0.2, 8: 0.35, 64: 0.45}[groups]


def test_cells_are_for_divergences():
    with pytest.raises(InvalidRequest, match="divergence"):
        bound_from_cells(epsilon(1), np.array([0.5, 0.5]), np.array([0.1, 0.9]))
