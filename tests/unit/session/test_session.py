"""What a session keeps between questions, and what it may not."""

import inspect
import pickle
import threading

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.forked import told_by_a_fork

import expost
import expost.ledger
from expost.accounting.concentrated import pure_to_zcdp
from expost.core import Measure, PureLoss, WrongArguments, ZeroConcentratedLoss
from expost.noise import SeededBits
from expost.session.statistic_methods import STATISTICS

ROWS = 5_000


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "people.parquet"
    pa.parquet.write_table(pa.table({"age": [index % 90 for index in range(ROWS)]}), path)
    return str(path)


def people(source) -> expost.Dataset:
    return expost.Dataset(source, name="people")


def test_less_accuracy_is_free_and_more_costs_the_difference(source) -> None:
    session = expost.Session(people(source), expost.epsilon(1))

    bills = [session.count(epsilon=level).receipt.bill for level in (0.1, 0.05, 0.25)]

    assert bills == [PureLoss(0.1), PureLoss(0), PureLoss(0.15)]
    assert session.spent() == PureLoss(0.25)


def test_a_refinement_pays_in_full_where_pure_losses_do_not_add_up(source) -> None:
    session = expost.Session(people(source), expost.zcdp(1))

    for level in (0.5, 1):
        session.count(epsilon=level)

    assert session.spent() == ZeroConcentratedLoss(pure_to_zcdp(0.5) + pure_to_zcdp(1))


