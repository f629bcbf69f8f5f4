import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.tree import DecisionTreeClassifier
from tests.forked import told_by_a_fork

from expost.core import BudgetExceeded, InvalidRequest, PureLoss, epsilon, zcdp
from expost.holdout import Origin, ReusableHoldout
from expost.ledger import open_ledger
from expost.noise import SeededBits

ROWS = 40_000
TRAIN = np.random.default_rng(1).random((ROWS, 3))
HOLDOUT = np.random.default_rng(2).random((ROWS, 3))
COMMON = {"tolerance": 0.2, "failure_probability": 0.05, "max_queries": 30, "budget": 2}


def opened(variant="improved", **changes):
    arguments = COMMON | {"variant": variant, "bits": SeededBits(1)} | changes
    return ReusableHoldout(TRAIN, HOLDOUT, **arguments)


def honest(rows):
    return rows[:, 0]


def overfit(rows):
    """1 on every training row, 0 on every other."""
    return np.isin(rows[:, 0], TRAIN[:, 0]).astype(float)


@pytest.mark.parametrize("variant", ["analysed", "improved"])
def test_agreement_answers_from_training_and_overfitting_from_the_holdout(variant):
    holdout = opened(variant)

    agrees, overfits = holdout.ask(honest), holdout.ask(overfit)

    assert agrees.origin is Origin.TRAINING
    assert agrees.value == pytest.approx(TRAIN[:, 0].mean(), abs=1e-5)
    assert overfits.origin is Origin.HOLDOUT
    assert overfits.value < 0.1
    assert (agrees.hits_left, overfits.hits_left, overfits.queries_left) == (2, 1, 28)
    assert agrees.interval[0] <= 0.5 <= agrees.interval[1]
    assert overfits.bound.error <= 0.2


def test_nothing_is_said_once_the_budget_is_spent():
    holdout = opened()
    holdout.ask(overfit)
    holdout.ask(overfit)

    with pytest.raises(BudgetExceeded, match="All answers from the holdout have been used"):
        holdout.ask(honest)


def test_nothing_is_said_after_the_last_question():
    holdout = opened(max_queries=2)
    holdout.ask(honest)
    holdout.ask(honest)

    with pytest.raises(BudgetExceeded, match="All questions have been used"):
        holdout.ask(honest)


def test_several_questions_at_once_stop_at_the_budget():
    def columns(rows):
        member = overfit(rows)
        return np.stack([rows[:, 1], member, rows[:, 2], member, rows[:, 0]], axis=1)

    answers = opened().ask_many(columns)

    assert [answer.origin.value for answer in answers] == ["training", "holdout", "training", "holdout"]


def test_a_guess_takes_the_place_of_the_training_mean():
    holdout = opened()

    assert holdout.ask(honest, guess=0.5).origin is Origin.TRAINING
    assert holdout.ask(honest, guess=0.95).origin is Origin.HOLDOUT
    for nonsense in (-0.1, 1.1, float("nan"), "much"):
        with pytest.raises(InvalidRequest, match="guess between 0 and 1"):
            holdout.ask(honest, guess=nonsense)


def test_the_bound_in_force_grows_only_with_answers_from_the_holdout():
    holdout = opened(budget=3)
    first, second = holdout.ask(honest), holdout.ask(honest)
    holdout.ask(overfit)
    third = holdout.ask(honest)

    assert third.bound.error - second.bound.error > second.bound.error - first.bound.error >= 0


def test_the_worst_case_is_held_and_what_was_not_used_comes_back():
    ledger = open_ledger(None)
    budget = epsilon(10)
    with opened(ledger=ledger, budget=budget) as holdout:
        worst = holdout.plan.guarantee.epsilon
        assert ledger.spent("dataset:holdout") == PureLoss(worst)
        holdout.ask(honest)
        holdout.ask(overfit)

    assert ledger.spent("dataset:holdout") == PureLoss(holdout.plan.hit_epsilon)
    assert holdout.receipt.bill == holdout.loss
    assert holdout.receipt.ledger_entry is not None
    assert holdout.receipt.simulation
    assert "1 answered from the holdout" in holdout.receipt.question
    ledger.verify()


def test_a_session_that_is_never_closed_stays_charged():
    ledger = open_ledger(None)
    holdout = opened(ledger=ledger)
    holdout.ask(honest)

    assert ledger.spent("dataset:holdout") == PureLoss(holdout.plan.guarantee.epsilon)
    with pytest.raises(BudgetExceeded):
        opened(ledger=ledger)


