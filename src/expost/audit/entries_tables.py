"""Attacks on models of mixed tables: a canary whose vector is as long as its sum allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.audit.audit_registry import AuditEntry
from expost.audit.fit_views import tilt_pair
from expost.audit.pair_attack import Pair
from expost.audit.planted_fault import GAUSSIAN_STREAM, PATHS, TILTS
from expost.audit.replay_views import Ask, replay_pair, stream_pair
from expost.core import Ladder, Measure, PureGuarantee, Target
from expost.data import Dataset
from expost.models.descent.score_head import Logistic
from expost.models.tabular.coefficient_estimates import list_contrasts
from expost.models.tabular.column_encoding import CategoryColumn, FlagColumn, NumberColumn
from expost.models.tabular.column_selection import ColumnSelection
from expost.models.tabular.encoded_shape import EncodedShape
from expost.models.tabular.grid_table import GridTable
from expost.models.tabular.laplace_sum import LaplaceSum
from expost.models.tabular.laplace_test import LaplaceTest
from expost.models.tabular.lattice_sum import LatticeSum
from expost.models.tabular.private_levels import LevelSearch, LevelsFirst
from expost.models.tabular.rank_tree import AucSum, RankTree, center_of
from expost.models.tabular.rung_schedule import plan_epsilon
from expost.models.tabular.score_sum import ScoreSum
from expost.models.tabular.table_encoder import TableEncoder
from expost.models.tabular.table_model import TableModel
from expost.models.tabular.table_moments import TableMoments
from expost.models.tabular.table_profile import TableProfile
from expost.models.tabular.table_report import FinishedModel, TableReport
from expost.models.tabular.tabular_rows import RowChunk
from expost.models.tabular.tilted_table import EncodedRows, TiltedTable
from expost.noise.bits import BitSource

__all__ = ["entries"]

_DELTA = Fraction(1, 100)  # large, so that few runs can contradict it
_PLAIN = np.array([[0.1, 0.0], [0.0, -0.1]])
_PACKAGE = "expost.models.tabular."
_FEW = 400  # of what reads counts in Python


def entries() -> Iterable[AuditEntry]:
    """List the sum through which profiles, lines and scores are released, at the price of a rung.

    The steps of a training are attacked with those of ``NewtonLearner``, which sums gradients by the same class.
    """
    sums = ("score_sum.ScoreSum", "prediction_line.PredictionLine", "rung_schedule.RungSchedule")
    also = tuple(_PACKAGE + name for name in sums)
    pure = ("pure_score.PureScoreSum", "pure_score.TableSummary", "pure_schedule.PureSchedule")
    return (
        AuditEntry(
            _PACKAGE + "lattice_sum.LatticeSum",
            _sum_pairs,
            # A search at a given epsilon runs whole trainings one after the other.
            also=(*also, _PACKAGE + "table_training.TableTraining", _PACKAGE + "table_search.SharedTraining"),
            noise=GAUSSIAN_STREAM,
        ),
        AuditEntry(_PACKAGE + "rank_tree.RankTree", _rank_pairs, noise=GAUSSIAN_STREAM),
        AuditEntry(_PACKAGE + "rank_tree.AucSum", _area_pairs, noise=GAUSSIAN_STREAM),
        AuditEntry(_PACKAGE + "table_report.TableReport", _report_pairs, noise=GAUSSIAN_STREAM),
        AuditEntry(
            _PACKAGE + "column_selection.ColumnSelection",
            _selection_pairs,
            also=(_PACKAGE + "column_selection.SelectFirst",),
            noise=(*GAUSSIAN_STREAM, *PATHS),
        ),
        AuditEntry(_PACKAGE + "private_levels.LevelsFirst", _level_pairs, noise=PATHS),
        AuditEntry(
            _PACKAGE + "laplace_test.LaplaceTest",
            _test_pairs,
            also=(_PACKAGE + "target_mean.TargetMean",),  # a reading of the target's mean is such a sum, too
            noise=PATHS,
        ),
        AuditEntry(
            _PACKAGE + "laplace_sum.LaplaceSum",
            _laplace_pairs,
            also=tuple(_PACKAGE + name for name in pure),
            noise=PATHS,
        ),
        AuditEntry(_PACKAGE + "table_moments.TableMoments", _moment_pairs, noise=PATHS),
        AuditEntry(
            _PACKAGE + "tilted_table.TiltedTable",
            _tilted_pairs,
            also=(_PACKAGE + "pure_training.PureTraining",),
            noise=TILTS,
        ),
    )


def _sum_pairs() -> Sequence[Pair]:
    """Add a row, or a person with several rows, to two others."""
    whole = np.array([[0.6, 0.8]])
    return _sum_pair("a row is added", whole, np.ones(1)), _sum_pair(
        "a person with three rows is added", np.tile(whole, (3, 1)), np.full(3, np.float32((2**24 // 3) / 2**24))
    )


def _sum_pair(name: str, canary: NDArray[np.float64], weights: NDArray[np.float64]) -> Pair:
    schedule = plan_epsilon(Fraction(1), _DELTA)
    lattice, noise = LatticeSum(2, 1.0, len(canary)), schedule.rungs[0].noise

    def released(with_canary: bool) -> Ask:
        total = lattice.start()
        lattice.add(total, _PLAIN, np.ones(len(_PLAIN)))
        if with_canary:
            lattice.add(total, canary, weights)
        return lambda bits: lattice.release(total, noise, bits)

    left, right = released(True), released(False)
    return stream_pair(name, schedule.prices.cap.promise(), left, right)


_SCORED = np.array([[-0.5, 0.0], [0.25, 1.0]])  # (score, class) of two rows
_CANARIES = {"a row is added": np.ones(1), "a person is added": np.full(3, (2**24 // 3) / 2**24)}


def _tree_pair(name: str, shares: NDArray[np.float64], tree: RankTree) -> Pair:
    """Add a row, or a person's rows, of the second class; each counts in one node of every level."""
    schedule = plan_epsilon(Fraction(1), _DELTA)

    def released(with_canary: bool) -> Ask:
        total = tree.start()
        tree.add(total, _SCORED, np.ones(len(_SCORED)))
        if with_canary:
            tree.add(total, np.tile([[3.0, 1.0]], (len(shares), 1)), shares)
        return lambda bits: tree.release(total, schedule.rungs[0].noise, bits)

    return stream_pair(name, schedule.prices.cap.promise(), released(True), released(False))


