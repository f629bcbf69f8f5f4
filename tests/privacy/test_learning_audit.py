"""The attacks on fits, which find nothing against the shipped ways (test_audit_table), notice when one is broken."""

from dataclasses import replace
from fractions import Fraction

import pytest

from expost.audit import AuditProfile, AuditVerdict, audit_table
from expost.audit.entries_learning import entries
from expost.core import Sensitivity
from expost.data.second_moment import MomentLayout
from expost.models.linear import OutputFit, PilotedRidge, ResidualCheck, TiltedRisk
from expost.models.linear.risk_minimum import SealedRisk

PROFILE = AuditProfile(runs=2000, slow_runs=150)


def verdict_of(name: str) -> AuditVerdict:
    (entry,) = [entry for entry in entries() if entry.short_name == name]
    (row,) = audit_table(PROFILE, entries=[entry])
    return row.verdict


def quieter(function, factor):
    return lambda *arguments, **options: function(*arguments, **options) * factor


@pytest.mark.parametrize(
    "name", ["models.TiltedRisk", "models.TiltedClassifier", "models.TiltedRidge", "models.MonotoneFit"]
)
def test_too_small_a_tilt_is_caught(monkeypatch, name: str) -> None:
    monkeypatch.setattr(TiltedRisk, "_draw_tilt", quieter(TiltedRisk._draw_tilt, 0.05))

    assert verdict_of(name) is AuditVerdict.VIOLATED


def test_a_check_with_too_little_noise_is_caught(monkeypatch) -> None:
    units = ResidualCheck._grid_units.fget
    monkeypatch.setattr(ResidualCheck, "_grid_units", property(lambda self: units(self) // 50))
    measure = ResidualCheck._seal_contributions

    def unclipped(self, rows):
        monkeypatch.setattr(ResidualCheck, "_grid_units", property(units))
        sealed = measure(self, rows)
        monkeypatch.setattr(ResidualCheck, "_grid_units", property(lambda self: units(self) // 50))
        return resealed(sealed, 50)

    monkeypatch.setattr(ResidualCheck, "_seal_contributions", unclipped)

    assert verdict_of("models.ResidualCheck") is AuditVerdict.VIOLATED


def test_readings_with_too_little_noise_are_caught(monkeypatch) -> None:
    assert verdict_of("models.PilotedRidge") is not AuditVerdict.VIOLATED
    measure = PilotedRidge._seal_sums
    monkeypatch.setattr(PilotedRidge, "_seal_sums", lambda *arguments: resealed(measure(*arguments), 50))

    assert verdict_of("models.PilotedRidge") is AuditVerdict.VIOLATED


def resealed(sealed, factor):
    """The same exact answer under a sensitivity that is too small."""
    from expost.core import Sealed

    smaller = Sensitivity(
        max(Fraction(sealed.sensitivity.amount) / factor, Fraction(1)),
        sealed.sensitivity.norm,
        sealed.sensitivity.adjacency,
    )
    exact = object.__getattribute__(sealed, "_Sealed__exact")
    return Sealed(exact, smaller)


def test_understated_moments_are_caught(monkeypatch) -> None:
    true = MomentLayout.sensitivity.fget
    monkeypatch.setattr(
        MomentLayout,
        "sensitivity",
        property(lambda self: Sensitivity(true(self).amount / 30, true(self).norm, true(self).adjacency)),
    )

    assert verdict_of("models.CertifiedRidge") is AuditVerdict.VIOLATED


def test_an_understated_minimum_is_caught(monkeypatch) -> None:
    true = OutputFit._valley.func
    monkeypatch.setattr(
        OutputFit, "_valley", property(lambda self: replace(true(self), distance=true(self).distance / 30))
    )

    assert verdict_of("models.OutputFit") is AuditVerdict.VIOLATED


@pytest.mark.parametrize("name", ["models.TheoryInversion", "models.GradientFit"])
def test_an_exact_minimum_let_out_is_caught(monkeypatch, name: str) -> None:
    seal = SealedRisk.seal_minimum
    monkeypatch.setattr(SealedRisk, "seal_minimum", lambda self, step, units: resealed(seal(self, step, units), 10**7))

    assert verdict_of(name) is AuditVerdict.VIOLATED
