"""The books against a model: whatever is asked in whatever order, the totals are the sums."""

import itertools
from fractions import Fraction

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from expost.core import BudgetExceeded, PureLoss, Receipt, epsilon
from expost.ledger import EntryKind, MemoryLedger, open_ledger

shares = st.fractions(min_value=Fraction(1, 1000), max_value=1, max_denominator=1000)
names = st.sets(st.sampled_from(["dataset:a", "dataset:b", "analyst:c", "window:1", "window:2"]), min_size=1)

# What each part is a part of, by what, and how many parts a unit can touch.
PARTS = {
    "a/site=1": ("dataset:a", "site", 1),
    "a/site=2": ("dataset:a", "site", 1),
    "a/site=3": ("dataset:a", "site", 1),
    "a/year=1": ("dataset:a", "year", 2),
    "a/year=2": ("dataset:a", "year", 2),
    "a/year=3": ("dataset:a", "year", 2),
    "a/site=1/sex=f": ("a/site=1", "sex", 1),
    "a/site=1/sex=m": ("a/site=1", "sex", 1),
}
places = st.sets(st.sampled_from(["dataset:a", "dataset:b", *PARTS]), min_size=1, max_size=3)


class Parts(RuleBasedStateMachine):
    """Disjoint parts beside a model that adds up, for every unit there could be, all that touches it."""

    @initialize()
    def open(self):
        self.ledger = MemoryLedger()
        for name in ("dataset:a", "dataset:b"):
            self.ledger.open_account(name, epsilon(2))
        for name, (of, by, touching) in PARTS.items():
            self.ledger.open_part(name, of=of, by=by, touching=touching)
        self.charges, self.open_holds = {}, {}

    def spent(self, name):
        """Own charges, and the worst choice of as many parts as a unit can touch, by trying all of them."""
        own = sum((loss for accounts, loss in self.charges.values() if name in accounts), Fraction(0))
        lanes = {(by, touching) for of, by, touching in PARTS.values() if of == name}
        for by, touching in lanes:
            parts = [part for part, place in PARTS.items() if place == (name, by, touching)]
            own += max(sum(map(self.spent, some)) for some in itertools.combinations(parts, touching))
        return own

    @rule(accounts=places, cap=shares)
    def hold(self, accounts, cap):
        self.charges["new"] = (accounts, cap)
        fits = all(self.spent(name) <= 2 for name in ["dataset:a", "dataset:b", *PARTS])
        del self.charges["new"]
        limits = {name: self.ledger.remaining(name) for name in accounts}
        try:
            hold = self.ledger.hold(sorted(accounts), PureLoss(cap), question="q")
        except BudgetExceeded:
            assert not fits
            assert len(accounts) > 1 or not PureLoss(cap).within(limits[min(accounts)])
            return
        assert fits
        assert all(PureLoss(cap).within(limit) for limit in limits.values())
        self.charges[hold.id], self.open_holds[hold.id] = (accounts, cap), hold

    @rule(share=shares, data=st.data())
    def settle(self, share, data):
        if self.open_holds:
            hold = self.open_holds.pop(data.draw(st.sampled_from(sorted(self.open_holds))))
            bill = PureLoss(hold.worst_case.epsilon * share)
            self.ledger.settle(hold, Receipt(question="q", method="m", promise=hold.worst_case.promise(), bill=bill))
            self.charges[hold.id] = (self.charges[hold.id][0], bill.epsilon)

    @invariant()
    def every_total_is_the_worst_unit_s_and_within_the_budget(self):
        for name in ["dataset:a", "dataset:b", *PARTS]:
            assert self.ledger.spent(name) == PureLoss(self.spent(name))
            assert self.spent(name) <= 2

    @invariant()
    def replaying_the_chain_gives_the_same_books(self):
        self.ledger.verify()


TestParts = Parts.TestCase
TestParts.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


