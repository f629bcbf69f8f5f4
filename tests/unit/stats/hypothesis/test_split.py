import itertools

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from expost.core import InvalidRequest, Ladder
from expost.data import Dataset
from expost.noise import DiscreteLaplacePath, SeededBits
from expost.stats.hypothesis import SplitTest, mean_difference_test, split_power, split_test
from expost.stats.hypothesis.hypothesis_input import TableSize
from expost.stats.hypothesis.private_sample import read_labels
from expost.stats.hypothesis.split import measure_rejections, part_rejects, parts_for, statistic_for

RNG = np.random.default_rng(15)


def heavy(rows):
    """Values without a mean: no bound and no normal law would fit."""
    return RNG.standard_cauchy(rows)


NULLS = {
    "means": lambda rows: (heavy(rows), RNG.choice(3, rows, p=[0.7, 0.2, 0.1])),
    "independence": lambda rows: (RNG.choice(2, rows, p=[0.9, 0.1]), RNG.choice(3, rows, p=[0.6, 0.3, 0.1])),
    "correlation": lambda rows: (heavy(rows), np.round(RNG.normal(size=rows))),
}


@pytest.mark.parametrize("relation", NULLS)
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("rows", "epsilon", "parts"), [(20, 3, 5), (60, 0.1, 15), (120, 1, 12)])
def test_the_level_is_kept_for_any_law_and_number_of_rows(relation, adjacency, rows, epsilon, parts, keeps_level):
    bits = SeededBits(rows)
    terms = {"epsilon": epsilon, "parts": parts, "adjacency": adjacency, "bits": bits}

    p = [split_test(relation, *NULLS[relation](rows), **terms).value.p_value for _ in range(100)]

    assert keeps_level(p, levels=(0.05, 0.1, 0.3))


def test_parts_that_reject_too_often_are_caught(keeps_level):
    """The power of the level test: orderings that are not drawn afresh would look like this."""
    bits = SeededBits(1)
    p = []
    for _ in range(200):
        x = RNG.normal(size=120)
        p.append(split_test("correlation", x, x + 1.5 * RNG.normal(size=120), epsilon=1, bits=bits).value.p_value)

    assert not keeps_level(p)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_one_row_moves_the_count_by_at_most_one(adjacency):
    def counts(x, y):
        size = TableSize.of_sample(len(x), adjacency=adjacency)
        # A sealed count with next to no noise: the same bits deal the rows alike.
        sealed = measure_rejections("correlation", x, y, 6, size, SeededBits(2))
        assert sealed.sensitivity.amount == 1
        return sealed

    x = np.arange(48.0)
    changed = x.copy()
    changed[7] = -1e9

    seen = [
        int(DiscreteLaplacePath(counts(x, column), Ladder((500,)), bits=SeededBits(3)).at(0)[0])
        for column in (x, changed, -changed)
    ]
    assert max(seen) - min(seen) <= 1
    assert seen[0] == 6


# Of these four values in groups A, A, B, C two orderings are nearly tied: in floats it depends on the order of summation
# which one is larger.
NEAR_TIE = [1.0, float.fromhex("0x1.a4f9754e1e500p-1"), float.fromhex("-0x1.a4f974fd850a0p-1")]
NEAR_TIE += [float.fromhex("-0x1.000000284ca30p+0")]


def rejections(relation, first, second, parts, seed=1):
    size = TableSize(len(first), None)
    sealed = measure_rejections(relation, first, read_labels(second), parts, size, SeededBits(seed))
    return int(DiscreteLaplacePath(sealed, Ladder((500,)), bits=SeededBits(3)).at(0)[0])


def test_one_label_does_not_change_how_other_parts_sum():
    kinds = np.concatenate([[3, 3, 2, 0], np.tile(np.arange(4), 199)])  # the labels occur in the order C, B, A
    labels = np.array(["A", "A", "B", "C"])[kinds].tolist()
    other = [None, *labels[1:]]
    values = np.array(NEAR_TIE)[kinds]

    for seed in range(3):
        counts = [rejections("means", values, each, 200, seed) for each in (labels, other)]
        assert abs(counts[0] - counts[1]) <= 1


