import numpy as np
import pytest
from scipy import special, stats
from sklearn.linear_model import LogisticRegression
from tests.odd_numbers import answers

from expost.core import InvalidRequest
from expost.noise import SeededBits
from expost.robustness import (
    analytic_pixeldp_radius,
    certify,
    laplace_radius,
    pixeldp_l1_radius,
    pixeldp_radius,
    smoothing_radius,
)
from expost.robustness.certificate import expected_scores, score_bounds, vote_bounds
from expost.robustness.noisy_model import scores_of_model, votes_of_model


def half_space(x):
    """Class 0 where the first coordinate is positive."""
    return np.stack([x[:, 0] > 0, x[:, 0] <= 0], axis=1)


@pytest.mark.parametrize(("noise", "norm"), [("gaussian", "l2"), ("laplace", "l1")])
@pytest.mark.parametrize("average", ["votes", "scores"])
def test_a_certified_radius_never_reaches_the_true_boundary(noise, norm, average):
    margins = np.linspace(0.05, 2.0, 12)
    inputs = np.stack([margins, np.zeros(12)], axis=1)

    found = certify(half_space, inputs, noise=noise, sigma=0.5, samples=2000, average=average, bits=SeededBits(1))

    assert found.norm == norm
    assert (found.prediction == 0).all()
    assert (found.radius <= margins).all()
    assert (found.pixeldp_radius <= found.radius + 1e-12).all()
    assert found.radius[8] > 0.5 * margins[8]


@pytest.mark.parametrize(("noise", "average"), [("gaussian", "votes"), ("laplace", "scores")])
@pytest.mark.parametrize("sigma", [0.5, 10.0, 30.0])
def test_a_radius_is_true_far_from_zero_where_single_precision_is_coarse(noise, average, sigma):
    """Time stamps: float32 has a spacing of 128 there, and inputs rounded to it would jump past their certificates."""
    now = 1.7e9
    inputs = now + np.linspace(-70, 70, 141)[:, None]

    found = certify(
        lambda x: half_space(x - now), inputs, sigma=sigma, noise=noise, average=average, bits=SeededBits(8)
    )

    away = inputs[:, 0] - now
    assert (found.radius <= np.abs(away)).all()
    assert (found.prediction == (away <= 0))[found.radius > 0].all()
    assert (found.radius[[0, -1]] > 0.9 * sigma).all()


def test_a_model_in_single_precision_is_certified_for_what_it_reads():
    """Rounding after the noise belongs to the model: its steps of 128 are averaged like any other model."""
    now = 1.7e9
    inputs = now + np.array([[-3000.0], [-2.0], [2.0], [3000.0]])

    found = certify(lambda x: half_space(x.astype(np.float32) - np.float32(now)), inputs, sigma=300.0)

    assert found.prediction[[0, 3]].tolist() == [1, 0]
    assert (found.radius[[0, 3]] > 300).all()
    assert (found.radius[[0, 3]] < 3000).all()
    assert found.prediction[1] == found.prediction[2] or (found.radius[1:3] <= 4).all()


@pytest.mark.parametrize("average", ["votes", "scores"])
def test_a_score_that_is_not_a_number_is_no_vote(average):
    def broken(x):
        return np.where(x > 0.5, np.nan, half_space(x))

    nothing = certify(lambda x: np.full((len(x), 2), np.nan), [[0.0]], sigma=1, average=average, bits=SeededBits(9))
    halved = certify(broken, [[0.5]], sigma=0.25, average=average, bits=SeededBits(9))

    assert nothing.radius.tolist() == nothing.lower.tolist() == [0.0]
    assert halved.scores.sum() == pytest.approx(0.5, abs=0.06)
    assert halved.lower[0] < 0.5


def test_the_failure_probability_holds():
    """At the worst case, a half space, the certified radius may exceed the true one only so often."""
    margin, runs = 0.3, 400
    exceeded = [
        certify(half_space, [[margin]], sigma=0.5, samples=100, failure_probability=0.1, bits=SeededBits(seed)).radius[
            0
        ]
        > margin
        for seed in range(runs)
    ]

    assert np.mean(exceeded) <= 0.1 + 3 * np.sqrt(0.09 / runs)


