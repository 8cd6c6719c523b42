"""`muser reconcile A B`: why schedule A has more closures than B, family by family."""

from __future__ import annotations

import argparse
from dataclasses import replace

from ..config import Config
from ..engine import load
from ..reconcile import PUBLISHED_CLOSURES, Reconciliation, reconcile
from .common import Subparsers, add_json, add_model, console, emit, integer, say, table


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "reconcile", help="closures of two schedules, family by family", description=__doc__
    )
    parser.add_argument("a", metavar="A", help="a schedule, such as baseline")
    parser.add_argument("b", metavar="B", help="another, such as legacy")
    add_model(parser)
    parser.add_argument(
        "--position",
        type=integer(0, (1 << 24) - 1),
        default=2048,
        metavar="P",
        help="position of the token that is recorded; default: 2048",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def record(model: str, schedule: str, position: int) -> tuple[str, ...]:
    """Labels of a schedule's closures at a position, from a recording of it."""
    config = replace(Config(), schedule=schedule, context=position + 1, allow_inexact=True)
    with load(model, config=config) as engine:
        return engine.plan_at(position).closures


def run(args: argparse.Namespace) -> int:
    found = reconcile(
        args.a,
        record(args.model, args.a, args.position),
        args.b,
        record(args.model, args.b, args.position),
        args.position,
    )
    if args.json:
        told = found.as_dict()
        del told["schema"]
        emit("reconcile", told)
    else:
        _show(found)
    return 0 if found.remainder == 0 else 1


def _show(found: Reconciliation) -> None:
    published = found.published
    columns = ["family", f">{found.a}", f">{found.b}", ">delta"]
    shown = table(*columns, *([">published"] if published else []))
    for family, delta in found.families.items():
        row = [family, found.a_families[family], found.b_families[family], f"{delta:+d}"]
        shown.add_row(*map(str, row), *([f"{published[family]:+d}"] if published else []))
    total = found.closures[0] - found.closures[1]
    row = ["total", *found.closures, f"{total:+d}"]
    if published:
        row.append(f"{PUBLISHED_CLOSURES[0] - PUBLISHED_CLOSURES[1]:+d}")
    shown.add_section()
    shown.add_row(*map(str, row))
    say(f"closures at position {found.position:,}: {found.a} against {found.b}")
    console().print(shown)
    say("  ".join(f"{name} {delta:+d}" for name, delta in found.named.items()))
    say(f"remainder {found.remainder}")
