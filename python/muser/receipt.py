"""Receipts: what ran, on what, from which file. JSON, enough to explain two differing results."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import GGUFError

SCHEMA = "muser.receipt/1"
MIB = 1 << 20


def row_sha256(row: NDArray[np.float32]) -> str:
    """SHA-256 (hex) of a logits row as little-endian float32 bytes."""
    return hashlib.sha256(np.ascontiguousarray(row, dtype="<f4").tobytes()).hexdigest()


@dataclass(frozen=True)
class Fingerprint:
    """Tells two files apart without reading all of them, unless `full`.

    `header_sha256` covers everything before the first tensor; `tensors` maps each name to the
    SHA-256 of its first and last MiB (of all its bytes if that is what it has). `digest` covers
    all of these and the sizes. `file_sha256` is that of the whole file, or None.
    """

    file_bytes: int
    header_bytes: int
    header_sha256: str
    tensors: Mapping[str, str]
    digest: str
    file_sha256: str | None

    def as_dict(self) -> dict[str, Any]:
        """For receipts: everything but the single tensors."""
        return {
            "file_bytes": self.file_bytes,
            "header_bytes": self.header_bytes,
            "header_sha256": self.header_sha256,
            "tensors": len(self.tensors),
            "digest": self.digest,
            "file_sha256": self.file_sha256,
        }


def _hash_range(descriptor: int, offset: int, size: int, into: Any, path: str) -> None:
    end = offset + size
    while offset < end:
        piece = os.pread(descriptor, min(MIB, end - offset), offset)
        if not piece:
            raise GGUFError(f"{path} ends at {offset} while being hashed", {"offset": offset})
        into.update(piece)
        offset += len(piece)


def fingerprint(
    path: str | os.PathLike[str], info: Mapping[str, Any], *, full: bool = False
) -> Fingerprint:
    """Fingerprint of a GGUF file; `info` is `muser.inspect` of it. `full` hashes every byte.

    Raises GGUFError if the file's size is not the one that `info` tells, or if it shrinks.
    """
    name = os.fspath(path)
    descriptor = os.open(name, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        if size != info["file_bytes"]:
            raise GGUFError(
                f"{name} has {size} bytes and had {info['file_bytes']} when it was opened",
                {"found": size, "expected": int(info["file_bytes"])},
            )
        digest = hashlib.sha256()
        header = hashlib.sha256()
        _hash_range(descriptor, 0, info["header_bytes"], header, name)
        digest.update(f"{size} {info['header_bytes']} {header.hexdigest()}\n".encode())
        tensors: dict[str, str] = {}
        for tensor in info["tensors"]:
            offset, length = tensor["offset"], tensor["bytes"]
            piece = hashlib.sha256()
            first = min(length, MIB)
            _hash_range(descriptor, offset, first, piece, name)
            last = min(length - first, MIB)
            _hash_range(descriptor, offset + length - last, last, piece, name)
            tensors[tensor["name"]] = piece.hexdigest()
            digest.update(f"{tensor['name']} {offset} {length} {piece.hexdigest()}\n".encode())
        whole = None
        if full:
            everything = hashlib.sha256()
            _hash_range(descriptor, 0, size, everything, name)
            whole = everything.hexdigest()
    finally:
        os.close(descriptor)
    return Fingerprint(
        size, info["header_bytes"], header.hexdigest(), tensors, digest.hexdigest(), whole
    )


def versions() -> dict[str, str]:
    """The package, Python and NumPy."""
    from . import __version__

    return {
        "muser": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def machine() -> dict[str, Any]:
    """Operating system, processor and cores, as the system tells them."""
    model = platform.processor()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return {
        "system": platform.platform(),
        "arch": platform.machine(),
        "cpu": model,
        "cores": os.cpu_count() or 0,
    }


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file so that it is either the old one or the whole new one."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: str | os.PathLike[str], value: Mapping[str, Any]) -> None:
    """Writes JSON, as write_atomic does."""
    write_atomic(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())
