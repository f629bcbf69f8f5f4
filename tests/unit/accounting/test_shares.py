"""Shares of delta over Renyi orders."""

import math
from fractions import Fraction

import numpy as np
import pytest

from expost.accounting.shares import conversion, default_shares
from expost.accounting.zcdp import rdp_to_epsilon


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 8.0])
def test_shares_are_positive_and_sum_to_one(epsilon: float) -> None:
    shares = default_shares(Fraction(epsilon), Fraction(1, 10**6))

    assert math.fsum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) > 0
    assert min(shares) > 1


def test_the_likely_order_gets_half() -> None:
    shares = default_shares(Fraction(1), Fraction(1, 10**6))
    likely = max(shares, key=lambda order: shares[order])

    assert shares[likely] == 0.5
    assert 15 <= likely <= 60


@pytest.mark.parametrize("order", [1.5, 2.0, 40.0, 512.0])
def test_the_conversion_is_what_is_added_to_a_divergence(order: float) -> None:
    direct = float(rdp_to_epsilon(np.array([order]), np.array([3.0]), 1e-9)[0]) - 3

    assert conversion(order, 1e-9) == pytest.approx(direct, abs=1e-10)
    assert conversion(order, 1e-9) >= direct - 1e-11
