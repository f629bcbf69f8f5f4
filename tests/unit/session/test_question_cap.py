"""No question may take the whole budget unless its asker says so."""

from fractions import Fraction

import pyarrow as pa
import pytest

import expost
from expost import Dataset, Session, approx, epsilon, gdp, open_ledger, zcdp
from expost.core import BudgetExceeded, InvalidRequest, PureLoss, QuestionCap, RenyiGuarantee, TargetNotMet

AGES = pa.table({"age": list(range(100)) * 50, "pay": list(range(100)) * 50})


def people(**terms):
    return Dataset(AGES, name="people", bounds={"age": (0, 120), "pay": (0, 120)}, **terms)


@pytest.mark.parametrize("budget", [1, 7.5, (2, 1e-6)])
def test_a_question_may_cost_a_tenth_of_the_budget_and_the_receipt_says_so(budget):
    session = Session(people(), budget)
    receipt = session.count(within="20%").receipt
    tenth = session.ledger.budget("dataset:people").epsilon / 10

    assert receipt.promise.epsilon == tenth
    assert receipt.terms["question cap"] == (
        f"epsilon {float(tenth):.4g}, a tenth of the budget of 'dataset:people'; max_epsilon= raises it"
    )


@pytest.mark.parametrize("budget", [zcdp(0.5), gdp(1), RenyiGuarantee(((Fraction(2), Fraction(1)),))])
def test_in_another_currency_the_cap_costs_about_a_tenth_of_the_budget(budget):
    ledger = open_ledger(None)
    ledger.open_account("a", budget)
    ledger.hold(["a"], PureLoss(ledger.question_cap("a")), question="q")
    shares = [
        spent / limit
        for spent, limit in zip(
            ledger.spent("a").amounts().values(), ledger.budget("a").amounts().values(), strict=True
        )
    ]

    assert 0.095 < max(shares) <= 0.1


def test_the_owner_sets_the_cap_and_changes_it():
    session = Session(people(), 1, question_cap=0.25)
    assert session.count(within="20%").receipt.promise == epsilon(0.25)
    session.ledger.change_budget("dataset:people", question_cap=0.5)

    receipt = session.mean("age", within=30).receipt
    assert receipt.promise == epsilon(0.5)
    assert "set by the owner" in receipt.terms["question cap"]
    session.ledger.verify()


def test_max_epsilon_raises_the_cap_and_nothing_is_said_about_it():
    session = Session(people(), 1)
    with pytest.raises(
        BudgetExceeded, match=r"costs epsilon 0\.2844, above the epsilon 0\.1 .*a tenth .* max_epsilon="
    ):
        session.count(within=10)
    receipt = session.count(within=10, max_epsilon=0.3).receipt

    assert "question cap" not in receipt.terms
    assert session.spent() == receipt.bill


def test_a_level_is_a_price_and_needs_no_cap():
    assert Session(people(), 1).count(epsilon=0.9).receipt.bill == PureLoss(0.9)


def test_the_smallest_cap_of_all_that_pay_counts_and_what_is_left():
    session = Session(people(), 1, analyst="ann", analyst_budget=0.2)
    assert session.count(within="40%").receipt.promise == epsilon(Fraction(2, 100))
    session.sum("age", epsilon=0.19 - float(session.spent().epsilon))

    cap = session.mean("pay", within=60).receipt.terms["question cap"]
    assert "all that is left of 'analyst:ann'" in cap


def test_when_nothing_is_left_the_account_is_named():
    session = Session(people(), 1)
    session.count(epsilon=1)

    with pytest.raises(InvalidRequest, match="budget of 'dataset:people' is used up"):
        session.mean("age", within=10)


def test_a_missed_target_under_the_cap_says_what_to_do():
    with pytest.raises(TargetNotMet, match="Raise max_epsilon"):
        Session(people(), 0.01).mean("age", within=0.5)


