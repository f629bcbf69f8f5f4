"""Questions about disjoint parts: what they charge, what they refuse, and where they cross processes."""

import datetime
import multiprocessing
import os
import pickle
import signal
import threading

import pyarrow as pa
import pyarrow.parquet
import pytest

import expost
from expost.core import BudgetExceeded, InvalidRequest, PureLoss, Unit
from expost.session.table_part import column_part, time_windows
from expost.stats.gradual_plan import GradualPlan
from expost.stats.hypothesis import BinomialTest

SITES = ["A", "B", "C"]
ROWS = 6_000
TABLE = pa.table(
    {
        "site": [SITES[index % 3] for index in range(ROWS)],
        "year": [2013 + index % 2 for index in range(ROWS)],
        "id": [index % 500 for index in range(ROWS)],
        "when": pa.array([datetime.datetime(2013, 1, 1 + index % 28) for index in range(ROWS)], pa.timestamp("us")),
        "flag": [index % 2 == 0 for index in range(ROWS)],
    }
)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "people.parquet"
    pa.parquet.write_table(TABLE, path)
    return str(path)


def people(source=TABLE, **terms):
    terms = {"categories": {"site": SITES, "year": [2013, 2014]}} | terms
    return expost.Dataset(source, name="people", **terms)


def visits(source=TABLE, **terms):
    unit = Unit.of("id", per="week", time="when")
    return expost.Dataset(source, name="visits", unit=unit, max_rows_per_unit=7, **terms)


# Parts by a column


def test_a_hypothesis_test_of_a_part_reads_that_part_alone():
    """Reading the whole would answer from rows whose account is not charged."""
    table = pa.table({"site": ["A", "B"] * 2000, "well": [True, False] * 2000, "value": [0.0, 1.0] * 2000})
    data = expost.Dataset(table, name="people", categories={"site": ["A", "B"]}, bounds={"value": (0, 1)})
    session = expost.Session(data, expost.epsilon(20))

    for site, share in (("A", 1.0), ("B", 0.0)):
        test = BinomialTest("well", equals=True, null=0.5, epsilon=10)
        assert abs(session.part("site", site).ask(test).value.estimate - share) < 0.05
    assert session.spent() == PureLoss(10)
    assert [batch.num_rows for batch in data.where("site = 'A' and value > 0").batches(["well"])] == [0]


def test_a_further_filter_that_is_none_leaves_the_filter_there_is():
    narrow = people().where("site = 'A'")

    assert narrow.where(None).identity == narrow.identity


def test_a_table_named_like_a_part_gets_no_session():
    ledger = expost.open_ledger(None)
    expost.Session(people(), expost.epsilon(1), ledger=ledger).part("site", "A").count(epsilon=0.25)

    with pytest.raises(InvalidRequest, match="not of a part"):
        expost.Session(expost.Dataset(TABLE, name="people/site=A"), expost.epsilon(1), ledger=ledger)


def test_two_sessions_opened_together_share_the_budget_under_either_adjacency():
    ledger = expost.open_ledger(None)
    first = expost.Session(people(), expost.epsilon(1), ledger=ledger)
    second = expost.Session(people(adjacency="replace-one", rows=ROWS), expost.epsilon(1), ledger=ledger)
    first.count(epsilon=0.25)

    second.count(where="flag", epsilon=0.25)
    assert second.spent() == PureLoss(0.75)


@pytest.mark.parametrize("place", ["memory", "file"])
def test_an_account_does_not_go_over_while_a_question_runs(place, tmp_path):
    """The second asks while the first has held and not yet settled."""
    ledger = expost.open_ledger(None if place == "memory" else f"sqlite:///{tmp_path}/people.ledger")
    first = expost.Session(people(), expost.epsilon(1), ledger=ledger)
    second = expost.Session(people(adjacency="replace-one", rows=ROWS), expost.epsilon(1), ledger=ledger)
    met = []

    class Meanwhile(GradualPlan):
        def measure(self, dataset):
            with pytest.raises(InvalidRequest, match="because a question is running on it"):
                second.count(where="flag", epsilon=0.25)
            met.append(len(ledger.open_holds()))
            return super().measure(dataset)

    class Interrupted(expost.stats.Count):
        def plan(self, dataset, context=None):
            return Meanwhile(**vars(super().plan(dataset, context)))

    first.ask(Interrupted(epsilon=0.25))

    assert met == [1]
    assert second.spent() == PureLoss(0.25)
    assert first.part("site", "A").count(epsilon=0.25).receipt.bill == PureLoss(0.25)


