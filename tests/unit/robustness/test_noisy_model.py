import contextlib
import sys
from fractions import Fraction
from types import ModuleType, SimpleNamespace

import mpmath
import numpy as np
import pytest
from scipy import stats
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.svm import LinearSVC

from expost.core import InvalidRequest, MissingExtra
from expost.noise import SeededBits
from expost.robustness.noisy_model import (
    SAMPLER_ERROR,
    check_inputs,
    check_noise,
    laplace_scale,
    noisy_copies,
    sample_perturbations,
    scores_of_model,
    votes_of_model,
)


@pytest.mark.parametrize(
    ("noise", "law"), [("gaussian", stats.norm(scale=0.7)), ("laplace", stats.laplace(scale=laplace_scale(0.7)))]
)
@pytest.mark.parametrize("factor", [0.9, 1.0, 1.1])
def test_noise_has_its_law_and_no_other(noise, law, factor):
    drawn = sample_perturbations((100_000,), noise=noise, sigma=0.7, bits=SeededBits(1)) * factor

    assert (stats.kstest(drawn, law.cdf).pvalue > 1e-6) == (factor == 1.0)
    if factor == 1.0:
        assert drawn.std() == pytest.approx(0.7, rel=0.02)


def test_blocks_are_bounded_and_complete():
    blocks = noisy_copies(np.zeros((64, 784)), noise="laplace", sigma=1.0, samples=200, bits=SeededBits(1))
    counts = [block.shape[1] for block in blocks]

    assert len(counts) > 1 and sum(counts) == 200
    assert max(counts) * 64 * 784 <= 1 << 22


def test_nonsense_is_refused():
    for bad in ([1.0, 2.0], np.zeros((0, 2)), [[np.nan]]):
        with pytest.raises(InvalidRequest, match="finite inputs"):
            check_inputs(bad)
    with pytest.raises(InvalidRequest, match="noise"):
        check_noise("uniform")


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_a_noisy_copy_is_the_lattice_point_nearest_to_the_exact_sum(noise):
    inputs = np.array([[0.1, -3.7, 1.7e9 + 0.3, -1e12 + 1]])
    sigma, step = 3.0, 2.0**-9

    (copies,) = noisy_copies(inputs, noise=noise, sigma=sigma, samples=2000, bits=SeededBits(2))
    drawn = sample_perturbations((2000, 4), noise=noise, sigma=sigma, bits=SeededBits(2))

    exact = [
        round((Fraction(x) + Fraction(z)) / Fraction(step)) * Fraction(step)
        for x, z in zip(np.tile(inputs[0], 2000), drawn.flat, strict=True)
    ]
    assert [Fraction(copy) for copy in copies.flat] == exact


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_noise_is_as_near_to_its_exact_quantile_as_the_proof_asks(noise):
    """Theorem 3 of docs/proofs/certified-radius.md: a relative error of 2^-48 at most, out to the last cell."""
    cells = np.unique(np.geomspace(1, 2**51, 80).astype(np.uint64)) - 1
    cells = np.concatenate([cells, np.uint64(2**52 - 1) - cells])
    bits = SimpleNamespace(words=lambda _count, _dtype: cells << np.uint64(12))

    drawn = sample_perturbations(cells.shape, noise=noise, sigma=1536.0, bits=bits)

    with mpmath.workdps(50):
        for cell, found in zip(cells, drawn, strict=True):
            exact = 1536 * _quantile(noise, (mpmath.mpf(int(cell)) + 0.5) / 2**52)
            assert abs(found - exact) <= 2.0**-48 * abs(exact)
    assert np.abs(drawn).max() < (8.3 if noise == "gaussian" else 25.6) * 1536
    boundaries = 52 * 2**11 + 4
    assert 3 * boundaries * 2.0**-52 + 2.0**-51 + 2.02 * 2.0**-36 < 2.0**-33 < SAMPLER_ERROR


def _quantile(noise, u):
    if noise == "gaussian":
        return mpmath.sqrt(2) * mpmath.erfinv(2 * u - 1)
    tail = mpmath.log(2 * min(u, 1 - u)) / mpmath.sqrt(2)
    return tail if u < 0.5 else -tail


def test_inputs_keep_single_precision_only_where_the_caller_has_it():
    for given, kept in (
        (np.float16, np.float32),
        (np.float32, np.float32),
        (np.int32, np.float64),
        (float, np.float64),
    ):
        inputs = check_inputs(np.ones((1, 1), given))
        assert inputs.dtype == kept
        (copies,) = noisy_copies(inputs, noise="gaussian", sigma=1.0, samples=2, bits=SeededBits(1))
        assert copies.dtype == kept


