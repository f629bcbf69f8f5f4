"""A description supplies bounds, classes, types and the unit once, for tables in files and in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.model_selection import cross_val_score

import expost
from expost.core import InvalidRequest
from expost.data import Dataset
from expost.models.tabular.tabular_source import table_dataset

ROWS = 3000
DESCRIPTION = """
source = "visits/*.parquet"
[unit]
column = "patient"
max_rows_per_unit = 10
[bounds]
age = [0, 100]
stay = [0, 12]
admitted = ["2021-01-01", "2022-12-31"]
[categories]
ward = ["heart", "bone"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "visits").mkdir()
    table().iloc[::2].to_parquet(tmp_path / "visits" / "a.parquet")
    table().iloc[1::2].to_parquet(tmp_path / "visits" / "b.parquet")
    (tmp_path / "visits.toml").write_text(DESCRIPTION)
    return tmp_path


def table() -> Any:
    random = np.random.default_rng(0)
    age, ward = random.integers(0, 100, ROWS), random.choice(["heart", "bone"], ROWS)
    return pandas.DataFrame(
        {
            "patient": np.arange(ROWS) // 3,
            "age": age,
            "ward": ward,
            "admitted": pandas.Timestamp("2021-01-01") + pandas.to_timedelta(random.integers(0, 700, ROWS), unit="D"),
            "stay": age / 10 + 2 * (ward == "heart"),
        }
    )


def regressor(**terms: Any) -> expost.Regressor:
    return expost.Regressor(epsilon=1, simulation_seed=1, **terms)


def test_a_description_supplies_the_bounds_of_the_target_and_the_unit(folder: Path) -> None:
    path = str(folder / "visits.toml")
    named = regressor(columns=path, unit="patient", max_rows_per_unit=10)
    fits = [
        named.fit(str(folder / "visits/*.parquet"), target="stay"),
        regressor(columns=path).fit(table(), target="stay"),
        regressor(columns=path).fit(table().drop(columns="stay"), table()["stay"]),
        regressor(columns=path).fit(Dataset(table(), name="visits"), target="stay"),
        regressor().fit(path, target="stay"),
    ]

    for model in fits:
        assert str(model.receipt_.unit) == "all rows of one patient"
        assert model.receipt_.terms["target bounds"] == [0, 12]
        assert model.receipt_.terms["rows per unit, at most"] == 10
        assert set(model.encoder_.names_in) == {"age", "ward", "admitted"}


def test_a_description_supplies_classes_formulas_and_the_format_of_a_text_file(folder: Path) -> None:
    table().to_csv(folder / "visits.csv", index=False, sep=";", decimal=",")
    text = DESCRIPTION.replace('source = "visits/*.parquet"', 'source = "visits.csv"\nseparator = ";"\ndecimal = ","')
    (folder / "text.toml").write_text(text + '[types]\npatient = "integer"\n[derive]\nold = "age > 65"\n')
    path = str(folder / "text.toml")

    found, _ = table_dataset(str(folder / "visits.csv"), "ward", columns=path, classes=["heart", "bone"])
    wards = expost.Classifier(epsilon=1, columns=path).fit(str(folder / "visits.csv"), target="ward")
    old = expost.Classifier(epsilon=1, columns=path).fit(table(), target="old")
    stays = [stay for batch in found.batches(["stay"]) for stay in batch.column(0).to_pylist()]
    assert sorted(stays) == pytest.approx(sorted(table()["stay"]))
    assert wards.classes_.tolist() == ["heart", "bone"] and old.classes_.tolist() == [False, True]


def test_another_unit_than_that_of_the_description_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidRequest, match="unit of the description, patient"):
        regressor(columns=str(folder / "visits.toml"), unit="ward").fit(table(), target="stay")


def test_the_range_of_a_time_column_of_a_dataset_is_the_window_of_a_date() -> None:
    dataset = Dataset(table(), bounds={"admitted": ("2021-01-01", "2022-12-31"), "age": (0, 100), "stay": (0, 12)})
    model = regressor(columns={"admitted": None, "age": None}).fit(dataset, target="stay")

    assert model.encoder_.names_out[:2] == ("admitted", "admitted=month sine")


def test_a_named_column_of_targets_is_declared_among_the_columns() -> None:
    rows, stays = table().drop(columns="stay"), table()["stay"]
    columns = {"age": (0, 100), "ward": ["heart", "bone"], "stay": (0, 12)}

    assert regressor(columns=columns).fit(rows, stays).receipt_.terms["target column"] == "stay"
    assert (cross_val_score(regressor(columns=columns), rows, stays, cv=3) > 0.5).all()
    model = expost.Classifier(epsilon=1, columns=columns).fit(table().drop(columns="ward"), table()["ward"])
    assert model.classes_.tolist() == ["heart", "bone"] and model.encoder_.names_in == ("age", "stay")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('source = "a"\nmax_rows_per_unit = 3', r"\[unit\], and below it"),
        ('source = "a"\nboundz = 3', "Did you mean 'bounds'"),
        ('source = "a" b', "line 1"),
    ],
)
def test_a_wrong_description_says_where_it_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "wrong.toml").write_text(text)

    with pytest.raises(InvalidRequest, match=said):
        regressor(columns=str(tmp_path / "wrong.toml")).fit(table(), target="stay")
