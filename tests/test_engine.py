"""The engine's promises to its callers: arguments, threads, interruption, ends, state, memory."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import muser
from muser import memory
from muser.fixtures import fixed_tokens, synthetic_path

TOKENS = [int(token) for token in fixed_tokens(100, 1024)]
# Long enough that a second thread finds the engine at work.
MANY = [int(token) for token in fixed_tokens(3000, 1024)]


@pytest.fixture
def engine() -> Iterator[muser.Engine]:
    with muser.load("synthetic:tiny", config=muser.Config(context=128, threads=1)) as made:
        yield made


@pytest.fixture
def long_engine() -> Iterator[muser.Engine]:
    with muser.load("synthetic:tiny", config=muser.Config(context=4096, threads=1)) as made:
        yield made


# --- arguments --------------------------------------------------------------------------------


def test_a_row_is_a_fresh_array(engine: muser.Engine) -> None:
    first = engine.decode_token(1)
    second = engine.decode_token(2)
    assert first.dtype == np.float32
    assert first.shape == (engine.vocab,) == (1024,)
    assert not np.shares_memory(first, second)
    assert first.flags.owndata or first.base is not None


def test_out_is_filled_and_returned(engine: muser.Engine) -> None:
    expected = engine.decode_token(1)
    engine.reset()
    out = np.full(1024, np.nan, np.float32)
    assert engine.decode_token(1, out=out) is out
    assert out.tobytes() == expected.tobytes()
    rows = np.empty((3, 1024), np.float32)
    engine.reset()
    engine.decode_token(1, out=rows[1])
    assert rows[1].tobytes() == expected.tobytes()
    engine.reset()
    row, stages = engine.decode_token(1, capture=[], out=out)
    assert row is out
    assert stages == {}


def _read_only() -> Any:
    row = np.empty(1024, np.float32)
    row.flags.writeable = False
    return row


@pytest.mark.parametrize(
    ("out", "found"),
    [
        (np.empty(1024, np.float64), "float64"),
        (np.empty(1023, np.float32), "1023"),
        (np.empty((1, 1024), np.float32), "1, 1024"),
        (np.empty(2048, np.float32)[::2], "not contiguous"),
        (np.empty(1024, ">f4"), ">f4"),
        (_read_only(), "read-only"),
        ([0.0] * 1024, "list"),
        (bytearray(4096), "bytearray"),
    ],
)
def test_a_wrong_out_is_refused_before_the_step(engine: muser.Engine, out: Any, found: str) -> None:
    with pytest.raises(muser.ConfigError) as caught:
        engine.decode_token(1, out=out)
    assert found in str(caught.value.facts["found" if "found" in caught.value.facts else "value"])
    assert engine.position == 0


@pytest.mark.parametrize("token", [-1, 1024, 1 << 31, 1 << 40, -(1 << 70)])
def test_tokens_outside_the_vocabulary(engine: muser.Engine, token: int) -> None:
    feeds: list[Callable[[], object]] = [
        lambda: engine.decode_token(token),
        lambda: engine.prefill([1, token]),
        lambda: engine.teacher_forced([1, token]),
    ]
    for feed in feeds:
        with pytest.raises(muser.TokenRangeError) as caught:
            feed()
        assert caught.value.facts["value"] == token
    assert engine.position == 0


@pytest.mark.parametrize("token", [1.0, "1", None, True, np.bool_(True), np.float32(1)])
def test_tokens_that_are_no_integers(engine: muser.Engine, token: Any) -> None:
    with pytest.raises(muser.ConfigError):
        engine.decode_token(token)


def test_any_integer_type_is_a_token(engine: muser.Engine) -> None:
    rows = []
    for token in (7, np.int32(7), np.uint64(7), np.int8(7)):
        engine.reset()
        rows.append(engine.decode_token(token).tobytes())
    assert len(set(rows)) == 1
    engine.reset()
    engine.prefill(np.array([7], np.int16))


def test_nothing_to_feed_is_refused(engine: muser.Engine) -> None:
    nothing: list[Any] = [[], "12", b"12"]
    for tokens in nothing:
        with pytest.raises(muser.ConfigError):
            engine.prefill(tokens)


@pytest.mark.parametrize("label", ["blk.8.attention", "attention", "blk.0.nothing", ""])
def test_unknown_capture_labels(engine: muser.Engine, label: str) -> None:
    with pytest.raises(muser.ConfigError):
        engine.decode_token(1, capture=[label])
    assert engine.position == 0
    engine.decode_token(1)


def test_the_context_is_the_limit() -> None:
    with muser.load("synthetic:tiny", config=muser.Config(context=3)) as engine:
        rows = engine.prefill(TOKENS[:3], all_rows=True)
        with pytest.raises(muser.ContextFullError) as caught:
            engine.decode_token(1)
        assert caught.value.facts["context"] == 3
        assert engine.position == 3
        engine.reset()
        with pytest.raises(muser.ContextFullError):
            engine.prefill(TOKENS[:4])
        with pytest.raises(muser.ContextFullError):
            engine.check_room(TOKENS[:2], 2)
        engine.check_room(TOKENS[:2], 1)
        assert engine.position == 0
        assert engine.prefill(TOKENS[:3], all_rows=True).tobytes() == rows.tobytes()


def test_settings_that_the_file_or_the_table_refuse() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"context": 131_073}, "131072"),
        ({"schedule": "fastest"}, "baseline"),
        ({"schedule": "legacy"}, "allow_inexact"),
    ]
    for settings, named in refused:
        with pytest.raises(muser.ConfigError, match=named):
            muser.load("synthetic:tiny", config=muser.Config(**settings))
    inexact = muser.Config(schedule="legacy", allow_inexact=True)
    with muser.load("synthetic:tiny", config=inexact) as engine:
        assert np.isfinite(engine.decode_token(1)).all()


def test_device_beats_config() -> None:
    with muser.load("synthetic:tiny", "cpu", muser.Config(device="emulator")) as engine:
        assert engine.device["name"] == "cpu"
    with pytest.raises(muser.ConfigError, match="config is"):
        muser.load("synthetic:tiny", config={"threads": 1})  # type: ignore[arg-type]


def test_files_that_are_not_there_or_not_models(tmp_path: Path) -> None:
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"GGUF" + bytes(100))
    for path in (tmp_path / "missing.gguf", tmp_path, junk):
        with pytest.raises((muser.GGUFError, OSError)):
            muser.load(path)
        with pytest.raises((muser.GGUFError, OSError)):
            muser.inspect(path)


# --- threads and ends -------------------------------------------------------------------------


def test_a_second_caller_is_told_at_once(long_engine: muser.Engine) -> None:
    rows: list[Any] = []
    worker = threading.Thread(target=lambda: rows.append(long_engine.prefill(MANY)))
    worker.start()
    refused, slowest = 0, 0.0
    while worker.is_alive():
        started = time.monotonic()
        try:
            long_engine.kv(0, "k", 0, 0)
        except muser.EngineBusy:
            refused += 1
            slowest = max(slowest, time.monotonic() - started)
        except muser.MuserError:
            pass
        time.sleep(0.001)
    worker.join()
    assert refused > 0
    assert slowest < 1
    assert long_engine.position == len(MANY)
    long_engine.reset()
    assert long_engine.prefill(MANY).tobytes() == rows[0].tobytes()


def test_closing_waits_for_the_step(long_engine: muser.Engine) -> None:
    ended: list[object] = []

    def work() -> None:
        try:
            ended.append(long_engine.prefill(MANY).shape)
        except muser.MuserError as error:
            ended.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    while long_engine_is_idle(long_engine):
        time.sleep(0.0005)
    long_engine.close()
    worker.join(60)
    assert len(ended) == 1
    assert ended[0] == (1024,) or isinstance(ended[0], muser.EngineClosed)
    assert long_engine.closed
    with pytest.raises(muser.EngineClosed):
        long_engine.decode_token(1)


def long_engine_is_idle(engine: muser.Engine) -> bool:
    """True until another thread's call has begun."""
    try:
        return engine.position == 0
    except muser.EngineBusy:
        return False


