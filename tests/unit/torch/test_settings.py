"""Settings of a network are told apart, and are the same wherever they are written down."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from torch import nn  # noqa: E402

from expost.core import InvalidRequest  # noqa: E402
from expost.torch.module_learner import ModuleProblem  # noqa: E402
from expost.torch.network_training import hash_problem, train  # noqa: E402


class Odd:
    """An optimiser's option that Python prints by its place in memory."""


def net(hidden: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, 2))


def row_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return outputs.sum(1)


def sgd(**options: Any) -> Callable[[Any], torch.optim.Optimizer]:
    return lambda parameters: torch.optim.SGD(parameters, **options)


def problem(**changes: Any) -> ModuleProblem:
    terms = {"model": net(), "loss": nn.CrossEntropyLoss(reduction="none"), "optimizer": sgd(lr=0.5)}
    return ModuleProblem(**(terms | changes), clip=1.0, averaging=8.0, device=torch.device("cpu"))


def with_odd_option(parameters: Any) -> torch.optim.Optimizer:
    made = torch.optim.SGD(parameters, lr=0.5)
    made.param_groups[0]["odd"] = Odd()
    return made


@pytest.mark.parametrize(
    "same", [{}, {"loss": row_loss}, {"optimizer": with_odd_option}], ids=["nothing", "loss", "optimizer"]
)
def test_equal_settings_have_one_name(same: dict[str, Any]) -> None:
    assert hash_problem(problem(**same)) == hash_problem(problem(**same | {"model": net()}))


@pytest.mark.parametrize(
    "other",
    [
        {"model": net(hidden=4)},
        {"model": net().double()},
        {"loss": row_loss},
        {"loss": nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1)},
        {"loss": nn.CrossEntropyLoss(reduction="none", weight=torch.tensor([1.0, 2.0]))},
        {"optimizer": sgd(lr=0.4)},
        {"optimizer": sgd(lr=0.5, momentum=0.9)},
        {"optimizer": torch.optim.Adam},
    ],
    ids=["width", "precision", "function", "smoothing", "class weights", "rate", "momentum", "optimizer"],
)
def test_other_settings_have_another_name(other: dict[str, Any]) -> None:
    assert hash_problem(problem(**other)) != hash_problem(problem())


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_weights_that_stay_are_part_of_the_settings_and_those_that_are_trained_are_not(kind: torch.dtype) -> None:
    def with_first_layer(value: float) -> nn.Module:
        model = net().to(kind)
        nn.init.constant_(model[0].weight.requires_grad_(False), value)  # type: ignore[index, union-attr]
        nn.init.zeros_(model[0].bias.requires_grad_(False))  # type: ignore[index, union-attr]
        return model

    names = [hash_problem(problem(model=with_first_layer(value))) for value in (0.0, 0.0, 1.0)]

    assert names[0] == names[1] != names[2]


def test_a_training_says_its_settings() -> None:
    rows = torch.linspace(-1, 1, 200).reshape(-1, 2)
    terms: dict[str, Any] = {"rows": 100, "epsilon": 1.0, "steps": 2, "batches": "full"}
    labels = (rows[:, 0] > 0).long()

    said = [train(net(), (rows, labels), learning_rate=rate, **terms).receipt.terms["settings"] for rate in (0.5, 0.4)]

    assert said[0] != said[1]


@pytest.mark.parametrize(
    ("loss", "outputs"), [(nn.CrossEntropyLoss(), 2), (nn.MSELoss(), 1), (nn.BCEWithLogitsLoss(), 1)], ids=str
)
def test_a_loss_with_the_default_reduction_is_taken_row_by_row(loss: Any, outputs: int) -> None:
    rows = torch.randn(100, 3)
    targets = (rows[:, 0] > 0).long() if outputs == 2 else (rows[:, :1] > 0).float()
    by_row = type(loss)(reduction="none")
    found = []
    for each in (loss, by_row):
        torch.manual_seed(0)
        terms: dict[str, Any] = {"rows": 100, "epsilon": 5.0, "steps": 3, "batches": "full", "simulation_seed": 1}
        found.append(train(nn.Linear(3, outputs), (rows, targets), loss=each, **terms).value.weight.tolist())

    assert found[0] == found[1] and loss.reduction == "mean"


def test_whole_numbers_for_a_layer_of_floats_are_answered_with_a_line_to_write() -> None:
    images = torch.randint(0, 255, (50, 4, 4), dtype=torch.uint8)

    with pytest.raises(InvalidRequest, match=r"images\.float\(\) / 255"):
        train(nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), (images, torch.zeros(50).long()), rows=50, epsilon=1.0)
