"""What each attack would notice is measured by planting faults, and what was measured is kept with the package."""

import os
from fractions import Fraction

import pytest

from expost.audit import AuditVerdict, all_entries, audit_table
from expost.audit.audit_table import catches, read_power, smallest_fault

long_profile = pytest.mark.skipif(os.environ.get("EXPOST_LONG") != "1", reason="long profile: set EXPOST_LONG=1")

ENTRIES = {entry.short_name: entry for entry in all_entries()}
MECHANISMS = [name for name in ENTRIES if name.startswith("noise.")]
OBJECTIVES = ["models.TiltedRisk", "models.TiltedRidge", "models.TiltedClassifier", "models.TestedFit"]
HALF = Fraction(1, 2)


@pytest.mark.parametrize("name", [*OBJECTIVES, "models.MonotoneFit"])
def test_half_the_noise_of_objective_perturbation_is_caught_in_the_quick_profile(name):
    assert catches(ENTRIES[name], HALF, "quick")


@pytest.mark.parametrize(
    "name",
    [
        "models.OutputFit",
        "models.CertifiedRidge",
        "models.GaussianRidge",
        "models.AdaptiveRidge",
        "models.GradientFit",
        "models.NoiseReduction",
        "models.Doubling",
        "models.TheoryInversion",
        "models.Trainer",
        "models.NewtonLearner",
        "models.TuningPlan",
        "stats.Count",
        "stats.Covariance",
        "stats.PrivateKeys",
        "stats.ByPrivateKeys",
        "stats.PrivatelyBounded",
        "stats.LinearCorrelationTest",
    ],
)
def test_half_the_noise_of_fits_and_statistics_is_caught_in_the_quick_profile(name):
    assert catches(ENTRIES[name], HALF, "quick")


def test_every_entry_has_a_measured_power():
    assert set(read_power()["profiles"]["full"]) == set(ENTRIES)


@pytest.mark.parametrize("name", ENTRIES)
def test_the_full_profile_catches_small_faults(name):
    """A tenth too little noise in mechanisms, three tenths in fits and statistics, as it was measured."""
    assert 0 < read_power()["profiles"]["full"][name] <= (0.1 if name in MECHANISMS else 0.3)


@long_profile
@pytest.mark.parametrize("name", ENTRIES)
def test_what_was_measured_is_still_caught(name):
    assert smallest_fault(ENTRIES[name], "full") == pytest.approx(read_power()["profiles"]["full"][name])


@long_profile
@pytest.mark.parametrize("name", ENTRIES)
def test_no_row_of_the_full_profile_says_nothing(name):
    (row,) = audit_table("full", entries=[ENTRIES[name]])

    assert row.verdict in (AuditVerdict.HOLDS, AuditVerdict.WEAK)
    assert row.allowed > 0
