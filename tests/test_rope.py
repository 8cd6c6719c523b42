"""Inverse frequencies against exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muser.errors import ConfigError
from muser.rope import inverse_frequencies


def correctly_rounded(found: float, base: float, i: int, n: int) -> bool:
    """Is `found` the double nearest to base^(-2i/n)? Exact: v below w, both positive, exactly when
    v^n is below w^n, and (base^(-2i/n))^n is the rational base^(-2i)."""
    target = Fraction(base) ** (-2 * i)
    below = (Fraction(found) + Fraction(math.nextafter(found, 0.0))) / 2
    above = (Fraction(found) + Fraction(math.nextafter(found, math.inf))) / 2
    return below**n <= target <= above**n


@pytest.mark.parametrize("base", [500000.0, 10000.0, 1.0, 2.0, 1e6, float(np.float32(123.456))])
@pytest.mark.parametrize("n", [2, 16, 64, 128])
def test_each_is_correctly_rounded(base: float, n: int) -> None:
    inverse = inverse_frequencies(base, n)
    assert inverse.shape == (n // 2,)
    assert inverse.dtype == np.float64
    assert inverse[0] == 1.0
    assert all(correctly_rounded(float(inverse[i]), base, i, n) for i in range(n // 2))


@given(
    st.floats(1.0, 2.0**40, width=32),
    st.integers(1, 24).map(lambda half: 2 * half),
)
def test_any_base_is_correctly_rounded(base: float, n: int) -> None:
    inverse = inverse_frequencies(base, n)
    assert all(correctly_rounded(float(inverse[i]), base, i, n) for i in range(n // 2))


def test_the_check_itself_sees_a_neighbour() -> None:
    value = float(inverse_frequencies(500000.0, 128)[1])
    assert not correctly_rounded(math.nextafter(value, 1.0), 500000.0, 1, 128)
    assert not correctly_rounded(math.nextafter(value, 0.0), 500000.0, 1, 128)


def test_the_context_of_the_caller_does_not_matter() -> None:
    import decimal

    expected = inverse_frequencies(500000.0, 64)
    with decimal.localcontext() as context:
        context.prec = 3
        context.rounding = decimal.ROUND_UP
        assert np.array_equal(inverse_frequencies(500000.0, 64), expected)


@pytest.mark.parametrize(
    ("base", "n"), [(0.5, 64), (math.inf, 64), (math.nan, 64), (2.0, 0), (2.0, 7)]
)
def test_bad_arguments(base: float, n: int) -> None:
    with pytest.raises(ConfigError):
        inverse_frequencies(base, n)