def test_a_window_beyond_the_calendar_is_refused():
    with pytest.raises(InvalidRequest):
        expost.Session(visits(), expost.epsilon(1)).window("9999-12-31")


@pytest.mark.parametrize("value", [[], {}, ["A"]])
def test_a_value_that_cannot_be_a_category_is_refused(value):
    with pytest.raises(InvalidRequest):
        expost.Session(people(), expost.epsilon(1)).part("site", value)


def test_parts_charge_their_own_accounts_and_the_whole_the_largest():
    session = expost.Session(people(), expost.epsilon(1))

    for site, level in zip(SITES, (0.25, 0.5, 0.125), strict=True):
        release = session.part("site", site).count(epsilon=level)
        assert abs(release.value - ROWS / 3) < 300
        assert release.receipt.question == f"count of rows in site={site}"
    session.count(epsilon=0.25)

    assert session.spent() == PureLoss(0.75)
    assert session.remaining() == PureLoss(0.25)
    assert [part.spent() for part in session.parts("site").values()] == [PureLoss(0.25), PureLoss(0.5), PureLoss(0.125)]
    assert session.part("site", "C").remaining() == PureLoss(0.625)
    with pytest.raises(BudgetExceeded, match="a part of 'dataset:people'"):
        session.part("site", "B").count(epsilon=0.5, where="year = 2013")
    session.ledger.verify()


def test_under_replace_one_two_parts_change_and_the_two_largest_are_paid():
    session = expost.Session(people(adjacency="replace-one", rows=ROWS), expost.epsilon(1))

    for site, level in zip(SITES, (0.25, 0.5, 0.125), strict=True):
        session.part("site", site).count(epsilon=level)

    assert session.spent() == PureLoss(0.75)


def test_a_part_of_a_part_is_one_more_level():
    session = expost.Session(people(), expost.epsilon(1))
    inner = session.part("site", "A").part("year", 2013)

    release = inner.count(epsilon=0.5)

    assert release.receipt.question == "count of rows in site=A, year=2013"
    assert inner.accounts == ("dataset:people/site=A/year=2013",)
    assert session.part("site", "A").spent() == session.spent() == PureLoss(0.5)
    assert abs(release.value - ROWS / 6) < 200


def test_asking_a_part_again_is_free_and_asking_the_whole_is_not():
    session = expost.Session(people(), expost.epsilon(1))
    session.part("site", "A").count(epsilon=0.25)

    again = session.part("site", "A").count(epsilon=0.25)
    session.count(where="site = 'A'", epsilon=0.25)

    assert again.receipt.bill == PureLoss(0)
    assert session.spent() == PureLoss(0.5)


def test_a_price_of_a_part_is_guessed_from_receipts_of_that_part():
    session = expost.Session(people(), expost.epsilon(4))
    session.part("site", "A").count(within="10%", max_epsilon=1)

    assert session.part("site", "B").price("count", within="5%", max_epsilon=1).likely is None
    assert session.price("count", within="5%", max_epsilon=1).likely is None
    assert session.part("site", "A").price("count", within="5%", max_epsilon=1).likely is not None
    assert session.part("site", "A").price("count", epsilon=0.5).question == "count of rows in site=A"


def test_a_unit_with_rows_in_several_parts_has_no_parts_by_a_column():
    users = people(unit="id", max_rows_per_unit=20, max_groups_per_unit=1)

    with pytest.raises(InvalidRequest, match="one row per unit"):
        expost.Session(users, expost.epsilon(1)).part("site", "A")
    with pytest.raises(InvalidRequest, match="one row per unit"):
        column_part(visits(categories={"site": SITES}), "site", "A")


