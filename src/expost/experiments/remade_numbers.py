"""The measurements that the README and the docs state and that this package can make again by itself.

Each maker returns numbers by name, from the questions that the page asks. Numbers that need other libraries or many runs come from the
benchmarks of a clone instead (``stated_numbers``).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from statistics import median

from sklearn.linear_model import LogisticRegression

from expost.core import ExpostError
from expost.data import Dataset
from expost.experiments.census_table import CENSUS_BOUNDS, CENSUS_CATEGORIES, CENSUS_TARGET, census_table
from expost.models import Classifier
from expost.models.tabular import encode_frame
from expost.session import Session

__all__ = ["MAKERS", "run_maker"]


@cache
def _census() -> Dataset:
    return Dataset(census_table(), name="census", bounds=CENSUS_BOUNDS, categories=CENSUS_CATEGORIES)


def _session() -> Session:
    return Session(_census(), budget=(2, 1e-5))


def _numbers_of_table() -> dict[str, float]:
    """Return what the table has: its rows, its columns, and the share of the most frequent class."""
    table = census_table()
    counts = [each["counts"].as_py() for each in table[CENSUS_TARGET].value_counts()]
    return {"rows": len(table), "columns": table.num_columns, "most frequent class": max(counts) / len(table)}


def _model_without_privacy() -> dict[str, float]:
    """Return the accuracy of logistic regression without privacy on the same features."""

    table = census_table()
    encoder = Classifier(epsilon=1).fit(_census(), target=CENSUS_TARGET).encoder_
    features, labels = encode_frame(table, encoder), table[CENSUS_TARGET].to_numpy(zero_copy_only=False)
    return {"accuracy": LogisticRegression(max_iter=300).fit(features, labels).score(features, labels)}


def _count_of_census() -> dict[str, float]:
    release = _session().count(where="income = '>50K'", within="5%")
    low, high = release.interval or (math.nan, math.nan)
    return {"value": release.value, "low": low, "high": high, "epsilon": release.receipt.epsilon}


def _means_of_census() -> dict[str, float]:
    release = _session().mean("hours_per_week", by="sex", within=0.5)
    return {str(sex): hours for sex, hours in release.value.items()} | {"epsilon": release.receipt.epsilon}


def _classifier_of_census() -> dict[str, float]:
    receipt = Classifier(score=("accuracy", 0.84), max_epsilon=1).fit(_census(), target=CENSUS_TARGET).receipt_
    accuracy, _, error = receipt.terms["measured accuracy"].partition(" ± ")
    surest = 100 / (1 + math.exp(-receipt.epsilon))
    return {"epsilon": receipt.epsilon, "accuracy": float(accuracy), "error": float(error), "surest": surest}


MAKERS: Mapping[str, tuple[Callable[[], dict[str, float]], int]] = {
    "census table": (_numbers_of_table, 1),
    "census without privacy": (_model_without_privacy, 1),
    "census count": (_count_of_census, 5),
    "census means": (_means_of_census, 5),
    "census classifier": (_classifier_of_census, 3),
}
"""What can be made again, by name, and how often it is; every run draws new noise."""


def run_maker(name: str) -> dict[str, float]:
    """Return the medians of the numbers of one maker; none where it cannot run, such as a target that a run missed."""
    make, runs = MAKERS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = [make() for _ in range(runs)]
        except (ExpostError, ImportError):
            return {}
    return {key: float(median(each[key] for each in found)) for key in found[0]}
