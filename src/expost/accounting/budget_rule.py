"""What an account is charged: the one place where losses and events become totals in the currency of a budget.

A budget is in one definition of privacy. ``BudgetRule`` prices what a run may cost before it starts and what it did cost
afterwards, adds prices up, and states whether a total keeps the budget. The prices are those of the filters
(``expost.accounting.filter``), so the rules hold for steps chosen adaptively and for runs that overlap in time: a run is
refused *before* it starts, and what comes back depends on the released outcome only.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np

from expost.accounting.event_price import EventPrice
from expost.accounting.filter import ApproxFilter, BasicFilter, Filter, filter_for
from expost.accounting.neighbour_change import replaced_event, replaced_loss
from expost.accounting.privacy_event import (
    ApproxEvent,
    ConcentratedEvent,
    ExPostEvent,
    GaussianEvent,
    PrivacyEvent,
    RenyiEvent,
    Sequence,
)
from expost.accounting.rounding import sqrt_down
from expost.core import (
    ApproxGuarantee,
    ApproxLoss,
    GaussianLoss,
    Guarantee,
    InvalidRequest,
    LedgerUnsound,
    Loss,
    PureLoss,
    RenyiLoss,
    ZeroConcentratedLoss,
)
from expost.core.guarantee import (
    ApproxTerms,
    GaussianTerms,
    PureTerms,
    RenyiTerms,
    Terms,
    ZeroConcentratedTerms,
)
from expost.core.rational import decimal_text, float_up, round_up

__all__ = [
    "PARTS",
    "RULES",
    "BudgetRule",
    "ComposedGuarantee",
    "ComposedLoss",
    "read_budget",
    "read_total",
    "round_total",
    "rule_for",
    "write_rule_table",
]

PARTS = 10**18
"""The parts of a budget in the integer column that a database compares by itself."""

FAILURE_SHARE = Fraction(1, 2)
"""The part of an account's delta that is for steps with a delta of their own; the rest pays for composition."""

_UNIT = 2**40  # costs at Renyi orders are whole multiples of 2^-40: exact in sums, equal on every machine
_LEAST_AMOUNT = Fraction(1, 10**18)  # smaller positive totals are rounded up to this; see expost.core.rational
_LONGEST_DENOMINATOR = 1 << 512  # sums of arbitrary fractions would grow without bound; longer ones are rounded up
_LARGEST_EPSILON = 1000  # of a budget that is added up at Renyi orders
_LEAST_DELTA = Fraction(1, 10**24)  # of the same: shares of a smaller one could not be read again
_SAME = Fraction(1, 10**9)  # relative difference of one divergence computed on two machines
_HALVINGS = 50  # of the interval in which the largest admitted epsilon lies
_ENDLESS = Fraction(2**20)  # stands for an infinite cost: above every budget, and exact when a hold is given back


