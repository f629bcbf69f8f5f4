"""Random statements, and the tables that they are about: missing values, signed zeros, repeats, empty groups."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from expost import Dataset

__all__ = [
    "CITIES",
    "ITEMS",
    "PUBLIC",
    "RandomStatement",
    "describe_tables",
    "draw_rows",
    "draw_statement",
    "items_of",
    "to_table",
]

CITIES = ["", "a", "ab", "b", "B_", "c%d"]
START = datetime.datetime(2023, 11, 28)
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "x": pa.float64(),
        "n": pa.int64(),
        "city": pa.string(),
        "flag": pa.bool_(),
        "seen": pa.timestamp("us"),
    }
)
PEOPLE = pa.schema({"id": pa.int64(), "age": pa.int64(), "job": pa.string()})
PUBLIC = pa.table({"city": ["a", "b", "c%d"], "size": [3, 1, 2], "land": ["I", "N", "I"]})

Random = np.random.Generator
Row = dict[str, Any]


def draw_rows(random: Random, count: int, *, ids: int = 12, table: str = "visits") -> list[Row]:
    """Draw rows, some of whose cells are missing. Reals are halves, so that no step of a grid rounds them."""
    return [_draw_row(random, ids, table) for _ in range(count)]


def _draw_row(random: Random, ids: int, table: str) -> Row:
    def maybe(value: Any, missing: float = 0.15) -> Any:
        return None if random.random() < missing else value

    identity = maybe(int(random.integers(ids)), 0.05)
    if table == "people":
        return {
            "id": identity,
            "age": maybe(int(random.integers(18, 60))),
            "job": maybe(str(random.choice(["s", "t"]))),
        }
    x = float(random.integers(-16, 17)) / 2
    return {
        "id": identity,
        "x": maybe(-0.0 if x == 0 and random.random() < 0.5 else x),
        "n": maybe(int(random.integers(-4, 5))),
        "city": maybe(str(random.choice(CITIES[:5]))),
        "flag": maybe(bool(random.random() < 0.4)),
        "seen": maybe(START + datetime.timedelta(hours=int(random.integers(0, 24 * 100)))),
    }


def to_table(rows: list[Row], table: str = "visits") -> pa.Table:
    """Return rows as an Arrow table."""
    return pa.Table.from_pylist(rows, SCHEMA if table == "visits" else PEOPLE)


def describe_tables(visits: Any, people: Any, *, unit: str = "id", most: int = 200) -> tuple[Dataset, Dataset | None]:
    """Return both tables with descriptions that clip nothing."""
    limits: dict[str, Any] = (
        {} if unit == "row" else {"unit": unit, "max_rows_per_unit": most, "max_groups_per_unit": most}
    )
    first = Dataset(
        visits,
        name="visits",
        bounds={"x": (-8, 8), "n": (-4, 4), "seen": ("2023-11-28", "2024-03-31")},
        categories={"city": CITIES},
        **limits,
    )
    if unit == "row":
        return first, None
    second = Dataset(
        people,
        name="people",
        bounds={"age": (18, 60)},
        categories={"job": ["s", "t", "u"]},
        **limits | {"max_rows_per_unit": 20},
    )
    return first, second


@dataclass(frozen=True)
class RandomStatement:
    """A statement, how many of its first columns are groups, and the kind of each statistic: exact, real, spread or free."""

    text: str
    keys: int
    kinds: tuple[str, ...]
    having: bool


def draw_statement(random: Random, *, persons: bool, picks: bool = False) -> RandomStatement:
    """Draw a statement without accuracy clauses.

    ``persons`` allows joins and views per person, ``picks`` statistics of order and values, whose answers without noise are
    not those of a database.
    """
    shape = int(random.integers(10)) if persons else 0
    source, scope, unit = _draw_source(random, shape)
    writer = _Writer(random, scope, unit)
    keys = [writer.group() for _ in range(int(random.choice([0, 1, 1, 2])))]
    outputs = [writer.output() for _ in range(int(random.integers(1, 4)))]
    if picks and random.random() < 0.3:
        outputs[-1] = writer.pick_statistic(grouped=bool(keys))
    conditions = [f"({key}) IS NOT NULL" for key in keys]
    if shape == 8:
        conditions.append("visits.id = people.id")
    if random.random() < 0.5:
        conditions.append(writer.condition(2))
    if persons and random.random() < 0.2:
        conditions.append(writer.match())
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    columns = [f"{key} AS k{place}" for place, key in enumerate(keys)]
    columns += [f"{text} AS v{place}" for place, (text, _) in enumerate(outputs)]
    having = bool(keys) and random.random() < 0.3
    places = ["ALL", ", ".join(str(place + 1) for place in range(len(keys)))]
    places = places[having:]  # DuckDB also groups by what HAVING names
    by = str(random.choice([*places, ", ".join(f"k{place}" for place in range(len(keys)))]))
    tail = f" GROUP BY {by}" if keys else ""
    if having:
        tail += f" HAVING COUNT(*) > {int(random.integers(3))}" + (
            " AND k0 IS NOT NULL" if random.random() < 0.5 else ""
        )
        if random.random() < 0.5:
            tail += (
                f" ORDER BY {', '.join(f'k{place}' for place in range(len(keys)))} LIMIT {int(random.integers(1, 6))}"
            ) + (" OFFSET 1" if random.random() < 0.3 else "")
    return RandomStatement(
        f"{source[0]}SELECT {', '.join(columns)} FROM {source[1]}{where}{tail}",
        len(keys),
        tuple(kind for _, kind in outputs),
        having,
    )


VISITS = {"numbers": ["x", "n"], "cities": ["city"], "flags": ["flag"], "times": ["seen"]}


def _draw_source(random: Random, shape: int) -> tuple[tuple[str, str], dict[str, list[str]], str]:
    """Return what comes before SELECT and after FROM, the columns by kind, and the id."""
    if shape in (0, 1, 2):
        return ("", "visits"), VISITS, "id"
    inner = _Writer(random, VISITS, "id")
    if shape == 3:
        number = inner.number(1)
        view = f"SELECT id, {number} AS y, city, flag, seen, n FROM visits WHERE {inner.condition(1)}"
        scope = VISITS | {"numbers": [f"LEAST(GREATEST(y, {-9}), 9)", "n"]}
        return (f"WITH v AS ({view}) ", "v"), scope, "id"
    if shape == 4:
        side = str(random.choice(["JOIN", "LEFT JOIN"]))
        scope = VISITS | {"numbers": ["x", "n", "age"], "jobs": ["job"]}
        return ("", f"visits {side} people USING (id)"), scope, "visits.id"
    if shape == 5:
        side = str(random.choice(["JOIN", "LEFT JOIN"]))
        scope = VISITS | {
            "numbers": ["v.x", "p.age"],
            "jobs": ["p.job"],
            "cities": ["v.city"],
            "flags": ["v.flag"],
            "times": ["v.seen"],
        }
        more = " AND p.age > 30" if random.random() < 0.5 else ""
        return ("", f"visits AS v {side} people p ON v.id = p.id{more}"), scope, "v.id"
    if shape == 6:
        side = str(random.choice(["JOIN", "LEFT JOIN"]))
        scope = VISITS | {"numbers": ["x", "size"], "cities": ["visits.city"], "lands": ["land"]}
        return ("", f"visits {side} places ON visits.city = places.city"), scope, "id"
    if shape == 8:
        scope = VISITS | {"numbers": ["x", "n", "age"], "jobs": ["job"]}
        return ("", str(random.choice(["visits, people", "visits CROSS JOIN people"]))), scope, "visits.id"
    if shape == 9:
        kind = str(random.choice(["SEMI JOIN", "ANTI JOIN"]))
        more = " AND people.age > 30" if random.random() < 0.5 else ""
        return ("", f"visits {kind} people ON visits.id = people.id{more}"), VISITS, "visits.id"
    where = f" WHERE {inner.condition(1)}" if random.random() < 0.5 else ""
    having = " HAVING COUNT(*) > 1" if random.random() < 0.3 else ""
    count = str(random.choice(["COUNT(x)", "COUNT(*) FILTER (WHERE flag)", "COUNT(*)"]))
    total = str(random.choice(["SUM(n)", f"SUM({inner.number(0)})", "SUM(n) FILTER (WHERE x > 0)"]))
    top = str(random.choice(["MAX(x)", "MIN(x)", "MAX(x) - MIN(x)"]))
    view = f"SELECT id, {total} AS total, {count} AS xs, {top} AS top, AVG(n) AS mid FROM visits{where} GROUP BY id{having}"
    if random.random() < 0.2:
        return (
            (f"WITH v AS (SELECT DISTINCT id FROM visits{where}) ", "v JOIN people USING (id)"),
            {
                "numbers": ["age"],
                "jobs": ["job"],
                "cities": [],
                "flags": ["(age > 30)"],
                "times": [],
            },
            "id",
        )
    scope = {"numbers": ["total", "xs", "top", "mid"], "cities": [], "flags": ["(xs > 1)"], "times": []}
    return ("", f"({view}) AS persons"), scope, "id"


@dataclass(frozen=True)
class _Writer:
    """Writes random parts of statements from columns by kind."""

    random: Random
    scope: dict[str, list[str]]
    unit: str

    def pick(self, kind: str) -> str:
        return str(self.random.choice(self.scope[kind]))

    def number(self, depth: int) -> str:
        """Write a number of a row."""
        if depth <= 0 or self.random.random() < 0.3:
            return self.pick("numbers")
        a, b = self.number(depth - 1), self.number(depth - 1)
        forms = [
            f"{a} + {b}",
            f"({a} - 1)",
            f"{a} * 2",
            f"ABS({a})",
            f"FLOOR({a})",
            f"CEIL({a})",
            f"ROUND({a})",
            f"ROUND({a} / 4, 1)",
            f"COALESCE({a}, {b})",
            f"CASE WHEN {self.condition(depth - 1)} THEN {a} ELSE {b} END",
            f"CASE WHEN {self.condition(depth - 1)} THEN 1 ELSE 0 END",
            f"GREATEST({a}, {b})",
            f"LEAST({a}, 3)",
            f"NULLIF({a}, 0)",
            f"CAST({a} AS DOUBLE)",
            f"({a} / 2)",
            f"LEAST(GREATEST({a} / NULLIF({b}, 0), -4), 4)",
            f"-({a})",
        ]
        forms += [f"IF({self.condition(depth - 1)}, {a}, {b})", f"CASE WHEN {self.condition(depth - 1)} THEN {a} END"]
        if "n" in self.scope["numbers"]:
            forms += [
                "n % 3",
                "CAST(n AS DOUBLE) / 2",
                "CAST(n AS BIGINT)",
                "MOD(n, 3)",
                "TRY_CAST(n AS VARCHAR)::DOUBLE",
            ]
        if "x" in self.scope["numbers"]:
            forms += ["CAST(x + 0.25 AS BIGINT)", "CAST(x AS BIGINT)"]
        if self.scope["cities"]:
            forms += [
                f"LEAST(LENGTH({self.pick('cities')}), 9)",
                f"LEAST(TRY_CAST({self.pick('cities')} AS DOUBLE), 9)",
            ]
        if self.scope["times"]:
            when = self.pick("times")
            forms += [
                f"EXTRACT(MONTH FROM {when})",
                f"HOUR({when})",
                f"EXTRACT(ISODOW FROM {when})",
                f"DAYOFWEEK({when})",
                f"EXTRACT(DOW FROM {when})",
                f"WEEK({when})",
                f"EXTRACT(DOY FROM {when})",
                f"DATE_PART('quarter', {when})",
                f"DAY({when}) + MINUTE({when}) + SECOND({when})",
            ]
        if self.scope["flags"]:
            forms.append(f"CAST({self.pick('flags')} AS INTEGER)")
        return str(self.random.choice(forms))

    def condition(self, depth: int) -> str:
        """Write a condition on a row."""
        if depth > 0 and self.random.random() < 0.4:
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            return str(self.random.choice([f"({a} AND {b})", f"({a} OR {b})", f"NOT ({a})"]))
        number = self.number(min(depth, 1))
        sign = str(self.random.choice(["=", "<>", "<", "<=", ">", ">="]))
        forms = [
            f"{number} {sign} {int(self.random.integers(-3, 4))}",
            f"{number} {sign} {self.pick('numbers')}",
            f"{number} BETWEEN -2 AND 2.5",
            f"{number} IS NULL",
            f"{number} NOT IN (1, 2)",
            f"{number} IN (0, 1, NULL)",
            f"{number} NOT BETWEEN 0 AND 2",
            f"{number} BETWEEN 0.6 - 0.1 AND 0.1 + 0.2 + 1.7",
            f"{number} > 0.07 * 100 - 6.5",
            f"{number} IS DISTINCT FROM {self.pick('numbers')}",
            f"{number} IS NOT DISTINCT FROM 1",
        ]
        if self.scope["cities"]:
            city = self.pick("cities")
            forms += [
                f"{city} {sign} 'ab'",
                f"{city} IN ('a', 'b')",
                f"{city} LIKE '{self.random.choice(['a%', '%b%', '_', 'B__', ''])}'",
                f"{city} NOT LIKE '%a'",
                f"{city} IS NOT NULL",
                f"LENGTH({city}) > 1",
                f"UPPER({city}) = 'A'",
                f"SUBSTRING({city}, 1, 1) = 'a'",
                f"{city} || 'x' = 'ax'",
                f"{city} ILIKE 'A%'",
                f"{city} NOT ILIKE '%B'",
                f"STARTS_WITH({city}, 'a')",
                f"CONTAINS({city}, 'b')",
                f"LEFT({city}, 1) = 'a'",
                f"TRIM({city} || ' ') = LOWER({city})",
                f"CONCAT({city}, 'x') = 'x'",
                f"COALESCE({city}, 'a') = 'a'",
                f"NULLIF({city}, 'a') IS NULL",
                f"CASE {city} WHEN 'a' THEN TRUE WHEN 'b' THEN FALSE END",
            ]
        if self.scope["times"]:
            when = self.pick("times")
            forms += [
                f"{when} {sign} TIMESTAMP '2024-01-05 12:00:00'",
                f"{when} < '2024-02-01'",
                f"YEAR({when}) = 2024",
                f"CAST({when} AS DATE) = DATE '2024-01-05'",
                f"DATE_TRUNC('month', {when}) > DATE '2023-12-01'",
                f"{when} BETWEEN '2024-01-05' AND '2024-02-01 12:00:00'",
                f"{when}::DATE IN ('2024-01-05', DATE '2024-01-06')",
                f"{when} >= DATE '2024-02-29' - INTERVAL 1 MONTH",
                f"{when} < TIMESTAMP '2023-12-31 00:00:00' + INTERVAL '36' HOUR",
                f"DATE_TRUNC('week', {when}) = DATE_TRUNC('week', TIMESTAMP '2024-01-05')",
            ]
        if self.scope["flags"]:
            flag = self.pick("flags")
            forms += [flag, f"NOT {flag}", f"{flag} IS TRUE", f"{flag} IS NOT FALSE", f"{flag} IS NULL"]
        return str(self.random.choice(forms))

    def match(self) -> str:
        """Write a condition on whether the same person has rows in another table."""
        more = str(self.random.choice(["", " AND w.n > 0", " AND w.flag"]))
        sign = str(self.random.choice(["", "NOT "]))
        forms = [
            f"{self.unit} {sign}IN (SELECT id FROM people WHERE age > 30)",
            f"{sign}EXISTS (SELECT * FROM visits w WHERE w.id = {self.unit}{more})",
            f"(EXISTS (SELECT 1 FROM people q WHERE q.id = {self.unit} AND q.job = 's') OR {self.condition(0)})",
        ]
        if self.unit == "visits.id":
            forms.append(f"{sign}EXISTS (SELECT * FROM visits w WHERE w.id = visits.id AND w.n = visits.n AND w.x > 0)")
        if self.unit == "id":
            forms = forms[:1]
        return str(self.random.choice(forms))

    def pick_statistic(self, *, grouped: bool) -> tuple[str, str]:
        """Write a statistic of order or of values."""
        number = self.number(1)
        forms = [
            f"MEDIAN({number})",
            f"QUANTILE_CONT({number}, 0.9)",
            f"PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY {number})",
            f"CORR({self.number(0)}, {self.number(0)})",
        ]
        if self.scope["cities"]:
            forms.append(f"MODE({self.pick('cities')})")
        if not grouped:
            forms += [f"MIN({number})", f"MAX({number})"]
        return str(self.random.choice(forms)), "pick"

    def group(self) -> str:
        """Write something to group by."""
        forms: list[str] = []
        if self.scope["cities"]:
            forms += [self.pick("cities")] * 3
            forms.append(f"CASE WHEN {self.condition(1)} THEN 'yes' ELSE 'no' END")
            forms += [f"COALESCE({self.pick('cities')}, 'a')", f"UPPER({self.pick('cities')})"]
        if self.scope["flags"]:
            forms.append(self.pick("flags"))
        if self.scope["times"]:
            when = self.pick("times")
            forms += [f"MONTH({when})", f"DATE_TRUNC('month', {when})", f"YEAR({when})", f"CAST({when} AS DATE)"]
            forms += [f"WEEK({when})", f"DATE_TRUNC('week', {when})", f"HOUR({when})", f"DAYOFWEEK({when})"]
        if "n" in self.scope["numbers"]:
            forms += ["n", "n % 3", "2 * n + 1"]
        if "x" in self.scope["numbers"]:
            forms += ["FLOOR(x / 4)", "FLOOR(x / 4) * 4", "CEIL(x)"]
        forms += [each for kind in ("jobs", "lands") for each in self.scope.get(kind, [])]
        if "xs" in self.scope["numbers"]:
            forms += ["xs", "FLOOR(total / 10)"]
        return str(self.random.choice(forms))

    def statistic(self) -> tuple[str, str]:
        """Write one aggregate."""
        number = self.number(2)
        forms = [
            ("COUNT(*)", "exact"),
            (f"COUNT({number})", "exact"),
            (f"SUM({number})", "real"),
            (f"AVG({number})", "real"),
            (f"COUNT(DISTINCT {self.unit})", "exact"),
            (f"SUM({self.number(1)})", "real"),
            (f"AVG({self.number(0)})", "real"),
            (f"VAR_POP({self.number(0)})", "spread"),
            (f"STDDEV_POP({self.number(0)})", "root"),
            (f"VAR_SAMP({self.number(0)})", "spread"),
            (f"STDDEV({self.number(0)})", "root"),
            (f"COVAR_POP({self.number(0)}, {self.number(0)})", "spread"),
            (f"COUNT(*) FILTER (WHERE {self.condition(1)})", "exact"),
            (f"SUM({self.number(1)}) FILTER (WHERE {self.condition(0)})", "real"),
            (f"COUNT_IF({self.condition(1)})", "exact"),
        ]
        forms.append((f"SUM({self.number(1)}) / COUNT(*)", "real"))
        if self.scope["cities"]:
            forms.append((f"COUNT({self.pick('cities')})", "exact"))
        if "flag" in self.scope["flags"]:
            forms += [("SUM(flag)", "real"), ("COUNT(flag)", "exact")]
        place = int(self.random.integers(len(forms)))
        return forms[place]

    def output(self) -> tuple[str, str]:
        """Write a column of the result: an aggregate, or arithmetic with some."""
        first, kind = self.statistic()
        if self.random.random() < 0.7:
            return first, kind
        forms = [
            (f"{first} * 2 - COUNT(*)", kind),
            (f"{first} / 4", kind),
            (f"ABS({first})", kind),
            (f"COALESCE({first}, 0)", "free"),
            (f"SUM({self.number(0)}) / NULLIF(COUNT(*), 0)", "real"),
            (f"GREATEST({first if kind == 'exact' else 3}, COUNT(*))", "exact" if kind == "exact" else "free"),
            ("100.0 * COUNT(*) FILTER (WHERE n > 0) / COUNT(*)", "real")
            if "n" in self.scope["numbers"]
            else (first, kind),
            (f"-({first}) + 1", kind),
        ]
        place = int(self.random.integers(len(forms)))
        return forms[place]


_WORDS = """AVG, SUM, VAR_POP, STDDEV_POP, VAR_SAMP, STDDEV, COVAR_POP, COUNT_IF, CASE, CAST, TRY_CAST, COALESCE, NULLIF, LEAST,
GREATEST, ABS, FLOOR, CEIL, ROUND, LOWER, UPPER, TRIM, LENGTH, SUBSTRING, CONCAT, STARTS_WITH, CONTAINS, LEFT, IF, MOD, YEAR, MONTH,
DAY, HOUR, MINUTE, SECOND, WEEK, DAYOFWEEK, DATE_PART, DATE_TRUNC, LIKE, ILIKE, BETWEEN, OFFSET, LIMIT, HAVING, INTERVAL, NOT LIKE,
NOT ILIKE, NOT BETWEEN, NOT IN, IS NULL, IS NOT NULL, IS TRUE, IS NOT FALSE, IS DISTINCT FROM, IS NOT DISTINCT FROM, ORDER BY,
GROUP BY ALL, GROUP BY k0, LEFT JOIN, CROSS JOIN, SEMI JOIN, ANTI JOIN, SELECT DISTINCT id, JOIN people, JOIN places"""
ITEMS = {
    **{" ".join(words.split()): rf"(?<!\w){' '.join(words.split())}(?!\w)" for words in _WORDS.split(",")},
    "COUNT(*)": r"COUNT\(\*\)",
    "COUNT(x)": r"COUNT\([^*D]",
    "COUNT(DISTINCT id)": r"COUNT\(DISTINCT",
    "FILTER": r"FILTER \(WHERE",
    "a quotient": r"\) / (NULLIF\()?COUNT",
    "a comma join": "visits, people",
    "a common table": "^WITH v",
    "a row per person": "GROUP BY id",
    "EXISTS": r"(?<!NOT )EXISTS",
    "NOT EXISTS": "NOT EXISTS",
    "IN (SELECT)": r"(?<!NOT )IN \(SELECT",
    "NOT IN (SELECT)": r"NOT IN \(SELECT",
    "a time in a list": "::DATE IN",
    "times between texts": "BETWEEN '2024",
    "a time and a text": r"seen < '2024",
    "||": r"\|\|",
    "%": r"% 3",
}
"""Regular expressions that find the items of the subset in a statement."""


def items_of(text: str) -> list[str]:
    """Return the items of the subset that a statement has."""
    return [name for name, pattern in ITEMS.items() if re.search(pattern, text)]
