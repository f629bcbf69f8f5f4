"""What every estimator shares: keeping its arguments, reading tables, paying, and the receipt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d
from threadpoolctl import ThreadpoolController

from expost.answer import answer
from expost.core import Adjacency, InvalidRequest, Receipt, Release, Request, Unit
from expost.core.mask import check_unmasked
from expost.data import Dataset
from expost.data.canonical import canonical_column
from expost.data.matrix import column_names, plain_numbers, typed_column
from expost.data.schema import Schema
from expost.data.values import float_cells
from expost.ledger import Protected
from expost.ledger.opening import ledger_with_account
from expost.models.columns import check_columns, remember_columns
from expost.models.observed import OBSERVED
from expost.noise import BitSource, SeededBits, system_bits

__all__ = ["PrivateEstimator", "one_thread"]

_TABLE_ACCOUNT = "dataset:table"
_NO_ARGUMENTS = ("self", "__class__")
_TEXT = ("String", "Categorical", "Enum", "Object")  # polars's names


class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of all estimators: parameters are kept as they were given and checked in ``fit``, before the data is touched.

    What scikit-learn says of a bad table often repeats its values or the number of its rows; here it is said again
    without them.
    """

    ledger: Any
    account: Any
    simulation_seed: Any
    release_: Release[Any]

    def _store(self, arguments: Mapping[str, Any]) -> None:
        """Keep what the constructor was given, each argument under its own name: scikit-learn's habit."""
        self.__dict__ |= {name: value for name, value in arguments.items() if name not in _NO_ARGUMENTS}

    # Reading tables -----------------------------------------------------------------------------------------------

    def _refuse(self, unsupported: Mapping[str, Any]) -> None:
        for name, value in unsupported.items():
            if value is not None:
                raise InvalidRequest(
                    f"Expected no {name}",
                    do="Leave it out: weights change how much one row can move the model, so they are not supported",
                )

    def _matrix(self, X: Any, *, fitting: bool = True) -> Any:
        """A table of numbers, its shape and column names checked as scikit-learn does; values are not: they are private."""
        if isinstance(X, Dataset):
            raise InvalidRequest(
                "Expected rows that the caller may see, such as a data frame: a Dataset is private",
                do="Fit with it, and predict for a table",
            )
        check_unmasked(X)
        names = column_names(X)
        if not fitting and names is not None:  # before the cells: another table may have columns of another kind
            check_columns(self, names, len(names))
        table = _numeric(from_arrow(X))
        try:
            matrix = check_array(
                table, accept_sparse="csr", dtype="numeric", ensure_all_finite=False, estimator=self, input_name="X"
            )
        except ValueError as error:
            said = str(error)
        else:
            if matrix.dtype.kind in "biuf":
                (remember_columns if fitting else check_columns)(self, names, matrix.shape[1])
                return matrix
            said = ""
        raise self._complaint(said)

    @property
    def _fitted_names(self) -> tuple[str, ...] | None:
        """The columns of the fit, of a table or a dataset that names them."""
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else tuple(names)

    def _complaint(self, said: str) -> InvalidRequest:
        """A library's words about a table, without its values and its number of rows."""
        if "2D array" in said or "with dim" in said:
            return InvalidRequest(
                "Expected a table of rows and columns",
                do="Reshape your data: X.reshape(-1, 1) if it is one column, X.reshape(1, -1) if it is one row",
            )
        if "sample(s)" in said:
            return InvalidRequest("Expected at least one row", do="Pass a table with rows")
        if "feature(s)" in said:
            return InvalidRequest(
                "Expected at least one column, got 0 feature(s) (shape=(, 0)) while a minimum of 1 is required",
                do="Pass a table with columns",
            )
        if "Complex" in said:
            return InvalidRequest(
                "Expected real numbers: Complex data not supported", do="Pass the real and imaginary parts as columns"
            )
        return InvalidRequest("Expected a table of numbers", do="Encode text columns as numbers first")

    def _vector(self, y: Any) -> Any:
        """Return one target for each row, its shape checked: a canonical Arrow column if it has a type, else an array."""
        if y is None:
            name = type(self).__name__
            raise InvalidRequest(
                f"Expected one target a row: {name} requires y to be passed, but the target y is None", do="Pass y"
            )
        check_unmasked(y)
        if isinstance(y, list | tuple) and not self._labels_are_public:
            y = _listed(y)
        try:
            typed = typed_column(y)
            if typed is not None:
                return typed
            vector: NDArray[Any] = column_or_1d(y, warn=True)
        except Exception:  # another library's words may repeat a cell
            vector = np.empty(0, complex)
        if vector.dtype.kind in "cV":
            raise InvalidRequest("Expected y to be one column of numbers or labels", do="Pass one target a row")
        return vector

    def _told(self, y: Any, predicted: NDArray[Any]) -> Any:
        """The targets that predictions are compared with, one for each."""
        told = self._vector(y)
        if len(told) != len(predicted):
            raise InvalidRequest("Expected one target for each row", do="Pass a vector as long as the table")
        return told

    @property
    def _labels_are_public(self) -> bool:
        """Whether the caller says that it is public which labels occur."""
        classes = getattr(self, "classes", None)
        return isinstance(classes, str) and classes == OBSERVED

    # Paying -------------------------------------------------------------------------------------------------------

    def _pay(self, request: Request, data: Any, account: str) -> Release[Any]:
        """The release of a request, from the ledger and with the randomness that the arguments name."""
        seeded = self.simulation_seed is not None
        bits: BitSource = SeededBits(self.simulation_seed) if seeded else system_bits()
        ledger = ledger_with_account(self.ledger, account, promise=request.worst_case.promise())
        try:
            # A model has no unit but the row: read_rows refuses datasets of another one.
            protected = Protected(ledger.root_of(account), self._neighbours, Unit.row())
            terms: dict[str, Any] = {"ledger": ledger, "accounts": (account,), "protected": protected}
            with one_thread():
                return self._answer(request, data, terms | {"bits": bits, "simulation": seeded})
        finally:
            ledger.close()

    @property
    def _neighbours(self) -> Adjacency:
        """The neighbours that the bill is about, as the receipt will say."""
        raise NotImplementedError

    def _answer(self, request: Any, data: Any, terms: dict[str, Any]) -> Release[Any]:
        return answer(request, data, **terms)

    def _account_of(self, X: Any) -> str:
        if isinstance(X, Dataset) and X.window is not None:
            # Its own account would miss what is spent on the whole table, and a model has no unit but the row.
            raise InvalidRequest(
                "Expected a whole dataset of single rows, not one time window",
                got=X.name,
                do=f'Ask about the window with Session.window("{X.window.label}"); fit models to whole tables',
            )
        if self.account is None:
            return f"dataset:{X.name}" if isinstance(X, Dataset) and X.name else _TABLE_ACCOUNT
        if not isinstance(self.account, str):
            raise InvalidRequest("Expected account to be a name", got=self.account, do='Pass "dataset:flights"')
        return self.account

    # What was released --------------------------------------------------------------------------------------------

    @property
    def receipt_(self) -> Receipt:
        """What was paid, what was promised, and what reached it."""
        check_is_fitted(self, "release_")
        return self.release_.receipt

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True  # a missing value is a value like any other: refusing it would tell of it
        tags.non_deterministic = self.simulation_seed is None
        tags.target_tags.required = True
        return tags