@pytest.mark.parametrize("odd", [0.5, "2"])
def test_one_cell_does_not_make_others_equal_by_its_type(odd):
    even = np.arange(400) % 2
    labels = [2**53 + 1 if k else 2**53 for k in even.tolist()]
    other = [odd, *labels[1:]]

    counts = [rejections("means", even.astype(float), each, 20) for each in (labels, other)]
    assert counts[0] == 20
    assert counts[1] >= 19


def test_a_value_that_equals_two_others_does_not_make_them_one():
    bridge, step = np.float32(2.0**90), 2**61 - 1  # equal to both, with the same hash; they differ from each other
    even = np.arange(400) % 2
    labels = [2**90 + step * (1 + k) for k in even.tolist()]

    counts = [rejections("means", even.astype(float), each, 20) for each in (labels, [bridge, *labels[1:]])]
    assert hash(bridge) == hash(labels[0]) == hash(labels[1])
    assert bridge == labels[0] and bridge == labels[1]
    assert counts[0] == 20
    assert counts[1] >= 19


@pytest.mark.parametrize("relation", ["means", "independence", "correlation"])
def test_effects_are_found(relation):
    group = np.arange(1200) % 2
    values = RNG.normal(size=1200) + group
    pairs = {
        "means": (values, group),
        "independence": (values > 0.5, group),
        "correlation": (values, values + RNG.normal(size=1200)),
    }

    assert split_test(relation, *pairs[relation], epsilon=1, bits=SeededBits(1)).value.rejects(0.01)


def test_no_bounds_beat_wide_bounds_and_good_bounds_beat_none():
    group = np.repeat([0, 1], 400)
    bits = SeededBits(4)
    found = {"split": 0, "wide": 0, "tight": 0}
    for _ in range(60):
        x = RNG.normal(size=800) + 0.5 * group
        found["split"] += split_test("means", x, group, epsilon=0.7, bits=bits).value.rejects(0.05)
        for name, reach in (("wide", 60), ("tight", 4)):
            release = mean_difference_test(x[:400], x[400:], bounds=(-reach, reach), epsilon=0.7, bits=bits)
            found[name] += release.value.rejects(0.05)

    assert found["wide"] < found["split"] < found["tight"] + 10
    assert found["split"] > 15


def test_the_power_is_that_of_counting_parts():
    assert split_power(15, 0.25, epsilon=1.0) == pytest.approx(0.05)
    assert split_power(15, 0.7, epsilon=0.1) < split_power(150, 0.7, epsilon=0.1)


def test_parts_follow_epsilon_and_leave_four_rows_each():
    assert parts_for(TableSize(10_000, None), 0.1, None) == 150
    assert parts_for(TableSize(100, None), 0.1, None) == 25
    assert parts_for(TableSize(None, None), 10.0, None) == 5
    assert parts_for(TableSize(2, None), 1.0, None) == 1


@pytest.mark.parametrize("described", [{"adjacency": "replace-one", "rows": 1500}, {"adjacency": "add-remove"}])
def test_a_dataset_is_tested(described):
    group = np.arange(1500) % 3
    table = pa.table(
        {
            "x": np.where(np.arange(1500) == 9, np.nan, RNG.normal(size=1500) + group),
            "y": RNG.normal(size=1500) + group,
            "g": np.array(["a", "b", "c"])[group],
            "h": np.array(["p", "q", "q"])[group],
        }
    )
    dataset = Dataset(table, categories={"g": ["a", "b", "c"], "h": ["p", "q"]}, **described)
    for relation, first, second in (("means", "x", "g"), ("independence", "g", "h"), ("correlation", "x", "y")):
        request = SplitTest(relation, first, second, epsilon=2)
        plan = request.plan(dataset)
        release = plan.climb(plan.measure(dataset), SeededBits(1))

        assert release.value.rejects(0.05)
        assert release.receipt.adjacency is dataset.adjacency
        assert release.receipt.epsilon == 2.0 == float(plan.worst_case.epsilon)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: split_test("median", [1, 2], [1, 2], epsilon=1), "relation"),
        (lambda: split_test("means", [1, 2], [1], epsilon=1), "equal length"),
        (lambda: split_test("means", [1, 2], [1, 2], epsilon=0), "epsilon > 0"),
        (lambda: split_test("means", [1, 2], [1, 2], epsilon=1, parts=0), "parts"),
        (lambda: SplitTest("means", "x", "x", epsilon=1), "different columns"),
    ],
)
def test_nonsense_costs_nothing(build, words):
    with pytest.raises(InvalidRequest, match=words):
        build()


