"""One row moves what is measured by the sensitivity at most, in models and rows made to break that."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from torch import nn  # noqa: E402

from expost import InvalidRequest  # noqa: E402
from expost.core import unseal  # noqa: E402
from expost.learning.sgd.batches import Full  # noqa: E402
from expost.learning.sgd.schedule import Phase  # noqa: E402
from expost.learning.sgd.watch import Watch  # noqa: E402
from expost.learning.sgd.watching import Watching  # noqa: E402
from expost.noise import SeededBits  # noqa: E402
from expost.torch.module_learner import ModuleProblem  # noqa: E402
from expost.torch.rows import read_rows  # noqa: E402
from expost.torch.train import _cross_entropy  # noqa: E402


def learner_of(model: nn.Module, inputs: Any, labels: Any, *, clip: float = 1.0, watched: bool = False) -> Any:
    problem = ModuleProblem(
        model=model,
        loss=_cross_entropy,
        clip=clip,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        averaging=0.0,
        device=torch.device("cpu"),
        watched=watched,
    )
    return problem.table(read_rows((inputs, labels))).learner(slice(None), None)


class Spare(nn.Module):
    """A layer is trained and never used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(3, 2), nn.Linear(200, 300)

    def forward(self, rows: Any) -> Any:
        return self.used(rows)


class Mixing(nn.Module):
    """Rows are told apart from the others of their batch."""

    def __init__(self, middle: Any) -> None:
        super().__init__()
        self.words, self.head, self.middle = nn.Embedding(5, 4), nn.Linear(4, 2), middle

    def forward(self, rows: Any) -> Any:
        return self.head(self.middle(self.words(rows)))


class Gated(nn.Module):
    """A tiny input and a huge gate: the square of the one vanishes, the product with the other does not."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(784, 1, bias=False), nn.Linear(1, 2).requires_grad_(False)

    def forward(self, rows: Any) -> Any:
        return self.head(self.inner(rows[:, :784]) * rows[:, 784:])


@pytest.mark.parametrize("trial", range(12))
def test_a_layer_that_is_not_used_is_zero_in_every_sum(trial: int) -> None:
    rubbish = torch.full((61_000,), 1e6 + trial)  # memory that the next vector may be given
    learner = learner_of(Spare(), torch.ones(6, 3), torch.zeros(6).long())
    del rubbish
    learner.open(Phase(1, Fraction(2)), 6.0)

    measured = unseal(learner.measure(np.arange(6)))

    assert np.abs(measured[:8]).max() > 0 and not measured[8:].any()


@pytest.mark.parametrize(
    "middle",
    [lambda rows: rows - rows.mean(0), nn.BatchNorm1d(4, affine=False, track_running_stats=False)],
    ids=["mean", "batch normalisation"],
)
def test_models_that_mix_rows_of_whole_numbers_are_refused(middle: Any) -> None:
    with pytest.raises(InvalidRequest, match="independent"):
        learner_of(Mixing(middle), torch.arange(10) % 5, torch.zeros(10).long())


def test_a_table_of_words_is_learned_from() -> None:
    learner = learner_of(Mixing(nn.Identity()), torch.arange(10) % 5, torch.zeros(10).long())

    assert learner.size == 20 + 10


@pytest.mark.parametrize("clip", [1e-4, 1e-3, 1.0])
def test_squares_too_small_for_their_type_hide_no_gradient(clip: float) -> None:
    torch.manual_seed(0)
    rows = torch.full((1, 785), 2.5e-23)
    rows[0, 784] = 1e19
    learner = learner_of(Gated(), rows, torch.zeros(1).long(), clip=clip)
    sensitivity = learner.open(Phase(1, Fraction(2)), 1.0)

    assert np.linalg.norm(unseal(learner.measure(np.arange(1))).astype(float)) <= float(sensitivity.amount)


@pytest.mark.parametrize(
    "model", [nn.Linear(3, 2), nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2))], ids=["ours", "other"]
)
def test_an_empty_batch_is_watched_like_any_other(model: Any) -> None:
    learner = learner_of(model, torch.ones(6, 3), torch.zeros(6).long(), watched=True)
    watching = Watching(Watch(), learner, Full(6), SeededBits(1))
    watching.open(Phase(2, Fraction(3)))
    learner.measure(np.arange(0))
    watching.look()

    assert watching.reading is not None


def test_an_unknown_label_counts_as_knowing_nothing() -> None:
    learner = learner_of(nn.Linear(3, 2), torch.ones(2, 3), torch.tensor([77, -1]), watched=True)
    learner.open(Phase(1, Fraction(2)), 2.0)
    learner.watch(100)
    learner.measure(np.arange(2))

    assert unseal(learner.watched()).tolist() == [-200, 0]
