"""What is released besides a model: priced inside the bill, calibrated probabilities, coefficients with intervals."""

import math
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import expost
from expost.accounting.concentrated import GaussianTotal
from expost.core import InvalidRequest, Outcome
from expost.models.tabular.coefficient_estimates import list_contrasts
from expost.models.tabular.column_encoding import CategoryColumn, FlagColumn, NumberColumn
from expost.models.tabular.date_column import DateColumn
from expost.models.tabular.probability_calibration import apply_calibration, describe_reliability, fit_calibration
from expost.models.tabular.rank_tree import RankTree
from expost.models.tabular.rung_schedule import SideShares, plan_epsilon, plan_score
from expost.models.tabular.table_encoder import TableEncoder
from expost.models.tabular.table_profile import TableProfile
from expost.models.tabular.table_report import TableReport, _sum_ranks

COLUMNS = {"age": (18, 80), "job": ["a", "b", "c"]}
SLOPE, LEVELS = 0.04, np.array([0.0, 1.0, -0.5])
DELTA = Fraction(1, 10**6)


def table(seed: int, rows: int = 20_000, strength: float = 1.0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    age, place = rng.uniform(18, 80, rows), rng.choice(3, rows, p=[0.5, 0.3, 0.2])
    score = strength * (SLOPE * (age - 45) + LEVELS[place])
    return {
        "age": age,
        "job": np.array(["a", "b", "c"])[place],
        "rich": rng.random(rows) < 1 / (1 + np.exp(0.5 - score)),
        "pay": score + rng.normal(0, 1, rows),
        "id": np.arange(rows) // 2,
    }


TABLE = table(0)


def classifier(**more: Any) -> expost.Classifier:
    return expost.Classifier(**{"columns": COLUMNS, "epsilon": 1.0, "simulation_seed": 1} | more)


def regressor(**more: Any) -> expost.Regressor:
    terms = {"columns": COLUMNS, "epsilon": 1.0, "simulation_seed": 1, "target_bounds": (-6, 6)}
    return expost.Regressor(**terms | more)


# Prices ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sides", [SideShares(), SideShares(before=0.1), SideShares(after=0.45), SideShares(0.1, 0.3)])
def test_releases_beside_the_rungs_are_part_of_every_price(sides: SideShares) -> None:
    schedule = plan_score(Fraction(1), DELTA, sides=sides)
    for number, price in enumerate(schedule.prices.epsilons):
        squares = sum(1 / event.noise_multiplier**2 for event in schedule.event(number + 1).events)
        rungs = sum(1 / rung.noise**2 for rung in schedule.rungs[: number + 1])
        beside = sides.before / schedule.rungs[0].noise ** 2 + sides.after * rungs
        assert GaussianTotal(squares).epsilon(schedule.prices.shares[number]) <= float(price)
        assert 0.995 * float(beside) <= float(squares - rungs) <= float(beside) * (1 + 1e-9)
    plain = plan_score(Fraction(1), DELTA)
    assert schedule.prices.epsilons[3] <= plain.prices.epsilons[3] * Fraction(1001, 1000)


def test_a_report_spends_no_more_than_its_share() -> None:
    report = TableReport(auc=True, contrasts=lambda _: np.eye(1))
    schedule = plan_epsilon(Fraction(1), DELTA, SideShares(after=report.share))
    noise = schedule.after_noise(0)
    ranks, coefficients = report._noises(noise)

    assert ranks is not None and coefficients is not None
    assert float(1 / ranks**2 + 1 / coefficients**2) <= float(1 / noise**2) * (1 + 1e-12)
    assert report._noises(Fraction(1))[0] != TableReport(auc=True)._noises(Fraction(1))[0]


# Areas ----------------------------------------------------------------------------------------------------------------


def test_the_area_is_on_the_receipt_and_inside_the_bill() -> None:
    model = classifier(report=["auc"]).fit(TABLE, target="rich")
    value, error = map(float, model.receipt_.terms["measured auc"].split(" ± "))

    assert model.receipt_.epsilon <= 1
    assert abs(value - roc_auc_score(TABLE["rich"], model.decision_function(TABLE))) < 2.5 * error


def test_an_area_that_is_tested_is_reached() -> None:
    model = classifier(epsilon=None, score=("auc", 0.65), max_epsilon=10).fit(TABLE, target="rich")

    assert model.receipt_.outcome is Outcome.TESTED and str(model.receipt_.target).startswith("auc >= 0.65")
    assert roc_auc_score(TABLE["rich"], model.decision_function(TABLE)) >= 0.65


def test_a_missed_area_is_certified_below_the_true_one() -> None:
    model = classifier(epsilon=None, score=("auc", 0.74), max_epsilon=2)
    with pytest.raises(expost.TargetNotMet):
        model.fit(TABLE, target="rich")
    true = roc_auc_score(TABLE["rich"], model.decision_function(TABLE))
    assert model.receipt_.achieved is not None and true - 0.3 < model.receipt_.achieved < true


# Calibration ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [(2.5, 0.0), (0.4, 1.0), (1.0, -1.5)])
def test_probabilities_that_are_wrong_are_put_right(wrong: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)
    true = rng.normal(-0.5, 1.2, 50_000)
    classes = rng.random(50_000) < 1 / (1 + np.exp(-true))
    scores = true * wrong[0] + wrong[1]
    tree = RankTree()
    total = tree.start()
    tree.add(total, np.column_stack([scores, classes]), np.ones(len(scores)))
    counts = tree.read(total.astype(float), Fraction(1, 10**6))
    slope, shift = fit_calibration(counts)

    assert slope == pytest.approx(1 / wrong[0], rel=0.2)
    fixed = 1 / (1 + np.exp(-apply_calibration(scores, (slope, shift))))
    for group in (fixed < 0.2, (fixed > 0.3) & (fixed < 0.6), fixed > 0.7):
        assert abs(fixed[group].mean() - classes[group].mean()) < 0.03
    pairs = [part.split(" ± ")[0].split(": ") for part in describe_reliability(counts, (slope, shift)).split("; ")]
    assert len(pairs) >= 4 and all(abs(float(said) - float(seen)) < 0.05 for said, seen in pairs)


def test_a_calibrated_model_predicts_the_tested_classes_and_says_how_reliable_it_is(tmp_path: Path) -> None:
    plain, model = (classifier(calibrate=each).fit(TABLE, target="rich") for each in (False, True))
    chances = model.predict_proba(TABLE)[:, 1]

    assert model.receipt_.epsilon <= 1 and "reliability, predicted: observed" in model.receipt_.terms
    assert (model.predict(TABLE) == (model.decision_function(TABLE) > 0)).all()
    for low, high in ((0.0, 0.3), (0.3, 0.6), (0.6, 1.0)):
        group = (chances >= low) & (chances < high)
        assert abs(chances[group].mean() - TABLE["rich"][group].mean()) < 0.04
    assert plain.release_.value.calibration is None
    expost.save_model(model, tmp_path / "model.json")
    for copy in (expost.load_model(tmp_path / "model.json"), pickle.loads(pickle.dumps(model))):
        assert copy.predict_proba(TABLE).tolist() == model.predict_proba(TABLE).tolist()


def test_probabilities_of_several_classes_are_those_of_the_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    age = rng.uniform(18, 80, 20_000)
    rows = {"age": age, "group": np.digitize(age + rng.normal(0, 8, len(age)), [35, 60])}
    terms: dict[str, Any] = {"columns": {"age": (18, 80), "group": [0, 1, 2]}, "calibrate": True}
    model = classifier(**terms).fit(rows, target="group")
    chances = model.predict_proba(rows)

    assert np.allclose(chances.sum(axis=1), 1) and "of each class" in model.receipt_.terms["calibration"]
    assert (model.classes_[chances.argmax(axis=1)] == model.predict(rows)).mean() > 0.999
    for place in range(3):
        for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 1.0)):
            group = (chances[:, place] >= low) & (chances[:, place] < high)
            assert abs(chances[group, place].mean() - (rows["group"][group] == place).mean()) < 0.1
    expost.save_model(model, tmp_path / "model.json")
    assert expost.load_model(tmp_path / "model.json").predict_proba(rows).tolist() == chances.tolist()


