"""Plans of tests: a power, or the house's refusal; never another library's error, a warning or no number at all."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.odd_numbers import answers

from expost.core import InvalidRequest
from expost.data import Dataset
from expost.noise import SeededBits
from expost.stats import hypothesis as plans
from expost.stats.hypothesis import (
    anova_test,
    binomial_test,
    fit_test,
    independence_test,
    kruskal_wallis_test,
    mann_whitney_test,
    mean_difference_test,
    signed_rank_test,
    split_test,
)
from expost.stats.hypothesis.hypothesis_input import (
    TableSize,
    read_finite,
    read_group_sizes,
    read_power_epsilon,
    read_row_count,
    scale_to_width,
)

GROUPS = {"deviation": 2.0, "bounds": (0, 10), "epsilon": 1.0, "level": 0.05, "public_sizes": True}
TABLES = {"rows": 1000, "epsilon": 0.5, "level": 0.05, "adjacency": "replace-one"}

CALLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "binomial": (
        plans.binomial_power,
        TABLES | {"rows": 100, "null": 0.5, "effect": 0.65, "alternative": "two-sided"},
    ),
    "binomial, private size": (
        plans.binomial_power,
        TABLES | {"rows": 100, "null": 0.5, "effect": 0.65, "adjacency": "add-remove"},
    ),
    "two means": (
        plans.mean_difference_power,
        GROUPS | {"sizes": (200, 200), "effect": 1.0, "alternative": "two-sided", "adjacency": "replace-one"},
    ),
    "two means, private sizes": (
        plans.mean_difference_power,
        GROUPS | {"sizes": (200, 200), "effect": 1.0, "public_sizes": False, "adjacency": "add-remove"},
    ),
    "several means": (
        plans.anova_power,
        GROUPS | {"sizes": [100] * 3, "means": [4, 5, 6], "adjacency": "replace-one"},
    ),
    "Mann-Whitney": (
        plans.mann_whitney_power,
        {"sizes": (50, 50), "effect": 1.0, "alternative": "less", "adjacency": "add-remove"}
        | {"epsilon": 0.5, "level": 0.05, "public_sizes": True},
    ),
    "Kruskal-Wallis": (
        plans.kruskal_wallis_power,
        {"sizes": (50, 50), "means": (0, 1), "epsilon": 0.5, "level": 0.05, "public_sizes": False},
    ),
    "signed ranks": (
        plans.signed_rank_power,
        {"rows": 50, "effect": 1.0, "epsilon": 0.5, "level": 0.05, "alternative": "two-sided"},
    ),
    "rank correlation": (
        plans.correlation_power,
        {"rows": 500, "effect": 0.2, "epsilon": 0.5, "level": 0.05, "alternative": "two-sided"},
    ),
    "linear correlation": (
        plans.linear_correlation_power,
        {
            "rows": 1000,
            "effect": 0.3,
            "deviations": (1, 1),
            "bounds": ((-3, 3), (-3, 3)),
            "epsilon": 2.0,
            "level": 0.05,
            "alternative": "less",
        },
    ),
    "goodness of fit": (plans.fit_power, TABLES | {"chances": [0.25] * 4, "effect": [0.3, 0.2, 0.3, 0.2]}),
    "independence": (plans.independence_power, TABLES | {"effect": [[0.3, 0.2], [0.2, 0.3]]}),
    "split": (plans.split_power, {"parts": 50, "chance": 0.5, "epsilon": 0.5, "level": 0.05}),
    "smallest epsilon": (plans.smallest_epsilon, {"power_at": lambda epsilon: epsilon / (1 + epsilon), "power": 0.5}),
    "fewest rows": (plans.smallest_rows, {"power_at": lambda rows: 1 - 1 / rows, "power": 0.5}),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_number_ends_in_an_error_that_is_not_ours(name: str) -> None:
    call, usual = CALLS[name]
    assert call(**usual) > 0
    for argument, value, found in answers(call, usual):
        assert found >= 0 and (found <= 1 + 1e-9 or name in ("smallest epsilon", "fewest rows")), (argument, value)


@pytest.mark.parametrize("direction", ["two-sided", "greater", "less"])
def test_an_exact_number_counts_as_the_same_float(direction: str) -> None:
    terms = {"null": 0.5, "effect": 0.65, "epsilon": 0.25, "level": 0.05, "alternative": direction}
    exact = {name: Fraction(str(value)) if isinstance(value, float) else value for name, value in terms.items()}

    assert plans.binomial_power(np.int64(100), **exact) == plans.binomial_power(100, **terms)


def test_what_lies_far_beyond_the_bounds_counts_as_a_billion_widths() -> None:
    assert scale_to_width(1e140, "effect", 1e-100) == 1e9
    assert scale_to_width(-1e140, "effect", 1e-100) == -1e9
    with pytest.raises(InvalidRequest, match="Expected effect to be a finite number, got nan"):
        read_finite(math.nan, "effect")


def test_sizes_and_rows_say_what_they_expect() -> None:
    with pytest.raises(InvalidRequest, match="Expected the sizes of 2 groups"):
        read_group_sizes((1, 2, 3), groups=2)
    with pytest.raises(InvalidRequest, match="Expected each size to be a whole number from 1"):
        read_group_sizes((1, 0))
    with pytest.raises(InvalidRequest, match="Expected rows to be a whole number from 3 to 9, got 10"):
        read_row_count(10, fewest=3, most=9)


def test_an_endless_epsilon_is_for_the_test_that_knows_one() -> None:
    assert read_power_epsilon(math.inf, endless=700.0) == 700.0
    with pytest.raises(InvalidRequest, match="epsilon"):
        read_power_epsilon(math.inf)


TABLE = pa.table({"x": [1.0, 2.0]})


def test_what_is_public_depends_on_the_neighbours():
    public = TableSize.of_dataset(Dataset(TABLE, adjacency="replace-one", rows=2), expected_rows=9)
    private = TableSize.of_dataset(Dataset(TABLE), expected_rows=9)

    assert (public.rows, public.priced_rows, public.cell_sensitivity) == (2, 2, 2)
    assert (private.rows, private.priced_rows, private.cell_sensitivity) == (None, 9, 1)
    assert private.terms == {"rows": "private", "rows expected": 9}


def test_a_filtered_table_has_no_public_size():
    view = Dataset(TABLE, adjacency="replace-one", rows=2).where("x > 1")

    with pytest.raises(InvalidRequest, match="public number of rows"):
        TableSize.of_dataset(view)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "many"])
def test_a_guess_is_a_positive_whole_number(wrong):
    with pytest.raises(InvalidRequest, match="expected_rows"):
        TableSize.of_sample(5, adjacency="add-remove", expected_rows=wrong)


SAMPLES = {  # each test on a table, or a group, of so many rows
    "proportion": lambda rows, **named: binomial_test(np.ones(rows), 0.5, **named),
    "two means": lambda rows, **named: mean_difference_test(np.ones(rows), np.zeros(9), bounds=(0, 1), **named),
    "several means": lambda rows, **named: anova_test(*[np.ones(rows)] * 3, bounds=(0, 1), **named),
    "Mann-Whitney": lambda rows, **named: mann_whitney_test(np.ones(rows), np.zeros(9), **named),
    "Kruskal-Wallis": lambda rows, **named: kruskal_wallis_test(*[np.ones(rows)] * 3, **named),
    "signed ranks": lambda rows, **named: signed_rank_test(np.ones(rows), np.zeros(rows), **named),
    "given probabilities": lambda rows, **named: fit_test([rows, 0], [0.5, 0.5], **named),
    "independence": lambda rows, **named: independence_test([[rows, 0], [0, 0]], **named),
    "split test": lambda rows, **named: split_test("means", np.ones(rows), np.arange(rows), **named),
}


@pytest.mark.parametrize("test", SAMPLES.values(), ids=SAMPLES)
def test_a_private_number_of_rows_is_not_told_by_a_refusal(test):
    for rows in (0, 1, 2):
        assert 0 < test(rows, adjacency="add-remove", epsilon=1, bits=SeededBits(rows)).value.p_value <= 1


@pytest.mark.parametrize("test", SAMPLES.values(), ids=SAMPLES)
def test_no_rows_are_refused_where_their_number_is_public(test):
    with pytest.raises(InvalidRequest, match="Expected"):
        test(0, adjacency="replace-one", epsilon=1)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("wrong", [np.array(["yes"]), np.ones((1, 2)), 1j, "text", None])
def test_what_is_no_sample_is_refused_whatever_is_public(wrong, adjacency):
    calls = [
        lambda **named: binomial_test(wrong, 0.5, **named),
        lambda **named: mean_difference_test(wrong, np.zeros(9), bounds=(0, 1), **named),
        lambda **named: anova_test(wrong, np.zeros(9), bounds=(0, 1), **named),
        lambda **named: mann_whitney_test(wrong, np.zeros(9), **named),
        lambda **named: kruskal_wallis_test(wrong, np.zeros(9), **named),
        lambda **named: signed_rank_test(wrong, wrong, **named),
        lambda **named: fit_test(wrong, [0.5, 0.5], **named),
        lambda **named: independence_test(wrong, **named),
        lambda **named: split_test("means", wrong, wrong, **named),
    ]
    for call in calls:
        with pytest.raises(InvalidRequest, match="Expected"):
            call(adjacency=adjacency, epsilon=1)
