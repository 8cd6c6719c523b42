"""The auditor on the engine's own streams, and on traces of others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import audit_table

import muser
from muser import _core
from muser.audit import audit, dump, load, mutate, seeds, sites
from muser.audit.page import page
from muser.cli import main
from muser.errors import ConfigError, ContextFullError

TINY = "synthetic:tiny"
WINDOW = 16
SCHEDULES = [row["name"] for row in _core.schedules()]
# Before, at and after the window's edge; past a second wrap; then lanes over the same edges.
STEPS = [
    (0, 1),
    (WINDOW - 2, 1),
    (WINDOW - 1, 1),
    (WINDOW, 1),
    (WINDOW + 1, 1),
    (2 * WINDOW + 3, 1),
    (0, 3),
    (WINDOW - 2, 4),
    (2 * WINDOW - 1, 3),
]

Event = dict[str, Any]


@contextmanager
def engine(schedule: str = "production", **settings: Any) -> Iterator[muser.Engine]:
    config = muser.Config(
        device="cpu", schedule=schedule, allow_inexact=True, threads=1, **settings
    )
    with muser.load(TINY, config=config) as loaded:
        yield loaded


# --- the engine's own graph -------------------------------------------------------------------


@pytest.mark.parametrize("barriers", ["hand", "planned", "all"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_step_is_ordered(
    schedule: str, barriers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with engine(schedule, barriers=barriers) as e:
        for position, tokens in STEPS:
            result = audit(e.record(position, tokens))
            assert [f["text"] for f in result.hazards] == [], (position, tokens)
            assert result.counts["pairs"] > 300
            if barriers == "planned":
                # The fewest: each is needed, and they are fewer than by hand.
                assert result.barriers["redundant"] == 0
                assert result.barriers["targeted"] == 0
            if (position, tokens) == (WINDOW, 1):
                counts = {"position": position, **result.barriers}
            if tokens == 1:
                assert result.barriers["broad"] == e.plan_at(position).barriers["broad"]
    with capsys.disabled():
        print(f"\n  {schedule}, {barriers}: {counts}", end="")


# Prompt chunks before, across and behind the window's edge, and past a second wrap.
CHUNKS = [(0, 5), (WINDOW - 4, 9), (WINDOW + 1, 3), (2 * WINDOW - 2, WINDOW)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_prompt_chunk_is_ordered(schedule: str) -> None:
    with engine(schedule) as e:
        for position, tokens in CHUNKS:
            result = audit(e.record(position, tokens, chunk=True))
            assert [f["text"] for f in result.hazards] == [], (position, tokens)
        told = mutate(e.record(WINDOW - 1, 3, chunk=True))
    assert told["disagreements"] == []
    assert told["silent_is_redundant"] and told["together_sound"]
    assert told["kinds"]["delete_barrier"]["reported"] > 60


def test_chunks_of_planned_barriers_are_steps() -> None:
    with engine(barriers="planned") as e, pytest.raises(ConfigError, match="token by token"):
        e.record(0, 2, chunk=True)
    with engine() as e, pytest.raises(ConfigError, match=r"1 \.\.\. 16 tokens"):
        e.record(0, WINDOW + 1, chunk=True)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_planned_needs_no_more_than_by_hand(schedule: str) -> None:
    for position in (WINDOW - 1, WINDOW):
        counts = []
        for barriers in ("planned", "hand"):
            with engine(schedule, barriers=barriers) as e:
                result = audit(e.record(position))
                counts.append(result.barriers["broad"] + result.barriers["targeted"])
        assert counts[0] <= counts[1]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_modes_give_one_hash(schedule: str) -> None:
    rows = []
    for settings in (
        {"barriers": "hand"},
        {"barriers": "planned"},
        {"barriers": "all"},
        {"barriers": "planned", "untracked": True},
        {"serial_dispatch": True},
    ):
        with engine(schedule, **settings) as e:
            rows.append(b"".join(e.decode_token(token).tobytes() for token in range(WINDOW + 3)))
    assert len(set(rows)) == 1


@pytest.mark.parametrize("schedule", ["production", "lean"])
def test_each_barrier_left_out_of_the_graph_is_reported(schedule: str) -> None:
    """The source without one of its barriers, encoded anew: red exactly where it is needed."""
    with engine(schedule) as e:
        whole = audit(e.record(WINDOW))
    redundant = {found["barrier"] for found in whole.findings}
    for barrier in range(whole.barriers["broad"] + whole.barriers["targeted"]):
        with engine(schedule, faults=seeds.omitting([barrier])) as e:
            hazards = audit(e.record(WINDOW)).hazards
        assert bool(hazards) == (barrier not in redundant), barrier


def test_serial_encoder_needs_no_barrier() -> None:
    with engine(serial_dispatch=True) as e:
        result = audit(e.record(WINDOW))
    assert result.hazards == ()
    assert result.barriers["redundant"] == result.barriers["broad"] + result.barriers["targeted"]


def test_recording_changes_nothing() -> None:
    with engine() as e:
        e.prefill(range(5))
        before = e.snapshot()
        e.record(WINDOW + 7, 3)
        e.record(WINDOW + 7, 3, greedy=True)
        assert e.position == 5
        assert e.snapshot() == before
        with pytest.raises(ContextFullError):
            e.record(e.context - 1, 2)
        with pytest.raises(ConfigError):
            e.record(0, 65)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_mutants(schedule: str, capsys: pytest.CaptureFixture[str]) -> None:
    with engine(schedule) as e:
        told = mutate(e.record(WINDOW))
    assert told["disagreements"] == []
    assert (told["missed"], told["extra"]) == (0, 0)
    assert told["silent_is_redundant"]
    assert told["together_sound"]
    kinds = told["kinds"]
    assert kinds["delete_barrier"]["reported"] > 60
    # The order of conflicting closures matters, and none of their swaps goes unseen.
    assert kinds["swap_closures"]["reported"] > 50
    assert kinds["drop_resource"]["reported"] == kinds["drop_resource"]["total"] > 0
    with capsys.disabled():
        counts = {name: told[name] for name in ("total", "reported", "silent_redundant")}
        print(f"\n  {schedule}: {counts}", end="")


def test_mutants_of_a_lane() -> None:
    with engine("joined") as e:
        told = mutate(e.record(WINDOW - 1, 2))
    assert told["disagreements"] == []
    assert told["silent_is_redundant"]
    # Between two command buffers in flight tracking alone orders.
    assert told["kinds"]["untrack"]["reported"] > 0
    assert told["kinds"]["delete_wait"]["reported"] == 2


@pytest.mark.parametrize(
    ("argument", "producer"), [("q", "blk.0.rope"), ("K", "blk.0.swa_stage"), ("step", "host")]
)
def test_producers_of_attention(argument: str, producer: str) -> None:
    """What the graph means, stated by hand: who wrote what attention reads."""
    with engine() as e:
        events = e.record(WINDOW)
    reads = [
        use
        for event in events
        if event["event"] == "dispatch" and event["label"] == "blk.0.attention"
        for use in event["accesses"]
        if use["argument"] == argument
    ]
    assert reads
    for use in reads:
        use["producer"] = producer
    assert audit(events).hazards == ()
    for use in reads:
        use["producer"] = "blk.0.kv_store"
    assert {f["kind"] for f in audit(events).hazards} == {"ORDER"}


# --- untracked buffers ------------------------------------------------------------------------


def test_untracked_needs_the_planner() -> None:
    for barriers in ("hand", "all"):
        with pytest.raises(ConfigError, match="planned"), engine(barriers=barriers, untracked=True):
            pass
    with engine(barriers="planned", untracked=True) as e:
        assert audit(e.record(WINDOW)).hazards == ()
        with pytest.raises(ConfigError, match="in flight"):
            e.teacher_forced([1, 2])


def one_closure_per_command_buffer(events: list[Event]) -> list[Event]:
    """The same dispatches, each closure committed on its own, none waited for until the end."""
    out: list[Event] = [e for e in events if e["event"] in {"buffer", "contents"}]
    out += [e for e in events if e["event"] == "host" and e["access"] == "write"]
    commands, label = -1, None
    for event in events:
        if event["event"] == "dispatch":
            if event["label"] != label:
                if commands >= 0:
                    out.append({"event": "commit", "commands": commands})
                commands, label = commands + 1, event["label"]
                out.append({"event": "commands", "id": commands})
                out.append({"event": "encoder", "commands": commands})
            out.append({**event, "commands": commands})
        elif event["event"] == "barrier" and "buffers" in event:
            out.append({**event, "commands": commands})
    out.append({"event": "commit", "commands": commands})
    out += [{"event": "wait", "commands": c} for c in range(commands + 1)]
    out += [e for e in events if e["event"] == "host" and e["access"] == "read"]
    return out


def test_untracked_story_is_reported() -> None:
    """Tracking turned off everywhere, before every crossing had a barrier of its own."""
    with engine() as e:
        events = one_closure_per_command_buffer(e.record(WINDOW))
        closures = e.plan_at(WINDOW).closures
    assert sum(event["event"] == "commands" for event in events) == len(closures)
    assert audit(events).hazards == ()  # tracked, the boundaries order
    for event in events:
        if event["event"] == "buffer":
            event["tracked"] = False
    hazards = audit(events).hazards
    # Every crossing: each closure after the first reads something that an earlier one wrote.
    later = {f["places"][1]["closure"] for f in hazards}
    assert later == set(closures[1:])
    assert {f["kind"] for f in hazards} == {"RAW", "WAR", "WAW"}
    assert all("not tracked" in f["ordering"] for f in hazards)


# --- the emulator runs what the auditor judges ------------------------------------------------


def emulated(position: int, **settings: Any) -> tuple[muser.Config, bytes]:
    settings = {"schedule": "production", **settings}
    config = muser.Config(device="emulator", context=64, **settings)
    return config, seeds.prepare(TINY, config, position)


def test_seeds_give_one_row() -> None:
    config, state = emulated(WINDOW)
    found = seeds.run(TINY, config, state, WINDOW, range(1, 4))
    assert len(set(found.values())) == 1


def test_barriers_that_can_go_do_not_show() -> None:
    with engine() as e:
        together = audit(e.record(WINDOW)).together
    assert together
    config, state = emulated(WINDOW)
    whole = seeds.run(TINY, config, state, WINDOW, [0])
    found = seeds.run(TINY, config, state, WINDOW, range(1, 4), faults=seeds.omitting(together))
    assert set(found.values()) == set(whole.values())


def test_a_missing_barrier_shows_on_some_seed() -> None:
    """What the auditor reports is no theory: some order of execution gives another row."""
    config, state = emulated(WINDOW)
    whole = seeds.run(TINY, config, state, WINDOW, [0])[0]
    with engine() as e:
        barrier = next(
            number
            for number, event in enumerate(
                [event for event in e.record(WINDOW) if event["event"] == "barrier"]
            )
            if "q and k are rotated" in event.get("site", "")
        )
    for seed in range(1, 21):
        found = seeds.run(TINY, config, state, WINDOW, [seed], faults=seeds.omitting([barrier]))
        if found[seed] != whole:
            return
    pytest.fail("no seed of 20 showed the missing barrier")


@pytest.mark.sweep
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_hundred_seeds_without_the_joint_set(
    schedule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config, state = emulated(WINDOW, schedule=schedule, allow_inexact=True)
    with engine(schedule) as e:
        together = audit(e.record(WINDOW)).together
    faults = seeds.omitting(together)
    with engine(schedule, faults=faults) as e:
        left = audit(e.record(WINDOW))
        assert left.hazards == ()
    found = seeds.run(TINY, config, state, WINDOW, [0])
    found.update(seeds.run(TINY, config, state, WINDOW, range(1, 101), faults=faults))
    assert len(set(found.values())) == 1
    with capsys.disabled():
        print(f"\n  {schedule}: {len(together)} barriers fewer, {left.barriers}", end="")


def test_untracked_story_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """The step of the story run: one closure per command buffer, all in flight, nothing tracked."""
    config, state = emulated(WINDOW)
    split = {"split_closures": 1}
    whole = seeds.run(TINY, config, state, WINDOW, [0])[0]
    tracked = seeds.run(TINY, config, state, WINDOW, range(1, 11), faults=split)
    assert set(tracked.values()) == {whole}
    for seed in range(1, 101):
        try:
            found = seeds.run(
                TINY, config, state, WINDOW, [seed], faults={**split, "untracked": 1}
            )[seed]
        except muser.NonFiniteError as error:  # what had not been written yet was read
            with capsys.disabled():
                print(f"\n  seed {seed}: {error}")
            continue
        if found[0] != whole[0]:
            with capsys.disabled():
                print(f"\n  seed {seed}: another row; argmax {found[1]}, tracked {whole[1]}")
            return
    pytest.fail("no seed of 100 showed the missing tracking")


@pytest.mark.sweep
def test_untracked_lane_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """The lane's command buffers overlap once nothing is tracked."""
    tokens = 3
    config, state = emulated(WINDOW)
    whole = seeds.run(TINY, config, state, WINDOW, [0], tokens=tokens)[0]
    for seed in range(1, 101):
        found = seeds.run(
            TINY, config, state, WINDOW, [seed], tokens=tokens, faults={"untracked": 1}
        )[seed]
        if found[0] != whole[0]:
            with capsys.disabled():
                print(f"\n  seed {seed}: another row; argmax {found[1]}, tracked {whole[1]}")
            return
    pytest.fail("no seed of 100 showed the missing tracking")


