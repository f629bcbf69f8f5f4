import datetime
import json
import subprocess
import sys
from fractions import Fraction

import pandas
import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import expost
from expost.cli import app
from expost.cli.console import round_to_interval
from expost.experiments.experiment_data import generated_flights


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("flights")
    pyarrow.parquet.write_table(generated_flights(5_000), path / "flights.parquet")
    return path


def run(folder, command: str, *words: str, ledger: str):
    where = ["--ledger", str(folder / ledger)]
    return CliRunner().invoke(app, [command, str(folder / "flights.parquet"), *words, *where], catch_exceptions=False)


@pytest.mark.parametrize(
    "words",
    [
        ["count", "--within", "10%", "--by", "origin", "--categories", "origin=EWR,JFK,LGA"],
        ["count", "--epsilon", "0.1", "--where", "hour >= 12"],
        ["mean", "arr_delay", "--bounds", "arr_delay=-60:300", "--within", "20", "--max-epsilon", "2"],
        ["sum", "distance", "--bounds", "distance=0:5000", "--epsilon", "0.1"],
        ["histogram", "hour", "--edge", "0", "--edge", "12", "--edge", "24", "--epsilon", "0.1"],
        ["top-k", "carrier", "-k", "2", "--categories", "carrier=AA,B6,DL", "--epsilon", "1"],
        ["top-k", "carrier", "2", "--categories", "carrier=AA,B6,DL", "--epsilon", "1"],
        ["quantile", "hour", "0.9", "--bounds", "hour=0:24", "--epsilon", "1"],
        ["covariance", "hour", "distance", "--bounds", "hour=0:24", "--bounds", "distance=0:5000", "--epsilon", "1"],
        ["median", "arr_delay", "--bounds", "arr_delay=-60:300", "--epsilon", "1"],
        [
            "mean",
            "hour",
            "--weight",
            "distance",
            "--bounds",
            "hour=0:24",
            "--bounds",
            "distance=0:5000",
            "--epsilon",
            "1",
        ],
        ["cumulative", "hour", "--bins", "4", "--bounds", "hour=0:24", "--within", "900"],
        ["moving", "hour", "2", "--bins", "4", "--bounds", "hour=0:24", "--epsilon", "1"],
        ["count", "--epsilon", "1", "--by", "bin(hour, 4)", "--bounds", "hour=0:24", "--where", "carrier like 'A%'"],
        ["quantiles", "hour", "--share", "0.1", "--share", "0.9", "--bounds", "hour=0:24", "--epsilon", "1"],
    ],
)
def test_a_question_is_answered_as_json(folder, words: list[str]) -> None:
    result = run(folder, "query", *words, "--budget", "100", "--json", ledger="many.ledger")

    data = json.loads(result.output)
    assert data["receipt"]["bill"]["definition"] == "pure"
    assert data["value"] is not None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["quantile", "hour", "high"], "share to be a number, got 'high'"),
        (["top-k", "carrier", "1.5"], "k to be a whole number, got '1.5'"),
        (["mode", "hour", "1"], "Expected a statistic, got 'mode'"),
    ],
)
def test_a_word_that_is_no_number_is_named(folder, words: list[str], sentence: str) -> None:
    with pytest.raises(expost.InvalidRequest, match=sentence):
        run(folder, "query", *words, "--epsilon", "1", "--budget", "100", ledger="words.ledger")


def test_rows_are_counted_by_periods_of_a_time_range(tmp_path) -> None:
    moments = [datetime.datetime(2013, 1, 1) + datetime.timedelta(days=day) for day in range(365)]
    pyarrow.parquet.write_table(pyarrow.table({"when": moments * 20}), tmp_path / "flights.parquet")
    words = ["count", "--by", "date_trunc('quarter', when)", "--epsilon", "5", "--budget", "9", "--json"]

    found = json.loads(run(tmp_path, "query", *words, "--bounds", "when=2013-01-01:2013-12-31", ledger="l").output)

    assert [row["value"] for row in found["value"]] == pytest.approx([1800, 1820, 1840, 1840], abs=20)
    with pytest.raises(expost.InvalidRequest, match="range of the time"):
        run(tmp_path, "query", *words, ledger="l")


