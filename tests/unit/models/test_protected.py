"""Estimators that pay by themselves keep to the unit and the neighbours that an account is about."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import expost
from expost import Dataset, InvalidRequest, OneOf, SGDClassifier, Unit
from expost.core import Adjacency, TargetNotMet
from expost.ledger import Protected
from expost.ledger.ledger_entry import EntryKind
from expost.models import HuberSVC, LogisticRegression, Ridge

PEOPLE = "dataset:people"
TABLE = pa.table({"id": np.repeat(np.arange(200), 2), "a": np.tile([0.1, 0.9], 200), "y": np.tile([0, 1], 200)})
X, Y = TABLE.column("a").to_numpy()[:, None], TABLE.column("y").to_numpy()
USERS = {"unit": "id", "max_rows_per_unit": 2}
REPLACED = {"adjacency": "replace-one", "rows": 400}
GRADIENT = {"classes": [0, 1], "rows": 400, "steps": 5, "feature_bound": 1.0}


class Book:
    """A ledger file whose account of people may have been asked about already."""

    def __init__(self, folder: Path) -> None:
        self.path, self.checkpoint = str(folder / "book.ledger"), str(folder / "run.npz")
        with expost.open_ledger(self.path) as ledger:
            ledger.open_account(PEOPLE, expost.approx(20, 1e-4))

    def asked(self, **description: Any) -> "Book":
        with expost.open_ledger(self.path) as ledger:
            people = Dataset(TABLE, name="people", bounds={"a": (0, 1)}, **description)
            expost.Session(people, ledger=ledger).sum("a", epsilon=0.125)
        return self

    def lines(self) -> list[Any]:
        with expost.open_ledger(self.path) as ledger:
            return ledger.history(PEOPLE)

    def terms(self, **changes: Any) -> dict[str, Any]:
        return {"ledger": self.path, "account": PEOPLE} | changes

    def gradient(self, **changes: Any) -> SGDClassifier:
        return SGDClassifier(**GRADIENT | {"epsilon": 1.0} | self.terms(**changes))

    def ladder(self) -> OneOf[SGDClassifier]:
        return OneOf([SGDClassifier(**GRADIENT, **self.terms())], score=("accuracy", 0.1), levels=1)

    def logistic(self, **changes: Any) -> LogisticRegression:
        return LogisticRegression(
            feature_bound=1.0, **{"epsilon": 1.0, "regularization": 0.1, "classes": (0, 1)} | self.terms(**changes)
        )

    def absolute(self) -> LogisticRegression:
        return self.logistic(method="absolute_loss", epsilon=None, score=("log_loss", 0.9), rows=400)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path)


def refused(book: Book, model: Any, *data: Any) -> str:
    before = book.lines()
    with pytest.raises(InvalidRequest, match="as in the account so far") as raised:
        model.fit(*data)
    assert book.lines() == before  # nothing held, nothing charged
    return str(raised.value)


def test_rows_are_not_billed_to_an_account_about_people(book: Book) -> None:
    book.asked(**USERS)

    models = [book.gradient(), book.gradient(checkpoint=book.checkpoint), book.ladder(), book.logistic()]
    for model in [
        *models,
        book.absolute(),
        Ridge(epsilon=1.0, regularization=0.1, feature_bound=1.0, target_bounds=1.0, **book.terms()),
    ]:
        assert "all rows of one id" in refused(book, model, X, Y)
    assert not Path(book.checkpoint).exists()


def test_a_dataset_of_rows_is_not_billed_to_an_account_about_people(book: Book) -> None:
    book.asked(**USERS)

    refused(book, book.gradient(account=None), Dataset(TABLE.drop(["id"]), name="people"), "y")
    refused(book, book.logistic(account=None), Dataset(TABLE.drop(["id"]), name="people", **REPLACED), "y")


@pytest.mark.parametrize("description", [{}, REPLACED])
def test_models_under_either_adjacency_are_billed_to_one_account(book: Book, description: dict[str, Any]) -> None:
    book.asked(**description)

    for name in ("gradient", "ladder", "absolute", "logistic"):
        try:
            getattr(book, name)().fit(X, Y)
        except TargetNotMet:
            assert name in ("ladder", "absolute")


def test_a_part_of_an_account_about_people_is_about_people(book: Book) -> None:
    book.asked(**USERS)
    part = f"{PEOPLE}/site=A"
    with expost.open_ledger(book.path) as ledger:
        ledger.open_part(part, of=PEOPLE, by="column site")

    refused(book, book.gradient(account=part), X, Y)


CLASSIFIED = {
    "excess_risk": 0.5,
    "regularization": 0.1,
    "max_epsilon": 10.0,
    "feature_bound": 1.0,
    "classes": (0, 1),
}
FITTED = {name: each for name, each in CLASSIFIED.items() if name != "classes"} | {"target_bounds": 1.0}
TESTED = {"excess_risk": None, "score": ("accuracy", 0.1)}
ABSOLUTE = {"excess_risk": None, "score": ("log_loss", 0.9), "rows": 400}
SCORED = {"test": TESTED, "absolute_loss": ABSOLUTE}
WAYS: list[tuple[Any, dict[str, Any]]] = [
    (SGDClassifier, GRADIENT | {"epsilon": 1.0}),
    *(
        (kind, CLASSIFIED | {"method": way} | SCORED.get(way, {}))
        for kind in (LogisticRegression, HuberSVC)
        for way in kind._methods
    ),
    *((Ridge, FITTED | {"method": way}) for way in ("objective", "certificate")),
    (Ridge, FITTED | {"excess_risk": None, "epsilon": 1.0, "delta": 1e-6}),
]


@pytest.mark.parametrize(("kind", "asked"), WAYS)
def test_a_hold_says_of_neighbours_what_the_receipt_says(book: Book, kind: Any, asked: dict[str, Any]) -> None:
    with contextlib.suppress(TargetNotMet):  # paid for all the same
        kind(**asked, **book.terms()).fit(X, Y)

    held, settled = (
        next(line for line in book.lines() if line.kind is word) for word in (EntryKind.HOLD, EntryKind.SETTLE)
    )
    receipt = settled.receipt
    assert Protected.from_json(held.body["protected"]) == Protected(PEOPLE, receipt.adjacency, receipt.unit)
    assert receipt.unit == Unit.row()
    private_size = kind is SGDClassifier or asked.get("method") == "absolute_loss"
    assert receipt.adjacency is (Adjacency.ADD_REMOVE if private_size else Adjacency.REPLACE_ONE)


def test_a_fit_decides_for_the_sessions_that_follow(book: Book) -> None:
    book.gradient().fit(X, Y)

    with pytest.raises(InvalidRequest, match="as in the account so far"):
        book.asked(**USERS)
    book.asked()
