"""Expressions print as SQL and refuse what they cannot mean."""

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expost.core import InvalidRequest
from expost.data import col, when
from expost.data.expression import Expression, Literal
from expost.data.sql_expression import parse_sql

EXPRESSIONS: list[Expression] = [
    col("age") >= 65,
    (col("age") + 1) * 2 - col("b") / 3 % 4,
    ~(col("a") < 1) | (col("b") != "it's") & (col("c") == True),  # noqa: E712
    col("city").isin(["Rome", "Oslo"]),
    col("x").between(1, 2),
    col("x").is_missing(),
    col("x").fill(0) > 1,
    col("strange name") > -1.5,
    col("t") >= datetime.datetime(2013, 1, 2, 3, 4, 5),
    col("t").year() == 2013,
    col("name").lower().starts_with("a"),
    col("name").contains("b") | (col("name").length() > 3),
    col("text").as_number() > 3,
    -col("x") < 0,
    2 / col("x") > 1,
    col("AND") == 1,
    col("name").like("a%_"),
    col("name").ilike("A%"),
    col("name").trim().substring(2, 3).concat("-", col("b")) == "x",
    col("x").least(1, col("y")) > col("x").greatest(2),
    col("x").fill(col("y"), 0) > 1,
    col("x").round(2) == 0.25,
    col("x").bin(10) == 0,
    col("x").bin(10, 0, 5) == 0,
    col("when").date_trunc("month") == datetime.datetime(2013, 1, 1),
    col("text").strptime("%d.%m.%Y").quarter() == 2,
    col("x").cast("text") == "3",
    when(col("end") > 1).then("a").when(col("when").is_missing()).then(col("else")).otherwise(None),
    when(col("x") == 1).then(2),
    7 % col("x") == 1,
]


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=repr)
def test_what_an_expression_prints_reads_back_as_itself(expression: Expression) -> None:
    assert repr(parse_sql(repr(expression))) == repr(expression)


def test_an_expression_names_the_columns_it_reads() -> None:
    assert ((col("a") + col("b")) > col("a")).columns() == {"a", "b"}


def test_python_logic_is_refused_because_it_would_ask_for_a_single_truth() -> None:
    with pytest.raises(InvalidRequest, match="&"):
        bool(col("a") > 1 and col("b") > 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1], {"a": 1}, object()])
def test_constants_are_plain_finite_values(value: object) -> None:
    with pytest.raises(InvalidRequest):
        Literal(value)  # type: ignore[arg-type]


def test_a_text_that_no_ledger_can_store_is_refused_in_these_words() -> None:
    for text in ("\0", "a\0b", "\ud800", "a\udfff"):
        for build in (lambda text: col("a") == text, lambda text: parse_sql(f"a in ('b', '{text}')")):
            with pytest.raises(InvalidRequest, match="whole characters without NUL"):
                build(text)
    assert parse_sql("a = '\U0001f600'") is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "age >",
        "age >= 65;",
        "age; drop table people",
        "select * from people",
        "age in (select 1)",
        "age in (b)",
        "exists (age)",
        "system('rm')",
        "age = 1 or",
        "(age = 1",
        "age = 'x",
        "age -- comment",
        "age = 1 /* x */",
        "abs(1, 2) > 1",
        "NOT",
        "a NOT b",
        "TIMESTAMP 'yesterday' > t",
        "(" * 200 + "1" + ")" * 200,
        "age @ 3",
        "case when a then b",
        "case a end",
        "cast(a as json)",
        "cast(a, text)",
        "a::",
        "extract(age from born)",
        "a like b",
        "a not like",
        "coalesce(a)",
    ],
)
def test_text_outside_the_subset_is_refused_and_the_place_is_marked(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^Expected ") as refusal:
        parse_sql(text)
    *_, shown, mark = str(refusal.value).split("\n")
    assert mark.strip() == "^"
    assert len(mark) <= len(shown) + 1


@pytest.mark.parametrize(
    ("text", "marked", "hint"),
    [
        ("age > 3 an city = 'Rome'", "an", "Did you mean AND?"),
        ("monht(born) = 3", "monht", "Did you mean month?"),
        ("age > 3 and (city = 'Rome'", "", "before the end"),
        ("case when a then 1 elsee 2 end", "elsee", "END"),
        ("cast(a as intege)", "intege", "Did you mean integer?"),
        ("name like city", "city", "pattern in quotes"),
        ("a in (1, b, 3)", "b", "constants"),
        ("extract(moth from born) = 3", "moth", "Did you mean month?"),
        ("x" * 200 + " = 1 ; y" + " " * 100, ";", "known functions"),
    ],
)
def test_an_error_marks_the_place_and_guesses_the_word(text: str, marked: str, hint: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse_sql(text)
    *_, shown, mark = str(refusal.value).split("\n")
    assert hint in str(refusal.value)
    assert shown[mark.index("^") :].startswith(marked)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a = 1 OR b = 2 AND NOT c = 3", "((a = 1) OR ((b = 2) AND (NOT (c = 3))))"),
        ("a + b * c - d > 1", "(((a + (b * c)) - d) > 1)"),
        ("-3 < a", "(-3 < a)"),
        ("a NOT IN (1, 2)", "(NOT (a IN (1, 2)))"),
        ("a NOT BETWEEN 1 AND 2", "(NOT ((a >= 1) AND (a <= 2)))"),
        ("a IS NOT NULL", "(NOT (a IS NULL))"),
        ("A != 'x''y'", "(A <> 'x''y')"),
        ('"a b" = .5', '("a b" = 0.5)'),
        ("a = 1e3", "(a = 1000.0)"),
        ("not not a = 1", "(a = 1)"),
        ("a == 1 and b != 2", "((a = 1) AND (b <> 2))"),
        ("a not like 'x%' or a ilike 'X_'", "((NOT (a LIKE 'x%')) OR (lower(a) LIKE 'x_'))"),
        ("a || b || 'c' = d", "(((a || b) || 'c') = d)"),
        ("-a::int > 1", "((0 - integer(a)) > 1)"),
        ("try_cast(a as double) > cast(b as timestamp)", "(number(a) > time(b))"),
        (
            "case a when 1 then 'x' when 2 then 'y' end",
            "CASE WHEN (a = 1) THEN 'x' WHEN (a = 2) THEN 'y' ELSE NULL END",
        ),
        ("case when when = 1 then then else else end", "CASE WHEN (when = 1) THEN then ELSE else END"),
        ("extract(month from when) = ceiling(x)", "(month(when) = ceil(x))"),
        ("substr(a, 1, 2) = 'ab'", "(substring(a, 1, 2) = 'ab')"),
        ("größe > 1", '("größe" > 1)'),
    ],
)
def test_text_binds_as_in_sql(text: str, meaning: str) -> None:
    assert repr(parse_sql(text)) == meaning