# --- other people's traces --------------------------------------------------------------------


def write_after_read() -> list[Event]:
    return [
        {"event": "buffer", "id": 1, "label": "g", "length": 4096},
        {"event": "buffer", "id": 2, "label": "gb", "length": 256},
        {"event": "contents", "buffer": 1},
        {"event": "commands", "id": 0},
        {"event": "encoder", "concurrent": True},
        {
            "event": "dispatch",
            "label": "bias_gradient",
            "kernel": "reduce_f32",
            "accesses": [
                {"argument": "g", "buffer": 1, "access": "read"},
                {"argument": "gb", "buffer": 2, "access": "write"},
            ],
        },
        {
            "event": "dispatch",
            "label": "scale",
            "kernel": "scale_in_place_f32",
            "accesses": [{"argument": "x", "buffer": 1, "access": "read_write"}],
        },
        {"event": "commit", "commands": 0},
    ]


def test_the_docs_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[1] / "docs" / "audit-trace.md").read_text(encoding="utf-8")
    example = text.split("```json\n")[1].split("```")[0]
    finding = text.split("and says\n\n```\n")[1].split("```")[0]
    assert [json.loads(line) for line in example.splitlines()] == write_after_read()
    path = tmp_path / "trace.jsonl"
    path.write_text(example, encoding="utf-8")
    assert main(["audit", "--trace", str(path)]) == 1
    assert capsys.readouterr().out.startswith(finding)
    lines = example.splitlines()
    lines.insert(6, '{"event":"barrier","buffers":[1]}')
    path.write_text("\n".join(lines), encoding="utf-8")
    assert main(["audit", "--trace", str(path)]) == 0


