"""Batch shape cannot change a bit: chunks of any size, lanes and single steps give the same rows,
the same KV rows and the same undo history."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

import muser
from muser.fixtures import fixed_tokens, synthetic_path

TOKENS = [int(t) for t in fixed_tokens(70, 1024)]
KINDS = ["tiny-mix", "tiny-f32", "tiny-bf16", "tiny-q8_0", "tiny-q4_K-h16", "tiny-q4_K-h128"]


def load(kind: str, schedule: str) -> muser.Engine:
    config = muser.Config(context=128, schedule=schedule)
    return muser.load(synthetic_path(f"synthetic:{kind}"), config=config)


def one_by_one(engine: muser.Engine) -> NDArray[np.float32]:
    return np.stack([engine.decode_token(token) for token in TOKENS])


@pytest.mark.parametrize("schedule", ["baseline", "production", "lean"])
@pytest.mark.parametrize("kind", KINDS)
def test_chunks_have_decodes_bits(kind: str, schedule: str) -> None:
    with load(kind, schedule) as engine:
        expected = one_by_one(engine)
        for sizes in ([70], [1, 69], [15, 1, 16, 17, 21], [64, 6], [5] * 14):
            engine.reset()
            parts = iter(TOKENS)
            chunks = [
                engine.prefill(list(itertools.islice(parts, n)), all_rows=True) for n in sizes
            ]
            assert np.concatenate(chunks).tobytes() == expected.tobytes(), sizes


def test_the_last_row_alone_is_the_same_row() -> None:
    with load("tiny-mix", "production") as engine:
        expected = one_by_one(engine)[-1]
        engine.reset()
        assert engine.prefill(TOKENS).tobytes() == expected.tobytes()


def test_a_chunk_leaves_the_state_that_steps_leave() -> None:
    with load("tiny-mix", "ring") as chunked, load("tiny-mix", "ring") as stepped:
        chunked.prefill(TOKENS)
        one_by_one(stepped)
        assert chunked.snapshot() == stepped.snapshot()
        chunked.rollback(20)
        stepped.rollback(20)
        again = TOKENS[50:]
        assert (
            chunked.prefill(again, all_rows=True).tobytes()
            == np.stack([stepped.decode_token(t) for t in again]).tobytes()
        )


def test_lanes_have_decodes_bits() -> None:
    with load("tiny-mix", "production") as engine:
        expected = one_by_one(engine)
        engine.reset()
        lanes = [engine.teacher_forced(TOKENS[:64]), engine.teacher_forced(TOKENS[64:])]
        assert np.concatenate(lanes).tobytes() == expected.tobytes()


def test_a_prompt_that_does_not_fit_changes_nothing() -> None:
    with load("tiny-mix", "production") as engine:
        engine.prefill(TOKENS)
        with pytest.raises(muser.ContextFullError):
            engine.prefill(TOKENS)
        with pytest.raises(muser.TokenRangeError):
            engine.prefill([1, 2, 99_999])
        assert engine.position == len(TOKENS)
