"""Gaussian noise for counts and sums: lengths, tails, the choice by price, refinement, and bills in every currency."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from expost import Dataset, Session
from expost.accuracy.gaussian_interval import gaussian_radius, gaussian_tail, rho_for_radius
from expost.core import Adjacency, BudgetExceeded, InvalidRequest, ZeroConcentratedLoss
from expost.data import Clamp, col
from expost.data.axis import Categories
from expost.data.bounding import Limits
from expost.data.sealed_form import CountForm, TotalForm, unit_length, unit_sensitivity
from expost.data.tally import Tally
from expost.ledger import new_key
from expost.noise import SeededBits
from expost.stats import Count, CountByPrivateKeys, CountDistinct, PrivateKeys, Sum

GROUPS = 24


def visits(rows: int = 6000) -> pa.Table:
    random = np.random.default_rng(1)
    columns = {"who": random.integers(0, 300, rows), "site": random.integers(0, GROUPS, rows)}
    return pa.table(columns | {"pay": random.integers(-20, 100, rows)})


def described(**more) -> Dataset:
    limits = {"unit": "who", "max_rows_per_unit": 40, "max_groups_per_unit": GROUPS}
    return Dataset(visits(), bounds={"pay": (-20, 100)}, categories={"site": list(range(GROUPS))}, **{**limits, **more})


def asked(budget, **more) -> Session:
    return Session(described(**more), budget, bits=SeededBits(1), simulation=True)


# Lengths


def allowed_units(limits: Limits, cells: int) -> list[np.ndarray]:
    """The numbers of rows in each cell of every unit that its limits allow."""
    most = 1 if limits.once else min(limits.rows, limits.rows_per_group or limits.rows)
    found = []
    for counts in itertools.product(range(most + 1), repeat=cells):
        rows, groups = sum(counts), sum(count > 0 for count in counts)
        if (limits.rows is None or rows <= limits.rows) and (limits.groups is None or groups <= limits.groups):
            found.append(np.array(counts))
    return found


FORMS = {
    "count": (CountForm(), [1]),
    "sum of one sign": (TotalForm(Clamp.of((2, 5), whole=True)), [2, 5]),
    "sum of two signs": (TotalForm(Clamp.of((-3, 5), whole=True)), [-3, 5]),
}


@pytest.mark.parametrize(
    "limits",
    [
        Limits(rows=3),
        Limits(rows=3, groups=2),
        Limits(groups=2, once=True),
        Limits(rows=3, rows_per_group=2),
        Limits(rows=4, groups=2, rows_per_group=2),
        Limits(rows=3, groups=3, rows_per_group=1),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", FORMS)
def test_no_allowed_unit_is_longer_than_the_length(name: str, limits: Limits) -> None:
    (form, values), cells = FORMS[name], 3
    tally = Tally(axes=(Categories.of(col("site"), list(range(cells))),))
    units = [
        counts * np.array(worth)
        for counts in allowed_units(limits, cells)
        for worth in itertools.product(values, repeat=cells)
    ]
    stacked = np.unique(np.array(units), axis=0)

    added = float(unit_length(form, tally, limits, Adjacency.ADD_REMOVE).amount)
    longest = np.sqrt((stacked**2).sum(axis=1)).max()
    assert longest <= added <= longest * (1 + 1e-9)

    replaced = unit_length(form, tally, limits, Adjacency.REPLACE_ONE)
    apart = np.sqrt(((stacked[:, None] - stacked[None]) ** 2).sum(axis=2)).max()
    assert apart <= float(replaced.amount) * (1 + 1e-12)
    assert replaced.amount <= unit_sensitivity(form, tally, limits, Adjacency.REPLACE_ONE).amount


def test_a_replaced_unit_of_the_other_sign_is_farther_than_one_sign_allows() -> None:
    form, tally = TotalForm(Clamp.of((-5, 5), whole=True)), Tally(axes=(Categories.of(col("site"), [0, 1]),))
    limits = Limits(rows=1, groups=1)
    one_sign = math.sqrt(2) * float(unit_length(form, tally, limits, Adjacency.ADD_REMOVE).amount)

    assert one_sign < 10 <= float(unit_length(form, tally, limits, Adjacency.REPLACE_ONE).amount)


# Tails


def exact_tail(radius: float, variances: list[float], weights: list[float]) -> float:
    """The tail of a weighted sum of discrete Gaussians, by enumeration."""
    sums, chances = np.zeros(1), np.ones(1)
    for variance, weight in zip(variances, weights, strict=True):
        reach = math.ceil(12 * math.sqrt(variance))
        places = np.arange(-reach, reach + 1)
        law = np.exp(-(places**2) / (2 * variance))
        sums, chances = np.add.outer(sums, weight * places).ravel(), np.outer(chances, law / law.sum()).ravel()
    return float(chances[np.abs(sums) > radius].sum())


@pytest.mark.parametrize("variance", [0.3, 4.0, 99.0, 900.0, 1200.0])
def test_the_tail_is_never_below_the_exact_one_and_close_to_it(variance: float) -> None:
    rho = 1 / (2 * Fraction(str(variance)))
    for deviations in (0.5, 1.5, 3.0):
        radius = math.floor(deviations * math.sqrt(variance))
        bound, exact = gaussian_tail(radius, Fraction(1), [rho]), exact_tail(radius, [variance], [1.0])
        assert exact * (1 - 1e-9) <= bound <= exact * 1.001


def test_the_tail_of_a_refined_estimate_is_never_below_the_exact_one() -> None:
    first, second = Fraction(1, 200), Fraction(1, 50)
    variances = [float(1 / (2 * first)), float(1 / (2 * (second - first)))]
    weights = [float(first / second), float(1 - first / second)]
    for radius in (2.0, 8.0, 15.0, 20.5):
        bound, exact = gaussian_tail(radius, Fraction(1), [first, second]), exact_tail(radius, variances, weights)
        assert exact <= bound <= 2 * exact


@pytest.mark.parametrize("radius", [0, 1, 7, 400])
def test_a_price_is_the_least_that_keeps_its_radius(radius: int) -> None:
    level, square = Fraction(1, 20), Fraction(9)
    rho = rho_for_radius(radius, level, square)

    assert gaussian_radius(0.05, square, [rho]) == radius
    assert gaussian_tail(radius, square, [rho * Fraction(999, 1000)]) > level


# The choice


def test_many_groups_per_person_get_gaussian_noise_where_there_is_a_delta() -> None:
    release = asked((5, 1e-6)).count_distinct(by="site", within=40, max_epsilon=5)

    assert release.receipt.method == "discrete Gaussian"
    assert isinstance(release.receipt.bill, ZeroConcentratedLoss)
    assert "after Laplace noise" in release.receipt.terms["noise"]


def test_a_single_count_of_a_new_account_keeps_laplace_noise() -> None:
    assert asked((5, 1e-6)).count(within=400).receipt.method == "discrete Laplace"


def test_gaussian_noise_takes_over_after_many_questions() -> None:
    session = asked((1, 1e-6), unit="row", max_rows_per_unit=None, max_groups_per_unit=None)
    methods = [session.count(where=f"pay > {number}", within=100).receipt.method for number in range(-19, 61)]

    assert methods[0] == "discrete Laplace" and methods[-1] == "discrete Gaussian"
    # With Laplace noise alone the budget pays for fewer than these.
    laplace = asked((1, 1e-6), unit="row", max_rows_per_unit=None, max_groups_per_unit=None)
    with pytest.raises(BudgetExceeded):
        for number in range(-19, 61):
            laplace.count(where=f"pay > {number}", within=100, noise="laplace")


def test_pure_accounts_keep_laplace_noise_and_refuse_gaussian_noise_at_no_cost() -> None:
    session = asked(5)
    assert session.count_distinct(by="site", within=40, max_epsilon=5).receipt.method == "discrete Laplace"
    spent = session.spent()
    with pytest.raises(InvalidRequest, match="pure"):
        session.count_distinct(by="site", within=39, max_epsilon=5, noise="gaussian")
    assert session.spent() == spent


@pytest.mark.parametrize("budget", [(5, 1e-6), {"rho": 2}, {"mu": 2}], ids=str)
def test_asking_for_less_never_uses_more_of_the_budget(budget) -> None:
    session = asked(budget)

    def use(within: float) -> Fraction:
        quote = session.price("count-distinct", by="site", within=within, max_epsilon=1000)
        return session.ledger.budget_use(session.accounts, quote.worst_case) or Fraction(2)

    uses = [use(within) for within in (8, 12, 20, 30, 50, 80, 130, 300)]
    assert uses == sorted(uses, reverse=True)


def test_a_quote_names_the_noise_and_both_uses_of_the_budget() -> None:
    quote = asked((5, 1e-6)).price("count-distinct", by="site", within=40, max_epsilon=5)

    assert "Gaussian: " in str(quote) and "after Laplace noise" in str(quote)


# Bills and refinement


@pytest.mark.parametrize("budget", [(5, 1e-6), {"rho": 1}, {"mu": 2}], ids=str)
def test_asking_again_is_free_and_more_accuracy_pays_the_difference(budget) -> None:
    session = asked(budget)
    first = session.count_distinct(by="site", within=40, max_epsilon=50, noise="gaussian")
    again = session.count_distinct(by="site", within=60, max_epsilon=50, noise="gaussian")
    finer = session.count_distinct(by="site", within=25, max_epsilon=50, noise="gaussian")
    alone = asked(budget).count_distinct(by="site", within=25, max_epsilon=50, noise="gaussian")

    amount = [next(iter(each.receipt.bill.amounts().values())) for each in (first, again, finer, alone)]
    assert amount[1] == 0 < amount[2]
    assert amount[3] <= amount[0] + amount[2] <= amount[3] * Fraction(11, 10)
    assert all(row.high - row.low <= 50 for row in finer.value.rows)
    assert finer.receipt.paid_before == first.receipt.bill
    kinds = {entry.receipt.bill for entry in session.history() if entry.receipt is not None}
    assert finer.receipt.bill in kinds


def test_an_account_is_charged_what_the_receipts_say() -> None:
    session = asked({"rho": 1})
    bills = [session.count_distinct(by="site", within=w, max_epsilon=50).receipt.bill for w in (60, 40, 25)]

    assert session.spent() == bills[0] + bills[1] + bills[2]


def test_a_gaussian_release_is_continued_by_the_next_session(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("EXPOST_LEDGER_KEY", new_key())
    path = tmp_path / "visits.parquet"
    pa.parquet.write_table(visits(), path)
    limits = {"unit": "who", "max_rows_per_unit": 40, "max_groups_per_unit": GROUPS}
    dataset = Dataset(path, name="visits", categories={"site": list(range(GROUPS))}, **limits)
    ledger = f"sqlite:///{tmp_path / 'ledger.db'}"
    with Session(dataset, {"rho": 1}, ledger=ledger) as session:
        first = session.count_distinct(by="site", within=40, max_epsilon=50)
    with Session(dataset, ledger=ledger) as session:
        again = session.count_distinct(by="site", within=40, max_epsilon=50)
        finer = session.count_distinct(by="site", within=30, max_epsilon=50)

    assert again.value == first.value and not any(again.receipt.bill.amounts().values())
    assert finer.receipt.paid_before == first.receipt.bill


def test_all_groups_are_within_the_error_as_often_as_promised() -> None:
    dataset = described()
    exact = np.zeros(GROUPS)
    for site, _ in set(zip(*visits().select(["site", "who"]).to_pydict().values(), strict=True)):
        exact[site] += 1
    missed, runs = 0, 300
    plan = CountDistinct(by="site", within=20, noise="gaussian").plan(dataset)
    sealed = plan.measure(dataset)
    for seed in range(runs):
        values = np.array([row.value for row in plan.climb(sealed, SeededBits(seed)).value.rows])
        missed += bool(np.abs(values - exact).max() > 20)

    # 5 % is allowed; the price is exact, so about that many miss. Both ends are five deviations away.
    assert 0.0 < missed / runs < 0.05 + 5 * math.sqrt(0.05 * 0.95 / runs)


def test_sums_are_rounded_to_their_grid_and_keep_their_error() -> None:
    session = asked({"rho": 50})
    release = session.sum("pay", by="site", within=20_000, max_epsilon=50, noise="gaussian")

    assert release.receipt.method == "discrete Gaussian"
    assert max(row.high - row.low for row in release.value.rows) <= 40_000


# Bad input


@pytest.mark.parametrize(
    "build",
    [
        lambda: Count(within="5%", max_epsilon=1, noise="gaussian"),
        lambda: Count(epsilon=1, noise="gaussian"),
        lambda: Sum("pay", within=5, bounds="private", max_epsilon=1, noise="gaussian"),
        lambda: Count(within=5, max_epsilon=1, by=PrivateKeys("site", epsilon=1, delta=1e-6), noise="gaussian"),
    ],
)
def test_gaussian_noise_needs_a_price_that_is_known_before_the_run(build) -> None:
    with pytest.raises(InvalidRequest, match="Gaussian noise needs an absolute error"):
        build()


def test_an_unknown_noise_lists_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="auto, laplace, gaussian"):
        Count(within=5, noise="cauchy")


def test_a_cap_is_kept_with_gaussian_noise() -> None:
    with pytest.raises(BudgetExceeded, match="uses more of the budget"):
        asked((5, 1e-6)).count_distinct(by="site", within=20, max_epsilon=0.5, noise="gaussian")
    with pytest.raises(BudgetExceeded):
        CountDistinct(by="site", within=20, max_epsilon=0.1, noise="gaussian").plan(described())


def test_counts_by_private_keys_stay_in_epsilon() -> None:
    query = CountByPrivateKeys("site", within=200, max_epsilon=4, delta=1e-7)

    assert asked((5, 1e-6)).ask(query).receipt.bill.definition in ("pure", "approx")
