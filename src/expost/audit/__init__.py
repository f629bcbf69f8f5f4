"""Attacks on every mechanism: lower bounds on the privacy loss that it really has."""

from expost.audit.audit_registry import AuditEntry, all_entries, mechanisms, missing
from expost.audit.audit_table import PROFILES, AuditProfile, AuditRow, AuditVerdict, audit_entry, audit_table
from expost.audit.output_law import Law, LawPair, compare
from expost.audit.pair_attack import AttackFinding, Outcomes, Pair, Sampler, attack, repeat
from expost.audit.privacy_claim import Claim, ExPost

__all__ = [
    "PROFILES",
    "Claim",
    "AuditEntry",
    "ExPost",
    "AttackFinding",
    "Law",
    "LawPair",
    "Outcomes",
    "Pair",
    "AuditProfile",
    "AuditRow",
    "Sampler",
    "AuditVerdict",
    "all_entries",
    "attack",
    "audit_entry",
    "audit_table",
    "compare",
    "mechanisms",
    "missing",
    "repeat",
]
