"""The most that one question may cost where its asker named no cap."""

from __future__ import annotations

from fractions import Fraction

from expost.core.loss import PureLoss
from expost.core.rational import rational

__all__ = ["DEFAULT_QUESTION_SHARE", "QuestionCap", "read_cap"]

DEFAULT_QUESTION_SHARE = Fraction(1, 10)
"""The part of an account's budget that one question may cost, unless the owner or the asker states another."""


_CAP_WITHOUT_ACCOUNT = Fraction(1)


def read_cap(max_epsilon: object) -> Fraction:
    """Return the cap that a caller named, or 1 where there is no account to take one from.

    >>> read_cap(0.5), read_cap(None)
    (Fraction(1, 2), Fraction(1, 1))
    """
    return _CAP_WITHOUT_ACCOUNT if max_epsilon is None else rational(max_epsilon, "max_epsilon")


class QuestionCap(Fraction):
    """An epsilon that an account sets as the cap of one question. It is a number that knows where it is from.

    Parameters
    ----------
    amount : Fraction
        The epsilon.
    source : str
        Where it is from, in public words for receipts and errors.

    Examples
    --------
    >>> cap = QuestionCap(Fraction(1, 10), "a tenth of the budget of 'dataset:flights'")
    >>> cap == Fraction(1, 10), print(cap.note)
    epsilon 0.1, a tenth of the budget of 'dataset:flights'; max_epsilon= raises it
    (True, None)
    """

    source: str

    def __new__(cls, amount: Fraction, source: str) -> QuestionCap:
        """Build the number; a fraction is made before its constructor runs."""
        made = super().__new__(cls, amount)
        made.source = source
        return made

    @property
    def note(self) -> str:
        """Return the line for the receipt."""
        return f"{PureLoss(self).text(down=True)}, {self.source}; max_epsilon= raises it"

    def __reduce__(self) -> tuple[type[QuestionCap], tuple[Fraction, str]]:
        return QuestionCap, (Fraction(self), self.source)
