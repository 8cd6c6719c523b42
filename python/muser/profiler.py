"""Where a token's time goes: closures counted exactly, timed where the device can tell.

Labels and samples come from two sides. The labels are derived here, from what the schedule and the
ring state after this token say must run; the samples are what the device reports to have run. If
they differ the profile is void: ProfileMismatch carries both lists. (An instrument that pairs two
such lists without looking gives every closure its neighbour's time.)
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .engine import Engine
from .errors import MuserError

SCHEMA = "muser.profile/1"
PHASE_NOTE = (
    "phase profile: each closure was its own command buffer, submitted and waited for; this "
    "measures a graph that production never runs"
)

# What the label table needs to know of a schedule, written down from docs/graph.md and not read
# from the core: this is the second opinion.
_SPLIT_BOUNDARIES = {"baseline", "production"}
_COPIES_ROW = {"baseline"}
_IN_PLACE = {"ring", "joined", "lean", "legacy"}
_JOINED = {"joined", "lean", "legacy"}
_FUSED_QK = {"lean"}
_FUSED_GATE = {"lean"}
_FUSED_FFN = {"lean"}


class ProfileMismatch(MuserError):  # noqa: N818 (what was found, not a failure of the engine)
    """Labels and samples are not the same list; facts `labels`, `samples` hold their lengths, the
    attributes of the same names the lists themselves."""

    def __init__(self, labels: Sequence[str], samples: Sequence[str]) -> None:
        self.labels, self.samples = list(labels), list(samples)
        at = next(
            (i for i, (a, b) in enumerate(zip(labels, samples, strict=False)) if a != b),
            min(len(labels), len(samples)),
        )
        name = [seq[at] if at < len(seq) else "nothing" for seq in (self.labels, self.samples)]
        super().__init__(
            f"{len(self.labels)} labels for {len(self.samples)} samples; they part at {at}: "
            f"label {name[0]}, sample {name[1]}.\n"
            f"labels: {', '.join(self.labels)}\nsamples: {', '.join(self.samples)}",
            {"labels": len(self.labels), "samples": len(self.samples), "at": at},
        )


def labels(
    schedule: str,
    is_local: Sequence[bool],
    window: int,
    length: int,
    *,
    fused_ffn: Sequence[bool] | None = None,
) -> list[str]:
    """The closures of the token that brought the sequence to `length` tokens.

    `length` is the state after the append: the ring has wrapped when it exceeds `window`.
    `fused_ffn`: per layer, whether the gate and up products were fused with SiLU; default: as the
    schedule says.
    """
    wrapped = length > window
    fused = schedule not in _SPLIT_BOUNDARIES
    found = ["embedding", "entry_norm"]
    for layer, local in enumerate(is_local):
        stages: list[str] = []
        if layer == 0 or not fused:
            stages.append("attn_norm")
        stages.append("qkvg")
        if schedule not in _FUSED_QK:
            stages += ["qk_norm", "rope"] if local else ["qk_norm"]
        if schedule in _JOINED:
            stages.append("store_attend")
        elif local and wrapped and schedule not in _IN_PLACE:
            stages += ["swa_stage", "attention", "kv_store"]
        else:
            stages += ["kv_store", "attention"]
        if schedule not in _FUSED_GATE:
            stages.append("sigmoid_gate")
        stages.append("output")
        stages += ["post_attn_ffn_norm"] if fused else ["post_attn_norm", "ffn_norm"]
        stages.append("ffn_gate_up")
        one_kernel = schedule in _FUSED_FFN if fused_ffn is None else fused_ffn[layer]
        if not one_kernel:
            stages.append("silu")
        stages += ["ffn_down", "post_ffn_next_norm" if fused else "post_ffn_norm"]
        found += [f"blk.{layer}.{stage}" for stage in stages]
    if not fused:
        found.append("output_norm")
    if schedule in _COPIES_ROW:
        found.append("copy_last_row")
    return [*found, "lm_head", "softcap"]


def match(expected: Sequence[str], samples: Sequence[str]) -> None:
    """ProfileMismatch unless the two lists are the same."""
    if list(expected) != list(samples):
        raise ProfileMismatch(expected, samples)


def _fusable(info: Mapping[str, Any], layer: int) -> bool:
    """Whether one kernel can make both FFN products and SiLU: equal block types, whole blocks."""
    types = {
        tensor["name"].split(".")[2]: tensor
        for tensor in info["tensors"]
        if tensor["name"].startswith(f"blk.{layer}.ffn_")
    }
    gate, up = types["ffn_gate"], types["ffn_up"]
    block = gate["type"] not in ("F32", "F16", "BF16")
    return block and gate["type"] == up["type"] and gate["shape"][0] % 256 == 0


@dataclass(frozen=True)
class Closure:
    """One closure of a profiled token. Times in milliseconds; None where the device cannot tell."""

    label: str
    start_ms: float | None
    """On the device's clock, from the first known start of the token."""
    time_ms: float | None
    gap_ms: float | None
    """From the latest end so far to this start; 0 where closures overlap."""


