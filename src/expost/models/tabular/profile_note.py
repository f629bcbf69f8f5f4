"""Lines of a receipt: measured scores, and what is odd about a table. They follow from what was released anyway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from expost.models.tabular.table_profile import TableProfile

__all__ = ["describe_measure", "note_profile", "note_scores"]

_HIDDEN = 3.0  # deviations below which a share is not told from zero
_MOST_OTHERS = 0.5  # of the rows, with labels that are not classes
_FEW_ROWS = 10.0  # per feature
_TELLING = 0.5  # an error of a side measure, as a share of its value, up to which it is shown
_RANGES = {"accuracy": (0.0, 1.0), "auc": (0.0, 1.0), "r2": (-1.0, 1.0)}  # an R^2 below -1 says no more than -1
_FLAT = 2.0**-8  # a target's spread, as a share of half its range


def note_profile(
    profile: TableProfile, *, labels: Sequence[Any] | None, width: int, declared_rows: int | None
) -> dict[str, str]:
    """Return lines about what is odd in a released profile; none if nothing is.

    An exception would reveal single rows. These lines reveal what the profile has released.

    >>> import numpy as np
    >>> odd = TableProfile(50.0, np.zeros(9), np.ones(9), 1.0, shares=(0.1, 0.0), target_error=0.01, rows_error=5.0)
    >>> for name, text in note_profile(odd, labels=["no", "yes"], width=9, declared_rows=None).items():
    ...     print(f"{name}: {text}")
    few rows: about 50 ± 10 for 9 features; expect a poor model
    other labels: about 90 % of the rows; check the classes
    rare classes: 'yes' not told from none: rare, absent or spelled otherwise
    """
    lines: dict[str, str] = {}
    found = f"{round(profile.rows)} ± {2 * profile.rows_error:.2g}" if profile.rows_error else str(round(profile.rows))
    if declared_rows is not None and profile.rows_error:
        lines["declared rows"] = f"{declared_rows}, far from a private count of {found}; the count was used"
    if profile.rows < max(_FEW_ROWS * width, 2 * profile.rows_error):
        lines["few rows"] = f"about {found} for {width} features; expect a poor model"
    if labels is not None and profile.shares:
        others = 1 - sum(profile.shares)
        if others > max(_MOST_OTHERS, _HIDDEN * profile.target_error * len(labels) ** 0.5):
            lines["other labels"] = f"about {others:.0%} of the rows; check the classes".replace("%", " %")
        rare = [
            label for label, share in zip(labels, profile.shares, strict=True) if share < _HIDDEN * profile.target_error
        ]
        if rare:
            lines["rare classes"] = (
                f"{', '.join(map(repr, rare[:5]))} not told from none: rare, absent or spelled otherwise"
            )
    if labels is None and profile.target_spread <= _FLAT:
        lines["target"] = "hardly varies within its bounds; check target_bounds"
    return lines


def note_scores(values: Mapping[str, tuple[float, float]]) -> dict[str, str]:
    """Return the lines of measured scores, the main one first; each is a value and its deviation.

    Noise may carry a value out of its range. It is moved back, and the line says so.

    >>> note_scores({"r2": (1.25, 0.2), "rmse": (3.0, 0.1), "mae": (0.1, 0.1)})
    {'measured r2': '1 ± 0.4 (noise carried it beyond)', 'measured rmse': '3 ± 0.2'}
    >>> note_scores({"accuracy": (0.3, 4.0)})
    {'measured accuracy': 'hidden by the noise'}
    """
    lines = dict[str, str]()
    for number, (name, (value, deviation)) in enumerate(values.items()):
        low, high = _RANGES.get(name, (0.0, float("inf")))
        inside = min(max(value, low), high)
        if number == 0 or 2 * deviation < _TELLING * abs(value):  # a side measure that is all noise says nothing
            note = "" if inside == value else " (noise carried it beyond)"
            shown = f"{inside:.4g} ± {2 * deviation:.2g}{note}"
            lines[f"measured {name}"] = "hidden by the noise" if 2 * deviation >= high - low else shown
    return lines


def describe_measure(*, by_row: bool, weighted: bool) -> str:
    """Return whom scores and the promise are about.

    >>> describe_measure(by_row=True, weighted=False)
    'the rows of the table'
    """
    rows = "the rows of the table" if by_row else "the rows kept, each unit with weight 1"
    return f"{rows}, each times the weight of its class" if weighted else rows
