"""Docstrings that take the descriptions of parameters from one place."""

from expost.core import share_parameters

SHARED = {"within": "float, optional\nThe error allowed.", "low, high": "float\nThe ends.", "unused": "int\nNothing."}


def test_a_parameter_of_its_own_wins_and_the_order_is_that_of_the_signature() -> None:
    @share_parameters(SHARED)
    def mean(low: float, high: float, *, within: float, column: str) -> None:
        """Average.

        Parameters
        ----------
        column : str
            The column.
        within : float
            In rows.

        Returns
        -------
        None
        """

    assert mean.__doc__ == (
        "Average.\n\nParameters\n----------\nlow, high : float\n    The ends.\nwithin : float\n    In rows.\n"
        "column : str\n    The column.\n\nReturns\n-------\nNone"
    )


def test_a_documented_class_is_a_source_and_raises_is_added_before_the_examples() -> None:
    @share_parameters(SHARED)
    class Mean:
        """A mean."""

        def __init__(self, *, within: float) -> None: ...

    @share_parameters(Mean, raises="ValueError\n    If it fails.")
    def mean(*, within: float) -> None:
        """Average.

        Examples
        --------
        >>> 1
        1
        """

    assert Mean.__doc__ is not None and "within : float, optional" in Mean.__doc__
    assert mean.__doc__ is not None
    assert mean.__doc__.index("within :") < mean.__doc__.index("ValueError") < mean.__doc__.index(">>> 1")


def test_a_docstring_without_parameters_stays_as_it_is() -> None:
    @share_parameters(SHARED)
    def nothing() -> None:
        """Do nothing."""

    assert nothing.__doc__ == "Do nothing."
