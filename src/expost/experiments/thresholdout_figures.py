"""The figures of the reusable holdout: 10,000 adaptive questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.experiments.experiment_report import Progress, markdown_table, write_csv
from expost.experiments.figure_style import draw_panels, save_both
from expost.holdout import Thresholdout, plan_holdout, tolerance_reached
from expost.holdout.holdout_plan import GRID, HoldoutPlan, analysed_level
from expost.holdout.holdout_size import rows_for_approximate, rows_for_concentrated, rows_for_pure
from expost.noise import BitSource, SeededBits, sample_geometric
from expost.plots.figure import BLUE, GREEN, ORANGE

__all__ = ["Draw", "Selection", "SelectionSetting", "accuracies", "run", "select"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SelectionSetting:
    """How much data, and how many features carry how much signal."""

    rows: int = 10_000
    features: int = 10_000
    informative: int = 0
    counts: tuple[int, ...] = (0, 10, 20, 30, 45, 70, 100, 150, 200, 250, 300, 400, 500)

    @property
    def unit(self) -> float:
        """One standard error of a mean."""
        return 1 / float(np.sqrt(self.rows))

    @property
    def shifts(self) -> Floats:
        """The true means: 6 standard errors for informative features (DFHPRR15s), else 0."""
        return np.where(np.arange(self.features) < self.informative, 6 * self.unit, 0.0)


@dataclass(frozen=True)
class Draw:
    """The means of all features on the training and the holdout sample."""

    training: Floats
    holdout: Floats

    @classmethod
    def of(cls, setting: SelectionSetting, rng: np.random.Generator) -> Draw:
        """Draw both samples."""
        noise = rng.normal(0.0, setting.unit, (2, setting.features))
        return cls(setting.shifts + noise[0], setting.shifts + noise[1])


@dataclass(frozen=True)
class Selection:
    """Features in the order in which the analyst takes them, with their signs."""

    features: NDArray[np.intp]
    signs: Floats


def select(setting: SelectionSetting, training: Floats, answers: Floats) -> Selection:
    """Choose features whose training mean and holdout answer agree beyond one standard error, largest training mean first."""
    unit = setting.unit
    agree = ((training > unit) & (answers > unit)) | ((training < -unit) & (answers < -unit))
    ranked = np.flatnonzero(agree)[np.argsort(-np.abs(training[agree]), kind="stable")]
    chosen = ranked[: setting.counts[-1]]
    return Selection(chosen, np.sign(training[chosen]))


def accuracies(
    setting: SelectionSetting, selection: Selection, means: Floats | None, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Count how many rows of a sample the vote of the first k features gets right, for each k; one half of them for k = 0.

    ``means`` are the sample's own means of all features; without them the sample is fresh.
    """
    right = np.empty(len(setting.counts), np.int64)
    votes, before = np.zeros(setting.rows), 0
    for place, count in enumerate(setting.counts):
        block = slice(before, min(count, len(selection.features)))
        features, signs = selection.features[block], selection.signs[block]
        noise = rng.standard_normal(setting.rows)
        if means is not None:
            noise -= noise.mean()
        centre = (setting.shifts if means is None else means)[features] @ signs
        votes += centre + np.sqrt(len(features)) * noise
        right[place] = setting.rows // 2 if len(selection.features) == 0 or count == 0 else np.count_nonzero(votes > 0)
        before = max(before, block.stop)
    return right


_FAILURE = Fraction(1, 20)
_SAMPLES = ("training", "holdout", "fresh")
_WAYS = ("standard holdout", "Thresholdout as published", "Thresholdout with a promise")
_CLIP = 3.0  # the correlation of a row is clipped to [-3, 3] and scaled to [0, 1] to be a question


@dataclass(frozen=True)
class Curve:
    """Accuracies of one method in one setting: trials x (training, reported by the holdout, fresh) x numbers of features."""

    way: str
    signal: bool
    counts: tuple[int, ...]
    values: Floats
    bounds: Floats | None = None

    @property
    def mean(self) -> Floats:
        return np.asarray(self.values.mean(0))

    @property
    def spread(self) -> Floats:
        return np.asarray(self.values.std(0))