@pytest.mark.parametrize(
    ("column", "value"),
    [("site", "D"), ("site", None), ("altitude", 1), ("when", "2013-01-01"), ("year", "2013"), ("later", 2014)],
)
def test_what_is_no_public_category_of_a_stored_column_is_refused_and_costs_nothing(column, value):
    session = expost.Session(people().derive(later="year + 1"), expost.epsilon(1))
    before = session.ledger.verify()

    with pytest.raises(InvalidRequest):
        session.part(column, value)

    assert session.ledger.verify() == before


def test_values_that_an_engine_takes_for_equal_share_one_account():
    names = {
        column_part(people(categories={"year": [value]}), "year", value).accounts("x")[0] for value in (2013, 2013.0)
    }

    assert len(names) == 1
    assert column_part(people(categories={"flag": [True]}), "flag", True).accounts("x") == ("x/flag=1",)
    assert column_part(people(categories={"site": ["*%"]}), "site", "*%").accounts("x") == ("x/site=%2A%25",)


ODD = ["x", "y", "x/b=y", "x%2Fb=y", "=", "/", "=/", "%"]


def test_no_category_can_pass_for_another_or_for_a_part_of_a_part():
    table = pa.table({name: ODD for name in ("a", "b", "a=x/b", "a/b")})
    names = table.column_names
    whole = expost.Session(expost.Dataset(table, name="odd", categories=dict.fromkeys(names, ODD)), expost.epsilon(1))
    inner = [part for name in names for part in whole.parts(name).values()]
    nested = [part for name in names for each in whole.parts("a").values() for part in each.parts(name).values()]

    accounts = [part.accounts for part in inner + nested]
    assert len(set(accounts)) == len(accounts) == 4 * 8 + 4 * 64
    for part in inner[:3] + nested[:3]:
        part.count(epsilon=0.25)
    assert whole.ledger.verify().open_holds == 0


def test_a_category_of_any_length_and_any_letters_has_an_account_of_its_own():
    long = ["L" * 300, "L" * 299 + "M", "two\nlines", "two%0Alines", "\u202e", "tab\t"]
    table = expost.Dataset(pa.table({"site": long * 50}), name="people", categories={"site": long})
    session = expost.Session(table, expost.epsilon(1))
    for part in session.parts("site").values():
        part.count(epsilon=0.25)

    accounts = [part.accounts for part in session.parts("site").values()]
    assert len(set(accounts)) == len(long)
    assert float(session.spent().epsilon) == 0.25
    inner = session.part("site", long[0]).part("site", long[0])
    assert inner.accounts[0].startswith(accounts[0][0] + "/")


def test_a_part_that_is_open_under_an_older_name_keeps_its_account():
    table = expost.Dataset(pa.table({"site": ["A/B", "C"] * 50}), name="people", categories={"site": ["A/B", "C"]})
    ledger = expost.open_ledger(None)
    ledger.open_account("dataset:people", expost.epsilon(1))
    ledger.open_part("dataset:people/site=A/B", of="dataset:people", by="column site")
    hold = ledger.hold(["dataset:people/site=A/B"], PureLoss(0.75), question="count")
    session = expost.Session(table, expost.epsilon(1), ledger=ledger)

    assert hold.accounts == session.part("site", "A/B").accounts
    with pytest.raises(BudgetExceeded):
        session.part("site", "A/B").count(epsilon=0.5)
    assert session.part("site", "C").accounts == ("dataset:people/site=C",)


def test_an_older_name_of_a_part_of_a_part_is_not_taken_for_this_one():
    table = pa.table({"a": ["x", "x/b=y"], "b": ["y", "y"]})
    categories = {"a": ["x", "x/b=y"], "b": ["y"]}
    session = expost.Session(expost.Dataset(table, name="t", categories=categories), expost.epsilon(1))
    nested, beside = session.part("a", "x").part("b", "y"), session.part("a", "x/b=y")

    assert nested.accounts == ("dataset:t/a=x/b=y",) and beside.accounts == ("dataset:t/a=x%2Fb%3Dy",)


