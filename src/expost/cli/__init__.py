"""The command line."""

from __future__ import annotations

import sys

from expost.cli.app import app
from expost.cli.console import fail
from expost.core import ExpostError

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; errors print their sentence, code and cost, and set the exit code."""
    try:
        app()
    except ExpostError as error:
        fail(error, as_json="--json" in sys.argv)
