"""Answers that are stored before the ledger settles them, so that a crash loses none and none leaves unpaid."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from expost.accounting.privacy_event import PrivacyEvent
from expost.core import Loss, Release
from expost.ledger import Hold, Ledger
from expost.session.wire_format import decode_release, encode_release

__all__ = ["KeptAnswer"]


class KeptAnswer:
    """A hold, the release that was drawn under it, and what did run.

    Parameters
    ----------
    hold : Hold
        The hold, charged at its worst case.
    release : Release
        The release, not entered in the ledger yet.
    outcome : PrivacyEvent, optional
        What did run, where steps are priced one by one.
    model : dict, optional
        Of a fit: the document of the fitted model. The release then has no value.
    """

    def __init__(
        self, hold: Hold, release: Release[Any], outcome: PrivacyEvent | None, model: dict[str, Any] | None = None
    ) -> None:
        self.hold, self.release, self.outcome, self.model = hold, release, outcome, model

    def to_json(self) -> str:
        """Return the answer as a text."""
        hold = self.hold
        document = {
            "hold": {
                "id": hold.id,
                "accounts": list(hold.accounts),
                "worst_case": hold.worst_case.to_json(),
                "question": hold.question,
                "request_id": hold.request_id,
                "ticket": hold.ticket,
                "earlier": list(hold.earlier),
                "replaced": list(hold.replaced),
                "note": hold.note,
            },
            "release": encode_release(self.release),
            "outcome": None if self.outcome is None else self.outcome.to_json(),
            "model": self.model,
        }
        return json.dumps(document, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> KeptAnswer:
        """Return the answer that ``to_json`` wrote.

        Parameters
        ----------
        text : str
            The text.
        """
        document = json.loads(text)
        facts = document["hold"]
        lists = {name: tuple(facts[name]) for name in ("accounts", "earlier", "replaced")}
        hold = Hold(**{**facts, **lists, "worst_case": Loss.from_json(facts["worst_case"])})
        event = document["outcome"]
        outcome = None if event is None else PrivacyEvent.from_json(event)
        return cls(hold, decode_release(document["release"]), outcome, document["model"])

    def settle(self, ledger: Ledger, keep: Any) -> Release[Any]:
        """Settle the answer in the place of a worker that has stopped, and return it.

        Parameters
        ----------
        ledger : Ledger
            The ledger that holds its worst case.
        keep : callable
            Called with this answer under its new hold before the ledger changes, so that a second crash loses nothing.
        """

        def store(mine: Hold) -> None:
            keep(KeptAnswer(mine, self.release, self.outcome, self.model))

        settled = self._find_settlement(ledger)
        if settled is not None:
            return replace(self.release).entered(settled)
        closed = next((each for each in ledger.open_holds() if each.id == self.hold.id), None) is None
        hold = self.hold if closed else ledger.take_over(self.hold, keep=store)
        # A hold that was settled already is settled again with the same receipt, which changes nothing.
        return replace(self.release).entered(ledger.settle(hold, self.release.receipt, outcome=self.outcome))

    def _find_settlement(self, ledger: Ledger) -> str | None:
        """Return the entry that settled this answer before its worker stopped.

        Settling again would be refused: a hold belongs to one process. The stored answer is the one that was paid for.
        """
        receipt = self.release.receipt.to_dict() | {"ledger_entry": None}
        entries = reversed(ledger.history(self.hold.accounts[0]))
        wanted = (each for each in entries if each.body.get("hold") == self.hold.id)
        return next((each.id for each in wanted if each.body.get("receipt") == receipt), None)
