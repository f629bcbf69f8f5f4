import copy
import pickle
import threading
from fractions import Fraction

import numpy as np
import pytest
from tests.forked import told_by_a_fork

from expost.core import Adjacency, BudgetExceeded, InvalidRequest, PureLoss, Release, Unit, epsilon
from expost.holdout.max_information import chance_of_overfitting, max_information_of_privacy
from expost.ledger import Protected, open_ledger
from expost.noise import SeededBits
from expost.stats.hypothesis import AdaptiveTester, binomial_power, binomial_test
from expost.stats.hypothesis.adaptive_tester import level_after_answers, level_after_decisions


def test_the_correction_after_answers_is_paid_for_by_max_information():
    corrected = level_after_answers(0.05, epsilon=0.02, rows=5000)
    chances = [
        chance_of_overfitting(
            max_information_of_privacy(0.02, 5000, failure_probability=beta), corrected, failure_probability=beta
        )
        for beta in 0.05 * 2.0 ** -np.arange(1, 20)
    ]

    assert min(chances) == pytest.approx(0.05, rel=1e-9)


def test_the_levels_of_all_conversations_add_up_to_the_level():
    """One test after each possible series of decisions: together they may reject with the level of one."""
    from math import comb

    for done in (0, 1, 5, 12):
        spent = sum(comb(done, r) * level_after_decisions(0.05, done=done, rejected=r) for r in range(done + 1))

        assert spent <= 0.05


def test_tests_that_do_not_reject_are_free():
    tester = AdaptiveTester(200, max_tests=10)
    sample = np.arange(200) % 2 == 0

    findings = [
        tester.run(lambda e: binomial_test(sample, 0.5, epsilon=e, bits=SeededBits(1)), epsilon=0.5) for _ in range(4)
    ]

    assert not any(finding.rejected or finding.verdict for finding in findings)
    assert {finding.corrected_level for finding in findings[1:]} == {tester.next_level} == {0.00125}
    assert tester.spent == PureLoss(2)


def test_showing_verdicts_lowers_the_next_level():
    tester = AdaptiveTester(200, max_tests=10, shows="verdicts")
    sample = np.arange(200) % 2 == 0

    finding = tester.run(lambda e: binomial_test(sample, 0.5, epsilon=e, bits=SeededBits(1)), epsilon=0.05)

    assert finding.verdict is not None
    assert finding.corrected_level == 0.005
    assert tester.next_level < 0.005


def test_an_analyst_who_chases_the_sample_does_not_get_more_false_rejections():
    """No column is related to anything; the analyst votes with the columns that looked good and tests the vote."""
    rng = np.random.default_rng(1)
    false, naive = [], []
    for run in range(40):
        columns = rng.random((400, 12)) < 0.5
        tester = AdaptiveTester(400, max_tests=12, level=0.2)
        votes, rejected = np.zeros(400), []
        for column in range(11):
            sample = columns[:, column]
            bits = SeededBits(run * 100 + column)
            finding = tester.run(lambda e, s=sample, b=bits: binomial_test(s, 0.5, epsilon=e, bits=b), epsilon=1)
            votes += np.where(sample, 1, -1) * (1 if finding.rejected else 0.0)
            rejected.append(finding.rejected)
        false.append(any(rejected))
        means = columns.mean(0)
        vote = (np.where(columns, 1, -1) * np.sign(means - 0.5)).sum(1) > 0
        naive.append(binomial_test(vote, 0.5, epsilon=1, bits=SeededBits(run)).value.rejects(0.05))

    assert np.mean(false) <= 0.2 + 3 * np.sqrt(0.16 / 40)
    assert np.mean(naive) > 0.5  # the same sample without the correction misleads


def test_a_series_ends():
    tester = AdaptiveTester(10, max_tests=1)
    tester.run(lambda e: binomial_test([1, 0], 0.5, epsilon=e), epsilon=1)

    with pytest.raises(BudgetExceeded, match="tests left"):
        tester.run(lambda e: binomial_test([1, 0], 0.5, epsilon=e), epsilon=1)


def test_a_test_that_costs_more_than_it_was_given_is_refused_and_counted():
    tester = AdaptiveTester(10, max_tests=5)

    with pytest.raises(InvalidRequest, match="costs at most"):
        tester.run(lambda e: binomial_test([1, 0], 0.5, epsilon=2 * e), epsilon=1)
    assert tester.spent == PureLoss(1)


def test_the_ledger_is_charged_before_a_test_runs():
    ledger = open_ledger(None)
    ledger.open_account("dataset:x", epsilon(1))
    tester = AdaptiveTester(10, max_tests=5, ledger=ledger, accounts=["dataset:x"])

    def failing(_: Fraction) -> Release:
        assert ledger.spent("dataset:x") == PureLoss(0.75)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        tester.run(failing, epsilon=0.75)
    with pytest.raises(BudgetExceeded):
        tester.run(lambda e: binomial_test([1, 0], 0.5, epsilon=e), epsilon=0.75)
    tester.run(lambda e: binomial_test([1, 0], 0.5, epsilon=e), epsilon=0.25)
    assert ledger.remaining("dataset:x") == PureLoss(0)


