import numpy as np

from expost.audit.pair_attack import _lowest_bit, partitions

RNG = np.random.default_rng(1)


def test_frequent_outcomes_get_a_cell_each_and_all_others_share_one():
    left, right = np.array([[1.0, 2.0], [3.0, 4.0]] * 50), np.array([[1.0, 2.0]] * 100 + [[5.0, 5.0]])
    _, distinct, _ = partitions(left, right, None)
    cells = distinct.cells(np.array([[1.0, 2.0], [3.0, 4.0], [9.0, 9.0], [5.0, 5.0]]))

    assert distinct.count == 3
    assert len({*cells.tolist()}) == 3
    assert cells[2] == cells[3]


def test_negative_zero_is_zero():
    _, distinct, _ = partitions(np.zeros((50, 1)), np.ones((50, 1)), None)

    assert distinct.cells(np.array([[-0.0]])) == distinct.cells(np.array([[0.0]]))


def test_a_tree_separates_what_can_be_separated():
    left, right = RNG.normal(0, 1, (4000, 1)), RNG.normal(9, 1, (4000, 1))
    *_, tree = partitions(left, right, None)

    assert not set(tree.cells(left)) & set(tree.cells(right))


def test_extra_features_reach_the_tree():
    left, right = RNG.integers(-50, 50, (4000, 1)) * 2.0, RNG.integers(-50, 50, (4000, 1)) * 2.0 + 1
    *_, tree = partitions(left, right, lambda values: values % 2)

    assert not set(tree.cells(left)) & set(tree.cells(right))


def test_cells_are_functions_of_the_outcome_alone():
    left, right = RNG.normal(0, 1, (3000, 2)), RNG.normal(1, 1, (3000, 2))
    for partition in partitions(left, right, None):
        together, alone = partition.cells(left), np.concatenate([partition.cells(row[None]) for row in left[:50]])
        assert (together[:50] == alone).all()


def test_the_lowest_bit_of_a_fraction_is_found():
    assert _lowest_bit(np.array([[0.5, 0.75, 3.0, 2.0**-60, -1.125]])).tolist() == [[-1, -2, 0, -60, -3]]


def test_outcomes_of_one_side_only_still_make_a_cell():
    (whole, *_) = partitions(np.zeros((5, 1)), np.zeros((0, 1)), None)

    assert whole.cells(np.zeros((3, 1))).tolist() == [0, 0, 0]
