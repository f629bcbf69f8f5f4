"""One account pays under both adjacencies: conversions, going over, and joining accounts of earlier versions."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from expost.accounting import ExPostEvent, GaussianEvent, Parallel, PoissonSampled, Repeat
from expost.core import (
    Adjacency,
    ApproxLoss,
    BudgetExceeded,
    GaussianLoss,
    InvalidRequest,
    LedgerUnsound,
    PureLoss,
    Receipt,
    Unit,
    ZeroConcentratedLoss,
    approx,
    epsilon,
    gdp,
    zcdp,
)
from expost.ledger import EntryKind, MemoryLedger, Protected, open_ledger
from expost.ledger.ledger_entry import LedgerEntry

A = "dataset:a"
ADDED, SWAPPED = (Protected(A, each, Unit.row()) for each in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE))


@pytest.fixture(params=["memory", "file"])
def ledger(request, tmp_path):
    with open_ledger(None if request.param == "memory" else str(tmp_path / "a.ledger")) as book:
        book.open_account(A, epsilon(1))
        yield book
        book.verify()


def ask(book, protected, cap, bill=None, *, account=None, event=None, outcome=None, **terms):
    cap = PureLoss(cap) if isinstance(cap, float | int | Fraction) else cap
    bill = cap if bill is None else PureLoss(bill) if isinstance(bill, float | int | Fraction) else bill
    hold = book.hold([account or protected.account], cap, question="q", protected=protected, event=event, **terms)
    stated = {"adjacency": protected.adjacency, "unit": protected.unit}
    book.settle(hold, Receipt(question="q", method="m", promise=cap.promise(), bill=bill, **stated), outcome=outcome)
    return hold


def test_an_account_that_counts_replaced_rows_charges_an_added_one_twice(ledger):
    ask(ledger, SWAPPED, 0.25)
    hold = ledger.hold([A], PureLoss(0.25), question="q", protected=ADDED)

    assert hold.replaced == (A,) and ledger.spent(A) == PureLoss(0.75)
    receipt = Receipt(question="q", method="m", promise=epsilon(0.25), bill=PureLoss(0.0625))
    ledger.settle(hold, receipt)
    assert ledger.spent(A) == PureLoss(0.375)
    assert ledger.remaining(A) == PureLoss(0.625)
    assert ledger.remaining_for(A, ADDED) == PureLoss(0.3125)
    assert ledger.remaining_for(A, SWAPPED) == PureLoss(0.625)


def test_an_account_goes_over_once_and_what_was_spent_before_counts_twice(ledger):
    ask(ledger, ADDED, 0.5, 0.2)
    assert ledger.counts(A) is Adjacency.ADD_REMOVE
    assert ledger.remaining_for(A, SWAPPED) == PureLoss(0.6)
    assert ledger.explain_change(SWAPPED).endswith("epsilon 0.2 spent before counts as epsilon 0.4")

    hold = ask(ledger, SWAPPED, 0.5, 0.1)
    again = ask(ledger, SWAPPED, 0.125)

    assert hold.note == "from now on this account counts replaced rows; epsilon 0.2 spent before counts as epsilon 0.4"
    assert again.note is None and ledger.explain_change(SWAPPED) is None
    assert ledger.spent(A) == PureLoss(Fraction("0.625")) and ledger.counts(A) is Adjacency.REPLACE_ONE
    kinds = [entry.kind for entry in ledger.history(A)]
    assert kinds.count(EntryKind.NEIGHBOURS) == 1
    assert "epsilon 0.2 spent before counts as epsilon 0.4" in repr(ledger.history(A))


def test_what_does_not_fit_for_replaced_rows_is_refused_and_changes_nothing(ledger):
    ask(ledger, ADDED, 0.4)
    before = ledger.history()

    with pytest.raises(BudgetExceeded, match=r"at most epsilon 0\.2 .*0\.4 spent before counts as epsilon 0\.8"):
        ledger.hold([A], PureLoss(0.25), question="q", protected=SWAPPED)
    ask(ledger, ADDED, 0.2)
    with pytest.raises(BudgetExceeded, match=r"epsilon 0\.6 spent before counts as more, got 'epsilon 1\.2'"):
        ledger.hold([A], PureLoss(0.01), question="q", protected=SWAPPED)
    assert ledger.remaining_for(A, SWAPPED) == PureLoss(0)
    assert ledger.counts(A) is Adjacency.ADD_REMOVE and len(ledger.history()) == len(before) + 2


def test_an_account_goes_over_only_while_nothing_runs_and_abandoned_holds_can_be_written_off(ledger):
    lost = ledger.hold([A], PureLoss(0.125), question="q", protected=ADDED)
    with pytest.raises(InvalidRequest, match="because a question is running on it"):
        ask(ledger, SWAPPED, 0.125)
    ledger.write_off(lost.id)

    ask(ledger, SWAPPED, 0.125)
    assert ledger.spent(A) == PureLoss(0.375)


def test_the_unit_must_still_be_the_same(ledger):
    ask(ledger, ADDED, 0.125)
    for adjacency in Adjacency:
        with pytest.raises(InvalidRequest, match="as in the account so far"):
            ledger.hold([A], PureLoss(0.125), question="q", protected=Protected(A, adjacency, Unit.of("id")))


def test_parts_go_over_with_their_whole_and_a_replaced_row_touches_two(ledger):
    ledger.open_part([f"{A}/1", f"{A}/2"], of=A, by="site")
    ask(ledger, ADDED, 0.125, account=f"{A}/1")
    ask(ledger, ADDED, 0.0625, account=f"{A}/2")
    ask(ledger, ADDED, 0.03125)
    assert ledger.remaining_for(f"{A}/2", SWAPPED) == PureLoss(1 - 2 * (0.125 + 0.0625 + 0.03125))
    hold = ask(ledger, SWAPPED, 0.125, account=f"{A}/2")

    assert hold.note is not None
    assert ledger.spent(f"{A}/1") == PureLoss(0.25) and ledger.spent(f"{A}/2") == PureLoss(0.25)
    assert ledger.spent(A) == PureLoss(0.5625)
    ledger.open_part(f"{A}/3", of=A, by="site")  # as a session about added and removed rows asks for it
    ledger.open_part([f"{A}/1", f"{A}/3"], of=A, by="site", touching=2)
    assert ask(ledger, ADDED, 0.0625, account=f"{A}/3").replaced == (f"{A}/3",)
    assert ledger.spent(A) == PureLoss(0.5625)


def test_accounts_of_analysts_add_up_what_each_run_states(ledger):
    ledger.open_account("analyst:ann", epsilon(1))
    ask(ledger, SWAPPED, 0.25)
    hold = ledger.hold([A, "analyst:ann"], PureLoss(0.25), question="q", protected=ADDED)

    assert hold.replaced == (A,)
    assert ledger.spent("analyst:ann") == PureLoss(0.25)


STEP = PoissonSampled(Fraction(1, 10), GaussianEvent(4))
RUNS = {
    "pure": lambda rng: (PureLoss(Fraction(rng.randint(1, 9), 100)), {}),
    "approx": lambda rng: (ApproxLoss(Fraction(rng.randint(1, 9), 100), Fraction(1, 10**9)), {}),
    "zcdp": lambda rng: (ZeroConcentratedLoss(Fraction(rng.randint(1, 9), 10**4)), {}),
    "gdp": lambda rng: (GaussianLoss(Fraction(rng.randint(1, 9), 10**4)), {}),
    "training": lambda rng: (
        ApproxLoss(Fraction(1), Fraction(1, 10**9)),
        {
            "event": Parallel((Repeat(STEP, 9), ExPostEvent(0.1, 0.1))),
            "outcome": Parallel((Repeat(STEP, rng.randint(1, 9)), ExPostEvent(0.05, 0.1))),
        },
    ),
    "refined": lambda rng: (PureLoss(Fraction(1, 100)), {"before": Fraction(1, 50)}),
}
BUDGETS = {
    "pure": (epsilon(50), "pure refined"),
    "composed": (approx(20, 1e-5), "pure approx zcdp gdp training refined"),
    "zcdp": (zcdp(9), "pure zcdp gdp"),
    "gdp": (gdp(9), "pure gdp"),
}


@pytest.mark.parametrize("currency", BUDGETS)
def test_going_over_late_counts_as_much_as_counting_replaced_rows_from_the_start(currency):
    """In every currency, on the whole and on parts: the account that went over equals one that never had to."""
    budget, kinds = BUDGETS[currency]
    late, early = MemoryLedger(), MemoryLedger()
    for book in (late, early):
        book.open_account(A, budget)
    early.settle(
        early.hold([A], PureLoss(0), question="q", protected=SWAPPED),
        Receipt(question="q", method="m", promise=epsilon(1), bill=PureLoss(0), adjacency=Adjacency.REPLACE_ONE),
    )
    for book in (late, early):
        book.open_part([f"{A}/1", f"{A}/2", f"{A}/3"], of=A, by="site")
        rng = random.Random(1)
        for _ in range(25):
            cap, terms = RUNS[rng.choice(kinds.split())](rng)
            place = rng.choice([A, f"{A}/1", f"{A}/2", f"{A}/3"])
            paid = {name: amount * rng.choice([0, 1, Fraction(1, 2)]) for name, amount in cap.amounts().items()}
            bill = cap if "event" in terms else cap.with_amounts(paid)
            ask(book, ADDED, cap, bill, account=place, **terms)
        ask(book, SWAPPED, PureLoss(Fraction(1, 100)))
        book.verify()

    pages = [book._page for book in (late, early)]
    for name in (A, f"{A}/1", f"{A}/2", f"{A}/3"):
        one, two = (page.charged_account(name) for page in pages)
        assert one.own == two.own and one.spent == two.spent and one.part == two.part
    assert late.counts(A) is early.counts(A) is Adjacency.REPLACE_ONE


def test_a_training_in_an_account_of_replaced_rows_gives_back_the_steps_that_did_not_run():
    book = MemoryLedger()
    book.open_account(A, approx(9, 1e-5))
    ask(book, SWAPPED, 0.125)
    event = Repeat(STEP, 100)
    hold = book.hold([A], ApproxLoss(2, 1e-7), question="q", protected=ADDED, event=event)
    held = book.spent(A).epsilon
    receipt = Receipt(question="q", method="m", promise=approx(2, 1e-7), bill=ApproxLoss(2, 1e-7))
    book.settle(hold, receipt, outcome=Repeat(STEP, 10))

    assert 0.125 < book.spent(A).epsilon < held / 2 < 9


def test_a_run_without_a_price_for_replaced_rows_is_refused_before_it_runs():
    book = MemoryLedger()
    book.open_account(A, approx(500, 1e-5))
    ask(book, SWAPPED, 0.125)

    with pytest.raises(InvalidRequest, match="which counts replaced units"):
        book.hold([A], ApproxLoss(250, 1e-7), question="q", protected=ADDED)


# Accounts that the command line kept apart


def kept_apart(book, budget=1, other=1, *, spent=0.25, beside=0.125, suffix="replace-one"):
    """The accounts of version 0.2: the table's, and the one beside it for the other adjacency."""
    first, second = (ADDED, SWAPPED) if suffix == "replace-one" else (SWAPPED, ADDED)
    if A not in book.accounts():
        book.open_account(A, budget)
    book.open_account(f"{A}-{suffix}", other)
    if spent:
        ask(book, first, spent)
    ask(book, replace(second, account=f"{A}-{suffix}"), beside)


