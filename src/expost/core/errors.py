"""Everything that can go wrong, and what it cost.

ExpostError
├── InvalidRequest    makes no sense            nothing spent, data untouched
│   ├── WrongArguments  not in the signature    nothing spent, data untouched
│   └── MissingExtra  needs an optional package nothing spent, data untouched
├── BudgetExceeded    worst case does not fit   nothing spent, data untouched
├── TargetNotMet      no rung accurate enough   spent: see .receipt
├── EngineFailed      data source broke         worst case charged
│   ├── TableChanged  rows differ between readings  worst case charged
│   └── ReleaseOvertaken  another session refined it first  nothing spent
├── LedgerUnsound     record does not add up    everything refused
├── LedgerBusy        others keep it locked     nothing changed: try again
└── SealBroken        an exact value was read   nothing leaves
                      outside ``noise``

A message about an argument reads ``Expected ..., got .... Do ....``, one about a state ``Cannot ... because .... Do ....``.
It repeats only what the caller typed: never data, counts, bounds found in data, or another library's message.
"""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from expost.core.release import Receipt, Release

__all__ = [
    "BudgetExceeded",
    "EngineFailed",
    "ExpostError",
    "InvalidRequest",
    "LedgerBusy",
    "LedgerUnsound",
    "MissingExtra",
    "ReleaseOvertaken",
    "SealBroken",
    "TableChanged",
    "TargetNotMet",
    "WrongArguments",
    "show_value",
]

_SHOWN = 80  # characters of a caller's value that an error repeats


def show_value(value: object) -> str:
    """Return the caller's own value, short enough for a sentence.

    Only plain values are repeated; for anything else its type, because a container may hold rows.
    """
    # Fraction and Decimal by name, so that the module that everything imports need not import them.
    kind = type(value).__name__
    if kind in {"Fraction", "QuestionCap"}:  # a numerator and a denominator of twenty digits each say nothing to people
        text = f"{float(value):.6g}"  # type: ignore[arg-type]
    elif value is None or isinstance(value, str | int | float | bool) or kind == "Decimal":
        try:
            text = repr(value) if isinstance(value, str) else str(value)
        except ValueError:  # Python does not print numbers of more than some thousand digits
            text = "a number of thousands of digits"
    else:
        # A list or an array may hold rows: repeating it would print private data.
        text = f"a value of type {type(value).__name__}"
    # A long text may be a whole file that was passed in place of its name.
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


class ExpostError(Exception):
    """The base of all errors raised on purpose. ``code`` is stable, ``cost`` states what was spent.

    Examples
    --------
    >>> InvalidRequest("Expected epsilon > 0", got=-1.0, do="Pass a positive epsilon").cost
    'nothing spent, data untouched'
    """

    code: ClassVar[str] = "error"
    cost: str = "unknown"
    exit_code: ClassVar[int] = 1


class _Sentence(ExpostError):
    """An error whose text is built from its three parts."""

    def __init__(self, expected: str, *, got: object = ..., do: str = "") -> None:
        parts = [expected if got is ... else f"{expected}, got {show_value(got)}"]
        if do:
            parts.append(do)
        super().__init__(" ".join(part if part.endswith(("?", "^")) else part.rstrip(".") + "." for part in parts))
        self._parts = (expected, got, do)

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions cross process borders (joblib, multiprocessing); keyword arguments need help.
        expected, got, do = self._parts
        return functools.partial(type(self), expected, got=got, do=do), ()


class InvalidRequest(_Sentence, ValueError):
    """The request makes no sense. Nothing was spent and no data was touched.

    Parameters
    ----------
    expected : str
        What was expected, or what cannot be done and why.
    got : object, optional
        The caller's own value.
    do : str, optional
        What to do instead.

    Examples
    --------
    >>> raise InvalidRequest("Expected epsilon > 0", got=-1.0, do="Pass a positive epsilon")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected epsilon > 0, got -1.0. Pass a positive epsilon.
    """

    code = "invalid_request"
    cost = "nothing spent, data untouched"
    exit_code = 2


class WrongArguments(InvalidRequest, TypeError):
    """A public function was called with arguments that its signature does not have; nothing was spent."""

    code = "wrong_arguments"


class MissingExtra(InvalidRequest, ImportError):
    """An optional package is not installed. The message names the extra that installs it."""

    code = "missing_extra"

    def __init__(self, extra: str, *, package: str) -> None:
        super().__init__(
            f"Expected the package {package}, which is not installed", do=f'Run: pip install "expost[{extra}]"'
        )
        self.extra, self.package = extra, package

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), self.extra, package=self.package), ()


class BudgetExceeded(_Sentence):
    """The worst case of the request does not fit in what is left. Nothing was spent.

    Examples
    --------
    >>> BudgetExceeded("Expected a worst case of at most 1/10", got="1/2", do="Ask for less").code
    'budget_exceeded'
    """

    code = "budget_exceeded"
    cost = "nothing spent, data untouched"
    exit_code = 3


