"""Greedy lanes: the device chooses and feeds by itself what single steps and np.argmax give."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import muser
from muser import _core, fixtures
from muser.fixtures.kinds import KINDS

FILE = "synthetic:tiny-q8_0"  # its greedy sequences hardly repeat themselves
START, WINDOW, LANE = 5, 16, 64
SCHEDULES = [row["name"] for row in _core.schedules()]
ROW_BYTES = {"Q8_0": 256 // 32 * 34}

Ids = NDArray[np.uint32]
Rows = NDArray[np.float32]


def load(path: str | Path = FILE, **settings: Any) -> muser.Engine:
    settings = {"device": "cpu", "context": 256, "threads": 1, **settings}
    return muser.load(path, config=muser.Config(allow_inexact=True, **settings))


def singly(engine: muser.Engine, token: int, count: int) -> tuple[Ids, Rows]:
    """The same by single steps."""
    ids, rows = [], []
    for _ in range(count):
        rows.append(engine.decode_token(token))
        token = int(np.argmax(rows[-1]))
        ids.append(token)
    return np.array(ids, np.uint32), np.stack(rows)


def same(found: tuple[Ids, Rows], expected: tuple[Ids, Rows]) -> bool:
    return all(
        (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        for a, b in zip(found, expected, strict=True)
    )


def planes(engine: muser.Engine) -> bytes:
    """All K and V rows held."""
    return b"".join(
        engine.kv(layer, plane).tobytes()
        for layer in range(engine.geometry["layers"])
        for plane in "kv"
    )


@pytest.fixture
def engine() -> Iterator[muser.Engine]:
    with load() as made:
        yield made


# --- the bits of single steps -----------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_ids_and_rows_are_those_of_single_steps(schedule: str) -> None:
    """Across the ring's edge and over three lanes, the last of them short."""
    count = 2 * LANE + 9
    with load(schedule=schedule) as engine:
        expected = singly(engine, START, count)
        assert len(set(expected[0].tolist())) > 50
        further = engine.decode_token(7).tobytes()
        for threads in (1, 2):
            with load(schedule=schedule, threads=threads) as other:
                assert same(other.greedy(START, count, rows=True), expected)
                assert other.position == count
                assert other.decode_token(7).tobytes() == further
        engine.reset()
        assert engine.greedy(START, count).tobytes() == expected[0].tobytes()
        assert engine.decode_token(7).tobytes() == further


@pytest.mark.parametrize(
    "settings",
    [
        {"barriers": "planned"},
        {"barriers": "all"},
        {"serial_dispatch": True},
        {"kv_dtype": "f32"},
        {"device": "emulator", "schedule": "production"},
        {"device": "emulator", "schedule": "lean", "seed": 5},
        {"device": "emulator", "schedule": "joined", "barriers": "planned", "seed": 6},
    ],
    ids=str,
)
def test_devices_and_barriers_change_nothing(settings: dict[str, Any]) -> None:
    count = WINDOW + 2
    kept = {name: value for name, value in settings.items() if name == "kv_dtype"}
    with load(**kept) as engine:
        expected = singly(engine, START, count)
    with load(**settings) as engine:
        assert same(engine.greedy(START, count, rows=True), expected)


def test_calls_follow_each_other_and_other_steps(engine: muser.Engine) -> None:
    prompt = [3, 900, 17, 256, 1000]
    engine.prefill(prompt)
    expected = singly(engine, START, 40)
    engine.reset()
    engine.prefill(prompt)
    ids = np.concatenate([engine.greedy(START, 11), np.zeros(0, np.uint32)])
    ids = np.concatenate([ids, engine.greedy(ids[-1], 1)])
    lane = engine.teacher_forced([ids[-1], *expected[0][12:19]])
    assert lane.tobytes() == expected[1][12:20].tobytes()
    assert engine.decode_token(expected[0][19]).tobytes() == expected[1][20].tobytes()
    ids = np.concatenate([ids, expected[0][12:21], engine.greedy(expected[0][20], 19)])
    assert ids.tobytes() == expected[0].tobytes()


# --- the choice -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary of three groups, the last of them ragged."""
    path = tmp_path_factory.mktemp("greedy") / "wide.gguf"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KINDS, "wide", replace(KINDS["tiny"], name="wide", vocab=2 * 1024 + 500))
        fixtures.write("wide", path, types="q8_0")
    return path


def changed(path: Path, out: Path, tensor: str, rows: dict[int, int | None]) -> Path:
    """A copy of the file with rows of a matrix replaced by others, or by infinities."""
    (found,) = [t for t in muser.inspect(path)["tensors"] if t["name"] == tensor]
    size = ROW_BYTES[found["type"]]
    data = bytearray(path.read_bytes())
    start = found["offset"]
    for row, source in rows.items():
        at = start + row * size
        if source is None:
            data[at : at + size] = b"\x00\x7c" + bytes(size - 2)  # infinity as a scale, times 0
        else:
            data[at : at + size] = data[start + source * size : start + (source + 1) * size]
    out.write_bytes(data)
    return out


