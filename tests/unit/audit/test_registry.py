"""That every mechanism is registered is tested in tests/privacy; here, how the registry reads names."""

import pytest

from expost.audit import AuditEntry, audit_registry
from expost.audit.audit_registry import all_entries, resolve
from expost.core import InvalidRequest


def test_a_name_leads_to_its_object_by_any_path():
    assert resolve("expost.noise.NoisyMax") is resolve("expost.noise.selection_mechanism.NoisyMax")


@pytest.mark.parametrize("name", ["expost.noise.Nothing", "nowhere.at_all"])
def test_a_name_that_leads_nowhere_is_refused(name):
    with pytest.raises(InvalidRequest, match="dotted name"):
        resolve(name)


def test_two_entries_for_one_mechanism_are_refused(monkeypatch):
    class Twice:
        @staticmethod
        def entries():
            return [AuditEntry("expost.noise.NoisyMax", pairs=lambda: ())] * 2

    monkeypatch.setattr(audit_registry.importlib, "import_module", lambda name: Twice)
    with pytest.raises(InvalidRequest, match="one entry per mechanism"):
        all_entries()
