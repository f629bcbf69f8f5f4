import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tests.unit.noise.scripted import ScriptedBits, words

from expost.core import InvalidRequest
from expost.noise import BitSource, SeededBits, sample_geometric, sample_laplace
from expost.noise.parameter import Parameter

module = sys.modules["expost.noise.lattice_sampler"]

SCALES = [Fraction(1, 1000), Fraction(1, 3), Fraction(7, 2), Fraction(1000, 3), Fraction(2**14 - 1)]
WIDE = 3 * 2**18  # drawn as a head of scale 3 * 2^12 and six low bits


@pytest.mark.parametrize("scale", SCALES)
def test_the_float_filter_agrees_with_exact_arithmetic_on_every_word(scale: Fraction) -> None:
    values = sample_geometric(scale, 3000, bits=SeededBits(1))
    prefixes = SeededBits(1).words(3000).tolist()

    with mpmath.workprec(200):
        t = mpmath.mpf(scale.numerator) / scale.denominator
        exact = [int(mpmath.floor(-t * mpmath.log((prefix + mpmath.mpf(1) / 2) / 2**64))) for prefix in prefixes]
    assert values.tolist() == exact


@pytest.mark.parametrize("scale", [*SCALES, Fraction(10**9, 7), Fraction(2**45)])
def test_giving_up_on_floats_changes_nothing(scale: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = sample_geometric(scale, 2000, bits=SeededBits(2))
    monkeypatch.setattr(module, "_HEAD_ERROR", 0.4 / 2**module._HEAD_BITS)
    slow = sample_geometric(scale, 2000, bits=SeededBits(2))

    assert (quick == slow).all()


@pytest.mark.parametrize("g", [1, 2, 17])
def test_a_uniform_at_the_border_is_refined_until_the_floor_is_certain(g: int) -> None:
    with mpmath.workprec(300):
        border = mpmath.exp(-mpmath.mpf(g) / 5) * mpmath.mpf(2) ** 128
        first, second = divmod(int(mpmath.floor(border)), 2**64)

    beyond = sample_geometric(5, 1, bits=ScriptedBits(words(first), words(second - 5)))
    short = sample_geometric(5, 1, bits=ScriptedBits(words(first), words(second + 5)))

    assert (beyond[0], short[0]) == (g, g - 1)


def test_the_smallest_and_largest_words_are_understood() -> None:
    values = sample_geometric(1, 2, bits=ScriptedBits(words(0, 2**64 - 1), words(2**63), words(1)))

    assert values.tolist() == [int(-np.log(2.0**-65)), 0]


def test_high_and_low_parts_add_up_to_a_wide_value() -> None:
    head_word, low_word = 2**63, (0b101101 << 58) | 12345
    values = sample_geometric(WIDE, 1, bits=ScriptedBits(words(head_word), words(low_word)))

    assert values[0] == (int(3 * 2**12 * np.log(2)) << 6) + 0b101101


def test_low_bits_are_drawn_again_when_their_coin_fails() -> None:
    low_word = (63 << 58) | (2**58 - 1)  # the coin begins with ones: it fails unless L is 0
    bits = ScriptedBits(words(2**63), words(low_word), words(2**64 - 2**58 - 1), words(7 << 58))
    values = sample_geometric(WIDE, 1, bits=bits)

    assert values[0] & 63 == 7


def test_a_coin_near_its_probability_is_decided_exactly() -> None:
    with mpmath.workprec(200):
        border = int(mpmath.floor(mpmath.exp(-mpmath.mpf(63) / WIDE) * mpmath.mpf(2) ** 58))
    kept = sample_geometric(WIDE, 1, bits=ScriptedBits(words(2**63), words((63 << 58) | (border - 1))))
    redrawn = sample_geometric(
        WIDE, 1, bits=ScriptedBits(words(2**63), words((63 << 58) | (border + 1)), words(0), words(5 << 58))
    )

    assert kept[0] & 63 == 63
    assert redrawn[0] & 63 == 5


def test_values_beyond_62_bits_are_python_integers() -> None:
    values = sample_geometric(2**60, 2000, bits=SeededBits(3))

    assert values.dtype == object
    assert max(values) > 2**62
    assert sample_geometric(2**50, 2000, bits=SeededBits(3)).dtype == np.int64


def test_tiny_scales_give_zeros() -> None:
    assert not sample_geometric(Fraction(1, 10**18), 1000, bits=SeededBits(4)).any()


def test_noise_too_wide_for_its_low_bits_is_refused() -> None:
    widest = module.draw_geometric(Parameter.of_table([Fraction(2**75)], None, (4000,)), SeededBits(1))

    lowest = np.bincount([int(value) % 4 for value in widest], minlength=4)
    assert min(widest) >= 0 and lowest.min() > 850
    with pytest.raises(InvalidRequest, match="narrower than 2\\^76"):
        module.draw_geometric(Parameter.of_table([Fraction(2**76)], None, (1,)), SeededBits(1))


class _FewWords(BitSource):
    """Hands out given words and fails when asked for more."""

    private = False

    def __init__(self, *script: int) -> None:
        self._script = list(script)

    def _fill(self, out: memoryview) -> None:
        count = (len(out) - 16) // 8
        if count > len(self._script):
            raise EOFError
        out[: 8 * count] = words(*self._script[:count]).tobytes()
        del self._script[:count]


def _low_or_none(scale: Fraction, *script: int) -> int | None:
    """The low part drawn from these words alone, above a head of zero; None where they do not decide it."""
    head = 2**64 - 2**46  # -ln U is near 2^-18, of a scale of at most 2^14
    try:
        return int(module.draw_geometric(Parameter.of_table([scale], None, (1,)), _FewWords(head, *script))[0])
    except EOFError:
        return None


SHIFTS = [(Fraction(2**64), 51), (Fraction(2**65), 52), (Fraction(2**70), 57), (Fraction(2**76 - 2**23), 62)]


@pytest.mark.parametrize(("scale", "m"), SHIFTS)
def test_the_low_part_of_the_widest_noise_is_accepted_with_its_exact_probability(scale: Fraction, m: int) -> None:
    """All beginnings of a coin are tried: none is accepted that could still fail, none rejected that could succeed."""
    digits = 13
    with mpmath.workprec(200):
        for low in (0, 1, 2 ** (m - 1), 2**m - 1):
            succeed = mpmath.exp(-mpmath.mpf(low) * scale.denominator / scale.numerator)
            for begin in (0, 2**digits - 2, 2**digits - 1):
                shared = m <= module._MOST_SHARED_BITS
                free = (64 - m if shared else 64) - digits
                for rest in (0, 2**free - 1):  # the coin lies in [coin, coin + 1) / 2^known
                    coin, known = (begin << free) | rest, digits + free
                    script = ((low << known) | coin,) if shared else (low << (64 - m), coin)
                    drawn = _low_or_none(scale, *script)
                    if drawn is not None:
                        assert drawn == low
                        assert mpmath.mpf(coin + 1) / 2**known <= succeed
                    else:
                        assert mpmath.mpf(coin + 1) / 2**known >= succeed


@pytest.mark.parametrize(("scale", "m"), SHIFTS)
def test_a_coin_of_ones_never_keeps_a_low_part_unseen(scale: Fraction, m: int) -> None:
    assert _low_or_none(scale, 2**64 - 1) is None


@pytest.mark.parametrize("scale", [2.0**70, 1e30, 2**70, Fraction(2**61)])
@pytest.mark.parametrize("sampler", [sample_geometric, sample_laplace])
def test_a_scale_beyond_the_largest_is_refused_however_it_is_typed(sampler: object, scale: object) -> None:
    with pytest.raises(InvalidRequest, match="scale"):
        sampler(scale, 3)  # type: ignore[operator]
