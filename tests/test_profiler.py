"""Profiles: exact counts, times that add up, and a void profile where two lists part."""

from __future__ import annotations

import json
import random
import re
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


@pytest.mark.parametrize(
    ("stage", "products"), [("qkvg", 4 * 8), ("output", 8), ("ffn_down", 8), ("lm_head", 1)]
)
def test_repeating_a_stage_runs_it_again_and_changes_no_bit(stage: str, products: int) -> None:
    with load() as engine, load() as plain:
        once = profiler.profile(engine, TOKENS[0], compare_off=False)
        engine.rollback(1)
        again = profiler.profile(engine, TOKENS[0], repeat={stage: 4}, compare_off=False)
        row = plain.decode_token(TOKENS[0]).tobytes()
        assert once.row.tobytes() == again.row.tobytes() == row
        assert again.dispatches == once.dispatches + 3 * products
        # A small file: each of the three repetitions has copies of its own in every layer.
        tensors = {"qkvg": ("attn_q", "attn_k", "attn_v", "attn_gate"), "output": ("attn_output",)}
        names = tensors.get(stage, ("output" if stage == "lm_head" else stage,))
        weights = [t for t in engine.info["tensors"] if t["name"].split(".")[-2] in names]
        assert len(weights) == products
        assert once.spare_bytes == 0
        assert again.spare_bytes >= 3 * sum(t["bytes"] for t in weights)
        # The next token finds nothing of it.
        assert engine.decode_token(TOKENS[1]).tobytes() == plain.decode_token(TOKENS[1]).tobytes()


def test_stages_that_change_what_they_read_are_not_repeated() -> None:
    with load() as engine:
        with pytest.raises(muser.ConfigError, match="silu"):
            profiler.profile(engine, TOKENS[0], repeat={"silu": 2})
        assert engine.position == 0


@pytest.mark.parametrize("device", ["cpu", "emulator"])
def test_a_slope_leaves_the_engine_where_it_was(device: str) -> None:
    config = muser.Config(schedule="lean", context=128, device=device)
    with muser.load(synthetic_path("synthetic:tiny"), config=config) as engine, load() as plain:
        engine.decode_token(TOKENS[0])
        found = profiler.slope(engine, TOKENS[1], "output", counts=(1, 3), rounds=2)
        assert engine.position == 1
        plain.decode_token(TOKENS[0])
        assert engine.decode_token(TOKENS[1]).tobytes() == plain.decode_token(TOKENS[1]).tobytes()
    assert len(found["rounds"]) == 2
    assert found["spare_bytes"] > 0


