"""Releases as numbers and as pages: arithmetic with intervals, CSV files, reports, notebooks."""

from __future__ import annotations

import html.parser
import math
import operator
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from expost import Dataset, InvalidRequest, Session
from expost.core import Estimate, WrongArguments
from expost.core.table_text import csv_text, markdown_table
from expost.noise import SeededBits


@pytest.fixture
def session() -> Session:
    random = np.random.default_rng(0)
    table = pa.table({"age": random.integers(0, 100, 5000), "city": random.choice(["=Rome", "<i>Oslo"], 5000)})
    data = Dataset(table, name="people", bounds={"age": (0, 100)}, categories={"city": ["=Rome", "<i>Oslo"]})
    return Session(data, budget=100, bits=SeededBits(1), simulation=True)


def test_a_release_of_one_number_is_a_number(session: Session) -> None:
    count = session.count(epsilon=1)
    assert float(count) == count.value and abs(float(2 * count) - 2 * count.value) < 1e-9
    assert (count > 10) is True and (count < 10) is False and 10 <= count <= 10_000
    with pytest.raises(WrongArguments, match="one number"):
        float(session.count(epsilon=1, by="city"))
    with pytest.raises(WrongArguments, match="interval"):
        session.median("age", epsilon=1) + 1
    with pytest.raises(TypeError):
        count + "one"


def test_confidences_add_up_and_a_release_counts_once(session: Session) -> None:
    adults = session.count(epsilon=1, where="age >= 18")
    everybody = session.count(epsilon=1, confidence=0.9)
    share = adults / everybody
    assert share.confidence == Fraction(85, 100) and share.receipts == (adults.receipt, everybody.receipt)
    assert ((adults + everybody) / adults).confidence == Fraction(85, 100)
    assert "85 % confidence, from 2 releases, free" in repr(share)
    spent = session.spent()
    _ = 3 * share - 1
    assert session.spent() == spent


def test_groups_of_one_release_hold_at_once(session: Session) -> None:
    counts = session.count(epsilon=1, by="city")
    difference = counts["=Rome"] - counts["<i>Oslo"]
    assert difference.confidence == Fraction(19, 20)
    low, high = difference.interval
    assert low < difference.value < high
    with pytest.raises(InvalidRequest, match="Did you mean '=Rome'"):
        counts["=rome"]


@pytest.mark.parametrize("sign", ["+", "-", "*", "/"])
def test_intervals_contain_every_combination_of_numbers_in_them(sign: str) -> None:
    random = np.random.default_rng(len(sign) + ord(sign))
    operate = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[sign]
    for _ in range(200):
        ends = np.sort(random.normal(size=(2, 2)), axis=1)
        numbers = [random.uniform(low, high, 50) for low, high in ends]
        first, second = (Estimate(float(each[0]), (low, high)) for each, (low, high) in zip(numbers, ends, strict=True))
        low, high = operate(first, second).interval
        exact = operate(numbers[0][:, None], numbers[1][None, :])
        assert low - 1e-9 <= exact.min() and exact.max() <= high + 1e-9
        assert (sign == "/" and ends[1][0] <= 0 <= ends[1][1]) == math.isinf(high)


def test_intervals_of_combinations_cover_the_exact_numbers() -> None:
    table = pa.table({"x": np.arange(2000) % 50})
    missed = 0
    for seed in range(60):
        session = Session(Dataset(table, bounds={"x": (0, 49)}), budget=100, bits=SeededBits(seed), simulation=True)
        mean = session.sum("x", epsilon=0.05, confidence=0.9) / session.count(epsilon=0.05, confidence=0.9)
        low, high = mean.interval
        missed += not low <= 24.5 <= high
    assert missed <= 28  # 20 % of 60; more have a probability below 1e-5, and a union bound misses more rarely


def test_numbers_of_other_libraries_can_be_on_either_side() -> None:
    four = Estimate(4.0, (3.0, 5.0))
    for number in (np.float64(2), np.int64(2), Fraction(2), 2):
        assert (number * four).interval == (four * number).interval == (6.0, 10.0)
        assert (number - four).interval == (-3.0, -1.0) and (number / four).value == 0.5
    assert (-four).interval == (-5.0, -3.0)
    with pytest.raises(WrongArguments, match="finite"):
        four + math.inf
    with pytest.raises(WrongArguments, match="divide by a value of 0"):
        four / 0


