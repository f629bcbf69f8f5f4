"""What a loss costs in the currency of an account, and what of a hold may be given back.

An account counts in one definition of privacy, the one of its budget. A rule below states what a loss of some
definition is charged there, and whether the theorem lets the charge fall to the realised bill afterwards.
Anything without a rule is refused. All rules hold for losses chosen adaptively and for holds that overlap in time:
the budget is a filter that refuses a run *before* it starts, and a refund depends on the released outcome only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from expost.core import ApproxLoss, Guarantee, InvalidRequest, LedgerUnsound, Loss, ZeroConcentratedLoss
from expost.core.rational import round_up

__all__ = [
    "PARTS",
    "ChargeRule",
    "add_to_total",
    "budget_left",
    "held_charge",
    "round_total",
    "rule_for",
    "settled_charge",
    "used_parts",
]

PARTS = 10**18
"""The parts of a budget in the integer column that a database compares by itself."""

_LEAST_AMOUNT = Fraction(1, 10**18)  # smaller positive totals are rounded up to this; see expost.core.rational
_LONGEST_DENOMINATOR = 1 << 512  # sums of arbitrary fractions would grow without bound; longer ones are rounded up


@dataclass(frozen=True, slots=True)
class ChargeRule:
    """How a loss of one definition is charged to an account of another or the same definition.

    ``charge`` converts the loss. ``settled`` combines the worst case and the bill into what counts afterwards, or is
    None where the theorem gives nothing back.
    """

    charge: Callable[[Loss], Loss]
    theorem: str
    settled: Callable[[Loss, Loss], Loss] | None

    @property
    def refund(self) -> bool:
        """Whether the charge falls to the bill when the run is settled."""
        return self.settled is not None


def _keep_loss(loss: Loss) -> Loss:
    return loss


def _pure_to_approx(loss: Loss) -> Loss:
    return ApproxLoss(loss.amounts()["epsilon"], Fraction(0))


def _pure_to_zcdp(loss: Loss) -> Loss:
    return ZeroConcentratedLoss(_raise_tiny(loss.amounts()["epsilon"] ** 2 / 2))  # BS16, Proposition 1.4


def _gaussian_to_zcdp(loss: Loss) -> Loss:
    return ZeroConcentratedLoss(_raise_tiny(loss.amounts()["mu_squared"] / 2))  # BS16, Proposition 1.6


def _take_bill(worst_case: Loss, bill: Loss) -> Loss:
    return bill


def _take_epsilon_of_bill(worst_case: Loss, bill: Loss) -> Loss:
    # Delta is a probability over all outcomes; it does not depend on the one seen, so it stays that of the cap.
    return ApproxLoss(bill.amounts()["epsilon"], worst_case.amounts()["delta"])


_RULES: dict[tuple[str, str], ChargeRule] = {
    # Density ratios of a transcript multiply, so realised losses add as long as each cap fitted before its run.
    ("pure", "pure"): ChargeRule(_keep_loss, "LNRWW17, Definition 2.3; docs/proofs/ex-post-composition.md", _take_bill),
    # The same argument with the delta of the other releases carried along.
    ("pure", "approx"): ChargeRule(_pure_to_approx, "docs/proofs/ledger-mixed-composition.md", _take_bill),
    # Sub-densities multiply as densities do; the bill must be approximately ex-post private at the delta that was held.
    ("approx", "approx"): ChargeRule(_keep_loss, "docs/proofs/ledger-mixed-composition.md", _take_epsilon_of_bill),
    # exp((order - 1)(loss - sum of what ran)) is a supermartingale, so what did not run costs nothing.
    ("zcdp", "zcdp"): ChargeRule(_keep_loss, "FZ21; WRRW23; docs/proofs/ledger-mixed-composition.md", _take_bill),
    ("rdp", "rdp"): ChargeRule(_keep_loss, "FZ21; docs/proofs/ledger-mixed-composition.md", _take_bill),
    ("gdp", "gdp"): ChargeRule(_keep_loss, "ST22; KTH23", _take_bill),
    # Each Gaussian step that ran is a zCDP step of mu^2 / 2, hence the zCDP line applies.
    ("gdp", "zcdp"): ChargeRule(
        _gaussian_to_zcdp, "BS16, Proposition 1.6; docs/proofs/ledger-mixed-composition.md", _take_bill
    ),
    # Holds for the cap, known before the run. The realised epsilon is not a zCDP parameter, so nothing is given back.
    ("pure", "zcdp"): ChargeRule(_pure_to_zcdp, "BS16, Proposition 1.4", None),
}


def rule_for(loss: Loss, budget: Guarantee) -> ChargeRule:
    """Return the rule by which an account with this budget is charged for this loss.

    >>> from expost.core import PureLoss, zcdp
    >>> rule_for(PureLoss(1), zcdp(1)).refund
    False
    """
    rule = _RULES.get((loss.definition, budget.definition))
    if rule is None or (loss.definition == "rdp" and loss.amounts().keys() != budget.amounts().keys()):
        known = sorted(there for here, there in _RULES if here == loss.definition)
        raise InvalidRequest(
            f"Expected a loss that an account in {budget.definition} can be charged for",
            got=loss.definition,
            do=f"Use an account in {' or '.join(known)}" if rule is None else "Use the Renyi orders of the account",
        )
    return rule


def held_charge(budget: Guarantee, worst_case: Loss) -> Loss:
    """Return what a hold reserves in an account with this budget.

    >>> from expost.core import PureLoss, zcdp
    >>> held_charge(zcdp(1), PureLoss(1))
    ZeroConcentratedLoss(rho=Fraction(1, 2))
    """
    return rule_for(worst_case, budget).charge(worst_case)


def settled_charge(budget: Guarantee, worst_case: Loss, bill: Loss) -> Loss:
    """Return what stays charged once the bill is known.

    >>> from expost.core import PureLoss, epsilon, zcdp
    >>> settled_charge(epsilon(1), PureLoss(1), PureLoss(0.25))
    PureLoss(epsilon=Fraction(1, 4))
    >>> settled_charge(zcdp(1), PureLoss(1), PureLoss(0.25))
    ZeroConcentratedLoss(rho=Fraction(1, 2))
    """
    if bill.definition != worst_case.definition or not bill.within(worst_case):
        raise LedgerUnsound(
            "Cannot settle because the bill is not within what was held",
            do="The hold stays charged at its worst case; report this as a bug",
        )
    rule = rule_for(worst_case, budget)
    return rule.charge(worst_case if rule.settled is None else rule.settled(worst_case, bill))


def add_to_total(spent: Loss, charge: Loss, *, released: Loss | None = None) -> Loss:
    """Return the total after a charge, with a hold released; never below the true sum."""
    plus, back = charge.amounts(), {} if released is None else released.amounts()
    amounts = spent.amounts()
    return spent.with_amounts(
        {name: round_total(old + plus[name] - back.get(name, 0)) for name, old in amounts.items()}
    )


def budget_left(budget: Guarantee, spent: Loss) -> Loss:
    """Return what remains of a budget; a remainder too small to be a privacy parameter counts as nothing."""
    gone = spent.amounts()
    rest = {name: amount - gone[name] for name, amount in budget.amounts().items()}
    return spent.with_amounts(
        {name: amount if amount >= _LEAST_AMOUNT else Fraction(0) for name, amount in rest.items()}
    )


def used_parts(budget: Guarantee, spent: Loss) -> int:
    """Return the most used number of the budget in 10^-18 parts, rounded up: above ``PARTS`` exactly when overspent.

    >>> from expost.core import PureLoss, epsilon
    >>> used_parts(epsilon(3), PureLoss(1))
    333333333333333334
    """
    gone, used = spent.amounts(), [0]
    for name, total in budget.amounts().items():
        if gone[name]:
            used.append(-(-(gone[name] * PARTS) // total) if total else PARTS + 1)
    return max(used)


def round_total(amount: Fraction) -> Fraction:
    """Return a total as it is stored: exact, or rounded up where it is tiny or its denominator has grown too long."""
    amount = _raise_tiny(amount)
    return amount if amount.denominator <= _LONGEST_DENOMINATOR else round_up(amount, relative=Fraction(0))


def _raise_tiny(amount: Fraction) -> Fraction:
    """Raise a positive amount to the smallest one that a loss may name."""
    return _LEAST_AMOUNT if 0 < amount < _LEAST_AMOUNT else amount
