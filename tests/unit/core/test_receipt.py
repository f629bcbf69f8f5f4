import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expost.core import (
    Adjacency,
    ApproxLoss,
    GaussianGuarantee,
    GaussianLoss,
    InvalidRequest,
    Measure,
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
REFINED = receipt(bill=PureLoss(0.1), paid_before=PureLoss(2))
BY_KEYS = receipt(bill=PureLoss(0), paid_before=ApproxLoss(1, 1e-6))


@pytest.mark.parametrize(
    "original", [receipt(), FULL, REFINED, BY_KEYS, receipt(promise=GaussianGuarantee(1), bill=GaussianLoss(0.5))]
)
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


def test_what_an_answer_means_is_about_all_that_it_rests_on() -> None:
    assert REFINED.in_all == PureLoss(Fraction(21, 10))
    assert REFINED.meaning == receipt(promise=PureGuarantee(3), bill=PureLoss(Fraction(21, 10))).meaning
    assert BY_KEYS.in_all == ApproxLoss(1, 1e-6)
    # Not 73.2 % but for 1e-06: a Gaussian of this (epsilon, delta) exceeds that twenty times as often.
    assert "73.4 % sure" in BY_KEYS.meaning and "except with probability 0.0001" in BY_KEYS.meaning


def test_a_receipt_says_what_was_paid_now_before_and_in_all() -> None:
    rows = dict(REFINED.rows())

    assert rows["paid"] == "epsilon 0.1 now, at most epsilon 1"
    assert rows["paid before"].startswith("epsilon 2 ")
    assert rows["in all"] == "epsilon 2.1, at most epsilon 3"
    assert not {"paid before", "in all"} & dict(receipt().rows()).keys()


def test_a_receipt_written_before_there_was_a_word_for_it_reads_back() -> None:
    old = receipt().to_dict()
    del old["paid_before"]

    assert Receipt.from_dict(old) == receipt()


@pytest.mark.parametrize(
    ("measure", "label"),
    [
        (Measure.RMSE, "rmse, at most"),
        (Measure.MAE, "mae, at most"),
        (Measure.LOG_LOSS, "log loss, at most"),
        (Measure.R2, "r2, at least"),
        (Measure.ACCURACY, "accuracy, at least"),
        (Measure.EXCESS_RISK, "excess risk, at most"),
        (Measure.ABSOLUTE_ERROR, "accuracy"),
    ],
)
def test_what_was_reached_is_named_by_its_measure(measure: Measure, label: str) -> None:
    asked = receipt(achieved=0.5, target=Target(measure, Fraction(1, 2), Fraction(1, 10)))
    given = receipt(achieved=0.5, achieved_measure=measure)
    for each in (asked, given):
        assert dict(each.rows())[label] == "0.5" and Receipt.from_json(each.to_json()) == each
    assert "achieved_measure" not in asked.to_dict()  # earlier versions wrote none


def test_a_mean_absolute_error_had_another_name() -> None:
    assert Measure("mean loss") is Measure.MAE


def test_long_lists_for_programs_are_cut_where_receipts_are_shown() -> None:
    long = receipt(terms={"events": list(range(1000))})
    assert len(dict(long.rows())["events"]) < 600 and long.terms["events"][-1] == 999
