import pytest

from expost.core import InvalidRequest
from expost.stats.hypothesis.verdict import Verdict, alternative_of, two_sided


def test_a_verdict_rejects_at_and_below_its_p_value():
    verdict = Verdict(test="t", statistic=1.0, p_value=0.05)

    assert verdict.rejects(0.05)
    assert not verdict.rejects(0.049)
    with pytest.raises(InvalidRequest):
        verdict.rejects(0)


def test_tails_add_up():
    assert two_sided(0.3, "greater") + two_sided(0.3, "less") == 1
    assert two_sided(0.9, "two-sided") == pytest.approx(0.2)


def test_an_unknown_alternative_is_refused():
    with pytest.raises(InvalidRequest):
        alternative_of("unequal")
