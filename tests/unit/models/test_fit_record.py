"""Fits that no ledger counts are counted by the process, from public facts."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score

import expost
from expost import Ridge, StandardScaler, TargetNotMet, open_ledger
from expost.models import estimator
from expost.models.fit_record import RepeatedFitWarning


@pytest.fixture(autouse=True)
def fresh_record() -> Iterator[None]:
    estimator._UNCOUNTED.forget()
    yield
    estimator._UNCOUNTED.forget()


def table(rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).uniform(-0.3, 0.3, (rows, 3))
    return x, x.sum(axis=1)


def warned(run: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(each.message) for each in caught if issubclass(each.category, RepeatedFitWarning)]


def ridge(**terms: Any) -> Ridge:
    return Ridge(**({"epsilon": 1.0, "method": "certificate", "feature_bound": 1.0, "target_bounds": 1.0} | terms))


def test_a_search_without_a_ledger_says_how_many_fits_and_what_they_cost() -> None:
    x, y = table()
    search = GridSearchCV(ridge(), {"regularization": [0.01, 0.1]}, cv=3)

    messages = warned(lambda: search.fit(x, y))

    assert [message.split()[0] for message in messages] == ["2", "4"]  # of seven fits
    assert "cost epsilon 4 together, not the epsilon 1 of one receipt" in messages[-1]
    assert "ledger=" in messages[-1]


def test_one_fit_is_silent_and_so_are_fits_to_other_columns() -> None:
    x, y = table()
    frame = pd.DataFrame(x, columns=list("abc"))

    assert warned(lambda: ridge().fit(x, y)) == []
    assert warned(lambda: ridge().fit(frame, y)) == []
    assert warned(lambda: ridge().fit(frame.rename(columns={"a": "d"}), y)) == []
    assert warned(lambda: ridge().fit(x[:, :2], y)) == []


def test_different_estimators_on_the_same_columns_are_counted_together() -> None:
    x, y = table()
    frame = pd.DataFrame(x, columns=list("abc"))
    sgd = expost.SGDRegressor(epsilon=0.5, rows=300, steps=3, feature_bound=1.0, target_bounds=1.0)

    ridge().fit(frame, y)
    messages = warned(lambda: sgd.fit(frame, y))
    warned(lambda: StandardScaler(epsilon=1, bounds=(-1, 1)).fit(frame))
    more = warned(lambda: ridge().fit(frame, y))

    assert len(messages) == len(more) == 1
    assert messages[0].startswith("2 fits without a ledger read tables with the same 3 columns")
    assert "delta" in messages[0]
    assert more[0].startswith("4 fits")


def test_fits_with_a_ledger_or_a_seed_are_not_counted(tmp_path: Any) -> None:
    x, y = table()
    path = str(tmp_path / "ledger")
    open_ledger(path).open_account("dataset:table", expost.epsilon(100))

    assert warned(lambda: cross_val_score(ridge(ledger=path), x, y, cv=3)) == []
    assert warned(lambda: cross_val_score(ridge(simulation_seed=1), x, y, cv=3)) == []


def test_the_warning_does_not_depend_on_rows() -> None:
    x, y = table()
    other = np.full_like(x, np.nan)

    first = warned(lambda: (ridge().fit(x, y), ridge().fit(x, y)))
    estimator._UNCOUNTED.forget()
    second = warned(lambda: (ridge().fit(other, y * np.inf), ridge().fit(x[:50], y[:50])))

    assert first == second != []


def test_a_missed_target_is_counted_too() -> None:
    x, y = table()

    def miss() -> None:
        with pytest.raises(TargetNotMet):
            ridge(epsilon=None, score=("r2", 0.999), max_epsilon=0.5).fit(x, y)

    miss()
    assert len(warned(miss)) == 1


def test_an_estimator_of_tables_that_is_fitted_twice_warns_at_the_line_that_fits_it() -> None:
    table = pd.DataFrame({"age": np.arange(50.0), "old": np.arange(50) > 30})
    model = expost.Classifier(epsilon=0.5, columns={"age": (0, 50)})

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(table, target="old")
        assert caught == []
        model.fit(table, target="old")

    assert [each.filename for each in caught] == [__file__]
    assert str(caught[0].message).startswith("2 fits")
