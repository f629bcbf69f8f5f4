"""Models know their columns, whatever table they were fitted to, and predict for no other ones."""

import itertools

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

import expost
from expost import Dataset, Session

NAMES = list("dacb")
ROWS = np.random.default_rng(0).uniform(0, 1, (3_000, 4))
TARGET = ROWS @ [0.5, -0.4, 0.3, 0.0]
LABEL = (TARGET > 0.2).astype(int)
FRAME = pd.DataFrame(ROWS, columns=NAMES)
BOUNDS = [(0, 1)] * 4
SGD = {"rows": 3_000, "bounds": BOUNDS, "steps": 5, "epsilon": 3.0, "simulation_seed": 1}
LINEAR = {"bounds": BOUNDS, "epsilon": 5.0, "simulation_seed": 1}
MODELS = {
    "Ridge": (lambda: expost.Ridge(target_bounds=1.0, **LINEAR), TARGET, (-1.0, 1.0)),
    "LogisticRegression": (lambda: expost.LogisticRegression(classes=(0, 1), **LINEAR), LABEL, [0, 1]),
    "HuberSVC": (lambda: expost.HuberSVC(classes=(0, 1), **LINEAR), LABEL, [0, 1]),
    "SGDClassifier": (lambda: expost.SGDClassifier(classes=[0, 1], **SGD), LABEL, [0, 1]),
    "SGDRegressor": (lambda: expost.SGDRegressor(target_bounds=1.0, **SGD), TARGET, (-1.0, 1.0)),
}
TABLES = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "batch": lambda frame: pa.RecordBatch.from_pandas(frame, preserve_index=False),
}


def described(target, ends, replaced):
    facts = {"bounds": {name: (0, 1) for name in NAMES}}
    if isinstance(ends, tuple):
        facts["bounds"]["t"] = ends
    else:
        facts["categories"] = {"t": ends}
    terms = {"adjacency": "replace-one", "rows": 3_000} if replaced else {}
    return Dataset(FRAME.assign(t=target), name="d", **facts, **terms)


def fits(name):
    """The same model fitted from every kind of source."""
    make, target, ends = MODELS[name]
    replaced = not name.startswith("SGD")
    for kind, table in TABLES.items():
        yield kind, make().fit(table(FRAME), target)
    yield "dataset", make().fit(described(target, ends, replaced), "t")
    session = Session(described(target, ends, replaced), expost.epsilon(50, 1e-3))
    yield "session", session.fit(make(), features=NAMES, target="t")


def methods(model):
    found = [getattr(model, name, None) for name in ("predict", "predict_proba", "decision_function")]
    return [method for method in found if method is not None]


@pytest.mark.parametrize("name", MODELS)
def test_every_source_gives_a_model_its_column_names_and_a_file_keeps_them(name, tmp_path):
    for kind, model in fits(name):
        expost.save_model(model, tmp_path / "model.json")
        for each in (model, expost.load_model(tmp_path / "model.json")):
            assert each.feature_names_in_.tolist() == NAMES, kind
            assert each.feature_names_in_.dtype == object
            assert each.n_features_in_ == 4


@pytest.mark.parametrize("name", MODELS)
def test_predictions_for_other_columns_are_refused_by_name(name, tmp_path):
    _, target, _ = MODELS[name]
    order = r"same order as they were in fit"
    wrong = [
        (FRAME[NAMES[::-1]], order),
        (FRAME[sorted(NAMES)], order),
        (FRAME.rename(columns={"a": "x"}), r"unseen at fit time:\n- x\n.*now missing:\n- a\n"),
        (FRAME.drop(columns="c"), r"now missing:\n- c\n"),
        (FRAME.assign(e=0.0), r"unseen at fit time:\n- e\n"),
        (FRAME.assign(e="text"), r"unseen at fit time:\n- e\n"),
    ]
    for _, model in fits(name):
        expost.save_model(model, tmp_path / "model.json")
        for each, (frame, said), table in itertools.product(
            (model, expost.load_model(tmp_path / "model.json")), wrong, TABLES.values()
        ):
            for method in methods(each):
                with pytest.raises(expost.InvalidRequest, match=f"(?s)feature names should match.*{said}"):
                    method(table(frame))
            with pytest.raises(expost.InvalidRequest, match="feature names should match"):
                each.score(table(frame), target)


