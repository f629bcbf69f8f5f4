"""Counts by private keys, with one epsilon for keys and counts together."""

from __future__ import annotations

from typing import Any

from expost.core import InvalidRequest
from expost.core.rational import probability, rational
from expost.data import Expression
from expost.stats.by_private_keys import ByPrivateKeys
from expost.stats.count import Count
from expost.stats.private_keys import PrivateKeys

__all__ = ["CountByPrivateKeys"]


class CountByPrivateKeys(ByPrivateKeys):
    """The number of rows in each group of a column whose values are not public; rare groups are left out.

    ``keys_share`` of the epsilon or cap finds the keys, the rest is left for the counts. The same as
    ``Count(by=PrivateKeys(...))`` with that split.

    Guarantee: (epsilon, delta)-DP; the keys' part is known before the run, the counts' loss is pure ex-post, known only
        after the run and at most the rest of epsilon or ``max_epsilon``.
    Adjacency: the dataset's, which must be add/remove.
    Sensitivity: that of ``PrivateKeys``, then that of ``Count``.
    Accuracy: intervals cover the counts of all groups shown at once.
    Numerics: exact integers and exact sampling; the threshold is rounded up.
    Reference: KKMN09, Theorem 1 (thresholding); docs/proofs/private-keys.md (this threshold).

    >>> CountByPrivateKeys("city", epsilon=1, delta=1e-6).question
    'count of rows by private city'
    """

    def __init__(
        self,
        column: str | Expression,
        *,
        delta: object,
        epsilon: object = None,
        max_epsilon: object = None,
        keys_share: object = 0.25,
        **terms: Any,
    ) -> None:
        level = epsilon if epsilon is not None else max_epsilon
        if level is None:
            raise InvalidRequest("Expected a cap beside private keys", do="Pass max_epsilon=, or epsilon=")
        total = rational(level, "epsilon")
        part = total * probability(keys_share, "keys_share")
        rest = {"epsilon" if epsilon is not None else "max_epsilon": total - part}
        keys = PrivateKeys(column, epsilon=part, delta=delta)
        super().__init__(Count, (), {**terms, **rest, "by": keys})
