"""Malformed files through the public calls: a typed error with offset and path, never a model.

tests/cpp/model has more kinds, counts allocations, and mutates headers by the thousand. Here is
each class of file that has broken other readers, as a user meets it.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import muser
from muser.fixtures import synthetic_path

U32, ARRAY, STRING, U64 = 4, 9, 8, 10
F32, I8 = 0, 24


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: bytes) -> bytes:
    return u64(len(value)) + value


def start(tensors: int, keys: int, version: int = 3) -> bytes:
    return b"GGUF" + u32(version) + u64(tensors) + u64(keys)


def one_tensor(name: bytes, dims: list[int], kind: int, offset: int = 0) -> bytes:
    return text(name) + u32(len(dims)) + b"".join(map(u64, dims)) + u32(kind) + u64(offset)


def tensors(*entries: bytes) -> bytes:
    return start(len(entries), 0) + b"".join(entries) + bytes(64)


def key(name: bytes, kind: int, value: bytes) -> bytes:
    return start(0, 1) + text(name) + u32(kind) + value + bytes(64)


HUGE = 0x7FFFFFFFFFFFFFC0
KINDS = {
    "stride product wraps": tensors(one_tensor(b"a", [(1 << 42) + 1, 1 << 22], F32)),
    "element product is negative": tensors(one_tensor(b"a", [(1 << 63) - 1, 2, 1, 1], I8)),
    "sum of two sizes wraps": tensors(*(one_tensor(n, [HUGE], I8) for n in (b"a", b"b"))),
    "empty dimension": tensors(one_tensor(b"a", [4, 0], F32)),
    "alignment 0": key(b"general.alignment", U32, u32(0)),
    "alignment 13": key(b"general.alignment", U32, u32(13)),
    "alignment 2^30": key(b"general.alignment", U32, u32(1 << 30)),
    "alignment as int32": key(b"general.alignment", 5, u32(32)),
    "key length 2^48": start(0, 1) + u64((1 << 48) - 1),
    "string length 2^63": key(b"k", STRING, u64(1 << 63)),
    "array count 2^64-1": key(b"k", ARRAY, u32(U32) + u64((1 << 64) - 1)),
    "array count 2^30": key(b"k", ARRAY, u32(U64) + u64(1 << 30)),
    **{f"empty key of type {kind}": start(0, 1) + u64(0) + u32(kind) + bytes(64)
       for kind in range(13)},
    **{f"{count} dimensions": start(1, 0) + text(b"a") + u32(count) + bytes(96)
       for count in (0, 5, 9, 10**6, (1 << 32) - 1)},
    "offset past the end": tensors(one_tensor(b"a", [4], F32, 1 << 40)),
    "two tensors of one name": tensors(*(one_tensor(b"a", [4], F32) for _ in range(2))),
    "two keys of one name": start(0, 2) + 2 * (text(b"k") + u32(U32) + u32(1)) + bytes(64),
    "version 1 with an empty string": b"GGUF" + u32(1) + u32(0) + u32(1) + u32(0) + bytes(32),
    "three bytes": b"GGU",
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_a_malformed_file_is_a_typed_error(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(KINDS[name])
    for call in (muser.inspect, muser.load):
        with pytest.raises(muser.GGUFError) as caught:
            call(path)
        assert "offset" in caught.value.facts
        assert str(path) in str(caught.value)


def whole() -> tuple[bytes, int]:
    """The bytes of `synthetic:tiny`, and how many of them are header."""
    path = synthetic_path("synthetic:tiny")
    return path.read_bytes(), muser.inspect(path)["header_bytes"]


def refuse(path: Path, data: bytes) -> muser.GGUFError:
    path.write_bytes(data)
    with pytest.raises(muser.GGUFError) as caught:
        muser.load(path)
    return caught.value


def _value_type(data: bytearray) -> None:
    name = b"muse-glimmer.block_count"
    at = data.index(name) + len(name)
    assert data[at : at + 4] == u32(U32)
    data[at : at + 4] = u32(6)  # a float


def _last_tensor_type(data: bytearray) -> None:
    at = data.index(text(b"output.weight")) + len(text(b"output.weight"))
    data[at + 4 + 16 : at + 4 + 20] = u32(200)


def _one_tensor_fewer(data: bytearray) -> None:
    data[8:16] = u64(int.from_bytes(data[8:16], "little") - 1)


def _short(data: bytearray) -> None:
    del data[-1:]


@pytest.mark.parametrize(
    "change",
    [_value_type, _last_tensor_type, _one_tensor_fewer, _short],
    ids=["block count of another type", "bad tensor", "tensor left out", "one byte short"],
)
def test_a_damaged_model_never_loads(change: Callable[[bytearray], None], tmp_path: Path) -> None:
    data = bytearray(whole()[0])
    change(data)
    error = refuse(tmp_path / "x.gguf", bytes(data))
    assert error.facts


def truncations(path: Path, step: int) -> int:
    """Cuts a copy of the file ever shorter within its header; every cut must be refused."""
    shutil.copyfile(synthetic_path("synthetic:tiny"), path)
    _, header = whole()
    tried = 0
    with path.open("r+b") as file:
        for size in range(header, -1, -step):
            file.truncate(size)
            with pytest.raises(muser.GGUFError):
                muser.inspect(path)
            tried += 1
    return tried


def test_some_truncations_of_the_header(tmp_path: Path) -> None:
    assert truncations(tmp_path / "x.gguf", 331) > 50


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_every_truncation_of_the_header(tmp_path: Path) -> None:
    assert truncations(tmp_path / "x.gguf", 1) == whole()[1] + 1
