"""The history of a ledger as a small table."""

import csv
import io

from expost.core import ApproxLoss, PureLoss, Receipt
from expost.ledger import LedgerHistory, MemoryLedger


def filled_ledger(questions: int) -> MemoryLedger:
    ledger = MemoryLedger()
    ledger.open_account("dataset:a", 1)
    ledger.open_account("analyst:ann", (1, 1e-6))
    for number in range(questions):
        held = PureLoss(0.01)
        hold = ledger.hold(["dataset:a", "analyst:ann"], held, question=f"count <{number}> " + "x" * 80)
        ledger.settle(hold, Receipt(question=hold.question, method="m", promise=held.promise(), bill=PureLoss(0.005)))
    return ledger


def test_each_account_that_is_charged_has_a_line_with_its_own_total():
    lines = filled_ledger(1).history().lines()
    last = {line["account"]: line for line in lines[-2:]}

    assert last.keys() == {"dataset:a", "analyst:ann"}
    assert {line["charged"] for line in last.values()} == {"epsilon 0.005"}
    assert last["dataset:a"]["spent after"] == "epsilon 0.005"
    assert last["analyst:ann"]["spent after"] == str(ApproxLoss(0.005, 0))


def test_a_long_history_prints_its_last_lines_and_counts_the_others():
    history = filled_ledger(30).history("dataset:a")
    shown = repr(history)

    assert isinstance(history, LedgerHistory) and len(history) == 61
    assert len(shown.splitlines()) == 22 and "earlier lines" in shown
    assert all(len(line) < 200 for line in shown.splitlines())


def test_the_table_is_a_data_frame_a_file_and_safe_html(tmp_path):
    history = filled_ledger(2).history()
    path = tmp_path / "history.csv"
    text = history.to_csv(path)

    assert path.read_text() == text
    assert [row["entry"] for row in csv.DictReader(io.StringIO(text))] == [line["entry"] for line in history.lines()]
    assert history.to_pandas().shape == (len(history.lines()), 7)
    assert "count &lt;1&gt;" in history._repr_html_() and "<1>" not in history._repr_html_()


def test_an_empty_history_prints_its_head():
    assert repr(LedgerHistory()).startswith("entry")
    assert LedgerHistory().to_pandas().empty
