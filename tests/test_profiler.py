"""Profiles: exact counts, times that add up, and a void profile where two lists part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import muser
from muser import profiler
from muser.cli import main
from muser.fixtures import fixed_tokens, synthetic_path, write

LOCAL = [layer % 4 != 3 for layer in range(52)]
WINDOW = 2048
TOKENS = [int(t) for t in fixed_tokens(80, 1024)]


def load(schedule: str = "production", kind: str = "tiny") -> muser.Engine:
    config = muser.Config(schedule=schedule, context=128, allow_inexact=True)
    return muser.load(synthetic_path(f"synthetic:{kind}"), config=config)


def historical_labels(schedule: str) -> list[str]:
    """The first instrument's list: it forgot the head, and kept a separate store in the legacy
    schedule's sliding-window layers."""
    labels = profiler.labels(schedule, LOCAL, WINDOW, WINDOW + 1)
    if schedule != "legacy":
        return [label for label in labels if label != "lm_head"]
    found = []
    for label in labels:
        layer = label.split(".")[1] if label.startswith("blk.") else ""
        if label.endswith("store_attend") and LOCAL[int(layer)]:
            found.append(f"blk.{layer}.kv_store")
        found.append(label)
    return found


def test_labels_without_the_head_abort() -> None:
    samples = profiler.labels("baseline", LOCAL, WINDOW, WINDOW + 1)
    with pytest.raises(profiler.ProfileMismatch) as caught:
        profiler.match(historical_labels("baseline"), samples)
    assert caught.value.facts["labels"] == 759
    assert caught.value.facts["samples"] == 760
    assert caught.value.samples == samples
    assert "lm_head" in str(caught.value)


def test_603_labels_for_564_samples_abort_naming_both() -> None:
    labels = historical_labels("legacy")
    samples = profiler.labels("legacy", LOCAL, WINDOW, WINDOW + 1)
    assert (len(labels), len(samples)) == (603, 564)
    with pytest.raises(profiler.ProfileMismatch, match="603 labels for 564 samples") as caught:
        profiler.match(labels, samples)
    assert caught.value.labels == labels
    assert caught.value.samples == samples
    assert "blk.0.kv_store" in str(caught.value)


def test_a_wrong_label_list_voids_a_real_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    right = profiler.labels
    monkeypatch.setattr(profiler, "labels", lambda *a, **k: right(*a, **k)[:-1])
    with load() as engine, pytest.raises(profiler.ProfileMismatch):
        engine.profile(TOKENS[0])


def test_labels_follow_the_ring_after_the_append() -> None:
    """The token at position `window` is the first whose row replaces another."""
    with load("baseline") as engine:
        window = engine.geometry["window"]
        engine.prefill(TOKENS[: window - 1])
        filling = engine.profile(TOKENS[window - 1])
        wrapped = engine.profile(TOKENS[window])
    assert not any("swa_stage" in c.label for c in filling.closures)
    assert sum("swa_stage" in c.label for c in wrapped.closures) == 6


@pytest.mark.parametrize("schedule", ["baseline", "production", "joined", "lean", "legacy"])
def test_closures_and_gaps_make_up_the_span(schedule: str) -> None:
    with load(schedule) as engine:
        engine.prefill(TOKENS[:40])
        found = engine.profile(TOKENS[40])
    assert found.known
    assert found.span_ms is not None
    assert found.closures_ms is not None
    assert found.gaps_ms is not None
    assert found.closures_ms + found.gaps_ms == pytest.approx(found.span_ms, rel=0.01)
    assert found.span_ms <= found.wall_ms
    assert all(c.time_ms is not None and c.time_ms >= 0 for c in found.closures)


def test_counts_are_those_of_the_plan_and_profiling_changes_no_bit() -> None:
    with load("gqa") as engine, load("gqa") as plain:
        for token in TOKENS[:20]:
            plan = engine.plan
            found = engine.profile(token)
            assert [c.label for c in found.closures] == list(plan.closures)
            assert found.dispatches == len(plan.dispatches)
            assert found.barriers == plan.barriers
            assert found.wall_off_ms is not None
            assert found.row.tobytes() == plain.decode_token(token).tobytes()


def test_a_phase_profile_says_what_it_is() -> None:
    with load() as engine, load() as plain:
        found = engine.profile(TOKENS[0], phase=True)
        assert found.row.tobytes() == plain.decode_token(TOKENS[0]).tobytes()
    assert found.command_buffers == len(found.closures) - 0
    assert "never runs" in json.dumps(found.as_dict())
    assert found.span_ms is None, "separate command buffers have no common span"


def test_repeating_a_stage_runs_it_again_and_changes_no_bit() -> None:
    with load() as engine, load() as plain:
        once = profiler.profile(engine, TOKENS[0], compare_off=False)
        engine.rollback(1)
        again = profiler.profile(engine, TOKENS[0], repeat={"ffn_down": 4}, compare_off=False)
        assert again.dispatches == once.dispatches + 3 * 8
        assert again.row.tobytes() == plain.decode_token(TOKENS[0]).tobytes()
        with pytest.raises(muser.ConfigError, match="silu"):
            profiler.profile(engine, TOKENS[0], repeat={"silu": 2})


def test_unknown_times_stay_unknown() -> None:
    samples: list[dict[str, Any]] = [
        {"closure": "embedding", "start": 1.0, "end": 1.5},
        {"closure": "entry_norm", "start": None, "end": None},
    ]
    found = profiler._closures(samples)
    assert found[0].time_ms == pytest.approx(500.0)
    assert found[1].time_ms is None


def test_overlapping_closures_are_not_counted_twice() -> None:
    samples = [
        {"closure": "a", "start": 0.0, "end": 2.0},
        {"closure": "b", "start": 1.0, "end": 3.0},
        {"closure": "c", "start": 4.0, "end": 5.0},
    ]
    found = profiler._closures(samples)
    assert [c.time_ms for c in found] == pytest.approx([2000.0, 1000.0, 1000.0])
    assert [c.gap_ms for c in found] == pytest.approx([0.0, 0.0, 1000.0])


def test_the_chrome_trace_has_one_event_per_closure() -> None:
    with load() as engine:
        found = engine.profile(TOKENS[0])
    events = found.chrome_trace()["traceEvents"]
    assert [event["name"] for event in events] == [c.label for c in found.closures]


@pytest.mark.sweep
@pytest.mark.timeout(600)
def test_a_stages_slope_is_its_own_time(tmp_path: Path) -> None:
    """On the real head: 1.1 GB, which no cache holds, so that a repetition costs what the first run
    does."""
    path = tmp_path / "mid4.gguf"
    write("mid4", path)
    with muser.load(path, config=muser.Config(context=128)) as engine:
        tokens = [int(t) for t in fixed_tokens(41, engine.vocab)]
        engine.prefill(tokens[:40])
        found = profiler.slope(engine, tokens[40], "lm_head", rounds=15)
    assert found["slope_ms"] == pytest.approx(found["own_ms"], rel=0.1)


def test_the_command_tells_a_slope(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["profile", "-m", "synthetic:tiny", "--slope", "lm_head", "--rounds", "1"]
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "muser.slope/1"
    assert told["stage"] == "lm_head"
    assert told["counts"] == [1, 2, 4, 8]
    assert len(told["span_ms"]) == 4
    assert main(command) == 0
    assert "slope" in capsys.readouterr().out
    assert main([*command, "--phase"]) == 2
