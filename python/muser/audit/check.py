"""What the auditor says of a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Event: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True)
class Result:
    """Findings of one trace, REDUNDANT ones last."""

    findings: tuple[Mapping[str, Any], ...]
    """`kind`, `sentence`, `text` (the sentence and its key=value lines), `places`, ..."""
    barriers: Mapping[str, int]
    """Counts: `broad`, `targeted`, `redundant` (each alone)."""
    together: tuple[int, ...]
    """Barriers, counted from 0, that can all go at once."""
    counts: Mapping[str, int]
    """What was looked at: `dispatches`, `accesses`, `pairs`, `command_buffers`."""

    @property
    def hazards(self) -> tuple[Mapping[str, Any], ...]:
        """Every finding but REDUNDANT."""
        return tuple(found for found in self.findings if found["kind"] != "REDUNDANT")


def audit(events: Sequence[Event]) -> Result:
    """Judges a trace. ConfigError where it is not sound in itself: an unknown buffer, bytes outside
    one, a command buffer that is never committed."""
    from .. import _core

    told = _core.audit(events)
    names = ("dispatches", "accesses", "pairs", "command_buffers")
    return Result(
        tuple(told["findings"]),
        dict(told["barriers"]),
        tuple(told["redundant_together"]),
        {name: told[name] for name in names},
    )


def mutate(events: Sequence[Event]) -> dict[str, Any]:
    """Judges every mutant of a trace without findings, by the checker and by the oracle: `total`,
    `reported`, `missed`, `extra`, `silent_redundant`, `silent_is_redundant`, `kinds` (name ->
    total, reported, unsound), `together`, `together_sound`, `disagreements`. ConfigError for a
    trace with findings."""
    from .. import _core

    return _core.mutate(events)
