"""The table that a command is about: a description, or a data file and what is said beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from expost.cli.console import err
from expost.core import InvalidRequest, Unit

if TYPE_CHECKING:
    from expost.data import Dataset

__all__ = ["describe_source", "limits_of"]


def describe_source(
    source: str,
    given: dict[str, Any],
    *,
    unit: str | None = None,
    per: str | None = None,
    time: str | None = None,
) -> Dataset:
    """The dataset of a description or a data file; what is typed comes before what is described.

    A data file whose description lies beside it, under the same name, is read with that description.
    """
    from expost.data import Dataset
    from expost.data.description import Description

    found = Path(source) if source.endswith(".toml") else _beside(source)
    facts: dict[str, Any] = {"source": source} if found is None else dict(vars(Description.read(found)))
    if unit is not None or per is not None or time is not None:
        described = facts.get("unit") or Unit.row()
        facts["unit"] = _unit(described, unit, per, time)
    for named in ("bounds", "categories"):
        if named in given:
            given[named] = {**facts.get(named, {}), **given[named]}
    try:
        return Dataset(**{**facts, **given})
    except InvalidRequest:
        raise
    except (OSError, ValueError):  # a library's words about a broken file may repeat some of it
        broken = facts["source"]
    raise InvalidRequest("Expected a data file that can be read", got=broken, do="Check the file")


def _beside(source: str) -> Path | None:
    """The description of a data file, if it is there and speaks of this file."""
    from expost.data.description import Description

    found = Path(source).with_suffix(".toml")
    if not Path(source).is_file() or not found.is_file():
        return None
    if Path(Description.read(found).source).resolve() != Path(source).resolve():
        return None
    err.print(f"described by {found}", style="dim")
    return found


def _unit(described: Unit, unit: str | None, per: str | None, time: str | None) -> Unit:
    column = unit or described.column
    if unit == "row":
        return Unit.row()
    if column is None:
        raise InvalidRequest("Expected --unit beside --per and --time", do="Name the column of the person's id")
    same = column == described.column
    window = described.window.value if same and described.window is not None else None
    return Unit.of(column, per=per or window, time=time or (described.time_column if same else None))


def limits_of(option: str, text: str) -> tuple[str, tuple[float, float]]:
    """A column and its public limits, as typed after an option."""
    column, _, pair = text.rpartition("=")
    low, _, high = pair.partition(":")
    try:
        return column, (float(low), float(high))
    except ValueError:
        raise InvalidRequest(f"Expected {option} as column=low:high", got=text, do="Pass e.g. age=0:120") from None