def _rank_pairs() -> Sequence[Pair]:
    return tuple(_tree_pair(name, shares, RankTree(len(shares))) for name, shares in _CANARIES.items())


def _area_pairs() -> Sequence[Pair]:
    """Attack the counts of a test of an area, and the area and the surplus that are read off them."""
    target = Target(Measure.AUC, Fraction(3, 4), Fraction(1, 10))
    profile = TableProfile(3.0, np.zeros(1), np.ones(1), 1.0, shares=(0.3, 0.7))
    tested = AucSum(target, RankTree(1, center_of(profile)))
    schedule = plan_epsilon(Fraction(1), _DELTA)
    noise = schedule.rungs[0].noise

    def read_area(with_canary: bool, bits: BitSource) -> tuple[float, float]:
        total = tested.lattice.start()
        rows = np.vstack([_SCORED, [[3.0, 1.0]]]) if with_canary else _SCORED
        tested.lattice.add(total, rows, np.ones(len(rows)))
        score = tested.read(tested.lattice.release(total, noise, bits), noise, profile)
        return score.values["auc"][0], score.surplus

    return (
        _tree_pair("a row is added to the counts of a test", np.ones(1), tested.lattice),
        Pair.repeated("the area that is read", schedule.prices.cap.promise(), read_area, True, False, most_runs=_FEW),
    )