@pytest.mark.parametrize("device", ["cpu", "emulator"])
def test_many_groups(wide: Path, device: str) -> None:
    with load(wide) as engine:
        expected = singly(engine, START, 40)
    assert {int(i) // 1024 for i in expected[0]} == {0, 1, 2}
    count = 40 if device == "cpu" else 5
    with load(wide, device=device) as engine:
        found = engine.greedy(START, count, rows=True)
    assert same(found, (expected[0][:count], expected[1][:count]))


@pytest.mark.parametrize("device", ["cpu", "emulator"])
def test_the_lowest_id_of_a_tie(wide: Path, tmp_path: Path, device: str) -> None:
    """Rows of the head copied: their logits are equal to the last bit."""
    with load(wide) as engine:
        best = int(singly(engine, START, 1)[0][0])
    others = [best % 1024 + 1024 * group for group in range(3)]
    others = [i for i in [*others, best - 1, best - 40, best + 40] if 0 <= i < 2548]
    path = changed(wide, tmp_path / "tie.gguf", "output.weight", dict.fromkeys(others, best))
    with load(path, device=device) as engine:
        ids, rows = engine.greedy(START, 3, rows=True)
        assert (rows[0] == rows[0].max()).sum() == len({*others, best}) > 3
        assert ids[0] == min(*others, best) < best
        engine.reset()
        assert same((ids, rows), singly(engine, START, 3))


# --- stop -------------------------------------------------------------------------------------


def first_stop(ids: Ids, at: int) -> int:
    """The step at or after `at` whose choice had not come before."""
    return next(i for i in range(at, len(ids)) if ids[i] not in ids[:i])


@pytest.mark.parametrize("at", [0, 1, 9, WINDOW - 1, WINDOW, 40, LANE - 1, LANE, 100])
def test_nothing_after_a_stop_is_kept(engine: muser.Engine, at: int) -> None:
    ids, rows = singly(engine, START, 130)
    at = first_stop(ids, at)
    stop = [int(ids[at]), 1]
    assert 1 not in ids
    engine.reset()
    found = engine.greedy(START, 130, rows=True, stop=stop)
    assert same(found, (ids[: at + 1], rows[: at + 1]))
    assert engine.position == at + 1
    with load() as plain:
        singly(plain, START, at + 1)
        assert planes(engine) == planes(plain)
        # The journal is shorter where rows of it were used up.
        if at < WINDOW:
            assert engine.snapshot() == plain.snapshot()
        assert same(singly(engine, 8, 20), singly(plain, 8, 20))
    engine.reset()
    assert engine.greedy(START, 130, stop=stop).tobytes() == ids[: at + 1].tobytes()


def test_a_stop_at_the_last_step_or_none(engine: muser.Engine) -> None:
    ids, _ = singly(engine, START, 120)
    for count in (1, 2, 30, LANE, LANE + 1, 100):
        last = first_stop(ids, count - 1)
        engine.reset()
        found = engine.greedy(START, last + 1, stop=iter([ids[last]]))
        assert found.tobytes() == ids[: last + 1].tobytes()
        assert engine.position == last + 1
    engine.reset()
    assert 1 not in ids
    assert engine.greedy(START, 120, stop=[1]).tobytes() == ids.tobytes()


@pytest.mark.parametrize("rollback_max", [0, 1, 3, 30])
def test_a_stop_with_a_short_journal(rollback_max: int) -> None:
    with load() as plain:
        ids, rows = singly(plain, START, 60)
        at = first_stop(ids, 41)
        plain.reset()
        singly(plain, START, at + 1)
        further = singly(plain, 8, 20)
    with load(rollback_max=rollback_max) as engine:
        found = engine.greedy(START, 60, rows=True, stop=[ids[at]])
        assert same(found, (ids[: at + 1], rows[: at + 1]))
        assert same(singly(engine, 8, 20), further)
        engine.reset()
        assert engine.greedy(START, 60).tobytes() == ids.tobytes()


# --- what is refused, and what fails ----------------------------------------------------------


def test_the_context_is_the_limit() -> None:
    with load(context=70) as engine:
        ids, _ = singly(engine, START, 70)
        engine.reset()
        for stop in ([], [int(ids[0])]):
            for count in (71, 1 << 70):
                with pytest.raises(muser.ContextFullError):
                    engine.greedy(START, count, stop=stop)
        assert engine.position == 0
        assert engine.greedy(START, 70).tobytes() == ids.tobytes()
        with pytest.raises(muser.ContextFullError):
            engine.greedy(START, 1)
        with pytest.raises(muser.ContextFullError):
            engine.core.greedy(START, 1, False, [])
        assert engine.greedy(START, 0).shape == (0,)


@pytest.mark.parametrize("token", [-1, 1024, 1 << 40])
def test_tokens_outside_the_vocabulary(engine: muser.Engine, token: int) -> None:
    for first, stop in ((token, []), (1, [2, token])):
        with pytest.raises(muser.TokenRangeError):
            engine.greedy(first, 3, stop=stop)
    assert engine.position == 0


@pytest.mark.parametrize("count", [-1, 1.0, "3", None, True])
def test_counts_that_are_none(engine: muser.Engine, count: Any) -> None:
    with pytest.raises(muser.ConfigError):
        engine.greedy(1, count)
    assert engine.position == 0


def test_untracked_buffers_are_refused() -> None:
    with load(barriers="planned", untracked=True) as engine:
        with pytest.raises(muser.ConfigError, match="in flight"):
            engine.greedy(START, 2)
        assert engine.position == 0
        engine.decode_token(START)


@pytest.fixture
def poisoned(tmp_path: Path) -> tuple[Path, Ids, int]:
    """A file whose greedy sequence meets a row that is not finite, the ids before, and the step."""
    source = fixtures.synthetic_path(FILE)
    with load() as engine:
        ids, _ = singly(engine, START, 130)
    at = first_stop(ids, 90)
    path = changed(source, tmp_path / "bad.gguf", "token_embd.weight", {int(ids[at]): None})
    return path, ids, at + 1


def test_a_row_that_is_not_finite_takes_its_lane_back(poisoned: tuple[Path, Ids, int]) -> None:
    path, ids, bad = poisoned
    with load(path) as engine:
        for rows in (False, True):
            engine.reset()
            with pytest.raises(muser.NonFiniteError) as caught:
                engine.greedy(START, 130, rows=rows)
            assert caught.value.facts["position"] == bad + 1
            assert engine.position == LANE
        assert engine.greedy(ids[LANE - 1], bad - LANE).tobytes() == ids[LANE:bad].tobytes()
    with load(path, rollback_max=40) as engine:  # too short for a lane of 64
        with pytest.raises(muser.NonFiniteError):
            engine.greedy(START, 2 * LANE)
        assert engine.position == 2 * LANE


def test_a_row_behind_a_stop_does_not_count(poisoned: tuple[Path, Ids, int]) -> None:
    path, ids, bad = poisoned
    stop = first_stop(ids, bad - 9)
    assert LANE < stop < bad - 1
    with load(path) as engine:
        found = engine.greedy(START, 130, stop=[ids[stop]])
        assert found.tobytes() == ids[: stop + 1].tobytes()
        engine.rollback(1)
        with pytest.raises(muser.NonFiniteError):
            engine.greedy(ids[stop - 1], 20)
        assert engine.position == stop


@pytest.mark.parametrize("buffer", [2, 3, 4])
def test_one_failing_buffer_kills_the_lane(buffer: int) -> None:
    engine = load(faults={"device_error_in_buffer": buffer})
    with pytest.raises(muser.DeviceError) as caught:
        engine.greedy(START, 3)
    assert caught.value.facts["code"] == 2
    assert engine.closed
    with pytest.raises(muser.EngineClosed):
        engine.greedy(START, 3)


def test_a_hang_ends_on_time() -> None:
    engine = load(faults={"device_hang": 3}, wait_seconds=1.0)
    with pytest.raises(muser.DeadlineError):
        engine.greedy(START, 3)
    assert engine.closed


def test_buffers_refused_are_met_before_anything_runs() -> None:
    """A lane's own buffers are made on first use."""
    for allocation in range(100, 1000):
        try:
            engine = load(faults={"device_refuse_allocation": allocation})
            break
        except muser.DeviceMemoryError:
            continue
    with engine, load() as sound:
        with pytest.raises(muser.DeviceMemoryError) as caught:
            engine.greedy(START, 20)
        assert "lane" in str(caught.value)
        assert (engine.position, engine.closed) == (0, False)
        assert engine.greedy(START, 20).tobytes() == sound.greedy(START, 20).tobytes()


def test_ctrl_c_leaves_whole_lanes() -> None:
    program = """
        import json, os, signal, threading, muser
        engine = muser.load("synthetic:tiny-q8_0", config=muser.Config(context=8192, threads=1))
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            engine.greedy(5, 8192)
            interrupted = False
        except KeyboardInterrupt:
            interrupted = True
        told = {"interrupted": interrupted, "closed": engine.closed}
        if not engine.closed:
            told["position"] = at = engine.position
            row = engine.decode_token(9)
            engine.reset()
            engine.greedy(5, at)
            told["same"] = row.tobytes() == engine.decode_token(9).tobytes()
        print(json.dumps(told))
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["interrupted"] and told["same"] and not told["closed"]
    assert told["position"] < 8192
    assert told["position"] % LANE == 0
