"""What every ledger does, wherever it is kept."""

from __future__ import annotations

import importlib.util
import pickle
import sys
import threading
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from expost.accounting.concentrated import pure_to_zcdp
from expost.core import (
    Adjacency,
    ApproxLoss,
    BudgetExceeded,
    GaussianLoss,
    InvalidRequest,
    LedgerUnsound,
    PureLoss,
    Receipt,
    RenyiGuarantee,
    RenyiLoss,
    Unit,
    ZeroConcentratedLoss,
    approx,
    epsilon,
    gdp,
    zcdp,
)
from expost.data.source_identity import SourceIdentity
from expost.ledger import EntryKind, Hold, HoldState, Ledger, Protected, new_key, open_ledger, posting


def _postgres_server():
    """The helper of the fault tests, loaded once for the whole run."""
    name = "expost_tests_postgres_server"
    if name not in sys.modules:
        path = Path(__file__).parents[1] / "faults" / "postgres_server.py"
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def _place(kind, tmp_path):
    if kind == "memory":
        return None
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/flights.ledger"
    if reason := _postgres_server().missing():
        pytest.skip(reason)
    return _postgres_server().shared_server().new_place()


@pytest.fixture(autouse=True)
def no_key_around(monkeypatch):
    monkeypatch.delenv("EXPOST_LEDGER_KEY", raising=False)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def ledger(request, tmp_path):
    with open_ledger(_place(request.param, tmp_path), key=new_key()) as ledger:
        ledger.open_account("dataset:flights", epsilon(1))
        yield ledger


@pytest.fixture(params=["sqlite", "postgres"])
def durable(request, tmp_path):
    with open_ledger(_place(request.param, tmp_path), key=new_key()) as ledger:
        ledger.open_account("dataset:flights", epsilon(1))
        yield ledger


def receipt(bill, promise=None, question="count"):
    return Receipt(question=question, method="discrete Laplace", promise=promise or bill.promise(), bill=bill)


def spend(ledger: Ledger, held, billed, accounts=("dataset:flights",)) -> str:
    hold = ledger.hold(list(accounts), held, question="count")
    return ledger.settle(hold, receipt(billed, held.promise()))


# Holding and settling


def test_a_hold_reserves_the_worst_case_before_anything_runs(ledger):
    ledger.hold(["dataset:flights"], PureLoss(0.75), question="count")

    assert ledger.spent("dataset:flights") == PureLoss(0.75)
    assert ledger.remaining("dataset:flights") == PureLoss(0.25)


def test_settling_gives_back_the_unused_part(ledger):
    spend(ledger, PureLoss(0.75), PureLoss(0.125))

    assert ledger.spent("dataset:flights") == PureLoss(0.125)


def test_a_hold_that_does_not_fit_is_refused_and_changes_nothing(ledger):
    before = ledger.verify()

    with pytest.raises(BudgetExceeded, match=r"at most epsilon 1 in account 'dataset:flights', got 'epsilon 1.001'"):
        ledger.hold(["dataset:flights"], PureLoss(Fraction(1001, 1000)), question="count")

    assert ledger.verify() == before


def test_thirds_add_up_to_the_whole_budget_and_not_a_crumb_more(ledger):
    for _ in range(3):
        spend(ledger, PureLoss(Fraction(1, 3)), PureLoss(Fraction(1, 3)))

    assert ledger.remaining("dataset:flights") == PureLoss(0)
    with pytest.raises(BudgetExceeded):
        ledger.hold(["dataset:flights"], PureLoss(Fraction(1, 10**18)), question="count")


def test_a_hold_charges_all_accounts_or_none(ledger):
    ledger.open_account("analyst:ann", epsilon(0.25))
    ledger.open_account("window:2013-W05", epsilon(1))

    with pytest.raises(BudgetExceeded, match="analyst:ann"):
        ledger.hold(["dataset:flights", "analyst:ann", "window:2013-W05"], PureLoss(0.5), question="count")

    assert all(ledger.spent(account) == PureLoss(0) for account in ledger.accounts())

    spend(ledger, PureLoss(0.25), PureLoss(0.125), ["dataset:flights", "analyst:ann", "window:2013-W05"])

    assert all(ledger.spent(account) == PureLoss(0.125) for account in ledger.accounts())


def test_an_unsettled_hold_stays_charged_and_can_only_be_written_off_as_spent(ledger):
    hold = ledger.hold(["dataset:flights"], PureLoss(0.75), question="count")

    assert [one.id for one in ledger.open_holds()] == [hold.id]
    entry = ledger.write_off(hold.id)

    assert ledger.open_holds() == []
    assert ledger.spent("dataset:flights") == PureLoss(0.75)
    assert ledger.write_off(hold.id) == entry
    with pytest.raises(LedgerUnsound, match="Nothing may leave"):
        ledger.settle(hold, receipt(PureLoss(0.1), PureLoss(0.75).promise()))
    assert ledger.spent("dataset:flights") == PureLoss(0.75)


def test_a_settled_hold_cannot_be_written_off(ledger):
    hold = ledger.hold(["dataset:flights"], PureLoss(0.75), question="count")
    ledger.settle(hold, receipt(PureLoss(0.75)))

    with pytest.raises(InvalidRequest, match="settled"):
        ledger.write_off(hold.id)


def test_settling_twice_with_the_same_receipt_is_settling_once(ledger):
    hold = ledger.hold(["dataset:flights"], PureLoss(0.5), question="count")
    paid = receipt(PureLoss(0.25), PureLoss(0.5).promise())

    assert ledger.settle(hold, paid) == ledger.settle(hold, paid)
    assert ledger.spent("dataset:flights") == PureLoss(0.25)


