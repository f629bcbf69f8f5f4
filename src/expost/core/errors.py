"""Everything that can go wrong, and what it cost.

ExpostError
├── InvalidRequest    makes no sense            nothing spent, data untouched
│   └── MissingExtra  needs an optional package nothing spent, data untouched
├── BudgetExceeded    worst case does not fit   nothing spent, data untouched
├── TargetNotMet      no rung accurate enough   spent: see .receipt
├── EngineFailed      data source broke         worst case charged
│   └── TableChanged  rows differ between readings  worst case charged
├── LedgerUnsound     record does not add up    everything refused
└── SealBroken        code asked for an exact   nothing leaves
                      value outside ``noise``

A message has one form, ``Expected ..., got .... Do ....``, and carries only what the caller typed:
never data, counts, bounds found in data, or another library's message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from expost.core.receipt import Receipt
    from expost.core.release import Release

__all__ = [
    "BudgetExceeded",
    "EngineFailed",
    "ExpostError",
    "InvalidRequest",
    "LedgerUnsound",
    "MissingExtra",
    "SealBroken",
    "TableChanged",
    "TargetNotMet",
]

_SHOWN = 80  # characters of a caller's value that an error repeats


def shown(value: object) -> str:
    """The caller's own value, short enough for a sentence.

    Only plain values are repeated; for anything else its type, because a container may hold rows.
    """
    if value is None or isinstance(value, str | int | float | bool) or type(value).__name__ in {"Fraction", "Decimal"}:
        text = repr(value) if isinstance(value, str) else _spelled(value)
    else:
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _spelled(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # Python spells no number of more than some thousand digits
        return "a number of thousands of digits"


class ExpostError(Exception):
    """Base of all errors raised on purpose; ``code`` is stable, ``cost`` says what was spent.

    >>> InvalidRequest("Expected epsilon > 0", got=-1.0, do="Pass a positive epsilon").cost
    'nothing spent, data untouched'
    """

    code: ClassVar[str] = "error"
    cost: ClassVar[str] = "unknown"
    exit_code: ClassVar[int] = 1


class _Sentence(ExpostError):
    """An error whose text is built from its three parts."""

    def __init__(self, expected: str, *, got: object = ..., do: str = "") -> None:
        parts = [expected if got is ... else f"{expected}, got {shown(got)}"]
        if do:
            parts.append(do)
        super().__init__(" ".join(part if part.endswith("?") else part.rstrip(".") + "." for part in parts))
        self._parts = (expected, got, do)

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions cross process borders (joblib, multiprocessing); keyword arguments need help.
        expected, got, do = self._parts
        return _rebuild, (type(self), expected, got is ..., None if got is ... else got, do)


def _rebuild(kind: type[_Sentence], expected: str, silent: bool, got: object, do: str) -> _Sentence:
    return kind(expected, got=... if silent else got, do=do)


class InvalidRequest(_Sentence, ValueError):
    """The request makes no sense; nothing was spent and no data was touched.

    >>> raise InvalidRequest("Expected epsilon > 0", got=-1.0, do="Pass a positive epsilon")
    Traceback (most recent call last):
    expost.core.errors.InvalidRequest: Expected epsilon > 0, got -1.0. Pass a positive epsilon.
    """

    code = "invalid_request"
    cost = "nothing spent, data untouched"
    exit_code = 2


class MissingExtra(InvalidRequest, ImportError):
    """An optional package is not installed; the message names the extra that brings it.

    >>> raise MissingExtra("plots", package="matplotlib")
    Traceback (most recent call last):
    expost.core.errors.MissingExtra: Expected the package matplotlib, which is not installed. Run: pip install "expost[plots]".
    """

    code = "missing_extra"

    def __init__(self, extra: str, *, package: str) -> None:
        super().__init__(
            f"Expected the package {package}, which is not installed",
            do=f'Run: pip install "expost[{extra}]"',
        )
        self.extra, self.package = extra, package

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_extra, (self.extra, self.package)


def _rebuild_extra(extra: str, package: str) -> MissingExtra:
    return MissingExtra(extra, package=package)


class BudgetExceeded(_Sentence):
    """The worst case of the request does not fit in what is left; nothing was spent.

    >>> BudgetExceeded("Expected a worst case of at most 1/10", got="1/2", do="Ask for less").code
    'budget_exceeded'
    """

    code = "budget_exceeded"
    cost = "nothing spent, data untouched"
    exit_code = 3


class TargetNotMet(ExpostError):
    """No rung under the cap was certified accurate enough; ``receipt`` says what was spent.

    ``release`` holds the most accurate *private* answer that was paid for, never the exact one.

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
        """What a run that ended without reaching its target raises, from its receipt."""
        receipt = release.receipt
        reason = (
            f"no rung that reaches it under the cap of {receipt.promise}. Raise max_epsilon, or ask for less accuracy"
        )
        if "stopped" in receipt.terms:
            reason = "stopped by hand before it was reached. What was done until then is paid for, and kept in .release"
        return cls(f"Expected {receipt.target}, got {reason}.", release)

    @property
    def receipt(self) -> Receipt:
        return self.release.receipt

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.release)


class EngineFailed(_Sentence):
    """The data source broke while it was read; the worst case stays charged.

    >>> EngineFailed("Expected a readable source").cost
    'worst case charged'
    """

    code = "engine_failed"
    cost = "worst case charged"
    exit_code = 5


class TableChanged(EngineFailed):
    """The table had other rows in a later reading than in the first; nothing leaves, and the worst case stays charged.

    >>> str(TableChanged())[:52]
    'Cannot finish because the rows of the table changed '
    """

    code = "table_changed"

    def __init__(self) -> None:
        super().__init__(
            "Cannot finish because the rows of the table changed between two readings",
            do="Read a table that does not change, such as a snapshot or a copy",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class LedgerUnsound(_Sentence):
    """The ledger cannot be read, written or trusted; everything is refused.

    >>> LedgerUnsound("Expected an unbroken chain of entries", do="Restore the ledger").cost
    'everything refused'
    """

    code = "ledger_unsound"
    cost = "everything refused"
    exit_code = 6


class SealBroken(ExpostError, TypeError):
    """Code tried to look at an exact answer; only the noise that protects it may.

    >>> issubclass(SealBroken, TypeError)
    True
    """

    code = "seal_broken"
    cost = "nothing leaves"
    exit_code = 7