def test_a_closed_engine_says_so(engine: muser.Engine) -> None:
    assert not engine.closed
    engine.close()
    engine.close()
    assert engine.closed
    assert "closed" in repr(engine)
    uses: list[Callable[[], object]] = [
        lambda: engine.decode_token(1),
        lambda: engine.prefill([1]),
        lambda: engine.reset(),
        lambda: engine.snapshot(),
        lambda: engine.rollback(0),
        lambda: engine.position,
        lambda: engine.plan,
    ]
    for use in uses:
        with pytest.raises(muser.EngineClosed):
            use()


def test_engines_are_freed_without_close() -> None:
    before = threading.active_count()
    for _ in range(20):
        muser.load("synthetic:tiny", config=muser.Config(context=16)).decode_token(1)
    gc.collect()
    assert threading.active_count() == before


def test_two_engines_at_once_do_not_mix() -> None:
    config = muser.Config(context=128, threads=1)
    expected = {}
    for name in ("synthetic:tiny", "synthetic:tiny-f32"):
        with muser.load(name, config=config) as engine:
            expected[name] = engine.prefill(TOKENS, all_rows=True).tobytes()
    found: dict[str, bytes] = {}

    def work(name: str) -> None:
        with muser.load(name, config=config) as engine:
            found[name] = b"".join(engine.decode_token(token).tobytes() for token in TOKENS)

    workers = [threading.Thread(target=work, args=(name,)) for name in expected]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == expected


