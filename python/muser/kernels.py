"""The kernel catalogue, and the proof that its declarations are what the kernels do.

A proof runs steps on the emulator's tracing build: every load and store of the .metal files is
compared with the access and byte range that the launcher declared, and with the other lanes of the
same dispatch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .config import Config
from .engine import load

# Steps that between them launch every kernel that a schedule has: (file, schedule, KV type).
CASES: tuple[tuple[str, str, str], ...] = (
    ("synthetic:tiny-mix", "baseline", "f16"),
    ("synthetic:tiny-mix", "dual_norm_4sg", "f32"),
    ("synthetic:tiny-mix", "gqa", "f32"),
    ("synthetic:tiny-mix", "lean", "f16"),
    ("synthetic:tiny-q5_K", "lean", "f32"),
    ("synthetic:tiny-q6_K", "lean", "f16"),
    ("synthetic:tiny-q8_0", "lean", "f16"),
    ("synthetic:tiny-q8_0", "production", "f16"),
    ("synthetic:tiny-q5_K", "joined", "f16"),
    ("synthetic:tiny-q6_K", "ring", "f16"),
    ("synthetic:tiny-f32", "hybrid", "f32"),
    ("synthetic:tiny-f16", "dual_norm", "f16"),
    ("synthetic:tiny-bf16", "gqa", "f16"),
)
# Positions around the ring's edge (window 16): filling, the last before the wrap, and wrapped.
POSITIONS = (0, 15, 17)
# Several tokens, across the ring's edge: a prompt chunk (columns of every product), and a greedy
# lane behind it (the choice, and a step that is fed what was chosen).
CHUNK_POSITION, CHUNK, LANE = 15, 3, 2


@dataclass(frozen=True)
class Kernel:
    """One kernel of metal/kernels/args.h."""

    name: str
    threads: int
    """Per threadgroup."""
    per_group: int
    """Units that one threadgroup takes; 0: the kernel is one threadgroup."""
    unit: str
    args: str
    buffers: tuple[str, ...]
    """Arguments from index 1 on."""
    accesses: tuple[str, ...]
    """What the launchers declare of each: r, w or rw."""


def catalogue() -> list[Kernel]:
    """Every kernel, in the catalogue's order."""
    from . import _core

    lists = ("buffers", "accesses")
    return [
        Kernel(**{**row, **{name: tuple(row[name]) for name in lists}}) for row in _core.kernels()
    ]


@dataclass(frozen=True)
class Proof:
    """What tracing has shown."""

    steps: int
    loads: int
    stores: int
    dispatches: int
    seen: tuple[str, ...]
    """Kernels that were traced."""
    findings: tuple[dict[str, Any], ...]
    """`kind`, `kernel`, `closure`, `argument`, `text`, and the `case` it was found in."""


def prove(
    cases: Sequence[tuple[str, str, str]] = CASES,
    positions: Sequence[int] = POSITIONS,
    told: Callable[[str], None] | None = None,
) -> Proof:
    """Traces one step of each case at each position, and a prompt chunk and a greedy lane behind
    one. ConfigError in a build without the tracer."""
    from . import _core

    steps = loads = stores = dispatches = 0
    seen: dict[str, None] = {}
    findings: list[dict[str, Any]] = []
    for path, schedule, kv_dtype in cases:
        prompt = Config(
            device="cpu", schedule=schedule, kv_dtype=kv_dtype, context=64, allow_inexact=True
        )
        config = replace(prompt, device="emulator")
        with load(path, config=config) as engine, load(path, config=prompt) as filler:
            for position in sorted(positions):
                if position > filler.position:
                    filler.prefill(range(filler.position, position))
                engine.restore(filler.snapshot())
                runs: list[tuple[str, Sequence[int], bool]] = [("at", [position], False)]
                if position == CHUNK_POSITION:
                    first = position + 1
                    runs.append((f"{CHUNK} tokens from", range(first, first + CHUNK), False))
                    first += CHUNK
                    runs.append((f"{LANE} greedy from", range(first, first + LANE), True))
                for what, tokens, greedy in runs:
                    traced = _core.trace(engine.core, tokens, greedy)
                    steps += 1
                    loads += traced["loads"]
                    stores += traced["stores"]
                    dispatches += len(traced["dispatches"])
                    seen.update(dict.fromkeys(d["kernel"] for d in traced["dispatches"]))
                    case = f"{path} {schedule} {kv_dtype} {what} {tokens[0]}"
                    findings += [{**finding, "case": case} for finding in traced["findings"]]
                    if told is not None:
                        told(f"{case}: {len(traced['findings'])} findings")
    return Proof(steps, loads, stores, dispatches, tuple(seen), tuple(findings))
