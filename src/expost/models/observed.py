"""Classes that are read off the labels, where the caller says that it is public which of them occur."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.utils.multiclass import type_of_target

from expost.core import InvalidRequest

__all__ = ["OBSERVED", "observed_classes"]

OBSERVED = "observed"
"""Said by a caller for whom a fact about the table is public."""


def observed_classes(labels: Any) -> NDArray[Any]:
    """The labels that occur, in order; what cannot be classes is refused in our words, since a library's may repeat values.

    >>> observed_classes(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    if isinstance(labels, pa.Array):
        labels = labels.to_numpy(zero_copy_only=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of casts, where a label is no number
            kind = type_of_target(labels)
    except ValueError:  # missing or infinite labels
        kind = "missing or infinite"
    if kind not in ("binary", "multiclass"):
        raise InvalidRequest(f"Expected classes. Unknown label type: {kind}", do="Pass classes=[...], the public ones")
    return np.unique(labels)