@pytest.mark.parametrize(("suffix", "total"), [("replace-one", 0.625), ("add-remove", 0.5)])
@pytest.mark.parametrize("protected", [ADDED, SWAPPED])
def test_the_next_use_joins_the_accounts_and_nothing_is_forgotten(ledger, suffix, total, protected):
    kept_apart(ledger, suffix=suffix)
    ask(ledger, protected, 0.03125)

    more = 0.03125 * (2 if protected is ADDED else 1)
    assert ledger.spent(A) == PureLoss(total + more) and ledger.counts(A) is Adjacency.REPLACE_ONE
    beside = replace(SWAPPED, account=f"{A}-{suffix}")
    with pytest.raises(InvalidRequest, match=f"because '{A}' took it over"):
        ledger.hold([beside.account], PureLoss(0.125), question="q")
    with pytest.raises(InvalidRequest, match=f"because '{A}' took it over"):
        ledger.check_protected(beside)
    assert ledger.remaining(beside.account) == PureLoss(0)
    ask(ledger, protected, 0.03125)
    assert [entry.kind for entry in ledger.history()].count(EntryKind.NEIGHBOURS) == 1


def test_opening_a_session_joins_them_unless_something_runs(ledger):
    kept_apart(ledger)
    lost = ledger.hold([f"{A}-replace-one"], PureLoss(0.125), question="q")
    ledger.check_protected(ADDED)
    assert ledger.spent(A) == PureLoss(0.25)
    with pytest.raises(InvalidRequest, match="running on it"):
        ask(ledger, ADDED, 0.0625)
    ledger.write_off(lost.id)

    ledger.check_protected(ADDED)
    assert ledger.spent(A) == PureLoss(0.75)


