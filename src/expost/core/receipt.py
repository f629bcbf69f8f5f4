"""What was run, on what terms, and what it cost: public facts only."""

from __future__ import annotations

import enum
import html
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from expost.core.adjacency import Adjacency, Unit, Window
from expost.core.errors import InvalidRequest
from expost.core.guarantee import Guarantee
from expost.core.loss import ApproxLoss, Loss
from expost.core.meaning import explain_loss
from expost.core.rational import decimal_text
from expost.core.target import Target

__all__ = ["Outcome", "Receipt", "together"]

_FORMAT = 1


class Outcome(enum.Enum):
    """How a run ended.

    >>> Outcome.CERTIFIED.met
    True
    """

    CERTIFIED = "certified"
    """The target is reached, decided from what was released and the public law of the noise: no test paid."""
    TESTED = "tested"
    """The target is reached by a private test whose cost is in the bill."""
    ESTIMATED = "estimated"
    """The target is reached by a calculation that rests on an assumption or an approximation, named in the terms."""
    NOT_MET = "not met"
    """No rung under the cap reached the target."""
    FIXED = "fixed epsilon"
    """Privacy was asked for, not accuracy; ``achieved`` is the accuracy that follows."""

    @property
    def met(self) -> bool:
        """Whether what was asked for was delivered."""
        return self is not Outcome.NOT_MET


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """The record that leaves with every answer.

    ``promise`` is what the run could have cost at most, ``bill`` what it did cost. ``paid_before`` is what earlier runs
    were billed that the answer rests on, e.g. those of a path that it refines: somebody who sees the answer learns what
    all of that can tell, so ``in_all`` is what it means for a person. ``terms`` are the public conditions (clip bounds,
    categories, grid), ``achieved`` the accuracy that holds at the target's confidence.

    >>> from expost.core import PureGuarantee, PureLoss
    >>> receipt = Receipt(question="count", method="discrete Laplace", promise=PureGuarantee(1), bill=PureLoss(0.1))
    >>> Receipt.from_json(receipt.to_json()) == receipt
    True
    """

    question: str
    method: str
    promise: Guarantee
    bill: Loss
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    unit: Unit = Unit()
    outcome: Outcome = Outcome.FIXED
    target: Target | None = None
    achieved: float | None = None
    rung: int | None = None
    rungs: int | None = None
    terms: Mapping[str, Any] = field(default_factory=dict)
    breakdown: Mapping[str, Fraction] = field(default_factory=dict)
    citations: tuple[str, ...] = ()
    simulation: bool = False
    ledger_entry: str | None = None
    paid_before: Loss | None = None

    def __post_init__(self) -> None:
        if self.bill.definition == self.promise.definition and not self.bill.within(self.promise):
            raise InvalidRequest("Expected a bill within its promise", do="Raise the cap of the run")
        object.__setattr__(self, "terms", _plain(self.terms))

    @property
    def meaning(self) -> str:
        """One sentence about what this means for a person in the data."""
        if self.simulation:
            return "SIMULATION, NOT PRIVATE: the noise came from a seed. Do not publish this answer."
        return explain_loss(self.in_all, unit=str(self.unit))

    @property
    def in_all(self) -> Loss:
        """The loss of everything that the answer rests on: what this run paid, and what was paid before."""
        return together(self.bill, self.paid_before)

    @property
    def epsilon(self) -> float:
        """The epsilon paid, where the bill has one; NaN where it has none (zCDP, GDP, Renyi)."""
        return float(self.bill.amounts().get("epsilon", "nan"))

    def entered(self, ledger_entry: str) -> Receipt:
        """This receipt with the id under which a ledger keeps it."""
        return replace(self, ledger_entry=ledger_entry)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary without loss."""
        return {
            "format": _FORMAT,
            "question": self.question,
            "method": self.method,
            "promise": self.promise.to_json(),
            "bill": self.bill.to_json(),
            "adjacency": self.adjacency.value,
            "unit": {
                "column": self.unit.column,
                "time_column": self.unit.time_column,
                "window": None if self.unit.window is None else self.unit.window.value,
            },
            "outcome": self.outcome.value,
            "target": None if self.target is None else self.target.to_json(),
            "achieved": self.achieved,
            "rung": self.rung,
            "rungs": self.rungs,
            "terms": self.terms,
            "breakdown": {name: str(amount) for name, amount in self.breakdown.items()},
            "citations": list(self.citations),
            "simulation": self.simulation,
            "ledger_entry": self.ledger_entry,
            "paid_before": None if self.paid_before is None else self.paid_before.to_json(),
        }

    def to_json(self) -> str:
        """The dictionary as canonical JSON text."""
        return json.dumps(self.to_dict(), sort_keys=True, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Receipt:
        """The receipt that ``to_dict`` wrote."""
        if data.get("format") != _FORMAT:
            raise InvalidRequest(f"Expected a receipt of format {_FORMAT}", do="Read it with the version that wrote it")
        unit, before = data["unit"], data.get("paid_before")
        return cls(
            question=data["question"],
            method=data["method"],
            promise=Guarantee.from_json(data["promise"]),
            bill=Loss.from_json(data["bill"]),
            adjacency=Adjacency(data["adjacency"]),
            unit=Unit(unit["column"], unit["time_column"], None if unit["window"] is None else Window(unit["window"])),
            outcome=Outcome(data["outcome"]),
            target=None if data["target"] is None else Target.from_json(data["target"]),
            achieved=data["achieved"],
            rung=data["rung"],
            rungs=data["rungs"],
            terms=data["terms"],
            breakdown={name: Fraction(text) for name, text in data["breakdown"].items()},
            citations=tuple(data["citations"]),
            simulation=data["simulation"],
            ledger_entry=data["ledger_entry"],
            paid_before=None if before is None else Loss.from_json(before),
        )

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        """The receipt that ``to_json`` wrote."""
        return cls.from_dict(json.loads(text))

    def rows(self) -> list[tuple[str, str]]:
        """Label and text of each line, in reading order."""
        lines = [("question", self.question), ("method", self.method)]
        lines.append(("target", "none: epsilon was given" if self.target is None else str(self.target)))
        lines.append(("outcome", self.outcome.value))
        if self.achieved is not None:
            lines.append(("accuracy", f"{self.achieved:.6g}"))
        lines += self._price_rows()
        if self.breakdown:
            parts = (f"{name} {decimal_text(amount)}" for name, amount in self.breakdown.items())
            lines.append(("of which", ", ".join(parts)))
        if self.rung is not None and self.rungs is not None:
            lines.append(("rung", f"{self.rung + 1} of {self.rungs}"))
        size = "public" if self.adjacency.public_size else "private"
        lines.append(("neighbours", f"{self.adjacency.value}, {self.unit}, number of units {size}"))
        lines += [(name, _one_line(value)) for name, value in self.terms.items()]
        if self.citations:
            lines.append(("theorems", "; ".join(self.citations)))
        lines.append(("ledger", self.ledger_entry or "none: this answer is recorded nowhere"))
        lines.append(("meaning", self.meaning))
        return lines

    def _price_rows(self) -> list[tuple[str, str]]:
        if self.paid_before is None:
            return [("paid", str(self.bill)), ("at most", str(self.promise))]
        most = together(Loss.worst_case(self.promise), self.paid_before)
        return [
            ("paid", f"{self.bill} now, at most {self.promise}"),
            ("paid before", f"{self.paid_before} for what this answer rests on"),
            ("in all", f"{self.in_all}, at most {most}"),
        ]

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label:>{width}}  {text}" for label, text in rows)

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th style='text-align:right'>{html.escape(label)}</th>"
            f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
            for label, text in self.rows()
        )
        return f"<table>{cells}</table>"


def together(first: Loss, second: Loss | None) -> Loss:
    """Two losses, if there are two, as one; a pure one is an (epsilon, delta) one of delta 0 (DR14, Theorem 3.16).

    >>> from expost.core import ApproxLoss, PureLoss
    >>> str(together(PureLoss(0.5), ApproxLoss(0.25, 1e-6)))
    'epsilon 0.75, delta 1e-06'
    """
    if second is None:
        return first
    if {first.definition, second.definition} == {"pure", "approx"}:
        first, second = (
            ApproxLoss(each.amounts()["epsilon"], each.amounts().get("delta", Fraction(0))) for each in (first, second)
        )
    return first + second


def _plain(value: Any) -> Any:
    """JSON values only, so that a receipt equals what is read back."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Fraction):
        return str(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise InvalidRequest("Expected plain public terms on a receipt", got=type(value).__name__, do="Pass JSON values")


def _one_line(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
