"""The Metal kernels themselves, lane by lane: the CPU's bits under any schedule and any order that
the barriers allow, and declarations that are exactly what the kernels touch."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import muser
from muser import kernels, profiler
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


@pytest.mark.sweep
@pytest.mark.parametrize("schedule", ["baseline", "joined", "lean"])
def test_a_hundred_seeds_give_one_row(schedule: str) -> None:
    expected = cpu_row("tiny-mix", schedule, WINDOW + 1)
    assert rows_over_seeds(range(1, 101), schedule=schedule) == {expected}


def test_serial_encoder_and_barriers_everywhere_give_the_same_row() -> None:
    expected = cpu_row("tiny-mix", "baseline", WINDOW + 1)
    assert rows_over_seeds(range(1, 3), schedule="baseline", serial_dispatch=True) == {expected}
    assert rows_over_seeds(range(1, 3), schedule="baseline", barriers="all") == {expected}
    assert rows_over_seeds(range(1, 3), schedule="baseline", barriers="planned") == {expected}


def test_one_closure_per_command_buffer_gives_the_same_row() -> None:
    with load("emulator", schedule="baseline", seed=3) as engine:
        engine.restore(snapshot("tiny-mix", WINDOW + 1))
        found = profiler.profile(engine, TOKENS[WINDOW + 1], phase=True, compare_off=False)
    assert found.command_buffers == len(found.closures)
    assert np.asarray(found.row).tobytes() == cpu_row("tiny-mix", "baseline", WINDOW + 1)


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


@pytest.mark.sweep
def test_declared_equals_touched_for_every_kernel_of_a_schedule() -> None:
    proof = kernels.prove()
    assert [finding["text"] for finding in proof.findings] == []
    names = {kernel.name for kernel in kernels.catalogue()}
    assert names - set(proof.seen) == {"argmax_groups_f32", "argmax_final_f32", "probe_u32"}


def test_other_devices_do_not_trace() -> None:
    from muser import _core

    with load("cpu") as engine, pytest.raises(muser.ConfigError, match="emulator"):
        _core.trace(engine.core, [1])


def test_the_catalogue_names_every_argument() -> None:
    for kernel in kernels.catalogue():
        assert kernel.buffers, kernel.name
        assert kernel.threads % 32 == 0, kernel.name
