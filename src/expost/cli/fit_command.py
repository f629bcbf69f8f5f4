"""The command ``expost fit``: fit a model to an accuracy and write it as JSON."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from expost.cli.account_opening import open_billed_session
from expost.cli.console import Json, emit, kept_apart, new_file, out, print_price, print_receipt, told, with_options
from expost.cli.table_source import Budget, LedgerPath, Source, describe_source, limits_of
from expost.core import InvalidRequest, epsilon

__all__ = ["FitOptions", "fit"]

_CONVEX = {"ridge": "Ridge", "logistic": "LogisticRegression", "huber-svm": "HuberSVC"}
_DESCENT = {"sgd-classifier": "SGDClassifier", "sgd-regressor": "SGDRegressor"}
_TABULAR = {"classifier": "Classifier", "regressor": "Regressor"}
_REGRESSIONS = ("ridge", "sgd-regressor", "regressor")
_CLASS_SCORES = ("accuracy", "log_loss", "auc")
_PENALTY = 0.005
_DELTA = 1e-6


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The arguments of ``expost fit``. Options that the model does not have are refused before the ledger is opened."""

    source: Source
    target: Annotated[str, typer.Option(help="Column to predict.")]
    feature: Annotated[
        list[str] | None,
        typer.Option(
            help="Feature column, as name=low:high; repeat for each. A classifier or regressor takes described columns by "
            "name, and all of them without this option."
        ),
    ] = None
    rows: Annotated[
        int | None,
        typer.Option(help="The public number of rows; for a classifier or regressor about how many there are.", min=1),
    ] = None
    output: Annotated[Path, typer.Option(help="Where to write the model (JSON).")] = Path("model.json")
    model: Annotated[
        str | None,
        typer.Option(
            help="classifier, regressor, ridge, logistic, huber-svm, sgd-classifier or sgd-regressor. Default: ridge with "
            "--excess-risk, else classifier or regressor, as the score, the classes and the description say."
        ),
    ] = None
    excess_risk: Annotated[float | None, typer.Option(help="Accuracy: risk above the best, at most.")] = None
    score: Annotated[str | None, typer.Option(help="Accuracy as a score, e.g. r2=0.6 or accuracy=0.9.")] = None
    level: Annotated[float | None, typer.Option("--epsilon", help="A privacy level instead of an accuracy.")] = None
    target_bounds: Annotated[
        str | None,
        typer.Option(help="Public bounds of the target, as low:high, or one number b for -b:b (regressions)."),
    ] = None
    classes: Annotated[str | None, typer.Option(help="The labels: negative,positive; with SGD also more.")] = None
    regularization: Annotated[
        float | None, typer.Option(help="Penalty on squares; 0.005, with SGD 0, for classes chosen.")
    ] = None
    max_epsilon: Annotated[
        float | None,
        typer.Option(help="Largest cost; default: what the account allows one question, a tenth of its budget."),
    ] = None
    failure_probability: Annotated[float, typer.Option(help="Probability that the accuracy is missed.")] = 0.1
    method: Annotated[str | None, typer.Option(help="Fitting method; default: the cheapest valid one.")] = None
    delta: Annotated[float | None, typer.Option(help="Delta of the bill; 0, with SGD 1e-6.")] = None
    solver: Annotated[str | None, typer.Option(help="With SGD: gradient or newton.")] = None
    budget: Budget = None
    ledger: LedgerPath = None

    @property
    def descends(self) -> bool:
        """Whether the model is trained by gradient descent."""
        return self.model in _DESCENT

    @property
    def is_tabular(self) -> bool:
        """Whether the model reads a mixed table as its description declares it."""
        return self.model in _TABULAR

    @property
    def billed_delta(self) -> float:
        """The delta of the bill, and of a budget that is opened for it."""
        usual = _DELTA if self.descends or self.is_tabular else 0.0
        return usual if self.delta is None else self.delta

    def choose_model(self) -> FitOptions:
        """Return the options with the model that they mean, after checking both."""
        score = (self.score or "").partition("=")[0]
        chosen = self.model
        if chosen is None and self.excess_risk is not None:
            chosen = "ridge"
        elif chosen is None:
            labelled = self.classes is not None or score in _CLASS_SCORES
            if not labelled and not score and self.target_bounds is None:
                described = describe_source(self.source, {})
                labelled = self.target in described.categories
            chosen = "classifier" if labelled else "regressor"
        options = replace(self, model=chosen)
        options._check_model()
        return options

    def tabular_estimator(self) -> Any:
        """Build a ``Classifier`` or a ``Regressor``, not fitted."""
        from expost import models

        terms: dict[str, Any] = {
            "epsilon": self.level,
            "delta": self.billed_delta,
            "max_epsilon": self.max_epsilon,
            "failure_probability": self.failure_probability,
            "score": self._parse_score(),
            "method": self.method or "auto",
            "rows": self.rows,
        }
        if self.model == "regressor":
            bounds = None if self.target_bounds is None else self._parse_target_bounds()
            return models.Regressor(target_bounds=bounds, **terms)
        return models.Classifier(classes=None if self.classes is None else self._labels(), **terms)

    def estimator(self, bounds: list[Any]) -> Any:
        """Build the estimator, not fitted."""
        from expost import models

        terms: dict[str, Any] = {
            "epsilon": self.level,
            "delta": self.billed_delta,
            "bounds": bounds,
            "max_epsilon": self.max_epsilon,
            "failure_probability": self.failure_probability,
            "score": self._parse_score(),
        }
        if self.descends:
            penalty: float | None = self.regularization or 0.0
            terms |= {"rows": self.rows, "regularization": penalty, "solver": self.solver or "gradient"}
        else:
            usual = _PENALTY if self.model == "ridge" else None  # classifiers choose theirs
            penalty = usual if self.regularization is None else self.regularization
            terms |= {"excess_risk": self.excess_risk, "regularization": penalty}
            terms["method"] = self.method or "auto"
        kind = getattr(models, (_CONVEX | _DESCENT)[self.model or "ridge"])
        if self.model in _REGRESSIONS:
            return kind(target_bounds=self._parse_target_bounds(), **terms)
        labels = self._labels()
        if self.descends and len(labels) < 2:
            raise InvalidRequest("Expected --classes a,b,...", got=self.classes, do="Name all labels")
        if not self.descends and len(labels) != 2:
            raise InvalidRequest("Expected --classes negative,positive", got=self.classes, do="Name both labels")
        return kind(classes=labels, **terms)

    def _labels(self) -> tuple[Any, ...]:
        return tuple(_parse_label(label) for label in (self.classes or "").split(","))

    def target_type(self) -> str:
        """Return the type of the target that the options imply, for files that store none."""
        labelled = self.model not in _REGRESSIONS
        return "text" if labelled and any(isinstance(label, str) for label in self._labels()) else "real"

    def _check_model(self) -> None:
        *names, last = (*_TABULAR, *_CONVEX, *_DESCENT)
        if self.model not in (*names, last):
            wanted = f"Expected --model {', '.join(names)} or {last}"
            raise InvalidRequest(wanted, got=self.model, do="Name one of them")
        idle: tuple[str, ...] = ("excess_risk", "method") if self.descends else ("solver",)
        if self.is_tabular:
            idle = ("excess_risk", "regularization", "solver")
            idle += ("target_bounds",) if self.model == "classifier" else ("classes",)
        for name in idle:
            if getattr(self, name) is not None:
                option = f"--{name.replace('_', '-')}"
                other = {"excess_risk": "ridge", "method": "ridge", "solver": "sgd-classifier", "classes": "classifier"}
                raise InvalidRequest(
                    f"{option} does not apply to --model {self.model}",
                    do=f"Leave it out, or pass --model {other.get(name, 'regressor' if self.is_tabular else 'ridge')}",
                )
        if not self.is_tabular:
            for name in ("feature", "rows"):
                if not getattr(self, name):
                    raise InvalidRequest(
                        f"Expected --{name} with --model {self.model}",
                        do="Pass it, or --model classifier or regressor, which read the description of the table",
                    )

    def _parse_target_bounds(self) -> float | tuple[float, float]:
        """Parse low:high, or one number."""
        if self.target_bounds is None:
            raise InvalidRequest(
                "Expected public bounds of the target, got no --target-bounds", do="Pass --target-bounds LOW:HIGH"
            )
        low, sign, high = self.target_bounds.partition(":")
        try:
            return (float(low), float(high)) if sign else float(low)
        except ValueError:
            raise InvalidRequest(
                "Expected --target-bounds as low:high or one number", got=self.target_bounds, do="Pass e.g. -60:300"
            ) from None

    def _parse_score(self) -> tuple[str, float] | None:
        """Parse name=value."""
        if self.score is None:
            return None
        name, _, value = self.score.partition("=")
        try:
            return name, float(value)
        except ValueError:
            raise InvalidRequest("Expected --score as name=value", got=self.score, do="Pass e.g. r2=0.6") from None

    def parse_features(self) -> dict[str, tuple[float, float] | None]:
        """Parse the feature columns with their bounds, None if the description has them; a repeated column is refused."""
        texts = self.feature or []
        limits: list[tuple[str, tuple[float, float] | None]] = []
        for text in texts:
            limits.append((text, None) if self.is_tabular and "=" not in text else limits_of("--feature", text))
        if len(dict(limits)) < len(limits):
            raise InvalidRequest("Expected each feature once", got=", ".join(texts), do="Leave out what is repeated")
        return dict(limits)


