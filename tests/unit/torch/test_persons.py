"""A person with several rows moves what is measured by no more than one row could."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from tests.unit.torch.row_by_row import by_hand  # noqa: E402
from torch import nn  # noqa: E402

from expost import InvalidRequest, Unit  # noqa: E402
from expost.core import Measure, Target, unseal  # noqa: E402
from expost.data.row_identity import RowIdentity  # noqa: E402
from expost.data.unit_identity import exact_words  # noqa: E402
from expost.data.unit_share import RowsOfUnits, UnitShares  # noqa: E402
from expost.models.descent.stopping_test import ScoreRule  # noqa: E402
from expost.models.descent.training_schedule import Phase  # noqa: E402
from expost.torch import train  # noqa: E402
from expost.torch.module_learner import ModuleProblem  # noqa: E402
from expost.torch.network_rows import read_rows  # noqa: E402
from expost.torch.network_training import _cross_entropy  # noqa: E402
from expost.torch.person_batches import PersonBatches, PersonIds  # noqa: E402

PERSONS = 12


def rows_of(counts: list[int], seed: int = 0) -> tuple[Any, Any, np.ndarray]:
    """Rows of persons, shuffled."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    inputs = torch.tensor(rng.normal(size=(len(ids), 6)) * 3, dtype=torch.float32)
    return inputs, torch.tensor(rng.integers(0, 3, len(ids))), ids


def table_of(model: nn.Module, inputs: Any, labels: Any, ids: Any, *, most: int | None = None) -> Any:
    problem = ModuleProblem(
        model, _cross_entropy, 0.1, lambda parts: torch.optim.SGD(parts, lr=0.1), 0.0, torch.device("cpu")
    )
    plain = replace(problem.table(read_rows((inputs, labels))), by_person=True)
    return plain.with_people(PersonIds.read(ids, most), b"secret")


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def normed() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3))


@pytest.mark.parametrize("make", [model, normed])
@pytest.mark.parametrize("most", [None, 1, 4])
def test_a_person_moves_the_sealed_sum_by_the_sensitivity_at_most(make: Any, most: int | None) -> None:
    counts = [1, 2, 3, 40, 7, 1, 1, 5, 90, 2, 1, 700]
    inputs, labels, ids = rows_of(counts)
    inputs[ids == 3] = inputs[ids == 3][:1]  # all rows of this person pull in one direction
    labels[ids == 3] = 0
    table = table_of(make(), inputs, labels, ids, most=most)
    learner = table.learner(slice(None), None)
    limit = float(learner.open(Phase(1, Fraction(2)), float(PERSONS)).amount)

    whole = unseal(learner.measure(np.arange(PERSONS))).astype(float)
    moves = [
        np.linalg.norm(whole - unseal(learner.measure(np.delete(np.arange(PERSONS), one)))) for one in range(PERSONS)
    ]

    assert len(table) == PERSONS
    assert 0.9 * limit < max(moves) <= limit


def test_rows_counted_as_persons_of_their_own_would_exceed_it() -> None:
    inputs, labels, ids = rows_of([1, 30])
    inputs[ids == 1], labels[ids == 1] = inputs[ids == 1][:1], 0
    table = table_of(model(), inputs, labels, np.arange(31))
    learner = table.learner(slice(None), None)
    limit = float(learner.open(Phase(1, Fraction(2)), 31.0).amount)

    assert np.linalg.norm(unseal(learner.measure(np.flatnonzero(ids == 1))).astype(float)) > 10 * limit


def test_what_others_keep_does_not_depend_on_a_person_or_on_the_order_of_rows() -> None:
    inputs, labels, ids = rows_of([9, 8, 7, 1])
    order = np.random.default_rng(5).permutation(len(ids))
    kept = []
    for places in (np.arange(len(ids)), order, np.flatnonzero(ids != 1), order[ids[order] != 1]):
        table = table_of(model(), inputs[places], labels[places], ids[places], most=3)
        taken = table.people.take_persons(np.arange(len(table.people)))
        kept.append({(int(ids[places[row]]), int(places[row])) for row in taken.rows})

    assert kept[0] == kept[1] and kept[2] == kept[3]
    assert {pair for pair in kept[0] if pair[0] != 1} == kept[2]
    assert [sum(person == one for person, _ in kept[0]) for one in range(4)] == [3, 3, 3, 1]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000, 2**20 + 5])
def test_weights_of_a_person_add_up_to_one_at_most(count: int) -> None:
    people = PersonBatches(PersonIds.read(np.zeros(count, np.int64)), None, b"s")

    taken = people.take_persons(np.arange(1))

    assert len(taken.rows) == min(count, 2**20)
    assert 0.999 < math.fsum(taken.weights.tolist()) <= 1


def test_rows_of_persons_are_chosen_and_weighed_as_for_every_other_model() -> None:
    inputs, labels, ids = rows_of([9, 8, 7, 1])
    table = table_of(model(), inputs, labels, ids, most=3)
    taken = table.people.take_persons(np.arange(4))
    identity = RowIdentity(b"secret")
    names = np.concatenate([identity.name_rows(part) for part in replace(table, people=None).yield_contents()])
    words, known = exact_words(pa.array(ids), b"secret")
    rows = RowsOfUnits(words, known, np.frombuffer(names.tobytes(), np.uint64)[::2])

    weights = UnitShares([rows], most=3, secret=b"secret").start_pass().next_weights(rows)

    assert sorted(taken.rows) == np.flatnonzero(weights).tolist()
    assert np.array_equal(weights[taken.rows], taken.weights)


