"""Accounting: events, currencies, composition, filters and odometers."""

from expost.accounting.accounts import Account, account, account_report, event_of
from expost.accounting.amplification import amplified_epsilon
from expost.accounting.boundaries import LinearBoundary, MixtureBoundary
from expost.accounting.calibration import noise_multiplier_for, sampling_rate_for, steps_for
from expost.accounting.composition import advanced_composition, basic_composition, optimal_composition
from expost.accounting.events import (
    ApproxEvent,
    ConcentratedEvent,
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    Event,
    ExponentialEvent,
    ExPostEvent,
    GaussianEvent,
    LaplaceEvent,
    Parallel,
    PoissonSampled,
    PureEvent,
    RenyiEvent,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
)
from expost.accounting.filters import (
    ApproxFilter,
    BasicFilter,
    ConcentratedFilter,
    Filter,
    GaussianFilter,
    PureFilter,
    RenyiFilter,
    Reservation,
    filter_for,
)
from expost.accounting.gaussian import pure_to_gdp
from expost.accounting.odometers import (
    ConcentratedOdometer,
    GaussianOdometer,
    Odometer,
    PureOdometer,
    RenyiOdometer,
)
from expost.accounting.tradeoff import TradeoffCurve, plot_tradeoff
from expost.accounting.zcdp import pure_to_zcdp

__all__ = [
    "Account",
    "ApproxEvent",
    "ApproxFilter",
    "BasicFilter",
    "ConcentratedEvent",
    "ConcentratedFilter",
    "ConcentratedOdometer",
    "DiscreteGaussianEvent",
    "DiscreteLaplaceEvent",
    "Event",
    "ExPostEvent",
    "ExponentialEvent",
    "Filter",
    "GaussianEvent",
    "GaussianFilter",
    "GaussianOdometer",
    "LaplaceEvent",
    "LinearBoundary",
    "MixtureBoundary",
    "Odometer",
    "Parallel",
    "PoissonSampled",
    "PureEvent",
    "PureFilter",
    "PureOdometer",
    "RenyiEvent",
    "RenyiFilter",
    "RenyiOdometer",
    "Repeat",
    "Reservation",
    "SampledWithoutReplacement",
    "Sequence",
    "TradeoffCurve",
    "account",
    "account_report",
    "advanced_composition",
    "amplified_epsilon",
    "basic_composition",
    "event_of",
    "filter_for",
    "noise_multiplier_for",
    "optimal_composition",
    "plot_tradeoff",
    "pure_to_gdp",
    "pure_to_zcdp",
    "sampling_rate_for",
    "steps_for",
]
