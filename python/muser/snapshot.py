"""Snapshots: the whole state of a sequence as bytes, for any device and any machine.

    8 bytes   b"MUSER\\0S1"
    8 bytes   length of the header, little-endian
    32 bytes  SHA-256 of the header
    header    JSON: contract, model, kv_dtype, position, journal, size and SHA-256 of the sections
    sections  of each layer k, v, journal_k, journal_v: whole rows in position order

A snapshot is checked from the first to the last byte before the engine hears of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from .errors import SnapshotError

MAGIC = b"MUSER\0S1"
SCHEMA = "muser.snapshot/1"
SECTIONS = ("k", "v", "journal_k", "journal_v")
_FIXED = len(MAGIC) + 8 + 32
_ELEMENT_BYTES = {"f16": 2, "f32": 4}


def pack(state: Mapping[str, Any], model: Mapping[str, Any], contract: int, kv_dtype: str) -> bytes:
    """A snapshot of `state` (of muser._core.Engine.state). `model` says which file it belongs to;
    it is compared as a whole when the snapshot comes back."""
    sections = [part for layer in state["layers"] for part in layer]
    header = {
        "schema": SCHEMA,
        "contract": contract,
        "model": dict(model),
        "kv_dtype": kv_dtype,
        "position": state["position"],
        "journal": state["journal"],
        "sections": [[len(part), hashlib.sha256(part).hexdigest()] for part in sections],
    }
    text = json.dumps(header, sort_keys=True, allow_nan=False).encode()
    digest = hashlib.sha256(text).digest()
    return b"".join([MAGIC, len(text).to_bytes(8, "little"), digest, text, *sections])


def _refuse(what: str, section: str, found: object, expected: object) -> SnapshotError:
    facts = {
        name: value if isinstance(value, (int, float, str)) else json.dumps(value)
        for name, value in (("section", section), ("found", found), ("expected", expected))
    }
    return SnapshotError(f"{what}: found {found}, expected {expected}", facts)


def _header(blob: memoryview) -> tuple[dict[str, Any], int]:
    """The header, verified against its checksum, and where the sections begin."""
    if len(blob) < _FIXED:
        raise _refuse("the snapshot is cut short", "header", len(blob), f"at least {_FIXED}")
    magic = bytes(blob[: len(MAGIC)])
    if magic != MAGIC:
        raise _refuse("not a snapshot of this format", "magic", magic.hex(), MAGIC.hex())
    length = int.from_bytes(blob[len(MAGIC) : len(MAGIC) + 8], "little")
    if length > len(blob) - _FIXED:
        raise _refuse("the snapshot is cut short", "header", len(blob) - _FIXED, length)
    text = bytes(blob[_FIXED : _FIXED + length])
    found, expected = hashlib.sha256(text).hexdigest(), bytes(blob[_FIXED - 32 : _FIXED]).hex()
    if found != expected:
        raise _refuse("the snapshot's header is damaged", "header", found, expected)
    try:
        header: dict[str, Any] = json.loads(text)
        whole = (
            isinstance(header["model"], dict)
            and all(
                type(header[name]) is int and 0 <= header[name] < 1 << 63
                for name in ("position", "journal")
            )
            and all(type(size) is int and size >= 0 for size, _ in header["sections"])
            and len(header["sections"]) % len(SECTIONS) == 0
        )
    except (ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise _refuse("the snapshot's header makes no sense", "header", text[:64].hex(), SCHEMA)
    return header, _FIXED + length


def unpack(
    blob: bytes | bytearray | memoryview, model: Mapping[str, Any], contract: int, kv_dtype: str
) -> dict[str, Any]:
    """The state in a snapshot, for muser._core.Engine.set_state. SnapshotError (facts `section`,
    `found`, `expected`) for a damaged one, or one of another contract, model or KV type."""
    data = memoryview(blob).cast("B")
    header, at = _header(data)
    wanted = {"schema": SCHEMA, "contract": contract, "kv_dtype": kv_dtype}
    for name, expected in wanted.items():
        if header.get(name) != expected:
            raise _refuse(f"the snapshot has another {name}", name, header.get(name), expected)
    for name, expected in model.items():
        found = header["model"].get(name)
        if found != expected:
            raise _refuse("the snapshot belongs to another model", name, found, expected)
    parts: list[bytes] = []
    for index, (size, expected) in enumerate(header["sections"]):
        section = f"layer {index // len(SECTIONS)} {SECTIONS[index % len(SECTIONS)]}"
        if size > len(data) - at:
            raise _refuse("the snapshot is cut short", section, len(data) - at, size)
        part = bytes(data[at : at + size])
        found = hashlib.sha256(part).hexdigest()
        if found != expected:
            raise _refuse(f"the snapshot is damaged at {section}", section, found, expected)
        parts.append(part)
        at += size
    if at != len(data):
        raise _refuse("the snapshot has bytes after its end", "end", len(data), at)
    layers = [tuple(parts[i : i + len(SECTIONS)]) for i in range(0, len(parts), len(SECTIONS))]
    return {
        "position": header["position"],
        "journal": header["journal"],
        "element": _ELEMENT_BYTES[kv_dtype],
        "layers": layers,
    }
