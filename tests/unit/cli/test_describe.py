import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import expost
from expost.cli import app

SECRET = 987_654


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "people.parquet"
    pa.parquet.write_table(pa.table({"age": [SECRET], "city": [str(SECRET)]}), path)
    return path


def run(*words: str):
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_a_template_names_columns_and_no_value(source) -> None:
    run("describe", "init", str(source))

    text = source.with_suffix(".toml").read_text()
    assert '"age"' in text
    assert '"city"' in text
    assert str(SECRET) not in text


def test_a_template_is_a_valid_description(source) -> None:
    run("describe", "init", str(source))

    result = run("describe", "check", str(source.with_suffix(".toml")))

    assert "people: protects one row" in result.output


def test_an_existing_description_is_not_overwritten(source) -> None:
    run("describe", "init", str(source))

    with pytest.raises(expost.InvalidRequest, match="new file"):
        run("describe", "init", str(source))


def test_the_data_are_not_overwritten_by_their_description(source) -> None:
    before = source.read_bytes()

    with pytest.raises(expost.InvalidRequest, match="neither the data nor the ledger"):
        run("describe", "init", str(source), "--output", str(source), "--force")
    assert source.read_bytes() == before


def test_a_file_that_is_no_text_is_no_description(source) -> None:
    with pytest.raises(expost.InvalidRequest, match="readable description"):
        run("describe", "check", str(source))
