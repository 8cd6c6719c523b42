"""State around the window: snapshots at every length, rollbacks of every count, damaged snapshots.

`synthetic:tiny` has a window of 16; its rings keep the last 64 rows that were overwritten.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import muser
from muser import snapshot
from muser.fixtures import fixed_tokens

WINDOW, JOURNAL, FURTHER = 16, 64, 16
LENGTHS = range(WINDOW - 1, 3 * WINDOW + 2)
TOKENS = [int(token) for token in fixed_tokens(200, 1024)]
OTHERS = [int(token) for token in fixed_tokens(400, 1024)[200:]]


@pytest.fixture
def engine() -> Iterator[muser.Engine]:
    with muser.load("synthetic:tiny", config=muser.Config(context=256, threads=1)) as made:
        assert made.geometry["window"] == WINDOW
        yield made


def rows(engine: muser.Engine, tokens: list[int]) -> str:
    """SHA-256 over the rows of tokens fed one by one."""
    digest = hashlib.sha256()
    for token in tokens:
        digest.update(engine.decode_token(token).tobytes())
    return digest.hexdigest()


# --- snapshots --------------------------------------------------------------------------------

RESTORER = """
import hashlib, json, pathlib, sys
import muser
for length, tokens in json.load(sys.stdin).items():
    with muser.load("synthetic:tiny", config=muser.Config(context=256)) as engine:
        engine.restore(pathlib.Path(length).read_bytes())
        assert engine.position == int(length)
        digest = hashlib.sha256()
        for token in tokens:
            digest.update(engine.decode_token(token).tobytes())
        print(length, digest.hexdigest())
