"""Descent is ordinary arithmetic on noisy gradients, and can be interrupted."""

import numpy as np
import pytest

from expost.core import InvalidRequest
from expost.models.descent.descent_rule import Descent, DescentRule, Stride


def quadratic(rule: DescentRule, steps: int = 300, rate: float = 0.1) -> Descent:
    walk = Descent(rule, np.zeros(3))
    for _ in range(steps):
        walk.apply_gradient(walk.weights - np.array([1.0, 2.0, 3.0]), Stride(rate))
    return walk


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_it_reaches_the_minimum(momentum: float) -> None:
    walk = quadratic(DescentRule(momentum=momentum))

    assert np.allclose(walk.weights, [1, 2, 3], atol=1e-3)
    assert np.allclose(walk.result, [1, 2, 3], atol=0.05)


def test_the_penalty_pulls_towards_zero() -> None:
    walk = quadratic(DescentRule(regularization=1.0, averaging=0.0))

    assert np.allclose(walk.result, [0.5, 1.0, 1.5], atol=1e-3)


def test_averaging_weighs_iterates_by_a_power_of_their_number() -> None:
    walk = Descent(DescentRule(momentum=0.0, averaging=1.0), np.zeros(1))
    for _ in range(50):
        walk.apply_gradient(np.array([-1.0]), Stride(1.0))  # the iterates are 1, 2, 3, ...

    weights = np.arange(1, 51)
    assert np.isclose(walk.result[0], (weights * weights).sum() / weights.sum())


def test_averaging_quiets_noise() -> None:
    rng = np.random.default_rng(0)
    walk = Descent(DescentRule(momentum=0.0), np.zeros(1000))
    for _ in range(200):
        walk.apply_gradient(walk.weights + rng.normal(size=1000), Stride(0.5))

    assert walk.result.std() < 0.5 * walk.weights.std()


def test_a_restored_walk_goes_on_as_if_nothing_had_happened() -> None:
    rule, straight = DescentRule(), quadratic(DescentRule(), 20)
    first = quadratic(rule, 8)
    second = Descent(rule, np.zeros(3))
    second.restore_state({name: array.copy() for name, array in first.copy_state().items()})
    for _ in range(12):
        second.apply_gradient(second.weights - np.array([1.0, 2.0, 3.0]), Stride(0.1))

    assert np.array_equal(second.result, straight.result)


def test_a_state_of_another_model_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="checkpoint"):
        Descent(DescentRule(), np.zeros(2)).restore_state(quadratic(DescentRule()).copy_state())


def test_the_step_size_follows_the_noise_up_to_what_is_stable() -> None:
    rule, terms = DescentRule(), {"steps": 100, "row_length": 1.0, "curvature": 0.25}

    quiet, loud, louder = (rule.find_rate(noise=noise, **terms) for noise in (1e-9, 0.01, 0.02))

    assert quiet == rule.find_rate(noise=1e-12, **terms)
    assert quiet > loud
    assert np.isclose(loud, 2 * louder)
    assert DescentRule(learning_rate=0.3).find_rate(noise=1.0, **terms) == 0.3


@pytest.mark.parametrize(
    "wrong", [{"learning_rate": 0.0}, {"momentum": 1.0}, {"regularization": -1.0}, {"averaging": -1.0}], ids=str
)
def test_senseless_rules_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest):
        DescentRule(**wrong)


def weighed(noises: list[float], rng: np.random.Generator) -> Descent:
    """Gradients that are noise alone, ever less of it."""
    walk = Descent(DescentRule(weighing=True), np.zeros(4000))
    for noise in noises:
        stride = walk.rule.find_stride(noise=noise, steps=1, row_length=2.0, curvature=1e-9)
        walk.apply_gradient(noise * rng.normal(size=4000), stride)
    return walk


def test_weighed_steps_keep_the_noise_of_a_score_the_same_whenever_training_stops() -> None:
    rng = np.random.default_rng(3)

    for noises in ([1.0], [8.0, 4.0, 2.0, 1.0], [1.0] * 9):
        assert abs(weighed(noises, rng).weights.std() * 2.0 - 1.0) < 0.06


def test_weighed_steps_let_noisy_gradients_fade() -> None:
    walk = Descent(DescentRule(weighing=True), np.zeros(2))
    for noise, gradient in ((10.0, [-1.0, 0.0]), (1.0, [0.0, -1.0])):
        walk.apply_gradient(
            np.array(gradient), walk.rule.find_stride(noise=noise, steps=1, row_length=1.0, curvature=1e-9)
        )

    assert abs(walk.weights[1] / walk.weights[0] - 100) < 1e-9  # as their precisions


def test_weighed_steps_go_on_from_a_state() -> None:
    first = weighed([4.0, 2.0], np.random.default_rng(1))
    second = Descent(DescentRule(weighing=True), np.zeros(4000))
    second.restore_state(first.copy_state())
    stride = first.rule.find_stride(noise=1.0, steps=1, row_length=2.0, curvature=1e-9)
    for walk in (first, second):
        walk.apply_gradient(np.ones(4000), stride)

    assert (first.result == second.result).all()
