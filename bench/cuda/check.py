"""Row hashes of the cuda device against the cpu device: tiny files of every type, every schedule,
positions around the window, both KV types, all barrier modes.

    python bench/cuda/check.py [--types mix,q4_K] [--tokens 24]

Prints one line per case; on a difference the first closure whose output differs. Exit status 1 if
any case differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import muser
from muser import fixtures
from muser.fixtures.kinds import MIXES

MORE: tuple[dict[str, Any], ...] = (
    {"schedule": "lean", "barriers": "planned"},
    {"schedule": "lean", "barriers": "all"},
    {"schedule": "lean", "serial_dispatch": True},
    {"schedule": "lean", "kv_dtype": "f32"},
    {"schedule": "baseline", "kv_dtype": "f32"},
)
TOKENS = [(17 * i * i + 5 * i + 3) % 1024 for i in range(2000)]


def rows(path: Path, tokens: int, **settings: Any) -> list[bytes]:
    config = muser.Config(allow_inexact=True, context=256, **settings)
    with muser.load(path, config=config) as engine:
        return [engine.decode_token(t).tobytes() for t in TOKENS[:tokens]]


def lane(path: Path, device: str) -> list[bytes]:
    """Known tokens, ids chosen on the device, and a step after going back."""
    config = muser.Config(device=device, schedule="lean", context=256)
    with muser.load(path, config=config) as engine:
        known = engine.teacher_forced(TOKENS[:48])
        engine.rollback(20)
        ids, chosen = engine.greedy(TOKENS[5], 70, rows=True)
        return [known.tobytes(), ids.tobytes(), chosen.tobytes()]


def first_difference(path: Path, step: int, settings: dict[str, Any]) -> str:
    engines = [
        muser.load(path, config=muser.Config(device=d, allow_inexact=True, context=256, **settings))
        for d in ("cpu", "cuda")
    ]
    for token in TOKENS[:step]:
        for engine in engines:
            engine.decode_token(token)
    labels = [c for c in engines[0].plan.closures if not c.endswith(("kv_store", "swa_stage"))]
    found = [dict(engine.decode_token(TOKENS[step], capture=labels)[1]) for engine in engines]
    for name, values in found[0].items():
        other = found[1][name]
        if values.tobytes() != other.tobytes():
            bad = np.flatnonzero(values.view(np.uint32) != other.view(np.uint32))
            first = int(bad[0])
            return (
                f"{name}: {bad.size} of {values.size} differ, first at {first}: "
                f"cpu {values[first]!r} cuda {other[first]!r}"
            )
    return "no captured closure differs"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--types", default=",".join(MIXES))
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--schedules", default="", help="only these, and nothing beside them")
    arguments = parser.parse_args()
    from muser import _core

    schedules = [row["name"] for row in _core.schedules()]
    failures = 0
    cases = 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for types in arguments.types.split(","):
            path = Path(folder) / f"{types}.gguf"
            fixtures.write("tiny", path, types=types)
            # Heads of the real model's width, eight to a KV head: what the device has kernels of
            # its own for.
            wide = Path(folder) / f"{types}-h128.gguf"
            fixtures.write("tiny", wide, types=types, head_dim=128, heads=16)
            named = arguments.schedules.split(",") if arguments.schedules else schedules
            settings = [(path, {"schedule": s}) for s in named]
            settings += [(wide, {"schedule": s}) for s in named if s in ("baseline", "lean")]
            if not arguments.schedules:
                settings += [(p, dict(more)) for p in (path, wide) for more in MORE]
            for file, setting in settings:
                cases += 1
                name = f"{file.stem} {setting}"
                try:
                    cpu = rows(file, arguments.tokens, device="cpu", **setting)
                except muser.ConfigError as error:
                    print(name, "not on cpu:", str(error)[:90], flush=True)
                    continue
                try:
                    cuda = rows(file, arguments.tokens, device="cuda", **setting)
                except muser.MuserError as error:
                    failures += 1
                    print(name, "ERROR", str(error)[:600], flush=True)
                    continue
                bad = [i for i, (a, b) in enumerate(zip(cpu, cuda, strict=True)) if a != b]
                if bad:
                    failures += 1
                    print(name, f"DIFFERS from step {bad[0]}", flush=True)
                    if failures <= 6:
                        print("   ", first_difference(file, bad[0], setting), flush=True)
            print(f"{types}: done after {time.monotonic() - started:.1f} s", flush=True)
        # Of the wide ones also 2, 4, 6 and 16 query heads to a KV head, of which there are two.
        for head_dim, heads in ((64, 8), (128, 4), (128, 8), (128, 12), (128, 32)):
            path = Path(folder) / f"lane-{head_dim}-{heads}.gguf"
            fixtures.write("tiny", path, types="mix", head_dim=head_dim, heads=heads)
            lanes = [lane(path, device) for device in ("cpu", "cuda")]
            cases += 1
            if lanes[0] != lanes[1]:
                failures += 1
                print(f"lanes and rollback DIFFER at {heads} heads of {head_dim}", flush=True)
    print(f"{cases} cases, {failures} failures", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
