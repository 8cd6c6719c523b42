"""Fingerprints, hashes and atomic writing, on plain files."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muser import receipt, row_sha256
from muser.errors import GGUFError

MIB = 1 << 20


def make(tmp_path: Path) -> tuple[Path, dict[str, Any], bytes]:
    """A file with a header and three tensors: one of 3 MiB + 8 bytes, one just short, one tiny."""
    rng = np.random.default_rng(1)
    sizes = {"long": 3 * MIB + 8, "short": MIB + 5, "tiny": 7}
    data = rng.bytes(100 + sum(sizes.values()))
    tensors, offset = [], 100
    for name, size in sizes.items():
        tensors.append({"name": name, "offset": offset, "bytes": size})
        offset += size
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    return path, {"file_bytes": len(data), "header_bytes": 100, "tensors": tensors}, data


def test_the_fingerprint_covers_header_first_and_last_mib(tmp_path: Path) -> None:
    path, info, data = make(tmp_path)
    found = receipt.fingerprint(path, info)
    assert found.header_sha256 == hashlib.sha256(data[:100]).hexdigest()
    long = data[100 : 100 + 3 * MIB + 8]
    assert found.tensors["long"] == hashlib.sha256(long[:MIB] + long[-MIB:]).hexdigest()
    short = data[100 + len(long) :][: MIB + 5]
    assert found.tensors["short"] == hashlib.sha256(short).hexdigest()
    assert found.tensors["tiny"] == hashlib.sha256(data[-7:]).hexdigest()
    assert found.file_sha256 is None
    full = receipt.fingerprint(path, info, full=True)
    assert full.file_sha256 == hashlib.sha256(data).hexdigest()
    assert full.digest == found.digest


@pytest.mark.parametrize(
    ("at", "seen"),
    [
        (50, True),  # header
        (100, True),  # first byte of a tensor
        (100 + MIB - 1, True),
        (100 + MIB, False),  # the middle, which only `full` reads
        (100 + 2 * MIB + 8, True),
        (100 + 3 * MIB + 8 + MIB, True),
        (-1, True),
    ],
)
def test_a_changed_byte_is_seen_where_it_should_be(tmp_path: Path, at: int, seen: bool) -> None:
    path, info, data = make(tmp_path)
    before = receipt.fingerprint(path, info, full=True)
    changed = bytearray(data)
    changed[at] ^= 1
    path.write_bytes(changed)
    after = receipt.fingerprint(path, info, full=True)
    assert (after.digest != before.digest) is seen
    assert after.file_sha256 != before.file_sha256


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    path, info, data = make(tmp_path)
    path.write_bytes(data[:-1])
    with pytest.raises(GGUFError) as caught:
        receipt.fingerprint(path, info)
    assert caught.value.facts == {"found": len(data) - 1, "expected": len(data)}


def test_row_hash_is_of_little_endian_bytes_of_any_layout() -> None:
    row = np.arange(8, dtype=np.float32)
    expected = hashlib.sha256(row.astype("<f4").tobytes()).hexdigest()
    assert row_sha256(row) == expected
    assert row_sha256(row.astype(">f4")) == expected
    assert row_sha256(np.repeat(row, 2)[::2]) == expected
    assert row_sha256(-row) != expected  # the sign of zero counts


def test_writing_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "receipt.json"
    receipt.write_json(target, {"a": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        receipt.write_json(target, {"a": float("nan")})

    def full_disk(descriptor: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        receipt.write_json(target, {"a": 2})
    assert json.loads(target.read_text()) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["receipt.json"]


def test_a_receipt_has_the_mode_of_any_new_file(tmp_path: Path) -> None:
    receipt.write_json(tmp_path / "receipt.json", {})
    (tmp_path / "other").touch()
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_versions_and_machine_are_json() -> None:
    json.dumps({**receipt.versions(), **receipt.machine()})
