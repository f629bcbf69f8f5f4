"""A pipeline of private steps with one hold and one receipt."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial, reduce
from typing import Any, Self

import numpy as np
import pyarrow as pa
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline as PublicPipeline
from sklearn.utils.validation import check_is_fitted

from expost.core import (
    Adjacency,
    InvalidRequest,
    Loss,
    PlanContext,
    Query,
    Receipt,
    Release,
    TargetNotMet,
    explain_arguments,
    share_parameters,
)
from expost.core.captured_fit import capture_fit
from expost.core.release import add_losses
from expost.data import Dataset
from expost.data.row_source import column_names, plain_numbers
from expost.data.value_place import label_codes
from expost.models.estimator import (
    FITTED_ROWS,
    WRONG_ARGUMENTS,
    PrivateEstimator,
    limit_threads,
    pay_for_query,
    read_feature_names,
)
from expost.models.model_card import ModelCard, describe_model
from expost.models.plain_state import read_plain_state, write_plain_state
from expost.models.preparation.pipeline_leak import check_pipeline
from expost.models.preparation.prepared_table import prepare_dataset
from expost.models.preparation.private_transformer import PrivateTransformer
from expost.models.preparation.public_step import apply_public_step, fit_public_step

__all__ = ["Pipeline", "PipelineQuery"]

_SUMS = ("pure", "approx")  # definitions whose losses add up exactly
_OWN = ("ledger", "account", "simulation_seed")
_TARGET = "target"


@dataclass(frozen=True, eq=False)
class PipelinePart:
    """One step that pays: its query, the rows that it will read, and what to do with its release."""

    name: str
    query: Any
    source: Any
    keep: Callable[[Release[Any]], Any]


@dataclass(frozen=True, eq=False)
class PipelineQuery:
    """The steps of a pipeline as one query."""

    parts: tuple[PipelinePart, ...]

    @property
    def question(self) -> str:
        return ", then ".join(part.query.question for part in self.parts)

    def plan(self, dataset: Any, context: PlanContext) -> PipelinePlan:
        """Plan all steps, from public facts only; their worst cases must add up."""
        plans = [_plan_part(part, context) for part in self.parts]
        if len({plan.worst_case.definition for plan in plans} - {"pure"}) > 1 or not _add_up(plans):
            # Steps that can be billed in several currencies are asked for the one in which sums are exact.
            plans = [_plan_part(part, replace(context, definitions=frozenset({"approx"}))) for part in self.parts]
        if not _add_up(plans):
            raise InvalidRequest(
                "Expected steps whose losses add up: all pure or (epsilon, delta)",
                got=", ".join(plan.worst_case.definition for plan in plans),
                do="Fit the steps one after the other, each with a ledger",
            )
        return PipelinePlan(self, tuple(plans))


def _plan_part(part: PipelinePart, context: PlanContext) -> Any:
    return part.query.plan(part.source, context) if hasattr(part.query, "plan") else part.query


def _add_up(plans: Sequence[Any]) -> bool:
    found = {plan.worst_case.definition for plan in plans}
    return found <= set(_SUMS) or (len(found) == 1 and len(plans) == 1)


@dataclass(frozen=True, eq=False)
class PipelinePlan:
    """Runs the steps one after the other. A step reads rows through the transformers that were released before it.

    The steps compose adaptively: each is private for every value of what was released before, so their losses add up
    (DR14, Theorem 3.16). All of them are held together, before the first one runs.
    """

    query: PipelineQuery
    plans: tuple[Any, ...]

    @property
    def question(self) -> str:
        return self.query.question

    @property
    def worst_case(self) -> Loss:
        """Return the sum of the worst cases."""
        worst: Loss = reduce(add_losses, (plan.worst_case for plan in self.plans))
        return worst

    def measure(self, dataset: Any) -> None:
        """Measure nothing yet: what a step measures depends on the release of the step before."""

    def climb(self, sealed: None, bits: Any) -> Release[Any]:
        """Run all steps, and return the last release with a receipt for all of them."""
        releases: list[Release[Any]] = []
        for part, plan in zip(self.query.parts, self.plans, strict=True):
            releases.append(plan.climb(plan.measure(part.source), bits))
            part.keep(releases[-1])
        last, receipts = releases[-1], [release.receipt for release in releases]
        names = [part.name for part in self.query.parts]
        lines = [
            {"step": name, "question": receipt.question, "method": receipt.method, "paid": str(receipt.bill)}
            for name, receipt in zip(names, receipts, strict=True)
        ]
        receipt = replace(
            last.receipt,
            question=self.question,
            method="; ".join(receipt.method for receipt in receipts),
            promise=self.worst_case.promise(),
            bill=reduce(add_losses, (receipt.bill for receipt in receipts)),
            breakdown=_paid_by_step(names, receipts),
            terms={"steps": lines, **last.receipt.terms},
            citations=tuple(
                dict.fromkeys(["DR14, Theorem 3.16", *(each for receipt in receipts for each in receipt.citations)])
            ),
        )
        return Release(_PartReleases(tuple(releases), last.value), receipt, last.interval, climb=last.climb)


@dataclass(frozen=True, eq=False)
class _PartReleases:
    """The releases of all steps, and the value of the last one."""

    releases: tuple[Release[Any], ...]
    value: Any


def _paid_by_step(names: Sequence[str], receipts: Sequence[Receipt]) -> dict[str, Fraction]:
    """Return the epsilon of each step, where all of them have one."""
    amounts = [receipt.bill.amounts().get("epsilon") for receipt in receipts]
    return {name: each for name, each in zip(names, amounts, strict=True) if each is not None}


@share_parameters(raises=WRONG_ARGUMENTS)
class Pipeline(PublicPipeline):  # type: ignore[misc]
    """Private preparation and a private model as one estimator, with one hold and one receipt.

    The worst case of all steps is held before the first one reads a row, and the receipt lists what each step cost. Steps
    that are fitted without noise are refused, because their exact numbers would be published next to the receipt.
    ``predict``, ``transform`` and ``score`` are those of scikit-learn's ``Pipeline``.

    Steps that look at no row (``PolynomialFeatures``, ``FunctionTransformer``) and steps in ``public_steps`` may come
    first, where the rows are arrays. The latter are used as they are, so they must be fitted.

    Parameters
    ----------
    steps : list of (str, estimator)
        Transformers of ``expost`` and, last, an estimator of ``expost`` or an ``expost.OneOf``. Their own ``ledger``,
        ``account`` and ``simulation_seed`` must be left out.
    public_steps : sequence of str, optional
        Names of steps that were fitted to public rows.
    ledger : str, optional
        The path or URL of the ledger. Default: one in memory, for this fit.
    account : str, optional
        The account that pays. Default: that of the dataset, or ``"dataset:table"``.
    simulation_seed : int, optional
        Draw all noise from this seed. The receipt then states that the model is not private.

    Attributes
    ----------
    release_ : Release
        The release of the last step, with the receipt of all of them.

    Examples
    --------
    >>> from expost.models.descent.sgd_estimator import SGDClassifier
    >>> from expost.models.preparation.standard_scaler import StandardScaler
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal([50, 1e4], [10, 2e3], (20_000, 2))
    >>> y = (X[:, 0] / 10 > X[:, 1] / 2e3).astype(int)
    >>> scale = StandardScaler(epsilon=0.1, bounds=[(0, 100), (0, 2e4)])
    >>> model = SGDClassifier(epsilon=0.9, classes=[0, 1], rows=20_000, feature_bound=3.0)
    >>> fitted = Pipeline([("scale", scale), ("model", model)], simulation_seed=1).fit(X, y)
    >>> str(fitted.receipt_.bill), {name: round(float(paid), 2) for name, paid in fitted.receipt_.breakdown.items()}
    ('epsilon 1, delta 1e-06', {'scale': 0.1, 'model': 0.9})
    >>> fitted.score(X, y) > 0.9
    True
    """

    transform_input = None  # arguments of scikit-learn's class that have no meaning here
    memory = None
    verbose = False

    @explain_arguments
    def __init__(
        self,
        steps: list[tuple[str, Any]],
        *,
        public_steps: Sequence[str] = (),
        ledger: str | None = None,
        account: str | None = None,
        simulation_seed: int | None = None,
    ) -> None:
        self.steps = steps
        self.public_steps = public_steps
        self.ledger, self.account, self.simulation_seed = ledger, account, simulation_seed

    @share_parameters(FITTED_ROWS)
    @explain_arguments
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit all steps and bill the ledger once.

        Raises
        ------
        InvalidRequest, BudgetExceeded
            Before the data is touched; nothing is spent.
        TargetNotMet
            The last step cannot reach its accuracy under its cap. The exception carries what was paid for.
        """
        self._check_steps()
        payer = _Payer(self)
        account = payer._account_of(X)
        if isinstance(X, Dataset):
            self._check_for_dataset()
            dataset, target = X, y
            names = tuple(
                name for name in X.schema if name != target and X.schema.kind(name).is_number
            )  # as the estimators choose them
        else:
            dataset, names, target = self._describe_arrays(X, y)
        columns = column_names(X) or (names if isinstance(X, Dataset) else len(names))
        terms = payer._payment_terms(account) | {"adjacency": dataset.adjacency, "columns": columns}
        return self._fit_parts(partial(pay_for_query, **terms), dataset, names, target)

    @share_parameters(FITTED_ROWS)
    def fit_with(
        self,
        pay: Callable[[Query, Any], Release[Any]],
        dataset: Dataset,
        *,
        features: Sequence[str],
        target: str | None = None,
    ) -> Self:
        """Fit to columns of a dataset and let the caller pay. Call ``Session.fit`` instead."""
        self._check_steps()
        if self.ledger is not None:
            raise InvalidRequest("Expected no ledger together with a session", do="Leave it out: the session pays")
        self._check_for_dataset()
        return self._fit_parts(pay, dataset, read_feature_names(features), target)

    def _check_for_dataset(self) -> None:
        """Refuse public steps where rows come from a dataset: they would be run on private rows, and could fail there."""
        public = self._public_part()
        if public:
            raise InvalidRequest(
                "Expected private steps only with a Dataset",
                got=public[0][0],
                do="Compute such columns with Dataset.derive, or pass arrays",
            )

    def _check_steps(self) -> None:
        """Refuse steps that leak, that pay by themselves, or that stand where they cannot be run."""
        if not isinstance(self.steps, list | tuple) or not self.steps:
            raise InvalidRequest("Expected steps", do='Pass [("scale", expost.StandardScaler(...)), ("model", ...)]')
        self._validate_steps()
        check_pipeline(self, public_steps=self.public_steps)
        if not hasattr(self.steps[-1][1], "fit_with"):
            raise InvalidRequest(
                "Expected the last step to be an estimator of expost",
                got=type(self.steps[-1][1]).__name__,
                do="Pass e.g. expost.Ridge(...)",
            )
        seen_private = False
        for name, step in self.steps:
            private = hasattr(step, "fit_with")
            if seen_private and not private and not _is_skipped(step):
                raise InvalidRequest(
                    "Expected public steps before the private ones", got=name, do="Move it to the front"
                )
            seen_private |= private
            if private and step is not self.steps[-1][1] and not isinstance(step, PrivateTransformer):
                raise InvalidRequest("Expected transformers of expost before the last step", got=name, do="Move it")
            taken = [each for each in _OWN if getattr(step, each, None) is not None]
            if private and taken:
                raise InvalidRequest(f"Expected {name} without {', '.join(taken)}", do="Pass it to the pipeline")
            if getattr(step, "checkpoint", None) is not None:
                raise InvalidRequest(f"Expected {name} without a checkpoint", do="Leave it out in a pipeline")

    def _public_part(self) -> list[tuple[str, Any]]:
        """Return the steps at the front that are not paid for."""
        return [each for each in self.steps if not hasattr(each[1], "fit_with") and not _is_skipped(each[1])]

    def _describe_arrays(self, X: Any, y: Any) -> tuple[Dataset, tuple[str, ...], str | None]:
        """Return arrays as a dataset with the adjacency that the last step is billed for."""
        for name, step in self._public_part():
            if name in self.public_steps:
                try:
                    check_is_fitted(step)
                except NotFittedError:
                    raise InvalidRequest(
                        "Expected public steps that are fitted", got=name, do="Fit it to public rows first"
                    ) from None
            else:
                fit_public_step(step, X)
            X = apply_public_step(step, X)
        reader = _Payer(self)
        matrix = reader._read_matrix(X)
        matrix = matrix.toarray() if hasattr(matrix, "tocsr") else matrix
        given = reader._fitted_names
        names = tuple(f"x{place}" for place in range(matrix.shape[1])) if given is None else given
        columns = {name: pa.array(plain_numbers(matrix[:, place])) for place, name in enumerate(names)}
        target = None
        if y is not None:
            target = next(
                name for name in (_TARGET, *(f"{_TARGET}_{n}" for n in range(len(names)))) if name not in names
            )
            columns[target] = self._read_labels(reader._read_vector(y), matrix.shape[0])
        adjacency = _adjacency_of(self.steps[-1][1])
        rows = matrix.shape[0] if adjacency.public_size else None
        return Dataset(pa.table(columns), adjacency=adjacency, rows=rows), names, target

    def _read_labels(self, targets: Any, rows: int) -> pa.Array:
        """Return targets as a column whose type follows from public facts: the array's type, or the declared classes."""
        if len(targets) != rows:
            raise InvalidRequest("Expected one target for each row", do="Pass a vector as long as the table")
        if isinstance(targets, pa.Array) or targets.dtype.kind in "biufU":
            return pa.array(targets)
        classes = next((known for _, step in reversed(self.steps) if (known := _classes_of(step)) is not None), None)
        if classes is None:
            return pa.array(plain_numbers(targets))
        known = np.asarray(classes)
        if len({type(each) for each in classes}) > 1:
            raise InvalidRequest(
                "Expected classes of one type in a pipeline", do="Write all of them as texts or numbers"
            )
        codes = label_codes(targets, known)
        return pa.array(known).take(pa.array(codes, mask=codes < 0))

    def _fit_parts(
        self, pay: Callable[[Query, Any], Release[Any]], dataset: Dataset, features: tuple[str, ...], target: str | None
    ) -> Self:
        """Collect the queries of all steps, pay for them together, and keep what was released."""
        private = [(name, step) for name, step in self.steps if hasattr(step, "fit_with")]
        if len(private) > 1 and not dataset.unit.is_row:
            raise InvalidRequest(
                "Expected a dataset of single rows: private preparation protects one row",
                got=str(dataset.unit),
                do='Describe the dataset with unit="row", or fit the model without preparation',
            )
        if len(private) > 1 and dataset.filtered:
            raise InvalidRequest(
                "Expected the whole dataset, without where()",
                do="Fit the pipeline to the whole table, or to a file of it",
            )
        parts, fitted, view, columns = [], {}, dataset, features
        for name, step in private[:-1]:
            transformer: PrivateTransformer = clone(step)
            query, source = capture_fit(transformer, view, features=columns, target=target)
            parts.append(PipelinePart(name, query, source, partial(transformer._keep_fit, query)))
            fitted[name] = transformer
            width = transformer._count_outputs(len(columns))
            names = columns if width == len(columns) else tuple(f"{name}{place}" for place in range(width))
            read = transformer._transform_matrix
            view = prepare_dataset(view, columns, target, names=names, transform=read)
            columns = names
        last, model = private[-1]
        query, source = capture_fit(copy.copy(model), view, features=columns, target=target)
        parts.append(PipelinePart(last, query, source, lambda release: None))
        try:
            with limit_threads():
                paid = pay(PipelineQuery(tuple(parts)), dataset)
        except TargetNotMet as missed:
            raise TargetNotMet.of(replace(missed.release, value=missed.release.value.value)) from None
        own = _own_receipts(paid)
        for part, release in zip(parts[:-1], own[:-1], strict=True):
            fitted[part.name].release_ = release
        fitted[last] = model.fit_with(lambda query, source: own[-1], view, features=columns, target=target)
        if columns != features and hasattr(fitted[last], "feature_names_in_"):
            del fitted[last].feature_names_in_  # made up here: what a transformer returns may have other names
        self.steps = [(name, fitted.get(name, step)) for name, step in self.steps]
        self.release_ = replace(paid, value=paid.value.value)
        return self

    def card(self) -> ModelCard:
        """Return a model card of the whole pipeline, with the coefficients of its last step."""
        check_is_fitted(self, "release_")
        return describe_model(self)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return state | {"release_": write_plain_state(state["release_"])} if "release_" in state else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({name: read_plain_state(each) for name, each in state.items()})

    @property
    def receipt_(self) -> Receipt:
        """Return the receipt of all steps; its breakdown has the epsilon of each."""
        check_is_fitted(self, "release_")
        return self.release_.receipt


