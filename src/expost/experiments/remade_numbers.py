"""The measurements that the README and the docs state and that this package can make again by itself.

Each maker returns numbers by name, from the questions that the page asks. Numbers that need other libraries or many runs come from the
benchmarks of a clone instead (``stated_numbers``).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from functools import cache

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


MAKERS: Mapping[str, Callable[[], dict[str, float]]] = {
    "census table": _numbers_of_table,
    "census without privacy": _model_without_privacy,
    "census count": _count_of_census,
    "census means": _means_of_census,
    "census classifier": _classifier_of_census,
}
"""What can be made again, by name; every call draws new noise."""


def run_maker(name: str) -> dict[str, float]:
    """Return the numbers of one maker; none where it cannot run, such as a target that this run missed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return {key: float(value) for key, value in MAKERS[name]().items()}
        except (ExpostError, ImportError):
            return {}
