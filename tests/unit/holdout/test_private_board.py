import pickle

import numpy as np
import pytest

from expost.core import BudgetExceeded, InvalidRequest, Outcome, PureLoss, epsilon
from expost.holdout import PrivateBoard
from expost.ledger import open_ledger
from expost.noise import SeededBits

LABELS = np.random.default_rng(1).random(40_000) < 0.5
TERMS = {"max_submissions": 20, "tolerance": 0.2, "failure_probability": 0.05}
ACCOUNT = "dataset:leaderboard"


def opened(**changes):
    return PrivateBoard(LABELS, **TERMS | {"budget": 2, "bits": SeededBits(1)} | changes)


def test_the_worst_case_is_held_and_what_was_not_used_comes_back():
    ledger = open_ledger(None)
    with opened(ledger=ledger, budget=epsilon(10)) as board:
        assert ledger.spent(ACCOUNT) == PureLoss(board.plan.guarantee.epsilon)
        board.submit(LABELS)

    assert ledger.spent(ACCOUNT) == PureLoss(board.plan.hit_epsilon) == board.receipt.bill
    assert board.receipt.ledger_entry is not None
    assert board.receipt.outcome is Outcome.CERTIFIED
    assert board.receipt.target.tolerance == board.plan.tolerance
    assert "1 submissions, 1 improvements" in board.receipt.question
    assert board.close() is board.receipt
    ledger.verify()


def test_a_board_that_is_never_closed_stays_charged():
    ledger = open_ledger(None)
    board = opened(ledger=ledger)
    board.submit(LABELS)

    assert ledger.spent(ACCOUNT) == PureLoss(board.plan.guarantee.epsilon)
    with pytest.raises(BudgetExceeded):
        opened(ledger=ledger)


def test_a_ledger_may_be_named_by_its_url_and_the_account_chosen(tmp_path):
    url = f"sqlite:///{tmp_path}/board.ledger"
    with opened(ledger=url, account="dataset:contest") as board:
        board.submit(~LABELS)

    assert open_ledger(url).spent("dataset:contest") == PureLoss(board.plan.threshold_epsilon)


def test_a_privacy_budget_decides_the_number_of_improvements():
    one = opened(budget=1).plan.hit_epsilon

    assert opened(budget=epsilon(float(one) * 1.01)).improvements_left == 1
    assert opened(budget=epsilon(100)).improvements_left > 1
    with pytest.raises(BudgetExceeded, match="pays for one answer"):
        opened(budget=epsilon(float(one) / 2))
    for wrong in (0, "many", True):
        with pytest.raises(InvalidRequest, match="budget"):
            opened(budget=wrong)


def test_a_closed_board_takes_no_submissions_and_pickles_are_refused():
    board = opened()
    with pytest.raises(TypeError, match="stay in its process"):
        pickle.dumps(board)
    board.close()

    with pytest.raises(InvalidRequest, match="open board"):
        board.submit(LABELS)


def test_a_submission_broken_off_ends_the_board_at_the_worst_case():
    def interrupted(truth, predicted):
        raise KeyboardInterrupt

    ledger = open_ledger(None)
    with opened(ledger=ledger, loss=interrupted) as board:
        with pytest.raises(KeyboardInterrupt):
            board.submit(LABELS)
        with pytest.raises(InvalidRequest, match="broken off"):
            board.submit(LABELS)

    assert ledger.spent(ACCOUNT) == PureLoss(board.plan.guarantee.epsilon)
