"""Auditing the order of memory accesses: of this engine's own command streams, or of anybody's.

`trace` reads and writes streams as JSON Lines (docs/audit-trace.md), `check` judges one, `page`
draws it, `seeds` runs a step under many schedules of the emulator.
"""

from __future__ import annotations

from .check import Event, Result, audit, mutate
from .trace import dump, load

__all__ = ["Event", "Result", "audit", "dump", "load", "mutate"]