def test_a_row_counted_for_each_class_moves_the_counts_by_the_sensitivity_at_most() -> None:
    model = classifier(columns={"age": (18, 80), "job": list("abc")}).fit(TABLE, target="job").release_.value
    tree = RankTree(3)
    moves = []
    for seed in range(50):
        random = np.random.default_rng(seed)
        rows = model.grid.encode_rows(100 * random.normal(size=(1, model.grid.width)))
        total = _sum_ranks(tree, model, [(rows, random.integers(-1, 3, 1), np.ones(1))])
        moves.append(float(np.linalg.norm(total.astype(float))) / float(tree.sensitivity.amount))

    assert min(moves) == 0 and 0.5 < max(moves) <= 1


def test_noise_that_hides_everything_leaves_probabilities_nearly_as_they_were() -> None:
    tree = RankTree()
    counts = tree.read(tree.start().astype(float), Fraction(10**5))
    slope, shift = fit_calibration(counts)
    assert slope == pytest.approx(1) and shift == pytest.approx(0)
    assert describe_reliability(counts, (slope, shift)) == "hidden by the noise"


# Coefficients ---------------------------------------------------------------------------------------------------------


def estimates_of(model: Any) -> dict[tuple[str, str], dict[str, Any]]:
    return {(line["column"], line["level"]): line for line in model.coefficients().lines}


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_intervals_contain_the_coefficients_that_made_the_rows(kind: str) -> None:
    scaled = []
    for seed in range(8):
        rows = table(seed)
        make, target = (classifier, "rich") if kind == "classifier" else (regressor, "pay")
        model = make(report=["coefficients"], simulation_seed=seed).fit(rows, target=target)
        shares = np.maximum(model.release_.value.profile.middles[2:5], 0)
        means = LEVELS - LEVELS @ shares / shares.sum()
        lines = estimates_of(model)
        assert lines["age", "missing"]["low"] is None  # no row tells anything about it
        truth = {("age", ""): SLOPE} | {("job", level): mean for level, mean in zip("abc", means, strict=True)}
        scaled += [
            (lines[key]["estimate"] - value) / math.hypot(lines[key]["noise"], lines[key]["sampling"])
            for key, value in truth.items()
            if lines[key]["estimate"] is not None
        ]
    assert len(scaled) >= 28
    # Of 28 independent normal numbers the largest is beyond 4.5 once in 5,000 times; seeds are fixed.
    assert np.abs(scaled).max() < 4.5 and 0.4 < np.std(scaled) < 1.4


