import numpy as np
import pytest
from scipy.spatial import distance

from expost.core import InvalidRequest
from expost.noise import SeededBits
from expost.robustness import FairPredictor, individual_fairness, smoothing_bound, treatment_bound
from expost.robustness.certificate import expected_scores
from expost.robustness.noisy_model import scores_of_model

PEOPLE = np.random.default_rng(1).normal(size=(60, 3))


def euclid(a, b):
    return distance.cdist(a, b)


def hops(a, b):
    """A metric with no coordinates: how many of the three signs differ."""
    return (np.sign(a)[:, None] != np.sign(b)[None]).sum(2).astype(float)


def cliff(x):
    return np.stack([x[:, 0] > 0, x[:, 0] <= 0], axis=1).astype(float)


@pytest.mark.parametrize("metric", [euclid, hops])
@pytest.mark.parametrize("leniency", [0.2, 1.0, 5.0])
def test_a_fair_predictor_passes_its_own_audit_in_any_metric(metric, leniency):
    fair = FairPredictor(cliff, PEOPLE[:25], metric=metric, leniency=leniency)

    assert individual_fairness(fair, PEOPLE, metric=metric, leniency=leniency).holds


def test_the_bound_is_nearly_reached():
    """Two references, and two people who each stand on one of them."""
    ends = np.array([[0.0], [1.0]])
    fair = FairPredictor(lambda x: np.stack([x[:, 0], 1 - x[:, 0]], axis=1), ends, metric=euclid, leniency=2)
    scores = fair(ends)

    assert abs(scores[1, 0] - scores[0, 0]) == pytest.approx(float(treatment_bound(1.0, leniency=2)), rel=1e-9)


def test_a_cliff_is_found_unfair_and_the_needed_leniency_is_enough():
    report = individual_fairness(cliff, PEOPLE, metric=euclid, leniency=1)
    soft = FairPredictor(cliff, PEOPLE, metric=euclid, leniency=3)
    needed = individual_fairness(soft, PEOPLE, metric=euclid, leniency=1).needed_leniency

    assert not report.holds
    assert report.violations > 0
    assert report.pairs == 60 * 59 // 2
    first, second = report.worst_pair
    assert cliff(PEOPLE[[first]])[0, 0] != cliff(PEOPLE[[second]])[0, 0]
    assert needed <= 3
    assert individual_fairness(soft, PEOPLE, metric=euclid, leniency=needed * 1.0001).holds
    assert not individual_fairness(soft, PEOPLE, metric=euclid, leniency=needed * 0.99).holds


def test_people_far_from_zero_are_told_apart_as_the_model_does():
    now = 1.7e9  # float32 would make these four one person
    people = now + np.array([[-2.0], [-1.0], [1.0], [2.0]])

    report = individual_fairness(lambda x: cliff(x - now), people, metric=euclid, leniency=0.001)
    fair = FairPredictor(lambda x: cliff(x - now), people, metric=euclid, leniency=5)

    assert (report.holds, report.violations, report.worst_pair) == (False, 4, (1, 2))
    assert fair(people)[0, 0] < 0.1 < 0.9 < fair(people)[3, 0]


def test_people_without_a_score_are_refused():
    with pytest.raises(InvalidRequest, match="a score for every person"):
        individual_fairness(lambda x: np.full((len(x), 2), np.nan), PEOPLE, metric=euclid, leniency=1)
    with pytest.raises(InvalidRequest, match="Expected finite inputs"):
        individual_fairness(cliff, [["a"], ["b"]], metric=lambda a, b: np.ones((2, 2)), leniency=1)


def test_a_constant_model_is_fair_at_any_leniency():
    report = individual_fairness(lambda x: np.full((len(x), 2), 0.5), PEOPLE, metric=euclid, leniency=1e-6)

    assert report.holds
    assert report.needed_leniency == 0.0


@pytest.mark.parametrize(("noise", "order"), [("gaussian", 2), ("laplace", 1)])
def test_noisy_scores_differ_by_no_more_than_the_smoothing_bound(noise, order):
    inputs = np.array([[-1.0, 0.0], [0.3, 0.0], [0.3, 0.4], [1.0, 0.0]], np.float32)
    scores = expected_scores(scores_of_model(cliff), inputs, noise, 0.7, 40_000, bits=SeededBits(1))[:, 0]
    apart = np.linalg.norm(inputs[:, None] - inputs[None], ord=order, axis=2)

    difference = np.abs(scores[:, None] - scores[None])

    assert (difference <= smoothing_bound(apart, sigma=0.7, noise=noise) + 0.01).all()
    assert difference[0, 3] > 0.8 * smoothing_bound(2.0, sigma=0.7, noise=noise)


def test_nonsense_is_refused():
    with pytest.raises(InvalidRequest, match="people"):
        individual_fairness(cliff, PEOPLE[:1], metric=euclid, leniency=1)
    with pytest.raises(InvalidRequest, match="matrix of non-negative distances"):
        individual_fairness(cliff, PEOPLE, metric=lambda a, b: -euclid(a, b), leniency=1)
    with pytest.raises(InvalidRequest, match="leniency"):
        individual_fairness(cliff, PEOPLE, metric=euclid, leniency=0)


@pytest.mark.parametrize("distance", [None, "x", b"x", {}, [1, "a"], object(), 10**400, float("nan")])
def test_a_distance_that_is_no_number_is_refused_in_our_own_words(distance) -> None:
    for bound in (lambda d: treatment_bound(d, leniency=1), lambda d: smoothing_bound(d, sigma=1)):
        with pytest.raises(InvalidRequest, match="Expected distance to be numbers"):
            bound(distance)
