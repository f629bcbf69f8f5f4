"""An expression's value on a row depends on that row alone, and no row makes it raise or warn."""

import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.privacy.random_expressions import draw_expression, draw_table, draw_types

from expost.data import col
from expost.data.canonical_cell import canonical_batch
from expost.data.evaluation import evaluate
from expost.data.expression import Expression, Operation


def read_cells(expression: Expression, batch: pa.RecordBatch) -> list[Any]:
    """The values of all rows as comparable texts, with warnings as errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        column = evaluate(expression, batch).to_column()
    return [str(cell) for cell in column.to_pylist()]


@pytest.mark.parametrize("kind", ["number", "text", "time", "condition"])
def test_changing_a_row_changes_the_value_of_that_row_only(kind: str) -> None:
    random = np.random.default_rng([7, *map(ord, kind)])
    for _ in range(5):
        types, changed = draw_types(random), int(random.integers(12))
        batch, other = (canonical_batch(draw_table(random, rows, types)) for rows in (12, 1))
        neighbour = pa.Table.from_batches([batch.slice(0, changed), other, batch.slice(changed + 1)]).combine_chunks()
        for _ in range(50):
            expression = draw_expression(random, kind, comparable=False)
            cells = read_cells(expression, batch)
            after = read_cells(expression, neighbour.to_batches()[0])
            del cells[changed], after[changed]
            assert cells == after, repr(expression)


@pytest.mark.parametrize("kind", ["number", "text", "time", "condition"])
def test_a_row_alone_has_the_value_that_it_has_among_others(kind: str) -> None:
    random = np.random.default_rng([8, *map(ord, kind)])
    batch = canonical_batch(draw_table(random, 6, draw_types(random)))
    for _ in range(80):
        expression = draw_expression(random, kind, comparable=False)
        alone = [read_cells(expression, batch.slice(place, 1))[0] for place in range(6)]
        assert read_cells(expression, batch) == alone, repr(expression)
        assert read_cells(expression, batch.slice(0, 0)) == []


def test_a_long_text_cannot_exhaust_the_memory() -> None:
    doubled: Expression = col("s")
    for _ in range(8):
        doubled = Operation("||", (doubled, doubled))
    batch = pa.record_batch({"s": pa.array(["x", "y" * 100_000, None], pa.large_string())})

    cells = evaluate(doubled, batch).to_column().to_pylist()

    assert cells == ["x" * 256, None, None]


def test_odd_texts_pass_through_every_text_function() -> None:
    odd = [
        "\n",
        "a\nb",
        "\t",
        "\\",
        "\\d",
        "(",
        "[",
        "^$",
        "%",
        "_",
        ".*",
        "\u0130",
        "\u00df",
        "\x00",
        "a\x00b",
        "e\u0301",
    ]
    batch = pa.record_batch({"s": pa.array(odd, pa.large_string())})
    for text in (text for text in odd if "\x00" not in text):
        found = read_cells(col("s").like(text.replace("%", "").replace("_", "") or "%"), batch)
        assert found == [str(text in ("%", "_") or cell == text) for cell in odd], text
        assert read_cells(col("s").contains(text), batch) == [str(text in cell) for cell in odd], text
    assert read_cells(col("s").like("a%b"), batch)[1] == "True"
    assert read_cells(col("s").length(), batch) == [str(float(len(text))) for text in odd]
