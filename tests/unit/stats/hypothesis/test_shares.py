from fractions import Fraction

import pytest

from expost.core import Adjacency
from expost.stats.hypothesis.shares import Shares


@pytest.mark.parametrize("equal_spread", [True, False])
@pytest.mark.parametrize("sizes", [None, (10, 10)])
@pytest.mark.parametrize(("epsilon", "rows"), [("0.001", 20), ("0.3", 500), ("5", 10_000)])
def test_the_parts_add_up_to_epsilon(epsilon, rows, sizes, equal_spread):
    shares = Shares.of(Fraction(epsilon), rows=rows, public_sizes=sizes, equal_spread=equal_spread)

    assert sum(shares.breakdown().values()) == Fraction(epsilon)
    assert (shares.sizes is None) == (sizes is not None)


def test_squares_that_cannot_say_anything_are_not_bought():
    assert Shares.of(Fraction(1, 100), rows=100, public_sizes=(50, 50)).squares is None
    assert Shares.of(Fraction(1, 100), rows=100, public_sizes=None).squares is None
    assert Shares.of(Fraction(1), rows=1000, public_sizes=(500, 500)).squares is not None
    assert Shares.of(Fraction(1, 100), rows=None, public_sizes=None, adjacency=Adjacency.ADD_REMOVE).squares is not None


def test_many_small_groups_say_something_only_together():
    terms = {"rows": 1000, "public_sizes": (10,) * 100}

    assert Shares.of(Fraction(1), **terms).squares is None
    assert Shares.of(Fraction(1), **terms, equal_spread=True).squares is not None
