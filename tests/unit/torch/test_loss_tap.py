"""The derivative of a loss is that of autograd, whether it is known in closed form or not."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from torch import nn  # noqa: E402

from expost.torch.loss_tap import KnownLabels, LossTap  # noqa: E402

LABELS = (0, 3, 1, 7, -1, -100, 2, 2**40)


def by_autograd(loss: Any, outputs: "torch.Tensor", targets: "torch.Tensor") -> "torch.Tensor":
    outputs = outputs.clone().requires_grad_()
    return torch.autograd.grad(loss(outputs, targets).sum(), outputs)[0]


def outputs_like(kind: Any) -> "torch.Tensor":
    return (3 * torch.randn(8, 4, generator=torch.Generator().manual_seed(0))).to(kind)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_the_derivative_in_closed_form_is_that_of_autograd(kind: Any) -> None:
    loss, outputs, targets = (
        KnownLabels(nn.CrossEntropyLoss(reduction="none")),
        outputs_like(kind),
        torch.tensor(LABELS),
    )

    found = LossTap(loss).output_errors(outputs, targets)

    assert loss.is_plain(outputs, targets)
    assert found.dtype == kind
    assert torch.allclose(found, by_autograd(loss, outputs, targets), rtol=1e-6, atol=1e-6)
    assert not found[[3, 4, 5, 7]].any()  # their labels are no classes


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_odd_outputs_of_a_row_are_odd_errors_of_that_row_alone(value: float) -> None:
    loss, outputs, targets = (
        KnownLabels(nn.CrossEntropyLoss(reduction="none")),
        outputs_like(torch.float32),
        torch.tensor(LABELS),
    )
    outputs[1, 2] = value

    found, expected = loss.output_errors(outputs, targets), by_autograd(loss, outputs, targets)

    assert torch.equal(found.isfinite(), expected.isfinite())
    assert torch.allclose(found, expected, rtol=1e-6, atol=1e-6, equal_nan=True)


SETTINGS: dict[str, Any] = {
    "weights": nn.CrossEntropyLoss(reduction="none", weight=torch.tensor([1.0, 2.0, 3.0, 4.0])),
    "smoothing": nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1),
    "a class that is ignored": nn.CrossEntropyLoss(reduction="none", ignore_index=1),
    "logarithms": nn.NLLLoss(reduction="none"),
}


@pytest.mark.parametrize("inner", SETTINGS.values(), ids=SETTINGS)
def test_losses_with_settings_are_left_to_autograd(inner: Any) -> None:
    loss, outputs, targets = KnownLabels(inner), outputs_like(torch.float32), torch.tensor(LABELS)

    assert not loss.is_plain(outputs, targets)
    assert torch.equal(LossTap(loss).output_errors(outputs, targets), by_autograd(loss, outputs, targets))


def test_half_precision_and_probabilities_are_left_to_autograd() -> None:
    loss = KnownLabels(nn.CrossEntropyLoss(reduction="none"))
    shares = torch.full((8, 4), 0.25)

    assert not loss.is_plain(outputs_like(torch.bfloat16), torch.tensor(LABELS))
    assert not loss.is_plain(outputs_like(torch.float32), shares)
    assert torch.equal(
        LossTap(loss).output_errors(outputs_like(torch.float32), shares),
        by_autograd(loss, outputs_like(torch.float32), shares),
    )


@pytest.mark.parametrize("inner", [nn.CrossEntropyLoss(reduction="none"), *SETTINGS.values()])
def test_an_onlooker_sees_the_losses_once(inner: Any) -> None:
    loss, outputs, targets, seen = KnownLabels(inner), outputs_like(torch.float32), torch.tensor(LABELS), []
    tap = LossTap(loss)

    with tap.shown_to(lambda *shown: seen.append(shown)):
        tap.output_errors(outputs, targets)
    tap.output_errors(outputs, targets)

    assert len(seen) == 1
    assert torch.equal(seen[0][2], loss(outputs, targets)) and not seen[0][2].requires_grad
