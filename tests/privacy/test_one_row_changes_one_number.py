"""One row changes one number: neighbours differ in sealed answers, within their sensitivity, and in nothing else.

The long profile (EXPOST_LONG=1) draws many more pairs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.privacy.odd_tables import SOURCES, UNTYPED, Pair, draw_pair
from tests.privacy.random_questions import FITS, QUESTIONS, TESTS, describe, session
from tests.privacy.replay import Seen, assert_one_number_differs

from expost.data import Dataset

LONG = os.environ.get("EXPOST_LONG") == "1"
PAIRS = int(os.environ.get("EXPOST_PAIRS", 200 if LONG else 3))


def check(
    pair: Pair,
    source: str,
    ask: Any,
    random: np.random.Generator,
    folder: Path,
    *,
    distances: bool = True,
    filters: bool = True,
    changed_rows: int = 1,
) -> Seen:
    """Compare one question on the two tables of a pair, each as the same kind of source."""
    describing = describe(pair, random, filters=filters)
    chunking = int(random.integers(2**31))

    def action(table: Any, name: str) -> Any:
        place = folder / name
        place.mkdir(exist_ok=True)
        built = SOURCES[source](table, place, np.random.default_rng(chunking))

        def run(bits: Any) -> Any:
            dataset: Dataset = describing(*built, table)
            return repr(dataset), ask(session(dataset, bits), dataset)

        return run

    replaced = pair.adjacency == "replace-one"
    terms: dict[str, Any] = {"distances": distances, "moves": 1 + replaced, "changed_rows": changed_rows}
    return assert_one_number_differs(action(pair.first, "first"), action(pair.second, "second"), **terms)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("question", QUESTIONS)
def test_one_unit_changes_the_sealed_answer_of_a_statistic_and_nothing_else(
    question: str, source: str, tmp_path: Path
) -> None:
    for number in range(PAIRS):
        random = np.random.default_rng([number, len(question), sum(map(ord, question)), sum(map(ord, source))])
        adjacency = "replace-one" if random.random() < 0.2 and "private" not in question else "add-remove"
        pair = draw_pair(
            random, unit=str(random.choice(["row", "id"])), adjacency=adjacency, typed=source not in UNTYPED
        )
        check(pair, source, QUESTIONS[question](random, pair.first.types), random, tmp_path)


@pytest.mark.parametrize("test", TESTS)
def test_one_row_changes_the_sealed_answer_of_a_test_and_nothing_else(test: str, tmp_path: Path) -> None:
    for number, source in enumerate(list(SOURCES) * max(1, PAIRS // 9)):
        random = np.random.default_rng([number, sum(map(ord, test))])
        pair = draw_pair(random, adjacency="replace-one", typed=source not in UNTYPED)
        # Added rows of random rank are paired anew between neighbours: laws are compared, in test_rank_rows.py.
        distances = not test.startswith(("rank sum", "several rank sums", "signed ranks"))
        check(pair, source, TESTS[test](random, pair.first.types), random, tmp_path, distances=distances)


@pytest.mark.parametrize("model", FITS)
def test_one_row_changes_one_row_of_a_fit_and_nothing_else(model: str, tmp_path: Path) -> None:
    build, distances = FITS[model]
    adjacency = "add-remove" if model.startswith(("sgd", "newton", "added", "persons")) else "replace-one"
    persons = model.startswith("persons")
    for number, source in enumerate(list(SOURCES) * max(1, PAIRS // 9)):
        random = np.random.default_rng([number, sum(map(ord, model))])
        fixed = {"label": "float64"} if "ridge" in model or model == "sgd regressor" else None
        unit = "id" if persons else "row"
        pair = draw_pair(random, unit=unit, adjacency=adjacency, typed=source not in UNTYPED, fixed=fixed)
        terms: dict[str, Any] = {"distances": distances, "filters": False, "changed_rows": 5 if persons else 1}
        check(pair, source, build(random, pair.first.types), random, tmp_path, **terms)