class Books(RuleBasedStateMachine):
    """A ledger beside the simplest thing that could be right: a dictionary of charges."""

    @initialize()
    def open(self):
        self.ledger = MemoryLedger()
        self.budgets = {"dataset:a": 1, "dataset:b": 2, "analyst:c": 1}
        for name, budget in self.budgets.items():
            self.ledger.open_account(name, epsilon(budget))
        self.ledger.open_account("window:*", epsilon(1))
        self.charges = {}
        self.open_holds = {}

    def spent(self, name):
        return sum((loss for accounts, loss in self.charges.values() if name in accounts), Fraction(0))

    @rule(accounts=names, cap=shares)
    def hold(self, accounts, cap):
        fits = all(self.spent(name) + cap <= self.budgets.get(name, 1) for name in accounts)
        try:
            hold = self.ledger.hold(sorted(accounts), PureLoss(cap), question="q")
        except BudgetExceeded:
            assert not fits
            return
        assert fits
        self.charges[hold.id] = (accounts, cap)
        self.open_holds[hold.id] = hold

    @rule(share=shares, data=st.data())
    def settle(self, share, data):
        if not self.open_holds:
            return
        hold = self.open_holds.pop(data.draw(st.sampled_from(sorted(self.open_holds))))
        bill = PureLoss(hold.worst_case.epsilon * share)
        self.ledger.settle(hold, Receipt(question="q", method="m", promise=hold.worst_case.promise(), bill=bill))
        self.charges[hold.id] = (self.charges[hold.id][0], bill.epsilon)

    @rule(data=st.data())
    def take_over(self, data):
        if self.open_holds:
            name = data.draw(st.sampled_from(sorted(self.open_holds)))
            self.open_holds[name] = self.ledger.take_over(self.open_holds[name])

    @rule(data=st.data())
    def write_off(self, data):
        if self.open_holds:
            self.ledger.write_off(self.open_holds.pop(data.draw(st.sampled_from(sorted(self.open_holds)))).id)

    @rule(name=st.sampled_from(["dataset:a", "dataset:b"]), more=st.integers(0, 2))
    def change_budget(self, name, more):
        self.budgets[name] += more
        self.ledger.change_budget(name, epsilon(self.budgets[name]))

    @invariant()
    def the_totals_are_the_sums_and_within_the_budgets(self):
        for name in ["dataset:a", "dataset:b", "analyst:c", "window:1", "window:2"]:
            assert self.ledger.spent(name) == PureLoss(self.spent(name))
            assert self.spent(name) <= self.budgets.get(name, 1)

    @invariant()
    def replaying_the_chain_gives_the_same_books(self):
        report = self.ledger.verify()
        assert report.open_holds == len(self.open_holds)


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@given(st.lists(st.tuples(names, shares, st.none() | shares), max_size=8))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_memory_and_file_decide_and_record_alike(tmp_path_factory, questions):
    def run(ledger):
        decisions = []
        with ledger:
            ledger.open_account("dataset:a", epsilon(1))
            ledger.open_account("dataset:b", epsilon(2))
            ledger.open_account("analyst:c", epsilon(1))
            ledger.open_account("window:*", epsilon(1))
            for accounts, cap, share in questions:
                try:
                    hold = ledger.hold(sorted(accounts), PureLoss(cap), question="q")
                except BudgetExceeded as refusal:
                    decisions.append(str(refusal))
                    continue
                if share is not None:
                    bill = PureLoss(cap * share)
                    receipt = Receipt(question="q", method="m", promise=hold.worst_case.promise(), bill=bill)
                    ledger.settle(hold, receipt)
            record = [(entry.kind, entry.charges, entry.spent, entry.accounts) for entry in ledger.history()]
            totals = {name: ledger.spent(name) for name in ledger.accounts()}
        return decisions, record, totals

    in_memory = run(MemoryLedger())
    in_file = run(open_ledger(tmp_path_factory.mktemp("ledger") / "a.ledger"))

    assert in_memory == in_file
    assert in_memory[1][0][0] is EntryKind.BEGIN