def _parse_label(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text


@with_options
def fit(
    options: FitOptions,
    only_price: Annotated[bool, typer.Option("--price", help="Only say what it would cost; nothing is spent.")] = False,
    as_json: Json = False,
) -> None:
    """Fit a model to an accuracy target and write it with its receipt.

    Example: [bold]expost fit census.toml --target income --score accuracy=0.84 --budget 2[/bold]

    A classifier or regressor reads the columns that the description declares, chooses every setting of the training, and
    protects the unit of the description. The other models take numbers with bounds, and protect a row:
    [bold]expost fit flights.parquet --model ridge --target arr_delay --target-bounds -60:300 --feature dep_delay=-40:300
    --feature distance=0:5000 --rows 100000 --excess-risk 450 --budget 1[/bold]

    Models and queries share the account dataset:NAME. Ridge, logistic and huber-svm protect a replaced row; other models
    and queries protect an added or removed unit. From the first such model on the account counts replaced rows, of which the others
    cost twice as much, also those before. If the description has adjacency = "replace-one", queries protect replaced
    rows from the start.
    """
    from expost.models.saved_model import model_document, write_model

    options, output = options.choose_model(), options.output
    source = options.source
    new_file(output, begins=(b"{",))
    limits = options.parse_features()
    features: list[str] | None = list(limits)
    if options.is_tabular:
        bounds = {name: limit for name, limit in limits.items() if limit is not None}
        implied = dict.fromkeys(bounds, "real")
        if options.target_bounds is not None or options.classes is not None:
            implied[options.target] = options.target_type()
        estimator = options.tabular_estimator()
        dataset = describe_source(source, {"bounds": bounds} if bounds else {}, implied=implied)
        if not limits:
            declared = [*dataset.bounds, *dataset.categories]
            features = [name for name in dict.fromkeys(declared) if name != options.target] or None
    else:
        estimator = options.estimator(list(limits.values()))
        adjacency = "add-remove" if options.descends else "replace-one"
        implied = dict.fromkeys(limits, "real") | {options.target: options.target_type()}
        dataset = describe_source(source, {"adjacency": adjacency, "rows": options.rows}, implied=implied)
        if not dataset.unit.is_row:
            raise InvalidRequest(
                "Expected a table in which one row is one person, because this fit protects rows",
                got=str(dataset.unit),
                do="Fit from a table with one row per person, or pass --model classifier or regressor",
            )
    where = options.ledger or str(Path(source).with_name(f"{dataset.name}.ledger"))
    kept_apart(output, source, where)
    budget = None if options.budget is None else epsilon(options.budget, options.billed_delta)
    with open_billed_session(dataset, source, budget=budget, ledger=where, quiet=as_json) as session:
        columns: dict[str, Any] = {"target": options.target} | ({} if features is None else {"features": features})
        if only_price:
            print_price(session.price(estimator, **columns), as_json=as_json)
            return
        fitted = session.fit(estimator, **columns)
    document = {"model": str(output), "receipt": fitted.receipt_.to_dict()}
    with told(model_document(fitted)):  # it is paid for, so a full disk must not lose it
        write_model(fitted, output)
    with told(document):
        if as_json:
            emit(document)
        else:
            print_receipt(fitted.receipt_)
            out.print(f"\nmodel written to {output}")
