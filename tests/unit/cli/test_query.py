import json

import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import expost
from expost.cli import app
from expost.experiments.generated import generated_flights


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
        ["median", "arr_delay", "--bounds", "arr_delay=-60:300", "--epsilon", "1"],
        ["quantiles", "hour", "--share", "0.1", "--share", "0.9", "--bounds", "hour=0:24", "--epsilon", "1"],
    ],
)
def test_a_question_is_answered_as_json(folder, words: list[str]) -> None:
    result = run(folder, "query", *words, "--budget", "100", "--json", ledger="many.ledger")

    data = json.loads(result.output)
    assert data["receipt"]["bill"]["definition"] == "pure"
    assert data["value"] is not None


def test_people_get_the_value_and_the_receipt(folder) -> None:
    result = run(folder, "query", "count", "--within", "100", "--budget", "1", ledger="people.ledger")

    assert "absolute error <= 100" in result.output
    assert "sure after" in result.output


def test_a_picture_is_drawn(folder) -> None:
    picture = folder / "count.png"

    run(folder, "query", "count", "--within", "10%", "--budget", "1", "--plot", str(picture), ledger="plot.ledger")

    assert picture.read_bytes().startswith(b"\x89PNG")


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
    with pytest.raises(expost.InvalidRequest, match=r"^Expected "):
        run(folder, "query", *words, "--budget", "1", ledger="bad.ledger")


def test_a_model_is_fitted_and_saved(folder) -> None:
    words = ["--target", "arr_delay", "--target-bound", "300", "--feature", "dep_delay=-40:300", "--rows", "5000"]
    model = folder / "model.json"

    result = run(
        folder, "fit", *words, "--excess-risk", "5000", "--budget", "1", "--output", str(model), ledger="fit.ledger"
    )

    assert "model written" in result.output
    assert expost.load_model(model).coef_.shape == (1,)
    assert expost.open_ledger(folder / "fit.ledger").spent("dataset:flights").epsilon > 0
