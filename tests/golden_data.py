"""The files of tests/data, by name: models, float64 rows, llama.cpp's rows.

NAME is ``tiny-f32`` (600 positions), ``tiny-q4k`` or ``tiny-mix`` (200 each); the tokens are
``muser.fixtures.fixed_tokens``. See tests/data/README.md.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.oracle_file import write_tiny_f32

from muser.fixtures import cache_dir, fixed_tokens

DATA = Path(__file__).resolve().parent / "data"
NAMES = ("tiny-f32", "tiny-q4k", "tiny-mix")


def sums() -> dict[str, str]:
    """File name to SHA-256, from tests/data/SHA256SUMS."""
    lines = (DATA / "SHA256SUMS").read_text("ascii").splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def model(name: str) -> Path:
    """The GGUF file. ``tiny-f32`` is written to the cache directory when it is first needed."""
    expected = sums()[f"{name}.gguf"]
    if name != "tiny-f32":
        path = DATA / f"{name}.gguf"
        assert sha256(path) == expected, f"{path} is damaged"
        return path
    path = cache_dir() / "tests" / f"{name}.gguf"
    if not path.exists() or sha256(path) != expected:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
        os.close(handle)
        write_tiny_f32(Path(part))
        found = sha256(Path(part))
        Path(part).replace(path)
        assert found == expected, (
            f"{path} has SHA-256 {found}, not {expected}: NumPy's PCG64 normal stream or the gguf "
            "package's header layout is no longer what the float64 rows were made with"
        )
    return path


def tokens(name: str) -> NDArray[np.int32]:
    """The sequence that the rows of NAME belong to."""
    rows = ref64(name)
    return fixed_tokens(*rows.shape)


@cache
def ref64(name: str) -> NDArray[np.float64]:
    """transformers' logits in float64, [positions, vocab]."""
    rows: NDArray[np.float64] = np.load(DATA / f"{name}.ref64.npy")
    return rows


@cache
def llama(name: str) -> NDArray[np.float32]:
    """llama.cpp's logits: its defaults for the quantised files, f32 KV for ``tiny-f32``."""
    how = "llama-step1" if name == "tiny-f32" else "llama-default"
    rows: NDArray[np.float32] = np.load(DATA / f"{name}.{how}.npy")
    return rows
