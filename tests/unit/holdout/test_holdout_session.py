"""Sessions that are billed when they close."""

import numpy as np
import pytest

from expost.core import Adjacency, InvalidRequest, LedgerUnsound, PureLoss, Unit, epsilon
from expost.holdout import PrivateBoard, ReusableHoldout
from expost.holdout.holdout_session import BilledSession, read_budget
from expost.ledger import Protected, open_ledger
from expost.noise import SeededBits

ROWS = np.random.default_rng(1).uniform(size=(50_000, 1))
LABELS = ROWS[:, 0] > 0.5


def board(ledger, **named):
    terms = named | {"max_submissions": 100, "tolerance": 0.1, "failure_probability": 0.05, "budget": 2}
    return PrivateBoard(LABELS, **terms, ledger=ledger, bits=SeededBits(1))


def holdout(ledger, **named):
    terms = named | {"max_queries": 100, "tolerance": 0.1, "failure_probability": 0.05, "budget": 2}
    return ReusableHoldout(ROWS, ROWS, **terms, ledger=ledger, bits=SeededBits(1))


def use(session):
    return session.submit(LABELS) if isinstance(session, PrivateBoard) else session.ask(lambda rows: rows[:, 0])


@pytest.mark.parametrize("opened", [board, holdout])
def test_a_session_is_closed_once_and_answers_nothing_afterwards(opened):
    ledger = open_ledger(None)
    with opened(ledger) as session:
        use(session)

    assert isinstance(session, BilledSession)
    assert session.close() is session.receipt
    assert not ledger.open_holds()
    with pytest.raises(InvalidRequest, match="because it was closed"):
        use(session)


@pytest.mark.parametrize("opened", [board, holdout])
def test_a_ledger_is_named_as_everywhere_else(opened, tmp_path):
    for where in (tmp_path / "a.ledger", str(tmp_path / "b.ledger"), f"sqlite:///{tmp_path}/c.ledger"):
        opened(where).close()
        assert open_ledger(where, create=False).verify().entries > 1
    with pytest.raises(InvalidRequest, match="Expected a ledger in a file"):
        opened(3)


@pytest.mark.parametrize("opened", [board, holdout])
def test_a_session_whose_bill_could_not_be_written_stays_closed_and_charged(opened, monkeypatch):
    ledger = open_ledger(None)
    session = opened(ledger)
    use(session)

    def broken(*_):
        raise LedgerUnsound("Expected a ledger that works")

    monkeypatch.setattr(ledger, "settle", broken)
    with pytest.raises(LedgerUnsound):
        session.close()
    with pytest.raises(InvalidRequest, match="because it was closed"):
        use(session)
    monkeypatch.undo()
    assert len(ledger.open_holds()) == 1
    assert session.close() is session.receipt and not ledger.open_holds()


@pytest.mark.parametrize("opened", [board, holdout])
@pytest.mark.parametrize(
    "before", [(Adjacency.REPLACE_ONE, Unit.of("id")), (Adjacency.ADD_REMOVE, Unit.of("id"))], ids=["unit", "both"]
)
@pytest.mark.parametrize("spelled", ["dataset:people", " dataset:people"])
def test_an_account_about_somebody_else_refuses_a_session_before_it_is_charged(opened, before, spelled):
    ledger = open_ledger(None)
    ledger.open_account("dataset:people", epsilon(10))
    people = Protected("dataset:people", *before)
    ledger.hold(["dataset:people"], PureLoss(0.125), question="count", protected=people)

    with pytest.raises(InvalidRequest, match="as in the account so far"):
        opened(ledger, account=spelled)
    assert ledger.spent("dataset:people") == PureLoss(0.125)


@pytest.mark.parametrize("opened", [board, holdout])
def test_an_account_that_a_session_opened_is_about_replaced_rows_from_then_on(opened):
    ledger = open_ledger(None)
    ledger.open_account("dataset:people", epsilon(10))
    with opened(ledger, account="dataset:people") as session:
        pass

    assert (session.receipt.adjacency, session.receipt.unit) == (Adjacency.REPLACE_ONE, Unit.row())
    assert ledger.check_protected(Protected("dataset:people", Adjacency.REPLACE_ONE, Unit.row()))
    with pytest.raises(InvalidRequest, match="as in the account so far"):
        ledger.check_protected(Protected("dataset:people", Adjacency.REPLACE_ONE, Unit.of("id")))


@pytest.mark.parametrize("budget", [{"epsilon": 1}, (1, 0), epsilon(1)])
def test_a_privacy_budget_may_be_a_dict_a_pair_or_a_guarantee(budget):
    assert read_budget(budget) == epsilon(1)


@pytest.mark.parametrize("budget", [0, -1, True, 1.0, "1", (1, 1e-6), {"rho": 1}])
def test_a_budget_that_is_neither_answers_nor_a_pure_guarantee_is_refused(budget):
    with pytest.raises(InvalidRequest, match="budget"):
        read_budget(budget)
