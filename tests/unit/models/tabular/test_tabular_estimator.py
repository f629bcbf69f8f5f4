"""Classifier and Regressor from outside: every kind of table, one budget, every fit billed, bad input refused unpaid."""

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import expost
from expost.core import Adjacency, InvalidRequest, Outcome, TargetNotMet
from expost.models.tabular.tabular_rows import TabularRows
from expost.noise.bits import SeededBits

RNG = np.random.default_rng(0)
N = 3000
AGE, JOB = RNG.uniform(18, 80, N), RNG.choice(["a", "b"], N)
FRAME = pandas.DataFrame({"age": AGE, "job": JOB, "rich": AGE > 45, "pay": AGE + 20 * (JOB == "b")})
FRAME["id"] = np.arange(N) // 2
COLUMNS = {"age": (18, 80), "job": ["a", "b"]}


def classifier(**more: Any) -> expost.Classifier:
    return expost.Classifier(**{"columns": COLUMNS, "epsilon": 0.5, "simulation_seed": 1} | more)


def regressor(**more: Any) -> expost.Regressor:
    return expost.Regressor(
        **{"columns": COLUMNS, "epsilon": 0.5, "simulation_seed": 1, "target_bounds": (0, 120)} | more
    )


def test_every_kind_of_table_gives_the_same_model(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "table.csv", index=False)
    FRAME.to_parquet(tmp_path / "table.parquet")
    tables: list[Any] = [
        FRAME,
        polars.from_pandas(FRAME),
        pa.Table.from_pandas(FRAME),
        {name: FRAME[name].to_numpy() for name in FRAME},
        {name: FRAME[name].tolist() for name in FRAME},
        tmp_path / "table.csv",
        str(tmp_path / "*.parquet"),
        expost.Dataset(FRAME),
    ]
    models = [classifier(classes=[False, True]).fit(table, target="rich") for table in tables]
    models.append(classifier().fit(FRAME[["age", "job"]], FRAME["rich"]))
    models.append(classifier(classes="observed").fit(FRAME[["age", "job"]], FRAME["rich"].to_numpy()))

    for model in models:
        assert model.coef_.tolist() == models[0].coef_.tolist()
        assert model.classes_.tolist() == [False, True]


@pytest.mark.parametrize("convert", [pandas.DataFrame, polars.from_pandas, pa.Table.from_pandas, expost.Dataset, dict])
def test_a_receipt_lists_the_columns_that_a_model_does_not_use(convert: Any) -> None:
    model = classifier(columns={"age": (18, 80)}, classes=[False, True]).fit(convert(FRAME), target="rich")

    assert model.receipt_.terms["columns not used"] == ["job", "pay", "id"]
    assert "columns not used" not in classifier().fit(FRAME[["age", "job"]], FRAME["rich"]).receipt_.terms


def test_a_matrix_with_targets_has_columns_by_number() -> None:
    model = classifier(columns=(18, 80), classes=[0, 1]).fit(AGE[:, None], (AGE > 45).astype(int))

    assert model.predict(AGE[:5, None]).tolist() == model.predict(AGE[:, None])[:5].tolist()
    assert model.score(AGE[:, None], (AGE > 45).astype(int)) > 0.8


def test_several_classes_have_probabilities_that_add_up_to_one() -> None:
    table = FRAME.assign(group=np.digitize(AGE, [35, 60]).astype(str))
    model = classifier(classes=["0", "1", "2"], epsilon=5).fit(table, target="group")
    chances = model.predict_proba(table)

    assert np.allclose(chances.sum(axis=1), 1) and chances.min() >= 0.0019
    assert (model.classes_[chances.argmax(axis=1)] == model.predict(table)).all()
    assert model.decision_function(table).shape == (N, 3)


