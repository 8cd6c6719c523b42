"""How far logits are from float64: this engine's beside llama.cpp's, as README shows them.

    python -m tests.accuracy_table        # or scripts/accuracy, which sets everything up

Rows of other programs and float64 rows are in tests/data. Since the engine's bits are fixed, so
are the figures: a test compares README with this program's output.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray
from tests import golden_data

import muser
from muser.accuracy import Difference, difference

HEADER = (
    "| file | positions | program | KV | max logprob error | mean logit error | equal argmax |",
    "|---|---:|---|---|---:|---:|---:|",
)


@cache
def rows(name: str, kv_dtype: str) -> NDArray[np.float32]:
    """This engine's logits for a file of tests/data, float32[positions, vocab]."""
    config = muser.Config(kv_dtype=kv_dtype)
    with muser.load(golden_data.model(name), config=config) as engine:
        return np.stack([engine.decode_token(token) for token in golden_data.tokens(name)])


def against_float64(name: str, kv_dtype: str) -> Difference:
    """Error of this engine's logits."""
    return difference(rows(name, kv_dtype), golden_data.ref64(name))


def lines() -> Iterator[str]:
    """The table in Markdown."""
    yield from HEADER
    for name in golden_data.NAMES:
        theirs = difference(golden_data.llama(name), golden_data.ref64(name))
        their_kv = "f32" if name == "tiny-f32" else "f16"
        for program, kv_dtype, found in (
            ("muser", "f32", against_float64(name, "f32")),
            ("muser", "f16", against_float64(name, "f16")),
            ("llama.cpp", their_kv, theirs),
        ):
            yield (
                f"| `{name}` | {found.rows} | {program} | {kv_dtype} | {found.max_logprob:.1e} "
                f"| {found.mean_logit:.1e} | {found.equal_argmax}/{found.rows} |"
            )


if __name__ == "__main__":
    print("\n".join(lines()))