def test_categories_must_be_public_and_numbers_numeric():
    dataset = Dataset(pa.table({"a": ["x"], "b": [1.0]}))

    with pytest.raises(InvalidRequest, match="public categories"):
        SplitTest("means", "b", "a", epsilon=1).plan(dataset)
    with pytest.raises(InvalidRequest, match="numeric column"):
        SplitTest("correlation", "b", "a", epsilon=1).plan(dataset)


SECRET = "meiko-4711"
NUMBERS, GROUPS = np.sin(np.arange(60.0)), np.repeat(["a", "b"], 30)
NO_NUMBERS = {
    "texts": np.array([SECRET] * 60),
    "a text among numbers": [SECRET, *NUMBERS[1:]],
    "a text among objects": np.array([SECRET, *NUMBERS[1:]], object),
    "None among objects": np.array([None, *NUMBERS[1:]], object),
    "only numbers, as objects": NUMBERS.astype(object),
    "complex numbers": NUMBERS + 1j,
    "dates": np.array(["2020-01-01"] * 60, "datetime64[D]"),
    "lists of different lengths": [[SECRET], [1, 2]],
    "a number beyond floats": [10**400, *NUMBERS[1:]],
}


@pytest.mark.parametrize("values", NO_NUMBERS.values(), ids=NO_NUMBERS)
@pytest.mark.parametrize(
    "ask",
    [
        lambda values: split_test("means", values, GROUPS, epsilon=1),
        lambda values: split_test("correlation", values, NUMBERS, epsilon=1),
        lambda values: split_test("correlation", NUMBERS, values, epsilon=1),
    ],
    ids=["means", "first", "second"],
)
def test_arrays_that_hold_no_numbers_are_refused_for_their_type_and_no_cell_is_repeated(ask, values):
    with pytest.raises(InvalidRequest, match=r"array of numbers|equal length") as refusal:
        ask(values)
    assert SECRET not in str(refusal.value)
    assert refusal.value.__context__ is None


class _Strange:
    def __eq__(self, other):
        raise ValueError(SECRET)

    def __ne__(self, other):
        raise ValueError(SECRET)

    __hash__ = None


@pytest.mark.parametrize("odd", [None, 3.5, SECRET, float("nan"), [SECRET], {SECRET}, np.zeros(2), _Strange()])
def test_a_category_of_any_kind_is_a_category_or_in_no_group(odd):
    groups = np.empty(600, object)
    groups[:] = np.repeat(["a", "b"], 300).tolist()
    groups[3] = odd
    values = np.repeat([0.0, 1.0], 300) + np.sin(np.arange(600))

    for relation, first in (("means", values), ("independence", np.repeat([1, 2], 300))):
        assert split_test(relation, first, groups, epsilon=3, bits=SeededBits(1)).value.rejects(0.05)


def test_objects_are_told_apart_like_plain_categories():
    plain = np.arange(90) % 3
    same = np.array([None if k == 0 else f"g{k}" for k in plain], object)
    values = np.sin(np.arange(90.0)) + plain

    answers = [split_test("means", values, groups, epsilon=1, bits=SeededBits(4)).value for groups in (plain, same)]
    assert answers[0] == answers[1]


ORDER_RNG = np.random.default_rng(16)