def test_people_get_the_value_and_the_receipt(folder) -> None:
    result = run(folder, "query", "count", "--within", "100", "--budget", "1", ledger="people.ledger")

    assert "absolute error <= 100" in result.output
    assert "sure after" in result.output


def test_a_picture_is_drawn(folder) -> None:
    picture = folder / "count.png"

    run(folder, "query", "count", "--within", "10%", "--budget", "1", "--plot", str(picture), ledger="plot.ledger")

    assert picture.read_bytes().startswith(b"\x89PNG")


def test_private_keys_are_asked_for(folder) -> None:
    words = ["private-keys", "origin", "--epsilon", "5", "--delta", "1e-6", "--budget", "20", "--budget-delta", "1e-3"]

    found = json.loads(run(folder, "query", *words, "--json", ledger="keys.ledger").output)

    assert found["value"] == ["EWR", "JFK", "LGA"]
    pairs = json.loads(
        run(folder, "query", "private-keys", "origin", "carrier", *words[2:], "--json", ledger="keys.ledger").output
    )
    assert ["EWR", "AA"] in pairs["value"]
    price = json.loads(run(folder, "price", *words, "--json", ledger="keys.ledger").output)
    assert price["worst_case"]["epsilon"] == "5"
    with pytest.raises(expost.InvalidRequest, match="confidence"):  # it has no interval
        run(folder, "query", *words, "--confidence", "0.9", ledger="keys.ledger")


def test_an_interval_is_as_sure_as_it_is_asked_to_be(folder) -> None:
    words = ["count", "--epsilon", "0.1", "--budget", "20", "--json"]
    sure = [["--confidence", "0.999"], [], ["--confidence", "0.95"]]

    receipts = [
        json.loads(run(folder, "query", *words, *more, ledger=f"sure{place}.ledger").output)["receipt"]
        for place, more in enumerate(sure)
    ]
    reached = [receipt["accuracy"] if "accuracy" in receipt else receipt["achieved"] for receipt in receipts]
    assert reached[0] != reached[1] == reached[2]


@pytest.mark.parametrize(
    ("column", "typed", "keys"),
    [
        ("hour", "10,11,12", [10, 11, 12]),
        ("arr_delay", "-3,0.0,2.5", [-3, 0.0, 2.5]),
        ("late", "true,False", [True, False]),
        ("carrier", "AA,1,B6", ["AA", "1", "B6"]),
        ("day", "2013-01-07,2013-01-08", ["2013-01-07 00:00:00", "2013-01-08 00:00:00"]),
    ],
)
def test_categories_are_typed_as_the_column_has_them(folder, column: str, typed: str, keys: list[object]) -> None:
    table = generated_flights(200)
    more = {
        "late": pyarrow.array([k % 2 == 0 for k in range(200)]),
        "day": pyarrow.array([datetime.datetime(2013, 1, 7 + k % 3) for k in range(200)]),
    }
    for name, values in more.items():
        table = table.append_column(name, values)
    source = folder / "typed.parquet"
    pyarrow.parquet.write_table(table, source)
    words = ["query", str(source), "count", "--by", column, "--categories", f"{column}={typed}", "--epsilon", "1"]
    money = ["--budget", "100", "--json", "--ledger", str(folder / "typed.ledger")]

    found = json.loads(CliRunner().invoke(app, [*words, *money], catch_exceptions=False).output)

    assert [row[column] for row in found["value"]] == keys


@pytest.mark.parametrize("typed", ["1,x", "1e400", "9" * 5000, "nan,1", "true"])
def test_categories_of_another_kind_are_refused_in_the_words_of_the_command_line(folder, typed: str) -> None:
    words = ["count", "--by", "hour", "--categories", f"hour={typed}", "--epsilon", "1", "--budget", "1"]
    with pytest.raises(expost.InvalidRequest, match=r"hour, which holds integer values|hour of the kind integer"):
        run(folder, "query", *words, ledger="bad.ledger")


@pytest.mark.parametrize("spelled", ["9" * 5000, "-" + "9" * 5000, "1e400"])
def test_a_number_beyond_all_measure_is_a_typed_error(folder, spelled: str) -> None:
    with pytest.raises(expost.InvalidRequest, match="64-bit floats hold exactly") as refusal:
        run(
            folder,
            "query",
            "count",
            "--where",
            f"hour > {spelled}",
            "--epsilon",
            "1",
            "--budget",
            "1",
            ledger="b.ledger",
        )
    assert len(str(refusal.value)) < 300