def test_another_receipt_for_a_settled_hold_is_refused(ledger):
    hold = ledger.hold(["dataset:flights"], PureLoss(0.5), question="count")
    ledger.settle(hold, receipt(PureLoss(0.25), PureLoss(0.5).promise()))

    with pytest.raises(LedgerUnsound, match="closed"):
        ledger.settle(hold, receipt(PureLoss(0.125), PureLoss(0.5).promise()))
    assert ledger.spent("dataset:flights") == PureLoss(0.25)


@pytest.mark.parametrize("bill", [PureLoss(0.6), ZeroConcentratedLoss(0.1)])
def test_a_bill_that_was_not_held_is_refused_and_the_worst_case_stays(ledger, bill):
    hold = ledger.hold(["dataset:flights"], PureLoss(0.5), question="count")

    with pytest.raises(LedgerUnsound, match="within what was held"):
        ledger.settle(hold, receipt(bill))
    assert ledger.spent("dataset:flights") == PureLoss(0.5)


def test_a_receipt_that_cannot_be_stored_is_refused_and_the_worst_case_stays(ledger):
    hold = ledger.hold(["dataset:flights"], PureLoss(0.5), question="count")
    endless = Receipt(question="q", method="m", promise=epsilon(0.5), bill=PureLoss(0.1), achieved=float("inf"))

    with pytest.raises(LedgerUnsound, match="finite"):
        ledger.settle(hold, endless)
    assert ledger.spent("dataset:flights") == PureLoss(0.5)


def test_a_hold_of_another_ledger_is_refused(ledger):
    foreign = open_ledger(None)
    foreign.open_account("dataset:flights", epsilon(1))
    hold = foreign.hold(["dataset:flights"], PureLoss(0.5), question="count")

    with pytest.raises(InvalidRequest, match="Expected a hold of this ledger"):
        ledger.settle(hold, receipt(PureLoss(0.5)))


def test_an_invented_hold_is_refused(ledger):
    with pytest.raises(InvalidRequest, match="Expected the id of a ledger entry"):
        ledger.settle(Hold("nonsense", ("dataset:flights",), PureLoss(1), question="count"), receipt(PureLoss(0.5)))


@pytest.mark.parametrize("wrong", [None, "3-ab", 7])
def test_what_is_no_hold_and_no_receipt_is_refused(ledger, wrong):
    hold = ledger.hold(["dataset:flights"], PureLoss(0.5), question="count")

    with pytest.raises(InvalidRequest, match="Expected a hold"):
        ledger.settle(wrong, receipt(PureLoss(0.5)))
    with pytest.raises(InvalidRequest, match="Expected a hold"):
        ledger.take_over(wrong)
    with pytest.raises(InvalidRequest, match="Expected a receipt"):
        ledger.settle(hold, wrong)


# Holds that change hands


def test_of_all_copies_of_a_hold_one_is_taken_over_and_settled(ledger):
    copy = ledger.hold(["dataset:flights"], PureLoss(0.5), question="train")
    before = ledger.verify().entries

    mine = ledger.take_over(copy)

    assert (mine.id, mine.worst_case, mine.question) == (copy.id, copy.worst_case, copy.question)
    assert ledger.spent("dataset:flights") == PureLoss(0.5)
    assert ledger.history("dataset:flights")[-1].kind is EntryKind.TAKE_OVER
    with pytest.raises(InvalidRequest, match="newest copy"):
        ledger.take_over(copy)
    with pytest.raises(LedgerUnsound, match="last that took it over"):
        ledger.settle(copy, receipt(PureLoss(0.25), PureLoss(0.5).promise()))
    assert ledger.verify().entries == before + 1
    entry = ledger.settle(mine, receipt(PureLoss(0.25), PureLoss(0.5).promise()))

    # A lost answer of the server may be asked for again, by the owner alone.
    assert ledger.settle(mine, receipt(PureLoss(0.25), PureLoss(0.5).promise())) == entry
    for late in (copy, mine):
        with pytest.raises(InvalidRequest, match="this one is settled"):
            ledger.take_over(late)
    assert ledger.spent("dataset:flights") == PureLoss(0.25)
    ledger.verify()


def test_a_hold_from_elsewhere_cannot_be_settled_before_it_is_taken_over(ledger):
    """What a file or a pickle brings is a ticket of another process, such as this one."""
    hold = ledger.hold(["dataset:flights"], PureLoss(0.5), question="train")
    there = replace(hold, ticket=f"{'0' * 32}-{'1' * 32}")
    ledger._write(lambda page: posting.take_over_hold(page, replace(there, earlier=(hold.ticket,))))

    with pytest.raises(LedgerUnsound, match="process that took this hold"):
        ledger.settle(there, receipt(PureLoss(0.5)))
    ledger.settle(ledger.take_over(there), receipt(PureLoss(0.5)))
    ledger.verify()


def test_a_crash_at_any_moment_of_a_change_of_hands_leaves_a_copy_that_can_be_taken_over(ledger):
    class Crash(Exception):
        pass

    def crash(hold):
        written.append(hold)
        raise Crash

    written = [ledger.hold(["dataset:flights"], PureLoss(0.5), question="train")]
    first = written[0]
    for _ in range(2):  # written down, and the ledger not yet told
        with pytest.raises(Crash):
            ledger.take_over(written[-1], keep=crash)
    assert ledger.verify().entries == 3
    told = []
    ledger.take_over(written[-1], keep=told.append)  # told, and the answer lost
    mine = ledger.take_over(told[0])

    assert mine.earlier == () and len(told[0].earlier) == 3
    for copy in (first, *written, *told):
        with pytest.raises(InvalidRequest, match="newest copy"):
            ledger.take_over(copy)
    ledger.settle(mine, receipt(PureLoss(0.5)))
    ledger.verify()


