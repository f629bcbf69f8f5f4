"""The registered attacks, at a size that fits the test run; the command line runs them larger."""

import pytest

from expost.audit import AuditProfile, AuditVerdict, all_entries, audit_table
from expost.audit.entries_learning import entries as fits

SMALL = AuditProfile(runs=12_000, slow_runs=100)
FITS = AuditProfile(runs=12_000, slow_runs=150)  # at least as many as their planted faults are caught with
FITTED = {entry.short_name for entry in fits()}


@pytest.mark.parametrize("entry", all_entries(), ids=lambda entry: entry.short_name)
def test_no_violation_is_found_in(entry):
    (row,) = audit_table(FITS if entry.short_name in FITTED else SMALL, entries=[entry])

    assert row.verdict is not AuditVerdict.VIOLATED
    assert row.pairs >= 1
    assert row.samples >= 200


def test_progress_is_reported_for_each_mechanism():
    chosen = [entry for entry in all_entries() if entry.short_name in ("noise.StableMode", "noise.NoisyMax")]
    told = []

    audit_table(AuditProfile(1000, 100), lambda *step: told.append(step), entries=chosen)

    assert told == [(0, 2, "noise.NoisyMax"), (1, 2, "noise.StableMode"), (2, 2, "done")]
