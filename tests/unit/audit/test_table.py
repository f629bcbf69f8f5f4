import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from typer.testing import CliRunner

from expost.audit import AuditEntry, AuditProfile, AuditVerdict, Law, LawPair, Outcomes, Pair, all_entries, audit_table
from expost.audit.audit_table import PROFILES, read_power
from expost.cli import app
from expost.core import InvalidRequest, epsilon
from expost.noise import sample_bernoulli

SMALL = AuditProfile(runs=4000, slow_runs=400)


def coin(chance):
    return lambda runs, bits: Outcomes.of(sample_bernoulli(chance, runs, bits=bits))


def entry(left, right, *, laws=(), slow=False, name="expost.noise.NoisyMax"):
    pair = Pair("coins", epsilon(1), coin(left), coin(right), slow=slow)
    return AuditEntry(name, pairs=lambda: (pair,), laws=lambda: laws)


def test_a_row_says_what_was_claimed_found_and_tried():
    (row,) = audit_table(SMALL, entries=[entry(0.7, 0.4)])

    assert row.text[:2] == ("noise.NoisyMax", "epsilon 1")
    assert (row.pairs, row.laws, row.samples) == (1, 0, 8000)
    assert 0.3 < row.found < 0.7
    assert row.verdict is not AuditVerdict.VIOLATED


@pytest.mark.parametrize(
    ("left", "right", "verdict"),
    [
        (0.7, 0.3, AuditVerdict.HOLDS),
        (0.5, 0.35, AuditVerdict.WEAK),
        (0.5, 0.5, AuditVerdict.SILENT),
        (0.9, 0.1, AuditVerdict.VIOLATED),
    ],
)
def test_a_verdict_says_how_much_the_attack_saw(left, right, verdict):
    (row,) = audit_table(SMALL, entries=[entry(left, right)])

    assert row.verdict is verdict


def test_a_weak_row_says_what_it_found_and_what_it_would_miss():
    (row,) = audit_table(SMALL, entries=[entry(0.5, 0.35)])

    assert row.judgement.startswith("weak: found ")
    assert "would miss most faults" in row.judgement
    assert "less than 30% less noise" in replace(row, catches=0.3).judgement


def test_the_smallest_fault_is_a_column():
    (row,) = audit_table(SMALL, entries=[entry(0.7, 0.4)])

    assert row.fault == "not measured"
    assert replace(row, catches=0.1).text[-2] == "10% less noise"
    assert replace(row, catches=0.0).fault == "none of those planted"


def test_a_larger_profile_lifts_caps():
    pair = Pair("dear", epsilon(1), coin(0.5), coin(0.5), slow=True, most_runs=150)

    assert AuditProfile(4000, 400).runs_of(pair) == 150
    assert AuditProfile(4000, 400, lift=2).runs_of(pair) == 300
    assert AuditProfile(4000, 400, lift=9).runs_of(pair) == 400


def test_a_violation_is_a_verdict():
    (row,) = audit_table(SMALL, entries=[entry(0.9, 0.1)])

    assert row.verdict is AuditVerdict.VIOLATED
    assert row.text[-1] == "VIOLATED"


def test_a_violated_law_outweighs_sound_samples():
    bad = LawPair("law", Law({1: Fraction(1)}), Law({1: Fraction(1, 9), 2: Fraction(8, 9)}), ratio=Fraction(2))
    (row,) = audit_table(SMALL, entries=[entry(0.5, 0.5, laws=(bad,))])

    assert row.verdict is AuditVerdict.VIOLATED
    assert (row.pairs, row.laws) == (2, 1)


def test_slow_pairs_run_less_often():
    (row,) = audit_table(SMALL, entries=[entry(0.5, 0.5, slow=True)])

    assert row.samples == 800


def test_a_pair_may_cap_its_runs():
    pair = Pair("dear", epsilon(1), coin(0.5), coin(0.5), slow=True, most_runs=150)
    (row,) = audit_table(SMALL, entries=[AuditEntry("expost.noise.NoisyMax", pairs=lambda: (pair,))])

    assert row.samples == 300


