"""What must hold when questions follow each other, and at the edges."""

import numpy as np
import pyarrow as pa
import pytest

import expost
from expost import stats
from expost.core import PlanContext, PureLoss, unseal
from expost.noise import SeededBits


def flights(rows: int = 4_000) -> expost.Dataset:
    carrier = [f"c{index % 20}" for index in range(rows)]
    return expost.Dataset(
        pa.table({"carrier": carrier}), name="flights", categories={"carrier": [f"c{k}" for k in range(20)]}
    )


def test_a_loose_question_first_leaves_a_strict_one_its_failure_probability() -> None:
    first, second = (
        stats.Count(within=within, confidence=confidence, max_epsilon=5, by="carrier")
        for within, confidence in (("20%", 0.05), ("5%", 0.95))
    )
    cache, data = stats.ReleaseCache(), flights()
    for question in (first, second):
        plan = question.plan(data, PlanContext(cache))
        plan.climb(plan.measure(data), SeededBits(1))
    (key,) = cache.keys()

    from expost.stats.relative_climb import RelativeClimb

    target = second.target
    climb = RelativeClimb(target.tolerance, target.failure_probability, 5)
    assert sum(climb.scale_parts(cache.find_release(key).failure_parts)) <= target.failure_probability


def test_a_cap_below_what_was_paid_looks_at_the_last_rung_again() -> None:
    session = expost.Session(flights(), expost.epsilon(10))
    session.count(epsilon=1)

    release = session.count(within="1%", max_epsilon=0.5)

    assert release.receipt.bill == PureLoss(0)


def test_a_tiny_share_is_answered_or_missed_like_any_other() -> None:
    session = expost.Session(flights(), expost.epsilon(1))

    with pytest.raises(expost.TargetNotMet):
        session.count(within="0.0001%", max_epsilon=0.5)


def test_keys_left_out_by_bounding_open_no_group() -> None:
    rows = 2_000
    table = pa.table({"id": [0] * rows, "city": [f"c{k}" for k in range(rows)]})
    data = expost.Dataset(table, name="t", unit="id", max_rows_per_unit=1)
    question = stats.PrivateKeys("city", epsilon=1, delta=1e-3)
    plan = question.plan(data)

    found = plan.measure(data)

    assert len(found.keys) == 1
    assert unseal(found.sealed).tolist() == [1]


def test_two_lookups_of_one_name_are_two_questions() -> None:
    from expost.data.expression import Lookup, col

    first, second = (Lookup(col("a"), ("x", "y"), values, label="t") for values in ((0, 1), (1, 0)))

    assert repr(first) != repr(second)


def test_a_covariance_covers_in_a_tiny_table() -> None:
    table = pa.table({"x": [0.0, 1.0, 2.0, 3.0, 4.0], "y": [4.0, 3.0, 2.0, 1.0, 0.0]})
    data = expost.Dataset(table, name="t", bounds={"x": (0, 4), "y": (0, 4)})
    exact = np.cov([[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]], bias=True)
    question = stats.Covariance(["x", "y"], epsilon=1, confidence=0.8)
    plan = question.plan(data)

    missed = 0
    for seed in range(200):
        release = plan.climb(plan.measure(data), SeededBits(seed))
        low, high = (np.asarray(end) for end in release.interval)
        missed += bool(((low > exact) | (high < exact)).any())

    assert missed <= 60  # 20 % of 200 is 40; above 60 has probability below 0.001 at the stated level
