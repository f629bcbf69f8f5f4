import pytest

from expost.core import Adjacency, InvalidRequest, PureLoss, Receipt, Unit, epsilon
from expost.ledger import MemoryLedger, Protected

ROWS = Protected("dataset:a", Adjacency.ADD_REMOVE, Unit.row())
WEEKS = Protected("dataset:a", Adjacency.ADD_REMOVE, Unit.of("id", per="week", time="when"))


@pytest.fixture
def ledger():
    ledger = MemoryLedger()
    ledger.open_account("dataset:a", epsilon(1))
    ledger.open_account("dataset:b", epsilon(1))
    return ledger


def hold(ledger, protected=None, account="dataset:a"):
    return ledger.hold([account], PureLoss(0.125), question="count", protected=protected)


@pytest.mark.parametrize("protected", [ROWS, WEEKS])
def test_what_is_stored_is_read_back(protected):
    assert Protected.from_json(protected.to_json()) == protected


def test_an_account_is_about_nobody_until_something_is_held(ledger):
    assert not ledger.check_protected(ROWS) and not ledger.check_protected(WEEKS)
    hold(ledger)
    assert not ledger.check_protected(ROWS)


def test_the_first_hold_decides_before_it_is_settled(ledger):
    hold(ledger, ROWS)

    assert ledger.check_protected(ROWS)
    with pytest.raises(InvalidRequest, match="Expected one row as the unit, as in"):
        ledger.check_protected(WEEKS)
    with pytest.raises(InvalidRequest, match="because a question is running on it"):
        hold(ledger, Protected("dataset:a", Adjacency.REPLACE_ONE, Unit.row()))
    hold(ledger, ROWS)
    assert ledger.spent("dataset:a") == PureLoss(0.25)


def test_a_hold_that_is_written_off_has_decided_too(ledger):
    ledger.write_off(hold(ledger, WEEKS).id)

    with pytest.raises(InvalidRequest, match="within one week"):
        hold(ledger, ROWS)


def test_a_receipt_decides_where_no_hold_has(ledger):
    receipt = Receipt(
        question="count", method="m", promise=epsilon(0.125), bill=PureLoss(0.125), adjacency=Adjacency.REPLACE_ONE
    )
    ledger.settle(hold(ledger), receipt)

    assert ledger.counts("dataset:a") is Adjacency.REPLACE_ONE
    assert hold(ledger, ROWS).replaced == ("dataset:a",)
    assert ledger.spent("dataset:a") == PureLoss(0.375)


def test_a_charge_to_a_part_decides_for_the_whole(ledger):
    ledger.open_part("dataset:a/site=A", of="dataset:a", by="column site")
    hold(ledger, ROWS, account="dataset:a/site=A")

    with pytest.raises(InvalidRequest, match="as in the account so far"):
        hold(ledger, WEEKS)


def test_other_accounts_are_not_concerned(ledger):
    hold(ledger, ROWS)
    hold(ledger, Protected("dataset:b", Adjacency.REPLACE_ONE, Unit.row()), account="dataset:b")

    assert ledger.verify().open_holds == 2


def test_another_spelling_of_an_account_has_the_same_past(ledger):
    hold(ledger, ROWS)

    with pytest.raises(InvalidRequest, match="as in the account so far"):
        hold(ledger, Protected(" dataset:a", WEEKS.adjacency, WEEKS.unit), account=" dataset:a")