def test_a_ledger_may_be_named_by_its_url(tmp_path):
    url = f"sqlite:///{tmp_path}/holdout.ledger"
    with opened(ledger=url) as holdout:
        holdout.ask(honest)

    assert open_ledger(url).spent("dataset:holdout") == PureLoss(holdout.plan.threshold_epsilon)


def picky(rows):
    """Fails wherever the first holdout row is."""
    if (rows[:, 0] == HOLDOUT[0, 0]).any():
        raise ValueError(rows[0, 0])
    return rows[:, 0]


@pytest.mark.parametrize("variant", ["analysed", "improved"])
def test_a_question_that_fails_on_one_holdout_row_is_answered_like_on_its_neighbour(variant):
    without = np.vstack([[[0.0, 0.5, 0.5]], HOLDOUT[1:]])  # the row replaced by one whose value is 0
    arguments = COMMON | {"variant": variant}
    seen = []
    for rows in (HOLDOUT, without):
        with ReusableHoldout(TRAIN, rows, **arguments, bits=SeededBits(3)) as holdout:
            answers = [holdout.ask(picky), holdout.ask(picky, guess=0.95), *holdout.ask_many(picky)]
        seen.append((answers, holdout.receipt.bill, repr(holdout)))

    assert seen[0] == seen[1]
    assert [answer.origin.value for answer in seen[0][0]] == ["training", "holdout", "training"]


def test_a_question_broken_off_on_the_holdout_ends_the_session_at_the_worst_case():
    def interrupted(rows):
        if rows[0, 0] == HOLDOUT[0, 0]:
            raise KeyboardInterrupt
        return rows[:, 0]

    ledger = open_ledger(None)
    with opened(ledger=ledger) as holdout:
        with pytest.raises(KeyboardInterrupt):
            holdout.ask(interrupted)
        with pytest.raises(InvalidRequest, match="broken off"):
            holdout.ask(honest)

    assert ledger.spent("dataset:holdout") == PureLoss(holdout.plan.guarantee.epsilon)


def test_a_question_that_works_nowhere_costs_nothing_beside_a_guess():
    holdout = opened()

    with pytest.raises(IndexError):
        holdout.ask(lambda rows: rows[:, 7], guess=0.5)
    with pytest.raises(InvalidRequest, match="one value per row"):
        holdout.ask(lambda rows: rows, guess=0.5)

    assert holdout.loss == PureLoss(0)
    assert holdout.queries_left == 30


def test_a_question_that_fails_on_training_rows_costs_nothing():
    holdout = opened()

    with pytest.raises(ZeroDivisionError):
        holdout.ask(lambda rows: 1 / 0)

    assert holdout.loss == PureLoss(0)
    assert holdout.queries_left == 30


def test_a_privacy_budget_decides_the_number_of_answers():
    one = opened(budget=1).plan.hit_epsilon
    plenty = opened(budget=epsilon(100)).plan
    tight = opened(budget=epsilon(float(one) * 1.01)).plan

    assert tight.max_hits == 1 < plenty.max_hits
    assert tight.guarantee.epsilon <= one * 102 / 100
    with pytest.raises(BudgetExceeded, match="pays for one answer"):
        opened(budget=epsilon(float(one) / 2))
    with pytest.raises(InvalidRequest, match="pure privacy budget"):
        opened(budget=zcdp(1))


def test_copies_share_the_budget_and_pickles_are_refused():
    holdout = opened()
    twin = copy.deepcopy(holdout)
    twin.ask(overfit)

    assert holdout.hits_left == 1
    with pytest.raises(TypeError, match="spend its budget again"):
        pickle.dumps(holdout)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_gets_no_answers():
    holdout = opened()

    assert "belongs to another process" in told_by_a_fork(lambda: str(holdout.ask(honest)))


def test_a_closed_session_is_closed():
    holdout = opened()
    first = holdout.close()

    assert holdout.close() is first
    with pytest.raises(InvalidRequest, match="because it was closed"):
        holdout.ask(honest)


def test_nothing_exact_is_shown():
    holdout = opened()

    assert "answers and 30 questions left" in repr(holdout)
    assert not any(isinstance(value, int | float) for value in vars(holdout._session).values() if value not in (0, 1))


