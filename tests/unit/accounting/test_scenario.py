"""An event tree becomes a plain sum, one for each way through its parallel parts."""

from fractions import Fraction

import pytest

from expost.accounting import (
    ExPostEvent,
    GaussianEvent,
    Mixture,
    Parallel,
    PoissonSampled,
    PureEvent,
    Repeat,
    SampledWithoutReplacement,
    Sequence,
)
from expost.accounting.scenario import Scenario, event_under, list_scenarios
from expost.core import Adjacency, InvalidRequest

A, B = PureEvent(1), GaussianEvent(2)


def test_counts_multiply_through_nesting() -> None:
    (found,) = list_scenarios(Repeat(Sequence([A, Repeat(B, 3), A]), 2))

    assert dict(found.leaves) == {A: 4, B: 6}


def test_parallel_parts_are_alternatives_at_every_repetition() -> None:
    found = list_scenarios(Repeat(Parallel([A, B]), 2))

    counts = [dict(one.leaves) for one in found]
    assert all(wanted in counts for wanted in ({A: 2}, {B: 2}, {A: 1, B: 1}))
    assert len(counts) == 3


def test_a_part_contained_in_another_is_dropped() -> None:
    (found,) = list_scenarios(Parallel([A, Sequence([A, B]), Sequence()]))

    assert dict(found.leaves) == {A: 1, B: 1}


def test_ex_post_losses_and_caps_add() -> None:
    assert list_scenarios(Repeat(ExPostEvent(0.1, 0.5), 3)) == (Scenario((), Fraction(3, 10), Fraction(3, 2)),)


def test_a_sample_of_a_sample_is_one_sample() -> None:
    nested = PoissonSampled(0.5, PoissonSampled(0.2, B))

    assert list_scenarios(nested) == list_scenarios(PoissonSampled(0.1, B))


def test_gaussian_steps_on_one_sample_are_one_gaussian_step() -> None:
    (found,) = list_scenarios(PoissonSampled(0.5, Repeat(GaussianEvent(2), 4)))

    assert found.leaves == ((PoissonSampled(0.5, GaussianEvent(1)), 1),)


def test_merged_noise_is_never_overstated() -> None:
    (found,) = list_scenarios(PoissonSampled(0.5, Repeat(GaussianEvent(1), 2)))
    leaf = found.leaves[0][0]

    assert isinstance(leaf, PoissonSampled)
    assert isinstance(leaf.event, GaussianEvent)
    assert leaf.event.mu_squared >= 2


def test_a_sample_of_everyone_is_no_sample() -> None:
    assert list_scenarios(PoissonSampled(1, A)) == list_scenarios(A)
    assert list_scenarios(PoissonSampled(1 - Fraction(1, 10**15), A)) == list_scenarios(A)


def test_a_sampled_ex_post_event_stays_ex_post() -> None:
    (found,) = list_scenarios(PoissonSampled(0.1, ExPostEvent(0.2, 1)))

    assert found.leaves == ()
    assert Fraction(2, 100) < found.loss < Fraction(3, 100) < found.cap < Fraction(2, 10)


def test_beside_other_steps_a_sampled_ex_post_event_counts_at_its_cap() -> None:
    (found,) = list_scenarios(PoissonSampled(0.1, Sequence([ExPostEvent(0.2, 1), A])))

    assert found.loss == 0
    assert found.leaves == ((PoissonSampled(0.1, Repeat(A, 2)), 1),)


def test_too_many_alternatives_are_refused() -> None:
    parts = Parallel([PureEvent(Fraction(n, 10)) for n in range(1, 9)])

    with pytest.raises(InvalidRequest, match="combinations of parallel parts"):
        list_scenarios(Repeat(parts, 50))


@pytest.mark.parametrize(
    ("event", "right"),
    [
        (SampledWithoutReplacement(1, 10, A), Adjacency.REPLACE_ONE),
        (Mixture([A, SampledWithoutReplacement(1, 10, A)], [0.5, 0.5]), Adjacency.REPLACE_ONE),
        (Sequence([Repeat(Parallel([A]), 2)]), Adjacency.ADD_REMOVE),
        (Parallel([A]), Adjacency.ADD_REMOVE),
    ],
)
def test_the_two_adjacencies_are_kept_apart(event: Sequence, right: Adjacency) -> None:
    assert event_under(event, right) is event
    wrong = Adjacency.REPLACE_ONE if right is Adjacency.ADD_REMOVE else Adjacency.ADD_REMOVE

    with pytest.raises(InvalidRequest, match="Expected"):
        event_under(event, wrong)


def test_fixed_parts_are_fine_under_replacement() -> None:
    event = Parallel([A, B], fixed_parts=True)

    assert event_under(event, Adjacency.REPLACE_ONE) is event


def test_a_poisson_sample_is_a_mixture_under_replacement_and_stays_itself_otherwise() -> None:
    event = Sequence([Repeat(PoissonSampled(0.1, A), 2)])

    assert event_under(event, Adjacency.ADD_REMOVE) is event
    mixed = Mixture([A, Sequence()], [0.1, 0.9])
    assert event_under(event, Adjacency.REPLACE_ONE) == Sequence([Repeat(mixed, 2)])