def test_simultaneous_certificates_hold_together():
    """Shared draws make all inputs of one margin fail together; those of several margins hold at once."""
    margins, runs = np.linspace(0.1, 0.9, 9), 400
    inputs = margins[:, None]

    def wrong(seed, **options):
        found = certify(
            half_space, inputs, sigma=0.5, samples=100, failure_probability=0.2, bits=SeededBits(seed), **options
        )
        return found.radius > margins

    alone = np.array([wrong(seed) for seed in range(runs)])
    together = np.array([wrong(seed, simultaneous=True) for seed in range(runs)])

    assert (alone.mean(0) <= 0.2 + 3 * np.sqrt(0.16 / runs)).all()
    assert together.any(1).mean() <= 0.2 + 3 * np.sqrt(0.16 / runs)
    assert together.any(1).sum() < alone.any(1).sum()


@pytest.mark.parametrize("average", ["votes", "scores"])
def test_simultaneous_divides_the_failure_probability_by_the_inputs(average):
    inputs = np.linspace(-1, 1, 8)[:, None]
    options = {"sigma": 0.5, "samples": 500, "average": average}

    together = certify(half_space, inputs, failure_probability=0.08, simultaneous=True, bits=SeededBits(2), **options)
    alone = certify(half_space, inputs, failure_probability=0.01, bits=SeededBits(2), **options)

    np.testing.assert_allclose(together.radius, alone.radius)
    assert (together.simultaneous, alone.simultaneous) == (True, False)


def test_logits_are_certified_for_the_prediction_the_model_makes():
    inputs = np.array([[-2.0], [-1.0], [1.0], [2.0]])

    def logits(x):
        return x @ np.array([[4.0, -4.0]]) - 3.0

    def shown(x):
        return special.softmax(logits(x), axis=1)

    raw, soft = (certify(each, inputs, sigma=0.2, bits=SeededBits(3)) for each in (logits, shown))
    logs = certify(lambda x: special.log_softmax(logits(x), axis=1), inputs, sigma=0.2, bits=SeededBits(3))
    large = certify(lambda x: 1000 + logits(x), inputs, sigma=0.2, bits=SeededBits(3))

    for found in (raw, logs, large):
        assert found.prediction.tolist() == logits(inputs).argmax(1).tolist()
        np.testing.assert_array_equal(found.radius, soft.radius)
    with pytest.raises(InvalidRequest, match=r"scores in \[0, 1\]"):
        certify(logits, inputs, sigma=0.2, average="scores", bits=SeededBits(3))


def test_too_few_noise_draws_certify_nothing():
    found = certify(half_space, [[0.3]], sigma=0.5, samples=3, bits=SeededBits(1))

    assert found.radius[0] == 0


def test_an_attack_within_the_radius_never_flips_a_certified_prediction():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(600, 8)).astype(np.float32)
    y = (x @ rng.normal(size=8) + 0.5 * x[:, 0] ** 2 > 0).astype(int)
    model = LogisticRegression().fit(x, y)
    points = x[:30]
    found = certify(model, points, sigma=0.5, samples=2000, bits=SeededBits(3))
    # The steepest direction of a linear model is its own normal.
    direction = model.coef_[0] / np.linalg.norm(model.coef_[0])
    signs = np.where(found.prediction == 1, -1.0, 1.0)
    attacked = points + (0.999 * found.radius * signs)[:, None] * direction

    truth = expected_scores(
        votes_of_model(model), attacked.astype(np.float32), "gaussian", 0.5, 20_000, bits=SeededBits(4)
    )

    certified = found.radius > 0
    assert certified.sum() > 20
    assert (truth.argmax(1) == found.prediction)[certified].all()


def test_the_noisy_score_is_the_convolution():
    exact = special.ndtr(0.3 / 0.5)
    scores = expected_scores(
        scores_of_model(half_space), np.array([[0.3]], np.float32), "gaussian", 0.5, 100_000, bits=SeededBits(5)
    )

    assert scores[0, 0] == pytest.approx(exact, abs=0.006)


def test_certified_accuracy_falls_with_the_radius():
    found = certify(half_space, [[1.0], [0.5], [-0.7]], sigma=0.5, bits=SeededBits(6))
    curve = found.certified_accuracy([0, 0, 0], [0.0, 0.3, 0.8, 5.0])

    assert curve.tolist() == sorted(curve, reverse=True)
    assert curve[0] == pytest.approx(2 / 3)
    assert curve[-1] == 0
    assert (found.certified_accuracy([0, 0, 0], [0.3], pixeldp=True) <= curve[1]).all()
    assert len(found) == 3


def test_images_keep_their_shape():
    seen = []

    def model(x):
        seen.append(x.shape[1:])
        return half_space(x.reshape(len(x), -1))

    certify(model, np.ones((2, 4, 4)), sigma=0.5, samples=10, bits=SeededBits(7))

    assert set(seen) == {(4, 4)}


