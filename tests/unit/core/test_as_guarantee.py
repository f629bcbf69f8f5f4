"""A budget may be a number, a pair, a dict or a guarantee; everything else is refused in one sentence."""

from decimal import Decimal
from fractions import Fraction

import pytest

import expost
from expost.core import InvalidRequest, as_guarantee


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (1, expost.epsilon(1)),
        (0.1, expost.epsilon(0.1)),
        (Decimal("0.1"), expost.epsilon(0.1)),
        (Fraction(1, 3), expost.epsilon(Fraction(1, 3))),
        ((1, 1e-6), expost.approx(1, 1e-6)),
        ((1, 0), expost.epsilon(1)),
        ({"epsilon": 1}, expost.epsilon(1)),
        ({"epsilon": 1, "delta": 1e-6}, expost.approx(1, 1e-6)),
        ({"rho": 0.1}, expost.zcdp(0.1)),
        ({"mu": 0.5}, expost.gdp(0.5)),
        (expost.zcdp(0.1), expost.zcdp(0.1)),
    ],
)
def test_every_form_of_a_budget_is_read(given: object, expected: expost.Guarantee) -> None:
    assert as_guarantee(given) == expected


@pytest.mark.parametrize(
    "given",
    [None, True, [], {}, {"epsilon": 1, "rho": 1}, {"rho": 1, "delta": 1e-6}, {"delta": 1e-6}, (1, 2, 3), b"1"],
    ids=str,
)
def test_anything_else_is_refused_by_name(given: object) -> None:
    with pytest.raises(InvalidRequest, match="Expected analyst_budget to be a privacy budget"):
        as_guarantee(given, "analyst_budget")


@pytest.mark.parametrize("given", [-1, 0, float("nan"), float("inf"), "much", (1, 2), {"epsilon": -1}], ids=str)
def test_a_number_that_is_not_a_budget_is_refused(given: object) -> None:
    with pytest.raises(InvalidRequest):
        as_guarantee(given)
