"""How well the model predicts a text: mean negative log-likelihood, and its exponential."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .config import refusal
from .sampling import logprobs

if TYPE_CHECKING:
    from .engine import Engine

CHUNK = 128  # rows held at once; which number it is changes no bit


@dataclass(frozen=True)
class Perplexity:
    """Of one text."""

    tokens: int
    """Ids that were predicted."""
    windows: int
    """Pieces of the text, each predicted from its own beginning."""
    nll: float
    """Mean negative log-likelihood per predicted id, in nats."""

    @property
    def perplexity(self) -> float:
        """exp(nll). Capped logits keep it finite: nll is at most 2 softcap + log(vocab)."""
        return math.exp(self.nll)


def windows(ids: Sequence[int], size: int, bos: int | None) -> list[list[int]]:
    """A text's ids (without bos) cut into pieces of at most `size`, each begun with bos if that is
    given. The first id of a piece is never predicted, so a last piece of one id is left out."""
    head = [] if bos is None else [bos]
    step = size - len(head)
    pieces = [[*head, *ids[at : at + step]] for at in range(0, len(ids), step)]
    return [piece for piece in pieces if len(piece) > 1]


def perplexity(
    engine: Engine,
    ids: Sequence[int],
    *,
    bos: int | None = None,
    window: int | None = None,
    told: Callable[[int], None] = lambda done: None,
) -> Perplexity:
    """Predicts every id of a text from those before it in the same window.

    ids: the text's, without bos. window: positions of one piece, 2 to the engine's context (the
    default). told: hears how many ids have been predicted. The engine's sequence is lost.
    ConfigError for a window out of range and for a text with nothing to predict.
    """
    size = engine.context if window is None else window
    if not 2 <= size <= engine.context:
        raise refusal("window", size, f"2 to the context of {engine.context}")
    pieces = windows(ids, size, bos)
    if not pieces:
        raise refusal("ids", list(ids), "a text with something to predict")
    losses: list[float] = []
    for piece in pieces:
        engine.reset()
        # The last id of a piece is only predicted.
        for at in range(0, len(piece) - 1, CHUNK):
            fed = piece[at : min(at + CHUNK, len(piece) - 1)]
            rows = engine.prefill(fed, all_rows=True)
            for row, target in zip(rows, piece[at + 1 :], strict=False):
                losses.append(-float(logprobs(row)[target]))
            told(len(losses))
    return Perplexity(len(losses), len(pieces), math.fsum(losses) / len(losses))
