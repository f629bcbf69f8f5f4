import numpy as np

from expost.core import Sealed, Sensitivity
from expost.noise import DiscreteLaplacePath, SeededBits
from expost.noise.lattice import sealed_copies


def test_copies_are_the_same_numbers_under_the_same_sensitivity():
    sealed = Sealed(np.array([3, 1000]), Sensitivity(2))
    many = sealed_copies(sealed, 500)
    released = DiscreteLaplacePath(many, [50], bits=SeededBits(1)).at(0).reshape(500, 2)

    assert many.sensitivity == sealed.sensitivity
    assert (np.abs(released - [3, 1000]) <= 2).all()


def test_copies_are_released_under_noise_of_their_own():
    released = DiscreteLaplacePath(sealed_copies(Sealed(0, Sensitivity(1)), 1000), [0.1], bits=SeededBits(1)).at(0)

    assert len(np.unique(released)) > 20
