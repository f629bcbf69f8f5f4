"""Hypothesis tests whose p-values account for the noise."""

from expost.stats.hypothesis.adaptive_tester import AdaptiveTester, SeriesFinding
from expost.stats.hypothesis.anova import AnovaTest, anova_power, anova_test
from expost.stats.hypothesis.binomial import BinomialTest, binomial_power, binomial_test
from expost.stats.hypothesis.goodness_of_fit import GoodnessOfFitTest, fit_power, fit_test
from expost.stats.hypothesis.hypothesis_plan import HypothesisVerdict
from expost.stats.hypothesis.hypothesis_price import smallest_epsilon, smallest_rows
from expost.stats.hypothesis.independence import IndependenceTest, independence_power, independence_test
from expost.stats.hypothesis.linear_correlation import (
    LinearCorrelationTest,
    linear_correlation_power,
    linear_correlation_test,
)
from expost.stats.hypothesis.mean_difference import MeanDifferenceTest, mean_difference_power, mean_difference_test
from expost.stats.hypothesis.rank_correlation import CorrelationTest, correlation_power, correlation_test
from expost.stats.hypothesis.split import SplitTest, split_power, split_test

__all__ = [
    "AdaptiveTester",
    "AnovaTest",
    "BinomialTest",
    "CorrelationTest",
    "GoodnessOfFitTest",
    "HypothesisVerdict",
    "IndependenceTest",
    "LinearCorrelationTest",
    "MeanDifferenceTest",
    "SeriesFinding",
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
    "linear_correlation_power",
    "linear_correlation_test",
    "mean_difference_power",
    "mean_difference_test",
    "smallest_epsilon",
    "smallest_rows",
    "split_power",
    "split_test",
]
