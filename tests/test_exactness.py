"""One file and one token sequence give one set of bytes, whatever runs them and however."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import muser
from muser import _core
from muser.fixtures import fixed_tokens, synthetic_path

WINDOW = 16
COUNT = 3 * WINDOW + 20  # past the second wrap, and past a chunk of 64 positions
TOKENS = [int(token) for token in fixed_tokens(COUNT, 1024)]
ISAS: list[str] = next(d["isas"] for d in _core.devices() if d["name"] == "cpu")
EXACT: list[str] = [row["name"] for row in _core.schedules() if row["exact"]]
FILES = ("tiny", "tiny-f32", "tiny-q8_0")


def decode(file: str, **settings: Any) -> NDArray[np.float32]:
    config = muser.Config(context=128, **{"device": "cpu", **settings})
    with muser.load(synthetic_path(file), config=config) as engine:
        return np.stack([engine.decode_token(token) for token in TOKENS])


_rows: dict[tuple[str, str], bytes] = {}


def expected(file: str, kv_dtype: str = "f16") -> bytes:
    key = (file, kv_dtype)
    if key not in _rows:
        _rows[key] = decode(file, threads=1, isa="portable", kv_dtype=kv_dtype).tobytes()
    return _rows[key]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_thread_counts(file: str, threads: int) -> None:
    assert decode(file, threads=threads).tobytes() == expected(file)


@pytest.mark.parametrize("kv_dtype", ["f16", "f32"])
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("isa", ISAS)
def test_instruction_sets(file: str, isa: str, kv_dtype: str) -> None:
    rows = decode(file, isa=isa, kv_dtype=kv_dtype)
    assert rows.tobytes() == expected(file, kv_dtype)


def test_kv_types_do_differ() -> None:
    assert expected("tiny", "f16") != expected("tiny", "f32")


@pytest.mark.parametrize("schedule", EXACT)
def test_exact_schedules(schedule: str) -> None:
    assert decode("tiny", schedule=schedule).tobytes() == expected("tiny")


@pytest.mark.parametrize(
    "settings",
    [
        {"barriers": "planned"},
        {"barriers": "all"},
        {"serial_dispatch": True},
        {"ffn_gate_up": True},
        {"untracked": True, "barriers": "planned"},
    ],
    ids=str,
)
def test_flags_that_claim_to_be_exact(settings: dict[str, Any]) -> None:
    assert decode("tiny", **settings).tobytes() == expected("tiny")


def test_the_isa_used_is_told_and_an_unknown_one_refused() -> None:
    for isa in ISAS:
        with muser.load("synthetic:tiny", config=muser.Config(device="cpu", isa=isa)) as engine:
            assert engine.device["isa"] == isa
    with pytest.raises(muser.ConfigError):
        muser.load("synthetic:tiny", config=muser.Config(device="cpu", isa="sve9"))


def test_prefill_lanes_and_steps_are_one() -> None:
    with muser.load("synthetic:tiny", config=muser.Config(device="cpu", context=128)) as engine:
        assert engine.prefill(TOKENS, all_rows=True).tobytes() == expected("tiny")
        engine.reset()
        lanes = [engine.teacher_forced(TOKENS[:50]), engine.teacher_forced(TOKENS[50:])]
        assert np.concatenate(lanes).tobytes() == expected("tiny")


def test_capture_changes_nothing_and_gives_what_the_closure_wrote() -> None:
    config = muser.Config(device="cpu", context=128, schedule="production")
    with muser.load("synthetic:tiny", config=config) as engine:
        rows = []
        for token in TOKENS:
            labels = ["blk.0.attn_norm", "blk.3.attention", "blk.7.qkvg", "lm_head", "softcap"]
            row, stages = engine.decode_token(token, capture=labels)
            rows.append(row)
            shape = engine.geometry
            assert stages["blk.0.attn_norm"].shape == (shape["hidden"],)
            assert stages["blk.3.attention"].shape == (shape["heads"] * shape["head_dim"],)
            assert stages["blk.7.qkvg.k"].shape == (shape["kv_heads"] * shape["head_dim"],)
            assert stages["softcap"].tobytes() == row.tobytes()
            scale = np.float32(shape["logit_scale"])
            bare = stages["lm_head"].astype(np.float64) * scale
            assert np.allclose(shape["softcap"] * np.tanh(bare / shape["softcap"]), row, atol=1e-5)
        assert np.stack(rows).tobytes() == expected("tiny")


def test_every_closure_of_the_plan_can_be_captured() -> None:
    with muser.load("synthetic:tiny", config=muser.Config(context=128)) as engine:
        for position in (0, WINDOW):
            while engine.position < position:
                engine.decode_token(1)
            labels = list(engine.plan.closures)
            row, stages = engine.decode_token(1, capture=labels)
            for label in labels:
                assert any(name == label or name.startswith(f"{label}.") for name in stages), label
            assert all(np.isfinite(values).all() for values in stages.values())
            assert np.isfinite(row).all()


def test_windows_met_exactly_at_their_edge() -> None:
    """The oldest key a window sees changes the row, the next older one does not."""
    config = muser.Config(device="cpu", context=128, schedule="ring")
    with muser.load("synthetic:tiny", config=config) as engine:
        for last in (WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW + 3):
            engine.reset()
            engine.prefill(TOKENS[:last])
            clean = engine.decode_token(TOKENS[last])
            held = engine.kv(0, "k")
            assert len(held) == min(last + 1, WINDOW)
            engine.rollback(1)
            oldest = max(0, last - WINDOW + 1)
            row = engine.kv(0, "k", oldest, 1)[0]
            engine.set_kv(0, "k", oldest, -row)
            assert engine.decode_token(TOKENS[last]).tobytes() != clean.tobytes()


@pytest.mark.sweep
def test_fifty_runs_beside_a_cpu_hog() -> None:
    command = [sys.executable, "-c", "while True: pass"]
    hogs = [subprocess.Popen(command) for _ in range(os.cpu_count() or 2)]
    try:
        for _ in range(50):
            assert decode("tiny", threads=2).tobytes() == expected("tiny")
        assert all(hog.poll() is None for hog in hogs)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def test_a_stage_that_the_schedule_fuses_is_named_with_those_there_are() -> None:
    with muser.load("synthetic:tiny", config=muser.Config(context=32, schedule="lean")) as engine:
        with pytest.raises(muser.ConfigError, match=r"blk\.3\.attention.*blk\.3\.store_attend"):
            engine.decode_token(1, capture=["blk.3.attention"])
        assert engine.position == 0
        _, stages = engine.decode_token(1, capture=["blk.3.store_attend"])
        assert list(stages) == ["blk.3.store_attend.gated"]
