"""Prints the size and shape of the source code, and the walk of one answer and of one fit.

usage: scripts/metrics [--walk] [--by-package]     --walk lists the files and functions of both walks
       scripts/metrics --write                     puts the walks into ARCHITECTURE.md
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import sys
import tokenize
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "expost"
BEGIN, END = "<!-- walks: made by scripts/metrics --write -->\n", "<!-- end of walks -->"
MATHEMATICS = ("noise", "accounting", "models")


@dataclass
class Shape:
    """The counts of a set of source files."""

    files: int = 0
    lines: int = 0
    comments: int = 0
    bodies: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def add_file(self, text: str) -> None:
        """Count one file."""
        self.files += 1
        self.lines += text.count("\n")
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        self.comments += sum(token.type == tokenize.COMMENT for token in tokens)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.names.append(node.name)
                self.bodies.append(body_lines(node))

    def describe(self) -> dict[str, str]:
        """Return what is printed, by its name."""
        one_word = sum("_" not in name.strip("_") for name in self.names)
        count = max(len(self.names), 1)
        deciles = statistics.quantiles(self.bodies, n=10) if len(self.bodies) > 1 else [0.0] * 9
        return {
            "files": f"{self.files}",
            "lines": f"{self.lines:,}",
            "functions": f"{len(self.names):,}",
            "lines per function": f"{self.lines / count:.1f}",
            "body median / p90 / max": f"{statistics.median(self.bodies):.0f} / {deciles[8]:.0f} / {max(self.bodies)}",
            "bodies of three lines or fewer": f"{sum(body <= 3 for body in self.bodies) / count:.0%}",
            "one-word names": f"{one_word / count:.0%}",
            "comments per 100 lines": f"{100 * self.comments / max(self.lines, 1):.1f}",
        }


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function's body without its docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0  # type: ignore[operator]


def source_files() -> list[Path]:
    """Return every source file of the package."""
    return sorted(path for path in SOURCE.rglob("*.py"))


def repeated_names() -> tuple[list[str], list[str]]:
    """Return the file names and the class names that occur more than once."""
    files = Counter(path.name for path in source_files() if path.name != "__init__.py")
    classes: Counter[str] = Counter()
    for path in source_files():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        classes.update({node.name for node in tree.body if isinstance(node, ast.ClassDef)})
    return sorted(n for n, count in files.items() if count > 1), sorted(n for n, count in classes.items() if count > 1)


@dataclass
class Walk:
    """The calls inside expost while one function runs."""

    depth: int = 0
    functions: set[tuple[str, str]] = field(default_factory=set)
    files: dict[str, list[str]] = field(default_factory=dict)
    switches: int = 0
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)

    def record(self, run: Callable[[], Any]) -> Any:
        """Run a function and record every call into expost."""
        prefix, known = str(SOURCE), dict[str, str | None]()

        def place_of(frame: FrameType) -> str | None:
            name = frame.f_code.co_filename
            if name not in known:
                known[name] = name[len(prefix) + 1 :] if name.startswith(prefix) else None
            return known[name]

        def watch(frame: FrameType, event: str, _: object) -> None:
            place = place_of(frame) if event == "call" else None
            if place is None:
                return
            function = frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name
            self.functions.add((place, function))
            self.files.setdefault(place, [])
            if function not in self.files[place]:
                self.files[place].append(function)
            callers, above = [], frame.f_back
            while above is not None:
                if (caller := place_of(above)) is not None:
                    callers.append(caller)
                above = above.f_back
            self.depth = max(self.depth, len(callers) + 1)
            here, there = package_of(place), package_of(callers[0]) if callers else None
            if there is not None and here != there:
                self.switches += 1
                self.pairs[there, here] += 1

        sys.setprofile(watch)
        try:
            return run()
        finally:
            sys.setprofile(None)

    def describe(self) -> dict[str, str]:
        """Return what is printed, by its name."""
        return {
            "call depth": f"{self.depth}",
            "functions": f"{len(self.functions)}",
            "files": f"{len(self.files)}",
            "package switches": f"{self.switches}",
        }


def package_of(place: str) -> str:
    """Return the first-level package or module of a source file."""
    return place.split("/", 1)[0].removesuffix(".py")


def walk_of_answer() -> Walk:
    """Record a grouped mean to an accuracy: one session, one question."""
    import numpy as np
    import pyarrow as pa

    import expost

    rows = np.arange(30_000)
    table = pa.table({"delay": (rows % 97).astype(float), "origin": pa.array(["EWR", "JFK", "LGA"] * 10_000)})
    dataset = expost.Dataset(
        table, name="flights", bounds={"delay": (0, 100)}, categories={"origin": ["EWR", "JFK", "LGA"]}
    )

    expost.Session(dataset, expost.epsilon(5)).mean("delay", by="origin", within=3)  # imports are not part of the walk
    session, walk = expost.Session(dataset, expost.epsilon(5)), Walk()
    walk.record(lambda: session.mean("delay", by="origin", within=3))
    return walk


def walk_of_fit() -> Walk:
    """Record a ridge regression to an accuracy: one estimator, one fit."""
    import numpy as np

    import expost

    rows = np.arange(20_000)
    features = np.column_stack([np.sin(rows), np.cos(rows * 0.7), np.sin(rows * 1.3)]) / 2
    target = features @ np.array([0.5, -0.3, 0.2])

    def fit() -> Any:
        return expost.Ridge(
            excess_risk=0.01, max_epsilon=5, regularization=0.01, feature_bound=1.0, target_bounds=1.0
        ).fit(features, target)

    fit()
    walk = Walk()
    walk.record(fit)
    return walk


def walk_pages() -> str:
    """Return the two walks as Markdown: each file in the order of its first call, and the function that is called."""
    parts = []
    for title, call, walk in (
        ("One answer, file by file", 'session.mean("delay", by="origin", within=3)', walk_of_answer()),
        ("One fit, file by file", "Ridge(excess_risk=0.01).fit(features, target)", walk_of_fit()),
    ):
        rows = [f"| `{place}` | `{named_first(functions)}` |" for place, functions in walk.files.items()]
        parts.append(f"## {title}\n\n`{call}`\n\n| file | entered at |\n| --- | --- |\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def named_first(functions: list[str]) -> str:
    """Return the first function that has a name of its own."""
    return next((name for name in functions if "<" not in name), functions[0])


def write_walks() -> None:
    """Put the walks into ARCHITECTURE.md, between their marks."""
    page = ROOT / "ARCHITECTURE.md"
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    page.write_text(before + BEGIN + "\n" + walk_pages() + END + rest.split(END)[1], encoding="utf-8")


def print_table(title: str, entries: dict[str, str]) -> None:
    """Print a title and one line per entry."""
    print(title)
    for name, value in entries.items():
        print(f"  {name:<32}{value:>16}")


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--walk", action="store_true", help="list the files of both walks with their functions")
    parser.add_argument("--by-package", action="store_true", help="print the shape of every package")
    parser.add_argument("--write", action="store_true", help="put the walks into ARCHITECTURE.md")
    options = parser.parse_args()
    if options.write:
        write_walks()
        return
    whole, mathematics, by_package = Shape(), Shape(), dict[str, Shape]()
    for path in source_files():
        text = path.read_text(encoding="utf-8")
        package = package_of(str(path.relative_to(SOURCE)))
        whole.add_file(text)
        by_package.setdefault(package, Shape()).add_file(text)
        if package in MATHEMATICS:
            mathematics.add_file(text)
    print_table("source", whole.describe())
    small = sum(path.read_text(encoding="utf-8").count("\n") < 75 for path in source_files())
    files, classes = repeated_names()
    print_table(
        "structure",
        {
            "files under 75 lines": f"{small}",
            "repeated file names": f"{len(files)}",
            "repeated class names": f"{len(classes)}",
            "comments per 100, mathematics": mathematics.describe()["comments per 100 lines"],
        },
    )
    if files or classes:
        print(f"  repeated: {', '.join([*files, *classes])}")
    if options.by_package:
        for package, shape in by_package.items():
            if shape.bodies:
                print_table(package, shape.describe())
    for title, walk in (("one answer (grouped mean)", walk_of_answer()), ("one fit (Ridge)", walk_of_fit())):
        print_table(title, walk.describe())
        if options.walk:
            for place, functions in walk.files.items():
                print(f"    {place}: {', '.join(functions)}")


if __name__ == "__main__":
    main()
