"""Runs the benchmarks and writes docs/benchmarks.md, which says what was measured, where and when.

    python -m benchmarks.run [name ...] [--page docs/benchmarks.md] [--results docs/benchmarks.json] [--timeout 600]
    python -m benchmarks.run --short [name ...]
    python -m benchmarks.run name --pass "options of that benchmark"

A benchmark is a file of this folder with a function ``main``; its first line says what it measures, and with an option
``--json FILE`` its numbers are kept beside the page. Results of benchmarks that are not named are kept from the last run,
with the date and machine they were measured on. ``--short`` runs each with the options of ``SHORT``, all of them in less than
ten minutes on two quiet cores, and the page says with which. A peer that is not installed, or a benchmark that fails, is written down as
such and does not stop the others. A peer that needs a Python of its own is named by the environment variable EXPOST_PEERS, as
PEER=PATH with commas between: ``diffprivlib`` for peers.py, ``opendp``, ``smartnoise``, ``pipelinedp`` and ``tumult`` for the grouped
totals of stats.py.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MAKERS = {"noise_envelope"}  # write a table into the package instead of measuring
COMPARED = {
    "the 2017 algorithms as published": ("accuracy_first", "census", "paths"),
    "OpenDP": ("noise", "peers", "stats"),
    "diffprivlib": ("census", "peers"),
    "PipelineDP, SmartNoise, Tumult": ("stats",),
    "dp-accounting": ("accounting",),
    "Opacus": ("sgd",),
    "NumPy, DuckDB": ("noise", "peers", "stats"),
    "scikit-learn, PyTorch": ("learning", "mnist", "peers", "sgd"),
    "bare SQLite": ("ledger",),
    "a bare FastAPI route": ("service",),
}
"""Which benchmarks put which peer beside this package."""
SHORT = {
    "accounting": "--rounds 3",
    "accuracy_first": "--seeds 20 --paper-seeds 2",
    "census": "--runs 3",
    "learning": "--repeats 3",
    "ledger": "--rounds 10",
    "mnist": "--dealt --runs 9 --fixed 0.045 0.05 0.06 0.07 --proven 0.07 0.08",
    "mnist_network": "--dealt --fixed 0.42",
    "newton_steps": "--seeds 1",
    "noise": "--rounds 3",
    "paths": "--rounds 3",
    "peers": "--rounds 7",
    "power": "--runs 20",
    "service": "--clients 8 --questions 200",
    "sgd": "--rounds 2",
    "stats": "--rows 1e6 --matrix-rows 2e5 --runs 20 --rounds 3 --peer-seconds 90",
}
"""Options that make a benchmark short; one without any runs whole."""
PEERS = (
    "expost",
    "numpy",
    "scipy",
    "scikit-learn",
    "duckdb",
    "opendp",
    "diffprivlib",
    "dp-accounting",
    "opacus",
    "torch",
)

HEAD = """# Benchmarks