@dataclass(frozen=True)
class Profile:
    """One token, measured."""

    schedule: str
    position: int
    phase: bool
    closures: tuple[Closure, ...]
    dispatches: int
    barriers: Mapping[str, int]
    command_buffers: int
    device_ms: float
    """Start to end of the command buffers, summed."""
    encode_ms: float
    submit_ms: float
    wait_ms: float
    readback_ms: float
    wall_ms: float
    """With profiling on."""
    wall_off_ms: float | None
    """The same step with profiling off, measured beside it."""
    spare_bytes: int
    """Copies of weights that repetitions read, held until the engine closes."""
    row: Any = field(repr=False, compare=False)
    """The logits, float32[vocab]: profiling changes no bit."""

    @property
    def known(self) -> bool:
        """Every closure has a time."""
        return all(closure.time_ms is not None for closure in self.closures)

    @property
    def span_ms(self) -> float | None:
        """First start to last end of the closures, on the device's clock."""
        if not self.known or self.phase:
            return None
        return max((c.start_ms or 0.0) + (c.time_ms or 0.0) for c in self.closures)

    @property
    def closures_ms(self) -> float | None:
        return sum(c.time_ms or 0.0 for c in self.closures) if self.known else None

    @property
    def gaps_ms(self) -> float | None:
        """Sum of the measured gaps; with closures_ms it makes up the span."""
        return sum(c.gap_ms or 0.0 for c in self.closures) if self.known else None

    def stages(self) -> dict[str, dict[str, Any]]:
        """Stage -> `count`, `time_ms` (None where unknown), in order of first appearance."""
        found: dict[str, dict[str, Any]] = {}
        for closure in self.closures:
            stage = closure.label.rsplit(".", 1)[-1]
            entry = found.setdefault(stage, {"count": 0, "time_ms": 0.0})
            entry["count"] += 1
            known = closure.time_ms is not None and entry["time_ms"] is not None
            entry["time_ms"] = entry["time_ms"] + closure.time_ms if known else None
        return found

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "schedule": self.schedule,
            "position": self.position,
            "phase": self.phase,
            "note": PHASE_NOTE if self.phase else None,
            "closures": len(self.closures),
            "dispatches": self.dispatches,
            "barriers": dict(self.barriers),
            "command_buffers": self.command_buffers,
            "device_ms": self.device_ms,
            "span_ms": self.span_ms,
            "closures_ms": self.closures_ms,
            "gaps_ms": self.gaps_ms,
            "encode_ms": self.encode_ms,
            "submit_ms": self.submit_ms,
            "wait_ms": self.wait_ms,
            "readback_ms": self.readback_ms,
            "wall_ms": self.wall_ms,
            "wall_off_ms": self.wall_off_ms,
            "spare_bytes": self.spare_bytes,
            "stages": self.stages(),
            "samples": [
                {"label": c.label, "start_ms": c.start_ms, "time_ms": c.time_ms, "gap_ms": c.gap_ms}
                for c in self.closures
            ],
        }

    def chrome_trace(self) -> dict[str, Any]:
        """Trace events for chrome://tracing or Perfetto; closures without a time are left out."""
        events = [
            {
                "name": c.label,
                "cat": c.label.rsplit(".", 1)[-1],
                "ph": "X",
                "ts": (c.start_ms or 0.0) * 1e3,
                "dur": c.time_ms * 1e3,
                "pid": 0,
                "tid": 0,
            }
            for c in self.closures
            if c.time_ms is not None
        ]
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def _closures(samples: Sequence[Mapping[str, Any]]) -> tuple[Closure, ...]:
    known = [s["start"] for s in samples if s["start"] is not None]
    zero = min(known, default=0.0)
    found: list[Closure] = []
    latest: float | None = None
    for sample in samples:
        start, end = sample["start"], sample["end"]
        if start is None:
            found.append(Closure(sample["closure"], None, None, None))
            continue
        # A closure that overlaps the one before counts from where that one ended.
        begin = start if latest is None else max(start, latest)
        gap = 0.0 if latest is None else max(0.0, start - latest)
        time_ms = max(0.0, end - begin) * 1e3
        found.append(Closure(sample["closure"], (begin - zero) * 1e3, time_ms, gap * 1e3))
        latest = end if latest is None else max(latest, end)
    return tuple(found)