@pytest.mark.parametrize("score", [("accuracy", 0.85), ("log_loss", 0.6)])
def test_a_score_that_is_reached_is_reached_and_priced_below_the_cap(score: tuple[str, float]) -> None:
    model = classifier(epsilon=None, score=score, max_epsilon=10).fit(FRAME, target="rich")

    assert model.receipt_.outcome is Outcome.TESTED
    assert model.receipt_.epsilon < 10
    chance = model.predict_proba(FRAME)[np.arange(N), FRAME["rich"].astype(int)]
    assert model.score(FRAME, FRAME["rich"]) >= 0.85 if score[0] == "accuracy" else -np.log(chance).mean() <= 0.6


def test_a_looser_target_never_costs_more() -> None:
    paid = []
    for score in (0.4, 0.6, 0.8):
        try:
            model = regressor(epsilon=None, score=("r2", score), max_epsilon=5).fit(FRAME, target="pay")
            paid.append(model.receipt_.epsilon)
        except TargetNotMet as missed:
            paid.append(missed.release.receipt.epsilon)
    assert paid == sorted(paid)


def test_a_missed_target_keeps_the_model_and_states_what_is_certified() -> None:
    model = classifier(epsilon=None, score=("accuracy", 0.9999), max_epsilon=0.3)
    with pytest.raises(TargetNotMet) as missed:
        model.fit(FRAME, target="rich")

    receipt = missed.value.release.receipt
    assert receipt.outcome is Outcome.NOT_MET and receipt.achieved < 0.9999
    assert receipt.achieved <= model.score(FRAME, FRAME["rich"])
    assert model.predict(FRAME).shape == (N,)


def test_a_missed_log_loss_is_certified_as_a_log_loss() -> None:
    with pytest.raises(TargetNotMet) as missed:
        classifier(epsilon=None, score=("log_loss", 0.01), max_epsilon=0.3).fit(FRAME, target="rich")
    assert missed.value.release.receipt.achieved > 0.01


def test_predictions_are_bit_for_bit_those_that_were_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    from expost.models.tabular import table_run

    seen: list[np.ndarray] = []
    honest = table_run.row_outcomes
    monkeypatch.setattr(
        table_run, "row_outcomes", lambda scores, *more: seen.append(scores.copy()) or honest(scores, *more)
    )
    model = classifier().fit(FRAME, target="rich")

    assert model.decision_function(FRAME).tolist() == seen[-1][0].tolist()
    assert model.decision_function(FRAME.iloc[7:8]).tolist() == seen[-1][0][7:8].tolist()


def test_receipts_name_unit_neighbours_measures_and_a_baseline() -> None:
    row = classifier().fit(FRAME, target="rich").receipt_
    person = regressor(unit="id", max_rows_per_unit=2).fit(FRAME, target="pay").receipt_

    assert row.adjacency is person.adjacency is Adjacency.ADD_REMOVE
    assert row.unit.is_row and person.unit.column == "id"
    assert "measured accuracy" in row.terms and "measured r2" in person.terms
    assert "most frequent class" in row.terms["baseline"] and "always the mean" in person.terms["baseline"]
    assert abs(person.terms["rows, about"] - N / 2) < 300


def test_a_regression_says_what_the_mean_would_have_or_that_noise_hides_it() -> None:
    spread = np.std(FRAME["pay"])
    told = regressor(epsilon=20).fit(FRAME, target="pay").receipt_.terms["baseline"]
    value, error = map(float, re.findall(r"rmse ([\d.]+) ± ([\d.]+)", told)[0])
    assert abs(value - spread) < 2 * error < value
    rough = regressor(epsilon=2).fit(FRAME, target="pay").receipt_.terms["baseline"]
    assert spread / 2 < float(re.findall(r"rmse roughly ([\d.]+)", rough)[0]) < 2 * spread
    hidden = regressor(epsilon=0.01).fit(FRAME.iloc[:200], target="pay").receipt_.terms
    assert hidden["baseline"].endswith("the noise hides its rmse") and hidden["measured r2"] == "hidden by the noise"


