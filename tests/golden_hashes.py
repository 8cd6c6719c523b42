"""SHA-256 of the logits of whole runs, which no change but a new contract may alter.

    python -m tests.golden_hashes --write

rewrites tests/data/golden_hashes.json and the package's demo_hashes.json. It refuses to change a
hash that was written under the same contract number, and to write anything while the engine is
further from float64 than the contract allows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests import golden_data
from tests.accuracy_table import against_float64

import muser
from muser import _core
from muser.fixtures import demo_reference, fixed_tokens, synthetic_path
from muser.receipt import write_json

FILE = golden_data.DATA / "golden_hashes.json"
DEMO_FILE = Path(muser.__file__).parent / "data" / "demo_hashes.json"
KV_DTYPES = ("f16", "f32")
TYPES = ("f32", "f16", "bf16", "q8_0", "q4_K", "q5_K", "q6_K", "mix")
WIDTHS = ("", "-h16", "-h128")
POSITIONS = 70  # past a second wrap of the window of 16, and into a second chunk of 64


def runs() -> Iterator[tuple[str, Path, int]]:
    """(name, file, positions) of every run."""
    for name in ("tiny-q4k", "tiny-mix"):
        yield f"tests/data/{name}", golden_data.model(name), len(golden_data.ref64(name))
    for types in TYPES:
        for width in WIDTHS:
            name = f"synthetic:tiny-{types}{width}"
            yield name, synthetic_path(name), POSITIONS


def run_hash(path: Path, kv_dtype: str, positions: int, **settings: Any) -> str:
    """SHA-256 (hex) over the rows of a run, little-endian float32, token by token."""
    digest = hashlib.sha256()
    config = muser.Config(kv_dtype=kv_dtype, **settings)
    with muser.load(path, config=config) as engine:
        row = np.empty(engine.vocab, np.float32)
        for token in fixed_tokens(positions, engine.vocab):
            digest.update(engine.decode_token(token, out=row).astype("<f4").tobytes())
    return digest.hexdigest()


def demo_hashes() -> dict[str, Any]:
    """What `muser demo` compares with."""
    count = len(demo_reference()[0])
    path = synthetic_path("synthetic:tiny")
    found = {kv_dtype: run_hash(path, kv_dtype, count) for kv_dtype in KV_DTYPES}
    return {"contract": _core.CONTRACT, **found}


def all_hashes() -> dict[str, Any]:
    """Every run's hash, by file and KV type."""
    return {
        "contract": _core.CONTRACT,
        "sha256": {
            f"{name} {kv_dtype}": run_hash(path, kv_dtype, positions)
            for name, path, positions in runs()
            for kv_dtype in KV_DTYPES
        },
    }


def changed(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Names of hashes that differ although the contract number is the same."""
    if old["contract"] != new["contract"]:
        return []
    pairs = ((old["sha256"], new["sha256"]),) if "sha256" in old else ((old, new),)
    return [name for before, after in pairs for name in before if before[name] != after.get(name)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", required=True)
    parser.parse_args()
    for name in golden_data.NAMES:
        error = against_float64(name, "f32")
        good = error.max_logprob <= 1e-4 if name == "tiny-f32" else error.mean_logit <= 1.5e-3
        if not good or error.equal_argmax != error.rows:
            print(f"{name} is too far from float64: {error}", file=sys.stderr)
            return 1
    made = {FILE: all_hashes(), DEMO_FILE: demo_hashes()}
    moved = [
        name
        for path, new in made.items()
        if path.exists()
        for name in changed(json.loads(path.read_text("utf-8")), new)
    ]
    if moved:
        print("These hashes changed under the same contract number:", *moved, sep="\n  ")
        print("Either a bit moved that must not, or the contract needs a new number.")
        return 1
    for path, new in made.items():
        write_json(path, new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