def test_what_cannot_be_taken_over_keeps_nothing_and_changes_nothing(ledger):
    hold = ledger.hold(["dataset:flights"], PureLoss(0.25), question="train", request_id="r-1")
    repeated = ledger.hold(["dataset:flights"], PureLoss(0.25), question="train", request_id="r-1")
    lost = ledger.hold(["dataset:flights"], PureLoss(0.25), question="train")
    ledger.write_off(lost.id)
    (shown,) = ledger.open_holds()
    before, kept = ledger.verify(), []

    for wrong in (repeated, shown, lost, Hold("1-ab", (), PureLoss(1), question="q")):
        with pytest.raises(InvalidRequest):
            ledger.take_over(wrong, keep=kept.append)
    with pytest.raises(LedgerUnsound):
        ledger.settle(shown, receipt(PureLoss(0.25)))
    assert kept == [] and ledger.verify() == before
    ledger.settle(hold, receipt(PureLoss(0.25)))


def test_of_many_that_take_over_one_copy_at_once_one_does(ledger):
    copy = ledger.hold(["dataset:flights"], PureLoss(0.5), question="train")
    ready, taken, refused = threading.Barrier(6), [], []

    def race():
        ready.wait()
        try:
            taken.append(ledger.take_over(copy))
        except InvalidRequest:
            refused.append(1)

    threads = [threading.Thread(target=race) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(taken), len(refused)) == (1, 5)
    ledger.settle(taken[0], receipt(PureLoss(0.5)))
    ledger.verify()


# Disjoint parts


def open_sites(ledger: Ledger, *sites: str, **options) -> list[str]:
    accounts = [f"dataset:flights/site={site}" for site in sites]
    for account in accounts:
        ledger.open_part(account, of="dataset:flights", by="site", **options)
    return accounts


def test_the_whole_pays_the_largest_part_and_its_own_charges(ledger):
    a, b = open_sites(ledger, "A", "B")
    spend(ledger, PureLoss(0.5), PureLoss(0.25), [a])
    spend(ledger, PureLoss(0.5), PureLoss(0.125), [b])

    assert ledger.spent("dataset:flights") == PureLoss(0.25)
    spend(ledger, PureLoss(0.5), PureLoss(0.5))

    assert ledger.spent("dataset:flights") == PureLoss(0.75)
    assert (ledger.spent(a), ledger.spent(b)) == (PureLoss(0.25), PureLoss(0.125))
    assert (ledger.remaining(a), ledger.remaining(b)) == (PureLoss(0.25), PureLoss(0.375))
    assert ledger.remaining("dataset:flights") == PureLoss(0.25)
    assert ledger.parts("dataset:flights") == [a, b]
    ledger.verify()


def test_a_part_is_refused_what_the_whole_has_spent_and_the_whole_what_a_part_has(ledger):
    a, b = open_sites(ledger, "A", "B")
    ledger.hold([a], PureLoss(0.75), question="count")
    before = ledger.verify()

    with pytest.raises(BudgetExceeded, match=r"at most epsilon 0.25 in account 'dataset:flights'"):
        ledger.hold(["dataset:flights"], PureLoss(0.5), question="count")
    assert ledger.verify() == before
    ledger.hold(["dataset:flights"], PureLoss(0.25), question="count")

    with pytest.raises(
        BudgetExceeded, match=r"at most epsilon 0.75 in account '.*site=B', a part of 'dataset:flights'"
    ):
        ledger.hold([b], PureLoss(1), question="count")
    with pytest.raises(BudgetExceeded, match=r"at most epsilon 0 in account '.*site=A', a part"):
        ledger.hold([a], PureLoss(Fraction(1, 10**18)), question="count")
    ledger.hold([b], PureLoss(0.75), question="count")
    assert ledger.spent("dataset:flights") == PureLoss(1)
    ledger.verify()


def test_a_settled_part_gives_the_whole_back_what_no_other_part_needs(ledger):
    a, b = open_sites(ledger, "A", "B")
    first = ledger.hold([a], PureLoss(1), question="count")
    spend(ledger, PureLoss(0.5), PureLoss(0.5), [b])

    ledger.settle(first, receipt(PureLoss(0.125), PureLoss(1).promise()))

    assert ledger.spent("dataset:flights") == PureLoss(0.5)
    ledger.verify()


def test_a_release_that_touches_several_parts_charges_each_and_the_whole_once(ledger):
    a, b, _ = open_sites(ledger, "A", "B", "C")

    spend(ledger, PureLoss(0.5), PureLoss(0.25), [a, b])

    assert [ledger.spent(part) for part in ledger.parts("dataset:flights")] == [
        PureLoss(0.25),
        PureLoss(0.25),
        PureLoss(0),
    ]
    assert ledger.spent("dataset:flights") == PureLoss(0.25)


def test_partitions_by_different_things_add_up(ledger):
    a, _ = open_sites(ledger, "A", "B")
    ledger.open_part("dataset:flights/year=2013", of="dataset:flights", by="year")
    spend(ledger, PureLoss(0.25), PureLoss(0.25), [a])
    spend(ledger, PureLoss(0.5), PureLoss(0.5), ["dataset:flights/year=2013"])

    assert ledger.spent("dataset:flights") == PureLoss(0.75)
    assert ledger.remaining(a) == PureLoss(0.25)