def profile(
    engine: Engine,
    token: int,
    *,
    phase: bool = False,
    repeat: Mapping[str, int] | None = None,
    compare_off: bool = True,
) -> Profile:
    """Feeds one token, measured; the engine advances by it and no bit differs from decode_token.

    `phase`: each closure as its own command buffer (what the flag MUSER_METAL_PHASE_PROFILE asks
    for). `repeat`: stage -> k runs its kernels k times, for its own time by the slope; stages that
    cannot be repeated are a ConfigError. The first k - 1 runs read copies of weights of the same
    shape, each as cold as the token finds its own (at most a GiB of copies for a stage, or one
    matrix more; DeviceMemoryError). The first call that makes them reads some still warm.
    `compare_off`: first run the same step unprofiled and take it back, for `wall_off_ms`; needs one
    token of undo history.
    Raises ProfileMismatch besides what decode_token raises.
    """
    wall_off = None
    if compare_off and engine.config.rollback_max:
        start = time.perf_counter()
        engine.decode_token(token)
        wall_off = (time.perf_counter() - start) * 1e3
        engine.rollback(1)
    told = engine.profile_raw(token, phase=phase, repeat=repeat or {})
    geometry = engine.geometry
    fused = [
        (told["schedule"] in _FUSED_FFN or engine.config.ffn_gate_up) and _fusable(engine.info, i)
        for i in range(geometry["layers"])
    ]
    expected = labels(
        told["schedule"],
        geometry["is_local"],
        geometry["window"],
        engine.position,
        fused_ffn=fused,
    )
    match(expected, [sample["closure"] for sample in told["samples"]])
    return Profile(
        schedule=told["schedule"],
        position=told["position"],
        phase=phase,
        closures=_closures(told["samples"]),
        dispatches=told["dispatches"],
        barriers=told["barriers"],
        command_buffers=told["command_buffers"],
        device_ms=told["device_seconds"] * 1e3,
        encode_ms=told["encode_seconds"] * 1e3,
        submit_ms=told["submit_seconds"] * 1e3,
        wait_ms=told["wait_seconds"] * 1e3,
        readback_ms=told["readback_seconds"] * 1e3,
        wall_ms=told["wall_seconds"] * 1e3,
        wall_off_ms=wall_off,
        spare_bytes=told["spare_bytes"],
        row=told["logits"],
    )


