"""A model card says what is public and released, in three forms, and nothing else."""

import html.parser
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import expost
from expost import InvalidRequest, open_ledger
from expost.core import Receipt

BOUNDS = [(-1.0, 1.0)] * 3


def rows() -> tuple[pd.DataFrame, np.ndarray]:
    x = np.random.default_rng(0).uniform(-1, 1, (2000, 3))
    return pd.DataFrame(x, columns=["age", "<b>pay</b>", "a|b"]), x @ [1.0, -0.5, 0.0]


def ridge(**terms: Any) -> expost.Ridge:
    usual = {"epsilon": 2.0, "method": "certificate", "bounds": BOUNDS, "target_bounds": 1.0, "simulation_seed": 1}
    return expost.Ridge(**(usual | terms))


class Reader(html.parser.HTMLParser):
    """Collects the elements, and checks that they are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_card_has_the_receipt_the_columns_and_the_coefficients() -> None:
    x, y = rows()
    model = ridge().fit(x, y)

    card = model.card()

    document = json.loads(card.to_json())
    assert Receipt.from_dict(document["receipt"]) == model.receipt_
    assert [each["feature"] for each in card.coefficients] == [*x.columns, "intercept"]
    assert [each["value"] for each in card.coefficients][:3] == model.coef_.tolist()
    assert all(each["interval"] is None for each in card.coefficients)
    lines = {label: text for section in card.sections for label, text in section.lines}
    assert lines["columns"] == "3: age, <b>pay</b>, a|b"
    assert lines["paid"] == "epsilon 2"
    assert lines["ledger entry"] == model.receipt_.ledger_entry


def test_names_cannot_break_out_of_their_cells() -> None:
    card = ridge().fit(*rows()).card()

    reader = Reader()
    reader.feed(card.to_html())
    assert reader.open == []
    assert "b" not in reader.seen
    assert "script" not in reader.seen
    assert "a\\|b" in card.to_markdown()
    assert "<b>" not in card.to_markdown()


@pytest.mark.parametrize("name", ["card.html", "card.md", "card.json", "CARD.HTML"])
def test_a_card_is_saved_by_the_ending_of_its_name(tmp_path: Path, name: str) -> None:
    card = ridge().fit(*rows()).card()

    card.save(tmp_path / name)

    text = (tmp_path / name).read_text(encoding="utf-8")
    made = {"html": card.to_html, "md": card.to_markdown, "json": card.to_json}[name.lower().split(".")[1]]
    assert text == made()


@pytest.mark.parametrize("name", ["card.pdf", "card", "no/such/folder/card.html", 3])
def test_a_name_that_cannot_be_written_is_refused(tmp_path: Path, name: Any) -> None:
    card = ridge().fit(*rows()).card()

    with pytest.raises(InvalidRequest):
        card.save(str(tmp_path / name) if isinstance(name, str) else name)


def test_a_seeded_model_says_that_it_is_not_private_and_a_paid_one_does_not(tmp_path: Path) -> None:
    path, (x, y) = str(tmp_path / "ledger"), rows()
    open_ledger(path).open_account("dataset:table", expost.epsilon(10))

    assert "nothing is private" in ridge().fit(x, y).card().to_html()
    assert ridge(simulation_seed=None, ledger=path).fit(x, y).card().warnings == ()


def test_the_ledger_and_its_password_are_not_on_the_card(tmp_path: Path) -> None:
    path, (x, y) = str(tmp_path / "secret.ledger"), rows()
    open_ledger(path).open_account("dataset:table", expost.epsilon(10))
    card = ridge(simulation_seed=None, ledger=path).fit(x, y).card()

    assert all("secret.ledger" not in text for text in (card.to_html(), card.to_markdown(), card.to_json()))


DESCENT = {"rows": 2000, "steps": 5, "epsilon": 1.0, "feature_bound": 2.0, "simulation_seed": 1}
KINDS: dict[str, Any] = {
    "three classes": expost.SGDClassifier(classes=["a", "b", "c"], **DESCENT),
    "two classes": expost.LogisticRegression(epsilon=5.0, classes=["a", "b"], simulation_seed=1, feature_bound=1.0),
    "scaler": expost.StandardScaler(epsilon=1.0, bounds=(-1, 1), simulation_seed=1),
    "choice": expost.SelectKBest(1, epsilon=1.0, bounds=(-1, 1), classes=["a", "b"], simulation_seed=1),
    "pipeline": expost.Pipeline(
        [
            ("scale", expost.StandardScaler(epsilon=0.5, bounds=(-1, 1))),
            ("model", expost.SGDClassifier(classes=["a", "b"], epsilon=1.0, rows=2000, steps=5, feature_bound=1.0)),
        ],
        simulation_seed=1,
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_model_has_a_card(name: str) -> None:
    x, y = rows()

    card = KINDS[name].fit(x, np.where(y > 0, "a", "b")).card()

    json.loads(card.to_json())
    assert card.to_html().startswith("<!doctype html>")
    assert len(card.coefficients) == {"three classes": 12, "two classes": 4, "pipeline": 4}.get(name, 0)
    if name == "pipeline":
        assert "scale 0.5" in str(card)


def test_a_model_that_is_not_fitted_has_no_card() -> None:
    with pytest.raises(NotFittedError):
        ridge().card()
    with pytest.raises(NotFittedError):
        KINDS["pipeline"].__class__(KINDS["pipeline"].steps).card()
