"""Prices of networks are monotone: asking for less, or allowing more, never costs more beyond what noise decides."""

import os
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from expost import BudgetExceeded, TargetNotMet  # noqa: E402
from expost.models.descent.open_ladder import plan_open_ladder, usual_price  # noqa: E402
from expost.models.descent.training_order import TrainingOrder  # noqa: E402
from expost.models.descent.training_schedule import Poisson  # noqa: E402
from expost.torch import train  # noqa: E402
from expost.torch.network_defaults import usual_batch_size, usual_steps  # noqa: E402

LONG = os.environ.get("EXPOST_LONG") == "1"
long_profile = pytest.mark.skipif(not LONG, reason="long profile: set EXPOST_LONG=1")
SEEDS = range(15 if LONG else 3)
NOISE = (
    1.2 if LONG else 1.4
)  # noise decides at which of many close stops a training ends: medians of a few seeds differ


def price(score: float, *, rows: int = 6000, max_epsilon: float = 4.0, **terms: Any) -> float:
    """Return the median epsilon of trainings with default settings; a miss costs the cap."""
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(rows, 5, generator=random)
    mixed = inputs[:, 0] * inputs[:, 1] * 0.8 + inputs[:, 2] - 0.5 * inputs[:, 3]
    labels = (mixed + 0.3 * torch.randn(rows, generator=random) > 0).long()
    paid = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        network = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
        settings = {"rows": rows, "score": ("accuracy", score), "max_epsilon": max_epsilon, "simulation_seed": seed}
        try:
            paid.append(train(network, (inputs, labels), **(settings | terms)).receipt.epsilon)
        except TargetNotMet:
            paid.append(max_epsilon)
    return median(paid)


def assert_falling(prices: Sequence[float]) -> None:
    assert all(later <= NOISE * before for k, before in enumerate(prices) for later in prices[k:]), prices
    assert prices[-1] <= prices[0], prices


@long_profile
def test_a_looser_score_of_a_network_never_costs_more() -> None:
    assert_falling([price(score) for score in (0.86, 0.82, 0.75)])


@long_profile
def test_more_rows_of_a_network_never_cost_more() -> None:
    assert_falling([price(0.8, rows=rows) for rows in (3000, 12_000)])


@long_profile
def test_more_failures_of_a_network_never_cost_more() -> None:
    assert_falling([price(0.8, failure_probability=each) for each in (1e-6, 0.3)])


@long_profile
def test_a_larger_cap_of_a_network_costs_about_the_same_once_the_score_is_reached() -> None:
    few, many = price(0.8, max_epsilon=2.0), price(0.8, max_epsilon=20.0)

    assert many <= NOISE * few


@pytest.mark.parametrize("batches", ["poisson", "full", "disjoint"])
@pytest.mark.parametrize("rows", [800, 6000, *([600_000] if LONG else [])])
def test_a_larger_cap_goes_on_with_the_same_phases_and_prices(batches: str, rows: int) -> None:
    def course(cap: float) -> Any:
        terms: dict[str, Any] = {"rows": rows, "delta": 1e-6, "score": ("accuracy", 0.9), "batches": batches}
        size, full = usual_batch_size(rows // 2), batches == "full"
        terms |= {"batch_size": size, "steps": usual_steps(rows, rows if full else size, stopped=True)}
        terms |= {"falling": False, "open_ended": True}
        return TrainingOrder(max_epsilon=cap, **terms).plan_course()

    usual = float(usual_price(rows))
    courses = [course(cap * usual) for cap in (0.5, 1, 4)]
    for few, many in pairwise(courses):
        count = len(few.schedule.phases)
        assert few.schedule.phases == many.schedule.phases[:count]
        assert few.prices.epsilons == many.prices.epsilons[:count]
        assert few.validation_share == many.validation_share
        assert count <= len(many.schedule.phases)
    assert courses[0].prices.cap.epsilon <= 0.5 * usual
    noises = [float(phase.noise_multiplier) for phase in courses[-1].schedule.phases]
    assert (np.diff(noises) <= 0).all()


def test_a_cap_below_the_first_stop_has_a_schedule_of_its_own() -> None:
    terms: dict[str, Any] = {"rows": 60_000, "delta": 1e-6, "score": ("accuracy", 0.95), "batches": "poisson"}
    terms |= {"batch_size": 1024, "steps": 1172, "falling": False, "open_ended": True}
    order = TrainingOrder(max_epsilon=0.1, **terms)

    assert not order.is_open and order.plan_course().prices.cap.epsilon <= 0.1
    assert TrainingOrder(max_epsilon=1.0, **terms).is_open


def test_an_open_ladder_needs_a_cap_above_its_first_stop() -> None:
    with pytest.raises(BudgetExceeded, match="max_epsilon"):
        plan_open_ladder(
            Poisson(Fraction(1, 6), 6000),
            steps=300,
            first=Fraction(1, 10),
            usual=Fraction(2),
            cap=Fraction(1, 1000),
            delta=Fraction(1, 10**6),
            accountant="auto",
        )
