"""Many climbs at once: how much of an ex-post bill the released outcomes really show.

The coordinates of one gradual release have independent noise, so a path over a vector of equal answers is as many
independent runs, drawn by the kernels that every query uses. The stopping rules are those of the library, applied to
all columns at once. A million climbs of a single relative count take a minute.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.accuracy.interval import relative_ladder, relative_rule
from expost.audit.pair_attack import Outcomes, Pair, Sampler
from expost.audit.privacy_claim import ExPost
from expost.core import Ladder, PureGuarantee, Sealed, Sensitivity
from expost.noise import BitSource, DiscreteLaplacePath
from expost.stats.relative_climb import RuleRange, StoppingTable

__all__ = ["Draw", "draw_path", "relative_pair", "sample_in_parts", "simulated_pairs", "summarize_prefix"]

Integers = NDArray[Any]
Draw = Callable[[int, Ladder, int, BitSource], Integers]
"""(exact answer, ladder, runs, bits) to the noisy answers, one row per rung and one column per run."""

_AT_ONCE = 1 << 24  # noisy answers held in memory


def draw_path(exact: int, ladder: Ladder, runs: int, bits: BitSource) -> Integers:
    """Draw independent gradual releases of one answer of sensitivity 1."""
    sealed = Sealed(np.full(runs, exact, np.int64), Sensitivity(1))
    return DiscreteLaplacePath(sealed, ladder, bits=bits).block(0, len(ladder))


def relative_pair(
    count: int,
    *,
    within: Fraction,
    failure_probability: Fraction,
    cap: Fraction,
    rows: int = 1,
    draw: Draw = draw_path,
) -> Pair:
    """Build a pair of a single count that climbs to a relative accuracy, on a table and on one with ``rows`` more.

    With several rows the bill is multiplied by their number (group privacy): a single row among many changes so little
    that no feasible number of runs detects it.

    An outcome is what leaves: the value, whether the target was met, and a summary of the lower readings (the plot of
    the climb shows them all). The summary weights each rung as if the noise of all rungs were independent.
    """
    ladder = relative_ladder(Fraction(1), cap)
    levels = np.array([float(level) for level in ladder])
    rule = relative_rule(within, failure_probability)
    table = StoppingTable.of([RuleRange(math.inf, [rule])], ladder, Fraction(1))

    def sample_climbs(exact: int, runs: int, bits: BitSource) -> Outcomes:
        noisy = draw(exact, ladder, runs, bits)
        met, rung, _ = table.stops(noisy, range(len(ladder)), len(ladder))
        seen = noisy[rung, np.arange(runs)]
        value = np.where(met, rule.value(np.maximum(seen, 0), table.radii[rung, 0]), seen)
        shown = np.column_stack([value, met, summarize_prefix(noisy, rung, levels, count, rows)])
        return Outcomes.of(shown, rows * levels[rung])

    left, right = (
        sample_in_parts(partial(sample_climbs, exact), _AT_ONCE // len(ladder)) for exact in (count + rows, count)
    )
    name = f"{count} rows and {rows} more, within {float(within):.0%}"
    return Pair(name, ExPost(PureGuarantee(rows * cap)), left, right)


def simulated_pairs() -> tuple[Pair, ...]:
    """List the pairs of the audit: relative counts that stop at noisy and at precise rungs."""
    count = partial(relative_pair, within=Fraction(1, 10), failure_probability=Fraction(1, 20), cap=Fraction(8))
    return count(3), count(30), count(1000, rows=100)


def summarize_prefix(
    noisy: Integers, rung: NDArray[np.int64], levels: NDArray[np.float64], exact: int, more: int = 1
) -> NDArray[np.float64]:
    """Compute the log-likelihood ratio of ``exact + more`` and ``exact`` as if the noise of all rungs were independent."""
    read = np.arange(len(noisy))[:, None] <= rung
    nearer = np.clip(2 * (noisy - exact) - more, -more, more)  # |y - exact| - |y - exact - more|
    ratios: NDArray[np.float64] = np.where(read, nearer * levels[:, None], 0.0).sum(axis=0)
    return np.round(ratios, 6)


def sample_in_parts(sample: Sampler, most: int) -> Sampler:
    """Run a sampler in parts that fit into memory."""

    def sample_runs(runs: int, bits: BitSource) -> Outcomes:
        parts = [sample(min(most, runs - start), bits) for start in range(0, runs, most)]
        bills = [part.bills for part in parts if part.bills is not None]
        return Outcomes(np.concatenate([part.values for part in parts]), np.concatenate(bills))

    return sample_runs
