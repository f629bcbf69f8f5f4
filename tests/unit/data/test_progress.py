"""Progress says that a scan runs, not how long the table is; an interrupt ends it."""

import io
import sys

import pyarrow as pa
import pytest

from expost.data import Dataset
from expost.data.engines import ArrowEngine
from expost.data.unit_shard import show_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_scan_on_a_terminal_shows_no_number_of_rows(monkeypatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)

    with show_progress(patience=0.0) as tick:
        for _ in range(4711):
            tick()

    assert "reading rows" in terminal.getvalue()
    assert "4711" not in terminal.getvalue()


def test_nothing_is_shown_off_a_terminal_or_on_short_scans(monkeypatch) -> None:
    for stream in (io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stderr", stream)
        with show_progress() as tick:
            tick()

        assert stream.getvalue() == ""


def test_an_interrupt_ends_the_scan() -> None:
    class Interrupted(ArrowEngine):
        def batches(self, columns, *, rows_per_batch=1000):
            yield from super().batches(columns, rows_per_batch=rows_per_batch)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Dataset(Interrupted(pa.table({"a": list(range(300_000))}))).measure_rows()
