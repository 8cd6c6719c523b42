"""The cuda device as Python sees it: listed everywhere, clear about what is missing, and with the
cpu's bits where there is a GPU."""

from __future__ import annotations

from typing import Any

import pytest

import muser
from muser import _core
from muser.audit import audit

TOKENS = [3, 900, 17, 256, 1000, 5] * 4  # past the tiny file's window of 16


EVERY_SCHEDULE = ("baseline", "production", "dual_norm", "gqa", "ring", "joined", "lean", "legacy")


def listed() -> dict[str, Any]:
    (row,) = [row for row in _core.devices() if row["name"] == "cuda"]
    return dict(row)


def test_is_listed_with_a_reason_where_it_is_unusable() -> None:
    row = listed()
    if row["usable"]:
        assert row["isas"][0].startswith("sm_")
        assert row["description"]
    else:
        assert "NVIDIA driver" in row["why_not"]


def test_asking_for_it_decodes_or_says_what_is_missing() -> None:
    if not listed()["usable"]:
        with pytest.raises(muser.DeviceError, match="NVIDIA driver") as caught:
            muser.load("synthetic:tiny", device="cuda")
        assert caught.value.facts["device"] == "cuda"
        return
    for schedule in ("baseline", "production", "dual_norm", "gqa", "ring", "joined", "lean"):
        hashes = []
        for device in ("cpu", "cuda"):
            config = muser.Config(device=device, schedule=schedule)
            with muser.load("synthetic:tiny", config=config) as engine:
                hashes.append([muser.row_sha256(engine.decode_token(t)) for t in TOKENS])
        assert hashes[0] == hashes[1], schedule


def test_an_index_without_a_gpu_is_refused() -> None:
    expected = muser.ConfigError if listed()["usable"] else muser.DeviceError
    with pytest.raises(expected):
        muser.load("synthetic:tiny", config=muser.Config(device="cuda", gpu=1000))


@pytest.mark.parametrize("schedule", EVERY_SCHEDULE)
@pytest.mark.parametrize("barriers", ["hand", "all"])
def test_a_graph_has_the_edges_that_the_auditor_counts(schedule: str, barriers: str) -> None:
    config = muser.Config(device="cpu", schedule=schedule, barriers=barriers, allow_inexact=True)
    with muser.load("synthetic:tiny", config=config) as engine:
        for position in (3, engine.geometry["window"]):  # before the ring wraps, and after
            events = engine.record(position)
            dispatches = sum(event["event"] == "dispatch" for event in events)
            edges = _core.order_edges(events)
            assert edges["cuda"] == edges["audit"] >= dispatches - 1


def test_a_serial_encoder_is_a_chain() -> None:
    config = muser.Config(device="cpu", schedule="lean", serial_dispatch=True)
    with muser.load("synthetic:tiny", config=config) as engine:
        events = engine.record(20)
        dispatches = sum(event["event"] == "dispatch" for event in events)
        assert _core.order_edges(events) == {"audit": dispatches - 1, "cuda": dispatches - 1}


def test_a_barrier_left_out_takes_edges_from_both_counts() -> None:
    counts = []
    for faults in ({}, {"omit_barrier_3": 1}):
        config = muser.Config(device="cpu", schedule="lean", faults=faults)
        with muser.load("synthetic:tiny", config=config) as engine:
            events = engine.record(20)
            counts.append(_core.order_edges(events))
            assert bool(audit(events).hazards) == bool(faults)
    assert counts[0]["audit"] == counts[0]["cuda"]
    assert counts[1]["audit"] == counts[1]["cuda"] != counts[0]["cuda"]
