"""Published queries in SQL: which run, beside their answers without privacy, and the accuracy asked, reached and paid.

python -m benchmarks.sql [--scale 20000] [--only TPC-H]

The tables of TPC-H are made up here in its shapes, at customer level as in Wilson et al. 2020: every table that is about
customers has the customer's key, and what is about parts alone is public. The examples of SmartNoise SQL are those of its
documentation about a census sample, the ones of Tumult Analytics those of its tutorials about a library, written in SQL.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from expost import Dataset, Session
from expost.core import ExpostError, InvalidRequest, TargetNotMet
from expost.core.table_text import markdown_table
from expost.sql import read_statement

FLAGS, STATUS, MODES = ["A", "N", "R"], ["F", "O"], ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"]
PRIORITIES = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]
BRANDS, TYPES = [f"Brand#{k}" for k in range(1, 6)], ["PROMO TIN", "STANDARD TIN", "PROMO NICKEL", "SMALL BRASS"]
COMMENTS, SUPPLIERS = ["carefully final deposits", "special packages, pending requests"], 50
_ROUNDS = 15  # of parsing and planning each statement; the median counts
START, SPAN = datetime.datetime(1992, 1, 1), 2400
DATES = ("1992-01-01", "1999-12-31")


@dataclass(frozen=True)
class Example:
    """A query with the clause that is asked; ``instead`` is the nearest form, where the published one is refused."""

    name: str
    text: str
    clause: str
    instead: str = ""
    joined_rows: int | None = None


@dataclass(frozen=True)
class World:
    """Tables, how they are described, and the queries about them."""

    private: list[Dataset]
    tables: dict[str, pa.Table]
    public: dict[str, pa.Table]
    examples: list[Example]


def day(random: np.random.Generator, count: int, first: int = 0, last: int = SPAN) -> np.ndarray:
    """Draw days."""
    return np.datetime64(START, "us") + random.integers(first, last, count).astype("timedelta64[D]")


def make_tpch(customers: int) -> World:
    """Make up TPC-H at customer level, and its queries that are statistics about customers, or refuse them."""
    random = np.random.default_rng(1)
    orders_of = np.where(random.random(customers) < 1 / 3, 0, random.poisson(15, customers))
    cust = np.repeat(np.arange(customers), orders_of)
    count = len(cust)
    ordered = day(random, count)
    lines_of = random.integers(1, 8, count)
    order = np.repeat(np.arange(count), lines_of)
    lines = len(order)
    shipped = ordered[order] + random.integers(1, 122, lines).astype("timedelta64[D]")
    committed = ordered[order] + random.integers(30, 91, lines).astype("timedelta64[D]")
    quantity = random.integers(1, 51, lines)
    part = random.integers(0, 2000, lines)
    tables = {
        "customer": pa.table({"custkey": np.arange(customers), "nation": random.integers(0, 25, customers)}),
        "orders": pa.table(
            {
                "custkey": cust,
                "orderkey": np.arange(count),
                "orderdate": ordered,
                "orderpriority": random.choice(PRIORITIES, count),
                "comment": random.choice(COMMENTS, count, p=[0.99, 0.01]),
            }
        ),
        "lineitem": pa.table(
            {
                "custkey": cust[order],
                "orderkey": order,
                "partkey": part,
                "suppkey": random.integers(0, SUPPLIERS, lines),
                "quantity": quantity,
                "extendedprice": np.round(quantity * random.uniform(900, 2000, lines), 2),
                "discount": random.integers(0, 11, lines) / 100,
                "tax": random.integers(0, 9, lines) / 100,
                "returnflag": random.choice(FLAGS, lines),
                "linestatus": random.choice(STATUS, lines),
                "shipmode": random.choice(MODES, lines),
                "shipdate": shipped,
                "commitdate": committed,
                "receiptdate": shipped + random.integers(1, 31, lines).astype("timedelta64[D]"),
            }
        ),
    }
    supply = np.repeat(np.arange(2000), 4)
    tables["partsupp"] = pa.table({"suppkey": random.integers(0, 1000, len(supply)), "partkey": supply})
    said = random.choice(["quickly bold accounts", "Customer slept, Complaints"], 1000, p=[0.95, 0.05])
    tables["supplier"] = pa.table({"suppkey": np.arange(1000), "comment": said})
    public = {
        "suppliers": pa.table(
            {"suppkey": np.arange(SUPPLIERS), "name": [f"Supplier#{k:09d}" for k in range(SUPPLIERS)]}
        ),
        "part": pa.table(
            {
                "partkey": np.arange(2000),
                "brand": random.choice(BRANDS, 2000),
                "type": random.choice(TYPES, 2000),
                "size": random.integers(1, 51, 2000),
            }
        ),
    }
    terms: dict[str, Any] = {"unit": "custkey", "categories": {"orderpriority": PRIORITIES}}
    private = [
        Dataset(
            tables["lineitem"],
            name="lineitem",
            unit="custkey",
            max_rows_per_unit=150,
            max_groups_per_unit=50,
            bounds={"quantity": (1, 50), "extendedprice": (900, 105_000), "discount": (0, 0.1), "tax": (0, 0.08)}
            | dict.fromkeys(("shipdate", "commitdate", "receiptdate"), DATES),
            categories={"returnflag": FLAGS, "linestatus": STATUS, "shipmode": MODES},
        ),
        Dataset(
            tables["orders"],
            name="orders",
            max_rows_per_unit=30,
            max_groups_per_unit=5,
            bounds={"orderdate": DATES},
            **terms,
        ),
        Dataset(tables["customer"], name="customer", unit="custkey", max_rows_per_unit=1, bounds={"nation": (0, 24)}),
    ]
    same = "l.custkey = o.custkey AND l.orderkey = o.orderkey"
    urgent = "o.orderpriority = '1-URGENT' OR o.orderpriority = '2-HIGH'"
    other = "o.orderpriority <> '1-URGENT' AND o.orderpriority <> '2-HIGH'"
    promo = "extendedprice * (1 - discount)"
    late = "l1.receiptdate > l1.commitdate"
    waits = "l2.custkey = l1.custkey AND l2.orderkey = l1.orderkey"
    examples = [
        Example(
            "TPC-H Q1",
            "SELECT returnflag, linestatus, SUM(quantity) AS sum_qty, SUM(extendedprice) AS sum_base_price, "
            f"SUM({promo}) AS sum_disc_price, SUM({promo} * (1 + tax)) AS sum_charge, AVG(quantity) AS avg_qty, "
            "AVG(extendedprice) AS avg_price, AVG(discount) AS avg_disc, COUNT(*) AS count_order FROM lineitem WHERE "
            "shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY GROUP BY returnflag, linestatus ORDER BY returnflag, linestatus",
            "ERROR WITHIN 10% AT MOST EPSILON 6",
        ),
        Example(
            "TPC-H Q4",
            "SELECT orderpriority, COUNT(*) AS order_count FROM orders o WHERE orderdate >= DATE '1993-07-01' AND "
            f"orderdate < DATE '1993-07-01' + INTERVAL '3' MONTH AND EXISTS (SELECT * FROM lineitem l WHERE {same} AND "
            "l.commitdate < l.receiptdate) GROUP BY orderpriority ORDER BY orderpriority",
            "ERROR WITHIN 20% AT MOST EPSILON 3",
        ),
        Example(
            "TPC-H Q6",
            "SELECT SUM(extendedprice * discount) AS revenue FROM lineitem WHERE shipdate >= DATE '1994-01-01' AND shipdate < "
            "DATE '1994-01-01' + INTERVAL '1' YEAR AND discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01 AND quantity < 24",
            "ERROR WITHIN 10% AT MOST EPSILON 6",
        ),
        Example(
            "TPC-H Q12",
            f"SELECT l.shipmode, SUM(CASE WHEN {urgent} THEN 1 ELSE 0 END) AS high_line_count, SUM(CASE WHEN {other} THEN 1 "
            f"ELSE 0 END) AS low_line_count FROM lineitem l, orders o WHERE {same} AND l.shipmode IN ('MAIL', 'SHIP') AND "
            "l.commitdate < l.receiptdate AND l.shipdate < l.commitdate AND l.receiptdate >= DATE '1994-01-01' AND "
            "l.receiptdate < DATE '1994-01-01' + INTERVAL '1' YEAR GROUP BY l.shipmode ORDER BY l.shipmode",
            "ERROR WITHIN 20% AT MOST EPSILON 6",
            joined_rows=100,
        ),
        Example(
            "TPC-H Q13",
            "SELECT c_count, COUNT(*) AS custdist FROM (SELECT c.custkey, COUNT(o.orderkey) FROM customer c LEFT OUTER JOIN "
            "orders o ON c.custkey = o.custkey AND o.comment NOT LIKE '%special%requests%' GROUP BY c.custkey) AS "
            "c_orders (c_custkey, c_count) GROUP BY c_count ORDER BY custdist DESC, c_count DESC",
            "ERROR WITHIN 30",
        ),
        Example(
            "TPC-H Q14",
            f"SELECT 100.00 * SUM(CASE WHEN type LIKE 'PROMO%' THEN {promo} ELSE 0 END) / SUM({promo}) AS promo_revenue FROM "
            "lineitem, part WHERE lineitem.partkey = part.partkey AND shipdate >= DATE '1995-09-01' AND shipdate < "
            "DATE '1995-09-01' + INTERVAL '1' MONTH",
            "ERROR WITHIN 10% AT MOST EPSILON 6",
        ),
        Example(
            "TPC-H Q21",
            f"SELECT s.name, COUNT(*) AS numwait FROM lineitem l1, suppliers s WHERE s.suppkey = l1.suppkey AND {late} AND "
            f"EXISTS (SELECT * FROM lineitem l2 WHERE {waits} AND l2.suppkey <> l1.suppkey) GROUP BY s.name "
            "ORDER BY numwait DESC, s.name LIMIT 100",
            "ERROR WITHIN 10% AT MOST EPSILON 20",
            f"SELECT s.name, COUNT(*) AS numwait FROM lineitem l1, suppliers s WHERE s.suppkey = l1.suppkey AND {late} "
            "GROUP BY s.name ORDER BY numwait DESC, s.name LIMIT 100",
        ),
    ]
    return World(private, tables, public, examples)


def make_suppliers(tpch: World) -> World:
    """Return the query of TPC-H about suppliers, whose key is then the unit."""
    tables = {name: tpch.tables[name] for name in ("partsupp", "supplier")}
    private = [
        Dataset(tables["partsupp"], name="partsupp", unit="suppkey", max_rows_per_unit=20, max_groups_per_unit=5),
        Dataset(tables["supplier"], name="supplier", unit="suppkey", max_rows_per_unit=1),
    ]
    text = (
        "SELECT brand, COUNT(DISTINCT suppkey) AS supplier_cnt FROM partsupp, part WHERE part.partkey = partsupp.partkey AND "
        "brand <> 'Brand#5' AND type NOT LIKE 'MEDIUM POLISHED%' AND size IN (49, 14, 23, 45, 19, 3, 36, 9) AND suppkey NOT IN "
        "(SELECT suppkey FROM supplier WHERE comment LIKE '%Customer%Complaints%') GROUP BY brand ORDER BY supplier_cnt DESC"
    )
    example = Example("TPC-H Q16", text, "ERROR WITHIN 10% AT MOST EPSILON 6")
    return World(private, tables, tpch.public, [example])


def make_census(rows: int) -> World:
    """Make up a census sample as SmartNoise SQL uses, with the queries of its documentation."""
    random = np.random.default_rng(2)
    table = pa.table(
        {
            "pid": np.arange(rows),
            "age": random.integers(18, 91, rows),
            "sex": random.integers(0, 2, rows),
            "educ": random.integers(1, 17, rows),
            "race": random.integers(1, 7, rows),
            "income": np.round(np.minimum(random.lognormal(10, 1, rows), 500_000)),
            "married": random.random(rows) < 0.55,
        }
    )
    bounds = {"age": (0, 100), "sex": (0, 1), "educ": (1, 16), "race": (1, 6), "income": (0, 500_000)}
    private = [Dataset(table, name="PUMS", unit="pid", max_rows_per_unit=1, max_groups_per_unit=1, bounds=bounds)]
    clause = "ERROR WITHIN 5% AT MOST EPSILON 3"
    texts = [
        "SELECT COUNT(*) AS n, AVG(age) AS age FROM PUMS",
        "SELECT sex, AVG(age) AS age FROM PUMS GROUP BY sex",
        "SELECT married, COUNT(*) AS n, AVG(income) AS income FROM PUMS GROUP BY married",
        "SELECT educ, COUNT(DISTINCT pid) AS n FROM PUMS GROUP BY educ ORDER BY n DESC LIMIT 5",
        "SELECT sex, married, VAR_POP(age) AS var_age, STDDEV_POP(age) AS std_age FROM PUMS GROUP BY sex, married",
        "SELECT AVG(income) / 12 AS monthly FROM PUMS WHERE age > 30 AND educ >= 13",
        "SELECT race, SUM(income) AS total FROM PUMS GROUP BY race HAVING COUNT(*) > 100",
    ]
    examples = [Example(f"SmartNoise {place + 1}", text, clause) for place, text in enumerate(texts)]
    examples.append(
        Example("SmartNoise 8", "SELECT TOP 5 educ, COUNT(*) AS n FROM PUMS GROUP BY educ", clause, f"{texts[3]}")
    )
    examples.append(
        Example(
            "SmartNoise 9",
            "SELECT MIN(age), MAX(age) FROM PUMS",
            clause,
            "SELECT QUANTILE_CONT(age, 0.99) AS q FROM PUMS",
        )
    )
    return World(private, {"PUMS": table}, {}, examples)


def make_library(members: int) -> World:
    """Make up a library as the tutorials of Tumult Analytics use, with their queries."""
    random = np.random.default_rng(3)
    levels = [
        "bachelors-degree",
        "doctorate-professional",
        "high-school-graduate",
        "masters-degree",
        "up-to-high-school",
    ]
    table = pa.table(
        {
            "id": np.arange(members),
            "age": random.integers(5, 96, members),
            "education_level": random.choice(levels, members),
            "zip_code": random.choice([f"2{k:04d}" for k in range(50)], members),
            "books_borrowed": random.poisson(12, members),
            "date_joined": day(random, members),
        }
    )
    loans = pa.table(
        {
            "id": random.integers(0, members, 5 * members),
            "genre": random.choice(["Fantasy", "Crime", "Science"], 5 * members),
        }
    )
    private = [
        Dataset(
            table,
            name="members",
            unit="id",
            max_rows_per_unit=1,
            bounds={"age": (0, 120), "books_borrowed": (0, 100), "date_joined": DATES},
            categories={"education_level": levels},
        ),
        Dataset(
            loans,
            name="checkouts",
            unit="id",
            max_rows_per_unit=20,
            categories={"genre": ["Crime", "Fantasy", "Science"]},
        ),
    ]
    clause = "ERROR WITHIN 5% AT MOST EPSILON 3"
    texts = [
        ("SELECT COUNT(*) AS n FROM members", clause),
        (
            "SELECT COUNT(*) AS n FROM members WHERE education_level IN ('masters-degree', 'doctorate-professional')",
            clause,
        ),
        (
            "SELECT education_level, AVG(age) AS age, STDDEV_POP(age) AS sd FROM members GROUP BY education_level",
            clause,
        ),
        (
            "SELECT FLOOR(age / 10) * 10 AS decade, SUM(books_borrowed) AS books FROM members GROUP BY decade",
            "ERROR WITHIN 500",
        ),
        ("SELECT MEDIAN(books_borrowed) AS books FROM members", "ERROR WITHIN 3 AT MOST EPSILON 3"),
        ("SELECT YEAR(date_joined) AS y, COUNT(*) AS n FROM members GROUP BY y ORDER BY y", "ERROR WITHIN 30"),
        ("SELECT zip_code, COUNT(*) AS n FROM members GROUP BY zip_code", "WITH EPSILON 1 WITH DELTA 1e-6"),
        ("SELECT genre, COUNT(*) AS n, AVG(age) AS age FROM checkouts JOIN members USING (id) GROUP BY genre", clause),
        ("SELECT AVG(loans) AS loans FROM (SELECT id, COUNT(*) AS loans FROM checkouts GROUP BY id)", clause),
    ]
    examples = [Example(f"Tumult {place + 1}", text, asked) for place, (text, asked) in enumerate(texts)]
    return World(private, {"members": table, "checkouts": loans}, {}, examples)


def run_example(world: World, database: Any, example: Example) -> Iterator[list[Any]]:
    """Yield a line for the published query, and one for its nearest form if it is refused."""
    for text, name in ((example.text, example.name), (example.instead, f"{example.name}, nearest form")):
        if not text:
            return
        session = Session(world.private[0], (1000, 1e-3), tables=world.private[1:])
        try:
            terms: dict[str, Any] = {"tables": world.public, "max_rows_per_unit": example.joined_rows}
            release = session.sql(f"{text} {example.clause}", **terms)
        except InvalidRequest as refusal:
            yield [name, "refused", str(refusal).split(" Look at the mark")[0], "", "", "", ""]
            continue
        except TargetNotMet as missed:
            release = missed.release
        except ExpostError as error:
            yield [name, "refused", str(error), "", "", "", ""]
            continue
        exact = database.execute(text).fetchall()
        reached = largest_error(release, exact, relative="%" in example.clause)
        first = (
            ", ".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in release.value[0])
            if len(release)
            else ""
        )
        beside = next((row for row in exact if release.value and same_key(row, release)), exact[0] if exact else ())
        shown = ", ".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in beside)
        met = sum(release.met)
        yield [
            name,
            f"runs, {met} of {len(release)} rows met" if len(release) > 1 else "runs" if met else "runs, not met",
            first,
            shown,
            example.clause.split(" AT MOST")[0].replace("ERROR WITHIN ", "").replace("WITH EPSILON", "epsilon"),
            reached,
            str(release.receipt.in_all),
        ]
        return


def same_key(row: tuple[Any, ...], release: Any) -> bool:
    """Whether a row of DuckDB has the groups of the first row of a release."""
    return all(
        measured or str(mine) == str(theirs) or mine == theirs
        for mine, theirs, measured in zip(release.value[0], row, release.measured, strict=True)
    )


def largest_error(release: Any, exact: list[tuple[Any, ...]], *, relative: bool) -> str:
    """Return the largest error of rows that met the target, relative or not."""

    def key(row: tuple[Any, ...]) -> tuple[str, ...]:
        cells = (each for each, measured in zip(row, release.measured, strict=True) if not measured)
        return tuple(f"{float(each):g}" if isinstance(each, int | float) else str(each) for each in cells)

    expected = {key(row): row for row in exact}
    errors = []
    for row, met in zip(release.value, release.met, strict=True):
        truth = expected.get(key(row))
        for mine, theirs, measured in zip(row, truth or row, release.measured, strict=True):
            if measured and met and truth is not None and mine is not None and theirs:
                error = abs(float(mine) - float(theirs))
                errors.append(error / abs(float(theirs)) if relative else error)
    if not errors:
        return "none met"
    return f"{100 * max(errors):.2g}%" if relative else f"{max(errors):.3g}"


def time_planning(world: World) -> tuple[float, float]:
    """Return median and largest milliseconds of parsing and planning, warm."""
    found = []
    for example in world.examples:
        tables = {each.name or "": each for each in world.private}
        for text in (example.text, example.instead):
            try:
                took = []
                for _ in range(_ROUNDS):
                    start = time.process_time()
                    statement = read_statement(f"{text} {example.clause}", tables, public=world.public)
                    statement.query.plan(statement.dataset)
                    took.append(1000 * (time.process_time() - start))
                found.append(float(np.median(took)))
            except ExpostError:
                continue
    return float(np.median(found)), float(max(found))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=20_000, help="customers, persons and members")
    parser.add_argument("--only", default="", help="queries whose name begins so, such as TPC-H")
    parser.add_argument("--json", help="write the numbers to this file, too")
    given = parser.parse_args()
    scale = given.scale
    tpch = make_tpch(scale)
    lines: list[list[Any]] = []
    timed = []
    for world in (tpch, make_suppliers(tpch), make_census(scale), make_library(scale)):
        chosen = [each for each in world.examples if each.name.startswith(given.only)]
        if not chosen:
            continue
        database = duckdb.connect()
        for name, table in {**world.tables, **world.public}.items():
            database.register(name, table)
        for example in chosen:
            lines += run_example(world, database, example)
        timed.append(time_planning(world))
    head = ["query", "", "first row, or the reason", "the same without privacy", "asked", "largest error", "paid"]
    print(markdown_table(head, lines))
    print("\nparse and plan, ms of CPU (median, largest) by source:", [(round(a, 1), round(b, 1)) for a, b in timed])
    if given.json:
        Path(given.json).write_text(
            json.dumps(
                {"queries": [dict(zip(head, map(str, each), strict=True)) for each in lines], "milliseconds": timed}
            )
        )


if __name__ == "__main__":
    main()
