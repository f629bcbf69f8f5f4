from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from expost.core import InvalidRequest, Outcome
from expost.data import Dataset
from expost.noise import SeededBits, sample_laplace
from expost.stats.hypothesis import LinearCorrelationTest, linear_correlation_power, linear_correlation_test
from expost.stats.hypothesis.linear_correlation import (
    MomentShares,
    PairMoments,
    ReleasedMoments,
    linear_correlation_p_values,
)

RNG = np.random.default_rng(14)
UNIT = ((0.0, 1.0), (0.0, 1.0))
LAWS = {
    "uniform": lambda shape: RNG.random(shape),
    "normal": lambda shape: RNG.normal(0.5, 0.1, shape),
    "off centre": lambda shape: RNG.normal(0.2, 0.05, shape),
    "rare": lambda shape: (RNG.random(shape) < 0.1).astype(float),
    "skewed": lambda shape: RNG.beta(0.3, 3, shape),
}


def simulated(x, y, strength, noise=1):
    """Released moments of samples, one row a run."""
    runs, rows = x.shape
    shares = MomentShares.for_rows(Fraction(strength), rows=rows)
    a, b = np.clip(x, 0, 1) - 0.5, np.clip(y, 0, 1) - 0.5
    exact = [a * b, a, b, a * a, b * b]
    scales = [Fraction(1, 2) / shares.products, 1 / shares.sums, 1 / shares.sums]
    scales += [None if shares.squares is None else Fraction(1, 4) / shares.squares] * 2
    found = [
        None
        if scale is None
        else values.sum(1) + sample_laplace(noise * scale * (1 << 20), runs, bits=SeededBits(place)) / (1 << 20)
        for place, (values, scale) in enumerate(zip(exact, scales, strict=True))
    ]
    return ReleasedMoments.under_shares(*found, rows=rows, shares=shares)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("strength", ["0.1", "2", "20"])
@pytest.mark.parametrize("rows", [10, 100])
def test_the_level_is_kept_at_small_n_and_small_epsilon(name, strength, rows, keeps_level):
    moments = simulated(LAWS[name]((3000, rows)), LAWS[name]((3000, rows)), strength)

    assert keeps_level(linear_correlation_p_values(moments))


def test_a_reference_that_knows_too_little_noise_is_caught(keeps_level):
    x, y = (LAWS["normal"]((20_000, 20)) for _ in range(2))

    assert not keeps_level(linear_correlation_p_values(simulated(x, y, "0.2", noise=Fraction(3, 2))))


def pairs(runs, rows, linear):
    x = RNG.normal(size=(runs, rows))
    y = linear * x + np.sqrt(1 - linear**2) * RNG.normal(size=(runs, rows))
    return (x + 4) / 8, (y + 4) / 8


@pytest.mark.parametrize(("rows", "linear", "strength"), [(1000, 0.2, "3"), (300, 0.4, "4"), (3000, 0.2, "1")])
def test_the_power_formula_is_close_to_what_happens_and_below_the_public_test(rows, linear, strength):
    x, y = pairs(1200, rows, linear)
    happened = (linear_correlation_p_values(simulated(x, y, strength)) <= 0.05).mean()
    public = np.mean([stats.pearsonr(a, b).pvalue <= 0.05 for a, b in zip(x[:200], y[:200], strict=True)])
    promised = linear_correlation_power(rows, linear, deviations=(0.125, 0.125), bounds=UNIT, epsilon=float(strength))

    assert 0.2 < happened < 0.999
    assert happened == pytest.approx(promised, abs=0.05)
    assert happened <= public + 0.03


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_intervals_cover_the_correlation(alternative):
    bits = SeededBits(3)
    x, y = pairs(80, 500, 0.5)
    intervals = [
        linear_correlation_test(
            a, b, bounds=UNIT, epsilon=4, alternative=alternative, confidence=0.9, bits=bits
        ).interval
        for a, b in zip(x, y, strict=True)
    ]

    assert np.mean([low <= 0.5 <= high for low, high in intervals]) >= 0.9 - 4 * np.sqrt(0.09 / 80)
    if alternative == "two-sided":
        assert np.median([high - low for low, high in intervals]) < 1.2


