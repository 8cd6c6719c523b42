"""`muser ladder`: every schedule from one restored state, judged by the hash of the logits row."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..fixtures import fixed_tokens
from ..ladder import Step, climb
from ..receipt import write_atomic
from .common import (
    Subparsers,
    add_engine,
    add_json,
    add_model,
    config_of,
    console,
    emit,
    integer,
    say,
    table,
    token_ids,
)


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "ladder", help="closures, times and row hashes of every schedule", description=__doc__
    )
    add_model(parser)
    parser.add_argument(
        "--positions",
        type=token_ids,
        metavar="P,Q,...",
        help="positions whose rows are compared; times are taken at the first. Default: 64",
    )
    parser.add_argument("--schedules", metavar="A,B,...", help="default: all")
    parser.add_argument("--samples", type=integer(1, 1000), default=5, metavar="N")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="a receipt per step, taken over by later runs"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="a page with plots")
    add_json(parser)
    add_engine(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from ..engine import inspect

    positions = args.positions or [64]
    vocab = int(inspect(args.model)["geometry"]["vocab"])
    tokens = [int(t) for t in fixed_tokens(max(positions) + 16, vocab)]

    def told(step: Step) -> None:
        if not args.json:
            say(f"{step.step:<14} {step.closures:>4} closures  {step.verdict}")

    ladder = climb(
        args.model,
        positions=positions,
        tokens=tokens,
        schedules=args.schedules.split(",") if args.schedules else None,
        config=config_of(args),
        samples=args.samples,
        out=args.out,
        told=told,
    )
    if args.html is not None:
        from ..ladder.html import page

        write_atomic(args.html, page(ladder).encode())
    if args.json:
        for step in ladder.steps:
            emit("ladder.step", step.as_dict())
        whole = ladder.as_dict()
        del whole["schema"]
        emit("ladder", whole)
    else:
        _show(ladder.steps)
        if args.html is not None:
            say(f"written: {args.html}")
    broken = [step.step for step in ladder.steps if step.exact and step.sha_changed]
    return 1 if broken else 0


def _show(steps: tuple[Step, ...]) -> None:
    # Eighty columns: whether a row changed is in the verdict, and the receipt has the whole hash.
    shown = table("step", ">clos.", ">device ms", ">wall ms", ">CV %", ">tok/s", "row", "verdict")
    for step in steps:
        shown.add_row(
            step.step,
            str(step.closures),
            f"{step.device_ms:.2f}",
            f"{step.wall_ms:.2f}",
            f"{step.cv:.1f}",
            f"{step.streamed['tok_s']:.4g}",
            step.row_sha256[:6],
            step.verdict,
        )
    console().print(shown)
    for step in steps:
        if step.diff is None or step.post_mortem is None:
            continue
        diff, kv, stage = step.diff, step.post_mortem["kv"], step.post_mortem["closure"]
        say(
            f"{step.step}: {len(step.differing_positions)} positions differ; at "
            f"{diff['position']} max {diff['max_abs']:.2e}, mean {diff['mean_abs']:.2e}, "
            f"logprob {diff['logprob_max']:.2e}"
        )
        if step.post_mortem["skipped"] is not None:
            say(f"  where it starts: not looked for: {step.post_mortem['skipped']}")
        if stage is not None:
            say(f"  first closure: {stage['output']} ({stage['differing']} values)")
        if kv is not None:
            say(
                f"  first KV difference: layer {kv['layer']}, {kv['plane']} plane, position "
                f"{kv['position']}, element {kv['element']}, bits {kv['bits'][0]} and "
                f"{kv['bits'][1]}"
            )