def test_a_unit_that_can_touch_two_parts_costs_the_two_largest(ledger):
    a, b, c = open_sites(ledger, "A", "B", "C", touching=2)
    for part, paid in ((a, 0.25), (b, 0.125), (c, 0.5)):
        spend(ledger, PureLoss(0.5), PureLoss(paid), [part])

    assert ledger.spent("dataset:flights") == PureLoss(0.75)
    assert [ledger.remaining(part) for part in (a, b, c)] == [PureLoss(0.25), PureLoss(0.375), PureLoss(0.25)]
    with pytest.raises(InvalidRequest, match="a unit can touch 2"):
        open_sites(ledger, "D")
    ledger.verify()


def test_parts_have_parts(ledger):
    a, b = open_sites(ledger, "A", "B")
    ledger.open_part(f"{a}/sex=f", of=a, by="sex")
    ledger.open_part(f"{a}/sex=m", of=a, by="sex")
    spend(ledger, PureLoss(0.25), PureLoss(0.25), [f"{a}/sex=f"])
    spend(ledger, PureLoss(0.5), PureLoss(0.5), [f"{a}/sex=m"])
    spend(ledger, PureLoss(0.125), PureLoss(0.125), [a])
    spend(ledger, PureLoss(0.375), PureLoss(0.375), [b])

    assert ledger.spent(a) == PureLoss(0.625)
    assert ledger.spent("dataset:flights") == PureLoss(0.625)
    assert ledger.remaining(f"{a}/sex=f") == PureLoss(0.625)
    assert ledger.remaining(b) == PureLoss(0.625)
    ledger.verify()


def test_a_part_has_the_budget_of_the_whole_unless_it_has_a_smaller_one_of_its_own(ledger):
    (a,) = open_sites(ledger, "A")
    (b,) = open_sites(ledger, "B", budget=epsilon(0.25))
    ledger.change_budget("dataset:flights", epsilon(2))

    assert (ledger.budget(a), ledger.budget(b)) == (epsilon(2), epsilon(0.25))
    ledger.hold([a], PureLoss(1.5), question="count")
    with pytest.raises(BudgetExceeded, match=r"at most epsilon 0.25 in account '.*site=B',"):
        ledger.hold([b], PureLoss(0.5), question="count")
    ledger.change_budget("dataset:flights", epsilon(1.5))
    ledger.verify()


def test_a_part_stays_what_it_was_opened_as(ledger):
    (a,) = open_sites(ledger, "A")
    ledger.open_account("dataset:other", epsilon(1))
    before = ledger.verify()
    open_sites(ledger, "A")

    assert ledger.verify() == before
    for wrong in ({"of": "dataset:other"}, {"by": "year"}, {"touching": 2}, {"budget": epsilon(0.5)}):
        with pytest.raises(InvalidRequest, match="what it was opened as"):
            ledger.open_part(a, **{"of": "dataset:flights", "by": "site"} | wrong)
    with pytest.raises(InvalidRequest, match="what it was opened as"):
        ledger.open_part("dataset:other", of="dataset:flights")
    with pytest.raises(InvalidRequest, match="Expected an open account"):
        ledger.open_part("dataset:new", of="dataset:unknown")
    with pytest.raises(InvalidRequest, match="the currency of"):
        ledger.open_part("dataset:new", of="dataset:flights", budget=zcdp(1))
    for wrong in ({"by": ""}, {"touching": 0}, {"touching": True}, {"touching": 1.5}):
        with pytest.raises(InvalidRequest):
            ledger.open_part("dataset:new", **{"of": "dataset:flights"} | wrong)


@pytest.mark.parametrize(
    ("budget", "loss", "total"),
    [
        (approx(1, 1e-6), lambda share: ApproxLoss(share, Fraction(1, 10**7)), ApproxLoss(0.5, Fraction(1, 10**7))),
        (zcdp(1), ZeroConcentratedLoss, ZeroConcentratedLoss(0.5)),
        (gdp(1), lambda share: GaussianLoss(Fraction(share)), GaussianLoss(Fraction(1, 2))),
        (
            RenyiGuarantee(((2, 1), (4, 2))),
            lambda share: RenyiLoss(((2, share), (4, 1 - share))),
            RenyiLoss(((2, 0.5), (4, 0.75))),
        ),
    ],
)
def test_every_currency_takes_the_largest_part_number_by_number(ledger, budget, loss, total):
    ledger.open_account("dataset:other", budget)
    for site, share in (("A", 0.25), ("B", 0.5)):
        ledger.open_part(f"dataset:other/{site}", of="dataset:other")
        spend(ledger, loss(share), loss(share), [f"dataset:other/{site}"])

    assert ledger.spent("dataset:other") == total
    ledger.verify()


def test_the_history_of_the_whole_has_what_its_parts_paid(ledger):
    (a,) = open_sites(ledger, "A")
    entry = spend(ledger, PureLoss(0.5), PureLoss(0.5), [a])

    last = ledger.history("dataset:flights")[-1]
    assert last.id == entry
    assert last.charges == {a: PureLoss(0.5)}
    assert last.spent == {a: PureLoss(0.5), "dataset:flights": PureLoss(0.5)}


# Requests sent twice


