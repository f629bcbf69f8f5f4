import copy
import itertools
import math
import pickle

import numpy as np
import pytest

from expost.core import BudgetExceeded, InvalidRequest, Outcome, PureLoss, epsilon
from expost.holdout import LadderBoard, ParameterFreeBoard, PrivateBoard
from expost.holdout.generalization import log_binomial
from expost.holdout.holdout_plan import GRID
from expost.ledger import open_ledger
from expost.noise import SeededBits

ROWS = 4000
LABELS = np.random.default_rng(1).random(ROWS) < 0.5


def flipped(share, seed=2):
    """Predictions that are wrong on this share of the rows."""
    wrong = np.random.default_rng(seed).random(ROWS) < share
    return LABELS ^ wrong


def boards():
    common = {"max_submissions": 200, "failure_probability": 0.05}
    return [LadderBoard(LABELS, **common), ParameterFreeBoard(LABELS, **common)]


@pytest.mark.parametrize("board", boards(), ids=["ladder", "parameter-free"])
def test_only_clear_improvement_shows(board):
    first = board.submit(flipped(0.4))
    same = board.submit(flipped(0.4, seed=2))
    better = board.submit(flipped(0.1))

    assert first.improved and better.improved and not same.improved
    assert first.loss == pytest.approx(0.4, abs=0.04)
    assert same.loss == first.loss
    assert better.loss == pytest.approx(0.1, abs=0.04)
    assert better.submissions_left == 197


def test_the_histories_of_a_falling_value_are_counted():
    """Non-increasing sequences of length k over A + 1 values."""
    for submissions, levels in ((3, 2), (4, 3)):
        exact = sum(
            all(a >= b for a, b in itertools.pairwise(path))
            for path in itertools.product(range(levels + 1), repeat=submissions)
        )

        assert math.exp(log_binomial(submissions + levels, levels)) == pytest.approx(exact)


class PlainBoard(LadderBoard):
    """Shows every loss exactly."""

    def _judge_submission(self, predictions):
        self._shown = self._mean_loss(predictions)
        return True


def boosting(board, rounds, seed=3):
    rng = np.random.default_rng(seed)
    votes = np.zeros(ROWS)
    for _ in range(rounds):
        guess = rng.random(ROWS) < 0.5
        shown = board.submit(guess)
        if shown.improved and shown.loss < 0.5:
            votes += np.where(guess, 1, -1)
    return ((votes > 0) != LABELS).mean()


def test_chasing_the_board_finds_no_skill_on_the_ladder_but_does_on_a_plain_board():
    common = {"max_submissions": 400, "failure_probability": 0.05}

    assert boosting(PlainBoard(LABELS, **common), 400) < 0.45
    ladder = LadderBoard(LABELS, **common)
    assert abs(boosting(ladder, 400) - 0.5) < 0.03
    assert abs(ladder.shown - 0.5) <= ladder._current_bound().error


def test_the_step_is_the_one_with_the_smallest_bound():
    board = LadderBoard(LABELS, max_submissions=100, failure_probability=0.05)

    assert all(board._error_at(board.step) <= board._error_at(other) for other in (board.step / 2, board.step * 3 / 2))
    with pytest.raises(InvalidRequest):
        LadderBoard(LABELS, max_submissions=100, failure_probability=0.05, step=1)


def test_the_parameter_free_bound_grows_with_improvements():
    board = ParameterFreeBoard(LABELS, max_submissions=100, failure_probability=0.05)
    standings = [board.submit(flipped(share)) for share in (0.5, 0.4, 0.3, 0.3)]

    errors = [standing.bound.error for standing in standings]
    assert errors == sorted(errors)


def test_the_private_board_bills_improvements_only():
    labels = np.random.default_rng(1).random(40_000) < 0.5
    rng = np.random.default_rng(2)
    board = PrivateBoard(
        labels,
        max_submissions=20,
        tolerance=0.2,
        failure_probability=0.05,
        budget=2,
        bits=SeededBits(1),
    )
    first = board.submit(labels ^ (rng.random(40_000) < 0.4))
    worse = board.submit(labels ^ (rng.random(40_000) < 0.6))

    assert first.improved and not worse.improved
    assert first.loss == worse.loss == pytest.approx(0.4, abs=first.bound.error)
    assert board.loss == PureLoss(board.plan.hit_epsilon + board.plan.threshold_epsilon)

    last = board.submit(labels)
    assert last.improved
    assert last.loss == pytest.approx(0.0, abs=0.05)
    with pytest.raises(BudgetExceeded, match="improvements left"):
        board.submit(labels)


def test_boards_end_and_refuse_nonsense():
    board = LadderBoard(LABELS, max_submissions=1, failure_probability=0.05)
    with pytest.raises(InvalidRequest, match="one prediction for each label"):
        board.submit(LABELS[:-1])
    board.submit(LABELS)

    with pytest.raises(BudgetExceeded, match="submissions left"):
        board.submit(LABELS)
    with pytest.raises(InvalidRequest, match="labels"):
        LadderBoard([], max_submissions=1, failure_probability=0.05)


