"""Traces as JSON Lines: one event a line, as docs/audit-trace.md has them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError


def load(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The events of a file. ConfigError, with the line, where a line is no JSON object."""
    events: list[dict[str, Any]] = []
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                event = json.loads(line)
            except ValueError as error:
                raise ConfigError(
                    f"{os.fspath(path)}, line {number}: {error}", {"line": number}
                ) from None
            if not isinstance(event, dict):
                raise ConfigError(
                    f"{os.fspath(path)}, line {number}: not a JSON object", {"line": number}
                )
            events.append(event)
    return events


def dump(events: Iterable[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Writes events, one a line."""
    with Path(path).open("w", encoding="utf-8") as out:
        for event in events:
            out.write(json.dumps(event, separators=(",", ":"), allow_nan=False) + "\n")
