"""A wrong argument gets a sentence with a suggestion; a bug inside the function stays a bug."""

import inspect
import pickle

import pytest

from expost.core import InvalidRequest, WrongArguments, explain_arguments


@explain_arguments
def mean(column: str, *, within: float | None = None, epsilon: float | None = None) -> str:
    """Return the column."""
    if column == "broken":
        raise TypeError("a bug inside")
    return column


class Estimator:
    @explain_arguments
    def __init__(self, *, score: float = 1.0) -> None:
        self.score = score


def test_a_misspelt_argument_gets_a_suggestion() -> None:
    with pytest.raises(WrongArguments) as caught:
        mean("age", withinx=3)

    assert str(caught.value) == "mean() got an unexpected argument 'withinx'. Did you mean 'within'?"
    assert isinstance(caught.value, InvalidRequest | TypeError)
    assert caught.value.cost == "nothing spent, data untouched"


def test_an_argument_unlike_all_others_lists_them() -> None:
    with pytest.raises(WrongArguments, match=r"unexpected argument 'zzz'\. Its arguments are: column, within, epsilon"):
        mean("age", zzz=3)


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(WrongArguments, match="missing a required argument: 'column'"):
        mean()


def test_too_many_positional_arguments_are_refused() -> None:
    with pytest.raises(WrongArguments, match="too many positional arguments"):
        mean("age", 3)


def test_a_constructor_is_named_after_its_class() -> None:
    with pytest.raises(
        WrongArguments, match=r"Estimator\(\) got an unexpected argument 'scorre'. Did you mean 'score'"
    ):
        Estimator(scorre=0.5)


def test_a_type_error_inside_the_function_passes_through() -> None:
    with pytest.raises(TypeError, match="a bug inside") as caught:
        mean("broken")

    assert not isinstance(caught.value, WrongArguments)


def test_completion_sees_the_signature() -> None:
    assert list(inspect.signature(mean).parameters) == ["column", "within", "epsilon"]
    assert mean.__doc__ == "Return the column."


def test_the_error_survives_pickling() -> None:
    with pytest.raises(WrongArguments) as caught:
        mean("age", withinx=3)

    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
