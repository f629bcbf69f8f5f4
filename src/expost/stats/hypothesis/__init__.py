"""Hypothesis tests whose p-values account for the noise."""

from expost.stats.hypothesis.adaptive_tester import AdaptiveTester, SeriesFinding
from expost.stats.hypothesis.anova import AnovaTest, anova_power, anova_test
from expost.stats.hypothesis.binomial import BinomialTest, binomial_power, binomial_test
from expost.stats.hypothesis.goodness_of_fit import GoodnessOfFitTest, fit_power, fit_test
from expost.stats.hypothesis.hypothesis_plan import HypothesisVerdict
from expost.stats.hypothesis.hypothesis_price import smallest_epsilon, smallest_rows
from expost.stats.hypothesis.independence import IndependenceTest, independence_power, independence_test
from expost.stats.hypothesis.kruskal_wallis import KruskalWallisTest, kruskal_wallis_power, kruskal_wallis_test
from expost.stats.hypothesis.linear_correlation import (
    LinearCorrelationTest,
    linear_correlation_power,
    linear_correlation_test,
)
from expost.stats.hypothesis.mann_whitney import MannWhitneyTest, mann_whitney_power, mann_whitney_test
from expost.stats.hypothesis.mean_difference import MeanDifferenceTest, mean_difference_power, mean_difference_test
from expost.stats.hypothesis.rank_correlation import CorrelationTest, correlation_power, correlation_test
from expost.stats.hypothesis.signed_rank import SignedRankTest, signed_rank_power, signed_rank_test
from expost.stats.hypothesis.split import SplitTest, split_power, split_test

__all__ = [
    "AdaptiveTester",
    "AnovaTest",
    "BinomialTest",
    "CorrelationTest",
    "GoodnessOfFitTest",
    "HypothesisVerdict",
    "IndependenceTest",
    "KruskalWallisTest",
    "LinearCorrelationTest",
    "MannWhitneyTest",
    "MeanDifferenceTest",
    "SeriesFinding",
    "SignedRankTest",
    "SplitTest",
    "anova_power",
    "anova_test",
    "binomial_power",
    "binomial_test",
    "correlation_power",
    "correlation_test",
    "fit_power",
    "fit_test",
    "independence_power",
    "independence_test",
    "kruskal_wallis_power",
    "kruskal_wallis_test",
    "linear_correlation_power",
    "linear_correlation_test",
    "mann_whitney_power",
    "mann_whitney_test",
    "mean_difference_power",
    "mean_difference_test",
    "signed_rank_power",
    "signed_rank_test",
    "smallest_epsilon",
    "smallest_rows",
    "split_power",
    "split_test",
]
