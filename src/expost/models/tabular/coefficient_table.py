"""The coefficients of a model of a table by column and level, with intervals, as text, HTML or a data frame."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from expost.core import InvalidRequest
from expost.models.tabular.coefficient_estimates import list_contrasts
from expost.models.tabular.table_model import TableModel

__all__ = ["CoefficientTable"]

_COLUMNS = ("class", "column", "level", "meaning", "coefficient", "estimate", "low", "high", "noise", "sampling")
_NOT_ASKED = 'Intervals: none was released. Fit with report=["coefficients"] to pay for them.'
_SEVERAL = "Intervals: none is valid for more than two classes, whose curvature is only bounded."
_VALID = (
    "Intervals: {confidence:.0%} for each estimate by itself, for the privacy noise{sampling}. An estimate has no shrinkage; the "
    "coefficient next to it is the one that predicts. There is none where the noise hides what an estimate depends on."
)
_SAMPLING = " and for the sampling of rows, if the model holds"
_NO_SAMPLING = " only: the rows of one unit depend on each other"


@dataclass(frozen=True, eq=False)
class CoefficientTable:
    """Coefficients in the units of the columns. Everything in it is released or public.

    A line has the ``column``, the ``level``, what the number means, the ``coefficient`` that predicts, and an ``estimate`` without
    shrinkage with its interval from ``low`` to ``high``. ``noise`` and ``sampling`` are its two standard deviations. Of two
    classes they are log-odds of the second one; of a regression they are in the units of the target.

    Parameters
    ----------
    lines : tuple of dict
        The lines, None where there is no number.
    note : str
        What the intervals are about, or why there are none.

    Examples
    --------
    >>> table = CoefficientTable(({"column": "age", "level": "", "meaning": "per unit", "coefficient": 0.25},), "No intervals.")
    >>> print(table)
    column  level  meaning   coefficient
    age            per unit  0.25
    No intervals.
    """

    lines: tuple[dict[str, Any], ...]
    note: str

    @classmethod
    def of(cls, model: Any, confidence: float) -> CoefficientTable:
        """Return the table of a fitted estimator.

        Parameters
        ----------
        model : Classifier or Regressor
            The fitted estimator.
        confidence : float
            How often an interval contains the coefficient.

        Returns
        -------
        CoefficientTable
        """
        if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 < confidence < 1:
            raise InvalidRequest("Expected confidence between 0 and 1", got=confidence, do="Pass 0.95")
        released: TableModel = model.release_.value
        reported, combine = list_contrasts(model.encoder_)
        values = np.atleast_2d(model.coef_) @ combine(released.profile).T
        classes = [str(each) for each in getattr(model, "classes_", ())] if len(values) > 1 else [""]
        base = [
            ({"class": label} if label else {})
            | {"column": each.column, "level": each.level, "meaning": each.meaning, "coefficient": float(value)}
            for label, row in zip(classes, values, strict=True)
            for each, value in zip(reported, row, strict=True)
        ]
        found = released.estimates
        if found is None:
            return cls(tuple(base), _SEVERAL if len(values) > 1 else _NOT_ASKED)
        alone = model.receipt_.unit.is_row
        reach = -float(ndtri((1 - confidence) / 2)) * (np.hypot(found.noise, found.sampling) if alone else found.noise)
        ends = (found.values, found.values - reach, found.values + reach, found.noise, found.sampling)
        names = ("estimate", "low", "high", "noise", "sampling")
        told = [dict(zip(names, map(_number, each), strict=True)) for each in zip(*ends, strict=True)]
        for line in told:
            line["estimate"] = None if line["noise"] is None else line["estimate"]
            line["sampling"] = line["sampling"] if alone else None
        note = _VALID.format(confidence=confidence, sampling=_SAMPLING if alone else _NO_SAMPLING)
        return cls(tuple(one | two for one, two in zip(base, told, strict=True)), note)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that some line has."""
        return tuple(name for name in _COLUMNS if any(name in line for line in self.lines))

    def to_pandas(self) -> Any:
        """Return the lines as a data frame, NaN where there is no number.

        Returns
        -------
        pandas.DataFrame
        """
        import pandas  # noqa: PLC0415  (a second of import that other calls do not need)

        return pandas.DataFrame([dict(line) for line in self.lines], columns=list(self.columns))

    def __str__(self) -> str:
        rows = [self.columns, *(tuple(_text(line.get(name)) for name in self.columns) for line in self.lines)]
        widths = [max(map(len, each)) for each in zip(*rows, strict=True)]
        lines = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows)
        return "\n".join([*lines, self.note])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in self.columns)
        rows = (
            "<tr>" + "".join(f"<td>{html.escape(_text(line.get(name)))}</td>" for name in self.columns) + "</tr>"
            for line in self.lines
        )
        return f"<table><tr>{head}</tr>{''.join(rows)}</table><p>{html.escape(self.note)}</p>"


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
