import numpy as np
import pytest
from scipy import stats

from expost.core import InvalidRequest
from expost.holdout import chance_of_overfitting, max_information_of_privacy, max_information_of_transcripts


def noisy_count_log_ratios(rows, epsilon, chance=0.5):
    """All pairs (count, output) of a private count of random bits: log P(output | count) / P(output), and their law."""
    counts, outputs = np.arange(rows + 1), np.arange(-60, rows + 61)
    prior = stats.binom.pmf(counts, rows, chance)
    decay = np.exp(-epsilon)
    law = (1 - decay) / (1 + decay) * decay ** np.abs(outputs[None] - counts[:, None])
    return np.log(law) - np.log(prior @ law), prior[:, None] * law


@pytest.mark.parametrize(("rows", "epsilon"), [(20, 0.5), (100, 0.1), (100, 0.5)])
@pytest.mark.parametrize("failure", [0.1, 0.01, 1e-4])
def test_the_bound_holds_exactly_for_a_private_count(rows, epsilon, failure):
    ratios, joint = noisy_count_log_ratios(rows, epsilon)
    nats = max_information_of_privacy(epsilon, rows, failure_probability=failure) * np.log(2)

    assert joint[ratios > nats].sum() <= failure
    assert ratios[joint > 0].max() <= epsilon * rows


def test_the_check_has_power():
    """A fifth of the bound would be exceeded: the exact law is not far below it."""
    ratios, joint = noisy_count_log_ratios(100, 0.5)
    nats = max_information_of_privacy(0.5, 100, failure_probability=0.01) * np.log(2)

    assert joint[ratios > nats / 5].sum() > 0.01


def test_independent_rows_never_cost_more_than_the_worst_case():
    for epsilon in (1e-4, 0.1, 20.0):
        worst = max_information_of_privacy(epsilon, 100)

        assert max_information_of_privacy(epsilon, 100, failure_probability=0.1) <= worst


def test_the_corollary_of_the_notes_follows():
    """LeeNotes, Theorem 2.3 with 3 sqrt(beta): epsilon^2 n <= ln(1/beta)/2, half of the square root for each part."""
    for beta in (0.5, 0.01, 1e-6, 1e-12):
        rows = 10_000
        epsilon = np.sqrt(np.log(1 / beta) / (2 * rows))
        bits = max_information_of_privacy(epsilon, rows, failure_probability=np.sqrt(beta))

        assert chance_of_overfitting(bits, beta, failure_probability=np.sqrt(beta)) <= 3 * np.sqrt(beta)


def test_few_outputs_cost_their_number():
    assert chance_of_overfitting(max_information_of_transcripts(np.log(8)), 0.01) == pytest.approx(0.08)
    assert chance_of_overfitting(1e6, 0.5) == 1.0
    assert chance_of_overfitting(1e6, 0.0) == 0.0


def test_nonsense_is_refused():
    for call in (
        lambda: max_information_of_privacy(-1, 10),
        lambda: max_information_of_privacy(1, 0),
        lambda: max_information_of_privacy(1, 10, failure_probability=1.0),
        lambda: max_information_of_transcripts(float("nan")),
    ):
        with pytest.raises(InvalidRequest):
            call()
