"""Plans of holdouts: a number, or the house's refusal; never another library's error."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.odd_numbers import answers

from expost import holdout
from expost.core import InvalidRequest, approx, epsilon
from expost.holdout.typed import amount_of, chance_of, count_of

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
    for argument, value, found in answers(*CALLS[name]):
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
