"""A pipeline of private steps is held, billed and refused as one; steps that leak are found."""

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_selection import RFE
from sklearn.feature_selection import SelectKBest as PublicSelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.pipeline import Pipeline as PublicPipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    TargetEncoder,
)
from sklearn.preprocessing import StandardScaler as PublicScaler
from sklearn.random_projection import GaussianRandomProjection

import expost
from expost import PCA, Dataset, InvalidRequest, Pipeline, Session, StandardScaler, TargetNotMet, open_ledger
from expost.core import Adjacency
from expost.models.preparation.pipeline_leak import LeakingStepWarning, find_leaks

ROWS = 4000
BOUNDS = [(0, 100), (0, 2e4)]


def table(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal([50, 1e4], [10, 2e3], (rows, 2))
    return x, (x[:, 0] / 10 > x[:, 1] / 2e3).astype(int)


def classifier(**changes: Any) -> expost.SGDClassifier:
    terms = {"epsilon": 1.0, "classes": [0, 1], "rows": ROWS, "feature_bound": 3.0, "steps": 20}
    return expost.SGDClassifier(**(terms | changes))


def pipeline(*more: Any, model: Any = None, **terms: Any) -> Pipeline:
    scale = StandardScaler(epsilon=0.5, bounds=BOUNDS)
    terms = {"simulation_seed": 1} | terms
    return Pipeline([("scale", scale), *more, ("model", classifier() if model is None else model)], **terms)


def test_the_receipt_lists_every_step_and_the_bill_is_their_sum() -> None:
    x, y = table()

    fitted = pipeline(("turn", PCA(1, epsilon=0.25, bounds=(-3, 3)))).fit(x, y)

    receipt = fitted.receipt_
    assert list(receipt.breakdown) == ["scale", "turn", "model"]
    assert float(sum(receipt.breakdown.values())) == pytest.approx(receipt.epsilon)
    assert [line["step"] for line in receipt.terms["steps"]] == ["scale", "turn", "model"]
    assert receipt.question.startswith("means and variances of columns, then principal components, then train")
    assert receipt.simulation
    assert fitted.named_steps["model"].receipt_.ledger_entry == receipt.ledger_entry
    assert fitted.predict(x).shape == y.shape


def test_a_pipeline_learns_what_its_parts_would() -> None:
    x, y = table()

    assert pipeline().fit(x, y).score(x, y) > 0.9


def test_one_hold_and_one_entry_pay_for_all_steps(tmp_path: Any) -> None:
    path, (x, y) = str(tmp_path / "ledger"), table()
    ledger = open_ledger(path)
    ledger.open_account("dataset:table", expost.approx(3, 1e-5))

    fitted = pipeline(ledger=path, simulation_seed=None).fit(x, y)

    assert open_ledger(path).spent("dataset:table") == fitted.receipt_.bill
    assert sum(entry.receipt is not None for entry in open_ledger(path).history("dataset:table")) == 1


def test_a_budget_too_small_for_all_steps_is_refused_before_the_first_one(tmp_path: Any) -> None:
    path, (x, y) = str(tmp_path / "ledger"), table()
    open_ledger(path).open_account("dataset:table", expost.approx(1, 1e-5))

    with pytest.raises(expost.BudgetExceeded):
        pipeline(ledger=path, simulation_seed=None).fit(x, y)

    assert open_ledger(path).spent("dataset:table").amounts()["epsilon"] == 0


def test_a_session_pays_for_a_pipeline_and_can_price_it() -> None:
    x, y = table()
    people = Dataset(
        pa.table({"age": x[:, 0], "income": x[:, 1], "label": y}),
        name="people",
        bounds={"age": BOUNDS[0], "income": BOUNDS[1]},
    )
    steps = Pipeline([("scale", StandardScaler(epsilon=0.5)), ("model", classifier())])
    with Session(people, budget=(3, 1e-5)) as session:
        assert session.price(steps, features=["age", "income"], target="label").worst_case.amounts()["epsilon"] <= 1.5
        fitted = session.fit(steps, features=["age", "income"], target="label")
        assert session.spent() == fitted.receipt_.bill
        with pytest.raises(InvalidRequest, match=r"expost\.Pipeline"):
            session.fit(make_pipeline(PublicScaler(), classifier()), features=["age", "income"], target="label")


def test_a_model_about_replaced_rows_is_prepared_about_replaced_rows() -> None:
    x, y = table()
    ridge = expost.Ridge(epsilon=2.0, method="certificate", feature_bound=4.0, target_bounds=1.0)

    fitted = pipeline(model=ridge).fit(x, y.astype(float))

    adjacency = fitted.named_steps["model"].receipt_.adjacency
    assert fitted.named_steps["scale"].receipt_.adjacency is adjacency
    assert fitted.receipt_.adjacency is adjacency
    assert adjacency in list(Adjacency)


def test_a_grid_of_models_is_tuned_inside_the_same_bill() -> None:
    x, y = table(20_000)
    models = [classifier(epsilon=None, rows=20_000, clip=clip) for clip in (0.1, 1.0)]
    choice = expost.OneOf(models, score=("accuracy", 0.85), max_epsilon=2.0)

    fitted = pipeline(model=choice).fit(x, y)

    assert fitted.receipt_.outcome.value == "tested"
    assert fitted.receipt_.epsilon <= 2.5
    assert isinstance(fitted.named_steps["model"], expost.SGDClassifier)
    assert fitted.score(x, y) > 0.84


def test_a_missed_target_carries_what_was_paid_for() -> None:
    x, y = table()
    model = classifier(epsilon=None, score=("accuracy", 0.9999), max_epsilon=0.3, phases=2)

    with pytest.raises(TargetNotMet) as missed:
        pipeline(model=model).fit(x, y)

    assert missed.value.release.value.coefficients.shape == (1, 2)
    assert set(missed.value.receipt.breakdown) == {"scale", "model"}


def test_pipelines_clone_pickle_and_cross_validate(tmp_path: Any) -> None:
    x, y = table(1200)
    fitted = pipeline().fit(x, y)
    path = str(tmp_path / "ledger")
    open_ledger(path).open_account("dataset:table", expost.approx(10, 1e-4))

    again = pickle.loads(pickle.dumps(fitted))
    cross_val_score(pipeline(ledger=path, simulation_seed=None), x, y, cv=3)

    assert (again.predict(x) == fitted.predict(x)).all()
    assert again.receipt_ == fitted.receipt_
    assert not hasattr(clone(fitted), "release_")
    assert 4.4 < open_ledger(path).spent("dataset:table").amounts()["epsilon"] <= 4.5
    assert clone(fitted).set_params(scale__epsilon=2.0).get_params()["scale__epsilon"] == 2.0


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [0, 1]])
@pytest.mark.parametrize("kind", [np.array, lambda y: np.array(y, object), pd.Series, pa.array])
def test_labels_of_every_kind_are_learned(labels: list[Any], kind: Any) -> None:
    x, y = table(500)

    fitted = pipeline(model=classifier(classes=labels, rows=500)).fit(x, kind([labels[each] for each in y]))

    assert set(fitted.predict(x).tolist()) <= set(labels)