def test_any_row_loss_in_the_unit_interval_counts():
    board = LadderBoard(
        np.linspace(0, 1, 1000),
        max_submissions=5,
        failure_probability=0.05,
        step=0.01,
        loss=lambda truth, predicted: np.abs(truth - predicted),
    )

    assert board.submit(np.full(1000, 0.5)).loss == pytest.approx(0.25)


def private_board(labels, loss):
    return PrivateBoard(
        labels, max_submissions=5, tolerance=0.2, failure_probability=0.05, loss=loss, bits=SeededBits(1)
    )


def test_a_loss_that_fails_on_one_label_is_the_worst_there_and_says_nothing():
    def picky(truth, predicted):
        if (truth == 7).any():
            raise ValueError(truth)
        return truth != predicted

    labels = np.arange(40_000) % 2
    neighbour = labels.copy()
    neighbour[123] = 7
    predictions = np.ones(40_000)
    shown = [private_board(rows, picky).submit(predictions) for rows in (labels, neighbour)]

    assert shown[0] == shown[1]
    assert (
        private_board(neighbour, picky)._measure_gain(predictions)
        == private_board(labels, picky)._measure_gain(predictions) - GRID
    )


@pytest.mark.parametrize("kind", [LadderBoard, ParameterFreeBoard])
def test_losses_that_are_no_numbers_do_not_climb_a_board(kind):
    board = kind(LABELS, max_submissions=5, failure_probability=0.05, loss=lambda truth, predicted: predicted * np.nan)

    assert board.submit(np.ones(ROWS)).loss == 1.0


def test_losses_that_are_no_numbers_do_not_climb_the_private_board():
    board = private_board(np.arange(40_000) % 2, lambda truth, predicted: predicted * np.nan)

    assert board.submit(np.ones(40_000)).loss == 1.0


def test_predictions_of_another_shape_are_refused_before_they_are_compared():
    board = private_board(np.arange(40_000) % 2, None)

    for shape in ((40_000, 1), (40_000, 40_000), ()):
        with pytest.raises(InvalidRequest, match="one prediction for each label"):
            board.submit(np.broadcast_to(1, shape))


def test_a_copy_of_a_board_counts_with_it_and_a_fork_does_not_submit(monkeypatch):
    board = LadderBoard([1, 0] * 500, max_submissions=2, failure_probability=0.05)

    for twin in (copy.copy(board), copy.deepcopy(board)):
        twin.submit([1, 1] * 500)
    assert board.submissions_left == 0
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(board)
    monkeypatch.setattr("expost.core.single_owner.os.getpid", lambda: -1)
    with pytest.raises(InvalidRequest, match="belongs to another process"):
        board.submit([1, 1] * 500)


PRIVATE_LABELS = np.random.default_rng(1).random(40_000) < 0.5
TERMS = {"max_submissions": 20, "tolerance": 0.2, "failure_probability": 0.05}
ACCOUNT = "dataset:leaderboard"


def opened(**changes):
    return PrivateBoard(PRIVATE_LABELS, **TERMS | {"budget": 2, "bits": SeededBits(1)} | changes)


def test_the_worst_case_is_held_and_what_was_not_used_comes_back():
    ledger = open_ledger(None)
    with opened(ledger=ledger, budget=epsilon(10)) as board:
        assert ledger.spent(ACCOUNT) == PureLoss(board.plan.guarantee.epsilon)
        board.submit(PRIVATE_LABELS)

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
    board.submit(PRIVATE_LABELS)

    assert ledger.spent(ACCOUNT) == PureLoss(board.plan.guarantee.epsilon)
    with pytest.raises(BudgetExceeded):
        opened(ledger=ledger)


def test_a_ledger_may_be_named_by_its_url_and_the_account_chosen(tmp_path):
    url = f"sqlite:///{tmp_path}/board.ledger"
    with opened(ledger=url, account="dataset:contest") as board:
        board.submit(~PRIVATE_LABELS)

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
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(board)
    board.close()

    with pytest.raises(InvalidRequest, match="because it was closed"):
        board.submit(PRIVATE_LABELS)


def test_a_submission_broken_off_ends_the_board_at_the_worst_case():
    def interrupted(truth, predicted):
        raise KeyboardInterrupt

    ledger = open_ledger(None)
    with opened(ledger=ledger, loss=interrupted) as board:
        with pytest.raises(KeyboardInterrupt):
            board.submit(PRIVATE_LABELS)
        with pytest.raises(InvalidRequest, match="broken off"):
            board.submit(PRIVATE_LABELS)

    assert ledger.spent(ACCOUNT) == PureLoss(board.plan.guarantee.epsilon)