def test_replacing_a_row_moves_the_moments_by_at_most_the_declared_sensitivity():
    shares = MomentShares(Fraction(10**7), Fraction(10**5), Fraction(10**7))

    def released(row):
        x, y = np.array([0.3, row[0]]), np.array([0.8, row[1]])
        found = PairMoments([(x, y)], UNIT).release_moments(shares, rows=2, bits=SeededBits(1))
        return np.array([found.products, *found.sums, *found.squares])

    allowed = np.array([0.5, 1.0, 1.0, 0.25, 0.25])
    corners = [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (0.5, 0.5), (np.nan, np.inf)]
    largest = np.max([np.abs(released(a) - released(b)) for a in corners for b in corners], axis=0)

    np.testing.assert_allclose(largest, allowed, atol=2e-3)


def test_the_parts_add_up_to_epsilon_and_silent_squares_are_not_bought():
    for strength, rows in ((Fraction(1), 1000), (Fraction(1, 10), 50)):
        shares = MomentShares.for_rows(strength, rows=rows)
        assert sum(shares.breakdown.values()) == strength
    assert MomentShares.for_rows(Fraction(1, 10), rows=50).squares is None


def test_a_dataset_gives_the_same_as_its_arrays():
    x, y = pairs(1, 800, 0.5)
    dataset = Dataset(
        pa.table({"x": x[0], "y": y[0]}), adjacency="replace-one", rows=800, bounds={"x": (0, 1), "y": (0, 1)}
    )
    request = LinearCorrelationTest("x", "y", epsilon=3)
    plan = request.plan(dataset)

    release = plan.climb(plan.measure(dataset), SeededBits(5))

    direct = linear_correlation_test(x[0], y[0], bounds=UNIT, epsilon=3, bits=SeededBits(5))
    assert release.value == direct.value
    assert release.value.rejects(0.01)
    assert release.value.estimate == pytest.approx(0.5, abs=0.2)
    assert set(release.receipt.breakdown) == {"products", "sums", "squares"}


def test_a_power_is_bought_at_the_smallest_epsilon_and_estimated():
    x, y = pairs(1, 1000, 0.3)
    terms = {"deviations": (0.125, 0.125), "bounds": UNIT}

    release = linear_correlation_test(x[0], y[0], power=0.8, effect=0.3, bits=SeededBits(1), **terms)

    paid = release.receipt.epsilon
    assert release.receipt.outcome is Outcome.ESTIMATED
    assert linear_correlation_power(1000, 0.3, epsilon=paid, **terms) >= 0.82
    assert linear_correlation_power(1000, 0.3, epsilon=0.98 * paid, **terms) < 0.82


def test_little_privacy_budget_gives_no_estimate_and_the_widest_interval():
    x, y = pairs(1, 20, 0.5)

    release = linear_correlation_test(x[0], y[0], bounds=UNIT, epsilon=0.01, bits=SeededBits(1))

    assert release.value.estimate is None
    assert release.interval == (-1.0, 1.0)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: linear_correlation_test([1, 2, 3], [1, 2, 3], bounds=UNIT, epsilon=1), "Expected between 4"),
        (lambda: linear_correlation_test([1, 2, 3, 4], [1, 2], bounds=UNIT, epsilon=1), "equal length"),
        (lambda: linear_correlation_test([1] * 4, [1] * 4, bounds=(0, 1), epsilon=1), "bounds="),
        (lambda: linear_correlation_test([1] * 4, [1] * 4, bounds=((1, 0), (0, 1)), epsilon=1), "low < high"),
        (lambda: linear_correlation_test([1] * 4, [1] * 4, bounds=UNIT, power=0.8), "standard deviations"),
        (lambda: LinearCorrelationTest("x", "x", epsilon=1), "different columns"),
        (lambda: linear_correlation_power(10, 1.5, deviations=(1, 1), bounds=UNIT, epsilon=1), "between -1 and 1"),
    ],
)
def test_nonsense_costs_nothing(build, words):
    with pytest.raises(InvalidRequest, match=words):
        build()


def test_dependent_columns_without_correlation_are_rejected_too_often_and_the_receipt_warns():
    rng, bits, rejected = np.random.default_rng(3), SeededBits(3), []
    for _ in range(100):
        size = np.where(rng.random(300) < 0.05, 1.0, 0.05)
        x, y = size * rng.choice([-1.0, 1.0], (2, 300))
        release = linear_correlation_test(x, y, bounds=((-1, 1), (-1, 1)), epsilon=20, bits=bits)
        rejected.append(release.value.rejects(0.05))

    assert np.mean(rejected) > 0.3
    assert "independent columns" in release.receipt.terms["null hypothesis"]