def script(text: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **kwargs,
    )


def test_ctrl_c_leaves_a_whole_state() -> None:
    done = script(
        """
        import json, os, signal, threading, muser
        from muser.fixtures import fixed_tokens
        tokens = [int(t) for t in fixed_tokens(3000, 1024)]
        engine = muser.load("synthetic:tiny", config=muser.Config(context=4096, threads=1))
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            engine.prefill(tokens)
            interrupted = False
        except KeyboardInterrupt:
            interrupted = True
        told = {"interrupted": interrupted, "closed": engine.closed}
        if not engine.closed:
            told["position"] = at = engine.position
            row = engine.prefill(tokens[at:at + 20])
            engine.reset()
            told["same"] = row.tobytes() == engine.prefill(tokens[:at + 20]).tobytes()
        print(json.dumps(told))
        """
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["interrupted"]
    assert not told["closed"]
    assert told["same"]
    assert told["position"] < 3000


def test_the_interpreter_may_end_while_a_daemon_thread_steps() -> None:
    done = script(
        """
        import threading, time, muser
        engine = muser.load("synthetic:tiny", config=muser.Config(context=100000, threads=2))
        started = threading.Event()
        def work():
            try:
                while True:
                    engine.decode_token(1)
                    started.set()
            except muser.EngineClosed:
                pass
        threading.Thread(target=work, daemon=True).start()
        started.wait()
        time.sleep(0.05)
        print("end", flush=True)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_a_forked_child_gets_a_typed_error_and_the_parent_goes_on() -> None:
    done = script(
        """
        import os, sys, warnings
        warnings.simplefilter("ignore")
        import muser
        engine = muser.load("synthetic:tiny", config=muser.Config(context=64, threads=2))
        before = engine.decode_token(1)
        child = os.fork()
        if child == 0:
            try:
                engine.decode_token(2)
            except muser.ForkError:
                engine.close()
                sys.exit(42)  # with everything that the interpreter does at its end
            sys.exit(1)
        _, status = os.waitpid(child, 0)
        engine.decode_token(2)
        engine.reset()
        same = engine.decode_token(1).tobytes() == before.tobytes()
        print(os.waitstatus_to_exitcode(status), same)
        """
    )
    assert (done.stdout, done.stderr) == ("42 True\n", "")


def test_the_host_processes_float_mode_is_left_alone(engine: muser.Engine) -> None:
    tiny = np.float32(1e-40)
    engine.decode_token(1)
    assert tiny * np.float32(1) != 0
    assert 5e-324 * 1.0 != 0


# --- state ------------------------------------------------------------------------------------


def rows_of(engine: muser.Engine, tokens: list[int]) -> bytes:
    return b"".join(engine.decode_token(token).tobytes() for token in tokens)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 32, 33, 49])
def test_a_snapshot_goes_on_where_it_was_taken(length: int) -> None:
    config = muser.Config(context=128, threads=1)
    after = TOKENS[length : length + 16]
    with muser.load("synthetic:tiny", config=config) as engine:
        if length:
            engine.prefill(TOKENS[:length])
        blob = engine.snapshot()
        expected = rows_of(engine, after)
        for _ in range(2):
            engine.restore(blob)
            assert engine.position == length
            assert rows_of(engine, after) == expected
    other = muser.Config(context=100, threads=2, schedule="baseline")
    with muser.load("synthetic:tiny", config=other) as engine:
        engine.prefill(TOKENS[50:80])
        engine.restore(blob)
        assert engine.snapshot() == blob
        assert rows_of(engine, after) == expected


def test_a_fresh_process_restores_a_snapshot(engine: muser.Engine, tmp_path: Path) -> None:
    engine.prefill(TOKENS[:40])
    (tmp_path / "state").write_bytes(engine.snapshot())
    expected = muser.row_sha256(engine.decode_token(TOKENS[40]))
    done = script(
        """
        import pathlib, muser
        engine = muser.load("synthetic:tiny", config=muser.Config(context=128))
        engine.restore(pathlib.Path("state").read_bytes())
        from muser.fixtures import fixed_tokens
        token = fixed_tokens(41, 1024)[40]
        print(engine.position, muser.row_sha256(engine.decode_token(token)))
        """,
        cwd=tmp_path,
    )
    assert done.stdout.split() == ["40", expected], done.stderr


def test_a_refused_snapshot_changes_nothing(engine: muser.Engine) -> None:
    engine.prefill(TOKENS[:30])
    blob = engine.snapshot()
    damaged = bytearray(blob)
    damaged[-1] ^= 1
    for bad in (bytes(damaged), blob[:-1], b"", blob + b"x"):
        with pytest.raises(muser.SnapshotError):
            engine.restore(bad)
    for file, kv_dtype in (("synthetic:tiny-f32", "f16"), ("synthetic:tiny", "f32")):
        other = muser.load(file, config=muser.Config(context=128, kv_dtype=kv_dtype))
        with other, pytest.raises(muser.SnapshotError):
            other.restore(blob)
    with muser.load("synthetic:tiny", config=muser.Config(context=29)) as small:
        small.decode_token(5)
        with pytest.raises(muser.ContextFullError):
            small.restore(blob)
        assert small.position == 1
    assert engine.snapshot() == blob


@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 48, 63, 64])
def test_rollback_is_as_if_it_had_not_been(count: int) -> None:
    config = muser.Config(context=200, threads=1)
    with muser.load("synthetic:tiny", config=config) as engine:
        engine.prefill(TOKENS[: 90 - count])
        want = rows_of(engine, TOKENS[10:30])
        engine.reset()
        engine.prefill(TOKENS[:90])
        engine.rollback(count)
        assert engine.position == 90 - count
        assert rows_of(engine, TOKENS[10:30]) == want


def test_a_rollback_too_far_changes_nothing(engine: muser.Engine) -> None:
    engine.prefill(TOKENS[:90])
    blob = engine.snapshot()
    for count in (65, 91, 1 << 40):
        with pytest.raises(muser.RollbackError):
            engine.rollback(count)
    assert engine.snapshot() == blob
    with pytest.raises(muser.ConfigError):
        engine.rollback(-1)
    engine.rollback(64)
    assert engine.position == 26


def test_kv_rows_by_position(engine: muser.Engine) -> None:
    engine.prefill(TOKENS[:40])
    local, whole = engine.kv(0, "k"), engine.kv(3, "v")
    assert local.shape == (16, 2, 64)
    assert whole.shape == (40, 2, 64)
    assert local.dtype == whole.dtype == np.float16
    assert np.array_equal(engine.kv(0, "k", 30, 5), local[6:11])
    for layer, plane, first, count in ((0, "k", 23, 1), (0, "k", 40, 1), (3, "v", 39, 2)):
        with pytest.raises(muser.ConfigError):
            engine.kv(layer, plane, first, count)
    for layer, plane in ((8, "k"), (-1, "k"), (0, "q")):
        with pytest.raises(muser.ConfigError):
            engine.kv(layer, plane)


# --- what it tells ----------------------------------------------------------------------------


def test_the_plan_tells_closures_and_their_hash() -> None:
    plans = {}
    for schedule in ("baseline", "production"):
        with muser.load("synthetic:tiny", config=muser.Config(schedule=schedule)) as engine:
            plans[schedule] = engine.plan_at(100)
            before = engine.plan_at(3)
            assert engine.plan == engine.plan_at(0)
            engine.decode_token(1)
            assert engine.plan_at(100) == plans[schedule]
            # Six local layers of tiny stage once the ring has wrapped.
            assert len(plans[schedule].closures) == len(before.closures) + 6
            assert plans[schedule].hash != before.hash
    base, production = plans["baseline"], plans["production"]
    assert len(base.closures) == 6 * 15 + 2 * 13 + 6
    assert [label for label in base.closures if label not in production.closures] == [
        "copy_last_row"
    ]
    assert base.hash != production.hash
    assert len(base.hash) == 64
    json.dumps(base.summary())


def test_a_receipt_is_json_and_complete(engine: muser.Engine, tmp_path: Path) -> None:
    told = json.loads(json.dumps(engine.receipt(full=True)))
    assert told["schema"] == "muser.receipt/1"
    assert told["contract"] == 1
    assert told["plan"]["hash"] == engine.plan.hash
    assert told["threads"] == engine.device["threads"] == 1
    assert told["isa"] == engine.device["isa"]
    assert told["file"]["file_bytes"] == Path(engine.path).stat().st_size
    assert len(told["file"]["file_sha256"]) == 64
    assert told["config"]["threads"] == 1
    assert set(told["versions"]) == {"muser", "python", "numpy"}


def test_flags_in_a_receipt_are_those_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSER_THREADS", "2")
    with muser.load("synthetic:tiny") as engine:
        monkeypatch.delenv("MUSER_THREADS")
        assert engine.receipt()["flags"] == {"MUSER_THREADS": "2"}
        assert engine.device["threads"] == 2


def test_a_file_that_changed_has_no_receipt(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(synthetic_path("tiny").read_bytes())
    with muser.load(path) as engine:
        with path.open("ab") as file:
            file.write(b"x")
        with pytest.raises(muser.GGUFError, match="when it was opened"):
            engine.receipt()


def test_memory_is_checked_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with muser.load("synthetic:tiny") as engine:
        need = engine.memory["total"]
        parts = sum(
            size for key, size in engine.memory.items() if key not in {"total", "weights_mapped"}
        )
    assert need == parts > 0
    monkeypatch.setattr(memory, "available", lambda: need - 1)
    with pytest.raises(muser.DeviceMemoryError) as caught:
        muser.load("synthetic:tiny")
    assert caught.value.facts["needed"] == need
    muser.load("synthetic:tiny", config=muser.Config(force_memory=True)).close()
    monkeypatch.setattr(memory, "available", lambda: need)
    muser.load("synthetic:tiny").close()


def test_the_estimate_grows_with_context_and_type() -> None:
    sizes = {}
    for context in (128, 256):
        for kv_dtype in ("f16", "f32"):
            config = muser.Config(context=context, kv_dtype=kv_dtype)
            with muser.load("synthetic:tiny", config=config) as engine:
                sizes[context, kv_dtype] = engine.memory["kv"]
    assert sizes[128, "f32"] == 2 * sizes[128, "f16"]
    # Two global layers of two heads of 64, K and V, two bytes each.
    assert sizes[256, "f16"] - sizes[128, "f16"] == 2 * 2 * (2 * 64) * 2 * 128