def test_a_request_id_is_charged_once_and_runs_once(ledger):
    first = ledger.hold(["dataset:flights"], PureLoss(0.5), question="count", request_id="r-1")
    again = ledger.hold(["dataset:flights"], PureLoss(0.5), question="count", request_id="r-1")

    assert (first.id, first.repeated) == (again.id, False)
    assert again.repeated
    assert ledger.spent("dataset:flights") == PureLoss(0.5)
    # A second run draws new noise under the old charge: it must not be able to finish, even with an equal receipt.
    with pytest.raises(LedgerUnsound, match="first holder"):
        ledger.settle(again, receipt(PureLoss(0.25), PureLoss(0.5).promise()))
    entry = ledger.settle(first, receipt(PureLoss(0.25), PureLoss(0.5).promise()))
    with pytest.raises(LedgerUnsound, match="first holder"):
        ledger.settle(again, receipt(PureLoss(0.25), PureLoss(0.5).promise()))

    late = ledger.hold(["dataset:flights"], PureLoss(0.5), question="count", request_id="r-1")
    assert (late.repeated, late.state, late.closed_by) == (True, HoldState.SETTLED, entry)
    assert ledger.receipt(late.closed_by).bill == PureLoss(0.25)


def test_a_repeated_request_is_recognised_even_when_the_budget_is_used_up(ledger):
    ledger.hold(["dataset:flights"], PureLoss(1), question="count", request_id="r-1")

    assert ledger.hold(["dataset:flights"], PureLoss(1), question="count", request_id="r-1").repeated


@pytest.mark.parametrize(
    "change", [{"worst_case": PureLoss(0.25)}, {"question": "sum"}, {"accounts": ["dataset:flights", "analyst:ann"]}]
)
def test_a_request_id_belongs_to_one_question(ledger, change):
    ledger.open_account("analyst:ann", epsilon(1))
    first = {"accounts": ["dataset:flights"], "worst_case": PureLoss(0.5), "question": "count", "request_id": "r-1"}
    ledger.hold(**first)

    with pytest.raises(InvalidRequest, match="new request id"):
        ledger.hold(**first | change)


def test_a_question_of_any_length_is_held_under_its_beginning_and_a_digest_of_all_of_it(ledger):
    long = "count where zip in (" + ", ".join(map(str, range(5000))) + ")"
    holds = [
        ledger.hold(["dataset:flights"], PureLoss(0.25), question=question, request_id=name)
        for name, question in (("a", long), ("b", long), ("c", long + " "))
    ]

    assert ledger.hold(["dataset:flights"], PureLoss(0.25), question=long, request_id="a").repeated
    assert holds[0].question == holds[1].question != holds[2].question
    assert holds[0].question.startswith("count where zip in (0, 1, 2, ") and len(holds[0].question) < 2000
    with pytest.raises(InvalidRequest):
        ledger.hold(["dataset:flights"], PureLoss(0.25), question=long + " ", request_id="a")
    entry = ledger.settle(holds[0], receipt(PureLoss(0.125), question=long))
    assert ledger.receipt(entry).question == long
    ledger.verify()


# Accounts


def test_opening_an_account_again_does_nothing(ledger):
    before = ledger.verify()

    ledger.open_account("dataset:flights", epsilon(1))

    assert ledger.verify() == before


def test_an_account_keeps_its_budget_until_the_owner_changes_it(ledger):
    with pytest.raises(InvalidRequest, match=r"opened with, epsilon 1, got 'epsilon 2'"):
        ledger.open_account("dataset:flights", epsilon(2))

    ledger.change_budget("dataset:flights", epsilon(2))

    assert ledger.budget("dataset:flights") == epsilon(2)
    assert ledger.history()[-1].kind is EntryKind.BUDGET
    ledger.verify()


def test_a_budget_cannot_fall_below_what_is_spent_nor_change_its_currency(ledger):
    spend(ledger, PureLoss(0.5), PureLoss(0.5))

    with pytest.raises(InvalidRequest, match=r"at least the epsilon 0.5"):
        ledger.change_budget("dataset:flights", epsilon(0.25))
    with pytest.raises(InvalidRequest, match="the currency of account"):
        ledger.change_budget("dataset:flights", zcdp(1))
    ledger.change_budget("dataset:flights", epsilon(0.5))

    assert ledger.remaining("dataset:flights") == PureLoss(0)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x00b", "x" * 201, "a\u200bb", "a*b", "*", None, 3])
def test_names_that_cannot_be_accounts_are_refused(ledger, name):
    with pytest.raises(InvalidRequest, match="account name"):
        ledger.open_account(name, epsilon(1))


@pytest.mark.parametrize("budget", [0, True, "1", None, PureLoss(1), epsilon(1).__class__(0), {"sigma": 1}])
def test_what_is_no_budget_is_refused(ledger, budget):
    with pytest.raises(InvalidRequest, match="budget"):
        ledger.open_account("dataset:other", budget)


@pytest.mark.parametrize("budget", [1.0, (1, 0), {"epsilon": 1}, epsilon(1)])
def test_a_budget_may_be_written_as_a_number_a_pair_or_a_dict(ledger, budget):
    ledger.open_account("dataset:other", budget)

    assert ledger.budget("dataset:other") == epsilon(1)


@pytest.mark.parametrize("accounts", [[], "dataset:flights", None, ["dataset:flights", "dataset:flights"]])
def test_a_hold_needs_different_accounts(ledger, accounts):
    with pytest.raises(InvalidRequest, match="different account names"):
        ledger.hold(accounts, PureLoss(0.5), question="count")


