"""``expost describe``: the owner's public description of a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expost.cli.console import emit, kept_apart, new_file, out, print_table
from expost.core import InvalidRequest
from expost.core.whole_file import write_file

if TYPE_CHECKING:
    from expost.data import Dataset

__all__ = ["describe"]

describe = typer.Typer(no_args_is_help=True, help="Write and check a dataset's public description (TOML).")


@describe.command()
def init(
    source: Annotated[str, typer.Argument(help="The data: a Parquet, CSV or Arrow file.")],
    output: Annotated[Path | None, typer.Option(help="Where to write it; beside the data by default.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a template from column names and types only; no value is looked at.

    Example: [bold]expost describe init flights.parquet[/bold]
    """
    from expost.data import Dataset
    from expost.data.description import template

    target = output or Path(source).with_suffix(".toml")
    if target.exists() and not force:
        raise InvalidRequest("Expected a new file", got=str(target), do="Pass --force to overwrite it")
    kept_apart(target, source)
    new_file(target)
    shown = Path(source).name if target.parent == Path(source).parent else source
    write_file(target, template(shown, _columns(Dataset(source))).encode())
    out.print(f"Fill in {target}, then: expost query {source} count --within 5% --budget 1")


@describe.command()
def check(
    description: Annotated[Path, typer.Argument(help="The description file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Check a description against the columns of its source.

    Example: [bold]expost describe check flights.toml[/bold]
    """
    from expost.data.description import Description

    dataset = Description.read(description).open()
    if as_json:
        emit({"name": dataset.name, "unit": str(dataset.unit), "columns": dict(_columns(dataset))})
        return
    print_table(f"{dataset.name}: {dataset.unit} is protected", ("column", "type"), _columns(dataset))


def _columns(dataset: Dataset) -> list[tuple[str, str]]:
    return [(name, kind.value) for name, kind in dataset.schema.kinds.items()]
