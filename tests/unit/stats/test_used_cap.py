"""A climb uses the cap that it was given, and asking again continues where it stopped."""

import numpy as np
import pyarrow as pa
import pytest

from expost import Dataset, Session
from expost.core import TargetNotMet
from expost.noise import SeededBits

GROUPS, CAP = 12, 0.79


def open_session(seed: int) -> Session:
    groups = np.repeat(np.arange(GROUPS), 400)
    pay = np.clip(np.random.default_rng(3).gamma(2, 20, len(groups)), 0, 200)
    table = pa.table({"site": groups, "pay": pay})
    dataset = Dataset(table, bounds={"pay": (0, 200)}, categories={"site": list(range(GROUPS))})
    return Session(dataset, 100, bits=SeededBits(seed), simulation=True)


def ask(session: Session, cap: float):
    """The bill, and how many groups missed the target."""
    try:
        release = session.mean("pay", by="site", within="10%", max_epsilon=cap)
    except TargetNotMet as missed:
        release = missed.release
    return float(release.receipt.bill.epsilon), sum(not row.met for row in release.value.rows)


@pytest.mark.parametrize("seed", range(3))
def test_a_climb_that_misses_has_used_its_cap_and_continues_when_asked_again(seed: int) -> None:
    session = open_session(seed)
    first, missed = ask(session, CAP)
    # The target is near what the cap buys: some groups miss, and no rung is left unread.
    assert missed > 0 and first > CAP / 1.1

    second, later = ask(session, CAP)
    assert second > 0 and later < missed  # the pilot is paid for, so its part of the cap buys rungs
    assert first + second <= CAP * (1 + 1 / 4)  # a pilot costs at most a quarter of the cap

    assert ask(session, CAP) == (0.0, later)  # nothing is left of this cap
    more, left = ask(session, 3 * CAP)
    assert left == 0 and (more > 0) == (later > 0)


def test_a_larger_cap_met_at_once_costs_no_more_than_asking_twice() -> None:
    twice = open_session(5)
    paid = ask(twice, CAP)[0] + ask(twice, 3 * CAP)[0]
    once, missed = ask(open_session(5), 3 * CAP)

    assert missed == 0 and once <= paid * 1.35