LEAKING = [
    PublicScaler(),
    MinMaxScaler(),
    TruncatedSVD(1),
    SimpleImputer(),
    TargetEncoder(),
    PublicSelectKBest(k=1),
    KBinsDiscretizer(),
    OneHotEncoder(),
    OneHotEncoder(categories=[[0, 1], [0, 1]], min_frequency=5),
    OrdinalEncoder(categories=[[0, 1], [0, 1]], max_categories=2),
    FrozenEstimator(PublicScaler()),
    FunctionTransformer(lambda rows: rows - rows.mean(axis=0)),
    RBFSampler(gamma="scale"),
    GaussianRandomProjection(),
]
SILENT = [
    Normalizer(),
    FunctionTransformer(np.abs),
    PolynomialFeatures(2),
    RBFSampler(gamma=2.0),
    GaussianRandomProjection(3),
    OneHotEncoder(categories=[[0, 1], [0, 1]]),
    StandardScaler(epsilon=1),
]


@pytest.mark.parametrize("step", LEAKING, ids=lambda step: type(step).__name__)
def test_a_step_that_reads_rows_without_paying_is_refused_by_name(step: Any) -> None:
    steps = [("first", step), ("model", classifier())]

    with pytest.raises(InvalidRequest, match=f"first .{type(step).__name__}"):
        expost.check_pipeline(PublicPipeline(steps))
    with pytest.raises(InvalidRequest, match="public_steps"):
        Pipeline(steps).fit(*table(50))
    expost.check_pipeline(PublicPipeline(steps), public_steps=["first"])


@pytest.mark.parametrize("step", SILENT, ids=lambda step: type(step).__name__)
def test_a_step_that_reads_no_rows_or_pays_passes(step: Any) -> None:
    expost.check_pipeline(PublicPipeline([("first", step), ("skip", "passthrough"), ("model", classifier())]))


def test_leaks_inside_unions_and_column_transformers_are_found() -> None:
    inner = ColumnTransformer([("scale", PublicScaler(), [0]), ("as is", "passthrough", [1])], remainder=MinMaxScaler())
    union = FeatureUnion([("columns", inner), ("polynomial", PolynomialFeatures())])

    assert find_leaks(PublicPipeline([("prepare", union), ("model", classifier())])) == [
        ("prepare__columns__scale", "StandardScaler"),
        ("prepare__columns__remainder", "MinMaxScaler"),
    ]


def test_a_class_of_another_library_is_not_trusted() -> None:
    class Unknown(FunctionTransformer):
        pass

    assert find_leaks(PublicPipeline([("theirs", Unknown()), ("model", classifier())])) == [("theirs", "Unknown")]


