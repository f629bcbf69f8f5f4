"""The command line."""

from __future__ import annotations

import sys

from expost.cli.app import app
from expost.cli.console import fail
from expost.core import ExpostError, InvalidRequest

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; errors print their sentence, code and cost, and set the exit code."""
    try:
        if sys.stdout is None:
            # A closed one would swallow a paid answer; worse, its number would go to the next file that is opened.
            raise InvalidRequest("Expected a standard output that is open", do="Leave it open, or send it to a file")
        app()
    except ExpostError as error:
        fail(error, as_json="--json" in sys.argv)
