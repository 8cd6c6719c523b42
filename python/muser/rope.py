"""Inverse frequencies of RoPE (docs/numerics.md §5), the one table that Python computes."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal

import numpy as np
from numpy.typing import NDArray

from .errors import ConfigError

# float64 has 16 digits. A wrong rounding needs a value within 1e-60 of a midpoint of two doubles,
# and no exact midpoint exists: base^(-2i/n) is dyadic only if it is a power of two, a double.
_DIGITS = 80


def inverse_frequencies(base: float, head_dim: int) -> NDArray[np.float64]:
    """base^(-2i/n) for i in [0, n/2), each correctly rounded: float64[head_dim / 2].

    `base` is the file's float32 value, `head_dim` is n, even. Radians per position.
    """
    if not (1 <= base < float("inf")):
        raise ConfigError(f"rope base is {base}; expected at least 1", {"value": float(base)})
    if head_dim < 2 or head_dim % 2:
        raise ConfigError(
            f"head_dim is {head_dim}; expected an even number", {"value": int(head_dim)}
        )
    context = Context(prec=_DIGITS, rounding=ROUND_HALF_EVEN)
    log_base = context.ln(Decimal(base))
    inverse = np.empty(head_dim // 2, np.float64)
    for i in range(head_dim // 2):
        exponent = context.divide(Decimal(-2 * i), Decimal(head_dim))
        # float(Decimal) parses the digits, which rounds correctly.
        inverse[i] = float(context.exp(context.multiply(log_base, exponent)))
    return inverse
