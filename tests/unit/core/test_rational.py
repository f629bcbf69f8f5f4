import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from expost.core import InvalidRequest
from expost.core.rational import decimal_text, probability, rational, round_up


@pytest.mark.parametrize("typed", [0.1, Decimal("0.1"), Fraction(1, 10), np.float64(0.1), np.float32(0.1)])
def test_a_typed_tenth_is_one_tenth(typed) -> None:
    assert rational(typed, "epsilon") == Fraction(1, 10)


@pytest.mark.parametrize("typed", [3, np.int64(3), 3.0])
def test_a_typed_integer_is_itself(typed) -> None:
    assert rational(typed, "epsilon") == 3


@pytest.mark.parametrize(
    "typed", [-1, 0, -0.0, math.nan, math.inf, -math.inf, "0.1", None, True, [1], 1j, 1e300, 1e-300, np.nan]
)
def test_nonsense_is_refused_with_a_sentence(typed) -> None:
    with pytest.raises(InvalidRequest, match=r"^Expected epsilon .*got .*\. Pass a positive finite epsilon\.$"):
        rational(typed, "epsilon")


def test_a_container_is_not_repeated_in_the_error() -> None:
    with pytest.raises(InvalidRequest) as caught:
        rational([123456], "epsilon")

    assert "123456" not in str(caught.value)


@given(st.floats(min_value=1e-17, max_value=1e17))
def test_the_shortest_decimal_reads_back_as_the_same_float(value: float) -> None:
    assert float(rational(value, "x")) == value


@given(st.fractions(min_value=Fraction(1, 10**9), max_value=10**9))
def test_rounding_up_never_rounds_down(value: Fraction) -> None:
    up = round_up(value)

    assert value <= up <= value * (1 + Fraction(1, 10**11))


@example(Fraction(2868156606211037, 2868156606211036000000000))  # a power of ten but for the last digit of a float
@given(st.fractions(min_value=Fraction(1, 10**9), max_value=10**9))
def test_text_for_people_is_never_below_the_value(value: Fraction) -> None:
    assert Fraction(decimal_text(value)) >= value


@pytest.mark.parametrize("typed", [0, 1, 1.5, -0.1, math.nan, "0.5"])
def test_a_probability_lies_strictly_between_zero_and_one(typed) -> None:
    with pytest.raises(InvalidRequest):
        probability(typed, "confidence")
