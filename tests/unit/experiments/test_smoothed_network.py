import numpy as np
import pytest

from expost.experiments.pixeldp_figures import attack, input_gradient, train
from expost.noise import SeededBits

RNG = np.random.default_rng(1)
IMAGES = RNG.random((400, 6), dtype=np.float32)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_gradient_is_that_of_the_log_score(classes):
    labels = np.minimum((IMAGES[:, 0] * classes).astype(int), classes - 1)
    model = train(IMAGES, labels, sigma=0.1, epochs=5)
    chosen = np.arange(5) % classes
    exact = np.zeros((5, 6))
    for place in range(6):
        step = np.zeros(6)
        step[place] = 1e-4
        up, down = (model.predict_log_proba(IMAGES[:5].astype(float) + sign * step) for sign in (1, -1))
        exact[:, place] = (up - down)[np.arange(5), chosen] / 2e-4

    np.testing.assert_allclose(input_gradient(model, IMAGES[:5], chosen), exact, atol=2e-3)


@pytest.mark.parametrize("sigma", [0.0, 0.2])
def test_an_attack_stays_within_its_radius_and_lowers_the_score(sigma):
    labels = (IMAGES[:, 0] > 0.5).astype(int)
    model = train(IMAGES, labels, sigma=0.1, epochs=20)
    radii = np.linspace(0.0, 0.5, 20)

    moved = attack(model, IMAGES[:20], labels[:20], radii, sigma=sigma, bits=SeededBits(1))

    assert (np.linalg.norm(moved - IMAGES[:20], axis=1) <= radii + 1e-6).all()
    before, after = (model.predict_proba(x)[np.arange(20), labels[:20]] for x in (IMAGES[:20], moved))
    assert (after[5:] < before[5:]).all()