def test_operations_too_deep_inside_each_other_are_refused_before_a_row_is_read() -> None:
    with pytest.raises(InvalidRequest, match="inside each other"):
        parse_sql(" + ".join(["a"] * 3000) + " > 0")
    deep = col("a") > 0
    with pytest.raises(InvalidRequest, match="inside each other"):
        for _ in range(3000):
            deep = ~deep


def test_expressions_that_repeat_their_parts_do_not_grow_without_end() -> None:
    doubled = col("a") + 1
    with pytest.raises(InvalidRequest, match="at most 5000 operations"):
        for _ in range(40):
            doubled = doubled + doubled
    assert col("a").is_in(list(range(20_000))).size == 1


@pytest.mark.parametrize("number", [2**53 + 1, 10**400, -(10**400)])
def test_a_constant_that_floats_do_not_hold_is_refused(number: int) -> None:
    with pytest.raises(InvalidRequest, match="64-bit"):
        Literal(number)


@pytest.mark.parametrize(
    "build",
    [
        lambda: parse_sql("age > " + "9" * 5000),
        lambda: parse_sql("age in (1, " + "9" * 5000 + ")"),
        lambda: parse_sql("age > 1e999"),
        lambda: col("age") > 10**5000,
        lambda: col("age") + -(10**5000),
    ],
)
def test_a_number_too_long_to_spell_is_refused_in_a_short_sentence(build) -> None:
    with pytest.raises(InvalidRequest, match="64-bit floats hold exactly") as refusal:
        build()
    assert len(str(refusal.value)) < 250


def test_zeros_in_front_do_not_make_a_number_long() -> None:
    assert repr(parse_sql("age > " + "0" * 5000 + "7")) == repr(col("age") > 7)
    assert repr(parse_sql("age > " + "0" * 5000)) == repr(col("age") > 0)


WORDS = (
    "a b when case then else end and or not in is null like between cast as text month ( ( ) ) , + - = <> :: || 1 2.5"
)
WORDS = f"{WORDS} 'x' 'it''s' \"c\" date timestamp extract from bin coalesce -- ; \\ \0 %"


@given(st.lists(st.sampled_from(WORDS.split()), max_size=14))
@settings(max_examples=400)
def test_any_text_is_an_expression_or_refused(words: list[str]) -> None:
    try:
        expression = parse_sql(" ".join(words))
    except InvalidRequest as refusal:
        assert str(refusal).startswith("Expected")
    else:
        assert repr(parse_sql(repr(expression))) == repr(expression)