def test_a_price_costs_nothing(folder) -> None:
    result = run(folder, "price", "count", "--epsilon", "0.5", "--budget", "1", "--json", ledger="price.ledger")

    assert json.loads(result.output)["worst_case"] == {"definition": "pure", "epsilon": "1/2"}
    assert expost.open_ledger(folder / "price.ledger").spent("dataset:flights").epsilon == 0


@pytest.mark.parametrize(
    "words",
    [
        ["mode"],
        ["count"],
        ["count", "--within", "many"],
        ["mean", "--within", "1"],
        ["mean", "altitude", "--within", "1"],
        ["mean", "arr_delay", "--within", "1"],
        ["mean", "arr_delay", "--bounds", "arr_delay", "--within", "1"],
        ["count", "--categories", "origin", "--within", "1"],
        ["count", "--where", "1 = (select 1)", "--within", "100"],
    ],
)
def test_bad_input_is_a_typed_error(folder, words: list[str]) -> None:
    with pytest.raises(expost.InvalidRequest, match=r"^(Expected |Mean\(\) cannot be called)"):
        run(folder, "query", *words, "--budget", "1", ledger="bad.ledger")


def test_a_model_is_fitted_and_saved(folder) -> None:
    words = ["--target", "arr_delay", "--target-bounds", "300", "--feature", "dep_delay=-40:300", "--rows", "5000"]
    model = folder / "model.json"

    result = run(
        folder,
        "fit",
        *words,
        "--excess-risk",
        "5000",
        "--max-epsilon",
        "1",
        "--budget",
        "1",
        "--output",
        str(model),
        ledger="fit.ledger",
    )

    assert "model written" in result.output
    assert expost.load_model(model).coef_.shape == (1,)
    assert expost.open_ledger(folder / "fit.ledger").spent("dataset:flights").epsilon > 0


DELAY = ["--target", "arr_delay", "--feature", "dep_delay=-40:300", "--rows", "5000", "--epsilon", "2"]
ORIGIN = ["--target", "origin", "--feature", "distance=0:5000", "--rows", "5000", "--epsilon", "2"]


@pytest.mark.parametrize(
    ("words", "predicted"),
    [
        ([*DELAY, "--target-bounds", "300", "--model", "sgd-regressor"], float),
        (
            [*DELAY, "--target-bounds", "300", "--model", "sgd-regressor", "--solver", "newton", "--delta", "1e-7"],
            float,
        ),
        ([*ORIGIN, "--model", "sgd-classifier", "--classes", "EWR,JFK,LGA"], str),
    ],
    ids=["regression", "newton", "three classes"],
)
def test_a_model_of_gradient_descent_is_fitted_and_saved(folder, tmp_path, words: list[str], predicted: type) -> None:
    where = f"{tmp_path.name}.ledger"

    result = run(folder, "fit", *words, "--budget", "3", "--output", str(tmp_path / "m.json"), "--json", ledger=where)

    receipt = json.loads(result.output)["receipt"]
    model = expost.load_model(tmp_path / "m.json")
    named = pandas.DataFrame([[100.0]], columns=[words[3].partition("=")[0]])
    assert isinstance(model.predict(named).tolist()[0], predicted)
    assert model.receipt_.to_dict() == receipt
    assert receipt["adjacency"] == "add-remove"
    with expost.open_ledger(folder / where) as book:
        # Steps are added up at Renyi orders: a little above the price of this training alone, and half of the delta.
        assert 0 < book.spent("dataset:flights").epsilon <= 2.5
        assert book.budget("dataset:flights").delta == 2 * book.spent("dataset:flights").delta