@pytest.mark.parametrize(
    "changes",
    [
        {"sigma": 0},
        {"sigma": -1},
        {"samples": 0},
        {"samples": 1.5},
        {"failure_probability": 1},
        {"noise": "uniform"},
        {"average": "median"},
        {"x": [1.0]},
        {"simultaneous": 1},
        {"simultaneous": "yes"},
    ],
)
def test_nonsense_is_refused(changes):
    arguments = {"x": [[1.0]], "sigma": 1.0} | changes

    with pytest.raises(InvalidRequest):
        certify(half_space, arguments.pop("x"), **arguments)


def test_labels_of_a_scikit_learn_classifier_are_compared_with_labels():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(300, 2))
    names = np.where(x[:, 0] > 0, "late", "early")
    found = certify(LogisticRegression(C=100).fit(x, names), x[:40], sigma=0.1, bits=SeededBits(1))

    assert set(found.labels) <= {"late", "early"}
    assert found.certified_accuracy(names[:40], [0.0])[0] > 0.8
    with pytest.raises(InvalidRequest, match="one label for each input"):
        found.certified_accuracy(names[:39], [0.0])


def test_inputs_that_are_no_numbers_are_refused():
    with pytest.raises(InvalidRequest, match="finite inputs"):
        certify(half_space, [["a", "b"]], sigma=0.5)
    with pytest.raises(InvalidRequest, match="finite inputs"):
        certify(half_space, [[1.0], [1.0, 2.0]], sigma=0.5)


def test_no_number_ends_in_an_error_that_is_not_ours_or_in_no_end():
    usual = {"sigma": 0.5, "samples": 10, "failure_probability": 0.1, "noise": "gaussian", "average": "votes"}
    for argument, value, found in answers(lambda **terms: certify(half_space, [[1.0]], **terms), usual):
        assert np.isfinite(found.radius).all(), (argument, value)
    with pytest.raises(InvalidRequest, match="samples to be a whole number from 1 to 1000000000"):
        certify(half_space, [[1.0]], sigma=0.5, samples=10**30)


LOWER, UPPER = np.meshgrid(np.linspace(0.3, 0.9999, 15), np.linspace(0.001, 0.6, 15))


def test_the_smoothing_radius_is_reached_by_a_half_space():
    """f = 1 on one side of a hyperplane: at the radius the two classes tie, just beyond it the prediction flips."""
    sigma, margin = 0.7, 0.9
    lower = special.ndtr(margin / sigma)
    radius = float(smoothing_radius(lower, 1 - lower, sigma=sigma))

    assert radius == pytest.approx(margin, rel=1e-9)


def test_pixeldp_never_certifies_more_than_the_tight_bound():
    tight = smoothing_radius(LOWER, UPPER, sigma=0.5)
    published = pixeldp_radius(LOWER, UPPER, sigma=0.5)
    analytic = analytic_pixeldp_radius(LOWER, UPPER, sigma=0.5)

    assert (published <= analytic + 1e-3).all()
    assert (analytic <= tight + 1e-9).all()
    assert (tight[LOWER > UPPER] > 0).all()
    assert published.max() > 0


def test_the_published_radius_satisfies_its_own_condition():
    sigma, lower, upper = 0.5, 0.95, 0.03
    radius = float(pixeldp_radius(lower, upper, sigma=sigma))
    epsilon = np.linspace(0.001, 0.999, 5000)
    delta = 1.25 * np.exp(-((sigma * epsilon / radius) ** 2) / 2)

    assert (lower > np.exp(2 * epsilon) * upper + (1 + np.exp(epsilon)) * delta).any()
    larger = 1.25 * np.exp(-((sigma * epsilon / (1.01 * radius)) ** 2) / 2)
    assert not (lower > np.exp(2 * epsilon) * upper + (1 + np.exp(epsilon)) * larger).any()


def worst_laplace_shift(lower, upper, steps):
    """In one dimension, the largest shift under which no pair of score functions can swap, by the exact trade-off."""
    tops = []
    for t in steps:
        falls = np.where(lower > 1 - np.exp(-t) / 2, 1 - np.exp(t) * (1 - lower), np.exp(-t) * lower)
        falls = np.where((lower >= 0.5) & (lower <= 1 - np.exp(-t) / 2), np.exp(-t) / (4 * (1 - lower)), falls)
        rises = 1 - np.where(
            1 - upper > 1 - np.exp(-t) / 2,
            1 - np.exp(t) * upper,
            np.where(1 - upper >= 0.5, np.exp(-t) / (4 * np.maximum(upper, 1e-12)), np.exp(-t) * (1 - upper)),
        )
        tops.append(falls > rises)
    return np.max(np.where(tops, np.array(steps)[:, None, None], 0.0), axis=0)


