"""Labels that cannot be compared with any class are unknown, and no label makes the comparison fail."""

import numpy as np
import pytest

from expost.data.value_place import label_codes

ODD = {"list": [], "mapping": {}, "tuple": ([],), "nested": ((1, {}),), "array": np.array([1]), "object": object()}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_label_that_cannot_be_hashed_is_unknown(odd: object) -> None:
    labels = np.empty(3, object)
    labels[:] = ["a", None, "b"]
    labels[1] = odd

    assert label_codes(labels, ["a", "b"]).tolist() == [0, -1, 1]
