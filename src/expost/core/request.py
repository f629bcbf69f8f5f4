"""One question on its way from the caller to the release."""

from __future__ import annotations

from typing import Any, Protocol

from expost.core.loss import Loss
from expost.core.release import Release

__all__ = ["Request"]


class Request(Protocol):
    """What the curator needs to know of a question; every room of questions builds these.

    ``check`` and ``worst_case`` come before the data is touched, ``measure`` seals the exact answer, ``climb`` lowers the
    noise until the target is certified and returns the release that the ledger then bills.
    """

    @property
    def question(self) -> str:
        """The question in public words, as it stands on the receipt."""
        ...

    @property
    def worst_case(self) -> Loss:
        """What the run can cost at most."""
        ...

    def check(self, dataset: Any) -> None:
        """Raise ``InvalidRequest`` if the public description of the dataset cannot answer this; reads no rows."""
        ...

    def measure(self, dataset: Any) -> Any:
        """The exact answer, sealed."""
        ...

    def climb(self, sealed: Any, bits: Any) -> Release[Any]:
        """The most private answer that reaches the target, or the best under the cap, flagged."""
        ...