def test_a_session_counts_and_fits_from_one_account() -> None:
    session = expost.Session(expost.Dataset(FRAME), expost.epsilon(2, 1e-5), bits=SeededBits(3), simulation=True)
    session.count(epsilon=0.25)
    before = float(session.remaining().epsilon)
    model = session.fit(classifier(simulation_seed=None), target="rich")

    # The account keeps half of its delta to compose tighter, so that one fit costs a little more than its receipt.
    paid, billed = before - float(session.remaining().epsilon), float(model.receipt_.epsilon)
    assert before == 1.75 and billed <= paid <= 1.3 * billed
    assert model.receipt_.adjacency is Adjacency.ADD_REMOVE


def test_models_are_cloned_pickled_and_cross_validated_with_every_fit_billed(tmp_path: Path) -> None:
    model = classifier().fit(FRAME, target="rich")
    assert clone(model).get_params() == model.get_params()
    assert pickle.loads(pickle.dumps(model)).predict(FRAME).tolist() == model.predict(FRAME).tolist()

    path = str(tmp_path / "ledger.jsonl")
    expost.open_ledger(path).open_account("mine", (5.0, 1e-4))
    scores = cross_val_score(
        classifier(ledger=path, account="mine"), FRAME[["age", "job"]], FRAME["rich"], cv=3, error_score="raise"
    )
    ledger = expost.open_ledger(path)
    assert len(scores) == 3 and len(ledger.history("mine")) == 1 + 2 * 3  # a hold and a settlement per fit
    assert float(ledger.remaining("mine").epsilon) < 5 - 0.5 * 3**0.5  # Gaussian events add up by their squares


