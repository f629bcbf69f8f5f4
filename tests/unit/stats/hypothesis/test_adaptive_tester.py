import copy
import pickle
import threading

import numpy as np
import pyarrow as pa
import pytest
from tests.forked import told_by_a_fork

from expost.core import Adjacency, BudgetExceeded, EngineFailed, InvalidRequest, PureLoss, Unit, epsilon
from expost.data import Dataset
from expost.holdout.generalization import chance_of_overfitting, max_information_of_privacy
from expost.ledger import Protected, open_ledger
from expost.noise import SeededBits
from expost.stats.hypothesis import AdaptiveTester, BinomialTest, binomial_power, binomial_test
from expost.stats.hypothesis.adaptive_tester import NAMED_TESTS, level_after_answers, level_after_decisions
from expost.stats.hypothesis.binomial import BinomialPlan

FAIR = {"equals": True, "null": 0.5}


def sample_of(table, **described):
    described = {"adjacency": "replace-one", "rows": len(next(iter(table.values()))), **described}
    return Dataset(pa.table(table), **described)


def halves(rows):
    return sample_of({"x": np.arange(rows) % 2 == 0})


def series_on(dataset, seed=1, **terms):
    return AdaptiveTester(dataset, bits=SeededBits(seed), simulation=True, **terms)


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
    tester = series_on(halves(200), max_tests=10)

    findings = [tester.run("binomial", "x", **FAIR, epsilon=0.5) for _ in range(4)]

    assert not any(finding.rejected or finding.verdict for finding in findings)
    assert {finding.corrected_level for finding in findings[1:]} == {tester.next_level} == {0.00125}
    assert tester.spent == PureLoss(2)


def test_showing_verdicts_lowers_the_next_level():
    tester = series_on(halves(200), max_tests=10, shows="verdicts")

    finding = tester.run("binomial", "x", **FAIR, epsilon=0.05)

    assert finding.verdict is not None
    assert finding.corrected_level == 0.005
    assert tester.next_level < 0.005


COLUMNS = 7


def votes_of(rng, rows=100):
    """Columns unrelated to a label, and every vote of them that an analyst may come to want."""
    columns, label = rng.integers(0, 2, (rows, COLUMNS)), rng.integers(0, 2, rows)
    agree = 2 * (columns == label[:, None]) - 1
    signs = 1 - 2 * (np.arange(2**COLUMNS)[:, None] >> np.arange(COLUMNS) & 1)
    table = {f"agree{j}": agree[:, j] > 0 for j in range(COLUMNS)}
    return sample_of(table | {f"vote{i}": agree @ sign > 0 for i, sign in enumerate(signs)})


def chased(tester, shown):
    """Test every column, then the vote by what was shown; return whether any true null hypothesis was rejected."""
    findings = [tester.run("binomial", f"agree{j}", **FAIR, epsilon=1) for j in range(COLUMNS)]
    wanted = sum(1 << j for j, finding in enumerate(findings) if shown(finding))
    findings.append(tester.run("binomial", f"vote{wanted}", **FAIR, epsilon=1))
    return any(finding.rejected for finding in findings)


@pytest.mark.parametrize("shows", ["decisions", "verdicts"])
def test_an_analyst_who_chases_the_sample_rejects_as_rarely_as_promised(shows):
    """200 series in which no column is related to anything; the analyst votes with what the findings show.

    With a promise of 5 % more than 27 of 200 series are wrong with probability below 1e-6.
    """
    rng = np.random.default_rng(1)

    def shown(finding):
        return not finding.rejected if finding.verdict is None else finding.verdict.estimate < 0.5

    false = [chased(series_on(votes_of(rng), run, max_tests=COLUMNS + 1, shows=shows), shown) for run in range(200)]

    assert sum(false) <= 27


def test_the_same_chase_without_the_correction_misleads():
    rng, misled = np.random.default_rng(2), 0
    for run in range(40):
        dataset = votes_of(rng)
        tester = series_on(dataset, run, max_tests=10**6, level=0.999, shows="verdicts")
        estimates = [tester.run("binomial", f"agree{j}", **FAIR, epsilon=10).verdict.estimate for j in range(COLUMNS)]
        wanted = sum(1 << j for j, estimate in enumerate(estimates) if estimate < 0.5)
        misled += tester.run("binomial", f"vote{wanted}", **FAIR, epsilon=10).verdict.rejects(0.05)

    assert misled > 8  # with the level of 5 % more than 8 of 40 are wrong with probability 2e-4


CASES = {
    "anova": (("v",), {"by": "c"}),
    "binomial": (("x",), FAIR),
    "correlation": (("v", "w"), {}),
    "fit": (("c", [0.5, 0.5]), {}),
    "independence": (("c", "d"), {}),
    "kruskal_wallis": (("v",), {"by": "c"}),
    "linear_correlation": (("v", "w"), {}),
    "mann_whitney": (("v",), {"by": "c", "groups": ("a", "b")}),
    "mean_difference": (("v",), {"by": "c", "groups": ("a", "b")}),
    "signed_rank": (("above", "v"), {}),
    "split": (("means", "v", "c"), {}),
}