@dataclass(frozen=True)
class ComposedGuarantee(ApproxGuarantee):
    """An (epsilon, delta) budget with the Renyi orders over which its account is added up.

    Parameters
    ----------
    epsilon, delta : number
        The promise.
    failure : Fraction
        The limit of the sum of deltas of steps that have one.
    orders : tuple of float
        The finite Renyi orders. Plain sums of epsilon are the infinite one.
    limits : tuple of int
        The largest cost at each order that proves the promise, in units of 2^-40.

    Examples
    --------
    >>> budget = ComposedGuarantee.of(ApproxGuarantee(1, 1e-6))
    >>> float(budget.failure), read_budget(budget.to_json()) == budget, budget.plain
    (5e-07, True, ApproxGuarantee(epsilon=Fraction(1, 1), delta=Fraction(1, 1000000)))
    """

    failure: Fraction = Fraction(0)
    orders: tuple[float, ...] = ()
    limits: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        ApproxGuarantee(self.epsilon, self.delta)  # checks both; the rest was computed or stored

    @classmethod
    def of(cls, budget: ApproxGuarantee, *, orders: tuple[float, ...] | None = None) -> ComposedGuarantee:
        """Return the budget of a new account; ``orders`` are those of the account that it is a part of, if any."""
        failure = budget.delta * FAILURE_SHARE
        shares = None if orders is None else dict.fromkeys(orders, 1 / len(orders))
        found = ApproxFilter(budget.epsilon, budget.delta, failure=failure, shares=shares)
        limits = tuple(math.floor(limit * _UNIT) for limit in found.limits)
        return cls(budget.epsilon, budget.delta, failure, found.orders, limits)

    def changed_to(self, budget: ApproxGuarantee) -> ComposedGuarantee:
        """Return another budget of the same account. Every order keeps its share of delta.

        Which budget holds at the end may depend on answers, so all of them must share delta in one way: then the largest
        of them proves what the others do (docs/proofs/filters.md, Theorem 2).
        """
        if budget.delta < _LEAST_DELTA:
            raise InvalidRequest(
                "Expected a delta of at least 1e-24 in an account over Renyi orders",
                got=budget.delta,
                do="Keep a larger delta, or open another account",
            )
        more, factor = budget.epsilon - self.epsilon, budget.delta / self.delta
        # The conversion of an order falls by ln(factor) / (order - 1); one unit less covers the rounding of floats.
        falls = [Fraction(math.log(factor) / (order - 1)) - Fraction(factor != 1, _UNIT) for order in self.orders]
        limits = tuple(
            limit + math.floor((more + fall) * _UNIT) for limit, fall in zip(self.limits, falls, strict=True)
        )
        return ComposedGuarantee(budget.epsilon, budget.delta, self.failure * factor, self.orders, limits)

    @property
    def is_proved(self) -> bool:
        """Whether the limits prove the promise: the shares of delta that they need are no more than there is.

        >>> ComposedGuarantee.of(ApproxGuarantee(1, 1e-6)).is_proved
        True
        """
        excess = (float(Fraction(limit, _UNIT) - self.epsilon) for limit in self.limits)
        # What a limit needs by Theorem 2 of docs/proofs/filters.md; capped, because e^700 is the largest float.
        shares = (
            (1 - 1 / order) ** (order - 1) / order * math.exp(min((order - 1) * above, 700.0))
            for order, above in zip(self.orders, excess, strict=True)
        )
        return self.failure >= 0 and math.fsum(shares) <= float(self.delta - self.failure) * (1 + float(_SAME))

    @staticmethod
    def suits(budget: ApproxGuarantee) -> bool:
        """Return whether orders help at all: not beyond an epsilon of a thousand, nor where delta is too small to share."""
        return budget.epsilon <= _LARGEST_EPSILON and budget.delta >= _LEAST_DELTA

    @property
    def plain(self) -> ApproxGuarantee:
        """The promise alone."""
        return ApproxGuarantee(self.epsilon, self.delta)

    def amounts(self) -> dict[str, Fraction]:
        return self.plain.amounts()

    def to_json(self) -> dict[str, Any]:
        more = {"failure": str(self.failure), "orders": list(self.orders), "limits": list(self.limits)}
        return self.plain.to_json() | more


