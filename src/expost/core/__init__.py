"""Frozen values with exact numbers, and errors. Standard library only."""

from expost.core.adjacency import Adjacency, Unit, Window
from expost.core.argument import explain_arguments
from expost.core.errors import (
    BudgetExceeded,
    EngineFailed,
    ExpostError,
    InvalidRequest,
    LedgerBusy,
    LedgerUnsound,
    MissingExtra,
    ReleaseOvertaken,
    SealBroken,
    TableChanged,
    TargetNotMet,
    WrongArguments,
)
from expost.core.estimate import Estimate
from expost.core.guarantee import (
    ApproxGuarantee,
    GaussianGuarantee,
    Guarantee,
    GuaranteeLike,
    PureGuarantee,
    RenyiGuarantee,
    ZeroConcentratedGuarantee,
    approx,
    as_guarantee,
    epsilon,
    gdp,
    zcdp,
)
from expost.core.hold_stages import HoldStages
from expost.core.loss import ApproxLoss, GaussianLoss, Loss, PureLoss, RenyiLoss, ZeroConcentratedLoss
from expost.core.meaning import explain_loss, posterior_bound
from expost.core.query import Plan, PlanContext, Query, RefiningPlan, StagedPlan, SteppedPlan
from expost.core.question_cap import QuestionCap
from expost.core.release import Outcome, Receipt, Release, Step
from expost.core.sealed import Norm, Sealed, Sensitivity, unseal
from expost.core.shared_documentation import share_parameters
from expost.core.single_owner import SingleOwner
from expost.core.target import Ladder, Measure, Target

__all__ = [
    "Adjacency",
    "ApproxGuarantee",
    "ApproxLoss",
    "BudgetExceeded",
    "EngineFailed",
    "Estimate",
    "ExpostError",
    "GaussianGuarantee",
    "GaussianLoss",
    "Guarantee",
    "GuaranteeLike",
    "HoldStages",
    "InvalidRequest",
    "Ladder",
    "LedgerBusy",
    "LedgerUnsound",
    "Loss",
    "Measure",
    "MissingExtra",
    "Norm",
    "Outcome",
    "Plan",
    "PlanContext",
    "QuestionCap",
    "RefiningPlan",
    "StagedPlan",
    "SteppedPlan",
    "PureGuarantee",
    "PureLoss",
    "Query",
    "Receipt",
    "Release",
    "ReleaseOvertaken",
    "RenyiGuarantee",
    "RenyiLoss",
    "SealBroken",
    "Sealed",
    "Sensitivity",
    "SingleOwner",
    "Step",
    "TableChanged",
    "Target",
    "TargetNotMet",
    "Unit",
    "Window",
    "WrongArguments",
    "ZeroConcentratedGuarantee",
    "ZeroConcentratedLoss",
    "approx",
    "as_guarantee",
    "epsilon",
    "explain_arguments",
    "share_parameters",
    "explain_loss",
    "gdp",
    "posterior_bound",
    "unseal",
    "zcdp",
]
