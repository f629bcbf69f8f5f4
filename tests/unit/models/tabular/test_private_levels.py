"""Categories whose levels are private: found in the rows, billed on the one receipt, rare ones never shown."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import expost
from expost.core import ApproxLoss, InvalidRequest, unseal
from expost.models.tabular import TableEncoder, encode_frame, private_levels, read_columns
from expost.models.tabular.private_levels import MOST_LEVELS, LevelSearch, PrivateLevelColumn, split_for_levels
from expost.noise import SeededBits

RNG = np.random.default_rng(0)
N = 6000
CITY = RNG.choice(["Rome", "Oslo", "Bern"], N, p=[0.5, 0.3, 0.2]).astype(object)
CITY[:3] = "hamlet"
AGE = RNG.uniform(0, 100, N)
FRAME = pandas.DataFrame({"city": pandas.Series(CITY, dtype="string"), "age": AGE, "id": np.arange(N) // 3})
FRAME["sick"] = (AGE > 50) ^ (CITY == "Oslo")
COLUMNS = {"age": (0, 100), "city": "private"}


def classifier(**more: Any) -> expost.Classifier:
    return expost.Classifier(**{"columns": COLUMNS, "epsilon": 2.0, "simulation_seed": 1} | more)


def test_frequent_levels_are_found_and_rare_ones_are_other() -> None:
    model = classifier().fit(FRAME, target="sick")
    receipt = model.receipt_

    assert model.encoder_.columns[1].levels == ("Rome", "Oslo", "Bern")
    assert isinstance(receipt.bill, ApproxLoss)
    assert float(receipt.epsilon) <= 2.0 and receipt.bill.delta <= Fraction(1, 10**6)
    assert receipt.breakdown is not None and receipt.breakdown["levels"] == Fraction(1, 5)
    assert sum(receipt.breakdown.values()) == receipt.bill.epsilon
    assert "3 found with epsilon 0.2" in receipt.terms["levels of city"]
    assert "hamlet" not in str(receipt) + model.card().to_json()
    assert model.predict(FRAME.assign(city="elsewhere")).shape == (N,)


def test_the_price_of_levels_does_not_depend_on_the_cap() -> None:
    models = [
        classifier(epsilon=None, score=("accuracy", 0.51), max_epsilon=cap).fit(FRAME, target="sick")
        for cap in (1.0, 4.0)
    ]
    assert models[0].receipt_.bill == models[1].receipt_.bill
    assert models[0].receipt_.breakdown["levels"] == Fraction(1, 50)
    with pytest.raises(InvalidRequest, match=r"cap of at least 0\.04"):
        classifier(epsilon=None, score=("accuracy", 0.51), max_epsilon=0.03).fit(FRAME, target="sick")


@pytest.mark.parametrize("seed", range(3))
def test_persons_move_counts_by_their_rows_at_most(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # The choice of rows is by a secret: the same one for both tables.
    monkeypatch.setattr(private_levels, "system_bits", lambda: SeededBits(seed))
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame({"city": rng.choice(["a", "b", "c"], 60), "id": rng.integers(0, 9, 60)})
    for limit in (1, 4):
        counts = []
        for rows in (frame, frame[frame["id"] != 3]):
            dataset = expost.Dataset(rows, unit="id", max_rows_per_unit=limit)
            search = LevelSearch.plan(dataset, "city", Fraction(1), Fraction(1, 10**6))
            sealed, levels = search.measure(dataset)
            counts.append(dict(zip(levels.to_pylist(), unseal(sealed).tolist(), strict=True)))
        assert search.rows == limit
        moved = sum(abs(counts[0].get(key, 0) - counts[1].get(key, 0)) for key in counts[0])
        assert moved <= limit


def test_a_level_of_one_row_is_shown_as_seldom_as_delta_says() -> None:
    dataset = expost.Dataset(pandas.DataFrame({"city": ["only"]}))
    search = LevelSearch.plan(dataset, "city", Fraction(1), Fraction(1, 20))
    sealed, levels = search.measure(dataset)
    shown = [bool(search.choose(sealed, levels, SeededBits(seed))) for seed in range(400)]

    assert 0 < np.mean(shown) <= 0.05 + 5 * (0.05 * 0.95 / 400) ** 0.5


def test_a_table_without_frequent_levels_has_a_model_all_the_same() -> None:
    for city in (pandas.Series([None] * N, dtype="string"), pandas.Series(np.arange(N).astype(str), dtype="string")):
        model = classifier(columns={"city": "private"}).fit(FRAME.assign(city=city), target="sick")
        assert model.encoder_.width == 2 and "0 found" in model.receipt_.terms["levels of city"]


def test_many_levels_are_cut_to_the_most_frequent_ones() -> None:
    places = np.concatenate([np.repeat(np.arange(80), 40), np.repeat(np.arange(10), 280)])
    frame = pandas.DataFrame({"city": [f"c{k:02}" for k in places], "sick": places % 2 == 0})
    model = classifier(columns={"city": "private"}, epsilon=100.0).fit(frame, target="sick")

    assert len(model.encoder_.columns[0].levels) == MOST_LEVELS
    assert set(model.encoder_.columns[0].levels) >= {f"c{k:02}" for k in range(10)}


def test_wrong_columns_and_uses_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="Expected texts in 'age'"):
        classifier(columns={"age": "private"}).fit(FRAME, target="sick")
    with pytest.raises(InvalidRequest, match="at most 511 features"):
        classifier(columns={f"c{k}": "private" for k in range(8)}).fit(
            FRAME.assign(**{f"c{k}": FRAME["city"] for k in range(8)}), target="sick"
        )
    encoder = read_columns(COLUMNS, expost.Dataset(FRAME), target="sick")
    with pytest.raises(InvalidRequest, match="only a fit finds them"):
        encode_frame(FRAME, encoder)
    assert TableEncoder.from_json(encoder.to_json()) == encoder


def test_shares_add_up_to_what_was_asked() -> None:
    encoder = TableEncoder((PrivateLevelColumn("a"), PrivateLevelColumn("b")))
    for fixed in (True, False):
        each, small, left, delta = split_for_levels(encoder, cap=Fraction(2), delta=Fraction(1, 10**6), fixed=fixed)
        assert 2 * each + left == 2 and 2 * small + delta == Fraction(1, 10**6)


def test_one_account_pays_for_levels_and_model(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.jsonl")
    expost.open_ledger(path).open_account("mine", (5.0, 1e-4))
    classifier(ledger=path, account="mine", simulation_seed=None).fit(FRAME, target="sick")
    ledger = expost.open_ledger(path)
    assert len(ledger.history("mine")) == 3  # opened, held, settled
    # The account adds up the events of the run, so that the charge is near the bill, not equal to it.
    assert 2.9 <= float(ledger.remaining("mine").epsilon) < 3.5


def test_private_bounds_of_a_number_are_refused_with_what_to_write() -> None:
    with pytest.raises(InvalidRequest, match=r'"age": \(low, high\): public, or from session\.bounds\("age"'):
        classifier(columns={"age": "private"}).fit(FRAME, target="sick")
    session = expost.Session(expost.Dataset(FRAME[["age"]]), budget=1.0, bits=SeededBits(1), simulation=True)
    low, high = session.bounds("age", epsilon=0.1).value
    assert 0 <= low < 64 <= high <= 128
