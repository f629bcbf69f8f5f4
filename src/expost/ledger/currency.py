"""What a loss costs in the currency of an account, and what of a hold may be given back.

An account counts in one definition of privacy, the one of its budget. A rule below says what a loss of some
definition is charged there, and whether the theorem lets the charge fall to the realised bill afterwards.
Anything without a rule is refused. All rules hold for losses chosen adaptively and for holds that overlap in time:
the budget is a filter that refuses a run *before* it starts, and a refund depends on the released outcome only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from expost.core import (
    ApproxLoss,
    Guarantee,
    InvalidRequest,
    LedgerUnsound,
    Loss,
    ZeroConcentratedLoss,
)
from expost.core.rational import round_up

__all__ = ["Rule", "add", "held_charge", "left", "rounded", "rule_for", "settled_charge", "used_parts"]

PARTS = 10**18
"""Parts of a budget in the integer column that a database compares by itself."""

_DUST = Fraction(1, 10**18)  # the smallest amount a loss may name; see expost.core.rational
_LONGEST_DENOMINATOR = 1 << 512  # sums of arbitrary fractions would grow without bound; longer ones are rounded up


def _bill_alone(worst_case: Loss, bill: Loss) -> Loss:
    return bill


@dataclass(frozen=True, slots=True)
class Rule:
    """How a loss is charged to an account of another or the same definition.

    ``settled`` says what counts once the bill is known, where the theorem gives something back.
    """

    charge: Callable[[Loss], Loss]
    refund: bool
    theorem: str
    settled: Callable[[Loss, Loss], Loss] = _bill_alone


def _same(loss: Loss) -> Loss:
    return loss


def _pure_as_approx(loss: Loss) -> Loss:
    return ApproxLoss(loss.amounts()["epsilon"], Fraction(0))


def _pure_as_zcdp(loss: Loss) -> Loss:
    return ZeroConcentratedLoss(_no_dust(loss.amounts()["epsilon"] ** 2 / 2))  # BS16, Proposition 1.4


def _gaussian_as_zcdp(loss: Loss) -> Loss:
    return ZeroConcentratedLoss(_no_dust(loss.amounts()["mu_squared"] / 2))  # BS16, Proposition 1.6


def _delta_of_the_cap(worst_case: Loss, bill: Loss) -> Loss:
    """The realised epsilon; delta is a probability over all outcomes and does not depend on the one seen."""
    return ApproxLoss(bill.amounts()["epsilon"], worst_case.amounts()["delta"])


_RULES: dict[tuple[str, str], Rule] = {
    # Density ratios of a transcript multiply, so realised losses add as long as each cap fitted before its run.
    ("pure", "pure"): Rule(_same, True, "LNRWW17, Definition 2.3; docs/proofs/ex-post-composition.md"),
    # The same argument with the delta of the other releases carried along.
    ("pure", "approx"): Rule(_pure_as_approx, True, "docs/proofs/ledger-mixed-composition.md"),
    # Sub-densities multiply as densities do; the bill must be approximately ex-post private at the delta that was held.
    ("approx", "approx"): Rule(_same, True, "docs/proofs/ledger-mixed-composition.md", _delta_of_the_cap),
    # exp((order - 1)(loss - sum of what ran)) is a supermartingale, so what did not run costs nothing.
    ("zcdp", "zcdp"): Rule(_same, True, "FZ21; WRRW23; docs/proofs/ledger-mixed-composition.md"),
    ("rdp", "rdp"): Rule(_same, True, "FZ21; docs/proofs/ledger-mixed-composition.md"),
    ("gdp", "gdp"): Rule(_same, True, "ST22; KTH23"),
    # Each Gaussian step that ran is a zCDP step of mu^2 / 2, hence the line above applies.
    ("gdp", "zcdp"): Rule(_gaussian_as_zcdp, True, "BS16, Proposition 1.6; docs/proofs/ledger-mixed-composition.md"),
    # Holds for the cap, known before the run; the realised epsilon is no zCDP parameter, so nothing is given back.
    ("pure", "zcdp"): Rule(_pure_as_zcdp, False, "BS16, Proposition 1.4"),
}


def rule_for(loss: Loss, budget: Guarantee) -> Rule:
    """The rule by which an account with this budget is charged for this loss.

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
    """What a hold reserves in an account with this budget.

    >>> from expost.core import PureLoss, zcdp
    >>> held_charge(zcdp(1), PureLoss(1))
    ZeroConcentratedLoss(rho=Fraction(1, 2))
    """
    return rule_for(worst_case, budget).charge(worst_case)


def settled_charge(budget: Guarantee, worst_case: Loss, bill: Loss) -> Loss:
    """What stays charged once the bill is known.

    >>> from expost.core import PureLoss, epsilon, zcdp
    >>> settled_charge(epsilon(1), PureLoss(1), PureLoss(0.25))
    PureLoss(epsilon=Fraction(1, 4))
    >>> settled_charge(zcdp(1), PureLoss(1), PureLoss(0.25))
    ZeroConcentratedLoss(rho=Fraction(1, 2))
    """
    if bill.definition != worst_case.definition or not bill.within(worst_case):
        raise LedgerUnsound(
            "Expected a bill within what was held", do="The hold stays charged at its worst case; report this as a bug"
        )
    rule = rule_for(worst_case, budget)
    return rule.charge(rule.settled(worst_case, bill) if rule.refund else worst_case)


def add(spent: Loss, charge: Loss, *, released: Loss | None = None) -> Loss:
    """The total after a charge, with a hold released; never below the true sum."""
    zero = dict.fromkeys(spent.amounts(), Fraction(0))
    back = zero if released is None else released.amounts()
    plus = charge.amounts()
    return spent._with({name: rounded(amount + plus[name] - back[name]) for name, amount in spent.amounts().items()})


def left(budget: Guarantee, spent: Loss) -> Loss:
    """What remains of a budget; a remainder too small to be a privacy parameter counts as nothing."""
    gone = spent.amounts()
    rest = {name: amount - gone[name] for name, amount in budget.amounts().items()}
    return spent._with({name: amount if amount >= _DUST else Fraction(0) for name, amount in rest.items()})


def used_parts(budget: Guarantee, spent: Loss) -> int:
    """The most used number of the budget in 10^-18 parts, rounded up: above ``PARTS`` exactly when overspent.

    >>> from expost.core import PureLoss, epsilon
    >>> used_parts(epsilon(3), PureLoss(1))
    333333333333333334
    """
    gone = spent.amounts()
    return max(_parts(gone[name], amount) for name, amount in budget.amounts().items())


def _parts(gone: Fraction, total: Fraction) -> int:
    if gone == 0:
        return 0
    return PARTS + 1 if total == 0 else -(-(gone * PARTS) // total)


def rounded(amount: Fraction) -> Fraction:
    """A total as it is stored: exact, or rounded up where it is dust or its denominator has grown too long."""
    amount = _no_dust(amount)
    return amount if amount.denominator <= _LONGEST_DENOMINATOR else round_up(amount, relative=Fraction(0))


def _no_dust(amount: Fraction) -> Fraction:
    return _DUST if 0 < amount < _DUST else amount