@dataclass(frozen=True)
class ComposedLoss(Loss):
    """What an account with a ``ComposedGuarantee`` has been charged.

    Parameters
    ----------
    epsilon : Fraction
        The sum of pure epsilons, the infinite order.
    delta : Fraction
        The sum of deltas of steps that have one.
    costs : tuple of int
        The sum of costs at each finite order, in units of 2^-40.

    Examples
    --------
    >>> one = ComposedLoss(Fraction(1), Fraction(0), (3, 4))
    >>> read_total((one + one).to_json()) == ComposedLoss(Fraction(2), Fraction(0), (6, 8))
    True
    """

    definition: ClassVar[str] = "composed"
    promise_type = ApproxGuarantee
    epsilon: Fraction
    delta: Fraction
    costs: tuple[int, ...]

    def __post_init__(self) -> None:
        return None  # the numbers were computed or stored, not typed

    def amounts(self) -> dict[str, Fraction]:
        numbered = {f"cost {number}": Fraction(cost) for number, cost in enumerate(self.costs)}
        return {"epsilon": self.epsilon, "delta": self.delta} | numbered

    def text(self, *, down: bool = False) -> str:
        """Return the sums for people; a Gaussian step has no pure epsilon, and its costs are in the entry."""
        endless = self.epsilon >= _ENDLESS
        first = "no pure epsilon" if endless else f"epsilon {decimal_text(self.epsilon, down=down)}"
        return f"{first}, delta {decimal_text(self.delta, down=down)}"

    def with_amounts(self, amounts: Mapping[str, Any]) -> Self:
        epsilon, delta, *costs = amounts.values()
        return type(self)(epsilon, delta, tuple(math.ceil(cost) for cost in costs))

    def to_json(self) -> dict[str, Any]:
        sums = {"epsilon": str(self.epsilon), "delta": str(self.delta)}
        return {"definition": self.definition} | sums | {"costs": list(self.costs)}


def read_budget(data: Mapping[str, Any]) -> Guarantee:
    """Read the budget of an account as it was stored.

    >>> read_budget({"definition": "pure", "epsilon": "1"})
    PureGuarantee(epsilon=Fraction(1, 1))
    """
    if "orders" not in data:
        return Guarantee.from_json(data)
    epsilon, delta, failure = (Fraction(data[name]) for name in ("epsilon", "delta", "failure"))
    orders, limits = tuple(map(float, data["orders"])), tuple(map(int, data["limits"]))
    return ComposedGuarantee(epsilon, delta, failure, orders, limits)


def read_total(data: Mapping[str, Any]) -> Loss:
    """Read a charge or a total as it was stored.

    >>> read_total({"definition": "zcdp", "rho": "1/2"})
    ZeroConcentratedLoss(rho=Fraction(1, 2))
    """
    if data["definition"] != ComposedLoss.definition:
        return Loss.from_json(data)
    return ComposedLoss(Fraction(data["epsilon"]), Fraction(data["delta"]), tuple(map(int, data["costs"])))


@dataclass(frozen=True)
class RuleLine:
    """One line of the table: what a run of one definition costs in accounts of some definitions, and why."""

    loss: str
    budgets: tuple[str, ...]
    charged: str
    given_back: str
    theorem: str


RULES: tuple[RuleLine, ...] = (
    RuleLine("pure", ("pure",), "its cap", "all above the bill", "docs/proofs/ex-post-composition.md, Theorem 2"),
    RuleLine(
        "pure",
        ("approx", "rdp"),
        "its cap in the sum; at each Renyi order the divergence of the cap",
        "at each order all above the smaller of bill and divergence",
        "docs/proofs/filters.md, Theorem 2; docs/proofs/ex-post-renyi.md, Theorem 1",
    ),
    RuleLine("pure", ("zcdp",), "cap tanh(cap/2)", "nothing", "docs/proofs/pure-to-zcdp.md"),
    RuleLine("pure", ("gdp",), "the square of the mu of the cap", "nothing", "docs/proofs/pure-to-gdp.md"),
    RuleLine(
        "approx",
        ("approx",),
        "as pure, and its delta",
        "as pure; never the delta",
        "docs/proofs/ledger-mixed-composition.md",
    ),
    RuleLine(
        "zcdp",
        ("zcdp", "approx", "rdp"),
        "rho; order times rho",
        "steps that did not run",
        "docs/proofs/filters.md, Theorem 1",
    ),
    RuleLine(
        "gdp",
        ("gdp", "zcdp", "approx", "rdp"),
        "mu squared; half of it; order times half of it",
        "steps that did not run",
        "docs/proofs/filters.md, Theorems 1 and 3",
    ),
    RuleLine(
        "rdp", ("rdp", "approx"), "its divergences", "steps that did not run", "docs/proofs/filters.md, Theorem 1"
    ),
    RuleLine(
        "steps of a training",
        ("approx", "zcdp", "gdp", "rdp"),
        "each step, where this currency has a price for it; else the whole as one loss",
        "steps that did not run",
        "docs/proofs/filters.md, Theorems 1 to 3",
    ),
)
"""What may be charged to which account, and what comes back. docs/ledger.md shows this table."""