def test_a_seed_makes_the_table_reproducible_and_entries_independent():
    one, two = entry(0.7, 0.4), entry(0.6, 0.4, name="expost.noise.PermuteAndFlip")
    alone = audit_table(SMALL, entries=[one], seed=5)
    together = audit_table(SMALL, entries=[one, one.__class__(two.mechanism, two.pairs)], seed=5)

    assert audit_table(SMALL, entries=[one], seed=5) == alone
    # Sharing the risk with another pair makes the bound a little lower, on the same runs.
    assert together[0].found == pytest.approx(alone[0].found, abs=0.02)
    assert together[0].found <= alone[0].found
    assert audit_table(SMALL, entries=[one], seed=6) != alone


def test_fresh_bits_are_used_without_a_seed():
    found = {audit_table(SMALL, entries=[entry(0.7, 0.4)], seed=None)[0].found for _ in range(4)}

    assert len(found) > 1


def test_an_unknown_profile_is_refused():
    with pytest.raises(InvalidRequest, match="quick, long, full"):
        audit_table("thorough")


def test_outcomes_may_be_wide():
    def wide(shift):
        return lambda runs, bits: Outcomes.of(sample_bernoulli(0.5, (runs, 40), bits=bits) + shift * np.eye(40)[0])

    pair = Pair("wide", epsilon(1), wide(0), wide(2))
    (row,) = audit_table(SMALL, entries=[AuditEntry("expost.noise.NoisyMax", pairs=lambda: (pair,))])

    assert row.verdict is AuditVerdict.VIOLATED


LAPLACE = tuple(each for each in all_entries() if each.short_name == "noise.LaplaceMechanism")


def test_the_long_profile_has_as_many_batched_runs_as_the_full_one():
    batched, slow = (
        Pair("one", epsilon(1), coin(0.5), coin(0.5)),
        Pair("two", epsilon(1), coin(0.5), coin(0.5), slow=True),
    )

    assert PROFILES["long"].runs_of(batched) == PROFILES["full"].runs_of(batched) >= 500_000
    assert PROFILES["long"].runs_of(slow) < PROFILES["full"].runs_of(slow)


def test_the_long_profile_shows_the_measured_power_of_the_full_one(monkeypatch):
    monkeypatch.setitem(PROFILES, "long", SMALL)
    (row,) = audit_table("long", entries=LAPLACE)

    assert row.catches == read_power()["profiles"]["full"]["noise.LaplaceMechanism"] == 0.1


def test_a_fault_is_planted_again_and_a_larger_one_where_it_is_missed():
    """4,000 runs cannot see a tenth less noise, which a million runs can."""
    (row,) = audit_table(SMALL, entries=LAPLACE, plant=True)
    (unknown,) = audit_table(AuditProfile(200_000, 100), entries=LAPLACE, plant=True)

    assert row.catches > 0.1
    assert unknown.catches == 0.1


def test_the_command_attacks_the_named_mechanisms_and_plants_faults(monkeypatch):
    monkeypatch.setitem(PROFILES, "long", AuditProfile(200_000, 200))
    done = CliRunner().invoke(app, ["audit", "--long", "--only", "noise.laplace", "--json"])

    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)
    assert row["mechanism"] == "noise.LaplaceMechanism"
    assert row["catches"] == 0.1


def test_a_narrow_terminal_breaks_no_word_of_the_table(monkeypatch):
    monkeypatch.setitem(PROFILES, "quick", SMALL)
    done = CliRunner().invoke(app, ["audit", "--only", "noise.laplace"])

    assert done.exit_code == 0, done.output
    assert "noise.LaplaceMechanism" in done.stdout
    assert "epsilon" in done.stdout and "verdict" in done.stdout
    assert "violations found: 0" in done.stdout


@pytest.mark.parametrize("wrong", [["--only", "no such"], ["--long", "--profile", "full"], ["--profile", "huge"]])
def test_the_command_refuses_a_wrong_choice(wrong):
    assert isinstance(CliRunner().invoke(app, ["audit", *wrong]).exception, InvalidRequest)