def test_the_price_of_gradient_descent_costs_nothing(folder) -> None:
    words = [*ORIGIN, "--model", "sgd-classifier", "--classes", "EWR,JFK,LGA", "--price", "--json"]

    result = run(folder, "fit", *words, "--budget", "3", ledger="descent-price.ledger")

    assert json.loads(result.stdout)["worst_case"]["definition"] == "approx"
    assert expost.open_ledger(folder / "descent-price.ledger").spent("dataset:flights").epsilon == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            [*DELAY, "--model", "sgd"],
            "--model classifier, regressor, ridge, logistic, huber-svm, sgd-classifier or sgd-regressor",
        ),
        ([*DELAY, "--model", "sgd-regressor", "--excess-risk", "1"], "--excess-risk does not apply"),
        ([*DELAY, "--model", "sgd-regressor", "--method", "auto"], "--method does not apply"),
        ([*DELAY, "--model", "ridge", "--solver", "newton"], "--solver does not apply"),
        ([*ORIGIN, "--model", "sgd-classifier"], "--classes a,b,..."),
        ([*ORIGIN, "--model", "sgd-classifier", "--classes", "EWR"], "--classes a,b,..."),
        ([*ORIGIN, "--model", "sgd-classifier", "--classes", "EWR,JFK", "--score", "accuracy"], "--score"),
        ([*ORIGIN, "--model", "logistic", "--classes", "EWR,JFK,LGA"], "--classes negative,positive"),
        (
            [*DELAY, "--model", "sgd-regressor", "--target-bounds", "300", "--solver", "magic"],
            "solver to be gradient or newton",
        ),
        ([*DELAY, "--model", "sgd-regressor", "--target-bounds", "300", "--delta", "0"], "delta > 0"),
        ([*DELAY, "--model", "sgd-regressor", "--target-bounds", "nan"], "target_bounds"),
        ([*DELAY, "--model", "sgd-regressor"], "--target-bounds LOW:HIGH"),
        ([*DELAY, "--model", "ridge", "--epsilon", "1"], "--target-bounds LOW:HIGH"),
    ],
)
def test_options_that_describe_no_model_cost_nothing(folder, tmp_path, words: list[str], said: str) -> None:
    where = f"{tmp_path.name}.ledger"

    with pytest.raises(expost.InvalidRequest) as caught:
        run(folder, "fit", *words, "--budget", "3", "--output", str(tmp_path / "m.json"), ledger=where)

    assert said in str(caught.value)
    assert not (tmp_path / "m.json").exists()
    if (folder / where).exists():
        assert expost.open_ledger(folder / where).spent("dataset:flights").epsilon == 0


# Parts, windows, descriptions


DESCRIPTION = """
source = "flights.parquet"
[unit]
column = "tailnum"
max_rows_per_unit = 50
[bounds]
arr_delay = [-60, 300]
[categories]
origin = ["EWR", "JFK", "LGA"]
"""


@pytest.fixture
def described(folder, tmp_path):
    (tmp_path / "flights.parquet").write_bytes((folder / "flights.parquet").read_bytes())
    (tmp_path / "flights.toml").write_text(DESCRIPTION, encoding="utf-8")
    return tmp_path


def test_a_description_beside_the_data_is_used_so_that_the_question_is_short(described) -> None:
    words = ["count", "--by", "origin", "--within", "50%", "--max-epsilon", "1", "--unit", "tailnum", "--budget", "1"]

    result = run(described, "query", *words, "--json", ledger="flights.ledger")

    data = json.loads(result.stdout)
    assert [row["origin"] for row in data["value"]] == ["EWR", "JFK", "LGA"]
    assert data["receipt"]["unit"]["column"] == "tailnum"
    assert "described by" in result.stderr


def test_what_is_typed_comes_before_what_is_described(described) -> None:
    words = [
        "count",
        "--by",
        "origin",
        "--categories",
        "origin=EWR,JFK",
        "--epsilon",
        "0.1",
        "--unit",
        "row",
        "--budget",
        "1",
    ]

    with pytest.raises(expost.InvalidRequest, match="limits per unit only with an id column"):
        run(described, "query", *words, ledger="flights.ledger")
    (described / "flights.toml").write_text(DESCRIPTION.replace("max_rows_per_unit = 50", ""), encoding="utf-8")
    data = json.loads(run(described, "query", *words, "--json", ledger="flights.ledger").stdout)

    assert [row["origin"] for row in data["value"]] == ["EWR", "JFK"]
    assert data["receipt"]["unit"]["column"] is None


def test_a_description_of_another_file_is_left_alone(described) -> None:
    (described / "flights.toml").write_text('source = "other.parquet"', encoding="utf-8")

    data = json.loads(run(described, "query", "count", "--epsilon", "1", "--budget", "1", "--json", ledger="l").stdout)

    assert data["receipt"]["unit"]["column"] is None