def test_public_steps_are_used_as_they_were_fitted() -> None:
    x, y = table()
    public = PublicScaler().fit([[0.0, 0.0], [100.0, 2e4]])
    steps = [("public", public), ("wide", PolynomialFeatures(2, include_bias=False)), ("model", classifier())]

    fitted = Pipeline(steps, public_steps=["public"], simulation_seed=1).fit(x, y)

    assert fitted.named_steps["public"].mean_.tolist() == [50.0, 1e4]
    assert fitted.predict(x).shape == y.shape
    with pytest.raises(InvalidRequest, match="that are fitted"):
        Pipeline([("public", PublicScaler()), ("model", classifier())], public_steps=["public"]).fit(x, y)


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [("model", PublicScaler())],
        [("scale", StandardScaler(epsilon=1, bounds=BOUNDS)), ("model", Normalizer())],
        [
            ("scale", StandardScaler(epsilon=1, bounds=BOUNDS)),
            ("wide", PolynomialFeatures()),
            ("model", classifier()),
        ],
        [("scale", StandardScaler(epsilon=1, bounds=BOUNDS, ledger="x")), ("model", classifier())],
        [("scale", StandardScaler(epsilon=1, bounds=BOUNDS)), ("model", classifier(simulation_seed=1))],
        [("scale", StandardScaler(epsilon=1)), ("model", classifier())],
        [("inner", Pipeline([("scale", StandardScaler(epsilon=1, bounds=BOUNDS))])), ("model", classifier())],
        [("scale", StandardScaler(epsilon=1, bounds=BOUNDS)), ("model", classifier(classes=[0, "1"]))],
        [("scale", StandardScaler(bounds=BOUNDS)), ("model", classifier())],
        [("scale", StandardScaler(epsilon=1, bounds=BOUNDS)), ("model", classifier(classes=None))],
    ],
)
def test_steps_that_cannot_be_run_are_refused_before_anything_is_spent(steps: list[Any], tmp_path: Any) -> None:
    path = str(tmp_path / "ledger")
    open_ledger(path).open_account("dataset:table", expost.approx(10, 1e-4))

    with pytest.raises(InvalidRequest):
        x, y = table(50)
        Pipeline(steps, ledger=path).fit(x, y.astype(object))

    assert open_ledger(path).spent("dataset:table").amounts()["epsilon"] == 0


def test_public_steps_and_parts_of_a_dataset_are_refused() -> None:
    x, y = table(200)
    people = Dataset(pa.table({"age": x[:, 0], "income": x[:, 1], "label": y}), name="people")

    with pytest.raises(InvalidRequest, match="private steps only"):
        Pipeline([("wide", PolynomialFeatures()), ("model", classifier())]).fit(people, "label")
    with pytest.raises(InvalidRequest, match="whole dataset"):
        pipeline().fit(people.where("age > 3"), "label")


LEAKING: dict[str, tuple[Any, str]] = {
    "a scaler": (
        lambda model: make_pipeline(PublicScaler(), model),
        "standardscaler .StandardScaler.*expost.StandardScaler",
    ),
    "an inner scaler": (
        lambda model: make_pipeline(ColumnTransformer([("first", PublicScaler(), [0])]), Normalizer(), model),
        "columntransformer__first",
    ),
    "a search over a pipeline": (
        lambda model: GridSearchCV(make_pipeline(MinMaxScaler(), model), {}, cv=2, error_score="raise"),
        "minmaxscaler",
    ),
    "a calibration": (lambda model: CalibratedClassifierCV(model, cv=2), "a calibration .CalibratedClassifierCV"),
    "a choice of columns": (lambda model: RFE(model, n_features_to_select=1), "a choice of columns .RFE"),
}


@pytest.mark.parametrize("around", LEAKING)
def test_a_model_warns_of_what_scikit_learn_fits_around_it_before_anything_is_spent(around: str, tmp_path: Any) -> None:
    make, told = LEAKING[around]
    x, y = table(200)
    ledger = str(tmp_path / "people.ledger")
    open_ledger(ledger).open_account("dataset:table", expost.epsilon(5))
    model = expost.LogisticRegression(epsilon=0.1, classes=(0, 1), feature_bound=1.0, ledger=ledger)

    with warnings.catch_warnings():
        warnings.simplefilter("error", LeakingStepWarning)
        with pytest.raises(LeakingStepWarning, match=told):
            make(model).fit(x, y)
    assert open_ledger(ledger).spent("dataset:table").epsilon == 0


def test_the_warning_points_at_the_line_that_called_fit() -> None:
    x, y = table(200)

    with pytest.warns(LeakingStepWarning) as caught:
        make_pipeline(PublicScaler(), classifier(epsilon=0.1, simulation_seed=1)).fit(x, y)

    assert [each.filename for each in caught] == [__file__]


def test_pipelines_that_leak_nothing_are_not_warned_of() -> None:
    x, y = table(200)
    public = FrozenEstimator(PublicScaler().fit(x))

    for steps in ([Normalizer()], [public], [FunctionTransformer()], [PolynomialFeatures(include_bias=False)]):
        make_pipeline(*steps, classifier(epsilon=0.1, simulation_seed=1)).fit(x, y)
