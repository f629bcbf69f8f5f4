"""Writes docs/commands.md: every command of the command line with its options, from the commands themselves.

python docs/commands.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from expost.cli import app

PAGE = Path(__file__).with_name("commands.md")
HEAD = """# Commands

Every command prints tables for people and, with `--json`, one document for machines. An error prints its sentence, a stable
code and what it cost, and sets the exit code. This page is made from the commands themselves by `python docs/commands.py`.
"""


def commands(group: Any, path: tuple[str, ...] = ("expost",)) -> Iterator[tuple[str, Any]]:
    if hasattr(group, "commands"):
        for name, command in group.commands.items():
            yield from commands(command, (*path, name))
    else:
        yield " ".join(path), group


def render() -> str:
    return HEAD + "".join(section(name, command) for name, command in commands(typer.main.get_command(app)))


def section(name: str, command: Any) -> str:
    help_text = re.sub(r"\[/?bold\]", "`", command.help or "")
    options = [row for parameter in command.params if (row := describe(parameter))]
    table = "\n".join(["| argument or option | meaning |", "| --- | --- |", *options])
    return f"\n## `{name}`\n\n{help_text.strip()}\n\n{table}\n"


def describe(parameter: Any) -> str:
    if parameter.name == "help":
        return ""
    names = (
        ", ".join(f"`{each}`" for each in parameter.opts)
        if parameter.param_type_name == "option"
        else f"`{parameter.name.upper()}`"
    )
    text = (getattr(parameter, "help", "") or "").replace("|", "\\|")
    return f"| {names} | {text} |"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