def run(
    output: Path,
    *,
    data: str | Path | None = None,
    quick: bool = False,
    trials: int | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Write the figures, the numbers and a summary into ``output``; returns the files, the summary first.

    ``data`` is not used: this experiment makes its own.
    """
    output.mkdir(parents=True, exist_ok=True)
    setting = SelectionSetting(rows=2000, features=2000) if quick else SelectionSetting()
    repeats = trials or (5 if quick else 100)
    plan = _plan(setting)
    curves = []
    for signal in (False, True):
        chosen = replace(setting, informative=20) if signal else setting
        curves += _curves(chosen, plan, repeats, progress)
    columns = ["way", "signal", "features", "sample", "accuracy", "standard deviation", "promised error"]
    files = [*_draw(setting, curves, output), write_csv(output / "thresholdout.csv", columns, _numbers(curves))]
    summary = output / "thresholdout.md"
    summary.write_text(_summary(setting, plan, curves, repeats), encoding="utf-8")
    return [summary, *files]


def _plan(setting: SelectionSetting) -> HoldoutPlan:
    """Plan the smallest tolerance this size can promise for all questions, one answer from the holdout per model."""
    models = len(setting.counts) - 1
    terms: Any = {"max_hits": models, "max_queries": setting.features + models, "variant": "improved"}
    reached = tolerance_reached(setting.rows, failure_probability=_FAILURE, **terms)
    return plan_holdout(setting.rows, tolerance=reached, failure_probability=_FAILURE, **terms)


def _curves(setting: SelectionSetting, plan: HoldoutPlan, trials: int, progress: Progress | None) -> list[Curve]:
    rng, bits = np.random.default_rng(2015 + setting.informative), SeededBits(2015 + setting.informative)
    standard, published, promised, bounds = [], [], [], []
    signal = setting.informative > 0
    for trial in range(trials):
        draw = Draw.of(setting, rng)
        standard.append(_count_right(setting, draw, draw.holdout, rng) / setting.rows)  # the holdout answers exactly
        published.append(_published(setting, draw, rng))
        values, bound = _promised(setting, draw, plan, rng, bits)
        promised.append(values)
        bounds.append(bound)
        if progress is not None:
            progress(trial + 1, trials, f"thresholdout, {'with signal' if signal else 'no signal'}")
    return [
        Curve(_WAYS[0], signal, setting.counts, np.array(standard)),
        Curve(_WAYS[1], signal, setting.counts, np.array(published)),
        Curve(_WAYS[2], signal, setting.counts, np.array(promised), np.array(bounds)),
    ]


def _count_right(setting: SelectionSetting, draw: Draw, answers: Floats, rng: np.random.Generator) -> NDArray[Any]:
    """Count right answers on the training, holdout and fresh samples of the analyst who believes these answers."""
    selection = select(setting, draw.training, answers)
    means = (draw.training, draw.holdout, None)
    return np.array([accuracies(setting, selection, each, rng) for each in means])


def _published(setting: SelectionSetting, draw: Draw, rng: np.random.Generator) -> Floats:
    """Run it with threshold 4/sqrt(n), Gaussian noise of 1/sqrt(n) on comparison and answer, no budget (DFHPRR15s)."""
    threshold, tolerance = 4 * setting.unit, setting.unit

    def answered(training: Floats, holdout: Floats) -> Floats:
        noise = rng.normal(0.0, tolerance, (2, training.size))
        far = np.abs(training - holdout) > threshold + noise[0]
        return np.where(far, holdout + noise[1], training)

    values = _count_right(setting, draw, answered(draw.training, draw.holdout), rng) / setting.rows
    values[1] = answered(values[0], values[1])
    return np.asarray(values)


def _promised(
    setting: SelectionSetting, draw: Draw, plan: HoldoutPlan, rng: np.random.Generator, bits: BitSource
) -> tuple[Floats, Floats]:
    """Run this package's mechanism, all questions under one budget.

    A feature's question is its correlation clipped to [-3, 3] and scaled to [0, 1], so means shrink by 6; the clipping
    itself moves a mean by far less than a threshold and is left out of the simulation.
    """
    apart = (draw.holdout - draw.training) / (2 * _CLIP)
    hits = _crossings(apart, plan, bits)
    answers = draw.training.copy()
    for feature, difference in hits.items():
        answers[feature] += 2 * _CLIP * difference
    right = _count_right(setting, draw, answers, rng)
    session = Thresholdout(replace(plan, max_hits=plan.max_hits - len(hits))).open(bits=bits)
    values, promised = right / setting.rows, np.zeros(len(setting.counts))
    values[1, 0] = 0.5
    for place in range(1, len(setting.counts)):
        used, guess = plan.max_hits - session.hits_left, Fraction(int(right[0, place]), setting.rows)
        found = session.ask(int(right[1, place]) * GRID, guess=guess) if session.hits_left else None
        values[1, place] = values[0, place] if found is None else float(found)
        question = setting.features + place - 1
        promised[place] = plan.bound_in_force(question, used, from_holdout=found is not None).error
    return np.asarray(values), promised


def _crossings(apart: Floats, plan: HoldoutPlan, bits: BitSource) -> dict[int, float]:
    """Find which questions cross the threshold test and the difference their gap shows, all drawn at once.

    The law is that of asking them one by one, both signs of each.
    """
    level, start, hits = plan.level, 0, dict[int, float]()
    scale, bias = 1 << 40, float(plan.level.query_scale - plan.level.threshold_scale)
    while start < len(apart) and len(hits) < plan.max_hits:
        barrier = float(level.threshold) + sample_geometric(level.threshold_scale * scale, bits=bits) / scale
        signed = np.array([apart[start:], -apart[start:]])
        gaps = signed + sample_geometric(level.query_scale * scale, signed.shape, bits=bits) / scale - barrier
        crossed = np.flatnonzero((gaps >= 0).any(0))
        if not crossed.size:
            break
        first = int(crossed[0])
        sign = 0 if gaps[0, first] >= 0 else 1
        difference = float(level.threshold) + gaps[sign, first] - bias
        hits[start + first] = float(difference if sign == 0 else -difference)
        start += first + 1
    return hits


def _draw(setting: SelectionSetting, curves: Sequence[Curve], output: Path) -> list[Path]:
    published = [curve for curve in curves if curve.way != _WAYS[2]]
    ours = [curve for curve in curves if curve.way == _WAYS[2]]
    order = sorted(published, key=lambda curve: (curve.signal, _WAYS.index(curve.way)))

    def figure(axes: Any, row: int, column: int) -> None:
        _panel(axes, order[2 * row + column], number=2 * row + column + 1)

    def own(axes: Any, row: int, column: int) -> None:
        _panel(axes, ours[column])

    title = f"Features chosen by asking a holdout {setting.features:,} times"
    first = draw_panels(2, 2, figure, title=title, panel=(4.6, 3.2))
    second = draw_panels(1, 2, own, title="The mechanism whose answers carry a promise", panel=(4.6, 3.6))
    return [*save_both(first, output / "thresholdout"), *save_both(second, output / "thresholdout-promise")]


def _panel(axes: Any, curve: Curve, *, number: int | None = None) -> None:
    # The fresh sample first and larger, so that a holdout that tells the truth does not hide it.
    for index, color, marker, size in ((0, BLUE, "^", 5.0), (2, GREEN, "o", 7.0), (1, ORANGE, "s", 4.0)):
        mean, spread = curve.mean[index], curve.spread[index]
        label = "what the holdout says" if index == 1 else f"accuracy on {_SAMPLES[index]} rows"
        axes.plot(curve.counts, mean, color=color, marker=marker, markersize=size, linewidth=1.6, label=label)
        axes.fill_between(curve.counts, mean - spread, mean + spread, color=color, alpha=0.18, linewidth=0)
    if curve.bounds is not None:
        mean, reach = curve.mean[1, 1:], curve.bounds.mean(0)[1:]
        look = {"facecolor": "none", "edgecolor": ORANGE, "hatch": "///", "alpha": 0.5, "linewidth": 0.0}
        label = "promised to contain the truth (95 %)"
        axes.fill_between(curve.counts[1:], mean - reach, mean + reach, label=label, **look)
    what = "20 features carry signal" if curve.signal else "no signal"
    short = "Standard holdout" if curve.way == _WAYS[0] else "Thresholdout"
    axes.set_title(what if number is None else f"{number}. {short}: {what}", fontsize=10.5, loc="left")
    lowest = 0.35 if curve.bounds is not None else 0.45
    axes.set(ylim=(lowest, 0.75), xlabel="features used", ylabel="accuracy")


def _numbers(curves: Sequence[Curve]) -> Iterator[list[object]]:
    """Yield the rows of the table for machines."""
    for curve in curves:
        for index, sample in enumerate(_SAMPLES):
            for place, count in enumerate(curve.counts):
                promised = "" if curve.bounds is None or index != 1 else f"{curve.bounds[:, place].mean():.4f}"
                numbers = f"{curve.mean[index, place]:.5f}", f"{curve.spread[index, place]:.5f}"
                yield [curve.way, curve.signal, count, sample, *numbers, promised]


def _summary(setting: SelectionSetting, plan: HoldoutPlan, curves: Sequence[Curve], trials: int) -> str:
    last = [
        [curve.way, "yes" if curve.signal else "no", *(float(curve.mean[index, -1]) for index in range(3))]
        for curve in curves
    ]
    return f"""# A holdout asked {setting.features:,} times

{setting.rows:,} training and {setting.rows:,} holdout rows, {setting.features:,} normal features, labels of random sign; with
signal, 20 features are shifted by 6/sqrt(n) towards the label. Averages over {trials} draws, at {setting.counts[-1]} features:

{markdown_table(["way", "signal", "training", "said by the holdout", "fresh rows"], last)}

![Accuracies by the number of features](thresholdout.png)

A standard holdout that guided the choice of features reports accuracy that is not there. Thresholdout does not.

## What can be promised at this size

"As published" (Gaussian noise, threshold 4/sqrt(n), no budget, no fresh thresholds) is not the mechanism that the theorem
is about, and carries no promise. For {plan.max_queries:,} questions with {plan.max_hits} answers from the holdout, 95 % sure:

{markdown_table(["statement", "tolerance", "holdout rows needed"], _promises(setting, plan))}

![The mechanism whose answers carry a promise](thresholdout-promise.png)

The mechanism of the second figure ran at tolerance {float(plan.tolerance):.3g} with threshold
{float(plan.level.threshold):.3g}; its session costs at most epsilon {float(plan.guarantee.epsilon):.3g} for a holdout row. The promise
at this size rests on the shortness of the transcript, not on privacy: {plan.promise.theorem}.
"""


def _promises(setting: SelectionSetting, plan: HoldoutPlan) -> list[list[object]]:
    rows: list[list[object]] = []
    sizes = {
        "Theorem 3.3, pure": rows_for_pure,
        "Theorem 3.3, approximate (corrected)": rows_for_approximate,
        "Theorem 3.3, through zCDP": rows_for_concentrated,
    }
    failure = float(_FAILURE)
    for tolerance in (0.1, 0.2):
        exact = Fraction(str(tolerance))
        level = analysed_level(tolerance=exact, failure_probability=failure, max_queries=plan.max_queries)
        assert level.answer_scale is not None
        terms = {"error": tolerance / 8, "failure_probability": failure / (2 * plan.max_queries)}
        for name, size in sizes.items():
            needed = size(plan.max_hits, sigma=float(level.answer_scale), **terms)
            rows.append([name, tolerance, f"{needed:,.0f}"])
    limits: Any = {"max_hits": plan.max_hits, "max_queries": plan.max_queries}
    for variant in ("analysed", "improved"):
        reached = tolerance_reached(setting.rows, failure_probability=_FAILURE, variant=variant, **limits)
        rows.append([f"this package, {variant} variant, tightest bound", reached, f"{setting.rows:,} (have)"])
    return rows
