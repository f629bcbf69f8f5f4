import contextlib
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.svm import LinearSVC

from expost.core import InvalidRequest, MissingExtra
from expost.robustness.score import as_scores, as_votes

X = np.array([[0.0], [1.0], [2.0], [3.0]], np.float32)


def test_a_scikit_learn_classifier_gives_its_probabilities():
    model = LogisticRegression().fit(X, [0, 0, 1, 1])

    np.testing.assert_allclose(as_scores(model)(X), model.predict_proba(X))


def test_a_missing_score_makes_its_row_missing():
    scores = as_scores(lambda x: np.array([[1.0, 0.0], [np.nan, 0.5]]))(X[:2])

    assert scores[0].tolist() == [1.0, 0.0]
    assert np.isnan(scores[1]).all()


@pytest.mark.parametrize("row", [[2.0, -1.0], [0.5, 1.01], [-0.1, 1.0], [0.0, np.inf], [-3.0, -0.1]])
def test_expected_scores_outside_the_unit_interval_are_refused(row):
    with pytest.raises(InvalidRequest, match=r"scores in \[0, 1\]"):
        as_scores(lambda x: np.tile(row, (len(x), 1)))(X)


def test_rounding_of_probabilities_is_not_refused():
    assert as_scores(lambda x: np.tile([1 + 1e-7, -1e-9], (len(x), 1)))(X)[0].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("outputs", "winner"),
    [
        ([-3.0, -7.0], 0),  # logits, both below 0
        ([-7.0, -3.0], 1),
        ([40.0, 20.0], 0),  # both above 1
        ([20.0, 40.0], 1),
        ([-1e-3, -7.0, -9.0], 0),  # log-probabilities
        ([-np.inf, -0.1], 1),
        ([0.3, np.inf], 1),
        ([0.2, 0.3, 0.5], 2),
        ([1.0, 1.0 + 2**-52], 1),
        ([5.0, 5.0], 0),  # a tie: the first one, as numpy.argmax
    ],
)
def test_votes_go_to_the_class_the_model_predicts_on_any_scale(outputs, winner):
    votes = as_votes(lambda x: np.tile(outputs, (len(x), 1)))(X)

    assert votes.tolist() == [np.eye(len(outputs))[winner].tolist()] * len(X)


def test_a_row_with_a_missing_output_votes_for_no_class():
    votes = as_votes(lambda x: np.array([[np.nan, 5.0], [5.0, np.nan], [5.0, 4.0]]))(X[:3])

    assert np.isnan(votes[:2]).all()
    assert votes[2].tolist() == [1.0, 0.0]


def test_a_scikit_learn_classifier_votes_for_what_it_predicts():
    """Its threshold need not be the largest probability."""
    fitted = LogisticRegression().fit(X, ["a", "a", "b", "b"])
    model = FixedThresholdClassifier(FrozenEstimator(fitted), threshold=0.9).fit(X, ["a", "a", "b", "b"])

    votes = as_votes(model)(X)

    assert (np.asarray(model.classes_)[votes.argmax(1)] == model.predict(X)).all()
    assert (model.predict(X) != np.asarray(model.classes_)[model.predict_proba(X).argmax(1)]).any()
    assert as_votes(LinearSVC().fit(X, [0, 0, 1, 1]))(X).argmax(1).tolist() == [0, 0, 1, 1]
    with pytest.raises(InvalidRequest, match="classifier"):
        as_scores(LinearSVC().fit(X, [0, 0, 1, 1]))


def test_a_torch_module_votes_before_its_softmax_rounds():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(1, 2)
    with torch.no_grad():
        module.weight.zero_()
        module.bias.copy_(torch.tensor([1.0, 1.0 + 2.0**-23]))

    assert as_votes(module)(X).argmax(1).tolist() == [1] * len(X)


def test_inputs_reach_a_callable_as_they_are():
    seen = []
    model = as_scores(lambda x: (seen.append(x[0, 0]), np.ones((1, 2)))[1])

    model(np.array([[1.7e9 + 0.25]]))

    assert seen == [1.7e9 + 0.25]


def test_a_torch_module_goes_through_softmax(monkeypatch):
    """A stand-in with the few calls that are used; torch itself is an extra."""

    class Tensor:
        def __init__(self, values):
            self.values = np.asarray(values)

        def to(self, **_):
            return self

        def cpu(self):
            return self

        def numpy(self):
            return self.values

    def softmax(tensor, dim):
        powers = np.exp(tensor.values)
        return Tensor(powers / powers.sum(dim, keepdims=True))

    fake = ModuleType("torch")
    fake.from_numpy, fake.softmax, fake.no_grad = Tensor, softmax, contextlib.nullcontext
    monkeypatch.setitem(sys.modules, "torch", fake)

    class Module:
        def parameters(self):
            return [SimpleNamespace(device="cpu", dtype="float32")]

        def forward(self, x):
            return Tensor(np.stack([x.values[:, 0], 0 * x.values[:, 0]], axis=1))

        __call__ = forward

    assert as_scores(Module())(X)[1, 0] == pytest.approx(1 / (1 + np.exp(-1)))


def test_a_torch_module_without_torch_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    module = SimpleNamespace(forward=None, parameters=lambda: [])

    with pytest.raises(MissingExtra, match="torch"):
        as_scores(module)


def test_other_things_are_refused():
    with pytest.raises(InvalidRequest, match="classifier"):
        as_scores(7)
    with pytest.raises(InvalidRequest, match="row of scores"):
        as_scores(lambda x: np.zeros(len(x)))(X)


def test_a_torch_module_is_scored_in_evaluation_mode_and_left_as_it_was():
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(1), torch.nn.Dropout(0.5), torch.nn.Linear(1, 2))
    scores = as_scores(module)

    alone, together = scores(X[:1]), scores(X)

    np.testing.assert_allclose(alone[0], together[0])
    assert module.training
    as_scores(module.eval())(X)
    assert not module.training


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_torch_module_reads_its_own_precision(precision):
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(1, 2).to(getattr(torch, precision))
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0], [0.0]]))
        module.bias.copy_(torch.tensor([-1.7e9, 0.0]))

    near, far = as_scores(module)(1.7e9 + np.array([[2.0], [-2.0]]))[:, 0]

    assert (near == far) == (precision == "float32")
