"""Any grouped question by keys that are not public: the keys first, then the question about those shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Any, NoReturn

from expost.core import (
    ApproxGuarantee,
    ApproxLoss,
    BudgetExceeded,
    InvalidRequest,
    Loss,
    Outcome,
    Receipt,
    Release,
    TargetNotMet,
)
from expost.core.rational import rational
from expost.core.receipt import together
from expost.data import Dataset
from expost.noise import BitSource
from expost.stats.groups import GroupRelease, Groups
from expost.stats.private_keys import PrivateKeys
from expost.stats.table_release import AnswerRelease

__all__ = ["ByPrivateKeys", "private_keys_in"]

Keys = tuple[Any, ...]


def private_keys_in(by: Any) -> tuple[PrivateKeys, ...]:
    """The private keys among the columns of ``by=``.

    >>> private_keys_in(["city", PrivateKeys("job", epsilon=1, delta=1e-6)])[0].question
    'keys of job'
    """
    listed = by if isinstance(by, list | tuple) else (by,)
    return tuple(each for each in listed if isinstance(each, PrivateKeys))


@dataclass(frozen=True, repr=False)
class _Stage:
    """What was found for each list of keys, and the dataset for the second pass. SECRET."""

    found: tuple[Any, ...]
    dataset: Dataset

    def __reduce__(self) -> NoReturn:
        raise TypeError("Expected a stage to stay where it is; it holds exact counts.")


class ByPrivateKeys:
    """A grouped question with ``by=PrivateKeys(...)``: keys above a threshold first, then the question about them.

    The noise of the answers is independent of the noise that chose the keys. So intervals hold for all groups shown at
    once, which they would not if the same noise had lifted a group over the threshold.

    Guarantee: (epsilon, delta)-DP: the keys' epsilon and delta, known before the run, and the question's own pure
        ex-post loss, known only after the run and at most epsilon or ``max_epsilon``.
    Adjacency: the dataset's, which must be add/remove.
    Sensitivity: that of each stage; the second is measured with the keys that the first has released.
    Accuracy: that of the question, for the groups shown, all at once; rare groups are left out.
    Numerics: that of each stage.
    Reference: DR14, Theorem 3.16 (composition); docs/proofs/ex-post-composition.md (Theorem 3, the refund);
        docs/proofs/private-keys.md (threshold).

    >>> from expost.stats import Sum
    >>> Sum("pay", by=PrivateKeys("city", epsilon=0.2, delta=1e-6), epsilon=1).question
    'sum of pay by private city'
    """

    def __init__(self, build: Callable[..., Any], subject: Sequence[Any], terms: Mapping[str, Any]) -> None:
        by = terms["by"]
        self._by = tuple(by) if isinstance(by, list | tuple) else (by,)
        if terms.get("bounds") == "private":
            raise InvalidRequest(
                "Expected public bounds beside private keys", do="Ask for bounds first, then pass them"
            )
        level = terms.get("epsilon") if terms.get("epsilon") is not None else terms.get("max_epsilon")
        if level is None:
            raise InvalidRequest("Expected a cap beside private keys", do="Pass max_epsilon=, or epsilon=")
        self._build, self._subject, self._terms = build, tuple(subject), dict(terms)
        self._keys = tuple(each.among(terms.get("where")) for each in private_keys_in(self._by))
        self._rest = rational(level, "epsilon")
        self._text = self._asked([str(each) for each in self._by]).question

    def _asked(self, by: Sequence[Any]) -> Any:
        return self._build(*self._subject, **self._terms | {"by": list(by)})

    def _about(self, dataset: Dataset, shown: Sequence[Keys]) -> Any:
        """The question about the keys shown."""
        lists = iter(zip(self._keys, shown, strict=True))
        by = []
        for each in self._by:
            if isinstance(each, PrivateKeys):
                keys, values = next(lists)
                by.append(keys.axis(dataset, values))
            else:
                by.append(each)
        return self._asked(by)

    @property
    def question(self) -> str:
        """The question in public words."""
        return str(self._text)

    @property
    def delta(self) -> Fraction:
        """The delta of all lists of keys together."""
        return sum((each.delta for each in self._keys), Fraction(0))

    @property
    def keys_epsilon(self) -> Fraction:
        """The epsilon of all lists of keys together."""
        return sum((each.epsilon for each in self._keys), Fraction(0))

    @property
    def worst_case(self) -> Loss:
        """What keys and question may cost together."""
        return ApproxLoss(self.keys_epsilon + self._rest, self.delta)

    def check(self, dataset: Dataset) -> None:
        """Refuse what the dataset's public description cannot answer, or not even for one group under the cap."""
        for each in self._keys:
            each.check(dataset)
        self._about(dataset, [("",)] * len(self._keys)).check(dataset)

    def measure(self, dataset: Dataset) -> _Stage:
        """The sealed counts of the keys."""
        return _Stage(tuple(each.measure(dataset) for each in self._keys), dataset)

    def climb(self, stage: _Stage, bits: BitSource | None = None) -> Release[Any]:
        """Keys, then the question about those shown."""
        pairs = zip(self._keys, stage.found, strict=True)
        shown = [each.climb(found, bits) for each, found in pairs]
        receipts = [each.receipt for each in shown]
        if not all(each.value for each in shown):
            return self._nothing(receipts, Outcome.FIXED)
        question = self._about(stage.dataset, [each.value for each in shown])
        try:
            question.check(stage.dataset)
        except BudgetExceeded:
            # How dear the target is depends on the number of keys, which were paid for: a missed target, no error.
            return self._keys_alone(shown)
        answer: Release[Any] = question.climb(question.measure(stage.dataset), bits)
        return replace(answer, receipt=self._joined(receipts, answer.receipt))

    def in_stages(
        self, ask: Callable[..., Release[Any]], dataset: Dataset, request_id: str | None = None
    ) -> Release[Any]:
        """Keys and question asked one after the other, each with a receipt of its own.

        The keys are then on record before the question runs, and a crash in between loses the question's part only. A
        refusal after that point is a missed target, whose release holds the keys: they were paid for.
        """
        self.check(dataset)
        shown: list[Release[Any]] = []
        try:
            return self._one_by_one(ask, dataset, request_id, shown)
        except (BudgetExceeded, InvalidRequest) as refusal:
            if not shown:
                raise
            why = str(refusal)
        release = self._keys_alone(shown)
        raise TargetNotMet(
            f"{why} The keys were shown before that and cost {release.receipt.bill}: they are public now and the value of "
            "this error's release. List them as categories to ask about them again.",
            release,
        )

    def _one_by_one(
        self, ask: Callable[..., Release[Any]], dataset: Dataset, request_id: str | None, shown: list[Release[Any]]
    ) -> Release[Any]:
        for each in self._keys:
            shown.append(ask(each, request_id=None if request_id is None else f"{request_id}: {each.question}"))
        receipts = [each.receipt for each in shown]
        if not all(each.value for each in shown):
            return self._nothing(receipts, Outcome.FIXED)
        question = self._about(dataset, [each.value for each in shown])
        paid = reduce(together, (each.in_all for each in receipts))
        return ask(question.noting(self._facts(receipts), paid_before=paid), request_id=request_id)

    def _names(self) -> tuple[str, ...]:
        return tuple(str(each.column if isinstance(each, PrivateKeys) else each) for each in self._by)

    def _facts(self, receipts: Sequence[Receipt]) -> dict[str, Any]:
        """What the keys cost, for the receipt."""
        return {
            each.question: {
                "paid": str(each.bill),
                "threshold": each.terms["threshold"],
                "counted": each.terms["counted"],
                "keys shown": each.terms["keys shown"],
                "ledger": each.ledger_entry or "the same entry",
            }
            for each in receipts
        }

    def _nothing(self, receipts: Sequence[Receipt], outcome: Outcome) -> Release[Any]:
        return GroupRelease(Groups(self._names(), ()), self._for_keys(receipts, outcome))

    def _keys_alone(self, shown: Sequence[Release[Any]]) -> Release[Any]:
        """The keys that were paid for, where the question about them could not be asked."""
        keys = shown[0].value if len(self._keys) == 1 else tuple(each.value for each in shown)
        return AnswerRelease(keys, self._for_keys([each.receipt for each in shown], Outcome.NOT_MET))

    def _for_keys(self, receipts: Sequence[Receipt], outcome: Outcome) -> Receipt:
        paid = [each.bill.amounts() for each in receipts]
        return replace(
            receipts[0],
            question=self.question,
            promise=ApproxGuarantee(self.keys_epsilon + self._rest, self.delta),
            bill=ApproxLoss(*(sum((each[name] for each in paid), Fraction(0)) for name in ("epsilon", "delta"))),
            outcome=outcome,
            terms=self._facts(receipts),
        )

    def _joined(self, receipts: Sequence[Receipt], answer: Receipt) -> Receipt:
        own = answer.bill.amounts()["epsilon"]
        return replace(
            answer,
            question=self.question,
            promise=ApproxGuarantee(self.keys_epsilon + self._rest, self.delta),
            bill=ApproxLoss(self.keys_epsilon + own, self.delta),
            terms={**answer.terms, **self._facts(receipts)},
            breakdown={"keys": self.keys_epsilon, "question": own},
            citations=(*answer.citations, *receipts[0].citations),
        )
