from fractions import Fraction

import numpy as np
import pytest
from tests.odd_numbers import answers

from expost import noise
from expost.core import InvalidRequest
from expost.noise import SeededBits, sample_laplace
from expost.noise.parameter import LARGEST_SCALE, MOST_NUMBERS, Parameter, iterate_blocks, read_shape


def test_a_float_means_its_shortest_decimal() -> None:
    assert Parameter.read(0.1, 3, "scale").exact(2) == Fraction(1, 10)


@pytest.mark.parametrize(
    "value",
    [[0.5, 2, 0.5], (0.5, Fraction(2), 0.5), np.array([0.5, 2.0, 0.5]), np.array([0.5, Fraction(2), 0.5], object)],
)
def test_every_element_finds_its_own_value(value) -> None:
    parameter = Parameter.read(value, None, "scale")

    assert [parameter.exact(i) for i in range(3)] == [Fraction(1, 2), Fraction(2), Fraction(1, 2)]
    assert len(parameter.floats) == 2
    assert (parameter.take(parameter.floats, slice(0, 3)) == [0.5, 2, 0.5]).all()


def test_numpy_integers_are_exact() -> None:
    assert Parameter.read(np.array([2**59, 3]), None, "scale").exact(0) == 2**59
    assert Parameter.read(np.int64(7), None, "scale").exact(0) == 7


def test_some_elements_keep_their_values() -> None:
    parameter = Parameter.read([1, 2, 3, 2], None, "scale").select(np.array([3, 0]))

    assert [parameter.exact(i) for i in range(2)] == [2, 1]
    assert parameter.count == 2


@pytest.mark.parametrize(("size", "shape"), [(None, None), (3, (3,)), ((2, 3), (2, 3)), (0, (0,))])
def test_a_size_is_a_shape(size, shape) -> None:
    assert read_shape(size) == shape


def test_results_take_the_shape_asked_for() -> None:
    assert isinstance(sample_laplace(3), int)
    assert sample_laplace(3, 4).shape == (4,)
    assert sample_laplace(3, (2, 3)).shape == (2, 3)
    assert sample_laplace(np.ones((2, 2))).shape == (2, 2)
    assert sample_laplace(3, 0).shape == (0,)
    assert sample_laplace([]).shape == (0,)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "3", None, True, 10**40, [1, 0], [[1], [2, 3]]])
def test_a_senseless_scale_is_refused(value) -> None:
    with pytest.raises(InvalidRequest):
        sample_laplace(value, None)


@pytest.mark.parametrize("size", [-1, 1.5, "3", (2, -1), True])
def test_a_senseless_size_is_refused(size) -> None:
    with pytest.raises(InvalidRequest):
        sample_laplace(1, size)


SAMPLERS = {"sample_bernoulli": "probability", "sample_bernoulli_exp": "exponent", "sample_gaussian": "variance"}
SAMPLERS |= dict.fromkeys(["sample_laplace", "sample_geometric"], "scale")
CALLS = {name: {parameter: 1, "size": 2} for name, parameter in SAMPLERS.items()}
CALLS |= {
    "sample_uniform": {"bound": 1, "size": 2},
    "sample_spherical_laplace": {"scale": 10, "dimension": 3, "runs": 2},
}


@pytest.mark.parametrize("name", CALLS)
def test_no_number_of_a_sampler_ends_in_an_error_that_is_not_ours(name: str) -> None:
    bits = SeededBits(1)
    for argument, value, drawn in answers(lambda **terms: getattr(noise, name)(**terms, bits=bits), CALLS[name]):
        assert np.asarray(drawn).dtype.kind in "biO", (argument, value)


def test_no_more_numbers_are_drawn_at_once_than_a_computer_holds() -> None:
    for size in (MOST_NUMBERS + 1, (MOST_NUMBERS, 2), (10**9, 10**9)):
        with pytest.raises(InvalidRequest, match=str(MOST_NUMBERS)):
            read_shape(size)


def test_a_size_that_contradicts_the_parameters_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="one scale per element"):
        sample_laplace([1, 2, 3], 4)


def test_the_largest_scale_is_taken_and_the_next_refused() -> None:
    assert Parameter.read(LARGEST_SCALE, 1, "scale").exact(0) == LARGEST_SCALE
    with pytest.raises(InvalidRequest, match="at most"):
        Parameter.read(LARGEST_SCALE + 1, 1, "scale")


def test_blocks_cover_everything_once() -> None:
    covered = np.concatenate([np.arange(100_000)[part] for part in iterate_blocks(100_000)])

    assert (covered == np.arange(100_000)).all()
    assert list(iterate_blocks(0)) == []