class TargetNotMet(ExpostError):
    """No rung under the cap was certified accurate enough. ``receipt`` states what was spent.

    Parameters
    ----------
    message : str
        The target, and why it was not met.
    release : Release
        The most accurate *private* answer that was paid for, never the exact one.

    Examples
    --------
    >>> TargetNotMet.cost
    'spent: see .receipt'
    """

    code = "target_not_met"
    cost = "spent: see .receipt"
    exit_code = 4

    def __init__(self, message: str, release: Release[Any]) -> None:
        super().__init__(message)
        self.release = release

    @classmethod
    def of(cls, release: Release[Any]) -> TargetNotMet:
        """Return the error of a run that ended without reaching its target, from its receipt.

        Parameters
        ----------
        release : Release
            What the run released.
        """
        receipt = release.receipt
        paid = f"Paid {receipt.bill}"
        if receipt.target is None:  # such as rough bounds, of which no bin stood out
            found = f"Found no answer to {receipt.question!r} at {receipt.promise}: nothing stands out of the noise"
            return cls(f"{found}. {paid}. Raise epsilon, or pass bounds that you know.", release)
        reason = (
            f"no rung that reaches it under the cap of {receipt.promise}. {paid}. "
            "Raise max_epsilon, or ask for less accuracy"
        )
        if receipt.paid_before is not None:  # the cap of a refined answer includes what it has cost
            reason = (
                f"no rung that reaches it: of max_epsilon {receipt.promise} was left after earlier questions. {paid}. "
                "Raise max_epsilon to continue, or ask for less accuracy"
            )
        # Stopping by hand is not a failure of the ladder, and a higher cap would not help.
        if "not reserved" in receipt.terms:
            reason = f"{receipt.terms['not reserved']}. {paid}. Wait for the others, or ask for less accuracy"
        if "ended" in receipt.terms:
            ended = str(receipt.terms["ended"])
            name = receipt.achieved_label.partition(",")[0]
            reached = "" if receipt.achieved is None else f"; the model reaches {name} {receipt.achieved:.3g}"
            # More budget does not help where the score has stopped rising.
            do = (
                "Ask for less, or declare more columns"
                if ended.startswith("out of reach")
                else "Ask for less, or raise max_epsilon"
            )
            return cls(f"Missed {receipt.target}: {ended}{reached}. Paid {receipt.bill}. {do}.", release)
        if "stopped" in receipt.terms:
            reason = f"stopped by hand before it was reached. What was done until then is paid for ({receipt.bill}), and kept in .release"
        return cls(f"Expected {receipt.target}, got {reason}.", release)

    @property
    def receipt(self) -> Receipt:
        """The receipt of the run."""
        return self.release.receipt

    def __reduce__(self) -> tuple[Any, ...]:
        # The release survives a process border: it was paid for and must not be lost with the worker.
        return type(self), (str(self), self.release)


class EngineFailed(_Sentence):
    """The data source broke while it was read. The worst case stays charged.

    Examples
    --------
    >>> EngineFailed("Expected a readable source").cost
    'worst case charged'
    """

    code = "engine_failed"
    cost = "worst case charged"
    exit_code = 5


class TableChanged(EngineFailed):
    """The table had other rows in a later reading than in the first. Nothing leaves, and the worst case stays charged."""

    code = "table_changed"

    def __init__(self) -> None:
        super().__init__(
            "Cannot finish because the rows of the table changed between two readings",
            do="Read a table that does not change, such as a snapshot or a copy",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class ReleaseOvertaken(EngineFailed):
    """Another session refined the same answer first, again and again. What was drawn is discarded and not charged.

    Only what the stages of a hold have shown stays charged (``spent``, an epsilon).

    >>> ReleaseOvertaken().cost
    'nothing spent'
    """

    code = "release_overtaken"
    cost = "nothing spent"

    def __init__(self, spent: Fraction = Fraction(0)) -> None:
        super().__init__("Another session refined this answer at the same time", do="Ask again")
        self.spent = spent
        if spent:
            self.cost = f"epsilon {float(spent):.4g} spent for the stages that were reserved"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.spent,)


class LedgerUnsound(_Sentence):
    """The ledger cannot be read, written or trusted. Everything is refused.

    Examples
    --------
    >>> LedgerUnsound("Expected an unbroken chain of entries", do="Restore the ledger").cost
    'everything refused'
    """

    code = "ledger_unsound"
    cost = "everything refused"
    exit_code = 6


class LedgerBusy(_Sentence):
    """The ledger is sound, but others kept it locked for too long. Nothing was changed; the call may be repeated.

    Parameters
    ----------
    expected : str
        What was waited for.
    got : object, optional
        The caller's own value.
    do : str, optional
        What to do.

    Examples
    --------
    >>> LedgerBusy("Cannot use this ledger now because others kept it locked", do="Try again").cost
    'nothing changed; a hold taken before stays charged'
    """

    code = "ledger_busy"
    cost = "nothing changed; a hold taken before stays charged"
    exit_code = 8


class SealBroken(ExpostError, TypeError):
    """Code tried to read an exact answer. Only the noise that protects it may."""

    code = "seal_broken"
    cost = "nothing leaves"
    exit_code = 7