def test_a_table_that_was_only_used_beside_its_account_carries_that_over(ledger):
    kept_apart(ledger, spent=0)
    ask(ledger, ADDED, 0.0625)

    assert ledger.spent(A) == PureLoss(0.25)


def test_parts_of_both_accounts_are_joined(ledger):
    beside = f"{A}-replace-one"
    ledger.open_part(f"{A}/1", of=A, by="site")
    ask(ledger, ADDED, 0.0625, account=f"{A}/1")
    kept_apart(ledger)
    ledger.open_part(f"{beside}/1", of=beside, by="site", touching=2)
    ask(ledger, replace(SWAPPED, account=beside), 0.0625, account=f"{beside}/1")
    ledger.check_protected(ADDED)

    assert ledger.spent(A) == PureLoss(0.5 + 0.125 + 0.125 + 0.0625)
    with pytest.raises(InvalidRequest, match="took it over"):
        ledger.hold([f"{beside}/1"], PureLoss(0.125), question="q")
    ledger.open_part(f"{beside}/2", of=beside, by="site", touching=2)
    with pytest.raises(InvalidRequest, match="took it over"):
        ledger.hold([f"{beside}/2"], PureLoss(0.125), question="q")


def test_more_than_the_budget_leaves_nothing_until_the_budget_covers_it(ledger):
    ledger.open_part([f"{A}/1", f"{A}/2"], of=A, by="site")
    ask(ledger, ADDED, 0.25, account=f"{A}/1")
    kept_apart(ledger, spent=0.25, beside=0.75)
    ledger.check_protected(ADDED)

    assert ledger.spent(A) == PureLoss(1.75) and ledger.spent(f"{A}/1") == PureLoss(0.5)
    for name in (A, f"{A}/1", f"{A}/2"):
        assert ledger.remaining(name) == PureLoss(0)
        for protected in (ADDED, SWAPPED, None):
            with pytest.raises(BudgetExceeded, match="took over more than its budget"):
                ledger.hold([name], PureLoss(0.01), question="q", protected=protected)
    ask(ledger, ADDED, 0)  # what costs nothing is still answered
    ledger.verify()
    with pytest.raises(InvalidRequest, match=r"at least the epsilon 1\.75"):
        ledger.change_budget(A, epsilon(1.5))
    ledger.change_budget(A, epsilon(2))
    assert ledger.spent(A) == PureLoss(1.75) and ledger.remaining(A) == PureLoss(0.25)
    ask(ledger, ADDED, 0.0625, account=f"{A}/2")
    assert ledger.spent(A) == PureLoss(1.875)


