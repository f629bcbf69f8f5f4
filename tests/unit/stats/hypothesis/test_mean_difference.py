from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from tests.unit.stats.hypothesis.simulated_groups import SPREAD_STRENGTHS, of_unequal_spreads, simulated

from expost.answer import answer
from expost.core import Adjacency, InvalidRequest, Outcome, PureLoss, epsilon
from expost.data import Dataset
from expost.ledger import open_ledger
from expost.noise import SeededBits
from expost.stats.hypothesis import MeanDifferenceTest, mean_difference_power, mean_difference_test
from expost.stats.hypothesis.group_means import GroupShares, NoisyGroups
from expost.stats.hypothesis.mean_difference import mean_difference_p_values

RNG = np.random.default_rng(8)
LAWS = {
    "uniform": lambda shape: RNG.random(shape),
    "normal": lambda shape: RNG.normal(0.5, 0.1, shape),
    "rare": lambda shape: (RNG.random(shape) < 0.1).astype(float),
    "skewed": lambda shape: RNG.beta(0.3, 3, shape),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("strength", ["0.05", "1", "8"])
@pytest.mark.parametrize(("sizes", "public_sizes"), [((10, 10), True), ((50, 20), True), ((150, 150), False)])
def test_the_level_is_kept_at_small_n_and_small_epsilon(name, strength, sizes, public_sizes, keeps_level):
    groups, _ = simulated(LAWS[name], sizes, strength, public_sizes=public_sizes, runs=3000)

    assert keeps_level(mean_difference_p_values(groups))


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize(("sizes", "strength"), [((30, 30), "4"), ((150, 150), "0.5"), ((400, 100), "1")])
def test_the_level_is_kept_when_nothing_about_the_sizes_is_public(name, sizes, strength, keeps_level):
    groups, _ = simulated(LAWS[name], sizes, strength, public_sizes=False, runs=3000, adjacency=Adjacency.ADD_REMOVE)

    assert keeps_level(mean_difference_p_values(groups))


UNEQUAL = [((1000, 50), (1, 4)), ((50, 1000), (4, 1)), ((50, 1000), (1, 4)), ((20, 10), (1, 6)), ((300, 300), (0.1, 3))]


@pytest.mark.parametrize(("sizes", "spreads"), UNEQUAL)
@pytest.mark.parametrize(("strength", "public_sizes"), SPREAD_STRENGTHS)
def test_the_level_is_kept_where_groups_differ_in_spread_and_size(sizes, spreads, strength, public_sizes, keeps_level):
    for groups in of_unequal_spreads(RNG, sizes, spreads, strength, public_sizes=public_sizes, runs=2000):
        assert keeps_level(mean_difference_p_values(groups))


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize(("sizes", "chance"), [((1000, 30), 0.02), ((500, 20), 0.05), ((1000, 100), 0.05)])
def test_a_few_rows_that_are_all_alike_by_chance_do_not_pass_for_certain(sizes, chance, alternative, keeps_level):
    def rare(shape):
        return (RNG.random(shape) < chance).astype(float)

    for strength in ("20", "100"):
        groups, _ = simulated(rare, sizes, strength, public_sizes=True, runs=2000)

        assert keeps_level(mean_difference_p_values(groups, alternative))


def test_taking_unequal_spreads_for_equal_breaks_the_level(keeps_level):
    terms = {"public_sizes": True, "runs": 2000, "spreads": (1, 4), "equal_spread": True}
    groups, _ = simulated(lambda shape: RNG.normal(0.5, 0.04, shape), (1000, 50), "5", **terms)

    assert not keeps_level(mean_difference_p_values(groups))


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize(("strength", "sizes"), [("0.05", (10, 10)), ("8", (50, 20))])
def test_the_level_is_kept_for_equal_spreads_taken_for_equal(name, strength, sizes, keeps_level):
    groups, _ = simulated(LAWS[name], sizes, strength, public_sizes=True, runs=3000, equal_spread=True)

    assert keeps_level(mean_difference_p_values(groups))


def test_the_level_is_kept_far_from_the_middle_of_the_bounds(keeps_level):
    """There the noise of sums and sizes is in the spread as well."""
    for public_sizes, adjacency in ((True, "replace-one"), (False, "replace-one"), (False, "add-remove")):
        for spreads in ((1, 1), (1, 4)):
            groups, _ = simulated(
                lambda shape: RNG.normal(0.5, 0.01, shape),
                (400, 60),
                "20",
                public_sizes=public_sizes,
                runs=3000,
                spreads=spreads,
                shifts=(0.35, 0.35),
                adjacency=Adjacency.parse(adjacency),
            )

            assert keeps_level(mean_difference_p_values(groups))


def test_a_narrow_column_of_many_rows_is_not_called_different_by_rounding():
    """Values in a thousandth of the bounds, off their lattice: squares and sums must be of the same rounded values."""
    rng, bits = np.random.default_rng(2), SeededBits(1)
    rejected = []
    for _ in range(60):
        x, y = (300.6 + 0.2 * rng.normal(size=100_000) for _ in range(2))
        rejected.append(mean_difference_test(x, y, bounds=(0, 1024), epsilon=300, bits=bits).value.rejects(0.05))

    assert sum(rejected) <= 9  # 3 expected at the most; 10 or more with probability 0.0007


def test_a_reference_that_forgets_a_tenth_of_the_noise_is_caught(keeps_level):
    """The power of the level test: with 30 % more noise than the reference knows, the level is seen to break."""
    groups, _ = simulated(LAWS["normal"], (10, 10), "0.05", public_sizes=True, runs=20_000, noise=Fraction(13, 10))

    assert not keeps_level(mean_difference_p_values(groups))


@pytest.mark.parametrize("equal_spread", [True, False])
@pytest.mark.parametrize("public_sizes", [True, False])
@pytest.mark.parametrize(
    ("sizes", "shift", "spread", "strength"), [((200, 200), 0.1, 0.2, "1"), ((500, 500), 0.05, 0.15, "0.5")]
)
def test_the_power_formula_is_close_to_what_happens(sizes, shift, spread, strength, public_sizes, equal_spread):
    def law(shape):
        return RNG.normal(0.45, spread, shape)

    terms = {"public_sizes": public_sizes, "equal_spread": equal_spread}
    groups, values = simulated(law, sizes, strength, runs=3000, shifts=(shift, 0.0), **terms)
    happened = (mean_difference_p_values(groups) <= 0.05).mean()

    promised = mean_difference_power(sizes, shift, deviation=spread, bounds=(0, 1), epsilon=float(strength), **terms)

    assert happened == pytest.approx(promised, abs=0.03)
    assert happened <= (stats.ttest_ind(*values, axis=1).pvalue <= 0.05).mean()


def test_at_a_large_epsilon_the_power_is_nearly_that_of_students_test():
    groups, values = simulated(LAWS["normal"], (200, 200), "30", public_sizes=True, runs=4000, shifts=(0.03, 0.0))
    private = (mean_difference_p_values(groups) <= 0.05).mean()
    public = (stats.ttest_ind(*values, axis=1).pvalue <= 0.05).mean()

    assert 0.7 < public < 0.95
    assert public - private < 0.1


@pytest.mark.parametrize("strength", ["1", "30"])
@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
@pytest.mark.parametrize(("chance", "sizes"), [(0.02, (100, 10_000)), (0.02, (30, 1000)), (0.005, (1000, 1000))])
def test_a_group_of_rare_values_against_a_narrow_one_of_its_mean_keeps_the_level(
    chance, sizes, alternative, strength, keeps_level
):
    """Rows that are all alike by chance must not pass for certain: without ``UNSEEN`` the level 0.01 is 0.13."""
    rng, runs = np.random.default_rng(7), 4000
    shares = GroupShares.for_groups(Fraction(strength), rows=sum(sizes), public_sizes=sizes)
    rare = rng.binomial(sizes[0], chance, runs)
    narrow = chance + 0.1 * chance * rng.normal(size=runs) / np.sqrt(sizes[1])
    sums = np.stack([rare - sizes[0] / 2, sizes[1] * (narrow - 0.5)], axis=1)
    squares = np.stack([np.full(runs, sizes[0] / 4), sizes[1] * ((narrow - 0.5) ** 2 + (0.1 * chance) ** 2)], axis=1)
    noisy = [
        exact + rng.laplace(0, scale, exact.shape)
        for exact, scale in ((sums, shares.sum_scale), (squares, shares.square_scale))
    ]

    p = mean_difference_p_values(
        NoisyGroups.under_shares(noisy[0], np.array(sizes, float), noisy[1], shares), alternative
    )

    assert keeps_level(p)


def test_equal_spreads_cost_little_power_if_they_are_not_taken_for_equal():
    for sizes, shift, strength in (((500, 500), 0.1, 0.3), ((100, 100), 0.09, 4.0)):
        terms = {"deviation": 0.2, "bounds": (0, 1), "epsilon": strength}
        apart, together = (mean_difference_power(sizes, shift, **terms, equal_spread=equal) for equal in (False, True))

        assert together - 0.05 < apart < together


@pytest.mark.parametrize("spread", [1.5, 0.2])
@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_intervals_cover_the_true_difference(alternative, spread):
    bits = SeededBits(4)
    covered = []
    for _ in range(200):
        x, y = RNG.normal(4.0, spread, 80), RNG.normal(5.0, 1.5, 60)
        low, high = mean_difference_test(
            x, y, bounds=(-2, 12), epsilon=1, alternative=alternative, confidence=0.9, bits=bits
        ).interval
        covered.append(low <= -1.0 <= high)

    assert np.mean(covered) >= 0.9 - 4 * np.sqrt(0.09 / 200)


def test_a_power_is_bought_at_the_smallest_epsilon():
    x = RNG.normal(5, 2, 400)
    release = mean_difference_test(x, x + 1, bounds=(0, 10), power=0.9, effect=1.0, deviation=2.0, bits=SeededBits(1))
    paid = release.receipt.epsilon

    def power(level):
        return mean_difference_power((400, 400), 1.0, deviation=2.0, bounds=(0, 10), epsilon=level)

    assert power(paid) >= 0.92 > power(0.99 * paid)
    assert release.receipt.outcome is Outcome.ESTIMATED
    assert "normal" in release.receipt.terms["power"]


def test_a_private_number_of_rows_has_half_the_noise_and_is_priced_for_an_expected_one():
    x = RNG.normal(5, 2, 400)
    terms = {"bounds": (0, 10), "power": 0.9, "effect": 1.0, "deviation": 2.0, "adjacency": "add-remove"}

    release = mean_difference_test(x, x + 1, expected_rows=800, bits=SeededBits(1), **terms)

    private, public = (
        mean_difference_power(
            (400, 400), 1.0, deviation=2.0, bounds=(0, 10), epsilon=0.3, public_sizes=False, adjacency=relation
        )
        for relation in ("add-remove", "replace-one")
    )
    assert private > public + 0.1
    assert release.receipt.terms["sizes"] == "private"
    assert not release.receipt.adjacency.public_size
    with pytest.raises(InvalidRequest, match="guess of the number of rows"):
        mean_difference_test(x, x + 1, **terms)


def test_a_dataset_of_private_size_is_tested():
    rng = np.random.default_rng(1)
    table = pa.table({"x": np.r_[rng.normal(4, 1, 2000), rng.normal(5, 1, 2000)], "g": ["a"] * 2000 + ["b"] * 2000})
    dataset = Dataset(table, bounds={"x": (0, 10)})
    request = MeanDifferenceTest("x", by="g", groups=("a", "b"), epsilon=0.5)
    plan = request.plan(dataset)

    release = plan.climb(plan.measure(dataset), SeededBits(1))

    assert release.value.rejects(0.01)
    assert release.interval[0] <= -1 <= release.interval[1]


def test_a_dataset_keeps_its_group_sizes_private():
    rng = np.random.default_rng(1)
    table = pa.table(
        {"delay": np.concatenate([rng.normal(10, 5, 3000), rng.normal(14, 5, 2000)]), "at": ["A"] * 3000 + ["B"] * 2000}
    )
    dataset = Dataset(
        table, adjacency="replace-one", rows=5000, bounds={"delay": (-20, 60)}, categories={"at": ["A", "B"]}
    )
    ledger = open_ledger(None)
    ledger.open_account("dataset:x", epsilon(1))
    request = MeanDifferenceTest("delay", by="at", groups=("A", "B"), epsilon=0.5)

    release = answer(request, dataset, ledger=ledger, accounts=["dataset:x"], bits=SeededBits(1), simulation=True)

    assert release.value.rejects(0.01)
    assert release.interval[0] <= -4 <= release.interval[1]
    assert release.receipt.terms["sizes"] == "private"
    assert set(release.receipt.breakdown) == {"sums", "squares", "group sizes"}
    assert ledger.spent("dataset:x") == PureLoss(0.5)


def test_an_empty_group_is_hardly_ever_called_different():
    table = pa.table({"x": [1.0, 2.0] * 10, "g": ["a"] * 20})
    dataset = Dataset(table, adjacency="replace-one", rows=20, bounds={"x": (0, 10)})
    request = MeanDifferenceTest("x", by="g", groups=("a", "b"), epsilon=1)
    plan = request.plan(dataset)
    bits = SeededBits(1)

    releases = [plan.climb(plan.measure(dataset), bits) for _ in range(200)]

    assert np.mean([release.value.rejects(0.05) for release in releases]) < 0.05
    unusable = [release for release in releases if release.value.p_value == 1.0]
    assert len(unusable) > 150
    assert {release.interval for release in unusable} == {(-10.0, 10.0)}


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: mean_difference_test([1], [1, 2], bounds=(0, 1), epsilon=1), "at least 2 each"),
        (lambda: mean_difference_test([1, 2], [1, 2], bounds=(1, 0), epsilon=1), "low < high"),
        (lambda: mean_difference_test([1, 2], [1, 2], bounds=(0, 1), power=0.8), "standard deviation"),
        (lambda: mean_difference_test([1, 2], [1, 2], bounds=(0, 1), epsilon=1, equal_spread=2), "equal_spread"),
        (lambda: MeanDifferenceTest("x", by="g", groups=("a", "a"), epsilon=1), "different groups"),
    ],
)
def test_nonsense_costs_nothing(build, words):
    with pytest.raises(InvalidRequest, match=words):
        build()