def chosen_columns(features: Any) -> tuple[str, ...]:
    """The columns of a dataset that a caller chose as features.

    >>> chosen_columns(["age", "hours"])
    ('age', 'hours')
    """
    if isinstance(features, str) or not features:
        raise InvalidRequest("Expected at least one feature", do='Pass a list of columns: features=["age"]')
    return tuple(features)


def filled(matrix: Any, missing: Any) -> Any:
    """Replace missing values by public numbers: one for all columns, or one per column.

    >>> filled(np.array([[1.0, np.nan]]), np.array([5.0, 6.0])).tolist()
    [[1.0, 6.0]]
    """
    stored = matrix.data if hasattr(matrix, "tocsr") else matrix
    if stored.dtype.kind != "f" or not np.isnan(stored).any():
        return matrix
    dense = matrix.toarray() if hasattr(matrix, "tocsr") else matrix
    return np.where(np.isnan(dense), missing, dense)


def from_arrow(X: Any) -> Any:
    """Arrow tables as matrices; everything else as it is."""
    if hasattr(X, "column_names") and hasattr(X, "to_pydict"):
        for name, kind in Schema.of(X.schema).kinds.items():
            if not kind.is_number:
                raise _not_numbers(name)
        return np.column_stack([_arrow_numbers(column) for column in X.columns])
    return X


def _arrow_numbers(column: Any) -> NDArray[np.float64]:
    """Return an Arrow column of numbers as floats, whatever its cells: a null must not decide the type of the matrix."""
    whole = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    return float_cells(canonical_column(whole))


def _listed(labels: Sequence[Any]) -> NDArray[Any]:
    """The labels of a list, each for itself: in one array of one type a single text would make texts of all numbers."""
    alone = (label[0] if isinstance(label, list | tuple) and len(label) == 1 else label for label in labels)
    return np.fromiter(alone, dtype=object, count=len(labels))


def _numeric(X: Any) -> Any:
    """A table of numbers by the types of its columns, which are public.

    Objects are refused whatever they are, since what can be made of them depends on single cells; in a list, which has no
    types, what is no number is a missing one.
    """
    if isinstance(X, list | tuple):
        try:
            return plain_numbers(np.asarray(X, dtype=object))
        except ValueError:  # rows that are tables of several shapes
            raise InvalidRequest("Expected a table of rows and columns", do="Pass one list of numbers a row") from None
    if isinstance(X, np.ndarray):
        kinds = [("the table", X.dtype)]
    else:
        frame = hasattr(X, "dtypes") and hasattr(X, "columns")
        kinds = list(zip(X.columns, X.dtypes, strict=True)) if frame else []
    for name, kind in kinds:
        if getattr(kind, "kind", "f") == "O" or str(kind) in _TEXT:
            raise _not_numbers(name)
    return X


def _not_numbers(name: object) -> InvalidRequest:
    return InvalidRequest(
        "Expected a table of numbers, not of objects or text", got=name, do="Convert it to numbers first"
    )


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread() -> Any:
    """BLAS on one thread: on matrices of this size more threads only wait for each other."""
    return _threads().limit(limits=1, user_api="blas")
