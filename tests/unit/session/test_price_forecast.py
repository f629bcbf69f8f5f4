"""Prices before buying: from the asker's guess, as a curve, and by simulation on made-up rows."""

import statistics
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from expost import Dataset, Session, stats
from expost.core import InvalidRequest, Unit
from expost.noise import SeededBits
from expost.plots.curve_plot import draw_prices
from expost.session.wire_format import decode_price, encode_price
from expost.stats.price_forecast import forecast_bill

SIZES = [8000, 3000, 1000, 700]
SHARES = [f"{share}%" for share in (1, 2, 5, 10, 20, 35)]


def described() -> Dataset:
    sites = np.repeat(np.arange(len(SIZES)), SIZES)
    pay = np.clip(np.random.default_rng(3).gamma(2, 20, len(sites)), 0, 200)
    table = pa.table({"site": sites, "pay": pay})
    return Dataset(table, bounds={"pay": (0, 200)}, categories={"site": list(range(len(SIZES)))})


BY = dict(enumerate(SIZES))
ALL = {"rows": sum(SIZES), "mean": 40, "std": 28}
EACH = {site: {"rows": rows, "mean": 40, "std": 28} for site, rows in BY.items()}
QUESTIONS = {
    "count": (stats.Count(within="5%", max_epsilon=5), sum(SIZES)),
    "count by": (stats.Count(within="20%", max_epsilon=5, by="site"), BY),
    "sum": (stats.Sum("pay", within="5%", max_epsilon=5), 40 * sum(SIZES)),
    "mean": (stats.Mean("pay", within=1, max_epsilon=5), ALL),
    "mean by": (stats.Mean("pay", within="10%", max_epsilon=5, by="site"), EACH),
    "variance": (stats.Variance("pay", within="10%", max_epsilon=5), ALL),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_true_guess_forecasts_the_bill(name: str) -> None:
    (query, expect), dataset = QUESTIONS[name], described()
    plan = query.plan(dataset)
    sealed = plan.measure(dataset)
    bills = [float(plan.climb(sealed, SeededBits(seed)).receipt.bill.epsilon) for seed in range(5)]

    # The bill of groups is the highest of several rungs, each of which noise moves up or down.
    assert 0.6 < float(forecast_bill(plan, expect)) / statistics.median(bills) < 1.5


@pytest.mark.parametrize(("statistic", "subject", "expect"), [("count", (), 5000), ("mean", ("pay",), ALL)])
def test_asking_for_less_is_never_forecast_to_cost_more(statistic, subject, expect) -> None:
    session = Session(described(), 10)
    curve = session.price_curve(statistic, *subject, within=SHARES, expect=expect, max_epsilon=10)
    prices = [quote.likely.epsilon for quote in curve.quotes]

    assert prices == sorted(prices, reverse=True) and prices[0] > prices[-1]
    again = session.price_curve(statistic, *subject, within=SHARES, expect=expect, max_epsilon=10)
    assert again == curve and not any(session.spent().amounts().values())


def test_more_rows_are_never_forecast_to_cost_more() -> None:
    session = Session(described(), 10)
    sizes = [100, 300, 1000, 10_000, 10**6]
    prices = [session.price("count", within="5%", expect=size, max_epsilon=10).likely.epsilon for size in sizes]

    assert prices == sorted(prices, reverse=True)


def test_a_guess_out_of_reach_of_the_cap_says_so_and_names_the_price() -> None:
    quote = Session(described(), 10).price("count", within="1%", expect=100, max_epsilon=0.1)

    assert "this cap would not reach it" in str(quote) and quote.likely.epsilon > 1


def test_one_number_for_a_mean_is_said_to_be_its_rows() -> None:
    session = Session(described(), 10)
    quote = session.price("mean", "pay", within="5%", expect=50_000, max_epsilon=5)

    assert "supposing 50000 rows" in str(quote) and "supposing 50000 rows" in quote._repr_html_()
    assert decode_price(encode_price(quote)) == quote
    assert quote.likely == session.price("mean", "pay", within="5%", expect={"rows": 50_000}, max_epsilon=5).likely
    assert not session.price("count", within="5%", expect=50_000, max_epsilon=5).supposed


def test_a_known_price_needs_no_guess() -> None:
    session = Session(described(), 10)

    assert session.price("count", within=50, expect=1).likely == session.price("count", within=50).worst_case


def test_a_curve_is_a_table_and_a_picture(tmp_path) -> None:
    curve = Session(described(), 10).price_curve("count", within=[10, 100], max_epsilon=10)
    table = curve.to_pandas()

    assert list(table["within"]) == ["10", "100"] and table["probably"].is_monotonic_decreasing
    draw_prices(curve.to_arrow().to_pylist(), title="count", path=tmp_path / "prices.png")
    assert (tmp_path / "prices.png").stat().st_size > 1000
    pictures = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]["entry-points"]
    assert pictures["expost.pictures"]["prices"] == "expost.plots.curve_plot:draw_prices"


