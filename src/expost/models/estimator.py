"""What every estimator shares: reading tables and columns, paying for a fit, and the receipt."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial, wraps
from numbers import Real
from os import PathLike
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d
from threadpoolctl import ThreadpoolController

from expost.answer import answer
from expost.core import Adjacency, InvalidRequest, Plan, PlanContext, Query, Receipt, Release, TargetNotMet, Unit
from expost.core.argument import check_unmasked
from expost.core.captured_fit import FitCaptured
from expost.data import Dataset
from expost.data.canonical_cell import canonical_column, float_cells
from expost.data.row_source import column_names, plain_numbers, typed_column
from expost.data.table_schema import Schema
from expost.ledger import Protected
from expost.ledger.opening import open_ledger_for
from expost.models.fit_record import FitRecord, describe_columns
from expost.models.model_card import ModelCard, describe_model
from expost.models.plain_state import read_plain_state, write_plain_state
from expost.models.preparation.pipeline_leak import warn_of_leaks
from expost.noise import BitSource, SeededBits, system_bits

__all__ = [
    "FITTED_ROWS",
    "OBSERVED",
    "PREDICTED_ROWS",
    "WRONG_ARGUMENTS",
    "PlannedQuery",
    "PrivateEstimator",
    "ScoreParameter",
    "check_columns",
    "check_flag",
    "fill_missing",
    "is_interval",
    "limit_threads",
    "pay_for_query",
    "read_column_bounds",
    "read_feature_names",
    "read_observed_classes",
    "read_target_bounds",
    "remember_columns",
]

OBSERVED = "observed"
"""Passed by a caller for whom a fact about the table is public."""

FITTED_ROWS = {
    "X": "array, sparse matrix, data frame, Arrow table or Dataset\nThe features, one row per person.",
    "y": "array or str\nThe targets; with a ``Dataset``, the name of its target column.",
    "pay": "callable\nAnswers a query about the rows, charges for it and returns the release.",
    "dataset": "Dataset\nThe table.",
    "features": "sequence of str\nThe feature columns.",
    "target": "str\nThe target column.",
    "public_validation": "(features, targets), optional\n"
    "Public rows. The score is then tested on them, exactly and free of charge, and no private row is held out.",
}
"""Parameters of methods that fit, for ``share_parameters``."""
PREDICTED_ROWS = {
    "X": "array, sparse matrix, data frame or Arrow table\n"
    "The columns of the fit. Rows are read as in the fit: clipped to the bounds, missing values filled.",
    "y": "array\nThe true target of each row.",
    "sample_weight": "array, optional\nThe weight of each row.",
}
"""Parameters of methods that predict, for ``share_parameters``."""
WRONG_ARGUMENTS = "\nWrongArguments\n    An argument has a wrong name."

Ends = tuple[float, ...]

_TABLE_ACCOUNT = "dataset:table"
_TEXT = ("String", "Categorical", "Enum", "Object")  # polars's names
_LARGEST = 1e150  # squares of numbers within it are finite
_SHOWN = 5
_UNCOUNTED = FitRecord()  # the fits of this process without a ledger


@dataclass(frozen=True)
class PlannedQuery:
    """A query with the plan that was made to size a new account.

    The plan is kept if the accounts count in its currency; for others the query is planned again.
    """

    query: Query
    first: Plan

    @property
    def question(self) -> str:
        return self.query.question

    def plan(self, dataset: Any, context: PlanContext) -> Plan:
        if not context.definitions or self.first.worst_case.definition in context.definitions:
            return self.first
        return self.query.plan(dataset, context)


class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of all estimators. Parameters are kept as given and checked in ``fit``, before the data is touched.

    scikit-learn's messages about a bad table often repeat its values or its number of rows. Here they are replaced by
    messages without them. Parameters and attributes that all estimators have are described here.

    Parameters
    ----------
    max_epsilon : float, optional
        The most that the accuracy asked for may cost. Default: the question cap of the session that pays (a tenth of the
        budget unless its owner set another), and 1 without a session.
    failure_probability : float, default 0.1
        How often the accuracy may be missed although it is reported as reached.
    ledger : str, optional
        The path or URL of the ledger. Default: one in memory, for this fit.
    account : str, optional
        The account that pays. Default: that of the dataset, or ``"dataset:table"``.
    simulation_seed : int, optional
        Draw all noise from this seed. The receipt then states that the model is not private.

    Attributes
    ----------
    release_ : Release
        The released model with its receipt.
    receipt_ : Receipt
        What was promised, paid and reached.
    n_features_in_ : int
        The number of columns of the fit.
    feature_names_in_ : ndarray of str
        The names of the columns, if the table named them.
    """

    ledger: Any
    account: Any
    simulation_seed: Any
    release_: Release[Any]

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        for name in ("fit", "fit_with"):
            if name in cls.__dict__:
                setattr(cls, name, _keep_fit_on_failure(cls.__dict__[name]))

    def _store_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Keep the arguments of the constructor, each under its own name."""
        self.__dict__ |= {name: value for name, value in arguments.items() if name not in ("self", "__class__")}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor. ``score`` is the accuracy asked for, not the method of that name.

        Parameters
        ----------
        deep : bool, default True
            Ignored; the models contain no other estimators.
        """
        return {name: self.__dict__[name] for name in self._get_param_names()}

    def __getstate__(self) -> dict[str, Any]:
        """Return what is stored: arguments and fitted attributes as plain values that skops can load."""
        state: dict[str, Any] = super().__getstate__()
        return {name: write_plain_state(each) for name, each in state.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({name: read_plain_state(each) for name, each in state.items()})

    # Reading tables ---------------------------------------------------------------------------------------------------

    def _read_matrix(self, X: Any, *, fitting: bool = True) -> Any:
        """Return a table of numbers. Shape and column names are checked as scikit-learn does; values are private."""
        if isinstance(X, Dataset):
            raise InvalidRequest(
                "Expected rows that the caller may see, such as a data frame: a Dataset is private",
                do="Fit with it, and predict for a table",
            )
        if isinstance(X, str | bytes | PathLike):
            raise InvalidRequest(
                "Expected a table of rows and columns, got a path", do="Pass expost.Dataset(path) and the target's name"
            )
        check_unmasked(X)
        names = column_names(X)
        twice = [] if names is None else [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise InvalidRequest("Expected columns of different names, got some twice", got=twice[0], do="Rename one")
        if not fitting and names is not None:  # before the cells: another table may have columns of another kind
            check_columns(self, names, len(names))
        table = _check_numeric(_arrow_to_matrix(X))
        try:
            matrix = check_array(
                table, accept_sparse="csr", dtype="numeric", ensure_all_finite=False, estimator=self, input_name="X"
            )
        except ValueError as error:
            reason = str(error)
        else:
            if matrix.dtype.kind in "biuf":
                (remember_columns if fitting else check_columns)(self, names, matrix.shape[1])
                return matrix
            reason = ""
        raise _table_error(reason)

    @property
    def _fitted_names(self) -> tuple[str, ...] | None:
        """Return the columns of the fit, if the table or dataset named them."""
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else tuple(names)

    def _read_vector(self, y: Any) -> Any:
        """Return one target per row, its shape checked: a canonical Arrow column if it has a type, else an array."""
        if y is None:
            name = type(self).__name__
            raise InvalidRequest(
                f"Expected one target per row: {name} requires y to be passed, but the target y is None", do="Pass y"
            )
        check_unmasked(y)
        if isinstance(y, list | tuple) and not self._labels_are_public:
            # Each label by itself: in one array of one type a single text would make texts of all numbers.
            alone = (label[0] if isinstance(label, list | tuple) and len(label) == 1 else label for label in y)
            y = np.fromiter(alone, dtype=object, count=len(y))
        try:
            typed = typed_column(y)
            if typed is not None:
                return typed
            vector: NDArray[Any] = column_or_1d(y, warn=True)
        except Exception:  # another library's message may repeat a cell
            vector = np.empty(0, complex)
        if vector.dtype.kind in "cV":
            raise InvalidRequest("Expected y to be one column of numbers or labels", do="Pass one target per row")
        return vector

    def _read_true_targets(self, y: Any, predicted: NDArray[Any]) -> Any:
        """Return the targets that predictions are compared with, one for each."""
        told = self._read_vector(y)
        if len(told) != len(predicted):
            raise InvalidRequest("Expected one target for each row", do="Pass a vector as long as the table")
        return told

    @property
    def _labels_are_public(self) -> bool:
        """Return whether the caller declared that it is public which labels occur."""
        classes = getattr(self, "classes", None)
        return isinstance(classes, str) and classes == OBSERVED

    # Paying -----------------------------------------------------------------------------------------------------------

    def _payment_terms(self, account: str) -> dict[str, Any]:
        """Return the ledger, the randomness and the run that the arguments name, for ``pay_for_query``."""
        columns = self._fitted_names or getattr(self, "n_features_in_", None)
        terms = {"ledger": self.ledger, "account": account, "simulation_seed": self.simulation_seed, "columns": columns}
        return terms | {
            "adjacency": self._bill_adjacency,
            "unit": self._bill_unit,
            "run": self._answer_query,
            "limit": limit_threads,
        }

    @property
    def _bill_adjacency(self) -> Adjacency:
        """Return the adjacency that the bill is about, as on the receipt."""
        raise NotImplementedError

    @property
    def _bill_unit(self) -> Unit:
        """Return the unit that the bill is about, as on the receipt."""
        return Unit.row()

    _answer_query: Callable[..., Release[Any]] = staticmethod(answer)  # estimators that can resume a fit override it

    def _account_of(self, X: Any) -> str:
        """Return the account that pays for a fit to this table."""
        if isinstance(X, Dataset) and X.window is not None:
            # Its own account would miss what is spent on the whole table, and the unit of a model is the row.
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

    # What was released ------------------------------------------------------------------------------------------------

    @property
    def receipt_(self) -> Receipt:
        """Return the receipt of the fit: what was promised, paid and reached."""
        check_is_fitted(self, "release_")
        return self.release_.receipt

    def card(self) -> ModelCard:
        """Return a model card: data description, what was promised, paid and reached, coefficients and limits of use."""
        check_is_fitted(self, "release_")
        return describe_model(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True  # refusing a missing value would reveal that it is there
        tags.non_deterministic = self.simulation_seed is None
        tags.target_tags.required = True
        return tags


def pay_for_query(
    query: Any,
    data: Any,
    *,
    ledger: Any,
    account: str,
    simulation_seed: Any,
    adjacency: Adjacency,
    unit: Unit | None = None,
    run: Callable[..., Release[Any]] = answer,
    limit: Callable[[], Any] = nullcontext,
    columns: Any = None,
) -> Release[Any]:
    """Charge a query to an account and let ``run`` answer it; a new account is as large as the query needs.

    ``unit`` is what the bill is about. ``limit`` is a context that keeps libraries from starting threads of their own.
    ``columns`` are those of the table, by which fits without a ledger are counted.
    """
    known = describe_columns(data) if columns is None else columns
    counted = ledger is not None or simulation_seed is not None
    bits: BitSource = system_bits() if simulation_seed is None else SeededBits(simulation_seed)
    plan = query.plan(data, PlanContext()) if hasattr(query, "plan") else query
    opened = open_ledger_for(ledger, account, promise=plan.worst_case.promise())
    try:
        protected = Protected(opened.root_of(account), adjacency, Unit.row() if unit is None else unit)
        terms: dict[str, Any] = {"ledger": opened, "accounts": (account,), "protected": protected}
        with limit():
            release = run(query, data, bits=bits, simulation=simulation_seed is not None, **terms)
    except TargetNotMet as missed:
        if not counted:
            _UNCOUNTED.note_fit(known, missed.receipt)
        raise
    finally:
        opened.close()
    if not counted:
        _UNCOUNTED.note_fit(known, release.receipt)
    return release


def _keep_fit_on_failure(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Return a fit that warns of leaking steps around it, and restores the attributes of the last one if it fails.

    A refused or interrupted fit would otherwise leave its classes and bounds next to the coefficients of the fit before,
    and predictions would be wrong without an error. A missed target is a fit: it was paid for.
    """

    @wraps(fit)
    def fit_or_restore(self: Any, *arguments: Any, **named: Any) -> Any:
        warn_of_leaks()
        before = dict(self.__dict__)
        try:
            return fit(self, *arguments, **named)
        except (TargetNotMet, FitCaptured):
            raise
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    return fit_or_restore


class ScoreParameter:
    """Lets ``Model(score=("r2", 0.6))`` and ``model.score(X, y)`` share one name.

    The argument is kept in the instance's dictionary, where ``get_params`` finds it. Reading the attribute gives the
    method, as scikit-learn expects of every estimator.
    """

    def __init__(self, method: Callable[..., float]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, instance: Any, owner: type) -> Any:
        return self._method if instance is None else partial(self._method, instance)

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__["score"] = value


def remember_columns(model: Any, names: Sequence[str] | None, width: int) -> None:
    """Keep the public shape of a fitted table as scikit-learn does: ``n_features_in_`` and ``feature_names_in_``."""
    model.n_features_in_ = width
    if names is not None:
        model.feature_names_in_ = np.asarray(names, dtype=object)
    elif hasattr(model, "feature_names_in_"):
        del model.feature_names_in_  # of an earlier fit


def check_columns(model: Any, names: Sequence[str] | None, width: int) -> None:
    """Refuse a table with other columns than those of the fit, or in another order.

    A table without names, such as a NumPy array, is checked for its width alone. Messages begin as scikit-learn's do.
    """
    fitted = getattr(model, "feature_names_in_", None)
    if fitted is not None and names is not None and list(fitted) != list(names):
        unseen, missing = sorted(set(names) - set(fitted)), sorted(set(fitted) - set(names))
        lines = ["The feature names should match those that were passed during fit."]
        for text, found in (("unseen at fit time", unseen), ("seen at fit time, yet now missing", missing)):
            if found:
                more = ["- ..."] if len(found) > _SHOWN else []
                lines += [f"Feature names {text}:", *(f"- {name}" for name in found[:_SHOWN]), *more]
        if len(lines) == 1:
            lines.append("Feature names must be in the same order as they were in fit.")
        raise InvalidRequest("\n".join([*lines, "Pass the columns of feature_names_in_, in their order"]))
    if width != model.n_features_in_:
        raise InvalidRequest(
            f"Expected the columns of the fit: X has {width} features, but {type(model).__name__} is expecting "
            f"{model.n_features_in_} features as input",
            do="Pass the same columns in the same order",
        )


def read_column_bounds(bounds: Any, width: int, names: tuple[str, ...] | None) -> tuple[Ends, Ends] | tuple[None, None]:
    """Return lower and upper ends per column, of one pair for all or bounds in order or by name; None if none were given.

    >>> read_column_bounds({"b": (0, 1), "a": (2, 3)}, 2, ("a", "b")), read_column_bounds((0, 1), 2, None)
    (((2.0, 0.0), (3.0, 1.0)), ((0.0, 0.0), (1.0, 1.0)))
    """
    if bounds is None:
        return None, None
    if isinstance(bounds, Mapping):
        if names is None or set(bounds) != set(names):
            raise InvalidRequest("Expected bounds for every column by name", do="Pass a table with column names")
        pairs = [bounds[name] for name in names]
    else:
        pairs = [bounds] * width if is_interval(bounds) else list(bounds) if isinstance(bounds, Iterable) else []
    if len(pairs) != width or not all(is_interval(pair) for pair in pairs):
        raise InvalidRequest("Expected one (low, high) for each column, low below high", do="Pass public bounds")
    return tuple(float(low) for low, _ in pairs), tuple(float(high) for _, high in pairs)


def is_interval(pair: Any) -> bool:
    """Return whether these are two finite numbers, the lower one first.

    >>> is_interval((0, 1)), is_interval((1, 0)), is_interval("01")
    (True, False, False)
    """
    if not isinstance(pair, Iterable):
        return False
    ends = list(pair)
    if len(ends) != 2 or not all(isinstance(end, Real) and abs(float(end)) <= _LARGEST for end in ends):
        return False
    # Far enough apart to divide by the width, which two different floats may not be.
    return bool(ends[0] < ends[1]) and math.isfinite(2 / (float(ends[1]) - float(ends[0])))


def read_target_bounds(bounds: Any, *, do: str = "Pass public numbers that contain the targets") -> tuple[float, float]:
    """Return the bounds of the target: a pair (low, high), or one number b for (-b, b).

    >>> read_target_bounds(2), read_target_bounds((0, 10))
    ((-2.0, 2.0), (0.0, 10.0))
    """
    if isinstance(bounds, int | float | np.integer | np.floating) and not isinstance(bounds, bool):
        bounds = (-float(bounds), float(bounds))
    if not is_interval(bounds):
        raise InvalidRequest("Expected target_bounds (low, high), low below high, or one positive number", do=do)
    low, high = bounds
    return float(low), float(high)


def read_feature_names(features: Any) -> tuple[str, ...]:
    """Return the columns of a dataset that a caller chose as features.

    >>> read_feature_names(["age", "hours"])
    ('age', 'hours')
    """
    if isinstance(features, str) or not features:
        raise InvalidRequest("Expected at least one feature", do='Pass a list of columns: features=["age"]')
    return tuple(features)


def read_observed_classes(labels: Any) -> NDArray[Any]:
    """Return the labels that occur, sorted. Call it only where it is public which labels occur.

    Labels that cannot be classes are refused in our own words, since a library's message may repeat values.

    >>> read_observed_classes(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    if isinstance(labels, pa.Array):
        labels = labels.to_numpy(zero_copy_only=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about casts of labels that are not numbers
            kind = type_of_target(labels)
    except ValueError:  # missing or infinite labels
        kind = "missing or infinite"
    if kind not in ("binary", "multiclass"):
        raise InvalidRequest(f"Expected classes. Unknown label type: {kind}", do="Pass classes=[...], the public ones")
    return np.unique(labels)


def fill_missing(matrix: Any, missing: Any) -> Any:
    """Replace missing values by public numbers: one for all columns, or one per column.

    >>> fill_missing(np.array([[1.0, np.nan]]), np.array([5.0, 6.0])).tolist()
    [[1.0, 6.0]]
    """
    stored = matrix.data if hasattr(matrix, "tocsr") else matrix
    if stored.dtype.kind != "f" or not np.isnan(stored).any():
        return matrix
    dense = matrix.toarray() if hasattr(matrix, "tocsr") else matrix
    return np.where(np.isnan(dense), missing, dense)


def _table_error(reason: str) -> InvalidRequest:
    """Return a library's complaint about a table without its values and its number of rows."""
    if "2D array" in reason or "with dim" in reason:
        return InvalidRequest(
            "Expected a table of rows and columns",
            do="Reshape your data: X.reshape(-1, 1) if it is one column, X.reshape(1, -1) if it is one row",
        )
    if "sample(s)" in reason:
        return InvalidRequest("Expected at least one row", do="Pass a table with rows")
    if "feature(s)" in reason:
        return InvalidRequest(
            "Expected at least one column, got 0 feature(s) (shape=(, 0)) while a minimum of 1 is required",
            do="Pass a table with columns",
        )
    if "Complex" in reason:
        return InvalidRequest(
            "Expected real numbers: Complex data not supported", do="Pass the real and imaginary parts as columns"
        )
    return InvalidRequest("Expected a table of numbers", do="Encode text columns as numbers first")


def _arrow_to_matrix(X: Any) -> Any:
    """Convert an Arrow table to a matrix of floats; return anything else unchanged."""
    if not (hasattr(X, "column_names") and hasattr(X, "to_pydict")):
        return X
    for name, kind in Schema.of(X.schema).kinds.items():
        if not kind.is_number:
            raise _not_numbers(name)
    # Floats whatever the cells: a null must not decide the type of the matrix.
    whole = [column.combine_chunks() if hasattr(column, "combine_chunks") else column for column in X.columns]
    return np.column_stack([float_cells(canonical_column(column)) for column in whole])


def _check_numeric(X: Any) -> Any:
    """Return a table whose columns have numeric types; the types are public.

    Columns of objects are refused whatever they hold, since their conversion would depend on single cells. A list has
    no types: its cells that are not numbers become missing.
    """
    if isinstance(X, list | tuple):
        try:
            return plain_numbers(np.asarray(X, dtype=object))
        except ValueError:  # rows that are tables of several shapes
            raise InvalidRequest(
                "Expected a table of rows and columns", do="Pass one list of numbers per row"
            ) from None
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


_thread_controller = cache(ThreadpoolController)  # on demand: it looks at all libraries that are loaded


def limit_threads() -> Any:
    """Run BLAS on one thread: on matrices of this size more threads only wait for each other."""
    return _thread_controller().limit(limits=1, user_api="blas")


def check_flag(value: Any, name: str) -> bool:
    """Return a flag; raise ``InvalidRequest`` for anything but True and False."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidRequest(f"Expected {name} to be True or False", got=value, do="Pass one of them")
    return bool(value)
