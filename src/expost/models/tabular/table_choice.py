"""Models of tables among which a search chooses: one table for all of them, one query, one bill."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from expost.core import InvalidRequest, PlanContext, Query, Release
from expost.data import Dataset
from expost.models.descent.training_watch import RichProgress
from expost.models.estimator import check_flag, limit_threads
from expost.models.tabular.table_search import TableSearch
from expost.models.tabular.tabular_estimator import TabularEstimator
from expost.models.tabular.training_choice import TrainingChoice, TrainingTerms

__all__ = ["TableChoice"]


class TableChoice:
    """Copies of models of one kind, each with the score or the epsilon of the whole search in its arguments.

    Parameters
    ----------
    models : sequence of TabularEstimator
        The models; one of them is returned, fitted.
    levels : int
        The number of privacy levels of a search for a score.
    """

    def __init__(self, models: Sequence[TabularEstimator], levels: int) -> None:
        self._models, self._levels = models, levels

    def fit(self, X: Any, target: Any) -> TabularEstimator:
        """Return one of the models, fitted to a table; the first one names the ledger and the account."""
        dataset, name, labels, pay = self._models[0]._open_table(X, target, self._merge_columns(target))
        return self._fit_dataset(dataset, name, pay, None, labels)

    def fit_with(
        self,
        pay: Callable[[Query, Any], Release[Any]],
        dataset: Dataset,
        *,
        features: Sequence[str] | None,
        target: str,
    ) -> TabularEstimator:
        """Return one of the models, fitted to columns of a dataset; the caller pays."""
        first = self._models[0]
        first._check_session(dataset)
        return self._fit_dataset(dataset, target, pay, features, first._early_classes(target))

    def _fit_dataset(
        self,
        dataset: Dataset,
        target: str,
        pay: Callable[[Query, Any], Release[Any]],
        features: Sequence[str] | None,
        labels: Sequence[Any] | None,
    ) -> TabularEstimator:
        """Plan the search from public facts, let it be paid for, and keep what was released."""
        first = self._models[0]
        watched = check_flag(first.progress, "progress")

        def choose(model: TabularEstimator, terms: TrainingTerms) -> TrainingChoice:
            return model._plan_fit(dataset, target, features, labels=labels, terms=terms)

        query = TableSearch(
            question=f"train one of {len(self._models)} {type(first).__name__}",
            choices=tuple(partial(choose, model) for model in self._models),
            terms=first._read_terms(),
            levels=self._levels,
            progress=RichProgress if watched else None,
        )
        for model in self._models:
            model.set_params(progress=False)  # it would show how many attempts there are
        query.plan(dataset, PlanContext())  # what is wrong is said here, before anything is asked of a ledger
        with limit_threads():
            release = pay(query, dataset)
        number, value = release.value
        best = self._models[number]
        best._keep_release(Release(value, release.receipt))
        return best.set_params(progress=watched)  # type: ignore[no-any-return]

    def _merge_columns(self, target: Any) -> Any:
        """Return the declarations of all models together, by which a table without types is read."""
        declared = [model._feature_columns(target) for model in self._models]
        if all(isinstance(each, Mapping) for each in declared):
            return {name: each[name] for each in reversed(declared) for name in each}
        if any(repr(each) != repr(declared[0]) for each in declared):
            raise InvalidRequest(
                "Expected columns of each model by name where they differ", do='Pass columns={"age": (0, 120), ...}'
            )
        return declared[0]
