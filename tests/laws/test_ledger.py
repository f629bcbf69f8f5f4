"""The books against a model: whatever is asked in whatever order, the totals are the sums."""

from fractions import Fraction

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from expost.core import BudgetExceeded, PureLoss, Receipt, epsilon
from expost.ledger import Kind, MemoryLedger, open_ledger

shares = st.fractions(min_value=Fraction(1, 1000), max_value=1, max_denominator=1000)
names = st.sets(st.sampled_from(["dataset:a", "dataset:b", "analyst:c", "window:1", "window:2"]), min_size=1)


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
    assert in_memory[1][0][0] is Kind.BEGIN
