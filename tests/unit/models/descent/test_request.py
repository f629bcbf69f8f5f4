"""A training is priced before it touches data, and its receipt can be checked by anyone."""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld
from tests.unit.models.descent.conftest import DELTA, Small

from expost.core import ApproxLoss, InvalidRequest, Outcome
from expost.models.descent.trainer import Trained
from expost.models.descent.training_checkpoint import TrainingProgress
from expost.models.descent.training_query import TrainingPlan
from expost.models.descent.training_schedule import Phase, Poisson, Schedule
from expost.models.descent.training_watch import Quiet
from expost.noise import SeededBits


def accuracy(small: Small, model: Any) -> float:
    return float(np.mean((model.compute_scores(small.features)[:, 0] > 0) == small.labels))


def trained(request: TrainingPlan, small: Small, seed: int = 1) -> Any:
    return request.climb(request.measure(small.data), SeededBits(seed))


def independent_epsilon(text: str, delta: float) -> float:
    """The event log of a receipt, priced by another accountant."""
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)

    def compose(event: dict[str, Any], count: int) -> None:
        match event["kind"]:
            case "repeat":
                compose(event["event"], count * event["count"])
            case "sequence":
                for part in event["events"]:
                    compose(part, count)
            case "gaussian":
                accountant.compose(dp_accounting.GaussianDpEvent(float(Fraction(event["noise_multiplier"]))), count)
            case "poisson-sampled":
                inner = dp_accounting.GaussianDpEvent(float(Fraction(event["event"]["noise_multiplier"])))
                rate = float(Fraction(event["rate"]))
                accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, inner), count)

    compose(json.loads(text), 1)
    return float(accountant.get_epsilon(delta))


def test_a_fixed_training_learns_and_pays_its_price(small: Small) -> None:
    release = trained(small.fixed(), small)

    assert accuracy(small, release.value) > 0.9
    assert release.receipt.outcome is Outcome.FIXED
    assert release.receipt.bill == small.fixed().prices.cap


def test_an_aimed_training_stops_at_the_first_phase_that_passes(small: Small) -> None:
    release = trained(small.aimed(), small)

    receipt = release.receipt
    assert receipt.outcome is Outcome.TESTED
    assert receipt.rung < 3
    assert receipt.bill == small.aimed().prices.bill_at(receipt.rung)
    assert receipt.breakdown["validation (rows held out)"] <= receipt.bill.amounts()["epsilon"]
    assert accuracy(small, release.value) >= 0.84


def test_an_unreachable_target_is_not_met_at_the_price_of_the_whole(small: Small) -> None:
    release = trained(small.aimed(accuracy=0.999), small)

    assert release.receipt.outcome is Outcome.NOT_MET
    assert release.receipt.bill == small.aimed().prices.cap
    assert release.receipt.achieved is None


def test_the_bill_equals_an_independent_reading_of_the_event_log(small: Small) -> None:
    schedule = Schedule(Poisson(Fraction(1, 20), 4000), (Phase(30, Fraction(2)),))
    sampled = TrainingPlan(
        question="q", schedule=schedule, prices=schedule.prices(DELTA), table=lambda data: small.problem.table(*data)
    )
    for request in (sampled, small.fixed(), small.aimed()):
        receipt = trained(request, small).receipt
        share = receipt.terms.get("delta of this stop", float(DELTA))
        other = independent_epsilon(receipt.terms["events"], share)
        assert 0.99 < receipt.epsilon / other < 1.01


def test_a_neighbour_changes_nothing_but_the_sealed_sums(small: Small) -> None:
    one, two = trained(small.fixed(), small), None
    small.features, small.labels = small.features[1:], small.labels[1:]
    two = trained(small.fixed(), small)

    assert one.receipt == two.receipt
    moved = np.abs(one.value.coefficients - two.value.coefficients).max()
    assert 0 < moved < 0.01  # the same noise, one row less


def test_the_receipt_shows_public_facts_only(small: Small) -> None:
    receipt = trained(small.fixed(), small).receipt
    small.features = small.features * 0.5
    small.labels = 1 - small.labels

    assert trained(small.fixed(), small).receipt == receipt
    assert "4000" not in json.dumps(receipt.terms)