def write_rule_table() -> str:
    """Return the table of rules in Markdown.

    >>> write_rule_table().splitlines()[0]
    '| a run with a loss in | in accounts in | is charged | gets back | why |'
    """
    head = (
        "| a run with a loss in | in accounts in | is charged | gets back | why |",
        "| --- | --- | --- | --- | --- |",
    )
    lines = (
        f"| {each.loss} | {', '.join(each.budgets)} | {each.charged} | {each.given_back} | {each.theorem} |"
        for each in RULES
    )
    return "\n".join((*head, *lines))


@functools.lru_cache(maxsize=1024)
def rule_for(budget: Guarantee) -> BudgetRule:
    """Return the rule of a budget, the same object each time: its prices are remembered."""
    return BudgetRule(budget)


@dataclass(frozen=True)
class BudgetRule:
    """Prices, sums and the limit of accounts with one budget.

    ``RULES`` lists what may be charged, and what comes back when the bill is known.

    >>> from expost.core import PureLoss, epsilon
    >>> rule = BudgetRule(epsilon(1))
    >>> rule.settled(PureLoss(1), PureLoss(0.25))
    PureLoss(epsilon=Fraction(1, 4))
    """

    budget: Guarantee

    @property
    def zero(self) -> Loss:
        """The total of a new account."""
        if isinstance(self.budget, ComposedGuarantee):
            return ComposedLoss(Fraction(0), Fraction(0), (0,) * len(self.budget.orders))
        match self.budget:
            case RenyiTerms(curve):
                return RenyiLoss(tuple((order, Fraction(0)) for order, _ in curve))
            case ApproxTerms():
                return ApproxLoss(Fraction(0), Fraction(0))
            case ZeroConcentratedTerms():
                return ZeroConcentratedLoss(Fraction(0))
            case GaussianTerms():
                return GaussianLoss(Fraction(0))
        return PureLoss(Fraction(0))

    def held(
        self,
        worst_case: Loss,
        *,
        event: PrivacyEvent | None = None,
        before: Fraction = Fraction(0),
        replaced: bool = False,
    ) -> Loss:
        """Return what a hold reserves.

        ``event`` states what may run where that is known in more detail than ``worst_case``; ``before`` is what was
        paid for the release that the run refines. With ``replaced`` the run states what an added or removed unit loses,
        and the account counts replaced ones (docs/proofs/replace-one-accounts.md).
        """
        if replaced:
            worst_case, event, before = replaced_loss(worst_case), self._replaced(event), 2 * before
        return self._price(worst_case, worst_case, event, before)

    def settled(
        self,
        worst_case: Loss,
        bill: Loss,
        *,
        event: PrivacyEvent | None = None,
        outcome: PrivacyEvent | None = None,
        before: Fraction = Fraction(0),
        replaced: bool = False,
    ) -> Loss:
        """Return what stays charged once the bill is known. It is never above what was held, number by number."""
        if bill.definition != worst_case.definition or not bill.within(worst_case):
            raise _bill_above_hold()
        if replaced:
            worst_case, bill, before = replaced_loss(worst_case), replaced_loss(bill), 2 * before
            event, outcome = self._replaced(event), self._replaced(outcome)
        held = self._price(worst_case, worst_case, event, before)
        charge = self._price(worst_case, bill, event and (outcome or event), before)
        reserved = held.amounts()
        if any(amount > reserved[name] for name, amount in charge.amounts().items()):
            raise _bill_above_hold()
        return charge

    def add(self, total: Loss, charge: Loss, *, released: Loss | None = None) -> Loss:
        """Return the total after a charge, with a hold released; never below the true sum."""
        plus, back = charge.amounts(), {} if released is None else released.amounts()
        sums = {name: old + plus[name] - back.get(name, 0) for name, old in total.amounts().items()}
        return total.with_amounts({name: round_total(amount) for name, amount in sums.items()})

    def fits(self, total: Loss) -> bool:
        """Return whether a total keeps the budget."""
        if not isinstance(self.budget, ComposedGuarantee) or not isinstance(total, ComposedLoss):
            return total.within(self.budget)
        proved = total.epsilon <= self.budget.epsilon and total.epsilon < _ENDLESS
        proved |= any(
            cost <= limit and cost < _ENDLESS * _UNIT
            for cost, limit in zip(total.costs, self.budget.limits, strict=True)
        )
        return proved and total.delta <= self.budget.failure

    def shown(self, total: Loss) -> Loss:
        """Return a total for people: of Renyi orders the (epsilon, delta) that the best of them proves."""
        if not isinstance(self.budget, ComposedGuarantee) or not isinstance(total, ComposedLoss):
            return total
        above = min((cost - limit for cost, limit in zip(total.costs, self.budget.limits, strict=True)), default=0)
        proved = round_up(self.budget.epsilon + Fraction(above, _UNIT))
        if above <= 0:
            proved = min(proved, self.budget.epsilon)  # rounding must not show more than a budget that is kept
        if total.epsilon <= proved:
            return ApproxLoss(total.epsilon, total.delta)
        return ApproxLoss(proved, total.delta + self.budget.delta - self.budget.failure)

    def left(self, total: Loss, *, least: Loss | None = None) -> Loss:
        """Return what one more run may be charged: the largest pure epsilon, and the delta that is left.

        The new total is at least ``least``, number by number, such as what the other parts of a table have spent.
        """
        if not isinstance(self.budget, ComposedGuarantee) or not isinstance(total, ComposedLoss):
            gone = total.amounts()
            rest = {name: amount - gone[name] for name, amount in self.budget.amounts().items()}
            return total.with_amounts({name: _drop_tiny(amount) for name, amount in rest.items()})
        low, high = max(_drop_tiny(self.budget.epsilon - total.epsilon), Fraction(0)), self.budget.epsilon
        delta = max(_drop_tiny(self.budget.failure - total.delta), Fraction(0))
        # By the infinite order ``low`` is exact. Finite orders may admit more, and the more the later.
        if isinstance(least, ComposedLoss) and least.epsilon > self.budget.epsilon:
            low = Fraction(0)

        def admits(epsilon: Fraction) -> bool:
            found = self.add(total, self.held(ApproxLoss(epsilon, delta))).amounts()
            smallest = {} if least is None else least.amounts()
            return self.fits(
                total.with_amounts({name: max(each, smallest.get(name, each)) for name, each in found.items()})
            )

        for _ in range(_HALVINGS if admits(low + self.budget.epsilon / 2**20) else 0):
            middle = (low + high) / 2
            low, high = (middle, high) if admits(middle) else (low, middle)
        return ApproxLoss(low, delta)

    def covers(self, stated: Loss, price: Loss) -> bool:
        """Return whether a recorded charge covers its price. Costs at Renyi orders may differ in their last digits.

        A charge above its price is sound. Older ledgers have such charges, from coarser theorems.
        """
        exact, recorded = price.amounts(), stated.amounts()
        if recorded.keys() != exact.keys():
            return False
        rounded = {name for name in exact if name not in ("epsilon", "delta", "rho", "mu_squared")}
        # Costs of a composed total are whole numbers, and tiny ones may differ by one of them.
        unit = 1 if isinstance(price, ComposedLoss) else 0
        slack = {name: exact[name] * _SAME + unit for name in rounded}
        return all(recorded[name] >= amount - slack.get(name, 0) for name, amount in exact.items())

    def used(self, total: Loss) -> int:
        """Return the most used number of the budget in 10^-18 parts: above ``PARTS`` exactly when overspent."""
        if isinstance(self.budget, ComposedGuarantee):
            spent = self.shown(total).amounts()["epsilon"]
            return min(-(-spent * PARTS // self.budget.epsilon), PARTS) if self.fits(total) else PARTS + 1
        gone, used = total.amounts(), [0]
        for name, limit in self.budget.amounts().items():
            if gone[name]:
                used.append(-(-(gone[name] * PARTS) // limit) if limit else PARTS + 1)
        return max(used)

    @functools.cached_property
    def _pricer(self) -> Filter:
        """The filter of the accountant that prices events in this currency."""
        if isinstance(self.budget, ComposedGuarantee):
            shares = dict.fromkeys(self.budget.orders, 1 / len(self.budget.orders))
            return ApproxFilter(self.budget.epsilon, self.budget.delta, failure=self.budget.failure, shares=shares)
        if isinstance(self.budget, ApproxGuarantee):
            return BasicFilter(self.budget.epsilon, self.budget.delta)
        return filter_for(self.budget)

    def _price(self, worst_case: Loss, bill: Loss, event: PrivacyEvent | None, before: Fraction) -> Loss:
        """Return the charge of a bill under a cap; by the event where this currency has a price for it."""
        if event is not None and self._adds_steps:
            price = self._find_price(event)
            if price is not None:
                return self._charge(price)
        if bill.definition == self.budget.definition and not isinstance(self.budget, ComposedGuarantee):
            # In its own definition a loss is its own price, without rounding.
            if isinstance(bill, ApproxLoss):
                # Delta is a probability over all outcomes, not only the one that was seen: it stays that of the cap.
                return ApproxLoss(bill.epsilon, worst_case.amounts()["delta"])
            if bill.amounts().keys() == self.budget.amounts().keys():
                return bill
        price = self._find_price(_event_of(worst_case, bill, before))
        if price is None:
            raise InvalidRequest(
                f"Expected a loss that an account in {self.budget.definition} can be charged for",
                got=worst_case.definition,
                do=f"Use an account in {' or '.join(_budgets_for(worst_case.definition, self.budget.definition))}"
                + (", such as budget=(1, 1e-6)" if worst_case.definition == "approx" else ""),
            )
        return self._charge(price)

    def _replaced(self, event: PrivacyEvent | None) -> PrivacyEvent | None:
        """Return an event under add/remove for a replaced unit, or None where only the whole run has a price then."""
        if event is None or not self._adds_steps:
            return None
        orders: tuple[float, ...] = ()
        if isinstance(self.budget, ComposedGuarantee):
            orders = self.budget.orders
        elif isinstance(self.budget, RenyiTerms):
            orders = tuple(float_up(order) for order, _ in self.budget.curve)
        try:
            return replaced_event(event, definition=self.budget.definition, orders=orders)
        except InvalidRequest:
            return None

    @property
    def _adds_steps(self) -> bool:
        """Whether totals add up steps. Plain sums of (epsilon, delta) do not: they take a whole run as one pair."""
        return isinstance(self.budget, ComposedGuarantee) or self.budget.definition not in ("pure", "approx")

    def _find_price(self, event: PrivacyEvent) -> EventPrice | None:
        """Price an event, or return None where this currency has no price for a part of it."""
        try:
            price = self._pricer.price_event(event)
        except InvalidRequest:
            return None
        # An account of a Renyi curve promises all of its orders, one in (epsilon, delta) needs one of them.
        known = np.isfinite(price.cost) if isinstance(price.cost, np.ndarray) else np.True_
        endless = not (np.all(known) if isinstance(self.budget, RenyiTerms) else np.any(known))
        # Only (epsilon, delta) covers the failure of a step.
        return None if endless or (price.failure and self.budget.definition != "approx") else price

    def _charge(self, price: EventPrice) -> Loss:
        """Return a price of the accountant as a charge."""
        match self.budget:
            case ComposedGuarantee():
                costs = np.ceil(np.minimum(price.cost, float(_ENDLESS)) * _UNIT)
                epsilon = _ENDLESS if price.loss == math.inf else min(Fraction(price.loss), _ENDLESS)
                return ComposedLoss(_raise_tiny(epsilon), price.failure, tuple(map(int, costs.tolist())))
            case PureTerms():
                return self.zero.with_amounts({"epsilon": price.loss + price.cost})
            case ApproxTerms():
                return ApproxLoss(price.loss + price.cost, price.failure)
            case RenyiTerms(curve):
                costs = [round_up(Fraction(float(cost))) for cost in price.cost]
                return RenyiLoss(tuple((order, cost) for (order, _), cost in zip(curve, costs, strict=True)))
            case _:
                (name,) = self.budget.amounts()
                return self.zero.with_amounts({name: _raise_tiny(price.cost)})


def round_total(amount: Fraction) -> Fraction:
    """Return a total as it is stored: exact, or rounded up where it is tiny or its denominator has grown too long."""
    amount = _raise_tiny(amount)
    return amount if amount.denominator <= _LONGEST_DENOMINATOR else round_up(amount, relative=Fraction(0))


def _event_of(worst_case: Terms, bill: Terms, before: Fraction) -> PrivacyEvent:
    """Return a run of which only the cap and the bill are known as an event."""
    match worst_case, bill:
        case PureTerms(cap), PureTerms(loss):
            return ExPostEvent(loss, cap, before)
        case ApproxTerms(cap, delta), ApproxTerms(loss, _):
            # Outside an event of probability delta, which never comes back, the loss is pure and ex post
            # (docs/proofs/ledger-mixed-composition.md).
            return Sequence((ExPostEvent(loss, cap, before), ApproxEvent(Fraction(0), delta)))
        case _, ZeroConcentratedTerms(rho):
            return ConcentratedEvent(rho)
        case _, GaussianTerms(mu_squared):
            # The noise is rounded down: less noise costs more.
            return GaussianEvent(sqrt_down(1 / mu_squared)) if mu_squared else Sequence()
        case _, RenyiTerms(curve):
            return RenyiEvent(curve)
    raise InvalidRequest("Expected a loss of a known definition", got=bill.definition, do="Pass a loss of expost.core")


def _budgets_for(definition: str, refused: str) -> list[str]:
    """Return the definitions of accounts in which a loss of this one has a price, for one that such an account refused."""
    found = [budget for line in RULES if line.loss == definition for budget in line.budgets]
    # An account in (epsilon, delta) refuses only if it adds up plainly, as those of version 0.1 do.
    words = {refused: f"a new one in {refused}"} if refused == "approx" else {}
    return [f"{each} at its orders" if each == definition == "rdp" else words.get(each, each) for each in found]


def _bill_above_hold() -> LedgerUnsound:
    return LedgerUnsound(
        "Cannot settle because the bill is not within what was held",
        do="The hold stays charged at its worst case; report this as a bug",
    )


def _drop_tiny(amount: Fraction) -> Fraction:
    """Return what is left of a budget; a remainder too small to be a privacy parameter counts as nothing."""
    return amount if amount >= _LEAST_AMOUNT else Fraction(0)


def _raise_tiny(amount: Fraction) -> Fraction:
    """Raise a positive amount to the smallest one that a loss may name."""
    return _LEAST_AMOUNT if 0 < amount < _LEAST_AMOUNT else amount
