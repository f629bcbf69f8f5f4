"""A PyTorch model is trained to an accuracy or at an epsilon, with a receipt."""

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from torch import nn  # noqa: E402

from expost import InvalidRequest, TargetNotMet, approx, open_ledger  # noqa: E402
from expost.core import Outcome  # noqa: E402
from expost.torch import train  # noqa: E402


def moons(rows: int = 4000) -> tuple["torch.Tensor", "torch.Tensor"]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(rows, 2, generator=generator) * 4 - 2
    return inputs, (inputs[:, 1] > torch.sin(2 * inputs[:, 0])).long()


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))


def trained(**changes: Any) -> Any:
    terms = {"rows": 4000, "steps": 40, "batches": "full", "clip": 0.5, "learning_rate": 1.0, "simulation_seed": 1}
    if not {"epsilon", "score", "noise_multiplier"} & changes.keys():
        changes["epsilon"] = 4.0
    return train(small(), moons(), **(terms | changes))


def accuracy(model: nn.Module) -> float:
    inputs, labels = moons()
    return float((model(inputs).argmax(1) == labels).float().mean())


def test_a_network_is_trained_at_an_epsilon() -> None:
    release = trained()

    assert accuracy(release.value) > 0.85
    assert 3.9 < release.receipt.epsilon <= 4
    assert release.receipt.outcome is Outcome.FIXED
    assert not release.value.training


def test_a_network_is_trained_to_an_accuracy_and_stops() -> None:
    release = trained(score=("accuracy", 0.8), max_epsilon=8.0, phases=6, steps=60)

    assert release.receipt.outcome is Outcome.TESTED
    assert release.receipt.epsilon < 8
    assert accuracy(release.value) > 0.78


def test_a_missed_target_carries_the_model() -> None:
    with pytest.raises(TargetNotMet) as raised:
        trained(score=("accuracy", 0.999), max_epsilon=0.5, phases=2, steps=4)

    assert isinstance(raised.value.release.value, nn.Module)


def test_sampled_batches_are_priced_by_their_public_rate() -> None:
    release = trained(batches="poisson", batch_size=400, steps=10, noise_multiplier=1.0, accountant="rdp")

    event = json.loads(release.receipt.terms["events"])
    assert event["event"]["rate"] == "1/10"
    assert release.receipt.terms["expected batch size"] == 400


def test_the_number_of_rows_must_be_declared() -> None:
    assert trained(rows="observed", steps=2).receipt.terms["rows (public)"] == 4000
    with pytest.raises(InvalidRequest, match="rows"):
        trained(rows="many")
    with pytest.raises(TypeError):
        train(small(), moons(), epsilon=1.0)  # type: ignore[call-arg]


def test_any_optimiser_sees_noisy_gradients_only() -> None:
    release = trained(optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.05))

    assert accuracy(release.value) > 0.8


def test_a_checkpoint_carries_the_accountant_and_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"

    release = trained(checkpoint=str(path), steps=4)

    assert not path.exists()
    assert release.receipt.simulation


def test_a_ledger_is_billed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/book.ledger"
    with pytest.raises(InvalidRequest, match="account"):
        trained(ledger=url, simulation_seed=None)
    open_ledger(url).open_account("dataset:table", approx(5, 1e-5))

    release = trained(ledger=url, steps=2, simulation_seed=None)

    # Steps are added up at Renyi orders, which prove a little more than the exact price of one training.
    bill = float(release.receipt.bill.amounts()["epsilon"])
    assert bill <= float(open_ledger(url).spent("dataset:table").amounts()["epsilon"]) <= 1.3 * bill


def test_progress_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    trained(progress=True, steps=2)

    assert "epsilon" in capsys.readouterr().out


def test_without_averaging_the_last_weights_leave() -> None:
    inputs, labels = moons()
    release = trained(epsilon=20.0, averaging=0.0)
    averaged = trained(epsilon=20.0)

    assert float((release.value(inputs).argmax(1) == labels).float().mean()) > 0.7
    assert not torch.equal(release.value[0].weight, averaged.value[0].weight)


def test_public_rows_of_whole_numbers_are_numbers() -> None:
    inputs, labels = moons(4000)
    public = (inputs[:500] * 3).round().long(), labels[:500].double()
    release = trained(score=("accuracy", 0.3), max_epsilon=8.0, public_validation=public, steps=10)

    assert release.receipt.outcome is Outcome.CERTIFIED


def test_small_tables_have_batches_of_their_size() -> None:
    inputs, labels = moons(600)
    release = train(small(), (inputs, labels), rows=600, epsilon=4.0, steps=3)

    assert release.receipt.terms["expected batch size"] == 600


def test_rows_that_want_gradients_of_their_own_get_none() -> None:
    inputs, labels = moons(600)
    train(small(), (inputs.requires_grad_(), labels), rows=600, epsilon=4.0, steps=3)

    assert inputs.grad is None


def test_a_batch_without_rows_is_a_batch() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(2, 2)

        def forward(self, rows: "torch.Tensor") -> "torch.Tensor":
            return self.head(rows.view(rows.size(0), -1))  # PyTorch fails here if there are no rows

    inputs, labels = moons(40)
    release = train(Flat(), (inputs, labels), rows=40, epsilon=4.0, steps=30, batch_size=1)

    assert release.receipt.terms["steps run"] == 30


def test_public_rows_stop_a_network_for_free() -> None:
    inputs, labels = moons(6000)
    public = inputs[4000:], labels[4000:]
    release = trained(score=("accuracy", 0.8), max_epsilon=8.0, public_validation=public)

    assert release.receipt.outcome is Outcome.CERTIFIED
    right = float((release.value(public[0]).argmax(1) == public[1]).float().mean())
    assert release.receipt.achieved == pytest.approx(right, abs=1e-6) and right >= 0.8
    assert (release.receipt.rungs, release.receipt.terms["validation share"]) == (25, "0")


@pytest.mark.parametrize(
    "public",
    [
        "rows",
        (torch.zeros(5, 3), torch.zeros(5, dtype=torch.long)),
        (torch.zeros(5, 2), torch.zeros(5, 2, dtype=torch.long)),
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.long)),
    ],
)
def test_public_rows_of_other_shapes_are_refused(public: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"Expected public"):
        trained(score=("accuracy", 0.8), public_validation=public)
    with pytest.raises(InvalidRequest, match="Expected a score"):
        trained(epsilon=1.0, public_validation=moons())
