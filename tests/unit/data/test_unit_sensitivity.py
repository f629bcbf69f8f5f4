"""Sensitivities, against every neighbour of small tables."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from expost.core import Adjacency, InvalidRequest, Sealed, unseal
from expost.data import Dataset, col
from expost.data.clamp import Clamp
from expost.data.sealed_form import CountForm, ShareForm, SquareForm, TotalForm
from expost.data.tally import Measured
from expost.stats import MostCommon

SMALL = Clamp.of((-1, 2), whole=True)
FORMS = [CountForm(), TotalForm(SMALL), ShareForm(SMALL), SquareForm(SMALL)]
ROWS = list(itertools.product(["a", "b", "zz"], [-5, 0, 2, None]))


def table(rows) -> pa.Table:
    schema = pa.schema({"who": pa.int8(), "city": pa.string(), "x": pa.int32()})
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def coordinates(dataset: Dataset, form, by: bool) -> tuple[np.ndarray, Sealed]:
    measured = () if isinstance(form, CountForm) else (Measured(col("x"), SMALL),)
    axes = (dataset.axis("city", ["a", "b"]),) if by else ()
    tally = dataset.tally(measured=measured, axes=axes, degree=form.degree)
    sealed = dataset.measure_total(form, tally, secret=b"the same secret!")
    return np.asarray(unseal(sealed), dtype=object), sealed


def largest_move(tables, form, by, **description) -> tuple[int, int]:
    """The largest L1 distance of neighbours, and the declared sensitivity."""
    moves, declared = [0], 0
    for left, right in tables:
        a, sealed = coordinates(Dataset(table(left), **description), form, by)
        b, _ = coordinates(Dataset(table(right), **description), form, by)
        moves.append(int(np.abs(a - b).sum()))
        declared = int(sealed.sensitivity.amount)
    return max(moves), declared


@pytest.mark.parametrize("by", [False, True])
@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_adding_a_row_moves_totals_by_at_most_the_sensitivity_and_some_row_attains_it(form, by) -> None:
    tables = [([(1, *row)], []) for row in ROWS]
    moved, declared = largest_move(tables, form, by)

    assert moved == declared


@pytest.mark.parametrize("by", [False, True])
@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_replacing_a_row_moves_totals_by_at_most_the_sensitivity(form, by) -> None:
    tables = [([(1, *one)], [(1, *two)]) for one in ROWS for two in ROWS]
    moved, declared = largest_move(tables, form, by, adjacency="replace-one", rows=1)

    if isinstance(form, CountForm) and not by:
        assert moved == 0  # the number of rows is public; a sensitivity of zero does not exist
    else:
        assert moved == declared


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("groups", [None, 1])
@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_a_unit_with_many_rows_moves_totals_by_at_most_the_sensitivity(form, groups, adjacency) -> None:
    rng = np.random.default_rng(0)
    mine = [[(1, *ROWS[k]) for k in rng.integers(0, len(ROWS), 6)] for _ in range(25)]
    others = [(2, "a", 2), (2, "b", -1), (3, "a", 0)]
    description = {"unit": "who", "max_rows_per_unit": 3, "max_groups_per_unit": groups, "adjacency": adjacency}
    pairs = itertools.pairwise(mine) if adjacency == "replace-one" else ((rows, []) for rows in mine)

    moved, declared = largest_move([(a + others, b + others) for a, b in pairs], form, True, **description)

    assert 0 < moved <= declared
    assert declared == 3 * form.row_size * (2 if adjacency == "replace-one" else 1)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("total", [None, 3, 10])
@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_rows_per_group_bound_what_a_unit_moves(form, total, adjacency) -> None:
    mine = [[(1, city, x) for city, x in cells] for cells in itertools.product(ROWS[1:3] * 2, ROWS[5:7] * 2)]
    mine = [rows * copies for rows in mine for copies in (1, 4)]
    others = [(2, "a", 2), (2, "b", -1), (3, "a", 0)]
    description = {"unit": "who", "max_rows_per_unit": total, "max_groups_per_unit": 2, "max_rows_per_group": 2}
    pairs = itertools.pairwise(mine) if adjacency == "replace-one" else ((rows, []) for rows in mine)
    tables = [(a + others, b + others) for a, b in pairs]

    moved, declared = largest_move(tables, form, True, **description, adjacency=adjacency)

    kept = 4 if total is None else min(total, 4)  # two groups of two rows
    assert declared == kept * form.row_size * (2 if adjacency == "replace-one" else 1)
    assert 0 < moved <= declared
    if adjacency == "add-remove" and isinstance(form, CountForm):
        assert moved == declared


def test_rows_per_group_count_nothing_without_groups_and_need_a_limit_of_groups_or_rows() -> None:
    rows = table([(1, "a", 0)] * 9)
    terms = {"unit": "who", "max_rows_per_group": 2}

    assert coordinates(Dataset(rows, **terms, max_groups_per_unit=3), CountForm(), False)[0].tolist() == [6]
    assert coordinates(Dataset(rows, **terms, max_rows_per_unit=5), CountForm(), False)[0].tolist() == [5]
    assert coordinates(Dataset(rows, **terms, max_rows_per_unit=5), CountForm(), True)[0].tolist() == [2, 0]
    with pytest.raises(InvalidRequest, match="max_groups_per_unit= with max_rows_per_group="):
        coordinates(Dataset(rows, **terms), CountForm(), True)
    with pytest.raises(InvalidRequest, match="only with an id column"):
        Dataset(rows, max_rows_per_group=2)


def test_the_most_common_category_costs_the_rows_that_a_unit_has_in_one() -> None:
    rows = table([(1, "a", 0)] * 9)
    described = {"unit": "who", "max_groups_per_unit": 3, "max_rows_per_group": 2, "categories": {"city": ["a", "b"]}}

    plan = MostCommon("city", epsilon=1).plan(Dataset(rows, **described))
    assert plan.sensitivity.amount == 2
    assert unseal(plan.measure(Dataset(rows, **described))[0]).tolist() == [2, 0]


def test_distinct_units_count_once_per_group() -> None:
    dataset = Dataset(table([(1, "a", 0)] * 5 + [(1, "b", 0)]), unit="who", max_groups_per_unit=1)
    tally = dataset.tally(axes=(dataset.axis("city", ["a", "b"]),))

    sealed = dataset.measure_total(CountForm(), tally, secret=b"s" * 8, once=True)

    assert unseal(sealed).sum() == 1
    assert sealed.sensitivity.amount == 1
    assert sealed.sensitivity.adjacency is Adjacency.ADD_REMOVE