@pytest.mark.parametrize(
    "wrong",
    [
        {"question": ""},
        {"question": None},
        {"question": "\ud800"},
        {"request_id": ""},
        {"request_id": "a\x00"},
        {"request_id": "\ud800" * 600},
        {"protected": Protected("dataset:flights", Adjacency.ADD_REMOVE, Unit.of("\ud800"))},
    ],
)
def test_a_hold_needs_readable_texts(ledger, wrong):
    with pytest.raises(InvalidRequest):
        ledger.hold(["dataset:flights"], PureLoss(0.5), **{"question": "count"} | wrong)


@pytest.mark.parametrize("name", ["", "\ud800", "a\x00", "n" * 501])
def test_a_secret_needs_a_readable_name(ledger, name):
    with pytest.raises(InvalidRequest, match="Expected a name of 1 to 500 characters"):
        ledger.keep(name, b"rung 3")


def test_a_receipt_of_texts_that_cannot_be_written_is_refused_and_the_worst_case_stays(ledger):
    hold = ledger.hold(["dataset:flights"], PureLoss(0.5), question="count")

    with pytest.raises(LedgerUnsound, match="texts that are not UTF-8"):
        ledger.settle(hold, receipt(PureLoss(0.25), PureLoss(0.5).promise(), question="\ud800"))
    assert ledger.spent("dataset:flights") == PureLoss(0.5)


def test_a_request_id_of_any_length_is_known_by_its_beginning_and_a_digest(ledger):
    names = ["".join(chr(0x4E00 + (7919 * place + first) % 20000) for place in range(10_000)) for first in (0, 1)]
    for name in names:
        held = [ledger.hold(["dataset:flights"], PureLoss(0.25), question="q", request_id=name) for _ in range(2)]
        assert [hold.repeated for hold in held] == [False, True]
    assert ledger.verify().holds == 2


def test_a_hold_needs_a_loss_and_an_open_account(ledger):
    with pytest.raises(InvalidRequest, match="is a loss"):
        ledger.hold(["dataset:flights"], 0.5, question="count")
    with pytest.raises(InvalidRequest, match="Expected an open account, got 'dataset:unknown'"):
        ledger.hold(["dataset:unknown"], PureLoss(0.5), question="count")
    with pytest.raises(InvalidRequest, match="Expected an open account"):
        ledger.remaining("dataset:unknown")


def test_names_and_questions_in_any_script_come_back_as_they_went(ledger):
    ledger.open_account("données:été '; DROP TABLE", epsilon(1))
    hold = ledger.hold(["données:été '; DROP TABLE"], PureLoss(0.5), question='平均 "x" 😀\n\\')
    ledger.settle(hold, receipt(PureLoss(0.5), question='平均 "x" 😀\n\\'))

    assert ledger.history("données:été '; DROP TABLE")[-1].question == '平均 "x" 😀\n\\'
    ledger.verify()


# Windows


def test_each_window_has_its_own_budget_and_a_release_charges_every_window_it_touches(ledger):
    ledger.open_account("window:*", epsilon(0.5))

    spend(ledger, PureLoss(0.5), PureLoss(0.5), ["dataset:flights", "window:2013-W05"])
    spend(ledger, PureLoss(0.25), PureLoss(0.25), ["window:2013-W06", "window:2013-W07"])

    assert ledger.remaining("window:2013-W05") == PureLoss(0)
    assert ledger.remaining("window:2013-W06") == PureLoss(0.25)
    assert ledger.remaining("window:2013-W08") == PureLoss(0.5)
    assert ledger.accounts() == ["dataset:flights", "window:2013-W05", "window:2013-W06", "window:2013-W07"]
    assert ledger.templates() == ["window:*"]
    with pytest.raises(BudgetExceeded, match="2013-W05"):
        ledger.hold(["window:2013-W05", "window:2013-W08"], PureLoss(0.25), question="count")
    assert "window:2013-W08" not in ledger.accounts()
    ledger.verify()


def test_the_longest_template_decides_and_a_new_template_budget_holds_from_then_on(ledger):
    ledger.open_account("window:*", epsilon(0.5))
    ledger.open_account("window:2014-*", epsilon(0.25))
    spend(ledger, PureLoss(0.25), PureLoss(0.125), ["window:2014-W01"])
    ledger.change_budget("window:2014-*", epsilon(3))

    assert ledger.budget("window:2013-W01") == epsilon(0.5)
    assert ledger.budget("window:2014-W01") == epsilon(0.25)
    assert ledger.budget("window:2014-W02") == epsilon(3)


def test_a_template_itself_is_never_charged(ledger):
    ledger.open_account("window:*", epsilon(0.5))

    with pytest.raises(InvalidRequest, match="account name"):
        ledger.hold(["window:*"], PureLoss(0.5), question="count")


# Currencies