@pytest.mark.parametrize("name", MODELS)
def test_tables_of_every_kind_are_predicted_alike(name):
    _, target, _ = MODELS[name]
    for _, model in fits(name):
        expected, score = model.predict(ROWS), model.score(ROWS, target)
        for table in TABLES.values():
            assert model.predict(table(FRAME)).tolist() == expected.tolist()
            assert model.score(table(FRAME), target) == score
        # Tables without names have their width checked.
        # Products of fewer rows may differ in their last bits.
        few = model.predict(ROWS[:9].tolist())
        assert few.tolist() == pytest.approx(expected[:9].tolist(), rel=1e-12, abs=1e-15)
        assert model.predict(scipy.sparse.csr_array(ROWS)).tolist() == expected.tolist()
        with pytest.raises(expost.InvalidRequest, match="3 features"):
            model.predict(ROWS[:, :3])
        with pytest.raises(expost.InvalidRequest, match="a Dataset is private"):
            model.predict(described(target, (-1.0, 1.0), False))
        with pytest.raises(expost.InvalidRequest):
            model.predict({name: FRAME[name].tolist() for name in NAMES})


def test_columns_are_those_chosen_for_a_session_in_their_order():
    session = Session(described(LABEL, [0, 1], False), expost.epsilon(50, 1e-3))
    model = session.fit(
        expost.SGDClassifier(classes=[0, 1], **(SGD | {"bounds": [(0, 1)] * 2})), features=["c", "a"], target="t"
    )

    assert model.feature_names_in_.tolist() == ["c", "a"]
    assert model.predict(FRAME[["c", "a"]]).tolist() == model.predict(FRAME[["c", "a"]].to_numpy()).tolist()
    for frame in (FRAME, FRAME[["a", "c"]]):
        with pytest.raises(expost.InvalidRequest, match="feature names should match"):
            model.predict(frame)


def test_public_rows_of_a_training_are_checked_by_name():
    model = expost.SGDClassifier(classes=[0, 1], score=("accuracy", 0.6), **{**SGD, "epsilon": None})

    with pytest.raises(expost.InvalidRequest, match="same order"):
        model.fit(described(LABEL, [0, 1], False), "t", public_validation=(FRAME[NAMES[::-1]], LABEL))
    assert not hasattr(model, "release_")


def test_a_second_fit_forgets_the_names_of_the_first():
    model = expost.Ridge(target_bounds=1.0, **LINEAR).fit(FRAME, TARGET)

    assert not hasattr(model.fit(ROWS, TARGET), "feature_names_in_")
    assert model.predict(FRAME[NAMES[::-1]]).shape == (3_000,)  # nothing to compare with


def test_a_repenalised_model_keeps_its_columns_and_reads_rows_alike():
    rows = FRAME.copy()
    rows.iloc[::3, 1] = 1e300
    model = expost.Ridge(method="certificate", target_bounds=1.0, **LINEAR).fit(rows, TARGET)
    other = model.repenalised(0.1)

    assert other.feature_names_in_.tolist() == NAMES
    assert np.abs(other.predict(rows)).max() < 10


def test_tuned_models_know_their_columns():
    models = [expost.SGDClassifier(classes=[0, 1], clip=clip, **{**SGD, "epsilon": None}) for clip in (0.2, 1.0)]
    for source, y in ((FRAME, LABEL), (TABLES["arrow"](FRAME), LABEL), (described(LABEL, [0, 1], False), "t")):
        model = expost.fit_one_of(models, source, y, score=("accuracy", 0.55), max_epsilon=8.0)
        assert model.feature_names_in_.tolist() == NAMES


def test_a_frame_with_a_column_called_column_names_is_known_by_its_columns():
    frame = FRAME.rename(columns={"a": "column_names"})

    assert expost.Ridge(target_bounds=1.0, **LINEAR).fit(frame, TARGET).feature_names_in_.tolist() == [
        "d",
        "column_names",
        "c",
        "b",
    ]
