"""Output laws of mechanisms on integers, written out from their definitions.

A second implementation, in plain sums. The decay ``a`` of a noise stands for exp(-1 / scale); with a rational decay
every probability is rational, with a float one the law can be compared with samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

Mass = dict[Any, Any]
Noise = Callable[[Any, int], Any]


def laplace_mass(a: Any, k: int) -> Any:
    """Compute P(noise = k) for two-sided geometric noise."""
    return (1 - a) / (1 + a) * a ** abs(k)


def laplace_reach(a: Any, k: int) -> Any:
    """Compute P(noise >= k) for two-sided geometric noise."""
    return a**k / (1 + a) if k > 0 else 1 - a ** (1 - k) / (1 + a)


def geometric_mass(a: Any, k: int) -> Any:
    """Compute P(noise = k) for one-sided geometric noise."""
    return (1 - a) * a**k if k >= 0 else 0 * a


def geometric_reach(a: Any, k: int) -> Any:
    """Compute P(noise >= k) for one-sided geometric noise."""
    return a**k if k > 0 else 1 + 0 * a


def laplace_law(center: int, a: Any, ends: tuple[int, int]) -> Mass:
    """Enumerate a number plus two-sided noise, clamped to a range."""
    low, high = ends
    law = {k: laplace_mass(a, k - center) for k in range(low + 1, high)}
    return law | {low: 1 - laplace_reach(a, low + 1 - center), high: laplace_reach(a, high - center)}


def choice_law(gaps: Sequence[int], a: Any) -> Mass:
    """Enumerate the exponential mechanism: candidate i in proportion to a^gap."""
    weights = [a**gap for gap in gaps]
    return {index: weight / sum(weights) for index, weight in enumerate(weights)}


def _count_law(coins: Sequence[tuple[Any, Any]]) -> list[Any]:
    """Enumerate the number of heads among independent coins, given by their weights of tails and heads."""
    law = [1]
    for tails, heads in coins:
        law = [tails * none + heads * one for none, one in zip([*law, 0], [0, *law], strict=True)]
    return law


def permute_and_flip_law(gaps: Sequence[int], a: Any) -> Mass:
    """Enumerate permute-and-flip: coins of probability a^gap in a random order; the first head wins."""
    chances = [a**gap for gap in gaps]
    law = {}
    for index, p in enumerate(chances):
        others = _count_law([(1 - other, other) for other in chances[:index] + chances[index + 1 :]])
        law[index] = p * sum(share / (heads + 1) for heads, share in enumerate(others))
    return law


def noisy_max_law(scores: Sequence[int], a: Any, window: int) -> Mass:
    """Enumerate noisy max: two-sided noise on each score, ties split evenly; entries are too low by about a^window."""
    law = dict.fromkeys(range(len(scores)), 0 * a)
    for top in range(min(scores) - window, max(scores) + window + 1):
        here = [laplace_mass(a, top - score) for score in scores]
        under = [1 - laplace_reach(a, top - score) for score in scores]
        for index, p in enumerate(here):
            rivals = [weights for rival, weights in enumerate(zip(under, here, strict=True)) if rival != index]
            ties = _count_law(rivals)  # the law of the number of rivals at the top, none above it
            law[index] += p * sum(share / (count + 1) for count, share in enumerate(ties))
    return law


def above_threshold_law(
    queries: Sequence[int], a: Any, b: Any, *, depth: int, hits: int = 1, two_sided: bool = False, gaps: int = 1
) -> Mass:
    """Enumerate the queries (and gaps) at which above-threshold at threshold 0 answers "above"; too low by about a^depth.

    An outcome is a tuple of (query, gap); gaps of at least ``gaps`` - 1 are merged.
    """
    law: Mass = {}
    for outcome, p in _first_hit(queries, a, b, depth, two_sided, gaps).items():
        if outcome is None or hits == 1:
            law[() if outcome is None else (outcome,)] = p
            continue
        rest = above_threshold_law(
            queries[outcome[0] + 1 :], a, b, depth=depth, hits=hits - 1, two_sided=two_sided, gaps=gaps
        )
        law |= {(outcome, *((q + outcome[0] + 1, g) for q, g in later)): p * share for later, share in rest.items()}
    return law


def _first_hit(queries: Sequence[int], a: Any, b: Any, depth: int, two_sided: bool, gaps: int) -> Mass:
    """Enumerate the first query answered "above" and its gap, or None."""
    mass, reach = (laplace_mass, laplace_reach) if two_sided else (geometric_mass, geometric_reach)
    law: Mass = dict.fromkeys([(t, g) for t in range(len(queries)) for g in range(gaps)], 0 * a)
    law[None] = 0 * a
    for z in range(-depth if two_sided else 0, depth + 1):
        alive = mass(a, z)
        for t, query in enumerate(queries):
            for gap in range(gaps - 1):
                law[t, gap] += alive * mass(b, z - query + gap)
            law[t, gaps - 1] += alive * reach(b, z - query + gaps - 1)
            alive *= 1 - reach(b, z - query)
        law[None] += alive
    return law


def reduced_law(queries: Sequence[int], decays: Sequence[Any], query_decays: Sequence[Any], *, depth: int) -> Mass:
    """Enumerate the query at which reduced above-threshold at threshold 0 stops, or None if it does not."""
    law: Mass = dict.fromkeys([*range(len(queries)), None], 0 * decays[0])
    steps = [(low / high) * (1 - high) / (1 - low) for high, low in pairwise(decays)]  # stay probabilities

    def walk_down(rung: int, z: int, p: Any, noises: tuple[int, ...]) -> None:
        if rung < 0:
            for t, (query, b, noise) in enumerate(zip(queries, query_decays, noises, strict=True)):
                hit = geometric_reach(b, noise - query)
                law[t] += p * hit
                p = p * (1 - hit)
            law[None] += p
            return
        # The noise of a rung is that of the next, more precise one, plus a jump.
        stay = steps[rung]
        for jump in range(depth - z + 1):
            weight = (1 - stay) * geometric_mass(decays[rung], jump) + (stay if jump == 0 else 0)
            walk_down(rung - 1, z + jump, p * weight, (z + jump, *noises))

    top = len(queries) - 1
    for z in range(depth + 1):
        walk_down(top - 1, z, geometric_mass(decays[top], z), (z,))
    return law


def response_law(truth: int, categories: int, a: Any) -> Mass:
    """Enumerate randomized response: the truth in proportion to 1, each lie to a."""
    weights = [1 + 0 * a if answer == truth else a for answer in range(categories)]
    return {answer: weight / sum(weights) for answer, weight in enumerate(weights)}


def proposed_law(distance: int, line: int, a: Any, answers: Mass) -> Mass:
    """Enumerate propose-test-release: the answers if distance plus noise exceeds the line, else None."""
    passed = laplace_reach(a, line + 1 - distance)
    return {answer: passed * p for answer, p in answers.items()} | {None: 1 - passed}


def laplace_path_law(center: int, low: Any, high: Any, *, coarse: range, fine: range) -> Mass:
    """Enumerate two rungs of a gradual release of one integer, with decays ``low`` > ``high`` and values from two ranges."""
    stay = high / low * ((1 - low) / (1 - high)) ** 2  # docs/proofs/lattice-laplace.md
    law = {}
    for y in fine:
        for x in coarse:
            kernel = (1 - stay) * laplace_mass(low, x - y) + (stay if x == y else 0)
            law[x, y] = laplace_mass(high, y - center) * kernel
    return law
