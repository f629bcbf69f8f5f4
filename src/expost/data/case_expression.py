"""Choices between values by conditions, built in Python: ``when(...).then(...).otherwise(...)``."""

from __future__ import annotations

from typing import Any

from expost.data.expression import Expression, Literal, Operation, as_expression

__all__ = ["Case", "Condition", "when"]


class Case(Operation):
    """A choice between values by conditions, as ``when(...).then(...)`` builds it; missing if no condition holds.

    Parameters
    ----------
    branches : tuple of Expression
        Conditions and values in turns.
    default : Expression
        The value where no condition is known to hold.

    Examples
    --------
    >>> from expost.data import col
    >>> when(col("age") < 18).then("child").otherwise("adult")
    CASE WHEN (age < 18) THEN 'child' ELSE 'adult' END
    """

    __slots__ = ("_branches",)

    def __init__(self, branches: tuple[Expression, ...], default: Expression) -> None:
        self._branches = branches
        super().__init__("CASE", (*branches, default))

    def when(self, condition: Any) -> Condition:
        """Add a condition for rows on which none of the earlier ones is known to hold.

        Parameters
        ----------
        condition : Expression
            The condition.
        """
        return Condition(condition, self._branches)

    def otherwise(self, value: Any) -> Operation:
        """Return the choice with a value for all other rows.

        Parameters
        ----------
        value : expression or constant
            The value, of the kind of the others.
        """
        return Operation("CASE", (*self._branches, as_expression(value)))


class Condition:
    """A condition that waits for its value.

    Parameters
    ----------
    condition : Expression
        The condition.
    earlier : tuple of Expression
        Conditions and values that come first.
    """

    __slots__ = ("_condition", "_earlier")

    def __init__(self, condition: Any, earlier: tuple[Expression, ...] = ()) -> None:
        self._condition, self._earlier = as_expression(condition), earlier

    def then(self, value: Any) -> Case:
        """Return the choice with the value of this condition.

        Parameters
        ----------
        value : expression or constant
            The value of rows for which the condition is known to hold.
        """
        return Case((*self._earlier, self._condition, as_expression(value)), Literal(None))


def when(condition: Expression) -> Condition:
    """Begin a choice between values: ``when(...).then(...).when(...).then(...).otherwise(...)``.

    Parameters
    ----------
    condition : Expression
        The first condition. The first one that is known to hold decides.

    Returns
    -------
    Condition
        Call ``then`` with the value of these rows.

    Examples
    --------
    >>> from expost.data import col
    >>> when(col("age") < 18).then(0).when(col("age") < 65).then(1).otherwise(2)
    CASE WHEN (age < 18) THEN 0 WHEN (age < 65) THEN 1 ELSE 2 END
    """
    return Condition(condition)
