"""Every release leaves as a table of three libraries and as a picture."""

import numpy as np
import pyarrow as pa
import pytest

from expost.data import Dataset
from expost.noise import SeededBits
from expost.stats import (
    ApproximateBounds,
    ContingencyTable,
    Count,
    CountByPrivateKeys,
    Covariance,
    Histogram,
    Mean,
    Median,
    MostCommon,
    PrivateKeys,
    Quantiles,
    Sum,
    Summary,
    TopK,
)

RNG = np.random.default_rng(0)
TABLE = pa.table(
    {"g": RNG.choice(["a", "b"], 3000), "c": RNG.choice(["x", "y"], 3000), "v": RNG.integers(0, 100, 3000)}
)
DATA = Dataset(TABLE, bounds={"v": (0, 100)}, categories={"g": ["a", "b", "none"], "c": ["x", "y"]})
QUESTIONS = {
    "count": (Count(epsilon=1), 1),
    "climb": (Count(within="5%", max_epsilon=5), 1),
    "mean": (Mean("v", within="5%", max_epsilon=5), 1),
    "groups": (Sum("v", within="9%", max_epsilon=5, by="g"), 3),
    "histogram": (Histogram("v", edges=[0, 10, 50, 100], epsilon=1), 3),
    "histogram by group": (Histogram("v", edges=[0, 10, 50, 100], epsilon=1, by="g"), 9),
    "table": (ContingencyTable(["g", "c"], epsilon=1), 6),
    "top": (TopK("c", 1, epsilon=1), 1),
    "quantiles": (Quantiles("v", [0.25, 0.5], epsilon=2, levels=1), 2),
    "median": (Median("v", epsilon=1), 1),
    "medians": (Median("v", epsilon=1, by="g"), 3),
    "most common": (MostCommon("c", epsilon=1), 1),
    "most common by group": (MostCommon("c", epsilon=1, by="g"), 3),
    "covariance": (Covariance(["v", "v"], epsilon=2), 4),
    "covariances": (Covariance(["v", "v"], epsilon=2, by="g"), 9),
    "summary": (Summary(["v"], epsilon=2), 2),
    "bounds": (ApproximateBounds("v", epsilon=1), 1),
    "no bounds": (ApproximateBounds("v", epsilon=1, where="v > 1000"), 1),
    "private bounds": (Mean("v", bounds="private", epsilon=2), 1),
    "keys": (PrivateKeys("g", epsilon=1, delta=1e-6), 1),
    "private keys": (CountByPrivateKeys("g", epsilon=2, delta=1e-6), 2),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_releases_are_tables_and_pictures(name: str, tmp_path) -> None:
    question, rows = QUESTIONS[name]
    plan = question.plan(DATA)
    release = plan.climb(plan.measure(DATA), SeededBits(1))

    table = release.to_arrow()
    assert table.num_rows == len(release.to_pandas()) == release.to_polars().height == rows
    assert {"value", "low", "high"} <= set(table.column_names)
    assert len(repr(release)) < 500
    if name != "no bounds":  # nothing was found, so there is nothing to draw
        release.plot(str(tmp_path / "picture.png"))
        assert (tmp_path / "picture.png").stat().st_size > 5000


def test_a_histogram_has_both_edges_in_its_table_and_bars_in_its_picture() -> None:
    question, _ = QUESTIONS["histogram"]
    plan = question.plan(DATA)
    release = plan.climb(plan.measure(DATA), SeededBits(1))

    assert release.to_arrow().select(["v", "v to"]).to_pydict() == {"v": [0.0, 10.0, 50.0], "v to": [10.0, 50.0, 100.0]}
    assert len(release.plot().axes[0].patches) == 3
