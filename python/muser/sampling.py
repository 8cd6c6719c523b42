"""Choosing the next id from a row of logits: a seed gives the same ids on every machine.

The arithmetic is part of the contract (docs/numerics.md, sampling) and runs in the core.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .config import refusal


@dataclass(frozen=True)
class Sampling:
    """How an id is drawn. The default is greedy; `MODEL_CARD` is what the model's card recommends.

    ConfigError (facts `field`, `value`, `allowed`) for a value out of range.
    """

    temperature: float = 0.0
    """Logits are divided by it; 0 takes the largest one (the lowest id on a tie)."""
    top_k: int = 0
    """Only the k largest logits are candidates; 0: all."""
    top_p: float = 1.0
    """Of those, the fewest from the top whose probabilities reach this sum."""
    seed: int = 0
    """Of the counter-based generator; the position is the counter, so nothing is carried along."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise refusal("temperature", self.temperature, "a finite number, 0 or more")
        if not 0 <= self.top_k < 1 << 32:
            raise refusal("top_k", self.top_k, "an integer, 0 to 2^32 - 1")
        if not 0 < self.top_p <= 1:
            raise refusal("top_p", self.top_p, "a number above 0, at most 1")
        if not 0 <= self.seed < 1 << 64:
            raise refusal("seed", self.seed, "an integer, 0 to 2^64 - 1")

    def choose(self, row: NDArray[Any], position: int) -> int:
        """The id drawn from a float32[vocab] row of logits; `position` is the one that the id will
        take. Raises ConfigError (`row` is no such row), NonFiniteError."""
        from . import _core

        if row.dtype != np.float32 or row.ndim != 1 or not row.size:
            raise refusal("row", f"{row.dtype}{list(row.shape)}", "float32[vocab]")
        return _core.sample(row, self.temperature, self.top_k, self.top_p, self.seed, position)


GREEDY = Sampling()
MODEL_CARD = Sampling(temperature=1.0, top_k=64, top_p=0.95)
"""The model card's recommendation, seed 0."""


def logprobs(row: NDArray[np.float32]) -> NDArray[np.float64]:
    """Natural logarithms of the softmax of a float32[vocab] row, in float64: what the model says,
    before any temperature or limit."""
    values = row.astype(np.float64)
    values -= values.max()
    values -= np.log(np.exp(values).sum())
    return values


def top(row: NDArray[np.float32], count: int) -> list[tuple[int, float]]:
    """The `count` most likely ids with their logprobs, most likely first, lowest id on a tie."""
    values = logprobs(row)
    # By logit, not by logprob: two logits may round to one logprob.
    order = np.argsort(-row, kind="stable")[:count]
    return [(int(token), float(values[token])) for token in order]
