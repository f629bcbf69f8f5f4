"""One thread of one process draws the noise of a session: else one bill pays for two answers."""

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import pytest
from tests.forked import told_by_a_fork

from expost.core import InvalidRequest, Ladder, PureLoss, Sealed, Sensitivity
from expost.noise import AboveThreshold, ReducedAboveThreshold
from expost.noise.rising_threshold import RenewedThreshold, RisingBatch

ONE = Sensitivity(1)
FAR_ABOVE, FAR_BELOW = Sealed(10**4, ONE), Sealed(-(10**4), ONE)
LADDER = Ladder.of([Fraction(1, 10), 8])
WAIT = 0.05  # seconds: more than a thread needs to come to the lock; on a busy machine the test may see less, not fail


def renewed() -> Any:
    return RenewedThreshold(sensitivity=ONE, span=1, ladder=LADDER).open()


def reduced() -> Any:
    return ReducedAboveThreshold(threshold=0, sensitivity=ONE, ladder=LADDER).open()


def plain() -> Any:
    return AboveThreshold(threshold=0, sensitivity=ONE, epsilon_threshold=1, epsilon_query=1).open()


def told_together(session: Any, first: Callable[[], Any], second: Callable[[], Any]) -> list[Any]:
    """Return what two threads get that ask at once; the second one waits for the lock that the first one holds."""
    told: list[Any] = []

    def ask() -> None:
        try:
            told.append(second())
        except InvalidRequest:
            told.append("refused")

    thread, draw_alone = threading.Thread(target=ask), session._draw_alone

    @contextmanager
    def crowded() -> Iterator[None]:
        with draw_alone():
            if thread.ident is None:
                thread.start()
                thread.join(WAIT)
            yield

    session._draw_alone = crowded
    answer = first()
    thread.join()
    return [answer, *told]


@pytest.mark.parametrize("begin", [renewed, reduced])
@pytest.mark.parametrize(
    ("answer", "rungs"), [(False, (1, 0)), (True, (0, 1))], ids=["a rung below the last one", "after it has stopped"]
)
def test_a_thread_that_waited_asks_nothing_that_is_not_left(
    begin: Callable[[], Any], answer: bool, rungs: tuple[int, int]
) -> None:
    session, query = begin(), FAR_ABOVE if answer else FAR_BELOW
    first, second = (lambda rung=rung: session.ask(query, rung=rung).above for rung in rungs)

    assert told_together(session, first, second) == [answer, "refused"]
    assert session.last == rungs[0]


@pytest.mark.parametrize("second", ["ask", "ask_until_above"])
def test_a_thread_that_waited_uses_no_hit_twice(second: str) -> None:
    session = plain()
    again = {"ask": lambda: session.ask(FAR_ABOVE), "ask_until_above": lambda: session.ask_until_above([FAR_ABOVE])}

    assert told_together(session, lambda: session.ask(FAR_ABOVE).above, again[second]) == [True, "refused"]
    assert session.loss == PureLoss(2)


@pytest.mark.parametrize(
    ("begin", "question"), [(renewed, {"rung": 0}), (reduced, {"rung": 0}), (plain, {})], ids=["renewed", "reduced", "plain"]
)  # fmt: skip
def test_a_fork_draws_nothing(begin: Callable[[], Any], question: dict[str, int]) -> None:
    session = begin()

    assert "This session belongs to another process (it was forked)" in told_by_a_fork(
        lambda: session.ask(FAR_BELOW, **question).above
    )
    assert not session.ask(FAR_BELOW, **question).above


@pytest.mark.parametrize("begin", [reduced, renewed])
def test_an_answer_that_was_lost_on_its_way_is_paid_for(
    begin: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = begin()
    session.ask(FAR_BELOW, rung=0)
    answer = RisingBatch.step

    def lost(*terms: Any) -> None:
        answer(*terms)
        raise KeyboardInterrupt

    monkeypatch.setattr(RisingBatch, "step", lost)
    with pytest.raises(KeyboardInterrupt):
        session.ask(FAR_ABOVE, rung=1)

    assert session.last == 1
    assert session.loss == PureLoss(LADDER[1])


@pytest.mark.parametrize("begin", [renewed, reduced, plain])
def test_a_session_is_not_copied(begin: Callable[[], Any]) -> None:
    session = begin()
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            copied(session)
