"""The room that attacks the others: bounds on the privacy loss that a mechanism really has."""

from expost.audit.attack import Finding, attack
from expost.audit.claim import Claim, ExPost
from expost.audit.entry import Entry
from expost.audit.law import Law, LawPair, compare
from expost.audit.pair import Outcomes, Pair, Sampler, repeat
from expost.audit.registry import all_entries, mechanisms, missing
from expost.audit.table import PROFILES, Profile, Row, Verdict, audit_entry, audit_table

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