def _report_pairs() -> Sequence[Pair]:
    """Attack a whole report of ranks, and the first step of one of coefficients."""
    encoder = TableEncoder((NumberColumn("x", -1, 1, missing=False),))
    profile = TableProfile(4.0, np.zeros(1), np.ones(1), 1.0, shares=(0.5, 0.5))
    model, schedule = TableModel(profile, np.array([[2.0, 0.0]])), plan_epsilon(Fraction(1), _DELTA)
    noise = schedule.rungs[0].noise

    def build_pair(name: str, report: TableReport) -> Pair:
        def released(*rows: tuple[float, float]) -> Ask:
            blocks = _rows([[x] for x, _ in rows], [label for _, label in rows])
            table = GridTable(lambda: blocks, profile, classes=2)
            finished = FinishedModel(model, lambda: table, Logistic(), 1, False, 1.0, 1.0)
            return lambda bits: report.release(finished, noise, bits)

        plain = ((-0.5, 0.0), (0.5, 1.0))
        return stream_pair(name, schedule.prices.cap.promise(), released(*plain, (1.0, 0.0)), released(*plain))

    return (
        build_pair("ranks, a row is added", TableReport(auc=True, calibrate=True)),
        build_pair("coefficients, a row is added", TableReport(contrasts=list_contrasts(encoder)[1])),
    )


def _selection_pairs() -> Sequence[Pair]:
    """Add a row at a corner, whose products with its target are all as large as they can be."""
    encoder = TableEncoder((NumberColumn("x", -1, 1, missing=False), CategoryColumn("k", ("a",))))
    schedule = plan_epsilon(Fraction(1), _DELTA)

    def build_pair(name: str, shares: NDArray[np.float64], *, classes: int | None, pure: bool) -> Pair:
        selection = ColumnSelection(
            encoder=encoder,
            picks=1,
            classes=classes,
            rows_per_unit=len(shares),
            noise=None if pure else schedule.rungs[0].noise,
            epsilon=Fraction(pure),
        )
        plain = RowChunk(np.array([[0.1, 0.0, 1.0]], np.float32), np.zeros(1), np.ones(1, np.float32))
        corner = np.tile(np.array([[1.0, 1.0, 0.0]], np.float32), (len(shares), 1))
        canary = RowChunk(corner, np.ones(len(shares)), shares.astype(np.float32))
        left, right = (
            lambda bits, rows=rows: selection.release_sums(lambda: rows, bits) for rows in ([plain, canary], [plain])
        )
        if pure:
            return replay_pair(name, PureGuarantee(Fraction(1)), left, right)
        return stream_pair(name, schedule.prices.cap.promise(), left, right)

    return (
        *(build_pair(name, shares, classes=None, pure=False) for name, shares in _CANARIES.items()),
        build_pair("a row of one of three classes is added", np.ones(1), classes=3, pure=False),
        build_pair("a row is added, without a delta", np.ones(1), classes=2, pure=True),
    )


def _level_pairs() -> Sequence[Pair]:
    """Add a row, or a person's rows, to a level that others have; the levels are attacked at their share of the bill."""
    epsilon, delta = Fraction(1), Fraction(1, 1000)

    def build_pair(name: str, **unit: Any) -> Pair:
        ids = [1, 2, 3, 3]

        def released(rows: int) -> Ask:
            # One level, so that the order of levels, which a fresh secret decides, is the same on both sides.
            table = pa.table({"city": ["Rome"] * rows, "id": ids[:rows]})
            dataset = Dataset(table, **unit)
            plan = LevelsFirst(searches=(LevelSearch.plan(dataset, "city", epsilon, delta),), train=dict, whole=None)
            return lambda bits: plan.searches[0].choose(*plan.measure(dataset)[0][0], bits)

        claim = PureGuarantee(epsilon)
        return replay_pair(name, claim, released(3 if not unit else 4), released(2))

    return build_pair("a row is added"), build_pair("a person is added", unit="id", max_rows_per_unit=2)