"""


def test_a_fresh_process_goes_on_from_every_length_around_the_window(
    engine: muser.Engine, tmp_path: Path
) -> None:
    expected, further = {}, {}
    for length in LENGTHS:
        # The run that is not interrupted: no snapshot is taken in it.
        engine.reset()
        engine.prefill(TOKENS[:length])
        further[str(length)] = TOKENS[length : length + FURTHER]
        expected[str(length)] = rows(engine, further[str(length)])
    engine.reset()
    for token in TOKENS[: LENGTHS[-1]]:
        engine.decode_token(token)
        if engine.position in LENGTHS:
            (tmp_path / str(engine.position)).write_bytes(engine.snapshot())
    done = subprocess.run(
        [sys.executable, "-c", RESTORER],
        input=json.dumps(further),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = dict(line.split() for line in done.stdout.splitlines())
    assert found == expected


def test_three_restores_of_one_blob(engine: muser.Engine) -> None:
    engine.prefill(TOKENS[:40])
    blob = engine.snapshot()
    expected = rows(engine, TOKENS[40 : 40 + FURTHER])
    for between in (0, 5, 100):
        if between:
            engine.prefill(OTHERS[:between])
        engine.restore(blob)
        assert engine.snapshot() == blob
        assert rows(engine, TOKENS[40 : 40 + FURTHER]) == expected


# --- rollback ---------------------------------------------------------------------------------


def advance_singly(engine: muser.Engine, tokens: list[int]) -> None:
    for token in tokens:
        engine.decode_token(token)


def advance_in_lanes(engine: muser.Engine, tokens: list[int]) -> None:
    for at in range(0, len(tokens), 50):
        engine.teacher_forced(tokens[at : at + 50])


ADVANCES: list[Callable[[muser.Engine, list[int]], Any]] = [
    advance_singly,
    muser.Engine.prefill,
    advance_in_lanes,
]


@pytest.mark.parametrize("advance", ADVANCES, ids=["singly", "prefill", "lanes"])
def test_every_rollback_after_the_wrap_equals_the_run_that_never_went_there(
    engine: muser.Engine, advance: Callable[[muser.Engine, list[int]], Any]
) -> None:
    end = 90
    for count in range(1, JOURNAL + 1):
        engine.reset()
        advance(engine, TOKENS[: end - count])
        expected = rows(engine, OTHERS[:FURTHER])
        engine.reset()
        advance(engine, TOKENS[:end])
        engine.rollback(count)
        assert engine.position == end - count
        assert rows(engine, OTHERS[:FURTHER]) == expected, count


def test_a_rollback_in_steps_is_one_rollback(engine: muser.Engine) -> None:
    engine.prefill(TOKENS[:90])
    blob = engine.snapshot()
    engine.rollback(JOURNAL)
    at_once = engine.snapshot()
    engine.restore(blob)  # the journal travels with the snapshot
    for _ in range(JOURNAL):
        engine.rollback(1)
    assert engine.snapshot() == at_once


@pytest.mark.parametrize("end", [WINDOW + JOURNAL + 1, 90, 150, 200])
def test_one_more_than_the_journal_holds_changes_nothing(engine: muser.Engine, end: int) -> None:
    engine.prefill(TOKENS[:end])
    blob = engine.snapshot()
    for count in (JOURNAL + 1, end - 1, end + 1, 1 << 40):
        with pytest.raises(muser.RollbackError):
            engine.rollback(count)
        assert engine.position == end
    assert engine.snapshot() == blob
    expected = rows(engine, OTHERS[:FURTHER])
    engine.restore(blob)
    with pytest.raises(muser.RollbackError):
        engine.rollback(JOURNAL + 1)
    assert rows(engine, OTHERS[:FURTHER]) == expected


def test_the_journal_is_used_up(engine: muser.Engine) -> None:
    engine.prefill(TOKENS[:90])
    engine.rollback(JOURNAL)
    blob = engine.snapshot()
    with pytest.raises(muser.RollbackError):
        engine.rollback(1)
    assert engine.snapshot() == blob
    engine.prefill(OTHERS[:3])
    engine.rollback(3)
    assert rows(engine, TOKENS[90 - JOURNAL : 90]) == _uninterrupted(90 - JOURNAL, 90)


def _uninterrupted(first: int, end: int) -> str:
    with muser.load("synthetic:tiny", config=muser.Config(context=256)) as engine:
        engine.prefill(TOKENS[:first])
        return rows(engine, TOKENS[first:end])


# --- damaged snapshots ------------------------------------------------------------------------


def sections(blob: bytes) -> list[tuple[str, int, int]]:
    """(name, first byte, end) of everything that a snapshot is made of."""
    size = int.from_bytes(blob[8:16], "little")
    header = json.loads(blob[48 : 48 + size])
    found = [("magic", 0, 8), ("length", 8, 16), ("digest", 16, 48), ("header", 48, 48 + size)]
    at = 48 + size
    for index, (length, _) in enumerate(header["sections"]):
        found.append((f"layer {index // 4} {snapshot.SECTIONS[index % 4]}", at, at + length))
        at += length
    assert at == len(blob)
    return found


def test_every_section_cut_or_flipped_is_refused_and_the_old_state_stays(
    engine: muser.Engine,
) -> None:
    engine.prefill(TOKENS[:60])
    blob = engine.snapshot()
    engine.reset()
    engine.prefill(OTHERS[:37])
    before = engine.snapshot()
    tried = set()
    for name, first, end in sections(blob):
        if first == end:
            continue  # a global layer has no journal
        tried.add(name)
        for cut in (first, (first + end) // 2, end - 1):
            with pytest.raises(muser.SnapshotError):
                engine.restore(blob[:cut])
            with pytest.raises(muser.SnapshotError):
                engine.restore(blob[:cut] + blob[cut + 1 :])
            for bit in (0, 7):
                flipped = bytearray(blob)
                flipped[cut] ^= 1 << bit
                with pytest.raises(muser.SnapshotError):
                    engine.restore(flipped)
        assert engine.position == 37
        assert engine.snapshot() == before, name
    # Eight layers with k and v, six of them rings with a journal of each.
    assert len(tried) == 4 + 8 * 2 + 6 * 2
    expected = rows(engine, TOKENS[:FURTHER])
    engine.reset()
    engine.prefill(OTHERS[:37])
    assert rows(engine, TOKENS[:FURTHER]) == expected


def forge(blob: bytes, change: Callable[[dict[str, Any], list[bytes]], None]) -> bytes:
    """A snapshot with good checksums that says something else."""
    parts = [blob[first:end] for _, first, end in sections(blob)]
    header, data = json.loads(parts[3]), parts[4:]
    change(header, data)
    header["sections"] = [[len(part), hashlib.sha256(part).hexdigest()] for part in data]
    text = json.dumps(header).encode()
    head = snapshot.MAGIC + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest()
    return b"".join([head, text, *data])


def _set(name: str, value: int) -> Callable[[dict[str, Any], list[bytes]], None]:
    return lambda header, data: header.update({name: value})


def _cut(section: int, count: int) -> Callable[[dict[str, Any], list[bytes]], None]:
    return lambda header, data: data.__setitem__(section, data[section][:-count])


@pytest.mark.parametrize(
    "change",
    [
        _set("position", 59),
        _set("position", 61),
        _set("position", 0),
        _set("position", -1),
        _set("position", 1 << 62),
        _set("journal", 0),
        _set("journal", 65),
        _set("journal", -1),
        _set("journal", 1 << 62),
        _cut(0, 1),
        _cut(1, 256),
        _cut(2, 256),
        _cut(12, 256),
        lambda header, data: data.__delitem__(slice(-4, None)),
        lambda header, data: data.extend([b"", b"", b"", b""]),
        lambda header, data: data.__setitem__(14, b"x" * 256),  # a journal of a global layer
    ],
)
def test_a_snapshot_that_contradicts_itself_is_refused(
    engine: muser.Engine, change: Callable[[dict[str, Any], list[bytes]], None]
) -> None:
    engine.prefill(TOKENS[:60])
    blob = engine.snapshot()
    engine.restore(forge(blob, lambda header, data: None))
    engine.reset()
    engine.prefill(OTHERS[:37])
    before = engine.snapshot()
    with pytest.raises((muser.SnapshotError, muser.ContextFullError)):
        engine.restore(forge(blob, change))
    assert engine.position == 37
    assert engine.snapshot() == before
