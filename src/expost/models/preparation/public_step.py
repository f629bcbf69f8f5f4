"""Run public steps on private rows, so that no row can make them fail."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.utils import _safe_indexing

from expost.core import InvalidRequest
from expost.data.untyped_table import is_frame

__all__ = ["apply_public_step", "fit_public_step"]


def fit_public_step(step: Any, rows: Any) -> None:
    """Fit a step whose fit depends on the number and the names of the columns only.

    Such a step is the same whatever row it is fitted to, so any part of the table that it accepts will do.

    Parameters
    ----------
    step : transformer
        A step that ``find_leaks`` does not name.
    rows : array or data frame
        The table.
    """
    with _silenced():
        for _, fitted in _try_in_halves(step.fit, rows, 0, _count_rows(rows)):
            if fitted is not None:
                return
    raise _refuses_all(step)


def apply_public_step(step: Any, rows: Any) -> Any:
    """Return what a fitted step makes of a table. A row that the step refuses becomes a row of missing values.

    An error would reveal that such a row exists, and scikit-learn's messages repeat its cells.

    Parameters
    ----------
    step : transformer
        A step that treats each row by itself.
    rows : array or data frame
        The table.
    """
    with _silenced():
        parts = list(_try_in_halves(step.transform, rows, 0, _count_rows(rows)))
    known = next((made for _, made in parts if made is not None), None)
    if known is None:
        raise _refuses_all(step)
    # Of one type and density, whether or not a row was refused.
    made = [(size, None if each is None else _as_dense(each)) for size, each in parts]
    kind = next(each.dtype for _, each in made if each is not None)
    width, missing = known.shape[1], np.nan if kind.kind == "f" else None
    whole = np.concatenate([np.full((size, width), missing, kind) if each is None else each for size, each in made])
    return type(known)(whole, columns=known.columns) if hasattr(known, "columns") else whole


def _try_in_halves(run: Callable[[Any], Any], rows: Any, start: int, stop: int) -> Iterator[tuple[int, Any]]:
    """Yield the number of rows and the result of parts of a table, in order; None for a single row that fails."""
    part = rows if (start, stop) == (0, _count_rows(rows)) else _safe_indexing(rows, slice(start, stop))
    try:
        made = run(part)
    except Exception:  # whatever the step raises, it may be about a row
        if stop - start <= 1:
            yield stop - start, None
            return
    else:
        yield stop - start, made
        return
    middle = (start + stop) // 2
    yield from _try_in_halves(run, rows, start, middle)
    yield from _try_in_halves(run, rows, middle, stop)


@contextmanager
def _silenced() -> Iterator[None]:
    """Let steps accept missing and infinite numbers, without warnings about them."""
    with config_context(assume_finite=True), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _as_dense(made: Any) -> Any:
    """Return a dense table of floats, or of objects if it has other cells than numbers."""
    dense = made.toarray() if hasattr(made, "tocsr") else made
    kinds = {getattr(each, "kind", "O") for each in dense.dtypes} if is_frame(dense) else {np.asarray(dense).dtype.kind}
    return np.asarray(dense, np.float64 if kinds <= set("biuf") else object)


def _count_rows(rows: Any) -> int:
    shape = getattr(rows, "shape", None)
    return int(shape[0]) if shape else len(rows)


def _refuses_all(step: Any) -> InvalidRequest:
    return InvalidRequest(
        "Expected public steps that accept the columns of the table",
        got=type(step).__name__,
        do="Try it on public rows",
    )