def test_parts_are_charged_apart(folder) -> None:
    for origin in ("EWR", "JFK"):
        words = ["--categories", "origin=EWR,JFK", "--part", f"origin={origin}", "--epsilon", "0.25", "--budget", "1"]
        data = json.loads(run(folder, "query", "count", *words, "--json", ledger="parts.ledger").stdout)
        assert data["receipt"]["question"] == f"count of rows in origin={origin}"

    with expost.open_ledger(folder / "parts.ledger") as ledger:
        assert ledger.spent("dataset:flights") == expost.core.PureLoss(0.25)
        assert ledger.parts("dataset:flights") == ["dataset:flights/origin=EWR", "dataset:flights/origin=JFK"]


def test_a_part_by_a_number_is_typed_as_the_number(described) -> None:
    (described / "flights.toml").write_text(
        'source = "flights.parquet"\n[categories]\nmonth = [1, 2]', encoding="utf-8"
    )
    words = ["--part", "month=2", "--epsilon", "1", "--budget", "1", "--json"]

    data = json.loads(run(described, "query", "count", *words, ledger="l").stdout)

    assert data["receipt"]["question"] == "count of rows in month=2"


def test_windows_are_charged_apart(tmp_path) -> None:
    days = [datetime.datetime(2013, 1, 1 + index % 28) for index in range(2800)]
    table = pyarrow.table({"who": list(range(280)) * 10, "when": pyarrow.array(days, pyarrow.timestamp("us"))})
    pyarrow.parquet.write_table(table, tmp_path / "flights.parquet")
    unit = [
        "--unit",
        "who",
        "--per",
        "week",
        "--time",
        "when",
        "--max-rows-per-unit",
        "7",
        "--budget",
        "1",
        "--epsilon",
        "0.5",
        "--json",
    ]

    for window in ("2013-01-09", "2013-01-14:2013-01-21"):
        run(tmp_path, "query", "count", "--window", window, *unit, ledger="l")
    price = json.loads(run(tmp_path, "price", "count", "--window", "2013-01-09", *unit, ledger="l").stdout)

    assert price["question"] == "count of rows in week=2013-01-07"
    assert expost.open_ledger(tmp_path / "l").spent("dataset:flights") == expost.core.PureLoss(0.5)


# Nothing is paid for what could not be shown


@pytest.mark.parametrize("picture", ["/no/such/folder/a.png", "a.xyz"])
def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_paid(folder, picture) -> None:
    with pytest.raises(expost.InvalidRequest, match="Expected a file"):
        run(folder, "query", "count", "--epsilon", "1", "--budget", "1", "--plot", picture, ledger="unpaid.ledger")

    assert not (folder / "unpaid.ledger").exists()


def test_a_model_is_priced_without_being_fitted(folder) -> None:
    words = ["--target", "arr_delay", "--target-bounds", "300", "--feature", "dep_delay=-40:300", "--rows", "5000"]

    result = run(
        folder, "fit", *words, "--excess-risk", "5000", "--budget", "1", "--price", "--json", ledger="quote.ledger"
    )

    assert json.loads(result.stdout)["worst_case"]["definition"] == "pure"
    assert expost.open_ledger(folder / "quote.ledger").spent("dataset:flights").epsilon == 0


def test_a_model_that_cannot_be_written_is_not_fitted(folder) -> None:
    words = ["--target", "arr_delay", "--feature", "dep_delay=-40:300", "--rows", "5000", "--excess-risk", "5000"]
    words += ["--target-bounds", "300"]

    with pytest.raises(expost.InvalidRequest, match="can be written"):
        run(folder, "fit", *words, "--budget", "1", "--output", "/no/such/folder/m.json", ledger="unfitted.ledger")
    assert not (folder / "unfitted.ledger").exists()


def test_a_fit_does_not_weaken_the_described_unit(described) -> None:
    words = ["--target", "arr_delay", "--feature", "dep_delay=-40:300", "--rows", "5000", "--excess-risk", "5000"]
    words += ["--target-bounds", "300"]

    with pytest.raises(expost.InvalidRequest, match="this fit protects rows"):
        run(described, "fit", *words, "--budget", "1", ledger="fit.ledger")


