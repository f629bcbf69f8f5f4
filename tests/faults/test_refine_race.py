"""Sessions that refine one answer at the same time: one path, and what is charged is what was billed."""

import multiprocessing

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from expost import Dataset, Session
from expost.core import PureLoss, ReleaseOvertaken, epsilon
from expost.ledger import Ledger, new_key, open_ledger

LEVELS = (0.05, 0.1, 0.2, 0.4)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("EXPOST_LEDGER_KEY", new_key())
    pq.write_table(pa.table({"age": [number % 100 for number in range(5000)]}), tmp_path / "t.parquet")
    with open_ledger(tmp_path / "a.ledger") as ledger:
        ledger.open_account("dataset:t", epsilon(5))
    return tmp_path


def session(place):
    data = Dataset(str(place / "t.parquet"), name="t", bounds={"age": (0, 100)})
    return Session(data, ledger=str(place / "a.ledger"))


def refine(place, gate, told):
    gate.wait()
    found = []
    try:
        with session(place) as mine:
            for level in LEVELS:
                release = mine.count(epsilon=level)
                found.append((level, float(release.value), release.receipt.bill))
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}")
    told.put(found)


def test_processes_that_refine_one_answer_at_once_share_one_path_and_pay_once(place):
    context, crowd = multiprocessing.get_context("fork"), 5
    gate, told = context.Barrier(crowd), context.Queue()
    children = [context.Process(target=refine, args=(place, gate, told)) for _ in range(crowd)]
    for child in children:
        child.start()
    answers = [answer for _ in children for answer in told.get(timeout=120)]
    for child in children:
        child.join()

    assert [answer for answer in answers if isinstance(answer, str)] == []
    billed = sum((bill for _, _, bill in answers), PureLoss(0))
    with open_ledger(place / "a.ledger") as ledger:
        # One path costs its highest level, and every answer at most that; nothing was held in vain.
        assert ledger.spent("dataset:t") == billed == PureLoss(LEVELS[-1])
        assert ledger.open_holds() == []


@pytest.mark.parametrize("faster", [1, 2, 3])
@pytest.mark.parametrize("first", [0.05, None])
def test_a_run_that_is_overtaken_goes_on_from_what_the_faster_one_wrote(place, monkeypatch, faster, first):
    slow, quick = session(place), session(place)
    if first is not None:
        slow.count(epsilon=first)
    levels, method = iter(np.linspace(0.1, 0.3, faster)), "replace" if first is not None else "keep"
    original, values = getattr(Ledger, method), []

    def overtaken(self, *arguments, **terms):
        if self is slow._ledger:
            for level in levels:
                values.append(quick.count(epsilon=float(level)).value)
                break
        return original(self, *arguments, **terms)

    monkeypatch.setattr(Ledger, method, overtaken)

    release = slow.count(epsilon=0.4)

    assert len(values) == (faster if first is not None else 1)  # only the first keeper can be overtaken in keeping
    assert slow.spent() == PureLoss(0.4)
    assert release.receipt.bill.amounts()["epsilon"] < 0.4
    assert quick.count(epsilon=0.4).value == release.value


def test_a_run_that_is_always_overtaken_is_not_charged(place, monkeypatch):
    slow = session(place)
    slow.count(epsilon=0.05)
    monkeypatch.setattr(Ledger, "replace", lambda self, name, *, old, new: False)

    with pytest.raises(ReleaseOvertaken) as caught:
        slow.count(epsilon=0.4)

    assert caught.value.cost == "nothing spent"
    assert slow.spent() == PureLoss(0.05)
    assert slow._ledger.verify().open_holds == 0


def test_a_climb_that_is_overtaken_pays_for_what_its_stages_have_shown(place, monkeypatch):
    """Its draws are discarded, but the ledger shows that it passed a stage, which depends on them."""
    slow, quick = session(place), session(place)
    original, answers, held = Ledger.keep, [], []

    def overtaken(self, name, secret):
        if self is slow._ledger and not answers and name.startswith("path:"):
            held.extend(hold.worst_case.epsilon for hold in self.open_holds())
            answers.append(quick.count(epsilon=0.001))
        return original(self, name, secret)

    monkeypatch.setattr(Ledger, "keep", overtaken)
    release = slow.count(within="5%", max_epsilon=0.2)

    entries = slow.history()
    stages = [entry for entry in entries if "extends" in entry.body]
    lost = next(entry.receipt for entry in entries if entry.receipt and "overtaken" in entry.receipt.method)
    assert stages and held[0] > lost.bill.epsilon > 0
    assert 2 * lost.bill.epsilon >= held[0] or lost.bill.epsilon == stages[0].body["worst_case"]["epsilon"]
    assert slow.spent() == lost.bill + answers[0].receipt.bill + release.receipt.bill
    slow._ledger.verify()


def test_a_climb_that_continues_a_release_is_held_as_a_whole(place):
    mine = session(place)
    mine.count(within="50%", max_epsilon=0.2)
    before = len(mine.history())
    mine.count(within="5%", max_epsilon=0.2)

    added = mine.history()[before:]
    assert [entry.kind.value for entry in added] == ["hold", "settle"]
    assert "up_to" not in added[0].body
