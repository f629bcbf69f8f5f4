"""Options that commands share, and output: tables for people, JSON for programs, one exit code per error class."""

from __future__ import annotations

import errno
import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_type_hints

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from expost.core import ExpostError, InvalidRequest, Receipt, Release, TargetNotMet

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]

PICTURES = (".png", ".svg", ".pdf")
"""File name endings of pictures."""

_PICTURE_STARTS = (b"\x89PNG", b"<?xml", b"<svg", b"%PDF")
_NEVER_REPLACED = (b"SQLite format 3\0", b"PAR1", b"ARROW1")
_OF_A_LEDGER = ("", ".head", ".lock", "-wal", "-shm", "-journal")  # the files of one ledger, by the ends of their names

_HERE = {
    "Dataset(types=": "--type COLUMN=real, or [types] in the description (expost describe init FILE)",
    "Dataset(": "--categories, --bounds, --max-rows-per-unit; or once for all, expost describe init FILE",
    "Pass budget=": "--budget 1",
    "analyst_budget=": "expost ledger budget LEDGER analyst:NAME --epsilon 1",
    "Unit.of(": "--unit ID --per week --time COLUMN",
    "where=, which": "--where \"site = 'A'\"",
    "Declare it with categories=": "--categories column=a,b,c",
    "Pass bounds=(": "--bounds column=low:high",
    'Pass bounds=("': "--bounds column=2024-01-01:2024-12-31",
}
"""Command-line options for hints that errors give in Python."""

_NARROWEST = 60  # columns of a table: on a narrower terminal its lines go on below, rather than lose their numbers

out = Console(highlight=False, soft_wrap=True, emoji=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take the fields of its first parameter, a dataclass of typer arguments, before its other options."""
    first, *own = inspect.signature(command, eval_str=True).parameters.values()
    hints = get_type_hints(first.annotation, include_extras=True)
    fields = inspect.signature(first.annotation).parameters.values()
    shared = [each.replace(annotation=hints[each.name]) for each in fields]
    every = [*shared, *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own)]

    @wraps(command)
    def run_command(**given: Any) -> None:
        options = first.annotation(**{each.name: given.pop(each.name) for each in shared})
        command(options, **given)

    run_command.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    run_command.__annotations__ = {each.name: each.annotation for each in every}
    return run_command


def emit(data: Any) -> None:
    """Write one JSON document to standard output."""
    sys.stdout.write(_as_json(data))
    sys.stdout.flush()


def _as_json(data: Any) -> str:
    return json.dumps(_finite(data), indent=2, ensure_ascii=False, default=str, allow_nan=False) + "\n"


def _finite(data: Any) -> Any:
    """Replace numbers that JSON does not have, such as an end of an interval without a limit, by null."""
    if isinstance(data, Mapping):
        return {str(name): _finite(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table."""
    width = _NARROWEST if out.width < _NARROWEST else None
    table = Table(title=title, title_justify="left", header_style="bold", width=width)
    for place, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=place == 0)  # names and ids are there to be copied
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    out.print(table)


def print_receipt(receipt: Receipt) -> None:
    """Print a receipt, one fact per line."""
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="dim")
    table.add_column()
    for label, text in receipt.rows():
        table.add_row(escape(label), escape(text))
    out.print(table)


def print_price(price: Any, *, as_json: bool) -> None:
    """Print a price: the worst case and the likely cost."""
    if as_json:
        likely = None if price.likely is None else price.likely.to_json()
        quote = {"question": price.question, "worst_case": price.worst_case.to_json(), "likely": likely}
        more = {"above_cap": price.above_cap, "account_note": price.account_note, "filter_note": price.filter_note}
        emit(quote | {name: text for name, text in more.items() if text})
    else:
        out.print(str(price), markup=False)


def print_release(release: Release[Any], *, as_json: bool) -> None:
    """Print a release: value, interval and receipt."""
    document = {"value": _plain(release), "interval": release.interval, "receipt": release.receipt.to_dict()}
    with told(document):
        if as_json:
            emit(document)
        else:
            _print_value(release)
            print_receipt(release.receipt)


