"""Small privacy levels on fine grids: answered, flagged or refused before anything is spent, never an error after."""

import numpy as np
import pyarrow as pa
import pytest

from expost.core import InvalidRequest
from expost.data import Dataset
from expost.noise import SeededBits
from expost.stats import Covariance, Mean, StandardDeviation, Sum, Variance

RNG = np.random.default_rng(0)
TABLE = pa.table({"pay": RNG.normal(50, 20, 2_000), "age": RNG.integers(0, 100, 2_000)})
PEOPLE = Dataset(TABLE, bounds={"pay": (0, 100), "age": (0, 100)})


@pytest.mark.parametrize("level", [1.0, 0.1, 1e-3, 5e-4])
@pytest.mark.parametrize("way", ["cap", "fixed"])
@pytest.mark.parametrize(
    "build",
    [
        lambda **terms: Sum("pay", **terms),
        lambda **terms: Mean("pay", **terms),
        lambda **terms: Variance("pay", **terms),
        lambda **terms: StandardDeviation("pay", **terms),
        lambda **terms: Covariance(["pay", "age"], **terms),
    ],
    ids=["sum", "mean", "variance", "deviation", "covariance"],
)
def test_small_levels_work_on_fine_grids(build, way: str, level: float) -> None:
    question = build(within="10%", max_epsilon=level) if way == "cap" else build(epsilon=level)
    plan = question.plan(PEOPLE)
    release = plan.climb(plan.measure(PEOPLE), SeededBits(1))

    assert release.receipt.epsilon <= level and release.interval is not None


def test_a_level_beyond_exact_noise_is_refused_before_rows_are_read() -> None:
    with pytest.raises(InvalidRequest, match="narrower"):
        Variance("pay", epsilon=1e-9).plan(PEOPLE)