BAD: dict[str, dict[str, Any]] = {
    "bounds reversed": {"columns": {"age": (80, 18)}},
    "classes of another kind": {"classes": ["x", "y"]},
    "one class": {"classes": [True]},
    "a class twice": {"classes": [True, True]},
    "classes observed in a table": {"classes": "observed"},
    "score and epsilon": {"score": ("accuracy", 0.9)},
    "neither": {"epsilon": None},
    "unknown measure": {"epsilon": None, "score": ("r2", 0.9)},
    "a score of 1": {"epsilon": None, "score": ("accuracy", 1.0)},
    "epsilon 0": {"epsilon": 0},
    "epsilon nan": {"epsilon": float("nan")},
    "epsilon a text": {"epsilon": "a"},
    "an epsilon too small to draw": {"epsilon": 1e-9},
    "a cap that no plan fits": {"epsilon": None, "score": ("accuracy", 0.9), "max_epsilon": 1e-12},
    "delta": {"delta": 0.5},
    "newton steps without a delta": {"delta": 0, "method": "newton"},
    "an unknown method": {"method": "lbfgs"},
    "failure probability": {"failure_probability": 2},
    "rows": {"rows": 0},
    "rows a flag": {"rows": True},
    "no columns": {"columns": None},
    "unknown column": {"columns": {"zz": (0, 1)}},
    "unit without a limit": {"unit": "id"},
    "unknown unit": {"unit": "zz", "max_rows_per_unit": 3},
    "a limit without a unit": {"max_rows_per_unit": 3},
    "too many rows per unit": {"unit": "id", "max_rows_per_unit": 1 << 20, "epsilon": 0.01},
    "fewer declared rows than features": {"rows": 3},
    "a class weight for another class": {"class_weight": {"yes": 1, "no": 2}},
    "an unknown report": {"report": ["roc"]},
    "private levels of numbers": {"columns": {"age": "private"}},
    "a column declared twice": {"columns": ["age", "age"]},
    "too many features": {"columns": {"age": [str(k) for k in range(600)]}},
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_a_sentence_before_anything_is_read(
    name: str, monkeypatch: Any, tmp_path: Path
) -> None:
    def read(self: TabularRows) -> Any:
        raise AssertionError("rows were read")

    monkeypatch.setattr(TabularRows, "__iter__", read)
    path = str(tmp_path / "ledger.jsonl")
    expost.open_ledger(path).open_account("mine", (5.0, 1e-4))
    with pytest.raises(InvalidRequest, match=r"\. [A-Z].*\.") as refused:
        classifier(**{"ledger": path, "account": "mine"} | BAD[name]).fit(FRAME, target="rich")

    assert str(refused.value).startswith("Expected")
    assert float(expost.open_ledger(path).remaining("mine").epsilon) == 5.0


def test_bad_targets_are_refused() -> None:
    bad: list[Any] = [
        lambda: classifier().fit(FRAME),
        lambda: classifier().fit(FRAME, target="zz"),
        lambda: classifier().fit(FRAME, FRAME["rich"], target="rich"),
        lambda: classifier().fit(FRAME[["age", "job"]], FRAME["rich"][:5]),
        lambda: regressor(target_bounds=None).fit(FRAME, target="pay"),
        lambda: regressor(target_bounds=(5, 5)).fit(FRAME, target="pay"),
        lambda: regressor(columns={"age": (18, 80)}).fit(FRAME, target="job"),
        lambda: classifier(columns={"rich": "boolean"}).fit(FRAME, target="rich"),
        lambda: classifier().fit(expost.Dataset(FRAME, adjacency="replace-one", rows=N), target="rich"),
    ]
    for fit in bad:
        with pytest.raises(InvalidRequest, match="Expected"):
            fit()


@pytest.mark.parametrize(
    "settings",
    [{"epsilon": 0.0001}, {"epsilon": 0.001, "delta": 1e-18}, {"epsilon": 0.02, "classes": list(range(100))}],
    ids=str,
)
def test_small_epsilons_and_many_classes_run(settings: dict[str, Any]) -> None:
    settings = {"classes": [0, 1]} | settings
    model = classifier(**settings).fit(FRAME[["age", "job"]][:50], (AGE[:50] > 45).astype(int))
    assert np.isfinite(model.coef_).all() and model.receipt_.epsilon <= settings["epsilon"]


@pytest.mark.parametrize("kind", ["classifier", "several", "regressor"])
def test_saved_models_predict_the_same_bits(kind: str, tmp_path: Any) -> None:
    if kind == "regressor":
        model = regressor().fit(FRAME, target="pay")
    else:
        names = ["a", "b", "c"] if kind == "several" else [False, True]
        labels = np.asarray(names, dtype=object)[np.arange(N) % len(names)]
        frame = FRAME.assign(rich=labels.astype(str) if kind == "several" else labels.astype(bool))
        model = classifier(classes=names, columns={"age": (0, 100)}).fit(frame, target="rich")
    path = tmp_path / "model.json"
    expost.save_model(model, path)
    loaded = expost.load_model(path)

    assert loaded.predict(FRAME).tolist() == model.predict(FRAME).tolist()
    assert loaded.receipt_ == model.receipt_
    assert np.array_equal(loaded.coef_, model.coef_)
    path.write_text(path.read_text().replace('"reach"', '"range"'))
    with pytest.raises(InvalidRequest, match="model file"):
        expost.load_model(path)


ODD_ROWS: dict[str, Any] = {
    "one class only": lambda frame: frame.assign(kind="no"),
    "no label that is a class": lambda frame: frame.assign(kind="?"),
    "no label at all": lambda frame: frame.assign(kind=pandas.Series([None] * len(frame), dtype="string")),
    "a constant target": lambda frame: frame.assign(pay=5.0),
    "no target at all": lambda frame: frame.assign(pay=np.nan),
    "infinite targets": lambda frame: frame.assign(pay=np.inf, age=np.nan),
    "no rows": lambda frame: frame.iloc[:0],
    "fewer rows than columns": lambda frame: frame.iloc[:3],
    "no ids": lambda frame: frame.assign(id=np.nan),
}
ODD_TERMS: dict[str, dict[str, Any]] = {
    "epsilon": {},
    "reports": {"report": ["auc", "coefficients"], "calibrate": True},
    "balanced": {"class_weight": "balanced"},
    "private levels": {"columns": {"age": (18, 80), "job": "private"}},
    "persons": {"unit": "id", "max_rows_per_unit": 3},
    "an area": {"epsilon": None, "score": ("auc", 0.9), "max_epsilon": 0.05},
    "rows far off": {"rows": 10**6},
}


@pytest.mark.parametrize("terms", ODD_TERMS)
@pytest.mark.parametrize("rows", ODD_ROWS)
def test_odd_rows_make_a_poor_score_and_never_an_exception(rows: str, terms: str) -> None:
    frame = FRAME.iloc[:200].assign(kind=np.where(AGE[:200] > 45, "yes", "no"))
    odd, more = ODD_ROWS[rows](frame), ODD_TERMS[terms]
    plain = {name: each for name, each in more.items() if name not in ("report", "calibrate", "class_weight", "score")}
    plain |= {"score": ("r2", 0.5)} if "score" in more else {}
    fits = [
        (classifier(classes=["no", "yes"], **more), "kind"),
        (regressor(**plain), "pay"),
    ]
    for model, target in fits:
        try:
            model.fit(odd, target=target)
        except TargetNotMet:
            assert "score" in more
        assert len(model.predict(frame)) == 200 and model.card().to_html()
        assert np.isfinite(model.coef_).all()


def test_receipts_say_what_the_released_profile_says_about_odd_rows() -> None:
    frame = FRAME.assign(kind="?")
    wrong = classifier(classes=["no", "yes"]).fit(frame, target="kind").receipt_.terms
    one = classifier(classes=["no", "yes"]).fit(frame.assign(kind="no"), target="kind").receipt_.terms
    few = classifier(classes=["no", "yes"]).fit(frame.iloc[:10], target="kind").receipt_.terms
    flat = regressor(epsilon=5).fit(frame.assign(pay=60.0), target="pay").receipt_.terms
    fine = classifier().fit(FRAME, target="rich").receipt_.terms

    assert "check the classes" in wrong["other labels"] and "'no', 'yes'" in wrong["rare classes"]
    assert one["rare classes"].startswith("'yes'") and "other labels" not in one
    assert "expect a poor model" in few["few rows"] and "hardly varies" in flat["target"]
    assert not {"few rows", "other labels", "rare classes", "target", "declared rows"} & set(fine)


@pytest.mark.parametrize("declared", [30, 10**6])
def test_a_declared_number_of_rows_that_is_far_off_is_not_used(declared: int) -> None:
    model = classifier(rows=declared).fit(FRAME, target="rich")

    assert f"{declared}, far from a private count" in model.receipt_.terms["declared rows"]
    assert abs(model.receipt_.terms["rows, about"] - N) < 500
    assert model.score(FRAME, FRAME["rich"]) > 0.9
    right = classifier(rows=N).fit(FRAME, target="rich").receipt_.terms
    assert right["rows, about"] == N and "declared rows" not in right


@pytest.mark.parametrize(
    ("more", "target", "told"),
    [
        ({"epsilon": 3, "max_epsilon": 1}, "rich", "at most max_epsilon"),
        ({"delta": 0.01, "rows": 3000}, "rich", "at most 1 / rows"),
        ({"unit": "pay", "max_rows_per_unit": 2, "classes": [1, 2]}, "pay", "besides the id of the unit"),
        ({}, "ritch", "Did you mean 'rich'"),
        ({}, "nothing of it", "'rich', 'pay', 'id'"),
        ({"unit": "ids", "max_rows_per_unit": 2}, "rich", "Did you mean 'id'"),
    ],
)
def test_arguments_that_contradict_each_other_or_the_table_are_refused_unpaid(
    more: dict[str, Any], target: str, told: str
) -> None:
    with pytest.raises(InvalidRequest, match=told):
        classifier(**more).fit(FRAME, target=target)
