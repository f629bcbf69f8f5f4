"""A holdout that may be reused: Thresholdout, leaderboards, and what adaptive answers still say about the population."""

from expost.holdout.answer import HoldoutAnswer, Origin
from expost.holdout.generalization import Bound, generalization_error, sampling_error, transfer_error
from expost.holdout.leaderboard import LadderBoard, Leaderboard, ParameterFreeBoard, Standing
from expost.holdout.max_information import (
    chance_of_overfitting,
    max_information_of_privacy,
    max_information_of_transcripts,
)
from expost.holdout.plan import HoldoutPlan, affordable_hits, plan_holdout, rows_needed, tolerance_reached
from expost.holdout.private_board import PrivateBoard
from expost.holdout.published import approximate_epsilon, rows_for_approximate, rows_for_concentrated, rows_for_pure
from expost.holdout.reusable import ReusableHoldout
from expost.holdout.scorer import HoldoutScorer
from expost.holdout.thresholdout import Thresholdout

__all__ = [
    "Bound",
    "HoldoutAnswer",
    "HoldoutPlan",
    "HoldoutScorer",
    "LadderBoard",
    "Leaderboard",
    "Origin",
    "ParameterFreeBoard",
    "PrivateBoard",
    "ReusableHoldout",
    "Standing",
    "Thresholdout",
    "affordable_hits",
    "approximate_epsilon",
    "chance_of_overfitting",
    "generalization_error",
    "max_information_of_privacy",
    "max_information_of_transcripts",
    "plan_holdout",
    "rows_for_approximate",
    "rows_for_concentrated",
    "rows_for_pure",
    "rows_needed",
    "sampling_error",
    "tolerance_reached",
    "transfer_error",
]
