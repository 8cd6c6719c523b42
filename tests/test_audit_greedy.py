"""The auditor on greedy lanes: within a command buffer, and from one to the step that it feeds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import muser
from muser import _core
from muser.audit import audit, mutate, seeds
from muser.cli import main
from muser.errors import ConfigError

TINY, WINDOW = "synthetic:tiny", 16
SCHEDULES = [row["name"] for row in _core.schedules()]

Event = dict[str, Any]


@contextmanager
def engine(schedule: str = "production", **settings: Any) -> Iterator[muser.Engine]:
    config = muser.Config(
        device="cpu", schedule=schedule, allow_inexact=True, threads=1, **settings
    )
    with muser.load(TINY, config=config) as loaded:
        yield loaded


# Greedy lanes of every length that differs: one step, two, and more across the window's edge.
GREEDY = [(0, 1), (0, 3), (WINDOW - 2, 4), (2 * WINDOW - 1, 2)]


@pytest.mark.parametrize("barriers", ["hand", "planned", "all"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_greedy_lane_is_ordered(schedule: str, barriers: str) -> None:
    with engine(schedule, barriers=barriers) as e:
        for position, tokens in GREEDY:
            events = e.record(position, tokens, greedy=True)
            result = audit(events)
            assert [f["text"] for f in result.hazards] == [], (position, tokens)
            assert choices(events) == tokens
            if barriers == "planned":
                assert result.barriers["redundant"] == result.barriers["targeted"] == 0
            edges = _core.order_edges(events)
            assert edges["cuda"] == edges["audit"]
            # Nothing but the choice is new: the other lanes are encoded as ever.
            forced = e.record(position, tokens)
            assert choices(forced) == 0
            assert kernels(forced) == [k for k in kernels(events) if not k.startswith("argmax")]


def kernels(events: list[Event]) -> list[str]:
    return [event["kernel"] for event in events if event["event"] == "dispatch"]


def choices(events: list[Event]) -> int:
    return kernels(events).count("argmax_final_f32")


def test_a_recording_is_of_one_kind() -> None:
    with engine() as e, pytest.raises(ConfigError, match="greedy"):
        e.record(0, 2, chunk=True, greedy=True)


@pytest.mark.parametrize("schedule", ["production", "lean"])
def test_the_barriers_of_the_choice_left_out_are_reported(schedule: str) -> None:
    """Before the choice, and between its phases: the reader then meets no ordering."""
    with engine(schedule) as e:
        barriers = [b for b in e.record(WINDOW, 1, greedy=True) if b["event"] == "barrier"]
    assert [b["site"] for b in barriers[-2:]] == [
        "closure: RAW: logits were capped",
        "argmax phases: RAW",
    ]
    expected = (("argmax_groups_f32", "logits"), ("argmax_final_f32", "best"))
    for barrier, read in zip(range(len(barriers) - 2, len(barriers)), expected, strict=True):
        with engine(schedule, faults=seeds.omitting([barrier])) as e:
            hazards = audit(e.record(WINDOW, 2, greedy=True)).hazards
        found = {(f["kind"], f["places"][1]["kernel"], f["places"][1]["argument"]) for f in hazards}
        assert ("RAW", *read) in found


def test_a_missing_barrier_of_the_choice_shows_on_some_seed() -> None:
    """And as it is, the emulator chooses the same in every order, and feeds it."""
    config = muser.Config(device="emulator", context=64, schedule="production")
    state = seeds.prepare(TINY, config, WINDOW)

    def run(orders: range, tokens: int, faults: dict[str, int]) -> set[tuple[str, int]]:
        found = seeds.run(
            TINY, config, state, WINDOW, orders, tokens=tokens, greedy=True, faults=faults
        )
        return set(found.values())

    assert len(run(range(3), 2, {})) == 1
    with engine() as e:
        events = e.record(WINDOW, 1, greedy=True)
    last = sum(event["event"] == "barrier" for event in events) - 1
    assert run(range(1), 1, {}) < run(range(10), 1, seeds.omitting([last]))


def test_a_choice_is_ordered_before_the_step_that_it_feeds() -> None:
    """Across command buffers by tracking alone; and the host has written the slots before."""
    with engine() as e:
        events = e.record(WINDOW - 1, 3, greedy=True)
    fed = [
        use
        for event in events
        if event["event"] == "dispatch" and event["label"] == "embedding"
        for use in event["accesses"]
        if use["argument"] == "step" and use["length"] == 8
    ]
    for use, producer in zip(fed, ["host", "argmax", "argmax"], strict=True):
        # The choice, and `chained` behind it, which is the host's.
        rest = {**use, "offset": use["offset"] + 4, "length": 4}
        use.update(length=4, producer=producer)
        (event,) = [e for e in events if use in e.get("accesses", ())]
        event["accesses"].append({**rest, "producer": "host"})
    assert audit(events).hazards == ()
    fed[2]["producer"] = "host"
    assert [f["kind"] for f in audit(events).hazards] == ["ORDER"]
    fed[2]["producer"] = "argmax"

    steps = next(event for event in events if event.get("label") == "steps")
    steps["tracked"] = False
    told = {
        (f["kind"], f["places"][0]["closure"], f["places"][1]["closure"])
        for f in audit(events).hazards
    }
    assert told == {("RAW", "argmax", "embedding")}
    steps["tracked"] = True

    # Written once the first step is under way, the slots may lose what it has chosen.
    late = next(e for e in events if e["event"] == "host" and e["label"] == "step values")
    others = [event for event in events if event is not late]
    committed = next(i for i, event in enumerate(others) if event["event"] == "commit") + 1
    kinds = {
        f.get("pair", f["kind"])
        for f in audit([*others[:committed], late, *others[committed:]]).hazards
    }
    assert {"WAW", "WAR"} <= kinds


@pytest.mark.parametrize("schedule", ["joined", "lean"])
def test_mutants_of_a_greedy_lane(schedule: str) -> None:
    with engine(schedule) as e:
        told = mutate(e.record(WINDOW - 1, 2, greedy=True))
    assert told["disagreements"] == []
    assert told["silent_is_redundant"] and told["together_sound"]
    kinds = told["kinds"]
    assert kinds["drop_resource"]["reported"] == kinds["drop_resource"]["total"] > 0
    assert kinds["delete_wait"]["reported"] == 2
    assert kinds["untrack"]["reported"] > 0


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    lane = ["audit", "--json", "--schedule", "lean", "--tokens", "2", "--greedy"]
    assert main([*lane, "--device", "cpu", "--mutate", "--seeds", "2"]) == 0
    greedy = json.loads(capsys.readouterr().out)
    assert greedy["seeds"] == {"run": 2, "distinct_hashes": 1}
    assert (greedy["mutants"]["missed"], greedy["mutants"]["extra"]) == (0, 0)
    assert main(lane[:-1]) == 0
    forced = json.loads(capsys.readouterr().out)
    assert greedy["closures"] == forced["closures"] + 1
    assert greedy["dispatches"] == forced["dispatches"] + 2 * 2
    assert main([*lane, "--chunk"]) == 2
