"""Fits billed in zCDP, paid in epsilon and delta: a pair for the cap, and a rho that an account adds up."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import expost
from expost import Dataset, Session, approx, epsilon, zcdp
from expost.accounting.concentrated import gaussian_delta
from expost.core import ApproxLoss, InvalidRequest, Outcome, PureLoss, ZeroConcentratedLoss
from expost.core.errors import BudgetExceeded
from expost.data.unit_ball import UnitBall
from expost.ledger import EntryKind
from expost.models.linear.linear_fit import Aim, ApproxPrice, Problem
from expost.models.linear.ridge_moments import GaussianRidge
from expost.stats import Count

ROWS, DELTA = 4000, Fraction(1, 10**6)
RANDOM = np.random.default_rng(5)
X = RANDOM.uniform(-0.5, 0.5, (ROWS, 2))
TABLE = Dataset(
    pa.table({"a": X[:, 0], "b": X[:, 1], "y": X @ [0.5, -0.3]}), name="t", adjacency="replace-one", rows=ROWS
)


def ridge(**terms):
    return expost.Ridge(delta=float(DELTA), feature_bound=1.0, target_bounds=1.0, **terms)


def fitted(session, **terms):
    return session.fit(ridge(**terms), features=["a", "b"], target="y")


def request(**terms):
    aim = Aim.of(failure_probability=0.2, max_epsilon=terms.pop("max_epsilon", 20.0), **terms)
    return GaussianRidge(Problem(UnitBall(2), ROWS, 0.02, aim), DELTA)


@pytest.mark.parametrize(
    "terms",
    [
        {"epsilon": 2},
        {"epsilon": 2, "regularization": None},
        {"excess_risk": 0.05, "max_epsilon": 2, "method": "certificate"},
    ],
    ids=["given epsilon", "chosen penalty", "to a target"],
)
def test_an_account_in_epsilon_and_delta_pays_what_was_asked_for(terms):
    session = Session(TABLE, approx(5, 1e-5))
    price = session.price(ridge(**terms), features=["a", "b"], target="y")
    model = fitted(session, **terms)

    assert ApproxLoss(2, DELTA) == price.worst_case == model.receipt_.bill
    assert session.spent().epsilon < 2.2  # the rho at Renyi orders, with half of the account's delta
    assert model.receipt_.terms["held as"].startswith("rho") and model.receipt_.epsilon == 2
    assert session.ledger.verify().open_holds == 0


def test_stopping_early_gives_back_the_rho_that_was_not_used():
    terms = {"excess_risk": 0.05, "max_epsilon": 20, "method": "certificate"}
    pairs, rhos = Session(TABLE, approx(50, 1e-5)), Session(TABLE, zcdp(50))
    first, second = fitted(pairs, **terms), fitted(rhos, **terms)

    assert first.receipt_.outcome is second.receipt_.outcome is Outcome.CERTIFIED
    assert first.receipt_.bill == ApproxLoss(20, DELTA)  # by itself it is one pair, whatever was seen
    assert pairs.spent().epsilon < 1
    assert rhos.spent() == second.receipt_.bill
    assert second.receipt_.bill.rho < second.receipt_.promise.rho
    assert first.receipt_.terms["came to"] != first.receipt_.terms["held as"]


def test_it_adds_up_with_other_questions_and_stops_at_the_budget():
    session = Session(TABLE, approx(3, 1.5e-6))
    session.ask(Count(epsilon=0.5, where="a > 0"))
    fitted(session, epsilon=2)

    assert 2 < session.spent().epsilon < 3
    with pytest.raises(BudgetExceeded):
        fitted(session, epsilon=2)


@pytest.mark.parametrize("budget", [epsilon(50), expost.gdp(5)])
def test_an_account_of_another_currency_refuses_before_anything_is_held(budget):
    session = Session(TABLE, budget)
    with pytest.raises(InvalidRequest, match="Expected a loss that an account"):
        fitted(session, epsilon=2)
    assert not [entry for entry in session.history() if entry.kind is EntryKind.HOLD]


def test_accounts_of_two_currencies_pay_together():
    session = Session(TABLE, approx(5, 1e-5), analyst="ann", analyst_budget=zcdp(5))
    fitted(session, epsilon=2)

    assert session.spent().epsilon > 1 and session.ledger.spent("analyst:ann").rho > 0
    session.ledger.verify()


@pytest.mark.parametrize("cap", [0.01, 0.3, 2, 20])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_the_charge_covers_the_exact_profile_of_the_noise(cap, delta):
    """The Gaussian mechanism at the cap's rho has, at the charged epsilon, less than the charged delta."""
    aim = Aim.of(failure_probability=0.2, epsilon=cap, max_epsilon=20)
    held = GaussianRidge(Problem(UnitBall(2), ROWS, 0.02, aim), Fraction(str(delta))).charge_to(frozenset({"approx"}))
    rho = held.inner.worst_case.rho
    charged = held.worst_case

    assert float(gaussian_delta(np.array([float(charged.epsilon)]), float(2 * rho) ** 0.5)[0]) <= delta
    # Half of it would not do: the check has power.
    assert float(gaussian_delta(np.array([float(charged.epsilon) / 2]), float(2 * rho) ** 0.5)[0]) > delta


def test_a_charge_below_the_cap_cannot_be_made():
    whole = request(epsilon=2.0)
    with pytest.raises(InvalidRequest, match="that the cap implies"):
        ApproxPrice(whole, Fraction(1), DELTA)
    with pytest.raises(InvalidRequest, match="billed in zCDP"):
        ApproxPrice(SimpleNamespace(worst_case=PureLoss(Fraction(1))), Fraction(1), DELTA)
    assert whole.charge_to(frozenset({"zcdp"})) is whole
    assert isinstance(whole.worst_case, ZeroConcentratedLoss)
