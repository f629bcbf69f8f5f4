"""Accounting: events, currencies, composition, filters and odometers."""

from expost.accounting.amplification import (
    amplified_epsilon,
)
from expost.accounting.calibration import (
    noise_multiplier_for,
    sampling_rate_for,
    steps_for,
)
from expost.accounting.composition import (
    advanced_composition,
    basic_composition,
    optimal_composition,
)
from expost.accounting.concentrated import (
    pure_to_gdp,
    pure_to_zcdp,
)
from expost.accounting.event_price import (
    EventPrice,
)
from expost.accounting.filter import (
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
from expost.accounting.odometer import (
    ConcentratedOdometer,
    GaussianOdometer,
    LinearBoundary,
    MixtureBoundary,
    Odometer,
    PureOdometer,
    RenyiOdometer,
)
from expost.accounting.privacy_account import (
    PrivacyAccount,
    account,
    account_report,
    event_of,
)
from expost.accounting.privacy_event import (
    ApproxEvent,
    ConcentratedEvent,
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    ExponentialEvent,
    ExPostEvent,
    GaussianEvent,
    LaplaceEvent,
    Mixture,
    Parallel,
    PermuteAndFlipEvent,
    PoissonSampled,
    PrivacyEvent,
    PureEvent,
    RenyiEvent,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
)
from expost.accounting.tradeoff_curve import (
    TradeoffCurve,
    plot_tradeoff,
)

__all__ = [
    "ApproxEvent",
    "ApproxFilter",
    "BasicFilter",
    "ConcentratedEvent",
    "ConcentratedFilter",
    "ConcentratedOdometer",
    "DiscreteGaussianEvent",
    "DiscreteLaplaceEvent",
    "EventPrice",
    "ExPostEvent",
    "ExponentialEvent",
    "Filter",
    "GaussianEvent",
    "GaussianFilter",
    "GaussianOdometer",
    "LaplaceEvent",
    "LinearBoundary",
    "Mixture",
    "MixtureBoundary",
    "Odometer",
    "Parallel",
    "PermuteAndFlipEvent",
    "PoissonSampled",
    "PrivacyAccount",
    "PrivacyEvent",
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
