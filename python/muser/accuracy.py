"""How far logits are from a reference: the figures of README and of `muser demo`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.floating[Any]]


def log_softmax(rows: Rows) -> NDArray[np.float64]:
    """Normalised log probabilities of logits [..., vocab], in float64."""
    wide = rows.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return wide


@dataclass(frozen=True)
class Difference:
    """Rows against reference rows [n, vocab]: worst and mean over all rows and ids."""

    rows: int
    max_logprob: float
    """Largest difference of normalised log probabilities."""
    max_logit: float
    mean_logit: float
    """Mean absolute difference of logits."""
    equal_argmax: int
    """Rows whose largest logit (lowest id on a tie) is the same one."""

    def as_dict(self) -> dict[str, float | int]:
        return asdict(self)


def difference(rows: Rows, reference: Rows) -> Difference:
    """Compares logits [n, vocab] with a reference of the same shape; ValueError for another."""
    if rows.ndim != 2 or rows.shape != reference.shape:
        raise ValueError(f"rows are {rows.shape}, the reference is {reference.shape}")
    logits = np.abs(rows.astype(np.float64) - reference)
    return Difference(
        rows=rows.shape[0],
        max_logprob=float(np.abs(log_softmax(rows) - log_softmax(reference)).max()),
        max_logit=float(logits.max()),
        mean_logit=float(logits.mean()),
        equal_argmax=int((rows.argmax(axis=1) == reference.argmax(axis=1)).sum()),
    )