def test_a_table_that_has_the_name_of_a_part_is_named_in_the_refusal():
    ledger = expost.open_ledger(None)
    expost.Session(expost.Dataset(TABLE, name="people/site=A"), expost.epsilon(1), ledger=ledger)
    with pytest.raises(InvalidRequest, match=r"not a part.* use another name for the table"):
        expost.Session(people(), expost.epsilon(1), ledger=ledger, another_budget="a test").part("site", "A")


def test_an_analyst_pays_for_every_part():
    session = expost.Session(people(), expost.epsilon(1), analyst="ann", analyst_budget=expost.epsilon(0.75))

    for site in ("A", "B"):
        session.part("site", site).count(epsilon=0.25)

    assert session.spent() == PureLoss(0.25)
    assert session.ledger.spent("analyst:ann") == PureLoss(0.5)
    with pytest.raises(BudgetExceeded, match="analyst:ann"):
        session.part("site", "C").count(epsilon=0.5)


# Windows of time


def test_a_question_about_a_window_charges_that_window_and_one_about_several_charges_each():
    session = expost.Session(visits(), expost.epsilon(1))
    session.window("2013-01-09").count(epsilon=0.5)
    both = session.window("2013-01-07", "2013-01-20")

    release = both.count(epsilon=0.25)

    assert both.accounts == ("dataset:visits/week=2013-01-07", "dataset:visits/week=2013-01-14")
    assert release.receipt.question == "count of rows in weeks from 2013-01-07 to 2013-01-20"
    assert [session.window(day).spent() for day in ("2013-01-07", "2013-01-14", "2013-01-21")] == [
        PureLoss(0.75),
        PureLoss(0.25),
        PureLoss(0),
    ]
    assert (both.spent(), both.remaining()) == (PureLoss(0.75), PureLoss(0.25))
    assert session.spent() == PureLoss(0.75)


def test_a_question_about_the_whole_is_spent_in_every_window_even_one_not_seen_before():
    session = expost.Session(visits(), expost.epsilon(1))
    session.window("2013-01-07").count(epsilon=0.25)

    session.count(epsilon=0.5)

    assert session.window("2013-01-09").remaining() == PureLoss(0.25)
    assert session.window("2019-05-05").remaining() == PureLoss(0.5)
    with pytest.raises(BudgetExceeded):
        session.window("2019-05-05").count(epsilon=0.75)
    with pytest.raises(BudgetExceeded):
        session.count(epsilon=0.5, where="id > 3")


def test_the_windows_of_a_session_are_the_windows_of_its_unit():
    """Rows of one unit never fall into two windows: the unit's own grouping and the filter agree on every day."""
    days = [datetime.date(1968, 12, 20) + datetime.timedelta(days=number) for number in range(0, 1200)]
    moments = pa.array([datetime.datetime.combine(day, datetime.time(23, 59, 59)) for day in days], pa.timestamp("us"))
    for length in ("day", "week", "month"):
        unit = Unit.of("id", per=length, time="when")
        table = expost.Dataset(pa.table({"id": [1] * len(days), "when": moments}), unit=unit, max_rows_per_unit=1)
        session = expost.Session(table, expost.epsilon(10**6))
        labels = {time_windows(table, day.isoformat()).parts for day in days}
        # One id: as many units as windows, each kept once.
        assert round(session.count_distinct(epsilon=1000).value) == len(labels)


@pytest.mark.parametrize("days", [("soon",), ("2013-01-09", "2013-01-01"), ("1000-01-01", "9999-01-01")])
def test_days_that_make_no_windows_are_refused(days):
    with pytest.raises(InvalidRequest):
        expost.Session(visits(), expost.epsilon(1)).window(*days)


def test_a_window_on_its_own_would_not_know_what_the_whole_spent():
    with pytest.raises(InvalidRequest, match=r'call session.window\("2013-01-07"\)'):
        expost.Session(visits().within_window("2013-01-09"), expost.epsilon(1))


