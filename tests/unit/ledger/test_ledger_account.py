import pytest

from expost.core import InvalidRequest, PureLoss, RenyiGuarantee, epsilon
from expost.ledger.ledger_account import LedgerAccount, check_name, is_template, template_fits


def test_a_charge_takes_the_place_of_the_hold_it_releases():
    account = (
        LedgerAccount.open_empty("dataset:a", epsilon(1), entry=1).add_charge(PureLoss(0.75)).with_total([], entry=2)
    )

    settled = account.add_charge(PureLoss(0.25), released=PureLoss(0.75)).with_total([], entry=3)

    assert (settled.spent, settled.entry) == (PureLoss(0.25), 3)


def test_names_that_look_alike_are_one():
    composed, decomposed = "M\u00fcnchen:x", "Mu\u0308nchen:x"

    assert composed != decomposed
    assert check_name(composed) == check_name(decomposed) == check_name(f"  {decomposed} ")
    assert check_name("window: *", template=True) == "window: *"
    with pytest.raises(InvalidRequest):
        check_name("dataset:a\u200b")  # a letter nobody sees


def test_a_renyi_budget_keeps_its_orders():
    account = LedgerAccount.open_empty("dataset:a", RenyiGuarantee(((2, 1), (4, 2))), entry=1)

    assert account.with_budget(RenyiGuarantee(((2, 3), (4, 3))), entry=2).budget.amounts()["epsilon at order 2"] == 3
    with pytest.raises(InvalidRequest, match="the currency of account"):
        account.with_budget(RenyiGuarantee(((2, 3),)), entry=2)


def test_a_star_makes_a_template_only_where_one_is_allowed():
    assert check_name("window:*", template=True) == "window:*"
    assert is_template("window:*") and not is_template("window:1")
    assert template_fits("window:*", "window:1") and not template_fits("window:*", "dataset:1")
    assert not template_fits("window:*", "window:2*")
    with pytest.raises(InvalidRequest):
        check_name("window:*")
