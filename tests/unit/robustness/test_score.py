import contextlib
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from expost.core import InvalidRequest, MissingExtra
from expost.robustness.score import as_scores

X = np.array([[0.0], [1.0], [2.0], [3.0]], np.float32)


def test_a_scikit_learn_classifier_gives_its_probabilities():
    model = LogisticRegression().fit(X, [0, 0, 1, 1])

    np.testing.assert_allclose(as_scores(model)(X), model.predict_proba(X))


def test_scores_are_clipped_and_a_missing_one_makes_its_row_missing():
    scores = as_scores(lambda x: np.array([[2.0, -1.0], [np.nan, 0.5]]))(X[:2])

    assert scores[0].tolist() == [1.0, 0.0]
    assert np.isnan(scores[1]).all()


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
