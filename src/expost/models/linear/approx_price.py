"""Requests billed in zero-concentrated DP, paid from accounts that count in epsilon and delta."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from expost.accounting.zcdp import ConcentratedTotal
from expost.core import ApproxGuarantee, ApproxLoss, InvalidRequest, Loss, Release, Request, ZeroConcentratedLoss

__all__ = ["ApproxPrice"]


@dataclass(frozen=True)
class ApproxPrice:
    """A request of at most rho, charged as the (epsilon, delta) that its cap implies (CKS20, Proposition 12).

    Delta is chosen before the run, so the whole run is one (epsilon, delta)-private mechanism, which adds up with others
    (DR14, Theorem 3.16). Nothing is given back where it stops early: an epsilon for the rho that was seen would need a
    delta that holds for all stopping points at once (docs/proofs/gaussian-ridge.md).
    """

    request: Request
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        cap = self.request.worst_case
        if not isinstance(cap, ZeroConcentratedLoss):
            raise InvalidRequest("Expected a request billed in zCDP", got=cap.definition, do="Pay for it as it is")
        if ConcentratedTotal(cap.rho, Fraction(0)).epsilon(self.delta) > self.epsilon:
            raise InvalidRequest("Expected an epsilon that the cap implies", got=self.epsilon, do="Raise it")

    @property
    def question(self) -> str:
        """The request's own."""
        return self.request.question

    @property
    def worst_case(self) -> Loss:
        """What is held and, stopped early or not, paid."""
        return ApproxLoss(self.epsilon, self.delta)

    def check(self, dataset: Any) -> None:
        """As the request."""
        self.request.check(dataset)

    def measure(self, dataset: Any) -> Any:
        """As the request."""
        return self.request.measure(dataset)

    def climb(self, sealed: Any, bits: Any) -> Release[Any]:
        """The request's release, its receipt in this currency."""
        release = self.request.climb(sealed, bits)
        receipt = release.receipt
        return replace(
            release,
            receipt=replace(
                receipt,
                promise=ApproxGuarantee(self.epsilon, self.delta),
                bill=ApproxLoss(self.epsilon, self.delta),
                terms={**receipt.terms, "held as": str(receipt.promise), "came to": str(receipt.bill)},
                breakdown={},
                citations=(*receipt.citations, "CKS20, Proposition 12"),
            ),
        )
