from fractions import Fraction

import numpy as np
import pytest

from expost.noise import SeededBits, discrete_laplace
from expost.stats.hypothesis.margins import (
    NUISANCE_MARGINS,
    independent_tables,
    margin_net,
    possible_sizes,
    share_range,
)

LAWS = [
    ((0.5, 0.5), 30, 5.0),
    ((0.9, 0.05, 0.05), 30, 0.1),
    ((0.999, 0.0005, 0.0005), 1000, 1.0),
    ((0.25,) * 4, 5, 40.0),
]


@pytest.mark.parametrize(("law", "rows", "scale"), LAWS)
def test_the_possible_shares_hold_the_true_ones_as_surely_as_they_say(law, rows, scale):
    runs, shape = 4000, (len(law), 3)
    counts = np.random.default_rng(1).multinomial(rows, law, runs)
    noise = discrete_laplace(Fraction(scale), (runs, *shape), bits=SeededBits(1)).sum(2)

    missed = 0
    for totals in counts + noise.astype(float):
        low, high = share_range(totals, rows, scale, shape)
        missed += not ((low <= np.array(law) + 1e-12) & (np.array(law) <= high + 1e-12)).all()

    assert missed / runs <= NUISANCE_MARGINS + 5 * np.sqrt(NUISANCE_MARGINS / runs)


@pytest.mark.parametrize("totals", [[900.0, 100.0], [-5.0, 703.0, 302.0], [333.0, 333.0, 334.0]])
@pytest.mark.parametrize("scale", [0.1, 30.0])
def test_the_net_is_made_of_possible_laws_and_reaches_both_ends(totals, scale):
    totals = np.array(totals)
    shape = (len(totals), 2)

    net = margin_net(totals, 1000, scale, shape)

    low, high = share_range(totals, 1000, scale, shape)
    for law in net:
        assert law.sum() == pytest.approx(1)
        assert (law >= low - 1e-9).all()
        assert (law <= high + 1e-9).all()
    spreads = [float((law**2).sum()) for law in net]
    assert max(spreads) == pytest.approx(spreads[0])
    assert min(spreads) == pytest.approx(spreads[-2])


@pytest.mark.parametrize("totals", [[-50.0, 3.0, 2.0], [4000.0, 9.0], [0.0, 0.0], [4000.0, 4000.0]])
def test_totals_that_no_law_explains_still_give_laws(totals):
    for law in margin_net(np.array(totals), 1000, 0.1, (len(totals), 2)):
        assert law.sum() == pytest.approx(1)
        assert (law >= 0).all()


def test_tables_of_few_and_of_many_rows_follow_the_same_laws(monkeypatch):
    noisy = np.array([[30.0, 5.0], [4.0, 1.0]])

    def means():
        return [t.mean(0) for t in independent_tables(noisy, [40], scale=0.5, draws=4000, bits=SeededBits(1))]

    by_row = means()
    monkeypatch.setattr("expost.stats.hypothesis.margins._UNIFORMS", 0)

    assert len(by_row) == 25
    np.testing.assert_allclose(by_row, means(), atol=0.4)


def test_a_private_number_of_rows_is_tried_at_the_ends_and_in_the_middle():
    assert possible_sizes(np.full((2, 2), 100.0), 400, 1.0) == [400]
    low, middle, high = possible_sizes(np.full((2, 2), 100.0), None, 1.0)
    assert low < middle == 400 < high
    assert min(possible_sizes(np.full((2, 2), -100.0), None, 1.0)) == 1