Written by `scripts/bench`; `scripts/bench --short` runs all of it with fewer repetitions, in less than ten minutes (a quarter of an hour with torch). Times depend on
the machine and on what else it does; rounds are interleaved, so that ratios within a table can be compared and columns of different
tables cannot. No timing is a test. Numbers for machines are in [benchmarks.json](benchmarks.json).
"""


def benchmarks() -> dict[str, str]:
    """The files that are benchmarks, with what they measure."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.stem not in {"run", "__init__"} | MAKERS and "def main(" in text:
            found[path.stem] = (ast.get_docstring(ast.parse(text)) or path.stem).splitlines()[0]
    return found


def machine() -> dict[str, Any]:
    """Where and when: what a reader needs to judge a number."""
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
        "versions": {name: found for name in PEERS if (found := _version(name))},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def run_one(name: str, timeout: float, words: str = "") -> dict[str, Any]:
    """One benchmark in a process of its own: its printed table, its numbers, or why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = Path(folder) / "numbers.json"
        script = ROOT / "benchmarks" / f"{name}.py"
        wants_json = '"--json"' in script.read_text(encoding="utf-8")
        json_option = ["--json", str(numbers)] if wants_json else []
        command = [sys.executable, str(script), *json_option, *shlex.split(words)]
        begin = time.perf_counter()
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            return {"failed": f"took longer than {timeout:g} seconds"}
        if done.returncode:
            return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
        data = json.loads(numbers.read_text(encoding="utf-8")) if numbers.exists() else None
        seconds = round(time.perf_counter() - begin, 1)
        return {"printed": done.stdout, "numbers": data, "seconds": seconds, "words": words}


def page(results: dict[str, Any], sentences: dict[str, str]) -> str:
    """The document: one section a benchmark, the printed table as it was printed."""
    parts = [HEAD, _overview(results)]
    for name, result in sorted(results.items()):
        parts += [f"\n## `benchmarks/{name}.py`\n", sentences.get(name, ""), ""]
        if "failed" in result:
            parts.append(f"Not measured: {result['failed']}.")
        else:
            if result.get("words"):
                parts.append(f"Run with `{result['words']}`.\n")
            parts.append(_shown(result["printed"]))
        parts.append(_where(result["machine"]))
    return "\n".join(parts) + "\n"


def _shown(printed: str) -> str:
    """What was printed: tables that are Markdown already as they are, everything else word for word."""
    blocks = []
    for is_table, lines in groupby(printed.strip("\n").splitlines(), key=lambda line: line.startswith("| ")):
        text = "\n".join(lines).strip("\n")
        if text:
            blocks.append(text + "\n" if is_table else f"```text\n{text}\n```\n")
    return "\n".join(blocks)


def _overview(results: dict[str, Any]) -> str:
    """Which peer is measured where; only sections that the page has."""
    lines = ["| beside this package | measured in |", "| --- | --- |"]
    for peer, names in COMPARED.items():
        links = [f"[{name}](#benchmarks{name}py)" for name in names if name in results]
        if links:
            lines.append(f"| {peer} | {', '.join(links)} |")
    return "\n".join(lines) + "\n"


def _where(facts: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {found}" for name, found in facts["versions"].items())
    return (
        f"Measured {facts['when']} on {facts['cores']} cores of {facts['processor']} ({facts['system']}), "
        f"Python {facts['python']}, while {facts['load']} processes wanted to run; installed: {versions}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "benchmarks.json")
    parser.add_argument("--timeout", type=float, default=600, help="seconds a benchmark")
    parser.add_argument("--pass", dest="words", default="", help="options for the benchmark named, in one string")
    parser.add_argument(
        "--short",
        action="store_true",
        help="fewer repetitions: less than ten minutes in all, with torch a quarter of an hour",
    )
    options = parser.parse_args()
    sentences = benchmarks()
    if options.words and len(options.names) != 1:
        parser.error("Expected one name beside --pass: options are those of one benchmark")
    if unknown := sorted(set(options.names) - set(sentences)):
        parser.error(f"Expected names of {', '.join(sentences)}, got {', '.join(unknown)}")
    results = json.loads(options.results.read_text(encoding="utf-8")) if options.results.exists() else {}
    results = {name: result for name, result in results.items() if name in sentences}
    for name in options.names or sentences:
        print(f"== {name}: {sentences[name]}", flush=True)
        where = machine()
        words = f"{SHORT.get(name, '')} {options.words}".strip() if options.short else options.words
        results[name] = run_one(name, options.timeout, words) | {"machine": where}
        print(results[name].get("printed") or f"not measured: {results[name]['failed']}", flush=True)
        options.results.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        options.page.write_text(page(results, sentences), encoding="utf-8")
    if any("failed" in results[name] for name in options.names or sentences):
        sys.exit(1)


if __name__ == "__main__":
    main()
