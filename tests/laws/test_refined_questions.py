"""Every question asked again: a release that is continued is held with what was paid for it (docs/proofs/refined-release.md)."""

import contextlib
from fractions import Fraction

import numpy as np
import pyarrow as pa
from tests.journey.every_question import CATEGORIES, QUESTIONS, described

from expost import Session, stats
from expost.core import BudgetExceeded, TargetNotMet
from expost.data import Dataset
from expost.ledger import EntryKind
from expost.noise import SeededBits
from expost.stats.gradual_release import GradualRelease

ROWS = 2000
DRAWN = np.random.default_rng(7)
TABLE = pa.table(
    {
        "x": DRAWN.uniform(4.9, 5.1, ROWS),
        "y": DRAWN.uniform(0, 10, ROWS),
        "c": DRAWN.choice(CATEGORIES["c"], ROWS),
        "d": DRAWN.choice(CATEGORIES["d"], ROWS),
    }
)
CLIMBS = [
    stats.StandardDeviation("x", within=0.0001, max_epsilon=1),
    stats.Summary(["y", "x"], within="5%", max_epsilon=Fraction(3, 2)),
    stats.Summary(["x", "x"], within=0.001, max_epsilon=4),
    stats.Count(within="10%", max_epsilon=1),
    stats.Count(within="5%", max_epsilon=2),
    stats.Count(by="c", within="10%", max_epsilon=1),
    stats.Count(by="c", within="5%", max_epsilon=2),
    stats.Mean("x", within=0.001, max_epsilon=1),
    stats.Variance("x", within=0.0001, max_epsilon=3),
]


class Spy:
    """Notes how far each release was read before a question and after it."""

    def __init__(self, monkeypatch) -> None:
        self.before: dict[int, tuple[GradualRelease, Fraction]] = {}
        original = GradualRelease.extend_path

        def extend_path(release, ladder, bits):
            self.before.setdefault(id(release), (release, release.paid))
            return original(release, ladder, bits)

        monkeypatch.setattr(GradualRelease, "extend_path", extend_path)

    def continued(self) -> Fraction:
        """What had been paid for the releases that were read further since the last call."""
        noted = [earlier for release, earlier in self.before.values() if release.paid > earlier]
        self.before.clear()
        return sum(noted, Fraction(0))


def ask_all(session: Session, questions, spy: Spy) -> list[tuple[Fraction, Fraction]]:
    """What each question continued, and what its holds said it would."""
    found = []
    for question in questions:
        entries = len(session.ledger.history())
        with contextlib.suppress(TargetNotMet, BudgetExceeded):  # what was read is paid for; above a cap nothing was
            session.ask(question)
        holds = [one for one in session.ledger.history()[entries:] if one.kind is EntryKind.HOLD]
        found.append((spy.continued(), sum(Fraction(one.body.get("before", 0)) for one in holds)))
    return found


def open_session() -> Session:
    return Session(Dataset(TABLE, **described()), budget=(500, 1e-3), bits=SeededBits(1), simulation=True)


def test_every_question_asked_for_more_is_held_with_what_it_continues(monkeypatch):
    session, spy = open_session(), Spy(monkeypatch)
    questions = [build(level) for level in (0.3, 0.2, 0.9) for build in QUESTIONS.values()]
    found = ask_all(session, questions, spy)

    assert sum(continued > 0 for continued, _ in found) >= 8
    assert all(continued <= before for continued, before in found)


def test_climbs_that_go_on_with_what_others_left_are_held_with_what_they_continue(monkeypatch):
    session, spy = open_session(), Spy(monkeypatch)
    found = ask_all(session, [*CLIMBS, *CLIMBS[::-1]], spy)

    assert sum(continued > 0 for continued, _ in found) >= 3
    assert all(continued <= before for continued, before in found)