def test_a_delta_has_no_price_in_a_pure_account_and_leaves_nothing_for_ever(ledger):
    ledger.open_account(f"{A}-replace-one", approx(1, 1e-6))
    ask(ledger, replace(SWAPPED, account=f"{A}-replace-one"), ApproxLoss(0.1, 1e-7))
    ledger.check_protected(ADDED)

    assert ledger.remaining(A) == PureLoss(0)
    with pytest.raises(InvalidRequest, match="a run without a price"):
        ledger.change_budget(A, epsilon(100))


def test_a_table_that_merely_has_such_a_name_is_left_alone(ledger):
    ask(ledger, ADDED, 0.25)
    ledger.open_account(f"{A}-replace-one", epsilon(1))
    ask(ledger, replace(ADDED, account=f"{A}-replace-one"), 0.25)
    ledger.check_protected(ADDED)

    assert ledger.spent(A) == ledger.spent(f"{A}-replace-one") == PureLoss(0.25)


def test_a_run_without_a_price_leaves_nothing_in_an_account_with_parts(ledger):
    ledger.open_part([f"{A}/1", f"{A}/2"], of=A, by="site")
    ask(ledger, ADDED, 0.125, account=f"{A}/1")
    ledger.open_account(f"{A}-replace-one", approx(1, 1e-6))
    ask(ledger, replace(SWAPPED, account=f"{A}-replace-one"), ApproxLoss(0.1, 1e-7))
    ledger.check_protected(ADDED)

    ledger.verify()
    assert ledger.remaining(A) == ledger.remaining(f"{A}/1") == PureLoss(0)


