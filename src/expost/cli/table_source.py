"""The command ``expost describe``, and the table that a command is about: a description or a data file."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expost.cli.console import Json, emit, err, kept_apart, new_file, out, print_table
from expost.core import InvalidRequest, Unit
from expost.core.whole_file import write_file

if TYPE_CHECKING:
    from expost.data import Dataset

__all__ = ["Budget", "LedgerPath", "Source", "describe", "describe_source", "limits_of", "parse_pairs", "typed_value"]

Source = Annotated[str, typer.Argument(help="A description (TOML) or a data file (Parquet, CSV, Arrow).")]
Budget = Annotated[
    float | None,
    typer.Option(help="Open the dataset's account in a new ledger with this budget (see: expost ledger budget)."),
]
LedgerPath = Annotated[
    str | None, typer.Option(help="The ledger to bill; default: NAME.ledger in the folder of the source.")
]


def describe_source(
    source: str,
    given: dict[str, Any],
    *,
    unit: str | None = None,
    per: str | None = None,
    time: str | None = None,
    implied: dict[str, str] | None = None,
) -> Dataset:
    """Open the dataset of a description or a data file; options override the description.

    A data file is read with the description of the same name in its folder, if there is one. ``implied`` are types that a
    command implies for columns of a text file.
    """
    from expost.data import Dataset
    from expost.data.description import Description
    from expost.data.text_format import is_text_file

    found = _description(source)
    if found is not None and found != Path(source):
        err.print(f"described by {found}", style="dim")
    facts: dict[str, Any] = {"source": source} if found is None else dict(vars(Description.read(found)))
    if unit is not None or per is not None or time is not None:
        facts["unit"] = _unit(facts.get("unit") or Unit.row(), unit, per, time)
    if implied and is_text_file(facts["source"]):
        columns = Dataset(**facts).schema
        facts["types"] = {name: kind for name, kind in implied.items() if name in columns} | (facts.get("types") or {})
    typed = given.pop("categories", {})
    for name in ("bounds", "types"):
        if name in given:
            given[name] = {**(facts.get(name) or {}), **given[name]}
    try:
        if any(_maybe_no_text(text) for texts in typed.values() for text in texts):
            plain = Dataset(**{**facts, **given})
            typed = {column: [typed_value(plain, column, each) for each in texts] for column, texts in typed.items()}
        return Dataset(**{**facts, **given, "categories": {**facts.get("categories", {}), **typed}})
    except InvalidRequest:
        raise
    except (OSError, ValueError):  # the library's message may contain cells of a broken file
        broken = facts["source"]
    raise InvalidRequest("Expected a data file that can be read", got=broken, do="Check the file")


def _description(source: str) -> Path | None:
    """Find the description of a source."""
    from expost.data.description import Description

    if source.endswith(".toml"):
        return Path(source)
    if not Path(source).is_file():
        return None
    found = Path(source).with_suffix(".toml")
    ours = found.is_file() and Path(Description.read(found).source).resolve() == Path(source).resolve()
    return found if ours else None


def _unit(described: Unit, unit: str | None, per: str | None, time: str | None) -> Unit:
    column = unit or described.column
    if unit == "row":
        return Unit.row()
    if column is None:
        raise InvalidRequest("--per and --time need --unit", do="Name the column of the person's id")
    same = column == described.column
    window = described.window.value if same and described.window is not None else None
    return Unit.of(column, per=per or window, time=time or (described.time_column if same else None))


def typed_value(dataset: Dataset, column: str, text: str) -> Any:
    """Parse a value as the type of its column."""
    kind = dataset.schema.kinds[column].value if column in dataset.schema.kinds else "text"
    try:
        return _READ[kind](text.strip()) if kind in _READ else text
    except (ValueError, KeyError):
        wanted = f"Expected values of {column}, which holds {kind} values"
        raise InvalidRequest(wanted, got=text, do=f"Pass e.g. {column}={_EXAMPLES[kind]}") from None


def _maybe_no_text(text: str) -> bool:
    """Check whether a text can also be read as a number, a boolean or a time."""
    for read in _READ.values():
        with suppress(ValueError, KeyError):
            read(text.strip())
            return True
    return False


def _number(text: str) -> float:
    """Parse a finite number; integers stay exact."""
    nearest = float(text)
    if not math.isfinite(nearest):
        raise ValueError
    return int(text) if text.lstrip("+-").isdigit() else nearest


_READ: dict[str, Callable[[str], Any]] = {
    "integer": _number,
    "real": _number,
    "boolean": lambda text: {"true": True, "false": False}[text.lower()],
    "time": datetime.datetime.fromisoformat,
}
_EXAMPLES = {"integer": "1,2,3", "real": "0.5,1.5", "boolean": "true,false", "time": "2013-01-07,2013-01-08"}


def parse_pairs(option: str, texts: list[str], example: str) -> dict[str, str]:
    """Parse column=value, one for each column."""
    pairs = [text.partition("=") for text in texts]
    if not all(column and value for column, _, value in pairs):
        raise InvalidRequest(f"Expected {option} as column=value", got=", ".join(texts), do=f"Pass e.g. {example}")
    return {column: value for column, _, value in pairs}


def limits_of(option: str, text: str, *, days: bool = False) -> tuple[str, tuple[Any, Any]]:
    """Parse column=low:high, two numbers, or two days where they are allowed."""
    column, _, pair = text.rpartition("=")
    low, _, high = pair.partition(":")
    for read in (float, datetime.date.fromisoformat) if days else (float,):
        with suppress(ValueError):
            return column, (read(low), read(high))
    more = " or when=2013-01-01:2013-12-31" if days else ""
    raise InvalidRequest(f"Expected {option} as column=low:high", got=text, do=f"Pass e.g. age=0:120{more}")


describe = typer.Typer(no_args_is_help=True, help="Write and check a dataset's public description (TOML).")


@describe.command()
def init(
    source: Annotated[str, typer.Argument(help="The data: a Parquet, CSV or Arrow file.")],
    output: Annotated[Path | None, typer.Option(help="Where to write it; default: the folder of the data.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a template from column names and types only. The types of a CSV file are guessed from its rows: check them.

    Example: [bold]expost describe init flights.parquet[/bold]
    """
    from expost.data.description import draft_description

    target = output or Path(source).with_suffix(".toml")
    if target.exists() and not force:
        raise InvalidRequest("Expected a new file", got=str(target), do="Pass --force to overwrite it")
    kept_apart(target, source)
    new_file(target)
    shown = Path(source).name if target.parent == Path(source).parent else source
    write_file(target, draft_description(shown, _guess_columns(source)).encode())
    out.print(f"Fill in {target}, then: expost query {source} count --within 5% --budget 1")


@describe.command()
def check(
    description: Annotated[Path, typer.Argument(help="The description file.")],
    as_json: Json = False,
) -> None:
    """Check a description against the columns of its source.

    Example: [bold]expost describe check flights.toml[/bold]
    """
    from expost.data.description import Description

    dataset = Description.read(description).open()
    if as_json:
        emit({"name": dataset.name, "unit": str(dataset.unit), "columns": dict(_columns(dataset))})
        return
    print_table(f"{dataset.name}: protects {dataset.unit}", ("column", "type"), _columns(dataset))


def _columns(dataset: Dataset) -> list[tuple[str, str]]:
    return [(name, kind.value) for name, kind in dataset.schema.kinds.items()]


def _guess_columns(source: str) -> list[tuple[str, str]]:
    """Return the columns of a data file with their types, those of a text file guessed for its owner to check."""
    from expost.data import Dataset
    from expost.data.text_format import is_text_file

    columns = _columns(Dataset(source))
    if not is_text_file(source):
        return columns
    from expost.data.engines.csv_engine import guess_types, open_csv

    return list(guess_types(open_csv([Path(source)])).items())
