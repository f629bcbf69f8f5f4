"""What one question of an analyst may cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from expost.core import InvalidRequest

__all__ = ["QuestionLimits"]


@dataclass(frozen=True)
class QuestionLimits:
    """The epsilon that one question may cost, and the one above which it needs the owner's approval; None for no limit.

    >>> QuestionLimits(Fraction(1, 2), None).forbids({"epsilon": Fraction(1)})
    True
    """

    question_cap: Fraction | None
    approval_above: Fraction | None

    def __post_init__(self) -> None:
        cap, above = self.question_cap, self.approval_above
        for value in (cap, above):
            if value is not None and value <= 0:
                raise InvalidRequest("Expected an epsilon above 0", got=float(value), do="Leave it out for no limit")
        if cap is not None and above is not None and above >= cap:
            raise InvalidRequest(
                "Expected approval_above below question_cap, above which nothing is answered",
                got=float(above),
                do="Raise question_cap, or lower approval_above",
            )

    def forbids(self, worst: Mapping[str, Fraction]) -> bool:
        """Return whether a question of this worst case is not answered.

        Parameters
        ----------
        worst : mapping
            The amounts of the worst case.
        """
        return self.question_cap is not None and _is_above(worst, self.question_cap)

    def defers(self, worst: Mapping[str, Fraction]) -> bool:
        """Return whether a question of this worst case waits for the owner.

        Parameters
        ----------
        worst : mapping
            The amounts of the worst case.
        """
        return self.approval_above is not None and _is_above(worst, self.approval_above)

    def to_dict(self) -> dict[str, float | None]:
        """Return the limits as numbers."""
        return {name: None if value is None else float(value) for name, value in vars(self).items()}


def _is_above(worst: Mapping[str, Fraction], limit: Fraction) -> bool:
    """Return whether a worst case is above an epsilon, or cannot be compared with it."""
    if "epsilon" in worst:
        return worst["epsilon"] > limit
    # BS16, Proposition 1.4: epsilon-DP implies rho-zCDP with rho = epsilon^2 / 2.
    return "rho" not in worst or worst["rho"] > limit**2 / 2
