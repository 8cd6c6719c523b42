"""`muser kernels`: the kernels and their launch shapes; --check proves what they declare."""

from __future__ import annotations

import argparse
import dataclasses

from .. import kernels
from .common import Subparsers, add_json, console, emit, say, table


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "kernels",
        help="kernels, launch shapes, and the proof of their declarations",
        description=__doc__,
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="trace steps on the emulator: declared equals touched, no race",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    return _check(args.json) if args.check else _list(args.json)


def _list(as_json: bool) -> int:
    found = kernels.catalogue()
    if as_json:
        emit("kernels", {"kernels": [dataclasses.asdict(kernel) for kernel in found]})
        return 0
    shown = table("kernel", ">threads", "a group takes", "arguments from 1")
    for kernel in found:
        share = "everything" if kernel.unit == "whole" else f"{kernel.per_group} {kernel.unit}"
        pairs = zip(kernel.buffers, kernel.accesses, strict=True)
        uses = ", ".join(f"{name} {access}" for name, access in pairs)
        shown.add_row(kernel.name, str(kernel.threads), share, uses)
    console().print(shown)
    say(f"{len(found)} kernels; argument 0 is the struct of metal/kernels/args.h")
    return 0


def _check(as_json: bool) -> int:
    names = [kernel.name for kernel in kernels.catalogue()]
    proof = kernels.prove(told=None if as_json else say)
    unseen = [name for name in names if name not in proof.seen]
    if as_json:
        told = dataclasses.asdict(proof)
        emit("kernels.check", {**told, "kernels": len(names), "not_in_a_schedule": unseen})
    else:
        for finding in proof.findings:
            say(f"{finding['case']}: {finding['text']}")
        say(
            f"{proof.steps} steps, {proof.dispatches} dispatches of {len(proof.seen)} kernels, "
            f"{proof.loads:,} loads and {proof.stores:,} stores: {len(proof.findings)} findings"
        )
        say(f"in no schedule's step: {', '.join(unseen) or 'none'}")
    return 1 if proof.findings else 0