def test_a_crash_loses_the_phase_and_never_its_price(small: Small) -> None:
    request = small.aimed(accuracy=0.999)
    written: list[TrainingProgress] = []
    with pytest.raises(RuntimeError):
        trained(_crashing(request, written, at=2), small)

    start = written[-1]
    assert (start.begun, start.finished) == (2, 1)
    resumed = trained(_with(request, start=start), small, seed=2)
    assert resumed.receipt.bill == request.prices.cap
    assert resumed.receipt.terms["steps run"] == 40


def test_a_resumed_test_stays_within_the_price(small: Small) -> None:
    request = small.aimed()
    start = TrainingProgress(request.public_terms(), begun=1, finished=1)

    receipt = trained(_with(request, start=start), small).receipt

    assert receipt.outcome is Outcome.TESTED
    assert receipt.breakdown["validation (rows held out)"] == request.prices.epsilons[receipt.rung]
    assert receipt.bill == request.prices.bill_at(receipt.rung)


def test_the_same_key_deals_the_same_validation_rows(small: Small) -> None:
    request, dealt = small.aimed(), []
    table = request.measure(small.data)

    class Watched:
        def __len__(self) -> int:
            return len(table)

        def learner(self, training: np.ndarray, validation: np.ndarray) -> Any:
            dealt.append((training, validation))
            return table.learner(training, validation)

        def yield_contents(self) -> Any:
            return table.yield_contents()

    for seed in (1, 2):
        start = TrainingProgress(request.public_terms(), split_key=77)
        _with(request, start=start).climb(Watched(), SeededBits(seed))

    assert (dealt[0][1] == dealt[1][1]).all()
    assert sorted(np.concatenate(dealt[0]).tolist()) == list(range(4000))
    assert abs(len(dealt[0][1]) - 800) < 150


def test_a_dear_test_would_be_billed_at_its_own_price(small: Small) -> None:
    request = small.aimed()
    bill = request.prices.bill_at(0)

    class Dear:
        spent, rows, citation, outcome = request.prices.cap.epsilon, "rows", "none", Outcome.TESTED

    found = request._build_receipt(Trained(0, 1, False), Dear())  # type: ignore[arg-type]

    assert found.bill == ApproxLoss(request.prices.cap.epsilon, bill.delta) != bill


def test_half_a_target_is_refused(small: Small) -> None:
    with pytest.raises(InvalidRequest, match="target"):
        _with(small.aimed(), validation_share=Fraction(0))


def _with(request: TrainingPlan, **changes: Any) -> TrainingPlan:
    return replace(request, **changes)


def _crashing(request: TrainingPlan, written: list[TrainingProgress], at: int) -> TrainingPlan:
    def save(progressed: TrainingProgress) -> None:
        written.append(progressed)
        if len(written) == at:
            raise RuntimeError("power cut")

    return _with(request, save=save)


def test_a_training_that_stopped_tells_a_private_estimate_of_its_score(small: Small) -> None:
    told: list[str] = []

    class Listening(Quiet):
        def advance_steps(self, step: int, steps: int, epsilon: Fraction, news: str) -> None:
            told.append(news)

    receipt = trained(_with(small.aimed(), progress=Listening), small).receipt

    assert receipt.outcome is Outcome.TESTED
    assert 0.8 < receipt.terms["score, estimated"] <= 1
    assert told[0] == "" and "score of the rows held out about" in told[-1]
    assert "score, estimated" not in trained(small.fixed(), small).receipt.terms


@pytest.mark.parametrize(("noises", "said"), [((20, 20, 20), ["20"]), ((40, 20), ["40", "20"])])
def test_a_noise_that_all_phases_have_is_said_once(small: Small, noises: tuple[int, ...], said: list[str]) -> None:
    schedule = Schedule(Poisson(Fraction(1, 10), 1000), tuple(Phase(2, Fraction(noise)) for noise in noises))

    terms = replace(small.fixed(), schedule=schedule).public_terms()

    assert terms["noise multipliers"] == said
    assert terms["steps of a phase"] == [2] * len(noises)
