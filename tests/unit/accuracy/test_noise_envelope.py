"""The table of noise covers fresh noise as often as it says, for all vectors at once."""

import json

import numpy as np
import pytest
from benchmarks.noise_envelope import FAILURES, simulate_stretches, table_row

from expost import InvalidRequest
from expost.accuracy.noise_envelope import OFFSETS, NoiseEnvelope, _read_table
from expost.noise import SeededBits


@pytest.mark.parametrize("dimension", [1, 3, 11, 17])
def test_fresh_noise_stays_within_the_envelope_as_often_as_promised(dimension: int) -> None:
    draws = simulate_stretches(dimension, 4000, bits=SeededBits(dimension))
    envelope = NoiseEnvelope.of(dimension, 0.1)

    limits = np.concatenate([[envelope.matrix], envelope.stretches])
    outside = (draws > limits).any(axis=1).mean()

    assert outside <= 0.1 + 4 * np.sqrt(0.09 / 4000)
    # A table 15 % too small is noticed; where the dimension is in the table, so is one 20 % too large.
    assert (draws > 0.85 * limits).any(axis=1).mean() > 0.12
    if dimension in _read_table():
        assert (draws > 1.2 * limits).any(axis=1).mean() < 0.09


def test_no_vector_is_stretched_beyond_the_reach_of_its_length() -> None:
    rng = np.random.default_rng(0)
    dimension = 6
    for _ in range(50):
        noise = rng.laplace(size=(dimension, dimension)) / 2
        matrix = np.triu(noise, 1) + np.triu(noise, 1).T + np.diag(rng.laplace(size=dimension))
        vector = rng.laplace(size=dimension)
        stretches = np.array([np.linalg.norm(np.column_stack([matrix, -vector / offset]), 2) for offset in OFFSETS])
        envelope = NoiseEnvelope(stretches, np.linalg.norm(matrix, 2))
        values, vectors = np.linalg.eigh(matrix)
        tried = np.vstack([rng.normal(size=(50, dimension)), 3 * vectors.T, -3 * vectors.T, np.zeros((1, dimension))])

        stretched = np.linalg.norm(tried @ matrix - vector, axis=1)

        assert (stretched <= envelope.reach(np.linalg.norm(tried, axis=1)) * (1 + 1e-12)).all()
        assert np.abs(values).max() == pytest.approx(envelope.matrix)


def test_simulated_stretches_are_spectral_norms() -> None:
    draws = simulate_stretches(1, 50, bits=SeededBits(4))

    # In one dimension [B, -b/offset] has norm sqrt(B^2 + (b/offset)^2), so two columns give the third.
    square = draws**2
    b2 = (square[:, 1] - square[:, 0]) * OFFSETS[0] ** 2
    assert np.allclose(square[:, 2], square[:, 0] + b2 / OFFSETS[1] ** 2)


def test_a_larger_dimension_or_rarer_failure_never_needs_less() -> None:
    for failure in (0.1, 0.01):
        reaches = [float(NoiseEnvelope.of(size, failure).reach(np.array([1.0]))[0]) for size in (2, 8, 20, 50, 100)]
        assert reaches == sorted(reaches)
    rarer = [NoiseEnvelope.of(8, failure).matrix for failure in FAILURES]
    assert rarer == sorted(rarer)


def test_the_table_in_the_package_is_what_the_simulation_writes() -> None:
    row = table_row(simulate_stretches(2, 20_000, bits=SeededBits(20_170_002)), 2)

    assert json.loads(json.dumps(row)) == _read_table()[2]


def test_what_the_table_does_not_cover_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="objective"):
        NoiseEnvelope.of(10_000, 0.1)
    with pytest.raises(InvalidRequest, match="failure"):
        NoiseEnvelope.of(10, 1e-9)
