"""Every command of the command line has a help text with an example that parses."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from expost.cli import app

ROOT = typer.main.get_command(app)


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    # By duck typing: Typer carries its own copy of click in newer versions.
    if hasattr(group, "commands"):
        for name, command in group.commands.items():
            yield from commands(command, (*path, name))
    else:
        yield " ".join(path), group


def example(command: Any) -> list[str]:
    found = re.search(r"Example: \[bold\]expost (.*?)\[/bold\]", command.help or "", re.S)
    assert found, "no line 'Example: [bold]expost ...[/bold]'"
    return shlex.split(found.group(1))


@pytest.mark.parametrize(
    ("name", "command"), list(commands(ROOT)), ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_example_in_a_help_text_parses(name: str, command: Any) -> None:
    words = example(command)

    assert words[: len(name.split())] == name.split()
    command.make_context(name, words[len(name.split()) :]).close()


@pytest.mark.parametrize(
    ("name", "command"), list(commands(ROOT)), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_option_is_explained(name: str, command: Any) -> None:
    for parameter in command.params:
        if parameter.name not in {"help", "install_completion", "show_completion"}:
            assert getattr(parameter, "help", None), (name, parameter.name)
