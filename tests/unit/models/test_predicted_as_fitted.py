"""Predictions read rows as fits do, so that an accuracy that was tested or certified is that of the predictions."""

import math

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import clone

import expost
from expost.core import Measure, Outcome, unseal
from expost.data.row_source import read_rows
from expost.data.unit_ball import GRID_BITS, UnitBall, UnitRows, grid_numbers
from expost.models.descent.feature_grid import FeatureGrid
from expost.models.descent.linear_learner import GridReading, LinearLearner
from expost.models.descent.score_head import Logistic, Squared
from expost.models.descent.stopping_test import ScoreRule
from expost.models.linear.classifier_fit import known_labels
from expost.models.linear.linear_fit import UnitReading
from expost.models.linear.tested_score import ScoreQuery

ODD = [math.nan, math.inf, -math.inf, 1e308, -1e308, 80.0, -80.0, 5e-324, -0.0, 2.0**53 + 1, 1e-9]
BOUNDS = [(0, 1), (-2, 1), (1e9, 1e9 + 1)]


def odd_table(rows=20_000, seed=0):
    """Two classes that differ in the first column; one row in four has odd cells."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, rows)
    first = np.where(label == 1, rng.uniform(0.55, 1, rows), rng.uniform(0, 0.45, rows))
    table = np.column_stack([first, rng.uniform(-2, 1, rows), 1e9 + rng.random(rows)])
    odd = np.flatnonzero(rng.random(rows) < 0.25)
    table[odd, rng.integers(1, 3, len(odd))] = rng.choice(ODD, len(odd))
    target = np.where(rng.random(rows) < 0.01, rng.choice([math.nan, math.inf, -math.inf, 9.0], rows), label - 0.5)
    return table, label, target


TABLE, LABEL, TARGET = odd_table()
COMMON = {"bounds": BOUNDS, "fit_intercept": True, "regularization": 1e-4, "max_epsilon": 30.0, "simulation_seed": 1}


def told(monkeypatch):
    """What each private test was asked: the query and its exact integer."""
    seen = []
    ask = ScoreQuery.seal_score

    def spied(self, rows, theta, *, minus=0):
        sealed = ask(self, rows, theta, minus=minus)
        seen.append((self, unseal(sealed) + minus))
        return sealed

    monkeypatch.setattr(ScoreQuery, "seal_score", spied)
    return seen


@pytest.mark.parametrize("kind", [expost.LogisticRegression, expost.HuberSVC])
def test_the_accuracy_that_was_tested_is_the_score_on_the_rows_of_the_fit(monkeypatch, tmp_path, kind):
    seen = told(monkeypatch)
    labels = LABEL.copy()
    labels[:50] = 7  # neither class
    model = kind(score=("accuracy", 0.9), classes=(0, 1), **COMMON).fit(TABLE, labels)
    expost.save_model(model, tmp_path / "model.json")

    query, right = seen[-1]
    assert model.receipt_.outcome is Outcome.TESTED
    assert query.measure is Measure.ACCURACY
    for each in (model, expost.load_model(tmp_path / "model.json")):
        assert each.score(TABLE, labels) == pytest.approx(right / len(TABLE), abs=1e-12)
        assert each.score(pa.table({c: TABLE[:, i] for i, c in enumerate("abc")}), labels) == each.score(TABLE, labels)
        assert (each.predict(TABLE) == labels).mean() == pytest.approx(right / len(TABLE), abs=1e-12)


def test_the_accuracy_of_rows_far_out_of_bounds_holds():
    """Unless rows are cut, 20 % with 80 in a column of [0, 1] are predicted by that column alone."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 20_000)
    first = np.where(label == 1, rng.uniform(0.55, 1, 20_000), rng.uniform(0, 0.45, 20_000))
    second = np.where(label == 1, rng.uniform(0, 0.8, 20_000), rng.uniform(0.2, 1, 20_000))
    rows = np.column_stack([first, np.where(rng.random(20_000) < 0.2, 80.0, second)])
    model = expost.LogisticRegression(
        score=("accuracy", 0.95), classes=(0, 1), **(COMMON | {"bounds": [(0, 1)] * 2, "max_epsilon": 20.0})
    ).fit(rows, label)

    assert model.receipt_.outcome is Outcome.TESTED
    assert model.score(rows, label) >= 0.95
    np.testing.assert_array_equal(model.predict(rows), model.predict(np.clip(rows, 0, 1)))
    np.testing.assert_array_equal(model.predict_proba(rows), model.predict_proba(np.clip(rows, 0, 1)))


