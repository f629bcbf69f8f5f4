"""Plans of tests: a power, or the house's refusal; never another library's error, a warning or no number at all."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.odd_numbers import answers

from expost.core import InvalidRequest
from expost.stats import hypothesis as plans
from expost.stats.hypothesis.planned import number_of, rows_of, share_of, sizes_of, strength_of

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
    assert share_of(1e140, "effect", 1e-100) == 1e9
    assert share_of(-1e140, "effect", 1e-100) == -1e9
    with pytest.raises(InvalidRequest, match="Expected effect to be a finite number, got nan"):
        number_of(math.nan, "effect")


def test_sizes_and_rows_say_what_they_expect() -> None:
    with pytest.raises(InvalidRequest, match="Expected the sizes of 2 groups"):
        sizes_of((1, 2, 3), groups=2)
    with pytest.raises(InvalidRequest, match="Expected each size to be a whole number from 1"):
        sizes_of((1, 0))
    with pytest.raises(InvalidRequest, match="Expected rows to be a whole number from 3 to 9, got 10"):
        rows_of(10, fewest=3, most=9)


def test_an_endless_epsilon_is_for_the_test_that_knows_one() -> None:
    assert strength_of(math.inf, endless=700.0) == 700.0
    with pytest.raises(InvalidRequest, match="epsilon"):
        strength_of(math.inf)
