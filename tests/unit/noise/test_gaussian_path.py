import pickle
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats
from tests.unit.noise.scripted import ScriptedBits

from expost.core import InvalidRequest, Ladder, Norm, Sealed, Sensitivity, ZeroConcentratedLoss
from expost.noise import GaussianPath, SeededBits

LADDER = Ladder.of([0.1, 0.5, 2])
SECRET = 987_654_321


def path(exact=SECRET, sensitivity=10, bits=None) -> GaussianPath:
    sealed = Sealed(exact, Sensitivity(sensitivity, Norm.L2))
    return GaussianPath(sealed, LADDER, bits=bits or SeededBits(1))


def test_a_prefix_costs_its_last_rung() -> None:
    assert [path().loss(rung) for rung in range(3)] == [ZeroConcentratedLoss(level) for level in LADDER]


def test_estimates_weigh_releases_by_their_precision() -> None:
    subject = path(np.array([5, -7]))
    first, second = (subject.release(rung).tolist() for rung in (0, 1))

    expected = [
        (Fraction(1, 10) * a + Fraction(4, 10) * b) / Fraction(1, 2) for a, b in zip(first, second, strict=True)
    ]
    assert subject.fractions(1) == expected
    assert subject.at(1) == pytest.approx([float(each) for each in expected])
    assert subject.fractions(0) == [Fraction(y) for y in first]


def test_a_rung_is_drawn_when_it_is_read() -> None:
    bits = ScriptedBits()
    subject = path(np.zeros(1000, int), bits=bits)
    assert bits.drawn == 0

    subject.at(0)
    first = bits.drawn
    subject.at(0)
    assert bits.drawn == first
    subject.at(2)
    assert bits.drawn > first


def test_rungs_once_read_stay() -> None:
    subject = path(np.arange(50))
    early = subject.at(0)
    subject.at(2)

    assert (subject.at(0) == early).all()
    assert (subject.block(0, 3)[0] == early).all()


@pytest.mark.parametrize("order", [mpmath.mpf(3) / 2, 2, 5, 20])
@pytest.mark.parametrize(("variance", "shift"), [(1, 1), (Fraction(1, 4), 1), (10, 3)])
def test_a_release_is_exactly_as_concentrated_as_billed(order, variance, shift) -> None:
    with mpmath.workprec(200):
        v = mpmath.mpf(variance.numerator) / variance.denominator if isinstance(variance, Fraction) else variance
        support = range(-200, 201)
        weight = {k: mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * v)) for k in range(-210, 211)}
        total = mpmath.fsum(weight.values())
        moment = mpmath.fsum(weight[k] ** order * weight[k - shift] ** (1 - order) for k in support) / total
        divergence = mpmath.log(moment) / (order - 1)

        assert divergence <= order * mpmath.mpf(shift) ** 2 / (2 * v) * (1 + mpmath.mpf(10) ** -20)
        # integer orders meet the bound up to the tiny theta correction: the bill is not padded
        assert divergence >= mpmath.mpf("0.9") * order * mpmath.mpf(shift) ** 2 / (2 * v)


def test_lattice_noise_is_not_exactly_gaussian_private() -> None:
    variance = 9.0
    weights = np.exp(-(np.arange(-200, 201) ** 2) / (2 * variance))
    total_variation = weights.max() / weights.sum()  # between the noise and its shift by one
    gaussian = 2 * stats.norm.cdf(1 / (2 * 3.0)) - 1

    assert total_variation > gaussian  # so mu = shift / sigma is a view, not a bound
    assert total_variation / gaussian - 1 == pytest.approx(1 / (24 * variance), rel=0.1)


def test_mu_is_the_view_of_a_fine_lattice() -> None:
    assert path().mu(2) == pytest.approx(2.0)


def test_no_additive_kernel_exists_for_lattice_gaussians() -> None:
    points = 256
    k = np.arange(-60, 61)
    angles = 2 * np.pi * np.arange(points) / points

    def transform(variance: float) -> np.ndarray:
        weights = np.exp(-(k**2) / (2 * variance))
        return (weights / weights.sum()) @ np.cos(np.outer(k, angles))

    kernel = np.fft.ifft(transform(1.0) / transform(0.5)).real
    assert kernel.min() < -1e-3  # DG(1) = DG(1/2) * kernel would need negative probabilities


def test_a_path_shows_nothing_of_its_content() -> None:
    assert str(SECRET) not in repr(path())
    with pytest.raises(TypeError):
        pickle.dumps(path())


@pytest.mark.parametrize("norm", [Norm.L1, Norm.LINF])
def test_another_norm_is_refused(norm: Norm) -> None:
    with pytest.raises(InvalidRequest, match="L2"):
        GaussianPath(Sealed(1, Sensitivity(1, norm)), LADDER)


def test_an_unsealed_answer_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="sealed"):
        GaussianPath(SECRET, LADDER)  # type: ignore[arg-type]


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (2, 1), (0, 4)])
def test_an_empty_or_foreign_block_is_refused(start: int, stop: int) -> None:
    with pytest.raises(InvalidRequest):
        path().block(start, stop)


def test_long_integers_do_not_wrap() -> None:
    subject = path(np.array([2**63 - 1] * 100))

    assert abs(subject.at(2).mean() - 2.0**63) < 2.0**55
    assert all(abs(int(y) - 2**63) < 10**4 for y in subject.release(2))


def test_noise_wider_than_exact_sampling_supports_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="2\\^60"):
        path(sensitivity=2**61)


def test_a_state_continues_the_same_path() -> None:
    subject = path(np.arange(20))
    early = subject.block(0, 2)

    again = GaussianPath.from_state(subject.state())

    assert (again.block(0, 2) == early).all()
    assert again.loss(2) == subject.loss(2)
    assert again.at(2).shape == (20,)
    assert not again.private
    with pytest.raises(InvalidRequest, match="Gaussian path"):
        GaussianPath.from_state(b"nonsense")
