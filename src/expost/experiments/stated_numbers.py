"""The registry of measured numbers in the README and the docs: where each stands, what makes it again, and whether it moved.

``stated_numbers.toml`` lists them. A number is made by this package (``remade_numbers``), or by a benchmark. Benchmarks are no part of the
package: they are run where a clone of the project is at hand, with the options that the page names, and compared with what the
clone keeps in ``docs/benchmarks``. A number has moved if it is outside its stated spread.
"""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path

from expost.core import InvalidRequest
from expost.experiments.remade_numbers import MAKERS, run_maker

__all__ = ["NUMBERS_FILE", "StatedNumber", "Verdict", "find_clone", "given_texts", "remake_numbers", "stated_numbers"]

NUMBERS_FILE = Path(__file__).with_name("stated_numbers.toml")
"""The registry."""

_BENCHMARK = "benchmark "
_SURE = 4  # standard errors


class Verdict(Enum):
    """What a new measurement says about a stated number."""

    HOLDS = "as stated"
    MOVED = "moved"
    NOT_MADE = "not made"


@dataclass(frozen=True)
class StatedNumber:
    """One number of a page."""

    page: str
    """The file in which it stands."""
    text: str
    """The words around it, as they stand there; what it measures, where a page is made from measurements."""
    value: float
    low: float
    high: float
    maker: str
    """A maker and a name, as in "census count: epsilon", or "benchmark census: expost: epsilon paid"."""
    command: str
    found: float | None = None
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        """Whether the new measurement lies within the stated spread."""
        if self.found is None:
            return Verdict.NOT_MADE
        return Verdict.HOLDS if self.low <= self.found <= self.high else Verdict.MOVED


@cache
def _registry() -> dict[str, list[dict[str, object]]]:
    return tomllib.loads(NUMBERS_FILE.read_text(encoding="utf-8"))


def stated_numbers() -> list[StatedNumber]:
    """Read the registry, one entry for each page on which a number stands."""
    found = []
    for each in _registry()["number"]:
        spread = each["spread"]
        assert isinstance(spread, list)
        low, high = map(float, spread)
        maker = str(each["maker"])
        command = f"expost reproduce numbers  # {maker}"
        if maker.startswith(_BENCHMARK):
            command = f"scripts/bench {maker.removeprefix(_BENCHMARK).partition(':')[0]}"
        pages = each["pages"]
        assert isinstance(pages, list)
        found += [
            StatedNumber(page, str(each["text"]), float(str(each["value"])), low, high, maker, command)
            for page in pages
        ]
    return found


def given_texts() -> dict[str, str]:
    """Return the numbers of the README that nobody measured, as they stand there, with what they are."""
    return {str(each["text"]): str(each["why"]) for each in _registry()["given"]}


def find_clone(given: Path | None = None) -> Path | None:
    """Return the folder of a clone with its benchmarks: the one given, the current one, or that of an editable install."""
    places = [given] if given else [Path.cwd(), Path(__file__).parents[3]]
    for place in places:
        if (place / "benchmarks" / "compare.py").exists() and (place / "docs" / "benchmarks").is_dir():
            return place.resolve()
    if given:
        raise InvalidRequest("Expected a clone of the project with its benchmarks", got=str(given), do="Clone it first")
    return None


Progress = Callable[[int, int, str], None]


def remake_numbers(
    *, clone: Path | None = None, quick: bool = False, progress: Progress | None = None
) -> list[StatedNumber]:
    """Make the stated numbers again: those of the package, and with a clone those of the benchmarks.

    The quick version makes those of the package only. With a clone it still compares what pages state with what the benchmarks of
    the clone keep.
    """
    numbers = stated_numbers()
    makers = list(
        dict.fromkeys(each.maker.partition(":")[0] for each in numbers if each.maker.partition(":")[0] in MAKERS)
    )
    made: dict[str, float] = {}
    for done, name in enumerate(makers):
        if progress is not None:
            progress(done, len(makers) + 1, name)
        made |= {f"{name}: {key}": value for key, value in run_maker(name).items()}
    if progress is not None:
        progress(len(makers), len(makers) + 1, "benchmarks")
    measured = [] if clone is None else _run_benchmarks(clone, quick=quick)
    by_name = {each.maker: each for each in measured}
    found = []
    for each in numbers:
        if each.maker in made:
            found.append(replace(each, found=made[each.maker]))
        elif each.maker in by_name:
            found.append(_from_benchmark(each, by_name[each.maker], quick=quick))
        elif each.maker.startswith(_BENCHMARK):
            found.append(replace(each, note="needs a clone of the project" if clone is None else "not kept there"))
        else:
            found.append(replace(each, note="this run missed its target"))
    return found + measured


