"""Exactness gates: what compares two routes, and the verdict that follows.

A gate looks at whole rows. Argmax, top-k and cosine are reported too, because people ask, but no
verdict rests on them: they cannot see a dropped softcap (tests/README.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .engine import Engine
from .errors import ConfigError
from .receipt import row_sha256

__all__ = [
    "CONTRACT_LOGPROB",
    "KvDifference",
    "RowDiff",
    "StageDifference",
    "entropy",
    "kv_first_difference",
    "log_softmax",
    "row_diff",
    "row_sha256",
    "rows_differing",
    "stage_first_difference",
    "verdict",
]

Row = NDArray[np.float32]
Verdict = Literal["reference", "exact", "rejected", "within contract"]

CONTRACT_LOGPROB = 1e-4
"""Largest normalised logprob error that an inexact schedule may show (docs/graph.md)."""
TOP_K = 40


def log_softmax(row: NDArray[Any]) -> NDArray[np.float64]:
    """Normalised log probabilities in float64, over the last axis."""
    x = np.asarray(row, dtype=np.float64)
    x = x - x.max(-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))


def entropy(row: NDArray[Any]) -> float:
    """Entropy of the distribution of a row, in nats."""
    logprobs = log_softmax(row)
    return float(-(np.exp(logprobs) * logprobs).sum())


def _top(row: NDArray[Any], k: int) -> set[int]:
    return set(np.argsort(-row, kind="stable")[:k].tolist())


@dataclass(frozen=True)
class RowDiff:
    """How one float32[vocab] row differs from another of the same position."""

    equal: bool
    """Every bit is the same."""
    differing: int
    """Entries whose bits differ."""
    max_abs: float
    """Largest logit difference."""
    mean_abs: float
    logprob_max: float
    """Largest difference of normalised log probabilities, in float64 (against 1e-4)."""
    argmax: tuple[int, int]
    """Greedy id of either row: largest logit, lowest id on a tie."""
    top_k_overlap: float
    """Share of the TOP_K largest entries that both rows have."""
    entropy: tuple[float, float]
    """Nats."""
    at_cap: tuple[int, int]
    """Entries at or above 99.9 % of the softcap; a scale error shows there."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def row_diff(row: Row, reference: Row, softcap: float) -> RowDiff:
    """Compares two rows of logits. ConfigError where their shapes differ."""
    if row.shape != reference.shape or row.ndim != 1:
        raise ConfigError(
            f"rows of shapes {row.shape} and {reference.shape} cannot be compared",
            {"found": str(row.shape), "expected": str(reference.shape)},
        )
    a, b = (np.ascontiguousarray(x, dtype=np.float32) for x in (row, reference))
    bits = a.view(np.uint32) != b.view(np.uint32)
    error = np.abs(a.astype(np.float64) - b.astype(np.float64))
    k = min(TOP_K, a.size)
    cap = np.float32(0.999 * softcap)
    return RowDiff(
        equal=not bits.any(),
        differing=int(bits.sum()),
        max_abs=float(error.max()),
        mean_abs=float(error.mean()),
        logprob_max=float(np.abs(log_softmax(a) - log_softmax(b)).max()),
        argmax=(int(a.argmax()), int(b.argmax())),
        top_k_overlap=len(_top(a, k) & _top(b, k)) / k,
        entropy=(entropy(a), entropy(b)),
        at_cap=(int((np.abs(a) >= cap).sum()), int((np.abs(b) >= cap).sum())),
    )


def verdict(exact: bool, sha_changed: bool, logprob_max: float) -> Verdict:
    """The rule. A schedule declared exact whose hash changes is rejected, whatever its error;
    one declared inexact is within contract up to CONTRACT_LOGPROB, and rejected beyond it."""
    if not sha_changed:
        return "exact"
    if exact or not logprob_max <= CONTRACT_LOGPROB:
        return "rejected"
    return "within contract"


@dataclass(frozen=True)
class KvDifference:
    """The first KV element, in order of layer, plane and position, whose bits differ."""

    layer: int
    plane: str
    position: int
    element: int
    """Within the row: kv_head * head_dim + dim."""
    bits: tuple[int, int]
    """Both bit patterns, as unsigned integers of the plane's width."""
    values: tuple[float, float]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def kv_first_difference(a: Engine, b: Engine) -> KvDifference | None:
    """Compares every row that both engines hold. ConfigError for engines of different positions,
    shapes or KV types."""
    for what, left, right in (
        ("position", a.position, b.position),
        ("layers", a.geometry["layers"], b.geometry["layers"]),
        ("kv_dtype", a.config.kv_dtype, b.config.kv_dtype),
    ):
        if left != right:
            raise ConfigError(
                f"engines of different {what} ({left}, {right}) have no common KV rows",
                {"field": what, "found": str(left), "expected": str(right)},
            )
    position = a.position
    for layer in range(a.geometry["layers"]):
        for plane in ("k", "v"):
            rows, others = a.kv(layer, plane), b.kv(layer, plane)
            word = np.uint16 if rows.dtype == np.float16 else np.uint32
            left, right = rows.view(word), others.view(word)
            if np.array_equal(left, right):
                continue
            index = int(np.flatnonzero(left.ravel() != right.ravel())[0])
            row, element = divmod(index, rows[0].size)
            return KvDifference(
                layer=layer,
                plane=plane,
                position=position - len(rows) + row,
                element=element,
                bits=(int(left.ravel()[index]), int(right.ravel()[index])),
                values=(float(rows.ravel()[index]), float(others.ravel()[index])),
            )
    return None


@dataclass(frozen=True)
class StageDifference:
    """The first closure, in the order of the graph, after which two routes differ."""

    closure: str
    output: str
    """Its name as captured: `blk.3.qkvg.v` for one of several results."""
    differing: int
    elements: int
    max_abs: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _stage_outputs(closures: Sequence[str]) -> list[str]:
    unnamed = {"swa_stage", "kv_store"}  # they fill planes; kv_first_difference looks there
    return [label for label in closures if label.rsplit(".", 1)[-1] not in unnamed]


def stage_first_difference(a: Engine, b: Engine, token: int) -> StageDifference | None:
    """Feeds `token` to both engines, capturing every closure that both schedules have, and finds
    the first output that differs. Both engines advance by one token."""
    labels = _stage_outputs(a.plan.closures)
    common = set(_stage_outputs(b.plan.closures))
    wanted = [label for label in labels if label in common]
    stages, others = (engine.decode_token(token, capture=wanted)[1] for engine in (a, b))
    for label in wanted:
        for output in sorted(stages):
            if output != label and not output.startswith(label + "."):
                continue
            if output not in others or stages[output].shape != others[output].shape:
                continue
            left, right = (np.ascontiguousarray(s[output]) for s in (stages, others))
            bits = left.view(np.uint32) != right.view(np.uint32)
            if bits.any():
                return StageDifference(
                    closure=label,
                    output=output,
                    differing=int(bits.sum()),
                    elements=left.size,
                    max_abs=float(np.abs(left.astype(np.float64) - right).max()),
                )
    return None


def rows_differing(rows: Iterable[Row], reference: Iterable[Row]) -> list[int]:
    """Indices of the rows whose bits differ."""
    pairs = enumerate(zip(rows, reference, strict=True))
    return [i for i, (row, other) in pairs if row.tobytes() != other.tobytes()]
