"""A mixed table of people that comes with the package: the 1994 census extract known as "Adult".

Source: B. Becker and R. Kohavi, UCI Machine Learning Repository, "Adult", doi 10.24432/C5XW20, licence CC BY 4.0
(https://creativecommons.org/licenses/by/4.0/). Changed: both files are joined; the sampling weight, the country of birth and the number
that repeats the education are left out; "?" is a missing value.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["CENSUS_BOUNDS", "CENSUS_CATEGORIES", "CENSUS_FILE", "CENSUS_TARGET", "census_description", "census_table"]

CENSUS_FILE = Path(__file__).with_name("census.parquet")
"""The table, 48,842 rows."""

CENSUS_TARGET = "income"
"""The column that models predict."""

CENSUS_BOUNDS = {"age": (17, 90), "capital_gain": (0, 99999), "capital_loss": (0, 4500), "hours_per_week": (1, 99)}
"""Public bounds of the numbers, from the questionnaire."""

CENSUS_CATEGORIES: dict[str, Sequence[str]] = {
    "workclass": [
        "Federal-gov",
        "Local-gov",
        "Never-worked",
        "Private",
        "Self-emp-inc",
        "Self-emp-not-inc",
        "State-gov",
        "Without-pay",
    ],
    "education": [
        "Preschool",
        "1st-4th",
        "5th-6th",
        "7th-8th",
        "9th",
        "10th",
        "11th",
        "12th",
        "HS-grad",
        "Some-college",
        "Assoc-voc",
        "Assoc-acdm",
        "Bachelors",
        "Masters",
        "Prof-school",
        "Doctorate",
    ],
    "marital_status": [
        "Divorced",
        "Married-AF-spouse",
        "Married-civ-spouse",
        "Married-spouse-absent",
        "Never-married",
        "Separated",
        "Widowed",
    ],
    "occupation": [
        "Adm-clerical",
        "Armed-Forces",
        "Craft-repair",
        "Exec-managerial",
        "Farming-fishing",
        "Handlers-cleaners",
        "Machine-op-inspct",
        "Other-service",
        "Priv-house-serv",
        "Prof-specialty",
        "Protective-serv",
        "Sales",
        "Tech-support",
        "Transport-moving",
    ],
    "relationship": ["Husband", "Not-in-family", "Other-relative", "Own-child", "Unmarried", "Wife"],
    "race": ["Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "Other", "White"],
    "sex": ["Female", "Male"],
    CENSUS_TARGET: ["<=50K", ">50K"],
}
"""Public levels of the categories, as the questionnaire lists them."""


def census_table() -> pa.Table:
    """Read the table: age, work, education, family and income of 48,842 people.

    Returns
    -------
    pyarrow.Table
        The rows. A missing cell is null.

    Examples
    --------
    >>> census_table().num_rows
    48842
    """
    return pq.read_table(CENSUS_FILE)


def census_description(source: str = "census.parquet") -> str:
    """Return the description file of the table.

    Parameters
    ----------
    source : str, default "census.parquet"
        Where the rows are, relative to the description.

    Returns
    -------
    str
        The text of a TOML file.

    Examples
    --------
    >>> print(census_description().splitlines()[1])
    name = "census"
    """
    bounds = [f"{name} = [{low}, {high}]" for name, (low, high) in CENSUS_BOUNDS.items()]
    levels = [f"{name} = {json.dumps(list(names))}" for name, names in CENSUS_CATEGORIES.items()]
    lines = [f'source = "{source}"', 'name = "census"', "", "[bounds]", *bounds, "", "[categories]", *levels]
    return "\n".join(lines) + "\n"
