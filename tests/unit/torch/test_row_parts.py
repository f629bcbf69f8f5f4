"""Norms are better than the margin that clipping leaves, and sums are put where they belong."""

from itertools import pairwise

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from torch import nn  # noqa: E402

from expost.torch.layer_parts import Layer, Seen, Sums, _squared_lengths, make_parts  # noqa: E402


@pytest.mark.parametrize("width", [1, 10, 784, 2048, 2049, 100_000])
def test_norms_are_better_than_the_margin_of_the_clipping(width: int) -> None:
    rows = (
        torch.rand(5, width, generator=torch.Generator().manual_seed(0))
        * torch.tensor([1e-12, 1e-3, 1, 1e5, 1e12])[:, None]
    )

    exact = rows.double().square().sum(1)

    assert float((_squared_lengths(rows) / exact - 1).abs().max()) < 2.0**-13


@pytest.mark.parametrize("widths", [(3, 5), (784, 128, 10), (5000, 7)])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_layers_have_the_squares_of_their_outer_products(widths: tuple[int, ...], kind: "torch.dtype") -> None:
    generator = torch.Generator().manual_seed(0)
    seen, exact = [], torch.zeros(9, dtype=torch.float64)
    for place, (inside, outside) in enumerate(pairwise(widths)):
        given, error = (torch.randn(9, width, generator=generator).to(kind) for width in (inside, outside))
        bias = slice(0) if place % 2 else None
        seen.append(Seen(Layer(nn.Identity(), slice(0), bias), given, error))
        product = torch.einsum("ij,ik->ijk", error.double(), given.double())
        exact += product.square().sum((1, 2)) + (error.double().square().sum(1) if place % 2 else 0)

    squares = sum(part.row_squares() for part in make_parts(seen))

    assert float((squares / exact - 1).abs().max()) < 2.0**-13


def test_squares_that_vanish_are_made_up_for() -> None:
    tiny = torch.full((1, 784), 2.0**-76)  # squared, it is below the smallest number of its type

    assert float(_squared_lengths(tiny)) >= float(tiny.double().square().sum())
    assert float(tiny.square().sum()) < float(tiny.double().square().sum()) / 2  # which is why


def test_sums_have_zeros_where_nothing_was_put() -> None:
    sums = Sums([slice(0, 4), slice(4, 6), slice(6, 9)], 2, torch.device("cpu"))
    sums.put_products(slice(4, 6), torch.tensor([[1.0], [2.0], [3.0]]), torch.ones(3, 2))

    assert sums.whole_sum().tolist() == [0, 0, 0, 0, 6, 6, 0, 0, 0]