def test_inputs_that_doubles_do_not_tell_apart_are_refused():
    with pytest.raises(InvalidRequest, match=r"whole numbers up to 2\^52"):
        check_inputs([[2**53 + 1]])
    with pytest.raises(InvalidRequest, match=r"below 2\^41 times sigma"):
        next(noisy_copies(np.array([[2.0**43]]), noise="gaussian", sigma=1.0, samples=1))
    assert next(noisy_copies(np.array([[2.0**41 - 1]]), noise="gaussian", sigma=1.0, samples=1)).size == 1


X = np.array([[0.0], [1.0], [2.0], [3.0]], np.float32)


def test_a_scikit_learn_classifier_gives_its_probabilities():
    model = LogisticRegression().fit(X, [0, 0, 1, 1])

    np.testing.assert_allclose(scores_of_model(model)(X), model.predict_proba(X))


def test_a_missing_score_makes_its_row_missing():
    scores = scores_of_model(lambda x: np.array([[1.0, 0.0], [np.nan, 0.5]]))(X[:2])

    assert scores[0].tolist() == [1.0, 0.0]
    assert np.isnan(scores[1]).all()


@pytest.mark.parametrize("row", [[2.0, -1.0], [0.5, 1.01], [-0.1, 1.0], [0.0, np.inf], [-3.0, -0.1]])
def test_expected_scores_outside_the_unit_interval_are_refused(row):
    with pytest.raises(InvalidRequest, match=r"scores in \[0, 1\]"):
        scores_of_model(lambda x: np.tile(row, (len(x), 1)))(X)


def test_rounding_of_probabilities_is_not_refused():
    assert scores_of_model(lambda x: np.tile([1 + 1e-7, -1e-9], (len(x), 1)))(X)[0].tolist() == [1.0, 0.0]


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
    votes = votes_of_model(lambda x: np.tile(outputs, (len(x), 1)))(X)

    assert votes.tolist() == [np.eye(len(outputs))[winner].tolist()] * len(X)


def test_a_row_with_a_missing_output_votes_for_no_class():
    votes = votes_of_model(lambda x: np.array([[np.nan, 5.0], [5.0, np.nan], [5.0, 4.0]]))(X[:3])

    assert np.isnan(votes[:2]).all()
    assert votes[2].tolist() == [1.0, 0.0]


def test_a_scikit_learn_classifier_votes_for_what_it_predicts():
    """Its threshold need not be the largest probability."""
    fitted = LogisticRegression().fit(X, ["a", "a", "b", "b"])
    model = FixedThresholdClassifier(FrozenEstimator(fitted), threshold=0.9).fit(X, ["a", "a", "b", "b"])

    votes = votes_of_model(model)(X)

    assert (np.asarray(model.classes_)[votes.argmax(1)] == model.predict(X)).all()
    assert (model.predict(X) != np.asarray(model.classes_)[model.predict_proba(X).argmax(1)]).any()
    assert votes_of_model(LinearSVC().fit(X, [0, 0, 1, 1]))(X).argmax(1).tolist() == [0, 0, 1, 1]
    with pytest.raises(InvalidRequest, match="classifier"):
        scores_of_model(LinearSVC().fit(X, [0, 0, 1, 1]))


def test_a_torch_module_votes_before_its_softmax_rounds():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(1, 2)
    with torch.no_grad():
        module.weight.zero_()
        module.bias.copy_(torch.tensor([1.0, 1.0 + 2.0**-23]))

    assert votes_of_model(module)(X).argmax(1).tolist() == [1] * len(X)


def test_inputs_reach_a_callable_as_they_are():
    seen = []
    model = scores_of_model(lambda x: (seen.append(x[0, 0]), np.ones((1, 2)))[1])

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

    assert scores_of_model(Module())(X)[1, 0] == pytest.approx(1 / (1 + np.exp(-1)))


def test_a_torch_module_without_torch_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    module = SimpleNamespace(forward=None, parameters=lambda: [])

    with pytest.raises(MissingExtra, match="torch"):
        scores_of_model(module)


def test_other_things_are_refused():
    with pytest.raises(InvalidRequest, match="classifier"):
        scores_of_model(7)
    with pytest.raises(InvalidRequest, match="row of scores"):
        scores_of_model(lambda x: np.zeros(len(x)))(X)


def test_a_torch_module_is_scored_in_evaluation_mode_and_left_as_it_was():
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(1), torch.nn.Dropout(0.5), torch.nn.Linear(1, 2))
    scores = scores_of_model(module)

    alone, together = scores(X[:1]), scores(X)

    np.testing.assert_allclose(alone[0], together[0])
    assert module.training
    scores_of_model(module.eval())(X)
    assert not module.training


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_torch_module_reads_its_own_precision(precision):
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(1, 2).to(getattr(torch, precision))
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0], [0.0]]))
        module.bias.copy_(torch.tensor([-1.7e9, 0.0]))

    near, far = scores_of_model(module)(1.7e9 + np.array([[2.0], [-2.0]]))[:, 0]

    assert (near == far) == (precision == "float32")