def test_a_person_adds_the_mean_of_its_clipped_gradients() -> None:
    inputs, labels, ids = rows_of([1, 2, 5])
    table = table_of(model(), inputs, labels, ids)
    learner = table.learner(slice(None), None)
    learner.open(Phase(1, Fraction(2)), 3.0)

    for person in range(3):
        rows = table.people.take_persons(np.array([person])).rows
        expected = by_hand(model(), inputs[rows], labels[rows], 0.1).numpy() / len(rows)
        found = unseal(learner.measure(np.array([person]))) / learner._unit

        assert len({*ids[rows]}) == 1
        assert np.linalg.norm(found - expected) < 1e-3 * np.linalg.norm(expected)
        assert np.linalg.norm(found) < 0.1


def test_a_person_counts_with_its_share_of_correct_rows() -> None:
    inputs, labels, ids = rows_of([1, 2, 3, 40])
    table = table_of(model(), inputs, labels, ids)
    learner = table.learner(np.arange(0), np.arange(4))
    learner.open(Phase(1, Fraction(2)), 4.0)
    rule = ScoreRule.of(Target(Measure.ACCURACY, Fraction(4, 5), Fraction(1, 10)))

    found = unseal(learner.score(rule, 0))

    right = (learner.build_result()(inputs).argmax(1) == labels).numpy()
    assert found == sum(int(5 * right[ids == one].mean() + 1e-9) - 4 for one in range(4))
    alone = [table.learner(np.arange(0), np.array([one])) for one in range(4)]
    assert all(-4 <= unseal(each.score(rule, 0)) <= 1 for each in alone)


IDS: dict[str, Any] = {
    "integers": np.array([3, 3, 9]),
    "texts": np.array(["a", "a", "b"]),
    "reals": np.array([0.0, -0.0, 1.0]),
    "a tensor": torch.tensor([3, 3, 9]),
    "arrow": pa.array(["a", "a", "b"]),
    "wide": np.array([2**60, 2**60, 2**60 + 1]),
}


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
def test_ids_of_any_kind_are_told_apart_exactly(ids: Any) -> None:
    people = PersonBatches(PersonIds.read(ids), None, b"secret")

    assert len(people) == PersonIds.read(ids).count_persons() == 2
    assert sorted(people._counts.tolist()) == [1, 2]
    assert len({tuple(part[person] for part in people.names) for person in range(2)}) == 2


def test_rows_without_an_id_belong_to_nobody() -> None:
    people = PersonBatches(PersonIds.read(pa.array([1, None, 2, None])), None, b"secret")

    assert sorted(people.take_persons(np.arange(len(people))).rows.tolist()) == [0, 2]


def trained(**terms: Any) -> Any:
    inputs, _, ids = rows_of([1, 3] * 300)
    labels = (inputs[:, 0] > 0).long()
    settings = {"rows": 600, "unit": ids, "steps": 30, "simulation_seed": 1, "delta": 1e-6} | terms
    release = train(nn.Linear(6, 2), (inputs, labels), **settings)
    return release, float((release.value(inputs).argmax(1) == labels).float().mean())


def test_persons_are_trained_at_the_price_of_rows_and_the_receipt_says_so() -> None:
    release, accuracy = trained(epsilon=4.0, batch_size=200)
    inputs, _, _ = rows_of([1, 3] * 300)
    alone = train(
        nn.Linear(6, 2),
        (inputs[:600], (inputs[:600, 0] > 0).long()),
        rows=600,
        epsilon=4.0,
        steps=30,
        batch_size=200,
        simulation_seed=1,
    )

    assert accuracy > 0.85
    assert release.receipt.unit == Unit.of("unit") and alone.receipt.unit == Unit.row()
    assert release.receipt.bill == alone.receipt.bill
    assert release.receipt.terms["rows (public)"] == 600
    assert release.receipt.terms["rows of a person"] == "all"


def test_persons_are_trained_to_a_score() -> None:
    release, accuracy = trained(score=("accuracy", 0.6), max_epsilon=16.0, max_rows_per_unit=2, rows="observed")

    assert release.receipt.outcome.met and accuracy > 0.6
    assert release.receipt.terms["rows of a person"] == "at most 2"


WRONG: list[dict[str, Any]] = [
    {"unit": np.arange(3)},
    {"unit": "id"},
    {"unit": [1] * 1200},
    {"unit": np.array([None] * 1200)},
    {"max_rows_per_unit": 0},
    {"max_rows_per_unit": True},
    {"max_rows_per_unit": 2**20 + 1},
    {"unit": None, "max_rows_per_unit": 3},
    {"checkpoint": "run.npz"},
]


@pytest.mark.parametrize("terms", WRONG, ids=str)
def test_wrong_ids_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="Expected"):
        trained(epsilon=1.0, **terms)


def test_no_id_makes_reading_fail_and_types_that_cannot_be_ids_are_refused() -> None:
    read = PersonIds.read

    assert read(np.array(["a", "a", "\ud800", "b"])).count_persons() == 2  # half of a surrogate pair is missing
    assert read(np.array([0.0, -0.0, math.nan, math.inf], np.longdouble)).count_persons() == 2
    for odd in (np.array([b"a", b"\xff"]), pa.array([[1], [2]]), np.array([1j]), [1, "a"]):
        with pytest.raises(InvalidRequest, match="one id per row"):
            read(odd)
