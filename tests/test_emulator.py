"""The Metal kernels themselves, lane by lane: the CPU's bits under any schedule and any order that
the barriers allow, and declarations that are exactly what the kernels touch."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import muser
from muser import _core, kernels, profiler
from muser.fixtures import fixed_tokens, synthetic_path

WINDOW = 16
TOKENS = [int(t) for t in fixed_tokens(60, 1024)]
SCHEDULES = [
    "baseline", "production", "dual_norm_4sg", "dual_norm", "gqa", "ring", "joined", "lean",
    "legacy", "hybrid",
]  # fmt: skip
KINDS = ["tiny-mix", "tiny-f32", "tiny-q8_0", "tiny-bf16", "tiny-q4_K-h16", "tiny-q4_K-h128"]


def load(device: str, kind: str = "tiny-mix", **settings: Any) -> muser.Engine:
    config = muser.Config(context=64, allow_inexact=True, **settings)
    return muser.load(synthetic_path(f"synthetic:{kind}"), device=device, config=config)


@cache
def snapshot(kind: str, position: int) -> bytes:
    with load("cpu", kind) as engine:
        engine.prefill(TOKENS[:position])
        return engine.snapshot()


@cache
def cpu_row(kind: str, schedule: str, position: int) -> bytes:
    with load("cpu", kind, schedule=schedule) as engine:
        engine.restore(snapshot(kind, position))
        return engine.decode_token(TOKENS[position]).tobytes()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("position", [1, WINDOW - 1, WINDOW, 2 * WINDOW + 3])
def test_any_schedule_has_the_cpus_bits(schedule: str, position: int) -> None:
    with load("emulator", schedule=schedule) as engine:
        engine.restore(snapshot("tiny-mix", position))
        row = engine.decode_token(TOKENS[position])
    assert row.tobytes() == cpu_row("tiny-mix", schedule, position)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schedule", ["baseline", "lean"])
def test_any_weight_type_has_the_cpus_bits(kind: str, schedule: str) -> None:
    with load("emulator", kind, schedule=schedule) as engine:
        engine.restore(snapshot(kind, WINDOW + 1))
        row = engine.decode_token(TOKENS[WINDOW + 1])
    assert row.tobytes() == cpu_row(kind, schedule, WINDOW + 1)


def tensors_at_odd_multiples_of_8(path: Path, target: Path) -> None:
    """The same model in a file whose alignment is 8, so that no tensor lies at a multiple of 16."""
    import gguf

    whole = path.read_bytes()
    last = gguf.GGUFReader(path).tensors[-1].field
    end = last.offset + sum(int(part.nbytes) for part in last.parts)
    data = -(-end // 32) * 32

    def key(name: str, kind: int, value: bytes) -> bytes:
        return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value

    for spare in range(16):
        extra = key("general.alignment", 4, struct.pack("<I", 8))
        extra += key("spare", 8, struct.pack("<Q", spare) + bytes(spare))
        start = -(-(end + len(extra)) // 8) * 8
        if start % 16 == 8:
            break
    (keys,) = struct.unpack_from("<Q", whole, 16)
    head = whole[:16] + struct.pack("<Q", keys + 2) + extra + whole[24:end]
    target.write_bytes(head.ljust(start, b"\0") + whole[data:])


def test_tensors_need_no_more_than_the_formats_alignment(tmp_path: Path) -> None:
    """The kernels read 16 bytes at once; a file need not be laid out for that."""
    path = tmp_path / "aligned-to-8.gguf"
    tensors_at_odd_multiples_of_8(synthetic_path("synthetic:tiny-mix"), path)
    with load("cpu") as engine:
        expected = engine.decode_token(TOKENS[0]).tobytes()
    for device in ("cpu", "emulator"):
        with muser.load(path, device=device, config=muser.Config(context=64)) as engine:
            assert engine.decode_token(TOKENS[0]).tobytes() == expected, device


def test_a_prompt_chunk_has_the_cpus_bits() -> None:
    with load("emulator") as engine, load("cpu") as cpu:
        rows = [e.prefill(TOKENS[:20], all_rows=True).tobytes() for e in (engine, cpu)]
    assert rows[0] == rows[1]


def rows_over_seeds(seeds: range, **settings: Any) -> set[bytes]:
    found = set()
    for seed in seeds:
        with load("emulator", seed=seed, **settings) as engine:
            engine.restore(snapshot("tiny-mix", WINDOW + 1))
            found.add(engine.decode_token(TOKENS[WINDOW + 1]).tobytes())
    return found


@pytest.mark.parametrize("schedule", ["baseline", "lean"])
def test_scheduler_seeds_give_one_row(schedule: str) -> None:
    expected = cpu_row("tiny-mix", schedule, WINDOW + 1)
    assert rows_over_seeds(range(1, 5), schedule=schedule) == {expected}


def row_by_closures(seed: int, schedule: str) -> bytes:
    """The step with each closure in a command buffer of its own."""
    with load("emulator", schedule=schedule, seed=seed) as engine:
        engine.restore(snapshot("tiny-mix", WINDOW + 1))
        found = profiler.profile(engine, TOKENS[WINDOW + 1], phase=True, compare_off=False)
    assert found.command_buffers == len(found.closures)
    return np.asarray(found.row).tobytes()


SEEDS = range(1, 101)


@pytest.mark.sweep
@pytest.mark.parametrize("encoder", ["concurrent", "serial", "closures"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_hundred_seeds_give_one_row(schedule: str, encoder: str) -> None:
    expected = cpu_row("tiny-mix", schedule, WINDOW + 1)
    if encoder == "closures":
        found = {row_by_closures(seed, schedule) for seed in SEEDS}
    else:
        serial = encoder == "serial"
        found = rows_over_seeds(SEEDS, schedule=schedule, serial_dispatch=serial)
    assert found == {expected}


def test_serial_encoder_and_barriers_everywhere_give_the_same_row() -> None:
    expected = cpu_row("tiny-mix", "baseline", WINDOW + 1)
    assert rows_over_seeds(range(1, 3), schedule="baseline", serial_dispatch=True) == {expected}
    assert rows_over_seeds(range(1, 3), schedule="baseline", barriers="all") == {expected}
    assert rows_over_seeds(range(1, 3), schedule="baseline", barriers="planned") == {expected}


def test_one_closure_per_command_buffer_gives_the_same_row() -> None:
    assert row_by_closures(3, "baseline") == cpu_row("tiny-mix", "baseline", WINDOW + 1)


def test_a_barrier_left_out_shows_in_some_order() -> None:
    """The seeded scheduler is a gate only if a missing barrier can turn it red."""
    expected = cpu_row("tiny-mix", "baseline", WINDOW + 1)
    red = 0
    for barrier in (2, 3, 5, 8, 12):
        try:
            faults = {f"omit_barrier_{barrier}": 1}
            found = rows_over_seeds(range(1, 4), schedule="baseline", faults=faults)
            red += found != {expected}
        except muser.NonFiniteError:  # poison reached the logits
            red += 1
    assert red >= 3


def test_declared_equals_touched() -> None:
    proof = kernels.prove(
        cases=[("synthetic:tiny-mix", "baseline", "f16"), ("synthetic:tiny-q8_0", "lean", "f32")],
        positions=(0, 17),
    )
    assert [finding["text"] for finding in proof.findings] == []
    assert proof.loads > 1_000_000
    assert len(proof.seen) > 20


def test_a_greedy_lane_touches_what_it_declares() -> None:
    with load("emulator", schedule="lean") as engine, load("cpu", schedule="lean") as cpu:
        traced = _core.trace(engine.core, [5, 0], greedy=True)
        _, rows = cpu.greedy(5, 2, rows=True)
    assert [finding["text"] for finding in traced["findings"]] == []
    assert traced["logits"].tobytes() == rows[1].tobytes()
    final = [d["arguments"] for d in traced["dispatches"] if d["kernel"] == "argmax_final_f32"]
    assert [arguments["token"] for arguments in final] == [(0, 4)] * 2


@pytest.mark.sweep
def test_declared_equals_touched_for_every_kernel_of_a_schedule() -> None:
    proof = kernels.prove()
    assert [finding["text"] for finding in proof.findings] == []
    names = {kernel.name for kernel in kernels.catalogue()}
    assert names - set(proof.seen) == {"probe_u32"}


def test_other_devices_do_not_trace() -> None:
    with load("cpu") as engine, pytest.raises(muser.ConfigError, match="emulator"):
        _core.trace(engine.core, [1])


def test_the_catalogue_names_every_argument() -> None:
    for kernel in kernels.catalogue():
        assert kernel.buffers, kernel.name
        assert kernel.threads % 32 == 0, kernel.name


def test_the_catalogue_tells_what_launchers_declare() -> None:
    declared: dict[tuple[str, str], set[str]] = {}
    for path, schedule, kv_dtype in kernels.CASES:
        config = muser.Config(
            device="emulator",
            context=64,
            schedule=schedule,
            kv_dtype=kv_dtype,
            allow_inexact=True,
        )
        with muser.load(path, config=config) as engine:
            events = [event for position in (0, WINDOW + 1) for event in engine.record(position)]
        for event in events:
            if event["event"] != "dispatch":
                continue
            for use in event["accesses"]:
                letters = {"read": "r", "write": "w", "read_write": "rw"}[use["access"]]
                declared.setdefault((event["kernel"], use["argument"]), set()).update(letters)
    told = {
        (kernel.name, name): set(access)
        for kernel in kernels.catalogue()
        for name, access in zip(kernel.buffers, kernel.accesses, strict=True)
    }
    assert len({kernel for kernel, _ in declared}) > 30
    assert declared == {where: told[where] for where in declared}
