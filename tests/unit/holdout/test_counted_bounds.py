"""Bounds that count transcripts, against every transcript there is and against analysts who fish for the labels."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from expost.core import InvalidRequest
from expost.holdout import LadderBoard, ParameterFreeBoard, PrivateBoard, ReusableHoldout
from expost.holdout.holdout_plan import GRID, plan_holdout
from expost.holdout.thresholdout_mechanism import Thresholdout
from expost.noise import SeededBits


def given(truth, losses):
    """The submitter chooses the loss of every row: the most that any choice of predictions can do."""
    return losses


def transcripts(board, submissions, length):
    """All sequences of (loss shown, improved) that submissions of this length lead to, one step after the other."""
    reached = {((), 1.0, getattr(board, "_leader", np.zeros(0)).tobytes())}
    for _ in range(length):
        following = set()
        for path, shown, leader in reached:
            for losses in submissions:
                board._shown, board._leader = shown, np.frombuffer(leader)
                improved = board._judge_submission(losses)
                following.add(((*path, (board._shown, improved)), board._shown, board._leader.tobytes()))
        reached = following
    return {path for path, _, _ in reached}


def losses_of(rows, values):
    """Loss vectors: equal losses in fine steps, whose paired spread is zero, and all vectors of few values."""
    equal = [np.full(rows, value) for value in np.linspace(0, 0.999, 13)]
    return equal + [np.array(each, float) for each in itertools.product(values, repeat=rows)]


@pytest.mark.parametrize(("rows", "length"), [(2, 4), (3, 3), (4, 3)])
def test_a_parameter_free_board_has_no_more_transcripts_than_are_counted(rows, length):
    board = ParameterFreeBoard(np.zeros(rows), max_submissions=length, failure_probability=0.1, loss=given)
    found = transcripts(board, losses_of(rows, (0.0, 0.5, 1.0) if rows < 3 else (0.0, 1.0)), length)
    counts = Counter(sum(improved for _, improved in path) for path in found)

    for better, count in counts.items():
        assert count <= round(math.exp(board._log_histories(length, better)))
    assert all(a[0] >= b[0] for path in found for a, b in itertools.pairwise(path))
    # The count of strictly falling values, which this board does not have, is too small.
    assert counts[length] > math.comb(rows + 1, length)


@pytest.mark.parametrize("step", [Fraction(1, 2), Fraction(1, 3), 0.3, 0.6, 0.45, 0.26, 0.999])
def test_a_ladder_has_no_more_transcripts_than_are_counted(step):
    most, submissions = 4, [np.full(2, value) for value in np.linspace(0, 1, 24)]
    board = LadderBoard(np.zeros(2), max_submissions=most, failure_probability=0.1, step=step, loss=given)
    found = [transcripts(board, submissions, length) for length in range(most)]

    assert sum(map(len, found)) <= round(math.exp(board._log_histories(board.step)))
    values = {loss for path in found[-1] for loss, _ in path}
    assert len(values | {1.0}) <= math.floor(1 / board.step) + 2


@pytest.mark.parametrize("variant", ["analysed", "improved"])
def test_answers_of_a_holdout_are_the_guess_or_one_of_the_alphabet(variant):
    plan = plan_holdout(400_000, tolerance=0.3, failure_probability=0.05, max_queries=60, variant=variant)
    session = Thresholdout(plan).open(bits=SeededBits(1))
    totals = [0, plan.rows * GRID, plan.rows * GRID // 3, 1]
    values = set()
    for total, guess in itertools.product(totals, (Fraction(0), Fraction(1), Fraction(1, 3))):
        if not session.hits_left:
            break
        found = session.ask(total, guess=guess)
        if found is not None:
            values.add(found)

    assert values
    assert values <= {plan.answer_step * number for number in range(plan.alphabet)}


def test_the_private_board_shows_the_same_value_or_one_of_the_alphabet():
    labels = np.zeros(60_000)
    for seed in range(5):
        board = PrivateBoard(
            labels, max_submissions=40, tolerance=0.2, failure_probability=0.05, loss=given, bits=SeededBits(seed)
        )
        values = {float(board.plan.answer_step * number) for number in range(board.plan.alphabet)}
        before = board.shown
        for loss in np.linspace(0.95, 0.0, 12):
            if not board.improvements_left:
                break
            standing = board.submit(np.full(60_000, loss))
            assert standing.loss <= before
            assert standing.loss in values
            assert standing.improved or standing.loss == before
            before = standing.loss


def test_the_bounds_of_a_parameter_free_board_never_fall_while_it_is_used():
    board = ParameterFreeBoard(np.zeros(200), max_submissions=260, failure_probability=0.05, loss=given)
    errors = [board.submit(np.full(200, loss)).bound.error for loss in np.linspace(0.999, 0.001, 260)]

    assert board._improved > 201  # more improvements than there are values to show
    assert errors == sorted(errors)
    assert errors[-1] < 1


def coins(rows, seed):
    return np.random.default_rng(seed).integers(0, 2, rows)


def brier(truth, scores):
    return 0.5 * ((np.eye(2)[truth] - scores) ** 2).sum(1)


def bets(centre, lean):
    """Scores of two classes; their Brier loss is f = 1/4 + (centre - 1/2)^2 + lean^2 -+ lean, with labels that are coins."""
    return np.stack([centre + lean, centre - lean], axis=1)


def population(scores):
    """The expected Brier loss where labels are fair coins."""
    zero, one = brier(np.zeros(len(scores), int), scores), brier(np.ones(len(scores), int), scores)
    return float(((zero + one) / 2).mean())


def learned_labels(board, rows):
    """Improve row by row by less than a rounding: whether the shown value repeats tells one label each time."""
    shown = board.submit(bets(0.5 + math.sqrt(0.88 - 0.25), np.zeros(rows))).loss
    lean, signs, standings = 0.05, np.zeros(rows), []
    for row in range(rows):
        aim = round(shown * rows) - 0.5
        tilt = np.zeros(rows)
        tilt[row] = lean
        standings.append(board.submit(bets(0.5 + math.sqrt((aim - lean**2) / rows - 0.25), tilt)))
        signs[row] = 1 if standings[-1].loss < shown - 1e-9 else -1
        shown = standings[-1].loss
    return signs, standings


def test_an_analyst_who_learns_every_label_from_repeated_values_stays_within_the_bound():
    """The shown loss is then 0.0 and its population loss 0.5."""
    rows = 150
    for seed in range(5):
        labels = coins(rows, seed)
        board = ParameterFreeBoard(labels, max_submissions=2 * rows, failure_probability=0.05, loss=brier)
        signs, standings = learned_labels(board, rows)
        final = bets(0.5, 0.5 * signs)
        standing = board.submit(final)

        assert all(each.improved for each in standings)  # the adversary that always improves
        assert ((signs > 0) == (labels == 0)).mean() > 0.95
        assert abs(standing.loss - population(final)) > 0.4
        assert standing.bound.error >= abs(standing.loss - population(final))


def keep_the_winners(board, labels, rounds, seed):
    """Submit the leader with a random change; keep it where the board says that it is better."""
    rng, rows = np.random.default_rng(seed), len(labels)
    leader = rng.integers(0, 2, rows)
    board.submit(leader)
    standing = None
    for _ in range(rounds):
        tried = np.where(rng.random(rows) < 0.3, 1 - leader, leader)
        standing = board.submit(tried)
        leader = tried if standing.improved else leader
    return standing


@pytest.mark.parametrize("kind", [LadderBoard, ParameterFreeBoard])
def test_an_analyst_who_keeps_what_improves_stays_within_the_bound(kind):
    """Every population loss is one half; the seeds are fixed."""
    missed = 0
    for seed in range(40):
        labels = coins(500, seed)
        board = kind(labels, max_submissions=201, failure_probability=0.05)
        standing = keep_the_winners(board, labels, 200, 1000 + seed)
        missed += abs(standing.loss - 0.5) > standing.bound.error

    assert missed == 0


@pytest.mark.parametrize("variant", ["analysed", "improved"])
def test_an_analyst_who_asks_for_what_the_holdout_showed_stays_within_the_bound(variant):
    """Attributes are coins: every question that adds up the signs the holdout showed has the population mean 1/2."""
    rows = 300_000 if variant == "analysed" else 40_000
    rng = np.random.default_rng(5)
    table = rng.integers(0, 2, (rows, 12), dtype=np.int8)
    holdout = ReusableHoldout(
        np.zeros((4, 12)),
        table,
        tolerance=0.3,
        failure_probability=0.05,
        max_queries=40,
        variant=variant,
        bits=SeededBits(2),
    )
    signs = np.zeros(12)
    for column in range(12):
        if not holdout.hits_left:
            break
        # A guess far off makes the holdout answer: the most informative thing to ask for.
        answer = holdout.ask(lambda part, column=column: part[:, column], guess=0)
        assert abs(answer.value - 0.5) <= answer.bound.error
        signs[column] = 1 if answer.value > 0.5 else -1
    if holdout.hits_left and signs.any():
        votes = holdout.ask(lambda part: ((2 * part - 1) @ signs > 0) + 0.5 * ((2 * part - 1) @ signs == 0), guess=0)
        assert abs(votes.value - 0.5) <= votes.bound.error


@pytest.mark.parametrize("kind", [LadderBoard, ParameterFreeBoard])
def test_a_loss_of_another_shape_is_refused(kind):
    board = kind(np.zeros(6), max_submissions=3, failure_probability=0.05, loss=lambda truth, said: np.zeros((6, 1)))

    with pytest.raises(InvalidRequest, match="one value for each row"):
        board.submit(np.zeros(6))
