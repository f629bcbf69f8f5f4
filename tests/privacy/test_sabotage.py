"""The registered attacks notice when the shipped mechanisms themselves are broken."""

from fractions import Fraction

import pytest

from expost.audit import AuditProfile, AuditVerdict, all_entries, audit_table
from expost.noise import (
    AboveThreshold,
    ExponentialMechanism,
    ExponentialQuantile,
    GaussianMechanism,
    GaussianPath,
    GeometricPath,
    LaplaceMechanism,
    NoisyMax,
    PermuteAndFlip,
    ReducedAboveThreshold,
    SmoothNoise,
    gaussian_stream,
    mechanism,
    propose_test_release,
)
from expost.noise.jump_noise import JumpNoise
from expost.noise.rising_threshold import RenewedThreshold

PROFILE = AuditProfile(runs=40_000, slow_runs=100)


def scaled(function, factor):
    """The same function, its result multiplied: less noise, or a steeper choice."""
    return lambda *arguments, **options: function(*arguments, **options) * factor


def scaled_property(kind, name, factor):
    return property(scaled(getattr(kind, name).fget, factor))


def row_of(name):
    (entry,) = [entry for entry in all_entries() if entry.short_name == name]
    (row,) = audit_table(PROFILE, entries=[entry])
    return row


@pytest.mark.parametrize(
    ("kind", "method", "factor"),
    [
        (LaplaceMechanism, "scale", Fraction(1, 2)),
        (GaussianMechanism, "variance", Fraction(1, 4)),
        (ExponentialMechanism, "rate", 2),
        (PermuteAndFlip, "rate", 2),
        (NoisyMax, "scale", Fraction(1, 2)),
        (ExponentialQuantile, "rate", 6),
        (ReducedAboveThreshold, "query_scale", Fraction(1, 4)),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_too_little_noise_in_a_shipped_mechanism_is_caught(monkeypatch, kind, method, factor):
    monkeypatch.setattr(kind, method, scaled(getattr(kind, method), factor))

    assert row_of(f"noise.{kind.__name__}").verdict is AuditVerdict.VIOLATED


@pytest.mark.parametrize("scale", ["threshold_scale", "query_scale"])
def test_too_little_noise_on_either_side_of_above_threshold_is_caught(monkeypatch, scale):
    monkeypatch.setattr(AboveThreshold, scale, scaled_property(AboveThreshold, scale, Fraction(1, 3)))

    assert row_of("noise.AboveThreshold").verdict is AuditVerdict.VIOLATED


@pytest.mark.parametrize(
    ("kind", "scale", "factor"),
    [
        (RenewedThreshold, "threshold_scale", Fraction(4, 5)),
        (RenewedThreshold, "query_scale", Fraction(3, 4)),
        (ReducedAboveThreshold, "query_scale", Fraction(3, 4)),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_too_little_noise_on_either_side_of_a_test_of_scores_is_caught(monkeypatch, kind, scale, factor):
    monkeypatch.setattr(kind, scale, scaled(getattr(kind, scale), factor))

    assert row_of("models.ValidationTest").verdict is AuditVerdict.VIOLATED


def test_too_little_noise_that_such_a_test_keeps_is_caught(monkeypatch):
    drawn = GeometricPath.at
    monkeypatch.setattr(GeometricPath, "at", lambda path, rung: drawn(path, rung) * 3 // 4)

    assert row_of("models.ValidationTest").verdict is AuditVerdict.VIOLATED


@pytest.mark.parametrize("name", ["SmoothNoise", "SmoothQuantile", "SmoothInterquartileRange", "SmoothVariance"])
def test_too_narrow_heavy_tails_are_caught(monkeypatch, name):
    monkeypatch.setattr(SmoothNoise, "steepness", scaled_property(SmoothNoise, "steepness", Fraction(1, 10)))

    assert row_of(f"noise.{name}").verdict is AuditVerdict.VIOLATED


def test_an_unsmooth_bound_is_caught(monkeypatch):
    monkeypatch.setattr(SmoothNoise, "smoothness", scaled_property(SmoothNoise, "smoothness", 6))

    assert row_of("noise.SmoothNoise").verdict is AuditVerdict.VIOLATED


def test_a_test_that_always_passes_is_caught(monkeypatch):
    monkeypatch.setattr(propose_test_release, "passing_line", lambda epsilon, delta: -1)

    assert row_of("noise.StableMode").verdict is AuditVerdict.VIOLATED
    assert row_of("noise.ProposedQuantile").verdict is AuditVerdict.VIOLATED


def test_rarer_lies_are_caught(monkeypatch):
    true_coin = mechanism.sample_bernoulli_exp
    monkeypatch.setattr(
        mechanism,
        "sample_bernoulli_exp",
        lambda exponent, *rest, **options: true_coin(2 * exponent, *rest, **options),
    )

    assert row_of("noise.RandomizedResponse").verdict is AuditVerdict.VIOLATED


def test_a_path_with_the_wrong_keep_probability_is_caught(monkeypatch):
    right = JumpNoise.draw.__func__

    def wrong(cls, *arguments, order, **options):
        return right(cls, *arguments, order=1, **options)

    monkeypatch.setattr(JumpNoise, "draw", classmethod(wrong))

    assert row_of("noise.DiscreteLaplacePath").verdict is AuditVerdict.VIOLATED


def test_a_gaussian_path_with_half_the_deviation_is_caught(monkeypatch):
    right = GaussianPath.__init__

    def wrong(self, *arguments, **options):
        right(self, *arguments, **options)
        self._square /= 4

    monkeypatch.setattr(GaussianPath, "__init__", wrong)

    assert row_of("noise.GaussianPath").verdict is AuditVerdict.VIOLATED


def test_a_gaussian_stream_with_half_the_deviation_is_caught(monkeypatch):
    monkeypatch.setattr(gaussian_stream, "stream_variance", scaled(gaussian_stream.stream_variance, Fraction(1, 4)))

    assert row_of("noise.GaussianStream").verdict is AuditVerdict.VIOLATED
