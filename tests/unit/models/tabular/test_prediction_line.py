"""The line from a regression's predictions to its targets: its sensitivity, and what it mends."""

from fractions import Fraction

import numpy as np
import pytest

import expost
from expost.models.tabular import table_run
from expost.models.tabular.prediction_line import PredictionLine
from expost.noise.bits import SeededBits


@pytest.mark.parametrize("cut", [0.5, 3.0, 20.0])
def test_one_row_moves_the_sums_of_a_line_by_the_sensitivity_at_most(cut: float) -> None:
    rng = np.random.default_rng(5)
    line = PredictionLine(0.4, cut)
    scores = np.concatenate([rng.normal(0, 1, 500), rng.choice([-9.0, 9.0], 100)])
    targets = np.concatenate([rng.normal(0, 3, 500), rng.choice([-90.0, 90.0], 100)])
    largest = 0.0
    for vector in line.vectors(scores, targets):
        total = line.lattice.start()
        line.lattice.add(total, vector[None], np.ones(1))
        largest = max(largest, float(np.linalg.norm(total)))

    assert 0.95 * line.lattice.sensitivity.amount <= largest <= line.lattice.sensitivity.amount


def test_a_shift_and_a_tilt_are_read_within_their_noise_and_are_zero_where_it_hides_them() -> None:
    rng, rows = np.random.default_rng(6), 20_000
    scores = rng.normal(0, 0.5, rows)
    targets = 0.2 + 1.3 * scores + rng.normal(0, 0.8, rows)
    line = PredictionLine(0.5, 10.0)
    total = line.lattice.start()
    line.lattice.add(total, line.vectors(scores, targets), np.ones(rows))

    def read(noise: Fraction) -> tuple[float, float]:
        return line.read(line.lattice.release(total, noise, SeededBits(7)), noise, rows)

    shift, tilt = read(Fraction(1))
    assert shift == pytest.approx(0.2, abs=0.02) and tilt == pytest.approx(0.3, abs=0.05)
    assert abs(read(Fraction(10**5))[0]) < 20  # far more noise than targets: whatever it is, it is a number
    line_of_nothing = line.read(np.zeros(5), Fraction(1), 1.0)
    assert line_of_nothing == (0.0, 0.0)


def test_a_target_with_a_long_tail_is_not_predicted_too_low(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    place = rng.uniform(0, 1, 20_000)
    table = {"place": place, "pay": np.minimum(rng.exponential(1 + 3 * place) ** 1.5, 60)}

    def fit_bias() -> float:
        model = expost.Regressor(epsilon=1, columns={"place": (0, 1), "pay": (0, 60)}, simulation_seed=1)
        model.fit(table, target="pay")
        return float(np.mean(model.predict(table) - table["pay"]) / np.std(table["pay"]))

    straight = fit_bias()
    monkeypatch.setattr(table_run.TableRun, "_straighten", lambda *_: None)

    assert abs(straight) < 0.05
    assert fit_bias() < -0.08  # and without the line it is
