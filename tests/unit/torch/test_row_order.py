"""A network's validation rows are known by their content: a restart on shuffled rows holds the same ones out."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from torch import nn  # noqa: E402
from torch.utils.data import Dataset, TensorDataset  # noqa: E402

from expost import approx  # noqa: E402
from expost.core import EngineFailed, TableChanged, TargetNotMet  # noqa: E402
from expost.data.row_identity import RowIdentity  # noqa: E402
from expost.ledger import open_ledger  # noqa: E402
from expost.models.descent import training_query as training  # noqa: E402
from expost.models.descent.trainer import Trainer  # noqa: E402
from expost.torch import train  # noqa: E402
from expost.torch.module_learner import _as_floats  # noqa: E402

ROWS = 1200


def table(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Few different rows: most occur several times."""
    rng = np.random.default_rng(seed)
    inputs = torch.as_tensor(rng.integers(-2, 3, (ROWS, 3)).astype(np.float32))
    return inputs, (inputs[:, 0] > 0).long()


class Listed(Dataset):
    """A data set whose rows are fetched one by one."""

    def __init__(self, inputs: torch.Tensor, labels: torch.Tensor) -> None:
        self._rows = list(zip(inputs, labels, strict=True))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._rows[place]


class Interrupted(Exception):
    """Stands for a process that died."""


def resumed(kind, later, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Counter], str]:
    held: list[Counter] = []
    now: list[torch.Tensor] = []
    dealt, judge = training.sample_rows, Trainer._judge_phase

    def sampled(*given, **terms):
        places = dealt(*given, **terms)
        held.append(Counter(map(tuple, now[-1][torch.as_tensor(places)].tolist())))
        return places

    def dying(self, test, phase, progress):
        judge(self, test, phase, progress)
        if len(held) == 1:
            raise Interrupted

    monkeypatch.setattr(training, "sample_rows", sampled)
    monkeypatch.setattr(Trainer, "_judge_phase", dying)
    url = f"sqlite:///{folder}/book"
    ledger = open_ledger(url)
    ledger.open_account("dataset:t", approx(10, 1e-4))
    ledger.close()

    def run(inputs: torch.Tensor, labels: torch.Tensor) -> None:
        now.append(torch.column_stack([inputs, labels.float()]))
        torch.manual_seed(0)
        train(
            nn.Linear(3, 2),
            kind(inputs, labels),
            rows=ROWS,
            score=("accuracy", 0.9999),
            max_epsilon=1.0,
            steps=6,
            phases=3,
            batches="full",
            ledger=url,
            account="dataset:t",
            checkpoint=str(folder / "run.npz"),
        )

    with pytest.raises(EngineFailed):
        run(*table())
    try:
        run(*later)
    except TargetNotMet:
        return held, "finished"
    except TableChanged:
        return held, "refused"
    return held, "met"


@pytest.mark.parametrize("kind", [TensorDataset, Listed])
def test_a_restart_on_shuffled_rows_holds_the_same_ones_out(kind, tmp_path: Path, monkeypatch) -> None:
    inputs, labels = table()
    order = torch.as_tensor(np.random.default_rng(1).permutation(ROWS))

    held, end = resumed(kind, (inputs[order], labels[order]), tmp_path, monkeypatch)

    assert end == "finished"
    assert held[0] == held[1] and sum(held[0].values()) > 50


def test_a_restart_on_other_rows_is_refused(tmp_path: Path, monkeypatch) -> None:
    inputs, labels = table()
    inputs[5, 1] += 1

    held, end = resumed(TensorDataset, (inputs, labels), tmp_path, monkeypatch)

    assert end == "refused" and len(held) == 1


def test_whole_numbers_are_told_apart_beyond_the_floats() -> None:
    numbers = torch.tensor([2**53, 2**53 + 1, -1, -(2**63), 2**63 - 1, 0, 2**32])
    names = RowIdentity(bytes(32)).name_rows(list(_as_floats(numbers)))

    assert len(set(names.tolist())) == len(numbers)