def test_a_broken_data_file_is_a_typed_error_without_its_content(tmp_path) -> None:
    (tmp_path / "flights.parquet").write_text("secret of ann")

    with pytest.raises(expost.InvalidRequest, match="can be read") as caught:
        run(tmp_path, "query", "count", "--epsilon", "1", "--budget", "1", ledger="l")
    assert "ann" not in str(caught.value)


def test_neighbours_are_chosen_on_the_command_line_and_charged_to_one_account(folder) -> None:
    words = ["sum", "distance", "--bounds", "distance=0:1000", "--epsilon", "0.25", "--budget", "1", "--json"]
    replaced = ["--adjacency", "replace-one", "--rows", "5000"]

    usual, other = (
        json.loads(run(folder, "query", *words, *more, ledger="neighbours.ledger").output)["receipt"]
        for more in ([], replaced)
    )

    assert (usual["adjacency"], other["adjacency"]) == ("add-remove", "replace-one")
    with expost.open_ledger(folder / "neighbours.ledger") as book:
        assert {name: book.spent(name).epsilon for name in book.accounts()} == {"dataset:flights": Fraction(3, 4)}
    assert "0.25 spent before counts as epsilon 0.5" in other["account_note"] and "account_note" not in usual
    asked = ["count", "--where", "hour > 12", "--epsilon", "0.125"]
    priced = run(folder, "price", *asked, ledger="neighbours.ledger")
    assert "counted as at most epsilon 0.25, because this account counts replaced rows" in " ".join(
        priced.output.split()
    )
    for wrong in (["--adjacency", "replace-one"], ["--adjacency", "nearby"], [*replaced[:3], "0"]):
        with pytest.raises(expost.InvalidRequest, match=r"public number of rows|adjacency to be|rows to be"):
            run(folder, "query", *words, *wrong, ledger="neighbours.ledger")


def test_a_question_with_the_described_neighbours_stays_in_the_account_of_the_table(tmp_path) -> None:
    pyarrow.parquet.write_table(generated_flights(500), tmp_path / "flights.parquet")
    (tmp_path / "flights.toml").write_text(
        'source = "flights.parquet"\nname = "flights"\nadjacency = "replace-one"\nrows = 500\n', encoding="utf-8"
    )
    for more in ([], ["--adjacency", "replace-one"], ["--adjacency", "add-remove"]):
        run(tmp_path, "query", "count", "--where", "hour > 12", "--epsilon", "0.25", "--budget", "1", *more, ledger="l")

    with expost.open_ledger(tmp_path / "l") as book:
        # Two questions about replaced rows, and one about added and removed ones, which counts twice.
        assert {name: book.spent(name).epsilon for name in book.accounts()} == {"dataset:flights": Fraction(1)}