def mixed(related):
    """A table whose columns all depend on one another, or do not."""
    rng = np.random.default_rng(4)
    v, other = rng.random((2, 300))
    w = v if related else other
    return sample_of(
        {
            "v": v,
            "w": w,
            "above": v + 1 if related else other,
            "x": w < (0.9 if related else 0.5),
            "c": np.where(w < 0.5, "a", "b"),
            "d": np.where(v < 0.5, "a", "b"),
        },
        bounds={"v": (0, 1), "w": (0, 1)},
        categories={"c": ["a", "b"], "d": ["a", "b"]},
    )


def test_every_test_has_a_case():
    assert CASES.keys() == NAMED_TESTS.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_finding_shows_the_decision_and_nothing_else_of_the_sample(name):
    subject, terms = CASES[name]
    findings = [
        series_on(mixed(related), max_tests=1, level=0.2).run(name, *subject, **terms, epsilon=2)
        for related in (True, False)
    ]

    assert repr(findings[0].receipt) == repr(findings[1].receipt)
    assert [finding.verdict for finding in findings] == [None, None]
    assert findings[0].rejected


class Sneaky(str):
    """A name with methods of its own."""


class Fraudulent(float):
    """A number that would be told what it is compared with."""


class Spy(BinomialTest):
    """A query that keeps what it releases."""


@pytest.mark.parametrize(
    "asked",
    [
        lambda epsilon: binomial_test([True] * 400, 0.5, epsilon=epsilon),
        binomial_test,
        BinomialTest,
        BinomialTest("x", equals=True, null=0.5, epsilon=1),
        Spy("x", equals=True, null=0.5, epsilon=1),
        Sneaky("binomial"),
        None,
    ],
)
def test_only_the_name_of_a_test_is_taken(asked):
    tester = series_on(halves(400), max_tests=5)

    with pytest.raises(InvalidRequest, match="name of a test; a function or a query could see the release"):
        tester.run(asked, epsilon=1)
    assert tester.spent == PureLoss(0)


@pytest.mark.parametrize(
    ("subject", "terms"),
    [
        ((Sneaky("x"),), FAIR),
        (("x",), {**FAIR, "null": Fraudulent(0.5)}),
        (("x",), {**FAIR, "equals": lambda: True}),
        (("x",), {**FAIR, "bits": SeededBits(1)}),
        (("x",), {**FAIR, "power": 0.8}),
        (("x", "y"), FAIR),
        (("y",), FAIR),
        ((), {}),
    ],
)
def test_only_plain_values_and_terms_of_the_test_are_taken(subject, terms):
    tester = series_on(halves(400), max_tests=5)

    with pytest.raises(InvalidRequest):
        tester.run("binomial", *subject, **terms, epsilon=1)
    assert tester.spent == PureLoss(0)
    assert tester.run("binomial", "x", **FAIR, epsilon=1).tests_left == 4


def test_numbers_of_numpy_are_plain_values():
    tester = series_on(mixed(True), max_tests=2)

    assert tester.run("fit", "c", np.array([0.5, 0.5]), epsilon=np.float64(1)).tests_left == 1
    assert tester.run("binomial", "x", equals=np.bool_(True), null=np.float32(0.5), epsilon=1).tests_left == 0


def test_a_series_ends():
    tester = series_on(halves(10), max_tests=1)
    tester.run("binomial", "x", **FAIR, epsilon=1)

    with pytest.raises(BudgetExceeded, match="All tests in this series have been used"):
        tester.run("binomial", "x", **FAIR, epsilon=1)


@pytest.mark.parametrize("failure", [RuntimeError("row 7 is Ann"), KeyboardInterrupt("row 7 is Ann")])
def test_a_test_that_fails_is_charged_and_counted_and_its_error_says_nothing(monkeypatch, failure):
    ledger = open_ledger(None)
    ledger.open_account("dataset:x", epsilon(1))
    tester = series_on(halves(10), max_tests=5, ledger=ledger, accounts=["dataset:x"])

    def failing(*_):
        assert ledger.spent("dataset:x") == PureLoss(0.75)
        raise failure

    with monkeypatch.context() as broken, pytest.raises((EngineFailed, KeyboardInterrupt)) as raised:
        broken.setattr(BinomialPlan, "climb", failing)
        tester.run("binomial", "x", **FAIR, epsilon=0.75)
    assert "Ann" not in str(raised.value)
    assert raised.value.__cause__ is raised.value.__context__ is None
    assert tester.spent == PureLoss(0.75)
    with pytest.raises(BudgetExceeded):
        tester.run("binomial", "x", **FAIR, epsilon=0.75)
    tester.run("binomial", "x", **FAIR, epsilon=0.25)
    assert ledger.remaining("dataset:x") == PureLoss(0)


