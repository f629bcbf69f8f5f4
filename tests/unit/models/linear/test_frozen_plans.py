"""A plan of a fit cannot be changed once it is made: its worst case was charged for what it was."""

import pytest

from expost.data.unit_ball import UnitBall
from expost.models.linear.linear_fit import Aim, Problem
from expost.models.linear.ridge_moments import CertifiedRidge
from expost.models.linear.ridge_objective import TiltedRidge


@pytest.mark.parametrize("kind", [TiltedRidge, CertifiedRidge])
@pytest.mark.parametrize("name", ["_problem", "_epsilon", "anything"])
def test_a_plan_refuses_every_change(kind: type, name: str) -> None:
    plan = kind(Problem(UnitBall(2), 1000, 0.1, Aim.of(epsilon=1.0, failure_probability=0.1, max_epsilon=2.0)))
    before = plan.worst_case

    with pytest.raises(AttributeError, match="frozen once it is made"):
        setattr(plan, name, None)

    assert plan.worst_case == before
