"""The table of all attacks: the claim of each mechanism, and the largest loss found against it."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from importlib import resources
from typing import Any

from expost.audit.audit_registry import AuditEntry, all_entries
from expost.audit.output_law import compare
from expost.audit.pair_attack import AttackFinding, Pair, attack
from expost.audit.planted_fault import planted
from expost.audit.privacy_claim import unit_of
from expost.core import InvalidRequest
from expost.noise.bits import BitSource, SeededBits, system_bits

__all__ = ["PROFILES", "AuditProfile", "AuditRow", "AuditVerdict", "audit_entry", "audit_table", "read_power"]

_STRONG = 0.5  # of the claim: an attack that finds less is called weak
Progress = Callable[[int, int, str], None]


@cache
def read_power() -> dict[str, Any]:
    """Read the measured power that the package stores: its ``date``, and ``profiles``.

    A profile lists the smallest planted fault that each entry detected: the missing share of the noise, 0 for none.
    """
    stored: dict[str, Any] = json.loads((resources.files("expost.audit") / "power.json").read_text())
    return stored


@dataclass(frozen=True)
class AuditProfile:
    """The number of runs per side, for batched pairs and for those that loop in Python; ``lift`` multiplies the caps of pairs."""

    runs: int
    slow_runs: int
    lift: int = 1

    def runs_of(self, pair: Pair) -> int:
        """Compute the number of runs per side of one pair."""
        runs = self.slow_runs if pair.slow else self.runs
        return runs if pair.most_runs is None else min(runs, self.lift * pair.most_runs)


PROFILES = {
    "quick": AuditProfile(100_000, 1_000),
    "long": AuditProfile(1_000_000, 200, lift=5),
    "full": AuditProfile(1_000_000, 20_000, lift=5),
}
_POWER_OF = {"long": "full"}  # the power counts pairs that run in batches, which have the same runs in both


class AuditVerdict(enum.Enum):
    """The result for one mechanism, and how strong the attack was."""

    HOLDS = "no violation found"
    WEAK = "weak"
    SILENT = "says nothing"
    VIOLATED = "VIOLATED"


@dataclass(frozen=True)
class AuditRow:
    """One mechanism: its claim, the largest loss found against it, and how hard it was attacked.

    ``found`` and ``allowed`` belong to a violation if there is one, otherwise to the sampled pair that came closest to
    its claim. ``laws`` pairs were decided by their exact output law, the others by ``samples`` runs. ``catches`` is the
    smallest share of missing noise that this attack detects (``expost.audit.planted_fault``), 0 if it detected none of
    the planted faults, ``None`` if none was planted at this profile.

    >>> row = AuditRow("noise.Coin", "epsilon 1", "epsilon", 0.9, 1.0, pairs=2, laws=1, samples=1000, verdict=AuditVerdict.HOLDS)
    >>> row.text
    ('noise.Coin', 'epsilon 1', '0.9 of 1 epsilon', '2 (1 exact)', '1,000', 'not measured', 'no violation found')
    """

    mechanism: str
    claim: str
    unit: str
    found: float
    allowed: float
    pairs: int
    laws: int
    samples: int
    verdict: AuditVerdict
    catches: float | None = None

    @property
    def text(self) -> tuple[str, ...]:
        """The cells of the printed table: mechanism, claim, bound found, pairs, samples, smallest fault, verdict."""
        pairs = f"{self.pairs} ({self.laws} exact)" if self.laws else str(self.pairs)
        found = f"{self.found:.3g} of {self.allowed:.3g} {self.unit}"
        return self.mechanism, self.claim, found, pairs, f"{self.samples:,}", self.fault, self.judgement

    @property
    def fault(self) -> str:
        """The smallest planted fault that was detected, as text."""
        if self.catches is None:
            return "not measured"
        return f"{self.catches:.0%} less noise" if self.catches else "none of those planted"

    @property
    def judgement(self) -> str:
        """The verdict as text; a weak one names the faults it would miss."""
        if self.verdict is not AuditVerdict.WEAK:
            return str(self.verdict.value)
        missed = f"would miss less than {self.fault}" if self.catches else "would miss most faults"
        return f"weak: found {self.found / self.allowed:.0%} of its claim, {missed}"


def strength_of(finding: AttackFinding) -> AuditVerdict:
    """Judge the finding that decides a row."""
    if finding.violated:
        return AuditVerdict.VIOLATED
    if not finding.found > 0:
        return AuditVerdict.SILENT
    return AuditVerdict.HOLDS if finding.share >= _STRONG else AuditVerdict.WEAK


def audit_table(
    profile: str | AuditProfile = "quick",
    progress: Progress | None = None,
    *,
    entries: Sequence[AuditEntry] | None = None,
    confidence: float = 0.999,
    seed: int | None = 0,
    plant: bool = False,
) -> list[AuditRow]:
    """Attack every registered mechanism; one row each.

    All bounds of the table hold together with probability ``confidence``: a sound package shows a violation with
    probability at most 1 - ``confidence``. A seed makes the table reproducible; ``None`` draws fresh bits.
    ``progress`` is called with (done, total, name) before each mechanism. With ``plant`` the faults of the last column
    are planted again in this run; otherwise that column shows what was measured for the profile (``read_power``).

    >>> laplace = [entry for entry in all_entries() if entry.short_name == "noise.LaplaceMechanism"]
    >>> [row.verdict.value for row in audit_table(AuditProfile(2000, 100), entries=laplace)]
    ['no violation found']
    """
    settings = profile_of(profile)
    stored = _POWER_OF.get(profile, profile) if isinstance(profile, str) else ""
    measured = read_power()["profiles"].get(stored, {})
    chosen = all_entries() if entries is None else tuple(entries)
    pairs = {entry.mechanism: tuple(entry.pairs()) for entry in chosen}
    tries = max(1, sum(map(len, pairs.values())))
    rows = []
    for done, entry in enumerate(chosen):
        if progress is not None:
            progress(done, len(chosen), entry.short_name)
        bits = system_bits() if seed is None else bits_of(entry, seed)
        risk = (1 - confidence) / tries
        row = audit_entry(entry, settings, bits=bits, failure_probability=risk, pairs=pairs[entry.mechanism])
        known = measured.get(entry.short_name)
        rows.append(replace(row, catches=plant_again(entry, settings, known) if plant else known))
    if progress is not None:
        progress(len(chosen), len(chosen), "done")
    return rows


def audit_entry(
    entry: AuditEntry,
    profile: AuditProfile,
    *,
    bits: BitSource,
    failure_probability: float,
    pairs: Sequence[Pair] | None = None,
) -> AuditRow:
    """Attack one mechanism; each of its sampled pairs errs with probability at most ``failure_probability``."""
    sampled = tuple(entry.pairs()) if pairs is None else pairs
    judged: list[tuple[AttackFinding, str, str]] = []  # with the claim and its unit
    for pair in sampled:
        finding = attack(pair, profile.runs_of(pair), bits=bits, failure_probability=failure_probability)
        judged.append((finding, str(pair.claim), unit_of(pair.claim)))
    for law in entry.laws():
        finding = compare(law)
        delta = f", delta {float(law.delta):.2g}" if law.delta else ""
        judged.append((finding, f"epsilon {finding.allowed:.4g}{delta}", "epsilon"))
    worst, claim, unit = max(judged, key=lambda item: (item[0].violated, not item[0].exact, item[0].share))
    return AuditRow(
        mechanism=entry.short_name,
        claim=claim,
        unit=unit,
        found=worst.found,
        allowed=worst.allowed,
        pairs=len(judged),
        laws=len(judged) - len(sampled),
        samples=sum(item.samples for item, _, _ in judged),
        verdict=strength_of(worst),
    )


def bits_of(entry: AuditEntry, seed: int) -> SeededBits:
    """Derive separate bits for each mechanism, so that a new entry does not change the numbers of the others."""
    digest = hashlib.sha256(f"{seed} {entry.mechanism}".encode()).digest()
    return SeededBits(int.from_bytes(digest, "big"))


def profile_of(profile: str | AuditProfile) -> AuditProfile:
    """Look up a profile by name; a profile is returned unchanged."""
    if isinstance(profile, AuditProfile):
        return profile
    if profile not in PROFILES:
        raise InvalidRequest(f"Expected profile to be one of {', '.join(PROFILES)}", got=profile, do="Name one of them")
    return PROFILES[profile]


FACTORS = tuple(Fraction(percent, 100) for percent in (90, 80, 70, 50, 25))
_TRIES = 200  # pairs of the whole table, which share its failure probability


def smallest_fault(entry: AuditEntry, profile: str | AuditProfile = "quick") -> float:
    """Find the smallest planted fault that the entry's attack detects, as the missing share of noise; 0 if there is none.

    Faults are tried from the smallest on, at the failure probability that a pair has in the whole table.
    """
    if not entry.noise:
        raise InvalidRequest("Expected an entry that declares its noise", got=entry.short_name, do="Declare noise=")
    return next((float(1 - factor) for factor in FACTORS if catches(entry, factor, profile)), 0.0)


def plant_again(entry: AuditEntry, profile: str | AuditProfile, known: float | None) -> float | None:
    """Plant the fault that this attack is known to detect; if it is missed now, find the smallest one that is detected."""
    if not entry.noise:
        return None
    if known and catches(entry, 1 - Fraction(str(known)), profile):
        return known
    return smallest_fault(entry, profile)


def catches(entry: AuditEntry, factor: Fraction, profile: str | AuditProfile = "quick") -> bool:
    """Return whether the attack reports a violation when all noise of the mechanism is multiplied by this factor."""
    settings, bits = profile_of(profile), bits_of(entry, seed=0)
    with planted(entry.noise, factor):
        pairs = entry.pairs()
        # Whole fits see far less in far more time: leaving them out can only understate what is detected.
        batched = [pair for pair in pairs if not pair.slow]
        ordered = sorted(batched or pairs, key=lambda pair: pair.most_runs is not None)
        run_attack = partial(attack, bits=bits, failure_probability=1e-3 / _TRIES)
        return any(run_attack(pair, settings.runs_of(pair)).violated for pair in ordered)