def test_what_an_account_owes_is_not_forgotten_when_it_takes_over_another(ledger):
    ledger.open_part([f"{A}/1", f"{A}/2"], of=A, by="site")
    ask(ledger, ADDED, 0.25, account=f"{A}/1")
    kept_apart(ledger, spent=0.25, beside=0.75)
    ledger.check_protected(ADDED)
    assert ledger.spent(A) == PureLoss(1.75)
    ledger.open_account(f"{A}-add-remove", epsilon(1))
    ask(ledger, replace(ADDED, account=f"{A}-add-remove"), 0.125)
    ledger.check_protected(ADDED)

    assert ledger.spent(A) == PureLoss(2)
    ledger.verify()
    ledger.change_budget(A, epsilon(3))
    assert ledger.spent(A) == PureLoss(2) and ledger.remaining(A) == PureLoss(1)
    ask(ledger, ADDED, 0.0625, account=f"{A}/2")
    assert ledger.spent(A) == PureLoss(2.125)


def test_no_part_is_opened_while_its_whole_owes_more_than_its_budget(ledger):
    ledger.open_part([f"{A}/1"], of=A, by="site")
    ask(ledger, ADDED, 0.25, account=f"{A}/1")
    kept_apart(ledger, spent=0.25, beside=0.75)
    ledger.check_protected(ADDED)
    with pytest.raises(BudgetExceeded, match="Cannot open a part"):
        ledger.open_part([f"{A}/1", f"{A}/2"], of=A, by="site")
    ledger.open_part([f"{A}/1"], of=A, by="site")
    assert ledger.spent(A) == PureLoss(1.75)
    ledger.change_budget(A, epsilon(3))
    ledger.open_part([f"{A}/2"], of=A, by="site")

    ask(ledger, ADDED, 0.0625, account=f"{A}/2")
    assert ledger.spent(A) == PureLoss(1.875)


@pytest.mark.parametrize("other", [epsilon(1), approx(1, 1e-6)], ids=str)
def test_an_account_that_went_over_itself_is_taken_over_with_all_it_counts(other):
    book = MemoryLedger()
    book.open_account(A, epsilon(3))
    beside = f"{A}-add-remove"
    book.open_account(beside, other)
    ask(book, replace(ADDED, account=beside), 0.125)
    ask(book, replace(SWAPPED, account=beside), 0.0625)
    book.check_protected(ADDED)

    assert book.spent(A).epsilon == (0.3125 if other == epsilon(1) else 0.375)  # or all of it for added rows
    book.verify()


# The second reckoning


def forged(book, change):
    """The chain of a ledger with one body changed, hashed anew."""
    chain, entries = MemoryLedger(), []
    for entry in book.history():
        body = change(entry) if change(entry) is not None else entry.body
        entries.append(LedgerEntry.follow(entries[-1] if entries else None, entry.kind, body))
    chain._page._chain = entries
    chain._page._accounts = book._page._accounts
    chain._page._parts, chain._page._holds = book._page._parts, book._page._holds
    return chain