def test_the_laplace_radius_is_valid_and_beats_pixeldp():
    scale = 0.5 / np.sqrt(2)
    ours = laplace_radius(LOWER, UPPER, sigma=0.5)
    exact = worst_laplace_shift(LOWER, UPPER, np.linspace(0, 8, 4001)) * scale

    assert (ours <= exact + 0.002).all()
    assert (ours >= pixeldp_l1_radius(LOWER, UPPER, sigma=0.5) - 1e-12).all()


def test_the_binary_laplace_radius_is_the_known_one():
    scale = 1 / np.sqrt(2)

    assert laplace_radius(0.9, 0.1, sigma=1.0) == pytest.approx(-scale * np.log(0.2))


@pytest.mark.parametrize(
    "radius", [smoothing_radius, pixeldp_radius, analytic_pixeldp_radius, pixeldp_l1_radius, laplace_radius]
)
def test_overlapping_bounds_certify_nothing_and_extreme_ones_are_finite(radius):
    assert float(radius(0.4, 0.5, sigma=1.0)) == 0
    assert float(radius(0.5, 0.5, sigma=1.0)) == 0
    assert 0 < float(radius(1.0, 0.0, sigma=1.0)) < 100


ODD = [None, "x", b"x", {}, [1, "a"], object(), 10**400, float("nan"), [0.5, float("nan")]]


@pytest.mark.parametrize(
    "radius", [smoothing_radius, pixeldp_radius, analytic_pixeldp_radius, pixeldp_l1_radius, laplace_radius]
)
def test_what_is_no_number_is_refused_in_our_own_words(radius) -> None:
    for argument in ("lower", "upper", "sigma"):
        for value in ODD:
            with pytest.raises(InvalidRequest, match=f"Expected {argument}"):
                radius(**{"lower": 0.7, "upper": 0.2, "sigma": 0.5} | {argument: value})
    for sigma in (0, -1, float("inf")):
        with pytest.raises(InvalidRequest, match="Expected sigma"):
            radius(0.7, 0.2, sigma=sigma)


@pytest.mark.parametrize("chance", [0.01, 0.5, 0.93])
def test_vote_bounds_fail_no_more_often_than_they_may(chance):
    votes = np.arange(51)
    low, high = vote_bounds(votes, 50, failure_probability=0.05)
    law = stats.binom.pmf(votes, 50, chance)

    assert law[low > chance].sum() <= 0.05
    assert law[high < chance].sum() <= 0.05
    assert (law[low > chance - 0.08].sum() > 0.05) or chance < 0.08  # and not much less often


@pytest.mark.parametrize("shape", [(0.3, 0.3), (2.0, 5.0)])
def test_score_bounds_cover_the_mean_of_any_law_on_the_unit_interval(shape):
    rng = np.random.default_rng(1)
    means = rng.beta(*shape, size=(20_000, 40)).mean(1)
    truth = shape[0] / sum(shape)
    low, high = score_bounds(means, 40, failure_probability=0.05)

    assert (low > truth).mean() <= 0.05
    assert (high < truth).mean() <= 0.05


def test_score_bounds_are_never_wider_than_hoeffdings():
    means = np.linspace(0, 1, 101)
    low, high = score_bounds(means, 100, failure_probability=0.01)
    reach = np.sqrt(np.log(100) / 200)

    assert (low >= means - reach - 1e-9).all()
    assert (high <= means + reach + 1e-9).all()
    assert low[0] == 0
    assert high[-1] == 1


@pytest.mark.parametrize("failure", [1e-300, 1e-100, 1e-18, 1e-15, 1e-9, 1e-3, 0.5])
@pytest.mark.parametrize("samples", [1, 7, 1000, 10**9])
def test_bounds_of_rare_failures_are_numbers_on_their_side(samples, failure):
    votes = np.unique(np.rint(np.linspace(0, samples, 9)))
    for low, high in (
        vote_bounds(votes, samples, failure_probability=failure),
        score_bounds(votes / samples, samples, failure_probability=failure),
    ):
        assert np.isfinite([low, high]).all()
        assert (low >= 0).all()
        assert (high <= 1).all()
        assert (low <= votes / samples).all()
        assert (high >= votes / samples).all()
    low, high = vote_bounds(votes, samples, failure_probability=failure)
    inner = (low > 0) & (votes > 0)
    assert (special.betainc(votes[inner], samples - votes[inner] + 1, low[inner]) <= failure).all()
