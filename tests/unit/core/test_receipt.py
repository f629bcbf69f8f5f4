import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expost.core import (
    Adjacency,
    GaussianGuarantee,
    GaussianLoss,
    InvalidRequest,
    Outcome,
    PureGuarantee,
    PureLoss,
    Receipt,
    Target,
    Unit,
)


def receipt(**changes) -> Receipt:
    facts = dict(question="count", method="gradual discrete Laplace", promise=PureGuarantee(1), bill=PureLoss(0.1))
    return Receipt(**(facts | changes))


FULL = receipt(
    adjacency=Adjacency.REPLACE_ONE,
    unit=Unit.of("user", per="week", time="when"),
    outcome=Outcome.CERTIFIED,
    target=Target.within("5%"),
    achieved=0.1 + 0.2,
    rung=3,
    rungs=40,
    terms={"bounds": {"age": (0, 120)}, "grid": Fraction(1, 3)},
    breakdown={"generating": Fraction(1, 10), "testing": Fraction(0)},
    citations=("LNRWW17, Theorem 2.7",),
    ledger_entry="abc",
)


@pytest.mark.parametrize("original", [receipt(), FULL, receipt(promise=GaussianGuarantee(1), bill=GaussianLoss(0.5))])
def test_a_receipt_reads_back_without_loss(original: Receipt) -> None:
    assert Receipt.from_json(original.to_json()) == original


@given(st.floats(allow_nan=False, allow_infinity=False), st.fractions(min_value=0, max_value=1))
def test_floats_and_rationals_survive_the_round_trip(achieved: float, bill: Fraction) -> None:
    original = receipt(achieved=achieved, bill=PureLoss(bill))

    assert Receipt.from_json(original.to_json()) == original


def test_a_bill_above_its_promise_cannot_be_written() -> None:
    with pytest.raises(InvalidRequest):
        receipt(bill=PureLoss(2))


def test_what_is_not_plain_cannot_become_a_term() -> None:
    with pytest.raises(InvalidRequest):
        receipt(terms={"rows": object()})


def test_it_prints_every_required_fact() -> None:
    text = str(FULL)

    for fact in (
        "replace-one",
        "all rows of one user within one week",
        "number of units public",
        "bounds",
        "gradual discrete Laplace",
        "epsilon 1",
        "epsilon 0.1",
        "certified",
        "relative error <= 0.05 with probability 0.95",
        "abc",
        "52.5 % sure",
        "LNRWW17",
    ):
        assert fact in text


def test_a_simulation_says_so_instead_of_a_meaning() -> None:
    assert "NOT PRIVATE" in str(receipt(simulation=True))


def test_the_notebook_form_escapes_what_the_caller_typed() -> None:
    assert "<script>" not in receipt(question="<script>")._repr_html_()


def test_an_unknown_format_is_refused() -> None:
    data = json.loads(receipt().to_json()) | {"format": 99}

    with pytest.raises(InvalidRequest):
        Receipt.from_dict(data)
