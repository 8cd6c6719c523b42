"""Climbing the ladder: one engine per schedule, all from the same snapshots."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import gates, profiler
from ..config import Config
from ..engine import Engine, load
from ..errors import ConfigError, DeviceMemoryError
from ..gates import Row
from ..receipt import write_json

SCHEMA = "muser.ladder/1"

# M3 Ultra, position 2,048, one teacher token, single-run diagnostics (docs/graph.md).
PUBLISHED: tuple[dict[str, Any], ...] = (
    {"step": "baseline", "closures": 760, "device_ms": 40.330, "sha_changed": False,
     "verdict": "reference"},
    {"step": "production", "closures": 759, "device_ms": 40.194, "sha_changed": False,
     "verdict": "landed"},
    {"step": "dual_norm_4sg", "closures": 655, "device_ms": 40.614, "sha_changed": True,
     "verdict": "rejected"},
    {"step": "dual_norm", "closures": 655, "device_ms": 39.274, "sha_changed": False,
     "verdict": "exact"},
    {"step": "gqa", "closures": 655, "device_ms": 37.097, "sha_changed": False,
     "verdict": "exact"},
)  # fmt: skip


def median_cv(values: Sequence[float]) -> tuple[float, float]:
    """Median, and coefficient of variation in percent (0 for one sample)."""
    middle = statistics.median(values)
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return middle, 100.0 * spread / statistics.fmean(values)


@dataclass(frozen=True)
class Step:
    """One schedule on the ladder. Times in milliseconds at the first of the positions."""

    step: str
    closures: int
    dispatches: int
    barriers: Mapping[str, int]
    exact: bool
    """What the schedule declares."""
    samples: int
    device_ms: float
    """Single-run diagnostic: the command buffer, start to end; median of the samples."""
    wall_ms: float
    """Single-run diagnostic: the whole call, with profiling off; median of the samples."""
    cv: float
    """Of the wall samples, percent."""
    streamed: Mapping[str, Any]
    """Another instrument: consecutive tokens; `tok_s` median, `cv` percent, `samples`, `tokens`."""
    row_sha256: str
    sha_changed: bool
    """At any of the positions."""
    verdict: str
    rows: Mapping[str, str]
    """Position -> hash of the row there."""
    differing_positions: tuple[int, ...]
    diff: Mapping[str, Any] | None
    """Of the row that differs most from the reference; None where none does."""
    post_mortem: Mapping[str, Any] | None
    """`kv`, `closure`: where the difference starts; for steps that changed."""
    errors: tuple[float, ...] = field(default=(), repr=False)
    """Absolute logit errors of that row, at 101 percentiles, for plots."""

    def as_dict(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in self.__dataclass_fields__}
        told["barriers"] = dict(self.barriers)
        told["differing_positions"] = list(self.differing_positions)
        told["errors"] = list(self.errors)
        return told

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Step:
        values = {name: told[name] for name in cls.__dataclass_fields__}
        values["differing_positions"] = tuple(values["differing_positions"])
        values["errors"] = tuple(values["errors"])
        return cls(**values)


@dataclass(frozen=True)
class Ladder:
    """All steps, and what they were measured on."""

    position: int
    positions: tuple[int, ...]
    token: int
    receipt: Mapping[str, Any]
    steps: tuple[Step, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "position": self.position,
            "positions": list(self.positions),
            "token": self.token,
            "steps": [step.as_dict() for step in self.steps],
            "published": [dict(row) for row in PUBLISHED],
            "receipt": dict(self.receipt),
        }


class _Climb:
    """What the steps share: snapshots by position, reference rows, the token fed at each."""

    def __init__(
        self, path: str, config: Config, positions: Sequence[int], tokens: Sequence[int]
    ) -> None:
        self.path, self.config, self.positions, self.tokens = path, config, positions, tokens
        self.snapshots: dict[int, bytes] = {}
        self.rows: dict[int, Row] = {}
        with self.engine("baseline") as engine:
            self.receipt = engine.receipt()
            for position in sorted(positions):
                if position > engine.position:
                    engine.prefill(tokens[engine.position : position])
                self.snapshots[position] = engine.snapshot()
            for position in positions:
                engine.restore(self.snapshots[position])
                self.rows[position] = engine.decode_token(tokens[position])

    def engine(self, schedule: str) -> Engine:
        return load(self.path, config=replace(self.config, schedule=schedule, allow_inexact=True))

    def key(self) -> dict[str, Any]:
        """What a stored step must agree with to be taken over."""
        receipt = self.receipt
        return {
            "contract": receipt["contract"],
            "file": receipt["file"]["digest"],
            "device": receipt["device"]["name"],
            "isa": receipt["isa"],
            "threads": receipt["threads"],
            "positions": list(self.positions),
            "tokens": [self.tokens[position] for position in self.positions],
            "kv_dtype": self.config.kv_dtype,
        }

    def step(self, schedule: str, exact: bool, samples: int) -> Step:
        with self.engine(schedule) as engine:
            plan = engine.plan_at(self.positions[0])
            rows: dict[int, Row] = {}
            for position in self.positions:
                engine.restore(self.snapshots[position])
                rows[position] = engine.decode_token(self.tokens[position])
            walls, devices = self._time(engine, samples)
            streamed = self._stream(engine)
            differing = [p for p in self.positions if rows[p].tobytes() != self.rows[p].tobytes()]
            diffs = {p: gates.row_diff(rows[p], self.rows[p], self._softcap()) for p in differing}
            worst = max(differing, key=lambda p: diffs[p].logprob_max, default=None)
            found = None if worst is None else self._post_mortem(engine, worst)
        wall, cv = median_cv(walls)
        error = 0.0 if worst is None else diffs[worst].logprob_max
        outcome = gates.verdict(exact, bool(differing), error)
        return Step(
            step=schedule,
            closures=len(plan.closures),
            dispatches=len(plan.dispatches),
            barriers=plan.barriers,
            exact=exact,
            samples=samples,
            device_ms=statistics.median(devices),
            wall_ms=wall,
            cv=cv,
            streamed=streamed,
            row_sha256=gates.row_sha256(rows[self.positions[0]]),
            sha_changed=bool(differing),
            verdict="reference" if schedule == "baseline" and not differing else outcome,
            rows={str(p): gates.row_sha256(row) for p, row in rows.items()},
            differing_positions=tuple(differing),
            diff=None if worst is None else {"position": worst, **diffs[worst].as_dict()},
            post_mortem=found,
            errors=() if worst is None else self._percentiles(rows[worst], self.rows[worst]),
        )

    def _softcap(self) -> float:
        return float(self.receipt["geometry"]["softcap"])

    @staticmethod
    def _percentiles(row: Row, reference: Row) -> tuple[float, ...]:
        error = np.abs(row.astype(np.float64) - reference)
        return tuple(float(x) for x in np.percentile(error, np.arange(101)))

    def _time(self, engine: Engine, samples: int) -> tuple[list[float], list[float]]:
        """Wall and device milliseconds of one token at the first position, again and again."""
        position = self.positions[0]
        token = self.tokens[position]
        out = np.empty(engine.vocab, np.float32)
        walls: list[float] = []
        devices: list[float] = []
        for sample in range(-1, samples):
            engine.restore(self.snapshots[position])
            start = time.perf_counter()
            engine.decode_token(token, out=out)
            wall = (time.perf_counter() - start) * 1e3
            engine.restore(self.snapshots[position])
            device = profiler.profile(engine, token, compare_off=False).device_ms
            if sample >= 0:  # the first one warms both up
                walls.append(wall)
                devices.append(device)
        return walls, devices

    def _stream(self, engine: Engine, samples: int = 5, length: int = 8) -> dict[str, Any]:
        """Tokens per second over consecutive tokens."""
        position = self.positions[0]
        length = min(length, len(self.tokens) - position, engine.context - position)
        out = np.empty(engine.vocab, np.float32)
        rates: list[float] = []
        for _ in range(samples):
            engine.restore(self.snapshots[position])
            start = time.perf_counter()
            for token in self.tokens[position : position + length]:
                engine.decode_token(token, out=out)
            rates.append(length / (time.perf_counter() - start))
        rate, cv = median_cv(rates)
        return {"tok_s": rate, "cv": cv, "samples": samples, "tokens": length}

    def _post_mortem(self, engine: Engine, position: int) -> dict[str, Any]:
        """Where the difference to the reference starts, at the position where it is largest."""
        stage = planes = skipped = None
        try:
            with self.engine("baseline") as reference:
                for one in (engine, reference):
                    one.restore(self.snapshots[position])
                stage = gates.stage_first_difference(engine, reference, self.tokens[position])
                planes = gates.kv_first_difference(engine, reference)
        except DeviceMemoryError as error:  # two engines side by side; the verdict stands
            skipped = str(error)
        return {
            "position": position,
            "closure": None if stage is None else stage.as_dict(),
            "kv": None if planes is None else planes.as_dict(),
            "skipped": skipped,
        }


def climb(
    path: str,
    *,
    positions: Sequence[int],
    tokens: Sequence[int],
    schedules: Sequence[str] | None = None,
    config: Config | None = None,
    samples: int = 5,
    out: Path | None = None,
    told: Callable[[Step], None] | None = None,
) -> Ladder:
    """Runs every schedule (or those named; `baseline` is always the reference) at `positions`.

    `tokens[p]` is fed at position p; times are taken at the first position. With `out`, each
    step's receipt is written there as soon as it is known, and taken over by a later run on the
    same file, device, positions and contract. `told` is called with each step.
    """
    from .. import _core

    if not positions:
        raise ConfigError("the ladder needs a position", {"field": "positions"})
    if max(positions) >= len(tokens):
        raise ConfigError(
            f"position {max(positions)} needs {max(positions) + 1} tokens, not {len(tokens)}",
            {"field": "tokens", "found": len(tokens), "expected": max(positions) + 1},
        )
    table = {row["name"]: bool(row["exact"]) for row in _core.schedules()}
    names = list(schedules) if schedules else list(table)
    unknown = [name for name in names if name not in table]
    if unknown:
        raise ConfigError(
            f"no schedule is called {unknown[0]!r}; there are {', '.join(table)}",
            {"field": "schedules", "value": unknown[0], "allowed": ", ".join(table)},
        )
    if config is None:
        config = Config()
    if config.context is None:
        config = replace(config, context=max(positions) + 64)
    shared = _Climb(path, config, positions, tokens)
    steps: list[Step] = []
    for name in names:
        step = _stored(out, name, shared.key(), samples)
        if step is None:
            step = shared.step(name, table[name], samples)
            if out is not None:
                out.mkdir(parents=True, exist_ok=True)
                record = {"schema": SCHEMA, "key": shared.key(), "step": step.as_dict()}
                write_json(out / f"{name}.json", record)
        steps.append(step)
        if told is not None:
            told(step)
    return Ladder(
        position=positions[0],
        positions=tuple(positions),
        token=tokens[positions[0]],
        receipt=shared.receipt,
        steps=tuple(steps),
    )


def _stored(out: Path | None, name: str, key: Mapping[str, Any], samples: int) -> Step | None:
    """A step of an earlier run, if it is the same one."""
    if out is None:
        return None
    try:
        found = json.loads((out / f"{name}.json").read_text())
    except (OSError, ValueError):
        return None
    if found.get("schema") != SCHEMA or found.get("key") != dict(key):
        return None
    step = Step.from_dict(found["step"])
    return step if step.samples >= samples else None