def test_formulas_in_categories_are_harmless_in_a_csv_file(session: Session, tmp_path) -> None:
    counts = session.count(epsilon=1, by="city")
    text = counts.to_csv(tmp_path / "counts.csv")
    assert (tmp_path / "counts.csv").read_text() == text
    assert text.splitlines()[1].startswith("'=Rome,")
    assert csv_text(["a"], [["@x"], ["-1"], [-1.5], ["plain"]]) == "a\n'@x\n'-1\n-1.5\nplain\n"
    assert "\\|" in markdown_table(["a"], [["b|c"]])


class _Page(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attributes if name in ("src", "href")]


def test_a_report_is_one_page_without_scripts_or_links(session: Session, tmp_path) -> None:
    for name, release in (("groups", session.count(epsilon=1, by="city")), ("one", session.count(epsilon=1))):
        page = release.report(tmp_path / f"{name}.html")
        assert (tmp_path / f"{name}.html").read_text(encoding="utf-8") == page
        found = _Page(page)
        assert "script" not in found.tags and "i" not in found.tags
        assert [link[:22] for link in found.links] == ["data:image/png;base64,"]
        for words in (release.receipt.question, "What this means for a person", "epsilon 1", "Simulation"):
            assert words in page
        markdown = release.report(tmp_path / f"{name}.md")
        assert markdown.startswith(f"# {release.receipt.question}") and "<i>" not in markdown
    with pytest.raises(InvalidRequest, match=r"ends with \.html or \.md"):
        session.count(epsilon=1).report(tmp_path / "one.docx")


def test_notebooks_show_tables(session: Session) -> None:
    counts = session.count(epsilon=1, by="city")
    quote = session.price("count", within=10)
    for thing in (session, session.dataset, quote, session.history(), counts, counts.receipt):
        shown = thing._repr_html_()
        assert "<table>" in shown and "<i>" not in shown
    assert "from 0 to 100" in session.dataset._repr_html_() and "left" in session._repr_html_()


def test_numbers_are_rounded_and_written_like_numbers(session: Session) -> None:
    count = session.count(epsilon=1)
    half = count / 2

    assert (int(count), round(half, 1), f"{half:.2f}") == (count.value, count.value / 2, f"{count.value / 2:.2f}")
    assert f"{count}" == str(count)
    low, high = (count - 2 * count.value).interval
    assert abs(count - 2 * count.value).interval == (-high, -low)
    assert abs(count - count.value).interval[0] == 0


def test_groups_are_combined_one_by_one(session: Session) -> None:
    sums, counts = session.sum("age", epsilon=1, by="city"), session.count(epsilon=1, by="city")
    everybody = session.count(epsilon=1)

    means = sums / counts
    assert list(means) == ["=Rome", "<i>Oslo"]
    assert means["=Rome"] == sums["=Rome"] / counts["=Rome"]
    assert (counts / everybody)["=Rome"] == counts["=Rome"] / everybody
    assert (everybody - counts)["=Rome"] == everybody - counts["=Rome"]
    assert (100 * counts)["<i>Oslo"] == 100 * counts["<i>Oslo"] and (counts - 1)["=Rome"] == counts["=Rome"] - 1
    assert (counts["=Rome"] + counts)["=Rome"] == counts["=Rome"] + counts["=Rome"]
    with pytest.raises(InvalidRequest, match="same groups"):
        sums / session.count(epsilon=1, by="bin(age, 50)")
    with pytest.raises(TypeError):
        counts + "one"


def test_a_group_without_rows_spoils_no_other_quotient() -> None:
    table = pa.table({"city": ["Rome"] * 900})
    session = Session(
        Dataset(table, categories={"city": ["Rome", "Oslo"]}), budget=1000, bits=SeededBits(1), simulation=True
    )
    counts = session.count(epsilon=100, by="city")

    shares = counts / counts
    assert float(shares["Rome"]) == 1
    assert math.isnan(float(shares["Oslo"])) and shares["Oslo"].interval == (-math.inf, math.inf)
