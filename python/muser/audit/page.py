"""The audit as one self-contained HTML page: closures in time, buffers as rows, barriers, hazards.

What the page draws is prepared here; page.html holds its markup, style and script.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from .check import Event, Result

_HOST = {"commands", "commit", "wait", "host", "release", "reuse"}


def _columns(events: Sequence[Event]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Dispatches and host events in order, and the barriers between them."""
    columns: list[dict[str, Any]] = []
    barriers: list[dict[str, Any]] = []
    buffers: list[Any] = []
    encoder = host_event = dispatch = -1
    for event in events:
        kind = event["event"]
        if kind in _HOST:
            host_event += 1
        if kind == "commands":
            buffers.append(event["id"])
        owner = event.get("commands", buffers[-1] if buffers else 0)
        if kind == "encoder":
            encoder += 1
        elif kind == "dispatch":
            dispatch += 1
            columns.append(
                {
                    "kind": kind,
                    "label": event.get("label", ""),
                    "layer": event.get("layer", -1),
                    "kernel": event.get("kernel", ""),
                    "commands": owner,
                    "encoder": encoder,
                    "dispatch": dispatch,
                    "uses": [_use(use) for use in event["accesses"]],
                }
            )
        elif kind == "barrier":
            barriers.append(
                {
                    "before": len(columns),
                    "buffers": event.get("buffers"),
                    "site": event.get("site", ""),
                }
            )
        elif kind in {"commit", "wait"}:
            columns.append(
                {"kind": kind, "label": f"{kind} {owner}", "commands": owner, "uses": []}
            )
        elif kind == "host":
            columns.append(
                {
                    "kind": kind,
                    "label": f"host: {event.get('label', '')}",
                    "host_event": host_event,
                    "uses": [_use(event)],
                }
            )
    return columns, barriers


def _use(use: Mapping[str, Any]) -> list[Any]:
    return [
        use["buffer"],
        {"read": "r", "write": "w", "read_write": "rw"}[use["access"]],
        use.get("offset", 0),
        use.get("length"),
        str(use.get("argument", "")),
    ]


def _rows(events: Sequence[Event], columns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Buffers in order of first use, written ones before those that are only read."""
    first: dict[Any, int] = {}
    written: set[Any] = set()
    for number, column in enumerate(columns):
        for buffer, access, *_ in column["uses"]:
            first.setdefault(buffer, number)
            if "w" in access:
                written.add(buffer)
    rows = [
        {
            "id": event["id"],
            "label": event.get("label", f"buffer {event['id']}"),
            "bytes": event["length"],
            "tracked": event.get("tracked", True),
            "written": event["id"] in written,
            "first": first[event["id"]],
        }
        for event in events
        if event["event"] == "buffer" and event["id"] in first
    ]
    return sorted(rows, key=lambda row: (not row["written"], row["first"]))


def page(title: str, events: Sequence[Event], result: Result, facts: Mapping[str, Any]) -> str:
    """The page, for one trace and its result; `facts` are told in its head."""
    columns, barriers = _columns(events)
    for finding in result.findings:
        if finding["kind"] == "REDUNDANT":
            barriers[finding["barrier"]]["redundant"] = True
    # Findings number buffers in the order of their events; the page knows them by id.
    ids = [event["id"] for event in events if event["event"] == "buffer"]
    data = {
        "title": title,
        "facts": dict(facts),
        "counts": dict(result.counts),
        "barrier_counts": dict(result.barriers),
        "columns": columns,
        "barriers": barriers,
        "rows": _rows(events, columns),
        "findings": [
            {
                "kind": finding["kind"],
                "sentence": finding["sentence"],
                "text": finding["text"],
                "places": [
                    {**place, "object": ids[place["object"]]} if "object" in place else place
                    for place in finding["places"]
                ],
            }
            for finding in result.findings
        ],
    }
    template = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    # The data stands inside a script element: no "</script>" may end it early.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return template.replace("__DATA__", text)