def _test_pairs() -> Sequence[Pair]:
    """Add a row that is predicted correctly, or a wrong one, to the sum of a test; the larger move is attacked."""
    sums = ScoreSum(Target(Measure.ACCURACY, Fraction(3, 4), Fraction(1, 10)), 2)

    def released(*right: float) -> Ask:
        total = sums.deciding.start()
        outcomes = np.array([[each, 0.1] for each in right])
        sums.deciding.add(total, sums.terms(outcomes)[:, None], np.ones(len(right)))
        return lambda bits: LaplaceTest(total, sums.deciding, sums.height, bits).look(Fraction(1))

    return (replay_pair("a wrong prediction is added", PureGuarantee(Fraction(1)), released(1, 1, 0), released(1, 1)),)


def _laplace_pairs() -> Sequence[Pair]:
    """Add a row, or a person with several rows, to two others."""
    canary = np.array([[0.7, -0.3]])

    def build_pair(name: str, shares: NDArray[np.float64]) -> Pair:
        lattice = LaplaceSum(2, 1.0, len(shares))

        def released(with_canary: bool) -> Ask:
            total = lattice.start()
            lattice.add(total, _PLAIN, np.ones(len(_PLAIN)))
            if with_canary:
                lattice.add(total, np.tile(canary, (len(shares), 1)), shares)
            return lambda bits: lattice.release(total, Fraction(1), bits)

        return replay_pair(name, PureGuarantee(Fraction(1)), released(True), released(False))

    return tuple(build_pair(name, shares) for name, shares in _CANARIES.items())


_NUMBER = EncodedShape.of(TableEncoder((NumberColumn("x", 0, 1, missing=False), CategoryColumn("k", ("a",)))))
_FLAG = EncodedShape.of(TableEncoder((FlagColumn("x"),)))


def _rows(features: list[list[float]], targets: list[float]) -> Sequence[RowChunk]:
    return [RowChunk(np.array(features, np.float32), np.array(targets), np.ones(len(targets), np.float32))]


def _moment_pairs() -> Sequence[Pair]:
    """Add a row whose products are all as large as they can be."""
    moments = TableMoments(_NUMBER)

    def released(*rows: tuple[list[float], float]) -> Ask:
        features, targets = [row[0] for row in rows], [row[1] for row in rows]
        total = moments.measure(lambda: _rows(features, targets))
        return lambda bits: moments.open_path(total, Ladder((Fraction(1),)), bits).at(0)

    plain = ([0.1, 0.0, 1.0], -0.2)
    left, right = released(plain, ([1.0, 1.0, 0.0], -1.0)), released(plain)
    return (replay_pair("a row at a corner is added", PureGuarantee(Fraction(1)), left, right),)


def _tilted_pairs() -> Sequence[Pair]:
    """Add a row of the largest gradient, for classes and for a number.

    A number far from its prediction adds a gradient and no curvature, so it is attacked at the tilt's share of the bill.
    """

    def build_pair(name: str, *, classes: bool) -> Pair:
        profile = TableProfile(1.0, np.zeros(1), np.ones(1), 1.0, target_spread=1 / 64)
        risk = TiltedTable(_FLAG, classes).build_risk(Fraction(1), profile, 4)
        plain, canary = ([[-1.0]], [0.0]), ([[-1.0], [1.0]], [0.0, 1.0])

        def rows_of(features: list[list[float]], targets: list[float]) -> EncodedRows:
            read = _rows(features, targets)
            return EncodedRows(lambda: read, _FLAG, profile, units=4, classes=classes)

        claim = Fraction(1) if classes else sum(risk.prices.split(Fraction(1)), Fraction(0))
        return tilt_pair(name, risk, Fraction(1), (rows_of(*canary), rows_of(*plain)), claim=PureGuarantee(claim))

    return build_pair("a label is added", classes=True), build_pair("a number is added", classes=False)