def _from_benchmark(number: StatedNumber, measured: StatedNumber, *, quick: bool) -> StatedNumber:
    """Return the number of a page as the benchmark has it: measured again, or as kept in the quick version."""
    if quick:
        return replace(number, found=measured.value, note="kept by the benchmark, not measured again")
    return replace(number, found=measured.found, note=measured.note, command=measured.command)


def _run_benchmarks(clone: Path, *, quick: bool) -> list[StatedNumber]:
    """Return the numbers of the page of benchmarks; measured again with the options that the page names, unless quick."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "compared.json"
        words = [sys.executable, "-m", "benchmarks.compare", "--json", str(file), *(["--kept"] if quick else [])]
        done = subprocess.run(words, cwd=clone, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if not file.exists():
            raise InvalidRequest("Expected benchmarks that run", got=done.stderr.strip()[-200:], do="Run scripts/bench")
        rows = json.loads(file.read_text(encoding="utf-8"))
    return [
        StatedNumber(
            "docs/benchmarks.md",
            f"{each['benchmark']}: {each['what']}",
            each["value"],
            each["low"],
            each["high"],
            f"{_BENCHMARK}{each['benchmark']}: {each['what']}",
            each["command"],
            each["found"],
            each["note"],
        )
        for each in rows
    ]


def compare_figures(kept: Path, made: Path) -> list[StatedNumber]:
    """Compare two files of a figure point by point: by four standard errors where it states them, else by a twentieth."""
    before, after = _read_points(kept), _read_points(made)
    found = []
    for name, (value, error) in before.items():
        again, other = after.get(name, (None, 0.0))
        allowed = _SURE * math.hypot(error, other) + (0 if error else 0.05 * abs(value))
        command = f"expost reproduce {kept.stem}"
        stated = StatedNumber(
            f"docs/experiments/{kept.name}", name, value, value - allowed, value + allowed, "", command
        )
        found.append(replace(stated, found=again, note="" if again is not None else "not in the new file"))
    return found


def _read_points(path: Path) -> dict[str, tuple[float, float]]:
    """Return the epsilon, or the accuracy, of each point of a figure, and its standard error where there is one."""
    found = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            column = next((name for name in ("epsilon", "accuracy", "certified accuracy") if row.get(name)), None)
            if column is None:
                continue
            keys = ("table", "method", "tolerance", "way", "signal", "features", "sample", "sigma", "radius")
            name = ", ".join(row[key] for key in keys if row.get(key))
            value = float(row[column])
            if math.isfinite(value):
                found[name] = value, float(row.get("epsilon_error") or row.get("standard deviation") or 0)
    return found


def summarize(numbers: Iterable[StatedNumber]) -> str:
    """Return how many numbers hold, moved, or were not made."""
    verdicts = [each.verdict for each in numbers]
    counts = [f"{sum(each is kind for each in verdicts)} {kind.value}" for kind in Verdict]
    return f"{len(verdicts)} stated numbers: {', '.join(counts)}"


def numbers_rows(numbers: Sequence[StatedNumber]) -> list[list[object]]:
    """Return the rows of a table: what moved comes first."""
    order = [Verdict.MOVED, Verdict.NOT_MADE, Verdict.HOLDS]
    ordered = sorted(numbers, key=lambda each: order.index(each.verdict))
    return [
        [
            each.verdict.value,
            each.page,
            each.text,
            each.value,
            f"{each.low:.4g} to {each.high:.4g}",
            each.found,
            each.note,
            each.command,
        ]
        for each in ordered
    ]


COLUMNS = ("verdict", "page", "number", "stated", "spread", "made again", "note", "command")
"""The columns of the report."""
