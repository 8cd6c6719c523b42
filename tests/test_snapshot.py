"""The snapshot format: every damaged byte and every mismatch is refused."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import pytest

from muser import snapshot
from muser.errors import SnapshotError

MODEL: dict[str, Any] = {"layers": 2, "is_local": [True, False], "eps": 1e-5, "file": "ab" * 32}
STATE: dict[str, Any] = {
    "position": 3,
    "journal": 1,
    "element": 2,
    "layers": [(b"k" * 12, b"v" * 12, b"j" * 4, b"J" * 4), (b"K" * 12, b"V" * 12, b"", b"")],
}


def pack() -> bytes:
    return snapshot.pack(STATE, MODEL, 1, "f16")


def unpack(blob: bytes, **other: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"model": MODEL, "contract": 1, "kv_dtype": "f16"} | other
    return snapshot.unpack(blob, **given)


def test_a_state_comes_back() -> None:
    assert unpack(pack()) == STATE
    assert snapshot.unpack(bytearray(pack()), MODEL, 1, "f16") == STATE
    assert snapshot.unpack(memoryview(pack()), MODEL, 1, "f16") == STATE


def test_the_same_state_gives_the_same_bytes() -> None:
    assert pack() == snapshot.pack(copy.deepcopy(STATE), dict(reversed(MODEL.items())), 1, "f16")


def test_every_truncation_is_refused() -> None:
    blob = pack()
    for length in range(len(blob)):
        with pytest.raises(SnapshotError):
            unpack(blob[:length])


def test_every_flipped_bit_is_refused() -> None:
    blob = pack()
    for at in range(len(blob)):
        for bit in range(8):
            damaged = bytearray(blob)
            damaged[at] ^= 1 << bit
            with pytest.raises(SnapshotError):
                unpack(bytes(damaged))


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(SnapshotError, match="after its end"):
        unpack(pack() + b"\0")


def test_a_damaged_section_is_named() -> None:
    blob = bytearray(pack())
    blob[-1] ^= 1
    with pytest.raises(SnapshotError) as caught:
        unpack(bytes(blob))
    assert caught.value.facts["section"] == "layer 1 v"


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"model": 1, "position": 1, "journal": 1, "sections": []}',
        b'{"model": {}, "position": "1", "journal": 1, "sections": []}',
        b'{"model": {}, "position": -1, "journal": 1, "sections": []}',
        b'{"model": {}, "position": 1, "journal": 9223372036854775808, "sections": []}',
        b'{"model": {}, "position": true, "journal": 1, "sections": []}',
        b'{"model": {}, "position": 1, "journal": 1, "sections": [1]}',
        b'{"model": {}, "position": 1, "journal": 1, "sections": [[-1, ""]]}',
        b'{"model": {}, "position": 1, "journal": 1, "sections": [[0, ""]]}',
        b"\xff",
    ],
)
def test_a_header_with_a_good_checksum_and_no_sense_is_refused(header: bytes) -> None:
    digest = hashlib.sha256(header).digest()
    with pytest.raises(SnapshotError, match="makes no sense"):
        unpack(snapshot.MAGIC + len(header).to_bytes(8, "little") + digest + header)


@pytest.mark.parametrize(
    ("other", "section"),
    [
        ({"contract": 2}, "contract"),
        ({"kv_dtype": "f32"}, "kv_dtype"),
        ({"model": {**MODEL, "layers": 3}}, "layers"),
        ({"model": {**MODEL, "is_local": [True, True]}}, "is_local"),
        ({"model": {**MODEL, "eps": 1e-6}}, "eps"),
        ({"model": {**MODEL, "file": "cd" * 32}}, "file"),
    ],
)
def test_another_contract_model_or_type_is_named(other: dict[str, Any], section: str) -> None:
    with pytest.raises(SnapshotError) as caught:
        unpack(pack(), **other)
    assert caught.value.facts["section"] == section