def test_an_analyst_who_chases_the_holdout_is_told_the_truth():
    """Labels are coins. The analyst keeps features that agree with them on training *and* on the answers given."""
    rng = np.random.default_rng(5)
    rows, features = 20_000, 300
    data = rng.random((2, rows, features)) < 0.5
    labels = rng.random((2, rows)) < 0.5
    train, holdout = ((data[i], labels[i]) for i in (0, 1))
    plain = [(train[0] == train[1][:, None]).mean(0) - 0.5, (holdout[0] == holdout[1][:, None]).mean(0) - 0.5]
    naive = np.sign(plain[0]) == np.sign(plain[1])
    signs = np.sign(plain[0])

    def vote(kept):
        return lambda x, y: ((np.where(x[:, kept], 1, -1) * signs[kept]).sum(1) > 0) == y

    with ReusableHoldout(
        train,
        holdout,
        tolerance=0.1,
        failure_probability=0.05,
        max_queries=features + 1,
        variant="improved",
        bits=SeededBits(6),
    ) as reusable:
        answers = reusable.ask_many(lambda x, y: x == y[:, None])
        seen = np.array([float(answer) for answer in answers]) - 0.5
        kept = np.sign(plain[0])[: len(seen)] == np.sign(seen)
        final = reusable.ask(vote(np.flatnonzero(kept)))

    exposed = vote(np.flatnonzero(naive))(*holdout).mean()
    assert exposed > 0.52  # a plain holdout reports skill where there is none
    assert abs(final.value - 0.5) <= final.bound.error


def test_what_is_no_question_or_no_model_is_refused_for_free():
    holdout = opened()

    with pytest.raises(InvalidRequest, match="function of rows"):
        holdout.ask(5)
    with pytest.raises(InvalidRequest, match="fitted estimator"):
        holdout.score(None)

    class Model:
        def predict(self, rows):
            return rows[:, 0]

    with pytest.raises(InvalidRequest, match="to be \\(X, y\\)"):
        holdout.score(Model())
    assert holdout.queries_left == 30
    assert holdout.loss == PureLoss(0)


def test_the_receipt_says_what_was_asked_of_the_answers():
    with opened() as holdout:
        holdout.ask(honest)

    assert str(holdout.receipt.target) == "absolute error <= 0.2 with probability 0.95"
    assert holdout.receipt.achieved <= 0.2


def sample(rows, seed):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, 4))
    return features, (features[:, 0] + rng.normal(size=rows) > 0).astype(int)


def opened_for_scoring(**changes):
    arguments = {"tolerance": 0.2, "failure_probability": 0.05, "max_queries": 40, "budget": 4, "variant": "improved"}
    return ReusableHoldout(sample(2000, 1), sample(30_000, 2), bits=SeededBits(1), **(arguments | changes))


def test_a_grid_search_uses_the_holdout_and_picks_the_better_model():
    holdout = opened_for_scoring()
    search = GridSearchCV(LogisticRegression(), {"C": [1e-6, 1.0]}, scoring=holdout.scorer(), cv=2)

    search.fit(*sample(1000, 3))

    assert holdout.queries_left == 40 - 4
    assert 0.6 < search.best_score_ < 0.85


def test_an_overfitted_fold_is_corrected():
    holdout = opened_for_scoring()
    features, labels = sample(400, 4)
    tree = DecisionTreeClassifier().fit(features, labels)

    score = holdout.scorer()(tree, features, labels)

    assert tree.score(features, labels) == 1.0
    assert score < 0.8
    assert holdout.hits_left == 3


def test_cloning_a_search_keeps_one_budget():
    holdout = opened_for_scoring()
    search = clone(GridSearchCV(LogisticRegression(), {"C": [1.0]}, scoring=holdout.scorer(), cv=2))
    search.fit(*sample(500, 3))
    cross_val_score(LogisticRegression(), *sample(500, 5), scoring=holdout.scorer(), cv=2)

    assert holdout.queries_left == 40 - 4


def test_parallel_workers_are_refused():
    with pytest.raises(TypeError, match="n_jobs=1"):
        pickle.dumps(opened_for_scoring().scorer())


def test_a_spent_budget_stops_the_search():
    holdout = opened_for_scoring(max_queries=3)

    with pytest.raises(BudgetExceeded):
        cross_val_score(LogisticRegression(), *sample(500, 5), scoring=holdout.scorer(), cv=5, error_score="raise")


def test_any_row_metric_may_be_used():
    features, labels = sample(1000, 6)
    model = LogisticRegression().fit(features, labels)

    def one_minus_error(truth, predicted):
        return 1 - np.abs(truth - predicted)

    assert opened_for_scoring().scorer(one_minus_error)(model, features, labels) == pytest.approx(
        model.score(features, labels), abs=1e-9
    )
