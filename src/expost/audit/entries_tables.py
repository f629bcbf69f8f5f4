"""Attacks on models of mixed tables: a canary whose vector is as long as its sum allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from expost.audit.audit_registry import AuditEntry
from expost.audit.fit_views import tilt_pair
from expost.audit.pair_attack import Pair
from expost.audit.planted_fault import GAUSSIAN_STREAM, PATHS, TILTS
from expost.audit.replay_views import Ask, replay_pair, stream_pair
from expost.core import Ladder, PureGuarantee
from expost.models.tabular.column_encoding import CategoryColumn, FlagColumn, NumberColumn
from expost.models.tabular.encoded_shape import EncodedShape
from expost.models.tabular.laplace_sum import LaplaceSum
from expost.models.tabular.lattice_sum import LatticeSum
from expost.models.tabular.rung_schedule import plan_epsilon
from expost.models.tabular.table_encoder import TableEncoder
from expost.models.tabular.table_moments import TableMoments
from expost.models.tabular.table_profile import TableProfile
from expost.models.tabular.tabular_rows import RowChunk
from expost.models.tabular.tilted_table import EncodedRows, TiltedTable

__all__ = ["entries"]

_DELTA = Fraction(1, 100)  # large, so that few runs can contradict it
_PLAIN = np.array([[0.1, 0.0], [0.0, -0.1]])
_PACKAGE = "expost.models.tabular."
# Sums with the same noise next to the rungs of a training. Their sensitivities are tested, they have no attack of their own;
# the levels of LevelsFirst are those of the attacked private keys.
_GAUSSIAN_SUMS = (
    "private_levels.LevelsFirst",
    "rank_tree.AucSum",
    "rank_tree.RankTree",
    "table_report.TableReport",
)


def entries() -> Iterable[AuditEntry]:
    """List the sum through which profiles and scores are released, at the price of a rung.

    The steps of a training are attacked with those of ``NewtonLearner``, which sums gradients by the same class.
    """
    also = tuple(_PACKAGE + name for name in ("score_sum.ScoreSum", "rung_schedule.RungSchedule"))
    pure = ("pure_score.PureScoreSum", "pure_score.TableSummary", "pure_schedule.PureSchedule")
    return (
        AuditEntry(
            _PACKAGE + "lattice_sum.LatticeSum",
            _sum_pairs,
            also=(*also, _PACKAGE + "table_training.TableTraining", *(_PACKAGE + name for name in _GAUSSIAN_SUMS)),
            noise=GAUSSIAN_STREAM,
        ),
        AuditEntry(
            _PACKAGE + "laplace_sum.LaplaceSum",
            _laplace_pairs,
            # A test of one model is a one-entry sum on the same path.
            also=(*(_PACKAGE + name for name in pure), _PACKAGE + "score_confirmation.LaplaceTest"),
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


def _laplace_pairs() -> Sequence[Pair]:
    """Add a row, or a person with several rows, to two others."""
    canary = np.array([[0.7, -0.3]])
    weights: dict[str, NDArray[np.float64]] = {
        "a row is added": np.ones(1),
        "a person is added": np.full(3, (2**24 // 3) / 2**24),
    }

    def build_pair(name: str, shares: NDArray[np.float64]) -> Pair:
        lattice = LaplaceSum(2, 1.0, len(shares))

        def released(with_canary: bool) -> Ask:
            total = lattice.start()
            lattice.add(total, _PLAIN, np.ones(len(_PLAIN)))
            if with_canary:
                lattice.add(total, np.tile(canary, (len(shares), 1)), shares)
            return lambda bits: lattice.release(total, Fraction(1), bits)

        return replay_pair(name, PureGuarantee(Fraction(1)), released(True), released(False))

    return tuple(build_pair(name, shares) for name, shares in weights.items())


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