@contextmanager
def told(document: dict[str, Any]) -> Iterator[None]:
    """Print what was paid for. If standard output fails, the document goes to standard error instead."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader closed the pipe on purpose
            raise
        sys.stderr.write(_as_json(document))
        _end_output()


def lost(error: OSError) -> NoReturn:
    """Report output that cannot be written, and where the charges are recorded, then exit."""
    err.print(f"[red]output_failed[/red]: Cannot write the output: {error.strerror or 'unknown reason'}.")
    err.print("cost: see expost ledger show; each charge is recorded before its answer is printed")
    _end_output()


def _end_output() -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to be written at the end
    raise SystemExit(1)


def _rows(release: Release[Any]) -> list[dict[str, Any]] | None:
    """Return the rows of a release of several numbers, or None for a single number."""
    if hasattr(release, "to_dicts"):
        rows: list[dict[str, Any]] = release.to_dicts()
        return rows
    several = isinstance(release.value, Mapping) or hasattr(release.value, "shape")
    return release.to_arrow().to_pylist() if several and hasattr(release, "to_arrow") else None


def _plain(release: Release[Any]) -> Any:
    rows = _rows(release)
    if rows is not None:
        return rows
    return release.value.tolist() if hasattr(release.value, "tolist") else release.value


def _print_value(release: Release[Any]) -> None:
    rows = _rows(release)
    if rows:
        cells = ([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row.values()] for row in rows)
        print_table(release.receipt.question, tuple(rows[0]), cells)
    elif release.interval is None:
        out.print(f"[bold]{escape(str(release.value))}[/bold]")
    else:
        value, low, high = (escape(each) for each in round_to_interval(release.value, release.interval))
        out.print(f"[bold]{value}[/bold]  in  {low} .. {high}")


def round_to_interval(value: Any, interval: Sequence[Any]) -> list[str]:
    """Return a value and its interval with the digits that the interval's width leaves meaningful.

    >>> round_to_interval(7.807056329497257, (-60.00017166137695, 75.61428432037147))
    ['7.8', '-60.0', '75.6']
    >>> round_to_interval(1234, (1200, 1260))
    ['1234', '1200', '1260']
    """
    numbers = (value, *interval)
    ends = [each for each in interval if isinstance(each, float)]  # whole numbers and times keep all digits
    width = ends[1] - ends[0] if len(ends) == 2 else 0.0
    digits = max(3 - math.floor(math.log10(width)), 0) if 0 < width < math.inf else None
    return [f"{each:.{digits}f}" if digits is not None and isinstance(each, float) else str(each) for each in numbers]


def new_file(path: Path | None, *, kinds: tuple[str, ...] = (), begins: tuple[bytes, ...] = ()) -> None:
    """Refuse an output file that cannot be written or would replace something else, before anything is paid for.

    ``begins`` lists the first bytes of files that may be replaced. Ledgers and tables are never replaced.
    """
    if path is None:
        return
    if kinds and path.suffix.lower() not in kinds:
        raise InvalidRequest(f"Expected a file name ending in {' or '.join(kinds)}", got=str(path), do="Rename it")
    if path.is_dir() or not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InvalidRequest("Expected a file that can be written", got=str(path), do="Create its folder first")
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            start = file.read(16)
        wanted = begins or (_PICTURE_STARTS if kinds else ())
        if start.startswith(_NEVER_REPLACED) or (wanted and not start.startswith(wanted)):
            ours = "Expected a new file, or one that this command wrote"
            raise InvalidRequest(ours, got=str(path), do="Name another")


def new_folder(path: Path) -> None:
    """Create the output folder of a command if it does not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        raise InvalidRequest("Expected a folder that can be made", got=str(path), do="Name another") from None


def kept_apart(path: Path | None, *others: str) -> None:
    """Refuse an output path that is the data or the ledger under any name, even before it exists."""
    if path is None:
        return
    places = (Path(other.removeprefix("sqlite:///") + ending) for other in others for ending in _OF_A_LEDGER)
    for place in places:
        linked = path.exists() and place.exists() and path.samefile(place)
        if linked or os.path.realpath(path) == os.path.realpath(place):
            wanted = "Expected an output that is neither the data nor the ledger"
            raise InvalidRequest(wanted, got=str(path), do="Name another file")


def fail(error: ExpostError, *, as_json: bool = False) -> NoReturn:
    """Print an error with its stable code and its cost, and exit with the exit code of its class."""
    if as_json:
        document: dict[str, Any] = {"error": error.code, "message": str(error), "cost": error.cost}
        if isinstance(error, TargetNotMet):
            document |= {"value": _plain(error.release), "receipt": error.receipt.to_dict()}
        with told(document):
            emit(document)
    else:
        err.print(f"[red]{error.code}[/red]: {escape(str(error))}")
        for words, options in _HERE.items():
            if words in str(error):
                err.print(f"on the command line: {options}")
        err.print(f"cost: {error.cost}")
        if isinstance(error, TargetNotMet):
            err.print("the best private answer under the cap, which was paid for:")
            print_release(error.release, as_json=False)
    raise SystemExit(error.exit_code)