@pytest.mark.parametrize(
    ("statistic", "subject", "expect"),
    [
        ("count", (), {"rows": 5}),
        ("count", (), "many"),
        ("count", (), -5),
        ("mean", ("pay",), {"rows": -5}),
        ("mean", ("pay",), {"row": 5}),
        ("mean", ("pay",), {"mean": 5}),
        ("covariance", (["pay", "pay"],), 5000),
    ],
)
def test_a_guess_that_cannot_be_used_is_refused(statistic, subject, expect) -> None:
    with pytest.raises(InvalidRequest):
        Session(described(), 10).price(statistic, *subject, within="5%", max_epsilon=1, expect=expect)


def test_a_group_without_a_guess_is_named() -> None:
    with pytest.raises(InvalidRequest, match="none for 3"):
        Session(described(), 10).price("count", by="site", within="5%", max_epsilon=1, expect={0: 5, 1: 5, 2: 5})


# Made-up rows


def odd_types() -> Dataset:
    schema = pa.schema(
        {
            "who": pa.string(),
            "when": pa.timestamp("ms"),
            "age": pa.uint8(),
            "pay": pa.decimal128(9, 2),
            "on": pa.bool_(),
            "note": pa.large_string(),
            "site": pa.dictionary(pa.int8(), pa.string()),
            "blob": pa.binary(),
        }
    )
    empty = pa.table({field.name: pa.nulls(2, field.type) for field in schema}, schema=schema)
    limits = {"unit": Unit.of("who", per="week", time="when"), "max_rows_per_unit": 3}
    return Dataset(empty, bounds={"age": (18, 90), "pay": (-5, 5)}, categories={"site": ["a", "b"]}, **limits)


def test_made_up_rows_fit_the_description_and_never_come_from_the_table() -> None:
    dummy = odd_types().derive(twice="2 * age").dummy(600)
    session = Session(dummy, 1000, bits=SeededBits(1), simulation=True)

    assert dummy.schema.kinds.keys() >= {"who", "site", "twice"}
    assert abs(session.count(epsilon=50).value - 600) < 20
    assert abs(session.mean("age", epsilon=50).value - 54) < 5
    assert min(session.count(by="site", epsilon=50).value.values()) > 200
    assert session.mean("twice", bounds=(36, 180), epsilon=50).value > 90


def test_made_up_rows_do_not_depend_on_the_rows() -> None:
    one, other = (Dataset(pa.table({"age": ages}), bounds={"age": (0, 99)}) for ages in ([1, 2, 3], [77]))

    assert [batch.to_pydict() for batch in one.dummy(50).batches(["age"])] == [
        batch.to_pydict() for batch in other.dummy(50).batches(["age"])
    ]
    assert [batch.to_pydict() for batch in one.dummy(50, seed=1).batches(["age"])] != [
        batch.to_pydict() for batch in one.dummy(50).batches(["age"])
    ]


def test_a_simulation_is_free_and_says_that_it_is_one() -> None:
    session = Session(described(), 1)
    before = len(session.history())
    first = session.simulate("mean", "pay", by="site", within="10%", made_up_rows=50_000, max_epsilon=1)
    again = session.simulate(stats.Mean("pay", by="site", within="10%", max_epsilon=1), made_up_rows=50_000)

    assert first.receipt.simulation and "SIMULATION" in repr(first)
    assert first.value == again.value and len(first.value) == len(SIZES)
    assert not any(session.spent().amounts().values()) and len(session.history()) == before


def test_a_simulation_keeps_a_public_number_of_rows() -> None:
    dataset = Dataset(pa.table({"age": [20, 30]}), bounds={"age": (0, 99)}, adjacency="replace-one", rows=2)

    assert dataset.dummy(500).rows == 2


def test_a_median_is_forecast_for_rows_spread_evenly() -> None:
    rows = 5000
    data = Dataset(pa.table({"x": np.linspace(0, 100, rows)}), bounds={"x": (0, 100)})
    plan = stats.Median("x", within=3, max_epsilon=5).plan(data)
    sealed = plan.measure(data)
    bills = [float(plan.climb(sealed, SeededBits(seed)).receipt.bill.epsilon) for seed in range(9)]

    assert 0.6 < float(forecast_bill(plan, rows)) / statistics.median(bills) < 1.7
    quote = Session(data, 10).price("median", "x", within=3, expect=rows)
    assert "spread evenly between the bounds" in str(quote)
    with pytest.raises(InvalidRequest, match="only a number of rows"):
        Session(data, 10).price("median", "x", within=3, expect={"rows": rows, "mean": 3})


def test_a_deviation_is_forecast_for_a_usual_spread_and_says_so() -> None:
    quote = Session(described(), 10).price("std", "pay", within="10%", expect=5000)

    assert quote.likely is not None and "a quarter of their width" in str(quote)


def test_a_list_of_guesses_is_answered_with_a_mapping() -> None:
    with pytest.raises(InvalidRequest, match="one for each group"):
        Session(described(), 10).price("count", within="5%", by="site", expect=[1, 2, 3, 4])