@pytest.mark.parametrize("measure", ["rmse", "r2"])
def test_the_error_that_was_tested_is_that_of_the_predictions(monkeypatch, tmp_path, measure):
    seen = told(monkeypatch)
    goal = 0.45 if measure == "rmse" else 0.3
    model = expost.Ridge(score=(measure, goal), target_bounds=0.5, **COMMON).fit(TABLE, TARGET)
    expost.save_model(model, tmp_path / "model.json")
    cut = np.clip(np.nan_to_num(TARGET, nan=0.0), -0.5, 0.5)

    _, asked = seen[-1]
    for each in (model, expost.load_model(tmp_path / "model.json")):
        error = float(((each.predict(TABLE) - cut) ** 2).mean()) / 0.25
        if measure == "rmse":
            tested = -asked / len(TABLE) * 2.0**-GRID_BITS
            assert error <= tested <= error + 3 * 2.0**-GRID_BITS  # losses are rounded up row by row
        else:
            assert each.score(TABLE, TARGET) >= goal
            deviations = float(((cut - cut.mean()) ** 2).mean()) / 0.25
            tested = asked / len(TABLE) * 2.0**-GRID_BITS
            assert tested == pytest.approx((1 - goal) * deviations - error, abs=5 * 2.0**-GRID_BITS)
        assert each.score(TABLE, TARGET) == pytest.approx(1 - error * 0.25 / cut.var(), abs=1e-5)


@pytest.mark.parametrize("aim", [{"excess_risk": 0.05}, {"epsilon": 5.0}])
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("bounds", [None, BOUNDS])
def test_scores_are_those_of_rows_in_the_unit_ball(aim, norm, bounds):
    for model, y in ((expost.Ridge(target_bounds=1.0), TARGET), (expost.LogisticRegression(classes=(0, 1)), LABEL)):
        terms = COMMON | aim | {"feature_norm": norm, "bounds": bounds, "regularization": 0.05}
        terms["feature_bound"] = 1.0 if bounds is None else None
        fitted = clone(model).set_params(**terms).fit(TABLE, y)
        reading = fitted.release_.value.reading
        rows = UnitRows(read_rows(TABLE, np.zeros(len(TABLE))), reading.ball, grid_numbers(1.0))
        exact = np.concatenate([part @ reading.coefficients for part, _ in rows.chunks()])
        scores = fitted.predict if isinstance(model, expost.Ridge) else fitted.decision_function
        np.testing.assert_allclose(scores(TABLE), exact * 2.0**-GRID_BITS, rtol=0, atol=1e-12)
        # Within the bounds it is the linear model that the coefficients say, up to the grid.
        inside = np.column_stack([np.full(50, 0.2), np.linspace(-0.3, 0.3, 50), np.full(50, 0.1)])
        inside += 0 if bounds is None else [0, 0, 1e9]
        np.testing.assert_allclose(scores(inside), inside @ np.ravel(fitted.coef_) + fitted.intercept_, atol=1e-4)


GRADIENT = {"rows": 20_000, "bounds": BOUNDS, "max_epsilon": 8.0, "steps": 30, "simulation_seed": 1}


def spied_totals(monkeypatch):
    """What each private test of a training counted, and the rows it counted."""
    seen = []
    score = LinearLearner.score

    def spied(self, rule, margin):
        sealed = score(self, rule, margin)
        seen.append((rule, unseal(sealed) + margin, len(self._validation)))
        return sealed

    monkeypatch.setattr(LinearLearner, "score", spied)
    return seen


def test_the_accuracy_that_a_training_tested_is_that_of_its_predictions(monkeypatch, tmp_path):
    """All rows are alike but for their label and odd cells, so the held-out rows are known by their count."""
    seen = spied_totals(monkeypatch)
    labels = LABEL.copy()
    labels[:50] = 7
    model = expost.SGDClassifier(score=("accuracy", 0.9), classes=[0, 1], validation_share=0.5, **GRADIENT)
    model.fit(TABLE, labels)
    expost.save_model(model, tmp_path / "model.json")
    rule, total, count = seen[-1]
    tested = (total + rule.pass_mark * count) / rule.span / count

    assert model.receipt_.outcome is Outcome.TESTED
    for each in (model, expost.load_model(tmp_path / "model.json")):
        reading = each.release_.value.reading
        integers = reading.grid.encode_rows(TABLE)
        exact = rule.total(Logistic(), reading.compute_scores(TABLE).T, np.where(labels == 7, -1, labels))
        assert len(integers) == len(TABLE)
        share = (exact + rule.pass_mark * len(TABLE)) / rule.span / len(TABLE)
        assert each.score(TABLE, labels) == pytest.approx(share, abs=1e-12)
        assert (each.predict(TABLE) == labels).mean() == each.score(TABLE, labels)
        # Half of the rows were held out: the two shares are of samples of one table.
        assert each.score(TABLE, labels) == pytest.approx(tested, abs=0.02)
        np.testing.assert_array_equal(each.predict_proba(TABLE).argmax(1), each.predict(TABLE))


