"""Wrong input of a training is refused in one sentence, before anything is held."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from torch import nn  # noqa: E402

from expost import InvalidRequest, approx, open_ledger  # noqa: E402
from expost.ledger import EntryKind  # noqa: E402
from expost.torch import train  # noqa: E402

ROWS = 200
PAIR = (torch.linspace(-1, 1, ROWS).reshape(-1, 1), (torch.arange(ROWS) % 2).long())


class Remembering(nn.Module):
    """A model that gives one row's answer to all."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(1, 2)

    def forward(self, rows: Any) -> Any:
        return self.inner(rows.mean(0, keepdim=True).expand_as(rows))


def broken() -> nn.Module:
    model = nn.Linear(1, 2)
    with torch.no_grad():
        model.weight.fill_(float("nan"))
    return model


def frozen() -> nn.Module:
    return nn.Linear(1, 2).requires_grad_(False)


MODELS: dict[str, Any] = {
    "a word": "linear",
    "no weights": nn.Flatten(),
    "frozen": frozen(),
    "NaN weights": broken(),
    "batch normalisation": nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)),
    "another width": nn.Linear(3, 2),
    "rows that are not independent": Remembering(),
    "lazy": nn.LazyLinear(2),
    "one output for two classes": nn.Linear(1, 1),
}
DATA: dict[str, Any] = {
    "a word": "rows",
    "a triple": (*PAIR, PAIR[0]),
    "one label too few": (PAIR[0], PAIR[1][:-1]),
    "ragged": ([[1.0], [1.0, 2.0]], [0, 1]),
    "lists": ([[1.0], [2.0]], [0, 1]),
    "lists with a gap": ([[1.0], [2.0]], [0, None]),
    "whole numbers": (PAIR[0].long(), PAIR[1]),
    "words": (np.array([["a"], ["b"]]), np.array([0, 1])),
}
TERMS: list[dict[str, Any]] = [
    {"loss": "cross-entropy"},
    {"loss": lambda outputs, targets: outputs.sum()},
    {"loss": lambda outputs: outputs},
    {"optimizer": "sgd"},
    {"optimizer": lambda parameters: None},
    {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=-1)},
    {"learning_rate": -1.0},
    {"learning_rate": 0.0},
    {"learning_rate": "x"},
    {"learning_rate": float("nan")},
    {"averaging": -1.0},
    {"averaging": "x"},
    {"averaging": None},
    {"averaging": float("nan")},
    {"averaging": float("inf")},
    {"clip": 0.0},
    {"clip": -1.0},
    {"clip": float("inf")},
    {"clip": 1e-30},
    {"optimizer": torch.optim.LBFGS},
    {"optimizer": torch.optim.SGD(nn.Linear(1, 2).parameters(), lr=0.1)},
    {"scheduler": "cosine"},
    {"unit": PAIR[1][:-1]},
    {"unit": "id"},
    {"max_rows_per_unit": 3},
    {"epsilon": None, "noise_multiplier": 1e9},
    {"progress": "no"},
    {"device": "x"},
    {"device": "cuda:99"},
    {"epsilon": None, "score": ("rmse", 0.5)},
    {"epsilon": None, "score": ("accuracy", 1.0)},
    {"account": ""},
    {"rows": 0},
    {"rows": "many"},
    {"steps": -1},
    {"epsilon": -1.0},
    {"delta": 2.0},
]


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    url = str(tmp_path / "people.ledger")
    with open_ledger(url) as book:
        book.open_account("dataset:table", approx(5, 1e-3))
    return url


def refused(ledger: str, model: Any, data: Any, **terms: Any) -> str:
    settings: dict[str, Any] = {"rows": ROWS, "epsilon": 1.0, "steps": 2, "batches": "full", "ledger": ledger} | terms
    with pytest.raises(InvalidRequest) as caught:
        train(model, data, **settings)
    with open_ledger(ledger) as book:
        assert not [entry for entry in book.history("dataset:table") if entry.kind is EntryKind.HOLD]
    return str(caught.value)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_cannot_be_trained_costs_nothing(ledger: str, name: str) -> None:
    assert refused(ledger, MODELS[name], PAIR).startswith("Expected ")


@pytest.mark.parametrize("name", DATA)
def test_rows_that_do_not_fit_cost_nothing(ledger: str, name: str) -> None:
    assert refused(ledger, nn.Linear(1, 2), DATA[name]).startswith("Expected ")


@pytest.mark.parametrize("terms", TERMS, ids=lambda terms: "-".join(terms))
def test_a_wrong_setting_costs_nothing(ledger: str, terms: dict[str, Any]) -> None:
    assert refused(ledger, nn.Linear(1, 2), PAIR, **terms).startswith("Expected ")


@pytest.mark.parametrize("url", [3, b"x"])
def test_a_ledger_that_is_no_path_is_refused(url: Any) -> None:
    with pytest.raises(InvalidRequest, match="path or a URL"):
        train(nn.Linear(1, 2), PAIR, rows=ROWS, epsilon=1.0, steps=2, batches="full", ledger=url)


@pytest.mark.parametrize("label", [-1, -100, 2, 10**9])
@pytest.mark.parametrize("progress", [False, True])
def test_a_label_that_is_no_class_counts_for_nothing_and_stops_nothing(label: int, progress: bool) -> None:
    """An error would tell that such a row is there."""
    labels = PAIR[1].clone()
    labels[7] = label

    release = train(
        nn.Linear(1, 2), (PAIR[0], labels), rows=ROWS, epsilon=1.0, steps=3, batches="full", progress=progress
    )

    assert release.receipt.epsilon <= 1


@pytest.mark.parametrize(
    "loss", [nn.CrossEntropyLoss(reduction="none"), nn.NLLLoss(reduction="none")], ids=["ce", "nll"]
)
def test_losses_of_classes_bear_strange_labels_too(loss: Any) -> None:
    labels = PAIR[1].clone()
    labels[7] = 77
    model = nn.Sequential(nn.Linear(1, 2), nn.LogSoftmax(1))

    assert (
        train(model, (PAIR[0], labels), rows=ROWS, epsilon=1.0, steps=3, batches="full", loss=loss).receipt.epsilon <= 1
    )


@pytest.mark.parametrize(
    "data",
    [
        (PAIR[0].double().numpy(), PAIR[1].int().numpy()),
        (PAIR[0], torch.nn.functional.one_hot(PAIR[1]).float()),
        (PAIR[0].half(), PAIR[1].to(torch.uint8)),
    ],
    ids=["double and int32", "probabilities", "half and bytes"],
)
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_numbers_are_taken_in_the_precision_of_the_model(data: Any, kind: Any) -> None:
    model = nn.Linear(1, 2).to(kind)

    release = train(model, data, rows=ROWS, epsilon=1.0, steps=3, batches="full", progress=True)

    assert release.value.weight.dtype == kind


def test_a_loss_that_is_reduced_is_told_so(ledger: str) -> None:
    assert "one loss per row" in refused(ledger, nn.Linear(1, 2), PAIR, loss=nn.CrossEntropyLoss(reduction="sum"))


def test_an_accuracy_of_probabilities_is_refused(ledger: str) -> None:
    chances = torch.nn.functional.one_hot(PAIR[1]).float()

    assert "class index" in refused(ledger, nn.Linear(1, 2), (PAIR[0], chances), epsilon=None, score=("accuracy", 0.9))
