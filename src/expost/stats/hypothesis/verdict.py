"""What a private test says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from expost.core import Adjacency, InvalidRequest, PureGuarantee, PureLoss, Receipt, Release
from expost.core.rational import probability
from expost.stats.hypothesis.price import Ask, Priced

__all__ = ["ASYMPTOTIC", "PROVED", "Alternative", "Verdict", "alternative_of", "released", "two_sided"]

Alternative = Literal["two-sided", "greater", "less"]

PROVED = "proved"
"""What a receipt says of a p-value p with P(p <= level) <= level under every law of the null hypothesis."""

ASYMPTOTIC = "asymptotic, checked by simulation"
"""The same where the level rests on sums being nearly normal; docs/hypothesis-tests.md has the worst found."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The released statistic and its p-value; the noise is part of the reference distribution.

    ``p_value`` is the probability, under the null hypothesis and over sampling *and* noise, of a statistic at least as
    extreme; rejecting when it is at most a level keeps that level.

    >>> Verdict(test="binomial", statistic=61.3, p_value=0.03, estimate=0.61, alternative="greater").rejects(0.05)
    True
    """

    test: str
    statistic: float
    p_value: float
    estimate: float | None = None
    alternative: Alternative = "two-sided"

    def rejects(self, level: object) -> bool:
        """Whether the null hypothesis is rejected at this level."""
        return self.p_value <= float(probability(level, "level"))


def alternative_of(value: object) -> Alternative:
    """The alternative a caller named.

    >>> alternative_of("less")
    'less'
    """
    match value if isinstance(value, str) else None:  # arrays compare by element
        case "two-sided" | "greater" | "less" as found:
            return found
    raise InvalidRequest(
        "Expected alternative to be 'two-sided', 'greater' or 'less'", got=value, do="Name one of them"
    )


def two_sided(upper: Any, alternative: Alternative) -> Any:
    """The p-value of an alternative from P(statistic >= seen); two-sided is twice the smaller tail.

    >>> float(two_sided(0.01, "two-sided")), two_sided(0.01, "less")
    (0.02, 0.99)
    """
    if alternative == "greater":
        return upper
    if alternative == "less":
        return 1 - upper
    return 2 * np.minimum(upper, 1 - upper)


def released(
    verdict: Verdict,
    *,
    question: str,
    method: str,
    priced: Priced,
    interval: tuple[float, float] | None,
    ask: Ask,
    private: bool,
    terms: Mapping[str, Any],
    level: str,
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
    breakdown: Mapping[str, Fraction] | None = None,
    citations: tuple[str, ...],
) -> Release[Verdict]:
    """Return the verdict with its receipt; ``level`` says what the level of the p-value rests on."""
    receipt = Receipt(
        question=question,
        method=method,
        promise=PureGuarantee(priced.epsilon),
        bill=PureLoss(priced.epsilon),
        adjacency=adjacency,
        outcome=priced.outcome,
        target=ask.target,
        terms={**terms, "level": level, **priced.terms},
        breakdown=breakdown or {},
        citations=citations,
        simulation=not private,
    )
    return Release(verdict, receipt, interval)
