"""Measures again what docs/benchmarks.md states, with the options that it names, and writes each number next to the stated one.

    python -m benchmarks.compare --json FILE [--kept] [--results docs/benchmarks] [name ...]

``--kept`` measures nothing and only lists what is stated. ``expost reproduce all`` calls this. A benchmark that fails here, because a
peer or a table is missing, leaves its numbers without a new value and says why.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.page import stated_numbers
from benchmarks.run import ROOT, read_results, run_one
from benchmarks.sections import SECTIONS


def compare_results(stated: dict[str, Any], again: dict[str, Any], why: dict[str, str]) -> list[dict[str, Any]]:
    """Return every stated number with its new value, or with why there is none."""
    new = {(each["benchmark"], each["what"]): each["value"] for each in stated_numbers(again, SECTIONS)}
    rows = []
    for each in stated_numbers(stated, SECTIONS):
        found = new.get((each["benchmark"], each["what"]))
        note = "" if found is not None else why.get(each["benchmark"], "not measured again")
        rows.append(each | {"found": found, "note": note})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "benchmarks")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds a benchmark")
    options = parser.parse_args()
    stated = read_results(options.results)
    again: dict[str, Any] = {}
    why: dict[str, str] = {}
    for name in () if options.kept else options.names or stated:
        print(f"== {name}", flush=True)
        result = run_one(name, options.timeout, stated[name].get("words") or "")
        if "failed" in result:
            why[name] = result["failed"]
        else:
            again[name] = stated[name] | result
    options.json.write_text(json.dumps(compare_results(stated, again, why), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