def test_the_error_that_a_training_tested_is_that_of_its_predictions(tmp_path):
    model = expost.SGDRegressor(score=("rmse", 0.35), target_bounds=(-0.5, 0.5), **GRADIENT).fit(TABLE, TARGET)
    expost.save_model(model, tmp_path / "model.json")
    rule = ScoreRule.of(model.receipt_.target, scale=0.5)
    cut = np.clip(np.nan_to_num(TARGET, nan=0.0), -0.5, 0.5)

    for each in (model, expost.load_model(tmp_path / "model.json")):
        predicted = each.predict(TABLE)
        total = rule.total(Squared(), each.release_.value.reading.compute_scores(TABLE).T, cut / 0.5)
        tested = (rule.pass_mark * len(TABLE) - total) / rule.span  # in units of the largest squared error
        error = float(((predicted - cut) ** 2).sum())
        assert np.abs(predicted).max() <= 0.5
        assert error - 1e-6 <= tested <= error + len(TABLE) / rule.span
        assert each.score(TABLE, TARGET) == pytest.approx(1 - error / float(((cut - cut.mean()) ** 2).sum()), abs=1e-9)


def test_a_training_tested_on_public_rows_reads_them_as_its_predictions_do():
    model = expost.SGDClassifier(score=("accuracy", 0.9), classes=[0, 1], **GRADIENT)
    model.fit(TABLE, LABEL, public_validation=(TABLE[:4_000], LABEL[:4_000]))

    assert model.receipt_.outcome is Outcome.CERTIFIED
    assert model.receipt_.achieved == pytest.approx(model.score(TABLE[:4_000], LABEL[:4_000]), abs=1e-12)


def test_a_tuned_model_reads_rows_as_it_was_tested():
    public = {"classes": [0, 1], "rows": 20_000, "bounds": BOUNDS, "steps": 20, "simulation_seed": 1}
    models = [expost.SGDClassifier(clip=clip, **public) for clip in (0.2, 1.0)]
    model = expost.fit_one_of(models, TABLE, LABEL, score=("accuracy", 0.9), max_epsilon=8.0)

    assert model.score(TABLE, LABEL) >= 0.9
    cut = np.clip(np.nan_to_num(TABLE, nan=0.0), *np.transpose(BOUNDS))
    whole = np.isfinite(TABLE).all(1)
    np.testing.assert_array_equal(model.predict(TABLE[whole]), model.predict(cut[whole]))


@settings(max_examples=150, deadline=None)
@given(
    hnp.arrays(np.float64, (7, 3), elements=st.one_of(st.sampled_from(ODD), st.floats(-3, 3))),
    st.sampled_from([None, ((0.0, -2.0, 1e9), (1.0, 1.0, 1e9 + 1))]),
    st.booleans(),
)
def test_scores_of_any_cells_are_finite_within_the_bounds_and_the_same_in_any_table(rows, ends, intercept):
    lows, highs = (None, None) if ends is None else ends
    weights = np.array([0.7, -1.3, 0.4, 0.2])[: 3 + intercept]
    unit = UnitReading(UnitBall(3, bound=2.0, lows=lows, highs=highs, intercept=intercept), weights)
    grid = GridReading(FeatureGrid(3, 2.0, intercept, lows, highs), weights[None])

    for reading, largest in ((unit, np.abs(weights).max()), (grid, 3 * np.linalg.norm(weights))):
        scores = reading.compute_scores(rows)
        assert np.isfinite(scores).all()
        assert np.abs(scores).max() <= largest
        np.testing.assert_allclose(scores[2:3], reading.compute_scores(rows[2:3]), rtol=1e-12)
        sparse = scipy.sparse.csr_array(np.nan_to_num(rows, nan=0.5))
        np.testing.assert_allclose(reading.compute_scores(sparse), reading.compute_scores(sparse.toarray()), rtol=1e-12)


def test_known_labels_and_scores_agree_for_text_and_missing_labels():
    labels = np.array(["no", "yes"], object)[LABEL]
    labels[:5] = [None, math.nan, 3, "maybe", b"yes"]
    model = expost.LogisticRegression(epsilon=5.0, classes=("no", "yes"), **COMMON).fit(TABLE, labels)

    known = known_labels(("no", "yes"))(labels)
    right = ((model.decision_function(TABLE) > 0) == (known > 0)) & (known != 0)
    assert model.score(TABLE, labels) == pytest.approx(right.mean())
    assert model.score(pl.DataFrame(TABLE, schema=list("abc")), labels) == pytest.approx(right.mean())
    assert model.score(TABLE[5:], labels[5:], sample_weight=np.arange(len(TABLE) - 5)) == pytest.approx(
        np.average(right[5:], weights=np.arange(len(TABLE) - 5))
    )
    with pytest.raises(expost.InvalidRequest, match="one target for each row"):
        model.score(TABLE, labels[1:])
