"""`muser diff`: identical runs, the first row that differs, and what the receipts say of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import muser
from muser.commands.diff import compare, receipt_differences


def dump(path: Path, rows: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Path:
    np.save(path, rows)
    return path


def tokens(path: Path, hashes: list[str], **summary: object) -> Path:
    lines: list[dict[str, object]] = [
        {
            "schema": "muser.decode.token/1",
            "position": i,
            "input_token": 5,
            "argmax": 7,
            "row_sha256": digest,
        }
        for i, digest in enumerate(hashes)
    ]
    lines.append({"schema": "muser.decode.summary/1", "device": "cpu", **summary})
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


def test_identical_dumps(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).standard_normal((3, 16)).astype(np.float32)
    found = compare(dump(tmp_path / "a.npy", rows), dump(tmp_path / "b.npy", rows))
    assert found["identical"]
    assert found["differing"] == 0


def test_the_first_differing_row_and_the_worst(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).standard_normal((5, 16)).astype(np.float32)
    other = rows.copy()
    other[2, 3] = np.nextafter(other[2, 3], np.float32(9))
    other[4, 0] += 1
    found = compare(dump(tmp_path / "a.npy", rows), dump(tmp_path / "b.npy", other))
    assert not found["identical"]
    assert (found["differing"], found["first"], found["worst"]) == (2, 2, 4)
    assert found["first_diff"]["differing"] == 1
    assert found["worst_diff"]["max_abs"] == pytest.approx(1.0)


def test_a_shorter_dump_is_not_identical(tmp_path: Path) -> None:
    rows = np.zeros((3, 4), np.float32)
    found = compare(dump(tmp_path / "a.npy", rows), dump(tmp_path / "b.npy", rows[:2]))
    assert not found["identical"]
    assert found["first"] is None


def test_decode_outputs_and_what_their_runs_say(tmp_path: Path) -> None:
    a = tokens(tmp_path / "a.jsonl", ["x", "y", "z"], threads=1)
    b = tokens(tmp_path / "b.jsonl", ["x", "q", "z"], threads=2)
    found = compare(a, b)
    assert (found["identical"], found["first"], found["differing"]) == (False, 1, 1)
    assert found["first_diff"]["row_sha256"] == ["y", "q"]
    assert found["runs"] == {"threads": [1, 2]}
    assert compare(a, a)["identical"]


def test_receipts_ignore_where_and_tell_what() -> None:
    a = {"contract": 1, "file": {"path": "/x", "digest": "1"}, "machine": {"cpu": "p"}}
    b = {"contract": 1, "file": {"path": "/y", "digest": "1"}, "machine": {"cpu": "q"}}
    assert receipt_differences(a, b) == {}
    c = {**b, "contract": 2}
    assert receipt_differences(a, c) == {"contract": [1, 2]}


@pytest.mark.parametrize("content", ["not json", "{}", "[1, 2]", ""])
def test_files_that_are_neither_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(muser.ConfigError):
        compare(path, path)


def test_dumps_of_other_kinds_are_refused(tmp_path: Path) -> None:
    rows = np.zeros((3, 4), np.float32)
    a = dump(tmp_path / "a.npy", rows)
    wide = dump(tmp_path / "b.npy", np.zeros((3, 5), np.float32))
    np.save(tmp_path / "c.npy", rows.astype(np.float64))
    with pytest.raises(muser.ConfigError, match="4 and of 5"):
        compare(a, wide)
    with pytest.raises(muser.ConfigError, match="float32"):
        compare(a, tmp_path / "c.npy")
    with pytest.raises(muser.ConfigError, match="holds"):
        compare(a, tokens(tmp_path / "t.jsonl", ["x"]))
