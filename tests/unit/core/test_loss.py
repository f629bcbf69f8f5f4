from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expost.core import (
    ApproxLoss,
    GaussianLoss,
    Guarantee,
    InvalidRequest,
    Loss,
    PureLoss,
    RenyiLoss,
    ZeroConcentratedLoss,
    approx,
    epsilon,
    gdp,
    zcdp,
)

amounts = st.fractions(min_value=0, max_value=1000, max_denominator=10**6)
small = st.fractions(min_value=0, max_value=Fraction(1, 4), max_denominator=10**6)
losses = st.one_of(
    st.builds(PureLoss, amounts),
    st.builds(ApproxLoss, amounts, small),
    st.builds(ZeroConcentratedLoss, amounts),
    st.builds(GaussianLoss, amounts),
    st.builds(lambda a, b: RenyiLoss(((2, a), (8, b))), amounts, amounts),
)


def test_every_kind_of_loss_is_generated_here() -> None:
    # Totals of accounts are losses too; they live with the accountant.
    assert {kind.__name__ for kind in Loss.__subclasses__() if kind.__module__.startswith("expost.core")} == {
        "PureLoss",
        "ApproxLoss",
        "ZeroConcentratedLoss",
        "GaussianLoss",
        "RenyiLoss",
    }


@given(losses)
def test_zero_costs_nothing(loss: Loss) -> None:
    assert loss + loss.zero() == loss == loss.zero() + loss


@given(losses)
def test_a_loss_reads_back_from_json(loss: Loss) -> None:
    assert Loss.from_json(loss.to_json()) == loss


@given(losses)
def test_the_worst_case_of_a_promise_is_its_loss(loss: Loss) -> None:
    assert Loss.worst_case(loss.promise()) == loss
    assert loss.within(loss.promise())


@given(losses, losses, losses)
def test_adding_is_order_free_within_one_definition(a: Loss, b: Loss, c: Loss) -> None:
    if len({a.definition, b.definition, c.definition}) == 1:
        assert a + b == b + a
        assert (a + b) + c == a + (b + c)
        assert (a + b) - b == a


@given(losses, losses)
def test_different_definitions_never_add(a: Loss, b: Loss) -> None:
    if a.definition != b.definition:
        with pytest.raises(InvalidRequest):
            a + b
        with pytest.raises(InvalidRequest):
            a.within(b.promise())


def test_a_promise_is_not_a_bill() -> None:
    assert epsilon(1) != PureLoss(1)
    with pytest.raises(TypeError):
        epsilon(1) + epsilon(1)  # type: ignore[operator]


@pytest.mark.parametrize("promise", [epsilon(0.1), epsilon(1, delta=1e-6), approx(1, 1e-9), zcdp(0.1), gdp(0.3)])
def test_a_promise_reads_back_from_json(promise: Guarantee) -> None:
    assert Guarantee.from_json(promise.to_json()) == promise


@pytest.mark.parametrize("curve", [(), ((1, 1),), ((4, 1), (2, 1)), ((2, 1), (2, 1))])
def test_renyi_orders_increase_from_above_one(curve) -> None:
    with pytest.raises(InvalidRequest):
        RenyiLoss(curve)


def test_a_negative_loss_cannot_be_built() -> None:
    with pytest.raises(InvalidRequest):
        PureLoss(-1)