def test_a_later_session_goes_on_where_the_first_stopped(source, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("EXPOST_LEDGER_KEY", expost.ledger.new_key())
    ledger = tmp_path / "people.ledger"
    with expost.Session(people(source), expost.epsilon(1), ledger=ledger) as first:
        value = first.count(epsilon=0.1).value
    with expost.Session(people(source), expost.epsilon(1), ledger=ledger) as second:
        again = second.count(epsilon=0.1)
        second.count(epsilon=0.25)

        assert (again.value, again.receipt.bill) == (value, PureLoss(0))
        assert second.spent() == PureLoss(0.25)


def test_a_simulation_leaves_nothing_for_real_sessions(source, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("EXPOST_LEDGER_KEY", expost.ledger.new_key())
    ledger = tmp_path / "people.ledger"
    bits = SeededBits(1)
    with expost.Session(people(source), expost.epsilon(1), ledger=ledger, bits=bits, simulation=True) as seeded:
        seeded.count(epsilon=0.1)
    with expost.Session(people(source), expost.epsilon(1), ledger=ledger) as real:
        release = real.count(epsilon=0.1)

    assert release.receipt.bill == PureLoss(0.1)
    assert not release.receipt.simulation


def test_an_analyst_pays_for_what_another_one_paid_for(source, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("EXPOST_LEDGER_KEY", expost.ledger.new_key())
    options = {"ledger": tmp_path / "people.ledger", "analyst_budget": expost.epsilon(0.5)}
    for analyst in ("ann", "bob"):
        with expost.Session(people(source), expost.epsilon(1), analyst=analyst, **options) as session:
            session.count(epsilon=0.1)

            assert session.ledger.spent(f"analyst:{analyst}") == PureLoss(0.1)


def test_a_table_in_memory_is_never_taken_for_another_one(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("EXPOST_LEDGER_KEY", expost.ledger.new_key())
    for rows in (1000, 7):
        table = expost.Dataset(pa.table({"age": [1] * rows}), name="people")
        with expost.Session(table, expost.epsilon(10), ledger=tmp_path / "l") as session:
            assert abs(session.count(epsilon=4).value - rows) < 20


def test_the_unit_of_an_account_stays_what_it_was(source, tmp_path) -> None:
    with expost.Session(people(source), expost.epsilon(1), ledger=tmp_path / "l") as session:
        session.count(epsilon=0.1)

    other = expost.Dataset(source, name="people", unit="age", max_rows_per_unit=1)
    with pytest.raises(expost.InvalidRequest, match="as the unit"):
        expost.Session(other, expost.epsilon(1), ledger=tmp_path / "l")


@pytest.mark.parametrize(
    ("name", "budget", "also"),
    [
        ("people", "much", {}),
        ("people", PureLoss(1), {}),
        ("people", (1, 2, 3), {}),
        ("people", None, {}),
        (None, expost.epsilon(1), {}),
        ("pe\nople", expost.epsilon(1), {}),
        ("people", expost.epsilon(1), {"analyst": "*", "analyst_budget": expost.epsilon(1)}),
        ("people", expost.epsilon(1), {"analyst": "ann", "analyst_budget": [1]}),
        ("people", expost.epsilon(1), {"analyst": "ann"}),
    ],
)
def test_a_refused_session_leaves_no_ledger_behind(name, budget, also, tmp_path) -> None:
    dataset = expost.Dataset(pa.table({"age": [30]}), name=name, bounds={"age": (0, 120)})

    for where in (tmp_path / "new.ledger", f"sqlite:///{tmp_path}/new.ledger"):
        with pytest.raises(expost.InvalidRequest):
            expost.Session(dataset, budget, ledger=where, **also)

    assert not list(tmp_path.iterdir())


def test_a_price_is_the_worst_case_and_a_guess_from_receipts(source) -> None:
    session = expost.Session(people(source), expost.epsilon(1))

    before = session.price("count", within="10%", max_epsilon=0.5)
    session.count(within="10%", max_epsilon=0.5)
    after = session.price("count", within="2%", max_epsilon=0.5)

    assert before.likely is None
    assert after.likely is not None
    assert after.likely.within(after.worst_case)
    assert session.price("count", epsilon=0.9).worst_case.within(PureLoss(0.9))


def test_a_climb_to_an_absolute_error_is_guessed_from_receipts_too(source) -> None:
    session = expost.Session(people(source), expost.epsilon(50))
    terms = {"bounds": (0, 90), "max_epsilon": 5}

    before = session.price("mean", "age", within=5, **terms)
    bill = session.mean("age", within=10, **terms).receipt.bill
    for _ in range(2):  # a free answer is nothing to guess from
        after = session.price("mean", "age", within=5, **terms)
        assert after.likely == PureLoss(2 * bill.epsilon) and after.likely.epsilon < after.worst_case.epsilon / 2
        assert session.mean("age", within=10, **terms).receipt.bill == PureLoss(0)

    assert before.likely is None
    assert session.price("mean", "age", within=10, **terms).likely == PureLoss(0)
    for name, asked in (("sum", {"within": 9_000}), ("median", {"rank_within": 500})):  # priced before the run
        price = session.price(name, "age", **asked, **terms)
        assert price.likely == price.worst_case


def test_a_session_crosses_processes_as_a_reference(source, tmp_path) -> None:
    with expost.Session(people(source), expost.epsilon(1), ledger=tmp_path / "l") as session:
        again = pickle.loads(pickle.dumps(session))

    again.count(epsilon=0.25)

    assert expost.open_ledger(tmp_path / "l").spent("dataset:people") == PureLoss(0.25)


def test_a_session_that_lives_in_this_process_only_is_not_pickled(source) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(expost.Session(people(source), expost.epsilon(1)))
    table = expost.Dataset(pa.table({"age": [1]}), name="people")
    with pytest.raises(TypeError):
        pickle.dumps(expost.Session(table, expost.epsilon(1)))


def test_a_fork_pays_in_full_because_both_sides_know_the_same_path(source, tmp_path) -> None:
    with expost.Session(people(source), expost.epsilon(1), ledger=tmp_path / "l") as session:
        session.count(epsilon=0.125)

        assert told_by_a_fork(lambda: session.count(epsilon=0.25).receipt.bill) == PureLoss(0.25)
        assert session.count(epsilon=0.25).receipt.bill == PureLoss(0.125)


def test_threads_that_refine_one_answer_take_turns(source) -> None:
    session = expost.Session(people(source), expost.epsilon(4))
    session.count(epsilon=0.25)
    bills = []
    threads = [threading.Thread(target=lambda: bills.append(session.count(epsilon=0.5).receipt.bill)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    # One of them goes on and pays the difference, the others get its answer; nobody draws it a second time.
    assert sorted(bill.epsilon for bill in bills) == [0] * 7 + [0.25]
    assert session.spent() == PureLoss(0.5)


def test_a_fit_is_priced_before_it_is_paid_for() -> None:
    table = pa.table({"x": [index % 10 for index in range(2000)], "y": [index % 10 for index in range(2000)]})
    rows = expost.Dataset(table, name="rows", adjacency="replace-one", rows=2000)
    session = expost.Session(rows, expost.epsilon(4))
    ridge = expost.Ridge(epsilon=1.0, bounds=[(0, 9)], feature_bound=1.0, target_bounds=9.0, regularization=0.1)

    before = session.price(ridge, features=["x"], target="y")
    assert (before.worst_case, before.likely) == (PureLoss(1), None)
    assert session.spent() == PureLoss(0)

    session.fit(ridge, features=["x"], target="y")
    assert session.price(ridge, features=["x"], target="y").likely == session.spent()
    with pytest.raises(expost.InvalidRequest):
        session.price(ridge, features=["nothing"], target="y")


def test_private_keys_are_not_paid_for_where_their_question_does_not_fit():
    data = expost.Dataset(pa.table({"city": ["Rome", "Oslo"] * 500}), name="people")
    session = expost.Session(data, expost.approx(1, 1e-3))
    keys = expost.PrivateKeys("city", epsilon=0.6, delta=1e-6)

    with pytest.raises(expost.BudgetExceeded):
        session.count(by=keys, epsilon=0.6)
    assert session.spent().amounts()["epsilon"] == 0
    assert session.count(by=keys, epsilon=0.4).receipt.outcome.met


@pytest.mark.parametrize("wrong", [{"bits": 3}, {"bits": SeededBits(1)}, {"simulation": True}], ids=str)
def test_wrong_randomness_is_refused_before_there_is_a_ledger(source, tmp_path, wrong) -> None:
    with pytest.raises(expost.InvalidRequest, match=r"source|randomness"):
        expost.Session(people(source), expost.epsilon(1), ledger=tmp_path / "l", **wrong)

    assert not list(tmp_path.glob("l*"))


@pytest.mark.parametrize("budget", [1, 1.0, (1, 1e-6), {"epsilon": 1}, {"rho": 0.1}, expost.epsilon(1)], ids=str)
def test_a_budget_may_be_a_number_a_pair_a_dict_or_a_guarantee(source, budget) -> None:
    session = expost.Session(people(source), budget)

    assert session.count(epsilon=0.1).receipt.outcome.met


def test_a_misspelt_argument_is_explained_at_no_cost(source) -> None:
    session = expost.Session(people(source), 1)

    with pytest.raises(WrongArguments, match=r"^mean\(\) got an unexpected argument 'withim'. Did you mean 'within'"):
        session.mean("age", withim=3)
    with pytest.raises(WrongArguments, match=r"Did you mean 'within'"):
        session.price("mean", "age", withim=3)
    with pytest.raises(WrongArguments, match=r"Did you mean 'budget'"):
        expost.Session(people(source), buget=1)
    assert session.spent() == PureLoss(0) and not session.history()[2:]


def test_a_median_takes_an_error_in_values_or_in_ranks(source) -> None:
    session = expost.Session(people(source), 50, bits=SeededBits(3), simulation=True)
    by_value, by_rank = (session.median("age", bounds=(0, 90), **{name: 20}) for name in ("within", "rank_within"))

    assert by_value.interval is not None and by_value.receipt.target.measure is Measure.ABSOLUTE_ERROR
    assert by_rank.interval is None and by_rank.receipt.target.measure is Measure.RANK_ERROR
    # The tree is shared with quantiles: asking them to no more accuracy is free, unless its noise is unusually large.
    assert session.quantiles("age", [0.5], bounds=(0, 90), within=40).receipt.bill == PureLoss(0)


def test_every_statistic_has_a_method_with_the_arguments_of_its_class(source) -> None:
    session = expost.Session(people(source), 1)
    for name, kind in STATISTICS.items():
        method = inspect.signature(getattr(session, name.replace("-", "_"))).parameters
        own = inspect.signature(kind).parameters

        assert set(method) == set(own), name
        assert all(method[each].default == own[each].default for each in own), name
        positional = [each.name for each in method.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
        assert len(positional) <= 2, name


def test_what_is_left_is_the_least_of_all_accounts_that_pay(source) -> None:
    session = expost.Session(people(source), 1, analyst="ann", analyst_budget=0.25)

    assert session.remaining() == PureLoss(0.25)
    assert "remaining epsilon 0.25 of 'analyst:ann'" in repr(session)


def test_a_refusal_names_the_questions_that_still_run(source) -> None:
    session = expost.Session(people(source), 1)
    session.ledger.hold(session.accounts, PureLoss(0.75), question="slow")

    with pytest.raises(
        expost.BudgetExceeded, match=r"Wait for 1 running question, which hold epsilon 0.75; or ask for less"
    ):
        session.count(epsilon=0.5)


def test_an_interrupt_states_what_stays_charged(source, monkeypatch) -> None:
    session = expost.Session(people(source), 1)

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("expost.stats.gradual_plan.GradualPlan.climb", stop)
    with pytest.raises(KeyboardInterrupt, match=r"epsilon 0.5 stays charged"):
        session.count(epsilon=0.5)
    assert session.spent() == PureLoss(0.5)
