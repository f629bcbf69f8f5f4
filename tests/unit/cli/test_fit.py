"""``expost fit`` beside other commands."""

import json

import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import expost
from expost.cli import app
from expost.experiments.experiment_data import generated_flights

MODEL = ["--model", "ridge", "--target", "arr_delay", "--target-bounds", "300", "--rows", "2000", "--epsilon", "0.5"]
FEATURE = ["--feature", "dep_delay=-40:300"]


@pytest.fixture
def folder(tmp_path):
    pyarrow.parquet.write_table(generated_flights(2_000), tmp_path / "flights.parquet")
    return tmp_path


def run(folder, command: str, *words: str):
    extra = ["--output", str(folder / "model.json")] if command == "fit" else []
    source = str(folder / "flights.parquet")
    return CliRunner().invoke(app, [command, source, *words, *extra, "--budget", "1"], catch_exceptions=False)


@pytest.mark.parametrize("first", ["fit", "query"])
def test_models_and_queries_share_an_account_whichever_comes_first(folder, first: str) -> None:
    words = {"fit": [*MODEL, *FEATURE], "query": ["count", "--epsilon", "0.25"]}
    for command in sorted(words, reverse=first == "query"):
        run(folder, command, *words[command])

    with expost.open_ledger(folder / "flights.ledger") as book:
        assert book.accounts() == ["dataset:flights"]
        assert float(book.spent("dataset:flights").epsilon) == 2 * 0.25 + 0.5
        assert book.counts("dataset:flights") is expost.Adjacency.REPLACE_ONE
        assert book.verify().entries == len(book.history())


def test_a_table_described_with_replaced_rows_has_one_account_for_all(folder) -> None:
    (folder / "flights.toml").write_text(
        'source = "flights.parquet"\nname = "flights"\nadjacency = "replace-one"\nrows = 2000\n', encoding="utf-8"
    )
    run(folder, "fit", *MODEL, *FEATURE)
    run(folder, "query", "count", "--where", "hour > 12", "--epsilon", "0.25")

    with expost.open_ledger(folder / "flights.ledger") as book:
        assert book.accounts() == ["dataset:flights"]
        assert float(book.spent("dataset:flights").epsilon) == 0.75


def test_a_repeated_feature_is_refused_and_costs_nothing(folder) -> None:
    with pytest.raises(expost.InvalidRequest, match="each feature once"):
        run(folder, "fit", *MODEL, *FEATURE, "--feature", "dep_delay=0:50")
    assert not (folder / "flights.ledger").exists()


@pytest.mark.parametrize("kept", ["flights.parquet", "flights.ledger", "flights.toml"])
def test_a_model_replaces_no_data_and_no_ledger(folder, kept: str) -> None:
    run(folder, "query", "count", "--epsilon", "0.25")
    (folder / "flights.toml").write_text('source = "flights.parquet"\nname = "flights"\n', encoding="utf-8")
    before = (folder / kept).read_bytes()

    with pytest.raises(expost.InvalidRequest, match="one that this command wrote"):
        words = ["fit", str(folder / "flights.parquet"), *MODEL, *FEATURE, "--output", str(folder / kept)]
        CliRunner().invoke(app, words, catch_exceptions=False)

    assert (folder / kept).read_bytes() == before
    for _ in range(2):
        run(folder, "fit", *MODEL[:-1], "0.2", *FEATURE)
    assert (folder / "model.json").read_text().startswith("{")


@pytest.mark.parametrize("ending", ["", ".head", "-wal"])
def test_a_model_does_not_replace_a_ledger_that_is_still_to_be_made(folder, ending: str) -> None:
    words = ["fit", str(folder / "flights.parquet"), *MODEL, *FEATURE, "--ledger", str(folder / "new.ledger")]

    with pytest.raises(expost.InvalidRequest, match="neither the data nor the ledger"):
        CliRunner().invoke(app, [*words, "--output", f"{folder}/./new.ledger{ending}"], catch_exceptions=False)

    assert not list(folder.glob("new.ledger*"))


def test_a_model_does_not_replace_data_by_another_name(folder) -> None:
    (folder / "people.csv").write_text("{age\n1\n", encoding="utf-8")
    (folder / "link.json").symlink_to(folder / "people.csv")
    (folder / "twin.json").hardlink_to(folder / "people.csv")

    for name in ("link.json", "twin.json", "people.csv"):
        with pytest.raises(expost.InvalidRequest, match="neither the data nor the ledger"):
            words = ["fit", str(folder / "people.csv"), *MODEL, *FEATURE, "--output", str(folder / name)]
            CliRunner().invoke(app, words, catch_exceptions=False)
    assert (folder / "people.csv").read_text() == "{age\n1\n"


DESCRIBED = """source = "people.csv"
[bounds]
age = [18, 80]
income = [0, 100]
[categories]
job = ["clerk", "nurse"]
member = ["no", "yes"]
"""


@pytest.fixture
def people(tmp_path):
    rows = [
        f"{18 + k % 60},{'nurse' if k % 3 else 'clerk'},{k % 60},{'yes' if k % 60 > 30 else 'no'}" for k in range(4000)
    ]
    (tmp_path / "people.csv").write_text("age,job,income,member\n" + "\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "people.toml").write_text(DESCRIBED, encoding="utf-8")
    return tmp_path


def fit_people(folder, *words: str):
    words = (
        "fit",
        str(folder / "people.toml"),
        *words,
        "--budget",
        "9",
        "--output",
        str(folder / "model.json"),
        "--json",
    )
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["--target", "member", "--score", "accuracy=0.7"], "Classifier"),
        (["--target", "member", "--epsilon", "1"], "Classifier"),
        (["--target", "income", "--epsilon", "1"], "Regressor"),
        (["--target", "income", "--score", "r2=0.5", "--feature", "age=18:80", "--feature", "job"], "Regressor"),
    ],
)
def test_a_described_table_is_fitted_without_other_options(people, words: list[str], kind: str) -> None:
    receipt = json.loads(fit_people(people, *words).stdout)["receipt"]

    assert receipt["question"] == f"train {kind}"
    with expost.open_ledger(people / "people.ledger") as book:
        assert book.counts("dataset:people") is expost.Adjacency.ADD_REMOVE


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "member", "--score", "accuracy=0.7", "--target-bounds", "1"], "--target-bounds does not apply"),
        (["--target", "income", "--score", "r2=0.7", "--solver", "newton"], "--solver does not apply"),
        (["--target", "income", "--excess-risk", "1"], "Expected --feature with --model ridge"),
        (["--target", "incme", "--score", "r2=0.7"], "Did you mean 'income'"),
        (["--target", "income", "--model", "regresor"], "Expected --model classifier, regressor"),
    ],
)
def test_options_that_do_not_fit_a_described_table_cost_nothing(people, words: list[str], message: str) -> None:
    with pytest.raises(expost.InvalidRequest, match=message):
        fit_people(people, *words)
    if (people / "people.ledger").exists():
        with expost.open_ledger(people / "people.ledger") as book:
            assert book.spent("dataset:people").epsilon == 0
