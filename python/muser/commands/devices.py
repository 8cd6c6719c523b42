"""`muser devices`: what this build can run on, and what it cannot, with the reason."""

from __future__ import annotations

import argparse

from .common import Subparsers, add_json, console, emit, table


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "devices", help="devices and instruction sets of this machine", description=__doc__
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from .. import _core
    from ..defaults import default_device

    found = _core.devices()
    default = default_device()
    if arguments.json:
        emit("devices", {"default": default, "devices": found})
        return 0
    rows = table("device", "usable", "instruction sets", "description")
    for device in found:
        mark = " (default)" if device["name"] == default else ""
        rows.add_row(
            device["name"] + mark,
            "yes" if device["usable"] else "no",
            ", ".join(device["isas"]),
            device["description"] if device["usable"] else device["why_not"],
        )
    console().print(rows)
    return 0