@pytest.mark.parametrize(
    ("budget", "held", "billed", "reserved", "charged"),
    [
        (epsilon(2), PureLoss(1), PureLoss(0.25), PureLoss(1), PureLoss(0.25)),
        (approx(2, 1e-6), PureLoss(1), PureLoss(0.25), ApproxLoss(1, 0), ApproxLoss(0.25, 0)),
        (approx(2, 1e-6), ApproxLoss(1, 1e-7), ApproxLoss(0.5, 1e-7), ApproxLoss(1, 1e-7), ApproxLoss(0.5, 1e-7)),
        (approx(2, 1e-6), ApproxLoss(1, 1e-7), ApproxLoss(0.5, 0), ApproxLoss(1, 1e-7), ApproxLoss(0.5, 1e-7)),
        (
            zcdp(2),
            ZeroConcentratedLoss(1),
            ZeroConcentratedLoss(0.25),
            ZeroConcentratedLoss(1),
            ZeroConcentratedLoss(0.25),
        ),
        (zcdp(2), PureLoss(1), PureLoss(0.25), *[ZeroConcentratedLoss(pure_to_zcdp(1))] * 2),
        (zcdp(2), GaussianLoss(1), GaussianLoss(0.25), ZeroConcentratedLoss(0.5), ZeroConcentratedLoss(0.125)),
        (gdp(2), GaussianLoss(1), GaussianLoss(0.25), GaussianLoss(1), GaussianLoss(0.25)),
        (
            RenyiGuarantee(((2, 2), (4, 4))),
            RenyiLoss(((2, 1), (4, 2))),
            RenyiLoss(((2, 0.5), (4, 1))),
            RenyiLoss(((2, 1), (4, 2))),
            RenyiLoss(((2, 0.5), (4, 1))),
        ),
    ],
    ids=lambda value: str(value),
)
def test_a_loss_is_charged_in_the_currency_of_the_account(ledger, budget, held, billed, reserved, charged):
    ledger.open_account("dataset:other", budget)

    hold = ledger.hold(["dataset:other"], held, question="count")
    assert ledger.spent("dataset:other") == reserved
    ledger.settle(hold, receipt(billed, held.promise()))

    assert ledger.spent("dataset:other") == charged
    ledger.verify()


@pytest.mark.parametrize(
    ("budget", "loss"),
    [
        (epsilon(1), ZeroConcentratedLoss(0.1)),
        (epsilon(1), ApproxLoss(0.1, 1e-9)),
        (epsilon(1), GaussianLoss(0.1)),
        (gdp(1), ZeroConcentratedLoss(0.1)),
        (zcdp(1), ApproxLoss(0.1, 1e-9)),
        (RenyiGuarantee(((3, 2),)), RenyiLoss(((2, 1),))),
    ],
    ids=lambda value: value.definition,
)
def test_a_loss_no_theorem_carries_into_the_account_is_refused(ledger, budget, loss):
    ledger.open_account("dataset:other", budget)

    with pytest.raises(InvalidRequest, match="can be charged for"):
        ledger.hold(["dataset:other"], loss, question="count")
    assert ledger.spent("dataset:other").amounts() == dict.fromkeys(budget.amounts(), Fraction(0))


def test_the_delta_of_a_budget_is_enforced_too(ledger):
    ledger.open_account("dataset:other", approx(10, 1e-6))
    spend(ledger, ApproxLoss(1, 1e-6), ApproxLoss(1, 1e-6), ["dataset:other"])

    with pytest.raises(BudgetExceeded):
        ledger.hold(["dataset:other"], ApproxLoss(1, 1e-9), question="count")
    spend(ledger, PureLoss(1), PureLoss(1), ["dataset:other"])


# The record


def test_the_history_tells_every_step_and_the_receipt_is_kept_word_for_word(ledger):
    entry = spend(ledger, PureLoss(0.5), PureLoss(0.25))

    kinds = [line.kind for line in ledger.history("dataset:flights")]
    kept = ledger.receipt(entry)

    assert kinds == [EntryKind.OPEN, EntryKind.HOLD, EntryKind.SETTLE]
    assert kept == receipt(PureLoss(0.25), PureLoss(0.5).promise()).entered(entry)
    assert ledger.history()[-1].charges == {"dataset:flights": PureLoss(0.25)}
    assert ledger.history()[-1].spent == {"dataset:flights": PureLoss(0.25)}
    assert ledger.history("dataset:unknown") == []


@pytest.mark.parametrize("entry_id", ["", "1", "1-", "-1-a", "99-aaaa", "1-aaaa", None, "1" * 30 + "-a"])
def test_only_settled_entries_have_receipts(ledger, entry_id):
    with pytest.raises(InvalidRequest):
        ledger.receipt(entry_id)


def test_an_entry_without_a_receipt_is_named_so(ledger):
    with pytest.raises(InvalidRequest, match="settled entry"):
        ledger.receipt(ledger.history()[-1].id)


def test_an_anchor_from_elsewhere_must_still_be_in_the_chain(ledger):
    entry = spend(ledger, PureLoss(0.5), PureLoss(0.25))
    spend(ledger, PureLoss(0.5), PureLoss(0.25))

    assert ledger.verify(anchor=entry).entries == 6
    with pytest.raises(LedgerUnsound, match="anchor"):
        ledger.verify(anchor=entry[:-1] + ("0" if entry[-1] != "0" else "1"))


def test_threads_share_a_handle_and_never_overspend(ledger):
    refused, settled = [], []

    def work() -> None:
        for _ in range(3):
            try:
                settled.append(spend(ledger, PureLoss(Fraction(1, 8)), PureLoss(Fraction(1, 10))))
            except BudgetExceeded:
                refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(settled) + len(refused) == 18
    assert ledger.spent("dataset:flights") == PureLoss(Fraction(len(set(settled)), 10))
    assert 8 <= len(settled) <= 9
    ledger.verify()


# Secrets


