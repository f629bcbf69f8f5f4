"""A holdout that may be reused: Thresholdout, leaderboards, and bounds for adaptive questions."""

from expost.holdout.generalization import (
    Bound,
    chance_of_overfitting,
    generalization_error,
    max_information_of_privacy,
    max_information_of_transcripts,
    sampling_error,
    transfer_error,
)
from expost.holdout.holdout_plan import HoldoutPlan, affordable_hits, plan_holdout, rows_needed, tolerance_reached
from expost.holdout.holdout_size import approximate_epsilon, rows_for_approximate, rows_for_concentrated, rows_for_pure
from expost.holdout.leaderboard import LadderBoard, Leaderboard, ParameterFreeBoard, PrivateBoard, Standing
from expost.holdout.reusable_holdout import HoldoutAnswer, HoldoutScorer, Origin, ReusableHoldout
from expost.holdout.thresholdout_mechanism import Thresholdout

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