def _is_skipped(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step == "passthrough")


def _adjacency_of(step: Any) -> Adjacency:
    """Return the adjacency that a step is billed for; of a choice among models, theirs."""
    models = getattr(step, "models", None)
    chosen = models[0] if isinstance(models, Sequence) and not isinstance(models, str) and models else step
    # Some models are billed as the table is described, and say what arrays are.
    found = getattr(chosen, "_array_adjacency", getattr(chosen, "_bill_adjacency", None))
    if not isinstance(found, Adjacency):
        raise InvalidRequest("Expected the last step to be an estimator of expost", do="Pass e.g. expost.Ridge(...)")
    return found


def _classes_of(step: Any) -> Any:
    """Return the classes that a step declares, None if it has none."""
    models = getattr(step, "models", None)
    chosen = models[0] if isinstance(models, Sequence) and not isinstance(models, str) and models else step
    classes = getattr(chosen, "classes", None)
    return None if classes is None or isinstance(classes, str) else list(classes)


def _own_receipts(paid: Release[_PartReleases]) -> list[Release[Any]]:
    """Return the releases of the steps, their receipts with the entry of the whole."""
    whole = paid.receipt
    return [
        replace(each, receipt=replace(each.receipt, simulation=whole.simulation, ledger_entry=whole.ledger_entry))
        for each in paid.value.releases
    ]


class _Payer(PrivateEstimator):
    """Reads tables and pays as an estimator does, with the arguments of a pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.ledger, self.account = pipeline.ledger, pipeline.account
        self.simulation_seed = pipeline.simulation_seed

    @property
    def _bill_adjacency(self) -> Adjacency:
        return Adjacency.ADD_REMOVE  # replaced by that of the dataset
