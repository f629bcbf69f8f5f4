"""What leaves: a value with its interval and its receipt, which states what was run, on what terms, and what it cost."""

from __future__ import annotations

import enum
import html
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fractions import Fraction
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from expost.core.adjacency import Adjacency, Unit, Window
from expost.core.errors import InvalidRequest, MissingExtra, WrongArguments
from expost.core.estimate import Arithmetic, Estimate
from expost.core.guarantee import Guarantee
from expost.core.loss import ApproxLoss, Loss
from expost.core.meaning import explain_loss
from expost.core.rational import decimal_text
from expost.core.release_report import report_release
from expost.core.table_text import html_table
from expost.core.target import Measure, Target

__all__ = ["Outcome", "Receipt", "Release", "Step", "add_losses", "draw_picture"]

T = TypeVar("T")

_FORMAT = 1
_LONGEST = 500  # letters of a term that is not a text
_ERRORS = (Measure.ABSOLUTE_ERROR, Measure.RELATIVE_ERROR, Measure.RANK_ERROR, Measure.POWER)
_ROWS_SHOWN = 20  # rows of a table that a notebook shows
_PICTURES = "expost.pictures"  # the group of entry points that draw core values, so that core need not import plots


class Outcome(enum.Enum):
    """How a run ended."""

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
    """The record that leaves with every answer. It has public facts only.

    Parameters
    ----------
    question : str
        The question in public words.
    method : str
        The mechanism that answered it.
    promise : Guarantee
        The most that the run could have cost.
    bill : Loss
        What it did cost.
    adjacency : Adjacency, default Adjacency.ADD_REMOVE
        Which two tables count as adjacent.
    unit : Unit, default one row
        What one person is.
    outcome : Outcome, default Outcome.FIXED
        How the run ended.
    target : Target, optional
        The accuracy asked for.
    achieved : float, optional
        The accuracy that holds at the target's confidence.
    rung : int, optional
        The rung at which the climb stopped, from 0.
    rungs : int, optional
        The number of rungs.
    terms : mapping, default empty
        The public conditions, such as clip bounds, categories and grid.
    breakdown : mapping of str to Fraction, default empty
        The parts of the bill.
    citations : tuple of str, default empty
        The theorems used.
    simulation : bool, default False
        Whether the noise came from a seed, so that nothing is private.
    ledger_entry : str, optional
        The id under which a ledger keeps the receipt.
    paid_before : Loss, optional
        What earlier runs that the answer builds on were billed, e.g. those of a path that it refines. The answer
        reveals what all of them reveal, so ``in_all`` is what it means for a person.
    account_note : str, optional
        What the account did with the bill, if it counts another adjacency than the run.
    achieved_measure : Measure, optional
        What ``achieved`` measures, where no target states it.

    Examples
    --------
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
    account_note: str | None = None
    achieved_measure: Measure | None = None

    def __post_init__(self) -> None:
        # A bill above its promise is a bug of the mechanism; it must not leave as if it were a fact.
        if self.bill.definition == self.promise.definition and not self.bill.within(self.promise):
            raise InvalidRequest("Expected a bill within its promise", do="Raise the cap of the run")
        object.__setattr__(self, "terms", _to_plain(self.terms))

    @property
    def meaning(self) -> str:
        """One sentence about what this means for a person in the data."""
        # Before any number: a seeded answer has no privacy, whatever its bill states.
        if self.simulation:
            return "SIMULATION, NOT PRIVATE: the noise came from a seed. Do not publish this answer."
        # In all, not this run alone: an attacker sees the earlier answers too.
        return explain_loss(self.in_all, unit=str(self.unit))

    @property
    def in_all(self) -> Loss:
        """The loss of everything that the answer rests on: what this run paid, and what was paid before."""
        return add_losses(self.bill, self.paid_before)

    @property
    def epsilon(self) -> float:
        """The epsilon paid, where the bill has one; NaN where it has none (zCDP, GDP, Renyi)."""
        return float(self.bill.amounts().get("epsilon", "nan"))

    @property
    def achieved_label(self) -> str:
        """What ``achieved`` is, in the measure that was asked for; "accuracy" for errors of statistics."""
        measure = self.achieved_measure if self.target is None else self.target.measure
        if measure is None or measure in _ERRORS:
            return "accuracy"
        return f"{measure.value}, {'at most' if measure.is_loss else 'at least'}"

    def entered(self, ledger_entry: str) -> Receipt:
        """Return this receipt with the id under which a ledger keeps it.

        Parameters
        ----------
        ledger_entry : str
            The id of the entry.
        """
        return replace(self, ledger_entry=ledger_entry)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary of JSON values without loss."""
        plain = {"format": _FORMAT} | {each.name: getattr(self, each.name) for each in fields(self)}
        if self.account_note is None:
            del plain["account_note"]  # as in receipts of earlier versions
        measure = plain.pop("achieved_measure")
        named = {} if measure is None else {"achieved_measure": measure.value}
        return (
            plain
            | named
            | {
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
                "breakdown": {name: str(amount) for name, amount in self.breakdown.items()},
                "citations": list(self.citations),
                "paid_before": None if self.paid_before is None else self.paid_before.to_json(),
            }
        )

    def to_json(self) -> str:
        """Return the dictionary as canonical JSON text."""
        # Canonical: equal receipts are equal texts. NaN is refused because it is not JSON.
        return json.dumps(self.to_dict(), sort_keys=True, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Receipt:
        """Read the receipt that ``to_dict`` wrote.

        Parameters
        ----------
        data : mapping
            The dictionary.
        """
        # An unknown format may give a familiar key another meaning.
        if data.get("format") != _FORMAT:
            raise InvalidRequest(f"Expected a receipt of format {_FORMAT}", do="Read it with the version that wrote it")
        unit, before, measure = data["unit"], data.get("paid_before"), data.get("achieved_measure")
        later = ("paid_before", "account_note", "achieved_measure")  # not in receipts of earlier versions
        plain = {each.name: data[each.name] for each in fields(cls) if each.name not in later}
        read = {
            "promise": Guarantee.from_json(data["promise"]),
            "bill": Loss.from_json(data["bill"]),
            "adjacency": Adjacency(data["adjacency"]),
            "unit": Unit(
                unit["column"], unit["time_column"], None if unit["window"] is None else Window(unit["window"])
            ),
            "outcome": Outcome(data["outcome"]),
            "target": None if data["target"] is None else Target.from_json(data["target"]),
            # Rationals were written as "p/q", so a receipt that is read back equals the one that was written.
            "breakdown": {name: Fraction(text) for name, text in data["breakdown"].items()},
            "citations": tuple(data["citations"]),
            "paid_before": None if before is None else Loss.from_json(before),
            "account_note": data.get("account_note"),
            "achieved_measure": None if measure is None else Measure(measure),
        }
        return cls(**(plain | read))

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        """Read the receipt that ``to_json`` wrote.

        Parameters
        ----------
        text : str
            The JSON text.
        """
        return cls.from_dict(json.loads(text))

    def rows(self) -> list[tuple[str, str]]:
        """Return label and text of each line, in reading order."""
        lines = [("question", self.question), ("method", self.method)]
        lines.append(("target", "none: epsilon was given" if self.target is None else str(self.target)))
        lines.append(("outcome", self.outcome.value))
        if self.achieved is not None:
            lines.append((self.achieved_label, f"{self.achieved:.6g}"))
        if self.paid_before is None:
            lines += [("paid", str(self.bill)), ("at most", str(self.promise))]
        else:
            # Earlier runs are settled, so their bills count; only this run counts at its worst case.
            most = add_losses(Loss.worst_case(self.promise), self.paid_before)
            lines += [
                ("paid", f"{self.bill} now, at most {self.promise}"),
                ("paid before", f"{self.paid_before} for what this answer rests on"),
                ("in all", f"{self.in_all}, at most {most}"),
            ]
        if self.breakdown:
            parts = (f"{name} {decimal_text(amount)}" for name, amount in self.breakdown.items())
            lines.append(("of which", ", ".join(parts)))
        if self.rung is not None and self.rungs is not None:
            lines.append(("rung", f"{self.rung + 1} of {self.rungs}"))
        # Readers compare counts: under add-remove even the number of units is protected.
        size = "public" if self.adjacency.public_size else "private"
        lines.append(("neighbours", f"{self.adjacency.value}, {self.unit}, number of units {size}"))
        if self.account_note is not None:
            lines.append(("account", self.account_note))
        for name, value in self.terms.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            if not isinstance(value, str) and len(text) > _LONGEST:
                text = f"{text[:_LONGEST]} ... (all of it in .terms)"  # lists for programs, such as all planned events
            lines.append((name, text))
        if self.citations:
            lines.append(("theorems", "; ".join(self.citations)))
        lines.append(("ledger", self.ledger_entry or "none: this answer is recorded nowhere"))
        lines.append(("meaning", self.meaning))
        return lines

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


def add_losses(first: Loss, second: Loss | None) -> Loss:
    """Return two losses, if there are two, as one; a pure one is an (epsilon, delta) one of delta 0 (DR14, Theorem 3.16).

    >>> from expost.core import ApproxLoss, PureLoss
    >>> str(add_losses(PureLoss(0.5), ApproxLoss(0.25, 1e-6)))
    'epsilon 0.75, delta 1e-06'
    """
    if second is None:
        return first
    # Pure is (epsilon, 0); no other pair of definitions has such an exact common form.
    if {first.definition, second.definition} == {"pure", "approx"}:
        first, second = (
            ApproxLoss(each.amounts()["epsilon"], each.amounts().get("delta", Fraction(0))) for each in (first, second)
        )
    return first + second


def _to_plain(value: Any) -> Any:
    """Return JSON values only, so that a receipt equals what is read back."""
    if isinstance(value, Mapping):
        return dict(zip(map(str, value), map(_to_plain, value.values()), strict=True))
    if isinstance(value, list | tuple):
        return list(map(_to_plain, value))
    if isinstance(value, Fraction):
        return str(value)
    # Anything else is refused, not converted: an array on a receipt would be data.
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise InvalidRequest("Expected plain public terms on a receipt", got=type(value).__name__, do="Pass JSON values")


@dataclass(frozen=True, slots=True)
class Step:
    """One rung of a climb: level, value, interval.

    Showing the rungs below the last is free: each is a randomisation of the last (LNRWW17, Theorem 2.7).
    """

    epsilon: Fraction
    value: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """The length of the interval."""
        return self.high - self.low


@dataclass(frozen=True)
class Release(Arithmetic, Generic[T]):
    """A value with its interval and its receipt. A release of one number can be computed with (``Estimate``).

    Parameters
    ----------
    value : object
        The private answer.
    receipt : Receipt
        What was run and what it cost.
    interval : (low, high), optional
        The interval that contains the exact answer at the target's confidence.
    climb : tuple of Step, default empty
        The rungs of the climb, most private first.
    confidence : Fraction, optional
        The probability with which the interval, or all intervals of groups at once, hold.

    Examples
    --------
    >>> from expost.core import PureGuarantee, PureLoss
    >>> receipt = Receipt(question="count", method="discrete Laplace", promise=PureGuarantee(1), bill=PureLoss(1))
    >>> Release(41, receipt, interval=(38, 44))
    Release(41, in [38, 44], epsilon 1)
    """

    value: T
    receipt: Receipt
    interval: tuple[Any, Any] | None = None
    climb: tuple[Step, ...] = field(default=(), kw_only=True)
    confidence: Fraction | None = field(default=None, kw_only=True)

    def to_estimate(self) -> Estimate:
        """Return the number with its interval, to compute with. That is free: it is post-processing.

        Raises
        ------
        WrongArguments
            If the release is not of one number with an interval.
        """
        return self._make_estimate(self.value, self.interval, self.receipt.question)

    def _make_estimate(self, value: Any, interval: tuple[Any, Any] | None, formula: str) -> Estimate:
        """Return one of the release's numbers as an estimate."""
        target = self.receipt.target
        confidence = self.confidence if self.confidence is not None or target is None else target.confidence
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise WrongArguments("Expected a release of one number", do='Take a group: release["Rome"]')
        if interval is None or confidence is None:
            raise WrongArguments("Expected a release with an interval", do="Compute with release.value")
        ends = float(interval[0]), float(interval[1])
        return Estimate(float(value), ends, ((self.receipt, 1 - confidence),), formula)

    def __float__(self) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise WrongArguments("Expected a release of one number", do="Read release.value")
        return float(self.value)

    def table_cells(self) -> tuple[list[str], list[list[Any]]]:
        """Return the names and the rows of the release as a table."""
        ends = (None, None) if self.interval is None else self.interval
        value: Any = self.value
        cells = {each.name: getattr(value, each.name) for each in fields(value)} if is_dataclass(value) else {}
        cells = {name.replace("_", " "): cell for name, cell in cells.items()} or {"value": value}
        return [*cells, "low", "high"], [[*cells.values(), *ends]]

    def report(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return a page about the answer: value, picture, what it means for a person, and the receipt.

        The page has no scripts and needs no other file. The picture needs the extra ``plots``.

        Parameters
        ----------
        path : str or path, optional
            The file to write: HTML, or Markdown if the name ends with ``.md``. Default: HTML is returned only.

        Returns
        -------
        str
            The page.
        """
        return report_release(self, path)

    def entered(self, ledger_entry: str) -> Release[T]:
        """Return this release with the id under which a ledger keeps its receipt.

        Parameters
        ----------
        ledger_entry : str
            The id of the entry.
        """
        return replace(self, receipt=self.receipt.entered(ledger_entry))

    def plot(self, path: str | None = None) -> Any:
        """Draw the climb (rung, interval, target).

        Parameters
        ----------
        path : str, optional
            A PNG or SVG file to write.
        """
        return draw_picture("climb", self, path=path)

    def __repr__(self) -> str:
        between = "" if self.interval is None else f", in [{self.interval[0]}, {self.interval[1]}]"
        warning = ", SIMULATION" if self.receipt.simulation else ""
        return f"{type(self).__name__}({self.value!r}{between}, {self.receipt.bill}{warning})"

    def _repr_html_(self) -> str:
        columns, rows = self.table_cells()
        shown = "" if len(rows) < 2 else html_table(columns, rows[:_ROWS_SHOWN])
        more = (
            f"<p>{len(rows) - _ROWS_SHOWN} more rows; <code>to_pandas()</code> has all.</p>"
            if len(rows) > _ROWS_SHOWN
            else ""
        )
        return f"<p><b>{html.escape(repr(self))}</b></p>{shown}{more}{self.receipt._repr_html_()}"


def draw_picture(kind: str, subject: Any, **options: Any) -> Any:
    """Draw ``subject`` with the artist that the entry points ``expost.pictures`` have for this kind.

    >>> draw_picture("no such picture", None)
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected a known kind of picture, got 'no such picture'. Install a package ...
    """
    # Through entry points, because core is the lowest layer and may not import the plots.
    for point in entry_points(group=_PICTURES, name=kind):
        try:
            artist = point.load()
        except ModuleNotFoundError as error:
            # A missing module of our own is a bug, not a missing extra.
            if (error.name or "").startswith("expost"):
                raise
            raise MissingExtra("plots", package=error.name or "matplotlib") from None
        return artist(subject, **options)
    raise InvalidRequest(
        "Expected a known kind of picture", got=kind, do=f"Install a package that offers it in the group {_PICTURES}"
    )
