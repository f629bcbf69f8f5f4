"""Every mechanism of the package is attacked by the audit."""

from types import ModuleType

import pytest

from expost.audit import AuditEntry, all_entries, mechanisms, missing
from expost.audit.audit_registry import AUDITED_PACKAGES, mechanisms_of, resolve


@pytest.mark.parametrize("package", AUDITED_PACKAGES)
def test_every_mechanism_of_a_package_is_in_the_audit(package):
    assert missing(all_entries(), mechanisms([package])) == []


def test_every_entry_names_a_mechanism_that_exists():
    for entry in all_entries():
        for name in entry.names:
            assert resolve(name) is not None


def test_a_mechanism_without_an_entry_is_noticed():
    entries = [entry for entry in all_entries() if entry.mechanism != "expost.noise.NoisyMax"]

    assert "expost.noise.NoisyMax" in missing(entries, mechanisms(["noise"]))
    assert "expost.noise.NoisyMax" not in missing(all_entries(), mechanisms(["noise"]))


def test_a_promise_in_a_docstring_makes_a_mechanism():
    module = ModuleType("invented")

    class Promising:
        """Adds noise.

        Guarantee: pure DP.
        """

    class Modest:
        """Adds nothing."""

    for item in (Promising, Modest):
        item.__module__ = "invented"
        setattr(module, item.__name__, item)

    assert [name for name, _ in mechanisms_of(module)] == ["Promising"]


def test_an_entry_may_cover_wrappers_of_the_same_code():
    found = {"a": resolve("expost.noise.NoisyMax"), "b": resolve("expost.noise.PermuteAndFlip")}
    entry = AuditEntry(
        "expost.noise.NoisyMax", pairs=lambda: (), also=("expost.noise.selection_mechanism.PermuteAndFlip",)
    )

    assert missing([entry], found) == []