def agree(statistic, public, first, second):
    """Both order all orderings alike."""
    orders = np.array(list(itertools.permutations(range(len(second)))))
    ours = np.array(statistic(first, second, orders), float)
    theirs = np.array([public(first[order], second) for order in orders])
    ours, theirs = (np.round(each / np.abs(each).max(), 9) for each in (ours, theirs))
    return stats.spearmanr(ours, theirs).statistic > 0.9999


def test_between_groups_it_is_the_statistic_of_anova():
    values, labels = ORDER_RNG.normal(size=6), np.array([0, 0, 1, 1, 2, 2])

    def public(x, g):
        return stats.f_oneway(*(x[g == group] for group in range(3))).statistic

    assert agree(statistic_for("means"), public, values, labels)


def test_of_categories_it_is_chi_squared():
    first, second = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 1, 2, 2])

    def public(a, b):
        table = [[((a == i) & (b == j)).sum() for j in range(3)] for i in range(2)]
        return stats.chi2_contingency(table, correction=False).statistic

    assert agree(statistic_for("independence"), public, first, second)


def test_of_numbers_it_is_spearmans():
    first, second = np.array([3.0, 1, 1, 7, 9, -2]), np.array([1.0, 5, 2, 2, 0, 9])

    assert agree(statistic_for("correlation"), lambda a, b: abs(stats.spearmanr(a, b).statistic), first, second)


@pytest.mark.parametrize("relation", ["means", "independence", "correlation"])
@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_parts_of_any_size_and_value_give_an_answer(relation, rows):
    strange = np.array([np.nan, np.inf, -np.inf, 1e308, -1e308])[:rows]
    labels = np.array([-1, 0, 1, 0, 1])[:rows]
    first = strange if relation != "independence" else np.zeros(rows, int)
    second = strange if relation == "correlation" else labels

    assert part_rejects(first, second, statistic_for(relation), SeededBits(1)) in (True, False)


def test_constant_columns_never_reject():
    for relation in ("means", "independence", "correlation"):
        assert not part_rejects(np.zeros(30), np.zeros(30, int), statistic_for(relation), SeededBits(1))


@pytest.mark.parametrize("relation", ["means", "independence", "correlation"])
def test_scores_are_exact_so_that_names_and_order_of_the_rows_do_not_matter(relation):
    rows = 24
    orders = np.argsort(ORDER_RNG.random((30, rows)), axis=1)
    for _ in range(20):
        first = (
            ORDER_RNG.integers(0, 4, rows) if relation == "independence" else np.exp(8 * ORDER_RNG.normal(size=rows))
        )
        second = ORDER_RNG.normal(size=rows) if relation == "correlation" else ORDER_RNG.integers(-1, 5, rows)
        renamed = second if relation == "correlation" else np.where(second < 0, -1, 9 - second)
        place = ORDER_RNG.permutation(rows)
        moved = np.argsort(place)[orders[:, place]]  # the same pairs of rows, each in another place

        scores = [
            statistic_for(relation)(first, second, orders),
            statistic_for(relation)(first, renamed, orders),
            statistic_for(relation)(first[place], second[place], moved),
        ]

        assert scores[0] == scores[1] == scores[2]
        assert all(type(score) is int for score in scores[0])


def test_scores_of_many_rows_do_not_overflow():
    rows = 1 << 20
    x, order = np.arange(float(rows)), np.arange(rows)[None]

    assert statistic_for("correlation")(x, x, order) == [rows * (rows**2 - 1) // 3]
    (between,) = statistic_for("means")(np.where(x < rows / 2, -1e300, 1e300), x >= rows / 2, order)
    assert between > 1 << 100


def test_without_any_group_nothing_rejects():
    nobody, values = np.full(9, -1), np.arange(9.0)

    assert statistic_for("means")(values, nobody, np.arange(9)[None]) == [0]
    assert statistic_for("independence")(nobody, nobody, np.arange(9)[None]) == [0]
    assert not part_rejects(values, nobody, statistic_for("means"), SeededBits(1))