def test_the_number_of_tests_left_grows_with_the_rows():
    def left(rows):
        return series_on(halves(rows), max_tests=200).tests_left(
            lambda level: binomial_power(rows, 0.5, 0.55, epsilon=0.2, level=level), epsilon=0.2
        )

    assert left(300) == 0
    assert 0 < left(3000) < left(6000)


def test_nonsense_is_refused():
    with pytest.raises(InvalidRequest, match="dataset that the tests are about"):
        AdaptiveTester(100, max_tests=1)
    with pytest.raises(InvalidRequest):
        AdaptiveTester(halves(2), max_tests=0)
    with pytest.raises(InvalidRequest):
        AdaptiveTester(halves(2), max_tests=1, shows="all")
    with pytest.raises(InvalidRequest, match="cryptographic randomness"):
        AdaptiveTester(halves(2), max_tests=1, bits=SeededBits(1))
    with pytest.raises(InvalidRequest):
        AdaptiveTester(halves(2), max_tests=1).most_tests(lambda e, level: 1.0, epsilons=[])


def test_a_private_number_of_rows_is_no_part_of_a_series():
    """A row replaced is one removed and one added: the corrections would have to count such a test twice."""
    with pytest.raises(InvalidRequest, match="public number of rows"):
        AdaptiveTester(Dataset(pa.table({"x": [True]}), adjacency="add-remove"), max_tests=1)


def series(accounts=("dataset:people",), before=None):
    ledger = open_ledger(None)
    for name in ("dataset:people", "dataset:others", "analyst:ann"):
        ledger.open_account(name, epsilon(10))
    if before is not None:
        ledger.hold(["dataset:people"], PureLoss(0.125), question="count", protected=Protected(*before))
    return ledger, series_on(halves(10), max_tests=5, ledger=ledger, accounts=accounts)


@pytest.mark.parametrize(
    "before", [(Adjacency.REPLACE_ONE, Unit.of("id")), (Adjacency.ADD_REMOVE, Unit.of("id"))], ids=["unit", "both"]
)
@pytest.mark.parametrize("accounts", [["dataset:people"], ["analyst:ann", " dataset:people"]])
def test_an_account_about_somebody_else_refuses_a_test_before_it_runs_or_counts(before, accounts):
    ledger, tester = series(accounts, ("dataset:people", *before))

    with pytest.raises(InvalidRequest, match="as in the account so far"):
        tester.run("binomial", "x", **FAIR, epsilon=1)
    assert ledger.spent("dataset:people") == PureLoss(0.125)
    assert tester.spent == PureLoss(0)


def test_the_first_test_of_a_series_says_whom_the_account_is_about():
    ledger, tester = series(["dataset:people", "analyst:ann"])
    tester.run("binomial", "x", **FAIR, epsilon=1)

    assert ledger.check_protected(Protected("dataset:people", Adjacency.REPLACE_ONE, Unit.row()))
    assert ledger.spent("analyst:ann") == PureLoss(1)


@pytest.mark.parametrize("accounts", [["analyst:ann"], ["dataset:people", "dataset:others"]])
def test_a_series_is_paid_from_the_account_of_one_table(accounts):
    ledger, tester = series(accounts)

    with pytest.raises(InvalidRequest, match="account of one table"):
        tester.run("binomial", "x", **FAIR, epsilon=1)
    assert all(ledger.spent(name) == PureLoss(0) for name in accounts)


def test_a_copy_of_a_series_is_the_series():
    tester = series_on(halves(400), max_tests=1)
    copies = [copy.copy(tester), copy.deepcopy(tester), copy.deepcopy([tester])[0]]
    tester.run("binomial", "x", **FAIR, epsilon=0.1)

    for other in copies:
        with pytest.raises(BudgetExceeded, match="have been used"):
            other.run("binomial", "x", **FAIR, epsilon=0.1)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_series_cannot_be_pickled(protocol: int):
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        pickle.dumps(AdaptiveTester(halves(400), max_tests=1), protocol)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_does_not_continue_a_series():
    tester = AdaptiveTester(halves(400), max_tests=1)

    def ask() -> str:
        return str(tester.run("binomial", "x", **FAIR, epsilon=0.1))

    assert "This series of tests belongs to another process" in told_by_a_fork(ask)


def test_threads_share_the_tests_of_a_series():
    tester, found = AdaptiveTester(halves(400), max_tests=2), []
    together = threading.Barrier(8)

    def ask() -> None:
        together.wait()
        try:
            found.append(tester.run("binomial", "x", **FAIR, epsilon=0.1).tests_left)
        except BudgetExceeded:
            found.append(None)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert sorted(left for left in found if left is not None) == [0, 1]
