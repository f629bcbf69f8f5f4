"""The command line."""

from __future__ import annotations

import os
import sys

from expost.cli.command_line import app
from expost.cli.console import fail, lost
from expost.core import ExpostError, InvalidRequest

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; errors print their sentence, code and cost, and set the exit code."""
    silent = sys.stdout is None
    _occupy_closed_places()
    try:
        try:
            if silent:  # a closed one would swallow a paid answer
                raise InvalidRequest(
                    "Expected a standard output that is open", do="Leave it open, or send it to a file"
                )
            app()
        except ExpostError as error:
            fail(error, as_json="--json" in sys.argv and not silent)
    except OSError as error:
        lost(error)


def _occupy_closed_places() -> None:
    """Open the null device for each standard file that is closed: no ledger must be opened under one of their numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the end of the process)
