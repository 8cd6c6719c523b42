"""What `auto` means: the device of a machine, and the schedule of a device.

A device's default schedule is the fastest exact one. The numbers beside it are `muser ladder`'s on
the 30b file at position 64; docs/ladder.md tells where the whole tables are, and what decided where
these lie close together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

AUTO = "auto"


@dataclass(frozen=True)
class Measured:
    """Milliseconds per token: of the default schedule and, in the same run, of `baseline`."""

    schedule: str
    ms: float | None
    """None: not measured on this device."""
    baseline_ms: float | None
    where: str


DEFAULT_SCHEDULES: Mapping[str, Measured] = {
    "cpu": Measured("lean", 423.6, 455.1, "two cores of a Xeon, AMX, 2026-11-30; README.md"),
    "cuda": Measured("lean", 6.22, 7.34, "one H200, 2026-11-29; docs/cuda.md"),
    "metal": Measured("lean", None, None, "no Apple GPU has run it; the fewest closures"),
    "emulator": Measured("lean", None, None, "no hardware's time; the fewest closures"),
}

# For files with more query heads per KV head than one pass over K and V serves.
UNGROUPED = "dual_norm"


def default_device() -> str:
    """`metal` where this build has it and it is usable, else `cpu`."""
    from . import _core

    usable = {device["name"] for device in _core.devices() if device["usable"]}
    return "metal" if "metal" in usable else "cpu"


def default_schedule(device: str, geometry: Mapping[str, Any]) -> str:
    """The fastest exact schedule on `device` that a file's `geometry` (of muser.inspect) allows."""
    from . import _core

    name = DEFAULT_SCHEDULES[device].schedule
    row = next(row for row in _core.schedules() if row["name"] == name)
    most = int(row["max_queries_per_kv_head"])
    fits = most == 0 or geometry["heads"] <= most * geometry["kv_heads"]
    return name if fits else UNGROUPED
