import json

import numpy as np
import pytest
import scipy.sparse

import expost

GENERATOR = np.random.default_rng(3)
ROWS = GENERATOR.random((4_000, 3)) / 3
TARGET = ROWS @ np.array([1.0, -0.5, 0.2])


def fitted() -> expost.Ridge:
    return expost.Ridge(excess_risk=0.05, max_epsilon=5.0).fit(ROWS, TARGET)


def test_a_model_predicts_the_same_after_a_round_trip(tmp_path) -> None:
    model = fitted()
    expost.save_model(model, tmp_path / "model.json")

    again = expost.load_model(tmp_path / "model.json")

    np.testing.assert_array_equal(again.predict(ROWS[:10]), model.predict(ROWS[:10]))
    assert again.receipt_ == model.receipt_


def test_a_classifier_keeps_its_classes(tmp_path) -> None:
    labels = np.where(np.median(TARGET) < TARGET, "late", "early")
    model = expost.LogisticRegression(excess_risk=0.05, classes=("early", "late"), max_epsilon=5.0).fit(ROWS, labels)
    expost.save_model(model, tmp_path / "model.json")

    again = expost.load_model(tmp_path / "model.json")

    assert again.predict(ROWS[:10]).tolist() == model.predict(ROWS[:10]).tolist()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 9, "estimator": "Ridge"}', '{"estimator": "os.system"}'])
def test_a_file_that_is_no_model_is_refused(tmp_path, text: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)

    with pytest.raises(expost.InvalidRequest, match="model file"):
        expost.load_model(path)


def test_the_file_is_plain_json_without_exact_values(tmp_path) -> None:
    expost.save_model(fitted(), tmp_path / "model.json")

    document = json.loads((tmp_path / "model.json").read_text())

    assert set(document) == {
        "format",
        "estimator",
        "coefficients",
        "intercept",
        "limit",
        "lows",
        "features",
        "classes",
        "receipt",
    }


def gappy(kind=np.asarray) -> object:
    rows = ROWS[:6].copy()
    rows[::2, 1] = np.nan
    return kind(rows)


@pytest.mark.parametrize("bounds", [None, [(-0.5, 1), (-0.25, 1), (0, 1)]], ids=["no bounds", "bounds"])
@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_missing_values_are_predicted_alike_before_and_after_a_round_trip(tmp_path, bounds, kind) -> None:
    model = expost.Ridge(excess_risk=0.05, max_epsilon=50.0, bounds=bounds).fit(ROWS, TARGET)
    expost.save_model(model, tmp_path / "model.json")
    again = expost.load_model(tmp_path / "model.json")
    filled = np.nan_to_num(gappy(), nan=0.0 if bounds is None else -0.25)

    expected = model.predict(filled)

    np.testing.assert_allclose(model.predict(gappy(kind)), expected, rtol=1e-12)
    np.testing.assert_allclose(again.predict(gappy(kind)), expected, rtol=1e-12)
    expost.save_model(again, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "model.json").read_text()


@pytest.mark.parametrize("bounds", [None, [(-0.5, 1), (-0.25, 1), (0, 1)]], ids=["no bounds", "bounds"])
def test_an_older_file_still_predicts_and_guesses_no_missing_value(tmp_path, bounds) -> None:
    model = expost.Ridge(excess_risk=0.05, max_epsilon=50.0, bounds=bounds).fit(ROWS, TARGET)
    expost.save_model(model, tmp_path / "model.json")
    document = json.loads((tmp_path / "model.json").read_text())
    del document["lows"]
    (tmp_path / "model.json").write_text(json.dumps(document))

    again = expost.load_model(tmp_path / "model.json")

    np.testing.assert_array_equal(again.predict(ROWS[:6]), model.predict(ROWS[:6]))
    told = again.predict(gappy())
    assert np.isnan(told[::2]).all() == (bounds is not None)
    np.testing.assert_allclose(told[1::2], model.predict(ROWS[1:6:2]))
