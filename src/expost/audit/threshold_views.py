"""Sessions of above-threshold on two lists of queries, many runs at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from expost.audit.pair_attack import Outcomes, Pair
from expost.audit.privacy_claim import ExPost
from expost.noise import AboveThreshold, ReducedAboveThreshold
from expost.noise.bits import BitSource

__all__ = ["queries_around", "reduced_pair", "session_pair"]

Queries = Sequence[int]


def session_pair(
    name: str,
    rule: AboveThreshold,
    left: Queries,
    right: Queries,
    *,
    show_gaps: Callable[[Any], Any] | None = None,
    run_instead: AboveThreshold | None = None,
) -> Pair:
    """Build a pair of sessions of one rule; outcomes are all answers, billed as a session would bill them.

    ``show_gaps`` adds the gaps in the form it returns. ``run_instead`` plants a fault: another rule runs under the
    claim and the bills of this one.
    """
    runner = run_instead or rule
    per_hit, unfinished = float(rule.epsilon_threshold + rule.epsilon_query), float(rule.epsilon_threshold)

    def sample_sessions(queries: Queries, runs: int, bits: BitSource) -> Outcomes:
        answers, gaps = runner.simulate(queries, runs=runs, bits=bits)
        bills = (answers == 1).sum(axis=1) * per_hit + (answers[:, -1] == 0) * unfinished
        return Outcomes.of(answers if show_gaps is None else np.hstack([answers, show_gaps(gaps)]), bills)

    return Pair(name, ExPost(rule.guarantee), partial(sample_sessions, left), partial(sample_sessions, right))


def reduced_pair(name: str, rule: ReducedAboveThreshold, left: Queries, right: Queries) -> Pair:
    """Build a pair of sessions of a test whose noise shrinks, with as many queries as rungs."""
    bills = np.array([*map(float, rule.ladder), float(rule.ladder.cap * rule.threshold_share)])
    units = np.array([1, int(rule.sensitivity.amount)])

    def sample_sessions(queries: Queries, runs: int, bits: BitSource) -> Outcomes:
        stopped = rule.simulate(queries, runs=runs, bits=bits)
        return Outcomes.of(np.minimum(stopped // units, 6), bills[stopped[:, 0]])  # -1, not stopped, is the last entry

    return Pair(name, ExPost(rule.guarantee), partial(sample_sessions, left), partial(sample_sessions, right))


def queries_around(rule: AboveThreshold | ReducedAboveThreshold, moves: Sequence[int]) -> list[int]:
    """Place queries one sensitivity below the threshold, each moved up by a number of sensitivities."""
    unit = int(rule.sensitivity.amount)
    return [rule.threshold + (move - 1) * unit for move in moves]