def test_parts_and_templates_have_the_cap_of_their_whole(tmp_path):
    with open_ledger(tmp_path / "a.ledger") as ledger:
        ledger.open_account("whole", 1, question_cap=0.3)
        ledger.open_part(["north", "south"], of="whole")
        ledger.open_account("window:*", 2)
        ledger.change_budget("whole", question_cap=0.4)
        ledger.hold(["window:1"], PureLoss(0.5), question="q")

        assert [ledger.question_cap(name) for name in ("north", "window:1")] == [Fraction(2, 5), Fraction(1, 5)]
    with open_ledger(tmp_path / "a.ledger") as again:
        assert again.question_cap("south") == Fraction(2, 5)
        assert again.budget("whole") == epsilon(1)


def test_an_account_that_goes_over_to_plain_sums_keeps_its_cap():
    ledger = open_ledger(None)
    ledger.open_account("a", approx(1, 1e-6), question_cap=0.7)
    ledger.hold(["a"], PureLoss(1), question="all of it")

    assert ledger.question_cap("a") == Fraction(7, 10)


@pytest.mark.parametrize("wrong", [0, -1, "0.1", float("nan"), 1e9])
def test_a_wrong_cap_is_refused_before_a_ledger_is_made(wrong, tmp_path):
    with pytest.raises(InvalidRequest, match="question_cap"):
        Session(people(), 1, question_cap=wrong, ledger=tmp_path / "a.ledger")
    assert list(tmp_path.iterdir()) == []


def test_another_cap_for_an_open_account_is_the_owners_to_change(tmp_path):
    Session(people(), 1, ledger=tmp_path / "a.ledger")

    with pytest.raises(InvalidRequest, match="change_budget"):
        Session(people(), 1, question_cap=0.5, ledger=tmp_path / "a.ledger")


def test_a_fit_without_a_cap_gets_that_of_the_session_and_keeps_its_arguments():
    model = expost.Ridge(excess_risk=50, bounds={"age": (0, 120)}, target_bounds=(0, 120))
    session = Session(people(adjacency="replace-one", rows=5000), 10)
    quote = session.price(model, features=["age"], target="pay")
    fitted = session.fit(model, features=["age"], target="pay")

    assert quote.worst_case.within(PureLoss(1))
    assert fitted.receipt_.promise.epsilon <= 1
    assert "a tenth of the budget" in fitted.receipt_.terms["question cap"]
    assert fitted is model
    assert model.max_epsilon is None


def test_a_cap_survives_pickling_and_stays_a_number():
    import pickle

    cap = pickle.loads(pickle.dumps(QuestionCap(Fraction(1, 10), "here")))

    assert cap == Fraction(1, 10)
    assert cap.note == "epsilon 0.1, here; max_epsilon= raises it"


def test_a_price_above_the_cap_is_told_and_not_refused():
    quote = Session(people(), 1).price("count", within=10)

    assert quote.worst_case.epsilon > Fraction(1, 10)
    assert str(quote).endswith(
        "more than epsilon 0.1, a tenth of the budget of 'dataset:people'; max_epsilon= raises it"
    )
    with pytest.raises(BudgetExceeded, match=r"above max_epsilon=0\.2"):
        Session(people(), 1).price("count", within=10, max_epsilon=0.2)


def test_what_is_left_prints_rounded_down_and_named_everywhere():
    session = Session(people(), 1, analyst="ann", analyst_budget=0.5)
    session.count(epsilon=Fraction(1, 3))

    assert str(session.remaining()) == "epsilon 0.1666 of 'analyst:ann'"
    assert repr(session) == "Session('dataset:people', remaining epsilon 0.1666 of 'analyst:ann')"
    assert str(session.ledger.remaining("dataset:people")) == "epsilon 0.6666"
    with pytest.raises(BudgetExceeded, match=r"at most epsilon 0\.1666 in account 'analyst:ann'"):
        session.sum("age", epsilon=0.4)