def test_a_secret_is_kept_replaced_by_who_saw_it_and_forgotten(ledger):
    assert ledger.kept("path:1") is None
    ledger.keep("path:1", b"rung 3")

    assert ledger.kept("path:1") == b"rung 3"
    assert ledger.replace("path:1", old=b"rung 3", new=b"rung 4")
    assert not ledger.replace("path:1", old=b"rung 3", new=b"rung 5")
    assert ledger.kept("path:1") == b"rung 4"
    ledger.verify()
    ledger.forget("path:1")
    ledger.forget("path:1")
    assert ledger.kept("path:1") is None
    assert not ledger.replace("path:1", old=b"rung 4", new=b"rung 5")
    ledger.verify()


def test_a_kept_name_is_not_kept_again(ledger):
    ledger.keep("path:1", b"rung 3")

    with pytest.raises(InvalidRequest, match="keeps nothing yet"):
        ledger.keep("path:1", b"redrawn")
    assert ledger.kept("path:1") == b"rung 3"


def test_secrets_are_bytes(ledger):
    with pytest.raises(InvalidRequest, match="in bytes, got 'str'"):
        ledger.keep("path:1", "text")


# Handles


def test_a_handle_is_a_context_and_opens_again_when_used(ledger):
    ledger.close()

    assert ledger.remaining("dataset:flights") == PureLoss(1)
    assert open_ledger(ledger) is ledger


def test_a_ledger_in_memory_refuses_to_be_pickled():
    with pytest.raises(TypeError, match="ledger in memory cannot be pickled"):
        pickle.dumps(open_ledger(None))


def test_a_pickle_of_a_durable_ledger_is_a_reference(durable):
    durable.keep("path:1", b"the noise of rung 3")
    packed = pickle.dumps(durable)
    with pickle.loads(packed) as other:
        spend(other, PureLoss(0.5), PureLoss(0.25))

        assert durable.spent("dataset:flights") == PureLoss(0.25)
        assert b"rung" not in packed
        # The key does not travel, so the other side cannot refine.
        with pytest.raises(InvalidRequest, match="refinement refused"):
            other.kept("path:1")


def test_a_durable_ledger_remembers_across_handles(durable):
    entry = spend(durable, PureLoss(0.5), PureLoss(0.25))
    durable.close()

    with open_ledger(durable.url) as other:
        assert other.receipt(entry).bill == PureLoss(0.25)
        assert other.verify(anchor=entry).holds == 1


def test_a_second_process_with_the_key_continues_the_path(durable, monkeypatch):
    key = new_key()
    with open_ledger(durable.url, key=key) as first:
        first.keep("path:1", b"rung 3")
    monkeypatch.setenv("EXPOST_LEDGER_KEY", key)

    with pickle.loads(pickle.dumps(durable)) as second:
        assert second.kept("path:1") == b"rung 3"
        assert second.replace("path:1", old=b"rung 3", new=b"rung 4")


def test_the_key_of_another_owner_or_none_refuses_refinement(durable):
    durable.keep("path:1", b"rung 3")

    with (
        open_ledger(durable.url, key=new_key()) as stranger,
        pytest.raises(InvalidRequest, match="key that locked this secret; refinement refused"),
    ):
        stranger.kept("path:1")
    with open_ledger(durable.url) as keyless:
        with pytest.raises(InvalidRequest, match="refinement refused"):
            keyless.kept("path:1")
        with pytest.raises(InvalidRequest, match="refinement refused"):
            keyless.keep("path:2", b"rung 1")
        keyless.verify()


def test_of_two_units_that_race_for_an_account_one_holds_and_the_other_never_does(ledger):
    units = [Protected("dataset:flights", Adjacency.ADD_REMOVE, unit) for unit in (Unit.row(), Unit.of("tailnum"))]
    ready, held, refused = threading.Barrier(8), [], []

    def race(protected):
        ready.wait()
        for _ in range(4):
            try:
                ledger.hold(["dataset:flights"], PureLoss(Fraction(1, 100)), question="count", protected=protected)
                held.append(protected)
            except InvalidRequest:
                refused.append(protected)

    threads = [threading.Thread(target=race, args=(units[number % 2],)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(held) == len(refused) == 16
    assert len(set(held)) == len(set(refused)) == 1 and set(held) != set(refused)
    assert ledger.verify().open_holds == 16


# Sources


def test_rows_have_one_account_in_every_storage_and_a_refusal_records_nothing(ledger):
    rows = SourceIdentity(columns=(("age", "integer"),), places=("s3://bucket/people",), samples=(b"first rows",))
    copy = SourceIdentity(columns=(("age", "integer"),), places=("s3://bucket/copy",), samples=(b"first rows",))
    other = SourceIdentity(columns=(("age", "integer"),), places=("s3://bucket/other",), samples=(b"other rows",))
    ledger.bind_source("dataset:people", rows, budget=1)
    ledger.bind_source("dataset:other", other, budget=1)
    before = ledger.anchor()

    for source in (rows, copy):
        with pytest.raises(InvalidRequest, match="'dataset:people' pays for these rows"):
            ledger.bind_source("dataset:again", source, budget=1)
        with pytest.raises(InvalidRequest, match="the account 'dataset:nobody'"):
            ledger.bind_source("dataset:nobody", source)
    assert ledger.anchor() == before and ledger.accounts() == ["dataset:flights", "dataset:other", "dataset:people"]
    ledger.bind_source("dataset:people", rows)
    assert ledger.anchor() == before  # nothing new
    ledger.bind_source("dataset:people", copy)
    ledger.bind_source("dataset:again", copy, budget=1, another_budget="a second study")
    assert ledger.sources()["dataset:people"].places == {"s3://bucket/people", "s3://bucket/copy"}
    assert ledger.sources()["dataset:again"].shared == {"dataset:people"}
    assert ledger.verify().accounts == 4
