"""Plans of holdouts: a number, or the house's refusal; never another library's error."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from expost import holdout
from expost.core import InvalidRequest, approx, epsilon
from expost.holdout.typed import amount_of, chance_of, count_of

ODD: list[Any] = [None, 0, -1, 1, 2, 0.5, 1e-40, 1e-9, 1e12, 1e40, 1e308, math.nan, math.inf, -math.inf, True, 1.5]
ODD += [10**30, 10**400, "1", "x", b"x", [], {}, (1, 2), [1, "a"], [math.nan, 1], object(), Fraction(1, 3)]
ODD += [np.float64(0.1), np.int64(50)]
SIZE = {"max_hits": 10, "sigma": 0.1, "error": 0.1, "failure_probability": 0.05}
PLAN = {"rows": 50_000, "tolerance": 0.1, "failure_probability": 0.05, "max_queries": 100, "variant": "improved"}

CALLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "rows for pure": (holdout.rows_for_pure, SIZE),
    "rows for approximate": (holdout.rows_for_approximate, SIZE),
    "rows for concentrated": (holdout.rows_for_concentrated, SIZE),
    "approximate epsilon": (holdout.approximate_epsilon, {"max_hits": 10, "sigma": 0.1, "rows": 1000, "delta": 1e-5}),
    "overfitting": (
        holdout.chance_of_overfitting,
        {"bits": 3.0, "chance_when_fixed": 0.01, "failure_probability": 0.01},
    ),
    "bits of privacy": (
        holdout.max_information_of_privacy,
        {"epsilon": 0.1, "rows": 1000, "failure_probability": 0.01},
    ),
    "bits of transcripts": (holdout.max_information_of_transcripts, {"log_count": 3.0}),
    "sampling error": (holdout.sampling_error, {"rows": 1000, "failure_probability": 0.05}),
    "generalization error": (
        holdout.generalization_error,
        {"guarantee": approx(0.1, 1e-6), "rows": 1000, "failure_probability": 0.05},
    ),
    "transfer error": (
        holdout.transfer_error,
        {"guarantee": epsilon(0.1), "sample_error": 0.1, "sample_failure": 0.01, "failure_probability": 0.05},
    ),
    "plan": (holdout.plan_holdout, PLAN | {"max_hits": None, "noise_share": Fraction(1, 4)}),
    "affordable hits": (holdout.affordable_hits, PLAN),
    "rows needed": (
        holdout.rows_needed,
        {"max_hits": 10, "tolerance": 0.1, "failure_probability": 0.05, "max_queries": 100, "variant": "improved"},
    ),
    "tolerance reached": (
        holdout.tolerance_reached,
        {"rows": 50_000, "max_hits": 10, "failure_probability": 0.05, "max_queries": 100},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_number_ends_in_an_error_that_is_not_ours(name: str) -> None:
    call, usual = CALLS[name]
    call(**usual)
    for argument in usual:
        for value in ODD:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    found = call(**usual | {argument: value})
                except InvalidRequest as refusal:
                    assert str(refusal).startswith("Expected "), (argument, value)
                else:
                    assert found == found, (argument, value)  # not nan


def test_numbers_are_taken_as_they_are_and_refused_by_name() -> None:
    assert amount_of(np.float64(2.5), "sigma") == 2.5
    assert chance_of(0, "sample_failure", zero=True) == 0.0
    assert count_of(2**53, "rows") == 2**53
    for call, value, said in (
        (count_of, 2**53 + 1, "rows of at most 2\\^53"),
        (amount_of, 0, "rows to be a number > 0, got 0"),
        (chance_of, 1, "rows below 1, got 1"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            call(value, "rows")