def test_windows_need_a_unit_with_a_window_and_do_not_nest():
    with pytest.raises(InvalidRequest, match="time window"):
        expost.Session(people(), expost.epsilon(1)).window("2013-01-09")
    with pytest.raises(InvalidRequest, match="one window or the whole"):
        expost.Session(visits(), expost.epsilon(1)).window("2013-01-07", "2013-01-14").window("2013-01-07")


# Across restarts, threads and processes


def test_a_later_session_finds_what_parts_and_windows_have_paid(source, tmp_path):
    with expost.Session(visits(source), expost.epsilon(1), ledger=tmp_path / "l") as first:
        first.window("2013-01-09").count(epsilon=0.5)
    with expost.Session(visits(source), ledger=tmp_path / "l") as second:
        assert second.window("2013-01-10").spent() == PureLoss(0.5)
        with pytest.raises(BudgetExceeded):
            second.count(epsilon=0.75)


def test_a_part_crosses_processes_as_a_reference(source, tmp_path):
    with expost.Session(people(source), expost.epsilon(1), ledger=tmp_path / "l") as session:
        part = session.part("site", "A").part("year", 2014)
        again = pickle.loads(pickle.dumps(part))

        again.count(epsilon=0.25)

        assert again.accounts == part.accounts
        assert part.spent() == session.spent() == PureLoss(0.25)


class Deadly:
    """A question during which the process dies."""

    question, worst_case = "deadly", PureLoss(0.5)

    def plan(self, dataset, context):
        return self

    def measure(self, dataset):
        os.kill(os.getpid(), signal.SIGKILL)

    def climb(self, sealed, bits):
        raise AssertionError("nobody gets here")


def test_a_crash_in_a_window_stays_charged_there_and_nowhere_else(source, tmp_path):
    with expost.Session(visits(source), expost.epsilon(1), ledger=tmp_path / "l") as session:
        week, both = session.window("2013-01-07"), session.window("2013-01-07", "2013-01-14")
        week.count(epsilon=0.125)
        context = multiprocessing.get_context("fork")
        for part in (week, both):
            if part is both:
                Deadly.worst_case = PureLoss(0.25)
            child = context.Process(target=part.ask, args=(Deadly(),))
            child.start()
            child.join()
            assert child.exitcode == -signal.SIGKILL

    with expost.Session(visits(source), ledger=tmp_path / "l") as after:
        spent = [after.window(day).spent() for day in ("2013-01-07", "2013-01-14", "2013-01-21")]
        assert spent == [PureLoss(0.875), PureLoss(0.25), PureLoss(0)]
        assert after.spent() == PureLoss(0.875)
        assert [hold.question for hold in after.ledger.open_holds()] == [
            "deadly in week=2013-01-07",
            "deadly in weeks from 2013-01-07 to 2013-01-20",
        ]
        after.ledger.verify()


def spend_all(session, day, done):
    count = 0
    try:
        while True:
            session.window(day).count(epsilon=0.125, where=f"id <> {count}")
            count += 1
    except BudgetExceeded:
        done.put((day, count))


def test_two_processes_use_up_their_windows_side_by_side(source, tmp_path):
    with expost.Session(visits(source), expost.epsilon(1), ledger=tmp_path / "l") as session:
        session.count(epsilon=0.25)
        context = multiprocessing.get_context("spawn")
        done = context.Queue()
        workers = [context.Process(target=spend_all, args=(session, day, done)) for day in ("2013-01-07", "2013-01-14")]
        for worker in workers:
            worker.start()
        counts = dict(done.get(timeout=100) for _ in workers)
        for worker in workers:
            worker.join()

        assert counts == {"2013-01-07": 6, "2013-01-14": 6}
        assert session.spent() == PureLoss(1)
        session.ledger.verify()


def test_threads_share_a_session_and_its_parts():
    session = expost.Session(people(), expost.epsilon(1))
    refused = []

    def ask(number):
        try:
            session.part("site", SITES[number % 3]).count(epsilon=0.25, where=f"id <> {number}")
        except BudgetExceeded:
            refused.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(18)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(refused) == 6
    assert session.spent() == PureLoss(1)