@pytest.mark.parametrize(("strength", "epsilon"), [(2.5, 1.0), (5.0, 4.0)])
def test_intervals_contain_coefficients_with_large_log_odds(strength: float, epsilon: float) -> None:
    told = 0
    for seed in range(3):
        rows = table(seed, strength=strength)
        model = classifier(report=["coefficients"], simulation_seed=seed, epsilon=epsilon).fit(rows, target="rich")
        lines = estimates_of(model)
        for place, level in enumerate("abc"):
            shares = np.maximum(model.release_.value.profile.middles[2:5], 0)
            truth = strength * (LEVELS - LEVELS @ shares / shares.sum())[place]
            if lines["job", level]["low"] is not None:
                told += 1
                assert lines["job", level]["low"] < truth < lines["job", level]["high"]
        assert lines["age", ""]["low"] < strength * SLOPE < lines["age", ""]["high"]
        assert lines["age", ""]["high"] - lines["age", ""]["low"] < strength * SLOPE

    assert told >= 6


def test_estimates_are_not_shrunk_and_deviations_fall_with_epsilon() -> None:
    models = [regressor(report=["coefficients"], epsilon=each).fit(TABLE, target="pay") for each in (0.5, 5.0)]
    noises = [estimates_of(model)["age", ""]["noise"] for model in models]
    samplings = [estimates_of(model)["age", ""]["sampling"] for model in models]

    assert noises[1] < noises[0] / 4
    # The deviation of a least squares slope is sigma / sqrt(n var).
    assert samplings[1] == pytest.approx(1 / math.sqrt(20_000 * np.var(TABLE["age"])), rel=0.25)


def test_persons_with_several_rows_have_intervals_for_the_noise_only() -> None:
    model = classifier(report=["coefficients"], unit="id", max_rows_per_unit=2).fit(TABLE, target="rich")
    line = estimates_of(model)["age", ""]

    assert line["sampling"] is None
    assert line["high"] - line["low"] == pytest.approx(2 * 1.959964 * line["noise"], rel=1e-5)
    assert "the rows of one unit depend on each other" in model.coefficients().note


