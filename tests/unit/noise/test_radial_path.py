import pickle

import numpy as np
import pytest

from expost.core import InvalidRequest, Ladder, Norm, PureLoss, Sealed, Sensitivity
from expost.noise import RadialLaplacePath, SeededBits

LADDER = Ladder.of([0.1, 0.5, 2])


def path(exact=(3.0, 4.0), seed=1) -> RadialLaplacePath:
    sealed = Sealed(np.array(exact), Sensitivity(1, Norm.L2))
    return RadialLaplacePath(sealed, LADDER, bits=SeededBits(seed))


def test_it_says_that_it_is_research() -> None:
    assert "RESEARCH" in (RadialLaplacePath.__doc__ or "")
    assert "research" in repr(path())


def test_a_block_holds_its_rungs() -> None:
    subject = path()

    assert subject.block(0, 3).shape == (3, 2)
    assert (subject.at(1) == subject.block(0, 3)[1]).all()
    assert subject.loss(1) == PureLoss(0.5)


def test_steps_are_independent_of_where_they_start() -> None:
    blocks = np.array([path(seed=seed).block(0, 3) for seed in range(3000)]) - [3.0, 4.0]
    steps, starts = blocks[:, 0] - blocks[:, 1], blocks[:, 1]

    norms = np.linalg.norm(steps, axis=1), np.linalg.norm(starts, axis=1)
    assert abs(np.corrcoef(*norms)[0, 1]) < 6 / 3000**0.5
    assert abs(np.corrcoef(steps[:, 0], starts[:, 0])[0, 1]) < 6 / 3000**0.5


@pytest.mark.parametrize("size", [1, 2, 10])
def test_each_coordinate_has_variance_size_plus_one(size: int) -> None:
    values = np.array([path(np.zeros(size), seed=seed).at(1) for seed in range(3000)])

    assert (values**2).mean() == pytest.approx((size + 1) / 0.5**2, rel=0.2)


def test_many_rungs_are_one_jump_process() -> None:
    ladder = Ladder.geometric(0.1, 2, rungs=500)
    sealed = Sealed(np.zeros(2), Sensitivity(1, Norm.L2))
    block = RadialLaplacePath(sealed, ladder, bits=SeededBits(1)).block(0, 500)

    assert (np.diff(block, axis=0) == 0).mean() > 0.9  # most rungs keep their noise


def test_only_flat_vectors_with_an_l2_sensitivity_are_taken() -> None:
    with pytest.raises(InvalidRequest, match="L2"):
        RadialLaplacePath(Sealed(np.zeros(2), Sensitivity(1)), LADDER)
    with pytest.raises(InvalidRequest):
        path(np.zeros((2, 2)))
    with pytest.raises(InvalidRequest):
        path(np.zeros(0))
    with pytest.raises(InvalidRequest, match="sealed"):
        RadialLaplacePath(np.zeros(2), LADDER)  # type: ignore[arg-type]


def test_a_path_shows_nothing_of_its_content() -> None:
    assert "3.0" not in repr(path())
    with pytest.raises(TypeError):
        pickle.dumps(path())


def test_simulated_releases_have_the_radius_of_their_law():
    sealed = Sealed(np.array([3.0, 4.0]), Sensitivity(1, Norm.L2))
    noise = RadialLaplacePath.simulate(sealed, 0.5, runs=20_000, bits=SeededBits(7)) - [3.0, 4.0]
    radius = np.linalg.norm(noise, axis=1)

    # Gamma(2) of scale 2: mean 4, deviation 2.8; six standard errors.
    assert abs(radius.mean() - 4) < 6 * 2.83 / 141
    assert np.abs(noise.mean(axis=0)).max() < 6 * 3.5 / 141
