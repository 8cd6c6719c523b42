"""The ladder on small files: every exact schedule has the reference's bits at every position, every
inexact one is caught, and a run can be taken up again."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import muser
from muser import _core, gates
from muser.fixtures import fixed_tokens, synthetic_path
from muser.ladder import Ladder, Step, climb
from muser.ladder.html import page

WINDOW = 16
POSITIONS = [1, 31, 32, 33, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW + 3, 3 * WINDOW + 1]
TOKENS = [int(t) for t in fixed_tokens(80, 1024)]
EXACT = [row["name"] for row in _core.schedules() if row["exact"]]
INEXACT = ["dual_norm_4sg", "legacy", "hybrid"]


@cache
def ladder(kind: str) -> Ladder:
    path = str(synthetic_path(f"synthetic:{kind}"))
    return climb(path, positions=POSITIONS, tokens=TOKENS, samples=2)


def step(kind: str, name: str) -> Step:
    return next(s for s in ladder(kind).steps if s.step == name)


def test_the_table_declares_what_we_expect() -> None:
    assert EXACT == ["baseline", "production", "dual_norm", "gqa", "ring", "joined", "lean"]


@pytest.mark.parametrize("kind", ["tiny-q4_K", "tiny-f32"])
@pytest.mark.parametrize("name", EXACT)
def test_exact_schedules_have_the_references_bits(kind: str, name: str) -> None:
    found = step(kind, name)
    assert found.rows == step(kind, "baseline").rows
    assert found.differing_positions == ()
    assert not found.sha_changed
    assert found.verdict == ("reference" if name == "baseline" else "exact")
    assert found.post_mortem is None


@pytest.mark.parametrize("kind", ["tiny-q4_K", "tiny-f32"])
@pytest.mark.parametrize("name", INEXACT)
def test_inexact_schedules_are_caught_with_a_post_mortem(kind: str, name: str) -> None:
    found = step(kind, name)
    assert found.sha_changed
    assert len(found.differing_positions) >= 1
    assert found.diff is not None
    expected = "within contract" if found.diff["logprob_max"] <= 1e-4 else "rejected"
    assert found.verdict == expected
    assert found.post_mortem is not None
    assert found.post_mortem["closure"] is not None
    assert found.diff["differing"] > 0
    assert len(found.errors) == 101


def test_single_runs_and_streams_are_distinct_fields() -> None:
    found = step("tiny-q4_K", "production").as_dict()
    assert found["samples"] == 2
    assert found["streamed"]["samples"] == 5
    assert found["streamed"]["tok_s"] > 0
    assert found["device_ms"] > 0
    assert found["wall_ms"] > 0


def test_the_page_shows_every_step_and_its_verdict() -> None:
    text = page(ladder("tiny-q4_K"))
    for found in ladder("tiny-q4_K").steps:
        assert found.step in text
        assert found.row_sha256[:12] in text
    assert "rejected" in text
    assert "40.330" in text
    assert "http" not in text.replace("http-equiv", ""), "the page is self-contained"


def test_a_stored_step_is_taken_over_and_a_foreign_one_is_not(tmp_path: Path) -> None:
    path = str(synthetic_path("synthetic:tiny-q4_K"))
    names = ["baseline", "lean"]
    first = climb(path, positions=[5], tokens=TOKENS, schedules=names, samples=1, out=tmp_path)
    record = json.loads((tmp_path / "lean.json").read_text())
    record["step"]["wall_ms"] = 1234.5
    (tmp_path / "lean.json").write_text(json.dumps(record))
    again = climb(path, positions=[5], tokens=TOKENS, schedules=names, samples=1, out=tmp_path)
    assert again.steps[1].wall_ms == 1234.5
    assert again.steps[1].row_sha256 == first.steps[1].row_sha256
    other = climb(path, positions=[6], tokens=TOKENS, schedules=names, samples=1, out=tmp_path)
    assert other.steps[1].wall_ms != 1234.5
    (tmp_path / "lean.json").write_text("not json")
    climb(path, positions=[6], tokens=TOKENS, schedules=names, samples=1, out=tmp_path)
    assert json.loads((tmp_path / "lean.json").read_text())["schema"] == "muser.ladder/1"


def test_bad_input() -> None:
    path = str(synthetic_path("synthetic:tiny"))
    with pytest.raises(muser.ConfigError, match="no_such"):
        climb(path, positions=[1], tokens=TOKENS, schedules=["no_such"])
    with pytest.raises(muser.ConfigError):
        climb(path, positions=[], tokens=TOKENS)
    with pytest.raises(muser.ConfigError):
        climb(path, positions=[1000], tokens=TOKENS)


def test_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "muser", "ladder", "-m", "synthetic:tiny", "--json", "--samples",
         "1", "--positions", "17,1", "--html", str(tmp_path / "ladder.html")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["step"] for line in lines[:-1]] == [*EXACT, "legacy", "hybrid"] or len(lines) == 11
    for key in ("closures", "samples", "device_ms", "wall_ms", "cv", "row_sha256", "sha_changed"):
        assert all(key in line for line in lines[:-1])
    assert (tmp_path / "ladder.html").stat().st_size > 5000


@pytest.mark.sweep
def test_the_narrow_file_around_the_real_window() -> None:
    """52 layers, window 2,048: equal hashes before, at, after the wrap and past the second."""
    path = str(synthetic_path("synthetic:narrow"))
    tokens = [int(t) for t in fixed_tokens(4200, 1024)]
    found = climb(path, positions=[1, 31, 32, 33, 2047, 2048, 2049, 4100], tokens=tokens, samples=1)
    for one in found.steps:
        assert one.sha_changed == (one.step in INEXACT)


def test_without_room_for_two_engines_the_verdict_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> None:
        raise muser.DeviceMemoryError("no room", {})

    monkeypatch.setattr(gates, "stage_first_difference", no_room)
    path = str(synthetic_path("synthetic:tiny"))
    found = climb(path, positions=POSITIONS, tokens=TOKENS, schedules=["legacy"], samples=1)
    last = found.steps[-1]
    assert last.step == "legacy"
    assert last.sha_changed
    assert last.post_mortem is not None
    assert last.post_mortem["skipped"] == "no room"
    assert last.post_mortem["closure"] is last.post_mortem["kv"] is None
    assert "no room" in page(found)
