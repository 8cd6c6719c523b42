"""One step under many schedules of the emulator: does the row depend on the order?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..receipt import row_sha256

if TYPE_CHECKING:
    from ..config import Config


def token_at(position: int, vocab: int) -> int:
    """The token that audits feed at a position: any would do, equal ones would hide errors."""
    return (position * 7919 + 17) % vocab


def prepare(path: str, config: Config, position: int) -> bytes:
    """A snapshot of a sequence of that length, made on the `cpu` device."""
    from ..engine import load

    with load(path, "cpu", replace(config, isa="auto", faults={}, untracked=False)) as engine:
        for at in range(position):
            engine.decode_token(token_at(at, engine.vocab))
        return engine.snapshot()


def run(
    path: str,
    config: Config,
    state: bytes,
    position: int,
    seeds: Sequence[int],
    *,
    tokens: int = 1,
    greedy: bool = False,
    faults: Mapping[str, int] | None = None,
) -> dict[int, tuple[str, int]]:
    """Per seed the hash of the rows of one step (or of a lane of `tokens`) from `state`, and the
    last row's largest logit's id; with `greedy`, as the device chose it."""
    from ..engine import load

    found: dict[int, tuple[str, int]] = {}
    for seed in seeds:
        settings = replace(config, device="emulator", isa="auto", seed=seed, faults=faults or {})
        with load(path, config=settings) as engine:
            engine.restore(state)
            ids = [token_at(position + i, engine.vocab) for i in range(tokens)]
            if greedy:
                chosen, rows = engine.greedy(ids[0], tokens, rows=True)
                found[seed] = (row_sha256(rows), int(chosen[-1]))
                continue
            rows = engine.teacher_forced(ids) if tokens > 1 else engine.decode_token(ids[0])
            last = rows[-1] if tokens > 1 else rows
            found[seed] = (row_sha256(rows), int(np.argmax(last)))
    return found


def omitting(barriers: Sequence[int]) -> dict[str, int]:
    """The test switch that leaves barriers out of every step."""
    return {f"omit_barrier_{barrier}": 1 for barrier in barriers}
