"""The order of one answer: hold, measure, climb, settle, release."""

import warnings
from typing import Any

import pytest

from expost.answer import answer
from expost.core import (
    BudgetExceeded,
    EngineFailed,
    InvalidRequest,
    Outcome,
    PlanContext,
    PureGuarantee,
    PureLoss,
    Receipt,
    Release,
    TargetNotMet,
    epsilon,
)
from expost.ledger import open_ledger
from expost.noise import SeededBits

ACCOUNT = "dataset:people"
SECRET = "row 4711"


class Question:
    """A query and its plan, which records what happened and in which order."""

    question = "how many"
    worst_case = PureLoss(0.5)

    def __init__(self, ledger, *, outcome=Outcome.CERTIFIED, broken: str | None = None) -> None:
        self.ledger, self.outcome, self.broken = ledger, outcome, broken
        self.spent_at: dict[str, Any] = {}

    def plan(self, dataset: Any, context: PlanContext) -> "Question":
        self._step("plan")
        return self

    def measure(self, dataset: Any) -> Any:
        self._step("measure")

    def climb(self, sealed: Any, bits: Any) -> Release:
        self._step("climb")
        receipt = Receipt(
            question=self.question,
            method="m",
            promise=PureGuarantee(0.5),
            bill=PureLoss(0.125),
            outcome=self.outcome,
        )
        return Release(41, receipt)

    def _step(self, name: str) -> None:
        self.spent_at[name] = self.ledger.spent(ACCOUNT)
        if self.broken == name:
            raise ZeroDivisionError(SECRET)


@pytest.fixture
def ledger():
    ledger = open_ledger(None)
    ledger.open_account(ACCOUNT, epsilon(1))
    return ledger


def ask(ledger, question: Question, **options: Any) -> Release:
    return answer(question, None, ledger=ledger, accounts=[ACCOUNT], **options)


def test_the_worst_case_is_charged_before_the_data_is_touched(ledger) -> None:
    question = Question(ledger)

    ask(ledger, question)

    assert question.spent_at == {"plan": PureLoss(0), "measure": PureLoss(0.5), "climb": PureLoss(0.5)}


def test_the_realised_bill_is_charged_when_the_answer_leaves(ledger) -> None:
    release = ask(ledger, Question(ledger))

    assert ledger.spent(ACCOUNT) == PureLoss(0.125)
    assert ledger.receipt(release.receipt.ledger_entry).bill == PureLoss(0.125)


@pytest.mark.parametrize("step", ["measure", "climb"])
def test_a_run_that_breaks_stays_charged_and_says_nothing_of_the_data(ledger, step: str) -> None:
    with pytest.raises(EngineFailed) as caught:
        ask(ledger, Question(ledger, broken=step))

    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert ledger.spent(ACCOUNT) == PureLoss(0.5)


def test_a_warning_about_the_data_does_not_travel(ledger, monkeypatch) -> None:
    question = Question(ledger)
    monkeypatch.setattr(question, "measure", lambda dataset: warnings.warn(SECRET, stacklevel=1))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ask(ledger, question)

    assert not caught


def test_an_interrupted_run_stays_charged(ledger, monkeypatch) -> None:
    question = Question(ledger)
    monkeypatch.setattr(question, "measure", lambda dataset: (_ for _ in ()).throw(KeyboardInterrupt(SECRET)))

    with pytest.raises(KeyboardInterrupt, match=r"epsilon 0\.5 stays charged") as stopped:
        ask(ledger, question)

    assert stopped.value.__context__ is None  # whose traceback has seen rows
    assert ledger.spent(ACCOUNT) == PureLoss(0.5)


def test_a_senseless_request_costs_nothing(ledger) -> None:
    with pytest.raises(ZeroDivisionError):
        ask(ledger, Question(ledger, broken="plan"))

    assert ledger.spent(ACCOUNT) == PureLoss(0)


def test_a_worst_case_beyond_the_budget_is_refused_before_the_data_is_touched(ledger) -> None:
    question = Question(ledger)
    question.worst_case = PureLoss(2)

    with pytest.raises(BudgetExceeded):
        ask(ledger, question)

    assert list(question.spent_at) == ["plan"]
    assert ledger.spent(ACCOUNT) == PureLoss(0)


def test_a_missed_target_raises_with_the_release_it_paid_for(ledger) -> None:
    with pytest.raises(TargetNotMet) as caught:
        ask(ledger, Question(ledger, outcome=Outcome.NOT_MET))

    assert caught.value.release.value == 41
    assert caught.value.receipt.ledger_entry is not None
    assert ledger.spent(ACCOUNT) == PureLoss(0.125)


def test_a_seed_is_refused_unless_it_is_called_a_simulation(ledger) -> None:
    with pytest.raises(InvalidRequest, match="cryptographic"):
        ask(ledger, Question(ledger), bits=SeededBits(1))
    with pytest.raises(InvalidRequest, match="seeded source"):
        ask(ledger, Question(ledger), simulation=True)

    release = ask(ledger, Question(ledger), bits=SeededBits(1), simulation=True)

    assert "NOT PRIVATE" in release.receipt.meaning
    assert ledger.receipt(release.receipt.ledger_entry).simulation


def test_a_request_id_runs_once(ledger) -> None:
    ask(ledger, Question(ledger), request_id="a")

    with pytest.raises(InvalidRequest, match="new request id"):
        ask(ledger, Question(ledger), request_id="a")

    assert ledger.spent(ACCOUNT) == PureLoss(0.125)