def test_coefficients_without_a_report_have_no_intervals_and_say_why() -> None:
    found = classifier().fit(TABLE, target="rich").coefficients()
    frame = found.to_pandas()

    assert list(frame.columns) == ["column", "level", "meaning", "coefficient"] and "report=" in found.note
    assert frame["level"].tolist() == ["", "missing", "a", "b", "c", "other"]
    assert "<table>" in found._repr_html_() and str(found).splitlines()[1].startswith("age")
    three = classifier(columns={"age": (18, 80)}, classes=["a", "b", "c"]).fit(TABLE, target="job").coefficients()
    assert "more than two classes" in three.note and {line["class"] for line in three.lines} == {"a", "b", "c"}


def test_every_kind_of_column_has_coefficients_in_its_own_units() -> None:
    encoder = TableEncoder(
        (
            NumberColumn("age", 0, 100, missing=False),
            FlagColumn("old"),
            CategoryColumn("job", ("a", "b")),
            DateColumn("day", "2020-01-01", "2020-12-31"),
        )
    )
    reported, combine = list_contrasts(encoder)
    middles = np.zeros(encoder.width)
    middles[2:5] = [0.6, 0.4, 0.0]
    matrix = combine(TableProfile(1.0, middles, np.ones(encoder.width), 1.0))

    assert len(reported) == len(matrix) == encoder.width
    assert matrix[0, 0] == 2 / 100 and matrix[1, 1] == 2
    assert np.allclose(matrix[2:5, 2:5].sum(axis=1), 0)  # adding one number to all levels changes nothing
    assert np.allclose(matrix[2:5, 2:5].T @ [0.6, 0.4, 0.0], 0)
    days = {each.level: row for each, row in zip(reported, matrix, strict=True) if "weekday" in each.meaning}
    assert {"Monday", "Sunday", "missing"} < days.keys() and len(days) == 8
    # Weekdays and a missing date add up to 1, as the intercept does.
    assert all(math.isclose(row.sum(), 0, abs_tol=1e-9) for row in days.values())


def test_weekdays_have_intervals_that_contain_their_differences() -> None:
    rng = np.random.default_rng(3)
    day = np.datetime64("2021-01-04") + rng.integers(0, 7 * 100, 40_000)
    sunday = (day.astype(int) + 3) % 7 == 6  # 1970 began on a Thursday
    rows = {"day": day.astype("datetime64[us]"), "pay": 1.0 * sunday + rng.normal(0, 0.5, len(day))}
    columns = {"day": DateColumn("day", "2021-01-01", "2022-12-31"), "pay": (-3, 4)}
    model = expost.Regressor(epsilon=4, columns=columns, report=["coefficients"], simulation_seed=2)
    lines = {each["level"]: each for each in model.fit(rows, target="pay").coefficients().lines}
    assert lines["Sunday"]["low"] < 6 / 7 < lines["Sunday"]["high"]
    assert lines["Monday"]["low"] < -1 / 7 < lines["Monday"]["high"]


def test_saved_models_keep_their_intervals_and_cards_show_them(tmp_path: Path) -> None:
    model = regressor(report=["coefficients"]).fit(TABLE, target="pay")
    expost.save_model(model, tmp_path / "model.json")
    for copy in (expost.load_model(tmp_path / "model.json"), pickle.loads(pickle.dumps(model))):
        assert copy.coefficients().lines == model.coefficients().lines
    card = model.card()
    shown = {each["feature"]: each for each in card.coefficients}
    assert shown["age, per unit"]["interval"][0] < SLOPE < shown["age, per unit"]["interval"][1]
    assert "95%" in card.to_markdown() and "prefers-color-scheme" in card.to_html() and "viewport" in card.to_html()


@pytest.mark.parametrize("confidence", [0, 1, "a", True, float("nan")])
def test_a_wrong_confidence_is_refused(confidence: Any) -> None:
    with pytest.raises(InvalidRequest, match="between 0 and 1"):
        classifier().fit(TABLE, target="rich").coefficients(confidence=confidence)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"report": ["roc"]}, "auc, coefficients"),
        ({"report": 3}, "auc, coefficients"),
        ({"calibrate": 1}, "calibrate"),
        ({"calibrate": True, "epsilon": None, "score": ("log_loss", 0.5)}, "another score than log_loss"),
        ({"report": ["coefficients"], "classes": ["a", "b", "c"]}, "two classes"),
        ({"epsilon": None, "score": ("auc", 0.9), "classes": ["a", "b", "c"]}, "two classes"),
    ],
    ids=str,
)
def test_what_cannot_be_reported_is_refused(terms: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        classifier(**{"columns": {"age": (18, 80)}} | terms).fit(TABLE, target="job" if "classes" in terms else "rich")