def test_traces_survive_a_file(tmp_path: Path) -> None:
    with engine("lean") as e:
        events = e.record(WINDOW, 2)
    dump(events, tmp_path / "trace.jsonl")
    assert load(tmp_path / "trace.jsonl") == events
    assert audit(load(tmp_path / "trace.jsonl")) == audit(events)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda events: events.pop(), "never committed"),
        (lambda events: events[5]["accesses"][0].update(buffer=7), "no buffer 7"),
        (lambda events: events[5]["accesses"][0].update(offset=4000, length=100), "outside buffer"),
        (lambda events: events[5]["accesses"][0].update(access="modify"), "'modify'"),
        (lambda events: events[5].pop("accesses"), "'accesses' is missing"),
        (lambda events: events[0].update(length="x"), "'length' has a wrong type"),
        (lambda events: events[0].update(length=-1), "'length' has a wrong type"),
        (lambda events: events.append({"event": "fence"}), "no event 'fence'"),
        (lambda events: events.insert(4, {"event": "barrier"}), "no encoder"),
        (lambda events: events.insert(0, dict(events[0])), "there already"),
        (lambda events: events.append(3), "not an object"),
    ],
)
def test_unsound_traces_are_refused(change: Any, message: str) -> None:
    events = write_after_read()
    change(events)
    with pytest.raises(ConfigError, match=message):
        audit(events)


