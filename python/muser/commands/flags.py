"""`muser flags`: the environment flags, their values now, and docs/flags.md."""

from __future__ import annotations

import argparse

from .. import flags
from .common import Subparsers, add_json, console, emit, table


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "flags", help="environment flags: meaning, default and value", description=__doc__
    )
    parser.add_argument("--markdown", action="store_true", help="print docs/flags.md")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.markdown:
        print(flags.markdown(), end="")
        return 0
    active = flags.active()
    if arguments.json:
        rows = [
            {
                "name": flag.name,
                "field": flag.field,
                "default": flag.default,
                "value": flags.value(flag.field),
                "set": flag.name in active,
                "effect": flag.effect,
                "exactness": flag.exactness,
            }
            for flag in flags.FLAGS
        ]
        emit("flags", {"flags": rows})
        return 0
    rows_table = table("flag", "value", "effect")
    for flag in flags.FLAGS:
        value = flags.value(flag.field)
        shown = int(value) if isinstance(value, bool) else value
        mark = "" if flag.name in active else " (default)"
        rows_table.add_row(flag.name, f"{shown}{mark}", flag.effect.replace("`", ""))
    console().print(rows_table)
    return 0
