"""``expost fit`` beside other commands."""

import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import expost
from expost.cli import app
from expost.experiments.experiment_data import generated_flights

MODEL = ["--target", "arr_delay", "--target-bounds", "300", "--rows", "2000", "--epsilon", "0.5"]
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
