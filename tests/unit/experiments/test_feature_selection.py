import numpy as np
import pytest

from expost.experiments.thresholdout_figures import Draw, SelectionSetting, accuracies, select

SMALL = SelectionSetting(rows=200, features=60, informative=5, counts=(0, 5, 15))


def brute_force(rng):
    """The same analyst on data that are really there."""
    samples = []
    for _ in range(3):
        labels = np.sign(rng.normal(size=SMALL.rows))
        features = rng.normal(size=(SMALL.rows, SMALL.features)) + np.outer(labels, SMALL.shifts)
        samples.append((features, labels))
    means = [(x * y[:, None]).mean(0) for x, y in samples]
    chosen = select(SMALL, means[0], means[1])
    right = []
    for x, y in samples:
        votes = np.array([x[:, chosen.features[:k]] @ chosen.signs[:k] for k in SMALL.counts[1:]])
        right.append([(np.sign(vote) == y).mean() for vote in votes])
    return np.array(right)


def simulated(rng):
    draw = Draw.of(SMALL, rng)
    chosen = select(SMALL, draw.training, draw.holdout)
    means = (draw.training, draw.holdout, None)
    return np.array([accuracies(SMALL, chosen, each, rng)[1:] / SMALL.rows for each in means])


def test_the_simulation_has_the_law_of_the_real_thing():
    runs = 700
    ours = np.array([simulated(np.random.default_rng(seed)) for seed in range(runs)])
    real = np.array([brute_force(np.random.default_rng(10_000 + seed)) for seed in range(runs)])
    error = np.sqrt((ours.var(0) + real.var(0)) / runs)

    assert (np.abs(ours.mean(0) - real.mean(0)) < 4.5 * error).all()
    np.testing.assert_allclose(ours.std(0), real.std(0), rtol=0.12)


def test_features_are_taken_largest_first_and_only_when_both_samples_agree():
    setting = SelectionSetting(rows=100, features=4, counts=(0, 4))
    chosen = select(setting, np.array([0.3, -0.5, 0.2, 0.9]), np.array([0.2, -0.2, -0.4, 0.01]))

    assert chosen.features.tolist() == [1, 0]
    assert chosen.signs.tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("means", [None, np.zeros(4)])
def test_nobody_is_chosen_when_nothing_agrees(means):
    setting = SelectionSetting(rows=100, features=4, counts=(0, 4))
    chosen = select(setting, np.zeros(4), np.zeros(4))

    assert accuracies(setting, chosen, means, np.random.default_rng(1)).tolist() == [50, 50]