def test_a_picture_that_cannot_be_drawn_does_not_call_a_paid_answer_free(folder, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("expost.plots.figure.write_file", full)
    words = ["count", "--within", "10%", "--budget", "1", "--plot", str(folder / "climb.png")]
    result = run(folder, "query", *words, ledger="picture.ledger")

    assert result.exit_code == 2 and "question  count of rows" in result.output
    assert "no picture: Expected a file that can be written" in result.output
    assert "nothing spent" not in result.output


def test_a_misspelt_statistic_opens_no_account(folder) -> None:
    with pytest.raises(expost.InvalidRequest, match="Did you mean 'count'"):
        run(folder, "query", "cuont", "--within", "100", "--budget", "1", ledger="misspelt.ledger")

    assert not (folder / "misspelt.ledger").exists()


def test_an_interval_without_limits_is_valid_json(folder) -> None:
    words = ["ratio", "hour", "distance", "--bounds", "hour=0:24", "--bounds", "distance=0:5000", "--epsilon", "1e-6"]
    result = run(folder, "query", *words, "--budget", "100", "--json", ledger="many.ledger")

    assert json.loads(result.output, parse_constant=pytest.fail)["interval"] == [None, None]


def test_a_question_imports_neither_pandas_nor_scipy(folder) -> None:
    words = ["query", str(folder / "flights.parquet"), "count", "--within", "100", "--budget", "5"]
    program = (
        "import sys\n"
        f"sys.argv = ['expost', *{[*words, '--ledger', str(folder / 'lean.ledger')]!r}]\n"
        "from expost.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('pandas', 'scipy.special', 'scipy.optimize', 'sklearn') if name in sys.modules])\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert found.stdout.splitlines()[-1] == "[]"


def test_the_format_of_a_text_file_is_declared_by_options(tmp_path) -> None:
    (tmp_path / "people.csv").write_bytes(
        "größe;wann\n1,5;31/12/2023\n2,5;01/01/2024\n-9;01/01/2024\n".encode("latin-1")
    )
    words = ["query", str(tmp_path / "people.csv"), "count", "--where", '"größe" >= 1.5 and year(wann) = 2024']
    words += ["--separator", ";", "--decimal", ",", "--encoding", "latin-1", "--missing", "-9", "--type", "größe=real"]
    words += ["--type", "wann=time:%d/%m/%Y", "--epsilon", "40", "--budget", "100", "--json"]
    assert json.loads(CliRunner().invoke(app, words, catch_exceptions=False).output)["value"] == 1

    (tmp_path / "fixed.txt").write_text(" 7Rome\n41Oslo\n", encoding="utf-8")
    words = ["query", str(tmp_path / "fixed.txt"), "count", "--where", "age > 40", "--type", "age=integer"]
    words += ["--width", "age=2", "--width", "city=4", "--epsilon", "40", "--budget", "100", "--json"]
    assert json.loads(CliRunner().invoke(app, words, catch_exceptions=False).output)["value"] == 1

    for option in (["--width", "age"], ["--width", "age=x"], ["--type", "age"]):
        with pytest.raises(expost.InvalidRequest, match="Expected --"):
            CliRunner().invoke(app, [*words[:6], *option], catch_exceptions=False)


def test_a_template_of_a_csv_file_has_guessed_types(tmp_path) -> None:
    (tmp_path / "people.csv").write_text("age,city,day\n41,Rome,2023-01-01\nNA,Oslo,\n", encoding="utf-8")

    CliRunner().invoke(app, ["describe", "init", str(tmp_path / "people.csv")], catch_exceptions=False)

    text = (tmp_path / "people.toml").read_text()
    assert '"age" = "integer"' in text and '"city" = "text"' in text and '"day" = "time"' in text


def test_limits_on_rows_per_group_are_options_and_facts_of_a_description(tmp_path) -> None:
    rows = {"id": [1] * 9 + [2] * 3, "city": ["a"] * 6 + ["b"] * 6}
    pyarrow.parquet.write_table(pyarrow.table(rows), tmp_path / "visits.parquet")
    lines = [
        'source = "visits.parquet"',
        "[unit]",
        'column = "id"',
        "max_groups_per_unit = 2",
        "max_rows_per_group = 2",
    ]
    (tmp_path / "visits.toml").write_text("\n".join([*lines, "[categories]", 'city = ["a", "b"]']))
    words = ["query", str(tmp_path / "visits.parquet"), "count", "--by", "city", "--epsilon", "90", "--budget", "900"]

    for option, expected in ([], [2, 4]), (["--max-rows-per-group", "1"], [1, 2]):
        ledger = ["--ledger", str(tmp_path / f"{len(option)}.ledger")]
        result = CliRunner().invoke(app, [*words, *option, *ledger, "--json"], catch_exceptions=False)
        shown = json.loads(result.output[result.output.index("{") :])["value"]
        assert [each["value"] for each in shown] == expected


def test_a_number_is_printed_with_the_digits_that_its_interval_leaves():
    assert round_to_interval(7.807056329, (-60.00017166, 75.61428432)) == ["7.8", "-60.0", "75.6"]
    assert round_to_interval(123456789.123, (123456780.5, 123456799.5)) == [
        "123456789.12",
        "123456780.50",
        "123456799.50",
    ]
    assert round_to_interval(41, (38, 44)) == ["41", "38", "44"]
    assert round_to_interval(0.5, (0.5, 0.5)) == ["0.5", "0.5", "0.5"]
    assert round_to_interval(1.5, (float("-inf"), 2.5)) == ["1.5", "-inf", "2.5"]
    days = (datetime.date(2024, 1, 1), datetime.date(2024, 2, 1))
    assert round_to_interval(days[0], days) == ["2024-01-01", "2024-01-01", "2024-02-01"]
