from fractions import Fraction

import pytest

from expost.audit import AuditProfile, all_entries
from expost.audit.audit_registry import AuditEntry
from expost.audit.audit_table import smallest_fault
from expost.audit.planted_fault import GAUSSIAN, LAPLACE, PATHS, TILTS, Noise, planted
from expost.core import InvalidRequest, Norm, Sealed, Sensitivity, zcdp
from expost.models.linear.tilted_risk import LaplaceTilt
from expost.noise import DiscreteLaplacePath, GaussianMechanism, LaplaceMechanism, SeededBits
from expost.noise.lattice import sealed_copies

HALF = Fraction(1, 2)


def test_a_planted_fault_scales_the_noise_and_leaves_no_trace():
    right = LaplaceMechanism(1).scale(Sensitivity(1))
    with planted(LAPLACE, HALF):
        assert LaplaceMechanism(1).scale(Sensitivity(1)) == right / 2

    assert LaplaceMechanism(1).scale(Sensitivity(1)) == right


def test_a_planted_fault_goes_when_the_attack_raises():
    with pytest.raises(RuntimeError), planted(LAPLACE, HALF):
        raise RuntimeError

    assert LaplaceMechanism(1).scale(Sensitivity(1)) == 1


def test_variances_are_scaled_by_the_square():
    mechanism, sensitivity = GaussianMechanism(zcdp(1)), Sensitivity(10, Norm.L2)
    right = mechanism.variance(sensitivity)
    with planted(GAUSSIAN, HALF):
        assert mechanism.variance(sensitivity) == right / 4


def test_several_places_are_scaled_at_once():
    with planted((*LAPLACE, *TILTS), HALF):
        assert LaplaceMechanism(1).scale(Sensitivity(1)) == HALF
        assert float(LaplaceTilt(1, steepest=1.0, spread=1.0).scale_at(Fraction(1))) == pytest.approx(1)


def test_an_argument_can_be_scaled_instead_of_a_result():
    def spread() -> float:
        many = sealed_copies(Sealed(0, Sensitivity(1000)), 4000)
        return float(abs(DiscreteLaplacePath(many, [1], bits=SeededBits(3)).at(0)).mean())

    right = spread()
    with planted(PATHS, HALF):
        assert spread() == pytest.approx(right / 2, rel=0.01)


def test_a_place_that_does_not_exist_is_refused():
    with pytest.raises(InvalidRequest, match="dotted name"), planted([Noise("expost.noise.nothing.scale")], HALF):
        pass


def test_power_needs_a_place_to_plant():
    with pytest.raises(InvalidRequest, match="declares its noise"):
        smallest_fault(AuditEntry("expost.noise.NoisyMax", pairs=lambda: ()), AuditProfile(1000, 100))


@pytest.mark.parametrize("entry", all_entries(), ids=lambda entry: entry.short_name)
def test_every_entry_says_where_its_noise_is_decided(entry):
    assert entry.noise
    for noise in entry.noise:
        owner, name = noise.place
        assert name in vars(owner)