def test_a_slope_is_the_means_least_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans of 10 + 3 k in one round and 10 + 5 k in the other, with the own time to match."""
    calls: list[int] = []

    class Token:
        def __init__(self, k: int) -> None:
            each = 3.0 if len(calls) <= 7 else 5.0
            self.span_ms = 10.0 + each * k
            self.spare_bytes = 1000
            self.own = each

        def stages(self) -> dict[str, dict[str, float]]:
            return {"output": {"time_ms": self.own}}

    def measured(*_: object, repeat: dict[str, int], **__: object) -> Token:
        calls.append(repeat["output"])
        return Token(repeat["output"])

    monkeypatch.setattr(profiler, "profile", measured)
    with load() as engine:
        monkeypatch.setattr(engine, "rollback", lambda tokens: None)
        found = profiler.slope(engine, TOKENS[0], "output", rounds=2)
    assert calls == [8, *(1, 2, 1, 4, 1, 8), *(8, 1, 4, 1, 2, 1)], "copies; forth; back"
    assert found["slope_ms"] == pytest.approx(4.0)
    assert found["own_ms"] == pytest.approx(4.0)
    assert found["slope_error_ms"] == found["own_error_ms"] == pytest.approx(1.0)
    assert found["span_ms"] == pytest.approx([14.0, 18.0, 26.0, 42.0])
    assert found["spare_bytes"] == 1000
    assert found["apart"] == pytest.approx(0.0)
    assert found["apart_error"] == pytest.approx(0.0), "own time explains every slope"


def rounds_of(spans: list[list[float]], owns: list[float | None]) -> list[dict[str, Any]]:
    return [
        {"span_ms": span, "slope_ms": span[1] - span[0], "own_ms": own}
        for span, own in zip(spans, owns, strict=True)
    ]


def test_a_round_that_was_stopped_is_left_out() -> None:
    spans = [[10.0, 12.0], [10.0, 13.0], [10.0, 9000.0], [10.0, 11.0]]
    # What delays a short token and a long one alike is left out of both or of neither.
    for delay, out in ((20.0, False), (30.0, True)):
        for short, long in ((10.0 + delay, 12.0), (10.0, 12.0 + delay)):
            told = rounds_of([*spans[:2], spans[3], [short, long]] * 3, [2.0] * 12)
            assert profiler._slope_of(told)["rounds"][3]["left_out"] == out
    found = profiler._slope_of(rounds_of(spans, [2.0, 2.0, 2.0, 2.0]))
    assert [one["left_out"] for one in found["rounds"]] == [False, False, True, False]
    assert found["slope_ms"] == pytest.approx(2.0)
    assert found["slope_error_ms"] == pytest.approx(3**-0.5)
    assert found["apart"] == pytest.approx(0.0)
    assert found["apart_error"] == pytest.approx(3**-0.5 / 2)


def test_errors_know_that_slow_times_last() -> None:
    """Sixteen values in four plateaus are four values, however often each was measured."""
    plateaus = [level for level in (1.0, 2.0, 3.0, 4.0) for _ in range(4)]
    alone = profiler._standard_error([1.0, 2.0, 3.0])
    assert alone == pytest.approx(3**-0.5)
    assert profiler._standard_error(plateaus) == pytest.approx((5 / 3) ** 0.5 / 2)
    assert profiler._standard_error([1.0]) is None


def test_a_slope_without_own_times_is_compared_with_nothing() -> None:
    found = profiler._slope_of(rounds_of([[10.0, 12.0], [10.0, 14.0]], [2.0, None]))
    assert found["slope_ms"] == pytest.approx(3.0)
    assert found["own_ms"] is found["apart"] is found["apart_error"] is None


@pytest.mark.parametrize(("noise", "expected"), [(0.01, 4), (5.0, 40)])
def test_rounds_go_on_until_the_precision(
    monkeypatch: pytest.MonkeyPatch, noise: float, expected: int
) -> None:
    chance = random.Random(1)

    class Token:
        spare_bytes = 0

        def __init__(self, k: int) -> None:
            self.span_ms = 100.0 + 2.0 * k

        def stages(self) -> dict[str, dict[str, float]]:
            return {"output": {"time_ms": 2.0 + chance.gauss(0.0, noise)}}

    def measured(*_: object, repeat: dict[str, int], **__: object) -> Token:
        return Token(repeat["output"])

    monkeypatch.setattr(profiler, "profile", measured)
    with load() as engine:
        monkeypatch.setattr(engine, "rollback", lambda tokens: None)
        found = profiler.slope(engine, TOKENS[0], "output", rounds=4, precision=0.05)
    assert len(found["rounds"]) == expected


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


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real shapes: a head of 1.1 GB, and an ffn_down of 75 MB in each of four layers, which large
    caches would hold from one repetition to the next."""
    path = tmp_path_factory.mktemp("large") / "mid4.gguf"
    write("mid4", path)
    return path


@pytest.mark.sweep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("stage", ["lm_head", "ffn_down"])
def test_a_stages_slope_is_its_own_time(
    large_file: Path, stage: str, threads: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with muser.load(large_file, config=muser.Config(context=128, threads=threads)) as engine:
        tokens = [int(t) for t in fixed_tokens(41, engine.vocab)]
        engine.prefill(tokens[:40])
        engine.decode_token(tokens[40])
        engine.rollback(1)
        found = profiler.slope(engine, tokens[40], stage, rounds=60, precision=0.03)
        plain = engine.decode_token(tokens[40]).tobytes()
        engine.rollback(1)
        again = profiler.profile(engine, tokens[40], repeat={stage: 8}, compare_off=False)
    assert again.row.tobytes() == plain
    with capsys.disabled():
        told = ("slope_ms", "slope_error_ms", "own_ms", "own_error_ms", "apart", "apart_error")
        figures = ", ".join(f"{name} {found[name]:.3f}" for name in told)
        print(f"\n  {stage}, {threads} threads, {len(found['rounds'])} rounds: {figures}", end="")
    assert found["slope_ms"] == pytest.approx(found["own_ms"], rel=0.1)


def test_the_command_tells_a_slope(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["profile", "-m", "synthetic:tiny", "--slope", "lm_head", "--rounds", "1"]
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "muser.slope/1"
    assert told["stage"] == "lm_head"
    assert told["counts"] == [1, 2, 4, 8]
    assert len(told["span_ms"]) == 4
    assert len(told["rounds"]) == 1
    assert told["slope_error_ms"] is None
    assert main([*command[:-1], "2", "--precision", "0.001"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"slope \S+ \+- \S+ ms; its closures measured at one run \S+ \+- \S+ ms", shown
    )
    kept = re.search(r"means of (\d+) rounds \((\d+) more left out\)", shown)
    assert kept is not None
    assert int(kept[1]) + int(kept[2]) == 20, "ten times the two that were asked for"
    assert "copied weights" in shown
    assert main([*command[:3], "--repeat", "ffn_down=3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["spare_bytes"] > 0
    assert main([*command, "--phase"]) == 2