def slope(
    engine: Engine,
    token: int,
    stage: str,
    *,
    counts: Sequence[int] = (1, 2, 4, 8),
    rounds: int = 20,
    precision: float | None = None,
) -> dict[str, Any]:
    """A stage's own time by repetition: how much the span of the token grows with each run of the
    stage, against the time that the profile gives the stage's closures at one run. The slope sees
    the token's ends only, and so tells whether the closures' times are true.

    `counts` begin with 1. Each round measures every other count, and one run beside each, and gives
    one least-squares slope and one own time, so that a slow minute is in both. Means are reported,
    since times add up in the mean and not in the median, with standard errors of batches of
    rounds, since slow times last: where others use the machine, more `rounds` make these small.
    `precision`: goes on until `apart_error` is at most this, for up to ten times `rounds`, asking
    after each `rounds` only: an error that is looked at all the time looks small at some time.
    Rounds in which the process was stopped are left out, and counted: a token took longer than its
    count's median by two of the longest tokens. Every run is taken back: the engine stays where it
    is. Repetitions read copies of the weights (`profile`), made in a run before the first round.

    Returns `stage`, `counts`, `span_ms`, `slope_ms`, `slope_error_ms`, `own_ms`, `own_error_ms`,
    `apart` (slope over own time, less 1), `apart_error`, `rounds` (per round `span_ms`, `slope_ms`,
    `own_ms`, `left_out`) and `spare_bytes`. Errors are None after one round; they and the rest that
    needs own times are None where the device cannot tell them.
    """
    spare_bytes = profile(engine, token, repeat={stage: max(counts)}, compare_off=False).spare_bytes
    engine.rollback(1)
    told: list[dict[str, Any]] = []
    while True:
        spans: dict[int, list[float]] = {k: [] for k in counts}
        owns: list[float | None] = []
        # Forth and back in turns: a drift that outlasts a round favours no count.
        order = [k for other in counts[1:] for k in (1, other)]
        for k in order if len(told) % 2 == 0 else reversed(order):
            found = profile(engine, token, repeat={stage: k}, compare_off=False)
            engine.rollback(1)
            spans[k].append(found.span_ms if found.span_ms is not None else found.device_ms)
            if k == 1:
                owns.append(found.stages()[stage]["time_ms"])
        span_ms = [statistics.fmean(spans[k]) for k in counts]
        known = [own for own in owns if own is not None]
        told.append(
            {
                "span_ms": span_ms,
                "slope_ms": _least_squares(counts, span_ms),
                "own_ms": statistics.fmean(known) if len(known) == len(owns) else None,
            }
        )
        if len(told) % rounds != 0:
            continue
        result = _slope_of(told)
        error = result["apart_error"]
        enough = precision is None or error is None or error <= precision
        if enough or len(told) >= 10 * rounds:
            break
    return {"stage": stage, "counts": list(counts), **result, "spare_bytes": spare_bytes}


def _slope_of(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of `slope` that rounds give; says in each of them whether it was left out."""
    columns = list(zip(*(one["span_ms"] for one in rounds), strict=True))
    medians = [statistics.median(column) for column in columns]
    # The same delay for every count: one in proportion to the token would leave out the stops of
    # short tokens and keep those of long ones.
    most = [median + 2 * max(medians) for median in medians]
    for one in rounds:
        one["left_out"] = any(ms > limit for ms, limit in zip(one["span_ms"], most, strict=True))
    kept = [one for one in rounds if not one["left_out"]]
    slopes = [one["slope_ms"] for one in kept]
    slope_ms = statistics.fmean(slopes)
    result = {
        "span_ms": [statistics.fmean(one["span_ms"][i] for one in kept) for i in range(len(most))],
        "slope_ms": slope_ms,
        "slope_error_ms": _standard_error(slopes),
        "own_ms": None,
        "own_error_ms": None,
        "apart": None,
        "apart_error": None,
        "rounds": rounds,
    }
    owns = [one["own_ms"] for one in kept if one["own_ms"] is not None]
    if len(owns) < len(kept):
        return result
    own_ms = statistics.fmean(owns)
    ratio = slope_ms / own_ms
    # Of a ratio of means: what of a round's slope its own time does not explain.
    rest = _standard_error([a - ratio * b for a, b in zip(slopes, owns, strict=True)])
    return result | {
        "own_ms": own_ms,
        "own_error_ms": _standard_error(owns),
        "apart": ratio - 1,
        "apart_error": None if rest is None else rest / own_ms,
    }


def _least_squares(counts: Sequence[int], values: Sequence[float]) -> float:
    """The slope of the line through the values; two different counts at least."""
    mean_k, mean = statistics.fmean(counts), statistics.fmean(values)
    rise = sum((k - mean_k) * (v - mean) for k, v in zip(counts, values, strict=True))
    run = sum((k - mean_k) ** 2 for k in counts)
    return rise / run


def _standard_error(values: Sequence[float]) -> float | None:
    """Of the mean of values that follow each other in time and are alike for a while: from the
    means of batches, about as many as each has values."""
    size = max(1, int(len(values) ** 0.5))
    cut = len(values) % size
    means = [statistics.fmean(values[i : i + size]) for i in range(cut, len(values), size)]
    return statistics.stdev(means) / len(means) ** 0.5 if len(means) > 1 else None
