"""Attacks on every mechanism: lower bounds on the privacy loss that it really has."""

from expost.audit.attack import Finding, Outcomes, Pair, Sampler, attack, repeat
from expost.audit.audit_registry import Entry, all_entries, mechanisms, missing
from expost.audit.audit_table import PROFILES, Profile, Row, Verdict, audit_entry, audit_table
from expost.audit.output_law import Law, LawPair, compare
from expost.audit.privacy_claim import Claim, ExPost

__all__ = [
    "PROFILES",
    "Claim",
    "Entry",
    "ExPost",
    "Finding",
    "Law",
    "LawPair",
    "Outcomes",
    "Pair",
    "Profile",
    "Row",
    "Sampler",
    "Verdict",
    "all_entries",
    "attack",
    "audit_entry",
    "audit_table",
    "compare",
    "mechanisms",
    "missing",
    "repeat",
]
