from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from expost.audit.entries_stats import released_pair
from expost.audit.replay_views import recorded
from expost.data import Dataset
from expost.noise import DiscreteLaplacePath, SeededBits
from expost.stats import Count, Mean, PrivateKeys, Sum


def test_what_a_question_puts_under_noise_is_noted_with_its_level():
    kept = DiscreteLaplacePath.__init__
    dataset = Dataset(pa.table({"x": [0, 1, 1]}), bounds={"x": (0, 1)})
    question = Sum("x", epsilon=0.5)
    plan = question.plan(dataset)
    with recorded() as seen:
        plan.climb(plan.measure(dataset), SeededBits(1))

    assert [float(level) for _, level in seen] == [0.5]
    assert DiscreteLaplacePath.__init__ is kept


@pytest.mark.parametrize(
    "build",
    [
        partial(Count, epsilon=1),
        partial(Mean, "x", epsilon=1),
        partial(PrivateKeys, "key", epsilon=1, delta=0.01),
    ],
    ids=["count", "mean", "private keys"],
)
def test_a_replay_varies_from_run_to_run_and_from_side_to_side(build):
    pair = released_pair("numbers", build)
    left, right = (side(2000, SeededBits(4)).values for side in (pair.left, pair.right))

    assert left.shape == right.shape
    assert len(np.unique(left, axis=0)) > 10
    assert (np.abs(left.mean(axis=0) - right.mean(axis=0)) > 0.5).any()
