"""The command ``expost fit``: fit a model to an accuracy and write it as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from expost.cli.console import emit, kept_apart, new_file, out, print_price, print_receipt, told
from expost.cli.table_source import describe_source, limits_of, named_apart
from expost.core import Guarantee, InvalidRequest, epsilon

__all__ = ["EstimatorOptions", "fit"]

_CONVEX = ("ridge", "logistic", "huber-svm")
_DESCENT = ("sgd-classifier", "sgd-regressor")
_PENALTY = 0.005
_DELTA = 1e-6


@dataclass(frozen=True, kw_only=True)
class EstimatorOptions:
    """The options of ``expost fit``. Options that the model does not have are refused before the ledger is opened.

    >>> options = EstimatorOptions(model="sgd-regressor", rows=1000, bounds=[(0, 1)], epsilon=1.0, target_bounds="300")
    >>> options.adjacency, options.budget(2.0)
    ('add-remove', ApproxGuarantee(epsilon=Fraction(2, 1), delta=Fraction(1, 1000000)))
    """

    model: str
    rows: int
    bounds: list[tuple[Any, Any]]
    excess_risk: float | None = None
    score: str | None = None
    epsilon: float | None = None
    target_bounds: str = "1"
    classes: str | None = None
    regularization: float | None = None
    max_epsilon: float = 1.0
    failure_probability: float = 0.1
    method: str | None = None
    delta: float | None = None
    solver: str | None = None

    def __post_init__(self) -> None:
        if self.model not in (*_CONVEX, *_DESCENT):
            names = f"{', '.join((*_CONVEX, *_DESCENT)[:-1])} or {_DESCENT[-1]}"
            raise InvalidRequest(f"Expected --model {names}", got=self.model, do="Name one of them")
        strange = ("excess_risk", "method") if self.descends else ("solver",)
        for name in strange:
            if getattr(self, name) is not None:
                raise InvalidRequest(
                    f"--{name.replace('_', '-')} does not apply to --model {self.model}",
                    do=f"Leave it out, or pass --model {_CONVEX[0] if self.descends else _DESCENT[0]}",
                )

    @property
    def descends(self) -> bool:
        """Return whether the model is trained by gradient descent."""
        return self.model in _DESCENT

    @property
    def adjacency(self) -> str:
        """Return the adjacency that the model protects."""
        return "add-remove" if self.descends else "replace-one"

    def budget(self, amount: float | None) -> Guarantee | None:
        """Return the budget of an account that is opened for this model."""
        return None if amount is None else epsilon(amount, self._delta)

    @property
    def _delta(self) -> float:
        usual = _DELTA if self.descends else 0.0
        return usual if self.delta is None else self.delta

    def estimator(self) -> Any:
        """Build the estimator, not fitted."""
        shared = {
            "epsilon": self.epsilon,
            "delta": self._delta,
            "bounds": self.bounds,
            "max_epsilon": self.max_epsilon,
            "failure_probability": self.failure_probability,
        }
        return self._descending(shared) if self.descends else self._convex(shared)

    def _convex(self, shared: dict[str, Any]) -> Any:
        from expost.models import HuberSVC, LogisticRegression, Ridge

        terms = shared | {
            "excess_risk": self.excess_risk,
            "score": self._score(),
            "feature_bound": 1.0,
            "regularization": _PENALTY if self.regularization is None else self.regularization,
            "method": self.method or "auto",
        }
        if self.model == "ridge":
            return Ridge(target_bounds=self._parse_target_bounds(), **terms)
        labels = self._labels()
        if len(labels) != 2:
            raise InvalidRequest("Expected --classes negative,positive", got=self.classes, do="Name both labels")
        return (LogisticRegression if self.model == "logistic" else HuberSVC)(classes=labels, **terms)

    def _descending(self, shared: dict[str, Any]) -> Any:
        from expost.models import SGDClassifier, SGDRegressor

        terms = shared | {
            "score": self._score(),
            "rows": self.rows,
            "regularization": self.regularization or 0.0,
            "solver": self.solver or "gradient",
        }
        if self.model == "sgd-regressor":
            return SGDRegressor(target_bounds=self._parse_target_bounds(), **terms)
        labels = self._labels()
        if len(labels) < 2:
            raise InvalidRequest("Expected --classes a,b,...", got=self.classes, do="Name all labels")
        return SGDClassifier(classes=labels, **terms)

    def _parse_target_bounds(self) -> float | tuple[float, float]:
        """Parse low:high, or one number."""
        low, sign, high = self.target_bounds.partition(":")
        try:
            return (float(low), float(high)) if sign else float(low)
        except ValueError:
            raise InvalidRequest(
                "Expected --target-bounds as low:high or one number", got=self.target_bounds, do="Pass e.g. -60:300"
            ) from None

    def _labels(self) -> tuple[Any, ...]:
        return tuple(_number(label) for label in (self.classes or "").split(","))

    def _score(self) -> tuple[str, float] | None:
        if self.score is None:
            return None
        name, _, value = self.score.partition("=")
        try:
            return name, float(value)
        except ValueError:
            raise InvalidRequest("Expected --score as name=value", got=self.score, do="Pass e.g. r2=0.6") from None


def _number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text


def fit(
    source: Annotated[str, typer.Argument(help="A description (TOML) or a data file (Parquet, CSV, Arrow).")],
    target: Annotated[str, typer.Option(help="Column to predict.")],
    feature: Annotated[list[str], typer.Option(help="Feature column, as name=low:high; repeat for each.")],
    rows: Annotated[int, typer.Option(help="The public number of rows.", min=1)],
    output: Annotated[Path, typer.Option(help="Where to write the model (JSON).")] = Path("model.json"),
    model: Annotated[str, typer.Option(help="ridge, logistic, huber-svm, sgd-classifier or sgd-regressor.")] = "ridge",
    excess_risk: Annotated[float | None, typer.Option(help="Accuracy: risk above the best, at most.")] = None,
    score: Annotated[str | None, typer.Option(help="Accuracy as a score, e.g. r2=0.6 or accuracy=0.9.")] = None,
    level: Annotated[float | None, typer.Option("--epsilon", help="A privacy level instead of an accuracy.")] = None,
    target_bounds: Annotated[
        str, typer.Option(help="Public bounds of the target, as low:high, or one number b for -b:b (regressions).")
    ] = "1",
    classes: Annotated[str | None, typer.Option(help="The labels: negative,positive; with SGD also more.")] = None,
    regularization: Annotated[float | None, typer.Option(help="Penalty on squares; 0.005, with SGD 0.")] = None,
    max_epsilon: Annotated[float, typer.Option(help="What it may cost at most.")] = 1.0,
    failure_probability: Annotated[float, typer.Option(help="Probability that the accuracy is missed.")] = 0.1,
    method: Annotated[str | None, typer.Option(help="Fitting method; default: the cheapest valid one.")] = None,
    delta: Annotated[float | None, typer.Option(help="Delta of the bill; 0, with SGD 1e-6.")] = None,
    solver: Annotated[str | None, typer.Option(help="With SGD: gradient or newton.")] = None,
    budget: Annotated[float | None, typer.Option(help="The dataset's budget, when its account is opened.")] = None,
    ledger: Annotated[
        str | None, typer.Option(help="The ledger to bill; default: NAME.ledger in the folder of the data.")
    ] = None,
    only_price: Annotated[bool, typer.Option("--price", help="Only say what it would cost; nothing is spent.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Fit a model to an accuracy target and write it with its receipt.

    Example: [bold]expost fit flights.parquet --target arr_delay --target-bounds -60:300 --feature dep_delay=-40:300
    --feature distance=0:5000 --rows 100000 --excess-risk 450 --budget 1[/bold]

    An account has one adjacency. All models but SGD protect a replaced row; queries protect an added or removed row.
    So these models are charged to a second account, dataset:NAME-replace-one. A replaced row loses at most what is
    spent on the models plus twice what is spent on the queries. If the description has adjacency = "replace-one",
    models and queries share dataset:NAME.
    """
    from expost.models.saved_model import model_document, write_model
    from expost.session import Session

    new_file(output, begins=(b"{",))
    limits = _features(feature)
    options = EstimatorOptions(
        model=model,
        rows=rows,
        bounds=list(limits.values()),
        excess_risk=excess_risk,
        score=score,
        epsilon=level,
        target_bounds=target_bounds,
        classes=classes,
        regularization=regularization,
        max_epsilon=max_epsilon,
        failure_probability=failure_probability,
        method=method,
        delta=delta,
        solver=solver,
    )
    estimator = options.estimator()
    dataset = describe_source(source, {"adjacency": options.adjacency, "rows": rows})
    if not dataset.unit.is_row:
        raise InvalidRequest(
            "Expected a table in which one row is one person, because a fit protects rows",
            got=str(dataset.unit),
            do="Fit from a table with one row per person",
        )
    where = ledger or str(Path(source).with_name(f"{dataset.name}.ledger"))
    kept_apart(output, source, where)
    with Session(named_apart(dataset, source), options.budget(budget), ledger=where) as session:
        if only_price:
            print_price(session.price(estimator, features=list(limits), target=target), as_json=as_json)
            return
        fitted = session.fit(estimator, features=list(limits), target=target)
    document = {"model": str(output), "receipt": fitted.receipt_.to_dict()}
    with told(model_document(fitted)):  # it is paid for, so a full disk must not lose it
        write_model(fitted, output)
    with told(document):
        if as_json:
            emit(document)
        else:
            print_receipt(fitted.receipt_)
            out.print(f"\nmodel written to {output}")


def _features(typed: list[str]) -> dict[str, tuple[float, float]]:
    """Return the feature columns with their bounds; a repeated column is refused."""
    limits = [limits_of("--feature", text) for text in typed]
    if len(dict(limits)) < len(limits):
        raise InvalidRequest("Expected each feature once", got=", ".join(typed), do="Leave out what is repeated")
    return dict(limits)