def test_the_number_of_tests_left_grows_with_the_rows():
    def left(rows):
        return AdaptiveTester(rows, max_tests=200).tests_left(
            lambda level: binomial_power(rows, 0.5, 0.55, epsilon=0.2, level=level), epsilon=0.2
        )

    assert left(300) == 0
    assert 0 < left(3000) < left(6000)


def test_nonsense_is_refused():
    with pytest.raises(InvalidRequest):
        AdaptiveTester(0, max_tests=1)
    with pytest.raises(InvalidRequest):
        AdaptiveTester(1, max_tests=1, shows="all")
    with pytest.raises(InvalidRequest):
        AdaptiveTester(1, max_tests=1).most_tests(lambda e, level: 1.0, epsilons=[])


def test_what_is_no_verdict_is_refused():
    with pytest.raises(InvalidRequest, match="release of a verdict"):
        AdaptiveTester(100, max_tests=3).run(lambda epsilon: 3, epsilon=0.1)


def series(accounts=("dataset:people",), before=None):
    ledger = open_ledger(None)
    for name in ("dataset:people", "dataset:others", "analyst:ann"):
        ledger.open_account(name, epsilon(10))
    if before is not None:
        ledger.hold(["dataset:people"], PureLoss(0.125), question="count", protected=Protected(*before))
    return ledger, AdaptiveTester(10, max_tests=5, ledger=ledger, accounts=accounts)


@pytest.mark.parametrize(
    "before", [(Adjacency.REPLACE_ONE, Unit.of("id")), (Adjacency.ADD_REMOVE, Unit.row())], ids=["unit", "neighbours"]
)
@pytest.mark.parametrize("accounts", [["dataset:people"], ["analyst:ann", " dataset:people"]])
def test_an_account_about_somebody_else_refuses_a_test_before_it_runs_or_counts(before, accounts):
    ledger, tester = series(accounts, ("dataset:people", *before))

    with pytest.raises(InvalidRequest, match="as in the account so far"):
        tester.run(lambda _: pytest.fail("it ran"), epsilon=1)
    assert ledger.spent("dataset:people") == PureLoss(0.125)
    assert tester.spent == PureLoss(0)


def test_the_first_test_of_a_series_says_whom_the_account_is_about():
    ledger, tester = series(["dataset:people", "analyst:ann"])
    tester.run(lambda e: binomial_test([1, 0], 0.5, epsilon=e), epsilon=1)

    assert ledger.check_protected(Protected("dataset:people", Adjacency.REPLACE_ONE, Unit.row()))
    assert ledger.spent("analyst:ann") == PureLoss(1)


@pytest.mark.parametrize("accounts", [["analyst:ann"], ["dataset:people", "dataset:others"]])
def test_a_series_is_paid_from_the_account_of_one_table(accounts):
    ledger, tester = series(accounts)

    with pytest.raises(InvalidRequest, match="account of one table"):
        tester.run(lambda _: pytest.fail("it ran"), epsilon=1)
    assert all(ledger.spent(name) == PureLoss(0) for name in accounts)


def test_a_test_of_a_private_number_of_rows_is_no_part_of_a_series():
    """A row replaced is one removed and one added: the corrections would have to count such a test twice."""
    _, tester = series()

    with pytest.raises(InvalidRequest, match="replace-one neighbours"):
        tester.run(lambda e: binomial_test([1, 0], 0.5, epsilon=e, adjacency="add-remove"), epsilon=1)
    assert tester.spent == PureLoss(1)


def fair(price: Fraction) -> Release:
    return binomial_test(np.arange(400) % 2 == 0, 0.5, epsilon=price, bits=SeededBits(1))


def test_a_copy_of_a_series_is_the_series():
    tester = AdaptiveTester(400, max_tests=1)
    copies = [copy.copy(tester), copy.deepcopy(tester), copy.deepcopy([tester])[0]]
    tester.run(fair, epsilon=0.1)

    for other in copies:
        with pytest.raises(BudgetExceeded, match="tests left"):
            other.run(fair, epsilon=0.1)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_series_cannot_be_pickled(protocol: int):
    with pytest.raises(TypeError, match="stay in its process"):
        pickle.dumps(AdaptiveTester(400, max_tests=1), protocol)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_does_not_continue_a_series():
    tester = AdaptiveTester(400, max_tests=1)

    assert "the process that opened the series of tests" in told_by_a_fork(lambda: str(tester.run(fair, epsilon=0.1)))


def test_threads_share_the_tests_of_a_series():
    tester, found = AdaptiveTester(400, max_tests=2), []
    together = threading.Barrier(8)

    def ask() -> None:
        together.wait()
        try:
            found.append(tester.run(fair, epsilon=0.1).tests_left)
        except BudgetExceeded:
            found.append(None)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert sorted(left for left in found if left is not None) == [0, 1]
