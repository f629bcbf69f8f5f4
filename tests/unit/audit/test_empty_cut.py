"""Partitions of outcomes are asked about halves in which no run has a bill of the cut."""

import numpy as np

from expost.audit.pair_attack import partitions


def test_every_partition_reads_no_outcomes() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(200, 3)), rng.normal(size=(200, 3)) + 1

    found = list(partitions(left, right, lambda values: values))

    assert len(found) >= 3
    assert all(len(each.cells(np.zeros((0, 3)))) == 0 for each in found)
    assert all(len(each.cells(left)) == 200 for each in found)