LIES = {
    "less": lambda body: body | {"own": {A: PureLoss(0.25).to_json()}, "spent": {A: PureLoss(0.25).to_json()}},
    "another": lambda body: body | {"of": "dataset:b"},
    "none": lambda body: body | {"own": {}},
    "closing": lambda body: body | {"closed": ["dataset:b"]},
    "nothing left": lambda body: body | {"exceeded": True, "priced": True, "own": {A: PureLoss(0).to_json()}},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_change_that_does_not_follow_from_the_runs_is_unsound(lie):
    book = MemoryLedger()
    for name in (A, "dataset:b"):
        book.open_account(name, epsilon(1))
    ask(book, ADDED, 0.25)
    ask(book, SWAPPED, 0.125)

    with pytest.raises(LedgerUnsound):
        forged(book, lambda e: LIES[lie](e.body) if e.kind is EntryKind.NEIGHBOURS else None).verify()


@pytest.mark.parametrize("kind", [EntryKind.HOLD, EntryKind.SETTLE])
def test_a_hold_that_is_not_converted_is_unsound(kind):
    book = MemoryLedger()
    book.open_account(A, epsilon(1))
    ask(book, SWAPPED, 0.125)
    ask(book, ADDED, 0.125)

    def drop(entry):
        return {k: v for k, v in entry.body.items() if k != "replaced"} if entry.kind is kind else None

    with pytest.raises(LedgerUnsound):
        forged(book, drop).verify()


@pytest.mark.parametrize("beside", [PureLoss(0.95), ApproxLoss(0.01, 4.9e-7)], ids=["epsilon", "delta"])
@pytest.mark.parametrize("parts", [False, True])
def test_an_account_over_renyi_orders_that_took_over_too_much_is_used_up_until_its_budget_covers_it(beside, parts):
    book = MemoryLedger()
    for name in (A, f"{A}-replace-one"):
        book.open_account(name, approx(1, 1e-6))
    if parts:
        book.open_part([f"{A}/1", f"{A}/2"], of=A, by="site")
    ask(book, ADDED, ApproxLoss(0.1, 1e-7), account=f"{A}/1" if parts else A)
    for _ in range(40):
        ask(book, ADDED, 0.01)
    ask(book, replace(SWAPPED, account=f"{A}-replace-one"), beside)
    with pytest.raises(BudgetExceeded, match="took over more than its budget"):
        book.hold([A], PureLoss(0.01), question="q", protected=ADDED)
    assert book.spent(A).epsilon < 1 and book.history(A)[-1].kind is not EntryKind.NEIGHBOURS
    book.check_protected(ADDED)

    assert book.remaining(A) == ApproxLoss(0, 0) and book.verify().entries == len(book.history())
    assert book.spent(A).amounts()["delta"] > 5e-7 or book.spent(A).epsilon > 1
    with pytest.raises(InvalidRequest, match="of at least"):
        book.change_budget(A, approx(1, 1.01e-6))
    book.change_budget(A, approx(4, 1e-5))
    ask(book, ADDED, 0.01, account=f"{A}/2" if parts else A)
    assert book.spent(A).epsilon < 4
    book.verify()


def test_an_account_with_a_run_that_has_no_price_for_replaced_rows_does_not_go_over():
    book = MemoryLedger()
    book.open_account(A, approx(500, 1e-5))
    ask(book, ADDED, ApproxLoss(250, 1e-7))

    with pytest.raises(InvalidRequest, match="has no price for them"):
        book.hold([A], PureLoss(0.125), question="q", protected=SWAPPED)
    assert book.remaining_for(A, SWAPPED).epsilon == 0
    assert "counts as more than any budget" in book.explain_change(SWAPPED)


@pytest.mark.parametrize("budget", [epsilon(4), approx(4, 1e-6)], ids=str)
def test_a_run_that_is_held_in_stages_is_converted_stage_by_stage(budget):
    book = MemoryLedger()
    book.open_account(A, budget)
    for closed in ("written off", "settled"):
        hold = book.hold([A], PureLoss(0.125), question="q", protected=ADDED, up_to=PureLoss(1))
        hold = book.extend(hold, PureLoss(0.25))
        if closed == "written off":
            book.write_off(hold.id)
        else:
            book.settle(hold, Receipt(question="q", method="m", promise=epsilon(1), bill=PureLoss(0.125)))
    assert book.spent(A).epsilon == 0.375
    ask(book, SWAPPED, 0.25)
    assert book.spent(A).epsilon == 1
    hold = book.hold([A], PureLoss(0.125), question="q", protected=ADDED, up_to=PureLoss(1))
    for stage in (0.25, 0.5):
        hold = book.extend(hold, PureLoss(stage))
        assert hold.replaced == (A,) and book.spent(A).epsilon == 1 + 2 * stage
    book.settle(hold, Receipt(question="q", method="m", promise=epsilon(1), bill=PureLoss(0.375)))

    assert book.spent(A).epsilon == 1.75 and book.verify().open_holds == 0
