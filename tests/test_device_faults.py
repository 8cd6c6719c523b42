"""A device that fails at every point it can: typed error, no row, a dead engine after it."""

from __future__ import annotations

import time

import numpy as np
import pytest

import muser
from muser.fixtures import synthetic_path

TOKENS = [3, 1, 4, 1, 5]


def load(**faults: int) -> muser.Engine:
    config = muser.Config(context=64, wait_seconds=1.0, faults=faults)
    return muser.load(synthetic_path("synthetic:tiny"), config=config)


# Command buffer 1 is the probe at load, so step n is command buffer n + 1.
CASES = [
    ({"device_error_at_dispatch": 40}, 1, muser.DeviceError, {"code": 3}),
    ({"device_error_in_wait": 3}, 2, muser.DeviceError, {"code": 1}),
    ({"device_error_in_buffer": 4}, 3, muser.DeviceError, {"code": 2}),
    ({"device_out_of_memory": 3}, 2, muser.DeviceMemoryError, {"code": 8}),
    ({"device_hang": 3}, 2, muser.DeadlineError, {"seconds": 1.0}),
]


@pytest.mark.parametrize(("faults", "step", "error", "facts"), CASES, ids=lambda v: str(v)[:40])
def test_a_failing_step_is_typed_and_final(
    faults: dict[str, int],
    step: int,
    error: type[muser.MuserError],
    facts: dict[str, int | float],
) -> None:
    engine = load(**faults)
    for token in TOKENS[: step - 1]:
        engine.decode_token(token)
    row = np.full(engine.vocab, 7.0, np.float32)
    with pytest.raises(error) as caught:
        engine.decode_token(TOKENS[step - 1], out=row)
    for name, value in facts.items():
        assert caught.value.facts[name] == value
    assert (row == 7.0).all(), "a failed step must not hand out a row"
    assert engine.closed
    with pytest.raises(muser.EngineClosed):
        engine.decode_token(1)
    engine.close()


def test_the_closure_at_fault_is_named() -> None:
    engine = load(device_error_at_dispatch=40)
    labels = [dispatch["closure"] for dispatch in engine.plan.dispatches]
    with pytest.raises(muser.DeviceError) as caught:
        engine.decode_token(1)
    assert caught.value.facts["closure"] == labels[39]
    assert f"blk.{caught.value.facts['layer']}." in labels[39]


def test_a_hang_ends_on_time() -> None:
    engine = load(device_hang=2)
    start = time.monotonic()
    with pytest.raises(muser.DeadlineError):
        engine.decode_token(1)
    assert 0.9 < time.monotonic() - start < 5.0
    engine.close()


def test_a_refused_allocation_names_what_it_was_for() -> None:
    with pytest.raises(muser.DeviceMemoryError) as caught:
        load(device_refuse_allocation=20)
    assert caught.value.facts["bytes"]
    assert "blk." in str(caught.value)


@pytest.mark.parametrize("buffer", [2, 3, 4])
def test_one_failing_buffer_of_a_lane_kills_the_lane(buffer: int) -> None:
    engine = load(device_error_in_buffer=buffer)
    with pytest.raises(muser.DeviceError) as caught:
        engine.teacher_forced(TOKENS[:3])
    assert caught.value.facts["code"] == 2
    with pytest.raises(muser.EngineClosed):
        engine.teacher_forced(TOKENS[:3])


def test_the_sound_twin_is_silent() -> None:
    with load() as engine, load(device_error_in_buffer=99) as twin:
        for token in TOKENS:
            assert engine.decode_token(token).tobytes() == twin.decode_token(token).tobytes()