def test_lines_that_are_no_events(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    for line in ("{", "[1]"):
        path.write_text('{"event":"commit"}\n' + line + "\n", encoding="utf-8")
        with pytest.raises(ConfigError, match="line 2"):
            load(path)


def test_mutants_need_a_sound_trace() -> None:
    with pytest.raises(ConfigError, match="without findings"):
        mutate(write_after_read())


# --- the command ------------------------------------------------------------------------------


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["audit", "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, result = told(capsys, "--device", "cpu", "--position", "20", "--mutate")
    assert code == 0
    assert result["schema"] == "muser.audit/1"
    assert {f["kind"] for f in result["findings"]} <= {"REDUNDANT"}
    assert set(result["barriers"]) == {"broad", "targeted", "redundant"}
    assert {"total", "reported", "silent_redundant", "extra"} <= set(result["mutants"])
    assert result["seeds"] is None
    assert result["position"] == 20


def test_json_of_a_hazard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump(write_after_read(), tmp_path / "trace.jsonl")
    code, result = told(capsys, "--trace", str(tmp_path / "trace.jsonl"))
    assert code == 1
    assert [f["kind"] for f in result["findings"]] == ["WAR"]
    assert result["findings"][0]["places"][0]["argument"] == "g"


def test_seeds_of_a_trace_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump(write_after_read(), tmp_path / "trace.jsonl")
    assert main(["audit", "--trace", str(tmp_path / "trace.jsonl"), "--seeds", "2"]) == 2
    assert "cannot be run" in capsys.readouterr().err


def test_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = write_after_read()
    events[0]["label"] = "</script><b>"
    text = page("two kernels", events, audit(events), {})
    data = text.split('type="application/json">')[1].split("</script>")[0]
    drawn = json.loads(data)
    assert drawn["rows"][0]["label"] == "</script><b>"
    assert [column["label"] for column in drawn["columns"]] == [
        "bias_gradient",
        "scale",
        "commit 0",
    ]
    assert [place["object"] for place in drawn["findings"][0]["places"]] == [1, 1]
    assert "http" not in text.replace("http://www.w3.org", "")  # nothing is fetched
    target = tmp_path / "audit.html"
    assert main(["audit", "--device", "cpu", "--html", str(target)]) == 0
    assert "0 findings" in capsys.readouterr().out
    assert target.stat().st_size > 50000


def test_docs_name_every_site() -> None:
    path = Path(__file__).parents[1] / "docs" / "ordering.md"
    text = path.read_text(encoding="utf-8")
    assert sites.fill(text) == text, "python -m muser.audit.sites docs/ordering.md"


@pytest.mark.sweep
def test_docs_tell_what_is_measured() -> None:
    page = (Path(__file__).parents[1] / "docs" / "ordering.md").read_text(encoding="utf-8")
    assert audit_table.fill(page, audit_table.table()) == page, (
        "python -m tests.audit_table docs/ordering.md"
    )


def test_every_barrier_names_its_hazard() -> None:
    for schedule in SCHEDULES:
        with engine(schedule) as e:
            for event in e.record(WINDOW):
                if event["event"] == "barrier":
                    assert any(word in event["site"] for word in ("RAW", "WAR", "WAW")), event


def test_rows_of_seeds_are_the_engines_own() -> None:
    config, state = emulated(3)
    found = seeds.run(TINY, config, state, 3, [0])
    with engine(context=64) as e:
        for position in range(4):
            row = e.decode_token(seeds.token_at(position, e.vocab))
        from muser.receipt import row_sha256

        assert found[0] == (row_sha256(row), int(np.argmax(row)))
