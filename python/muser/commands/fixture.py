"""`muser fixture`: write a synthetic file with the real layout and random weights."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from .common import Subparsers, add_json, emit, progress, say, size


def add(commands: Subparsers) -> None:
    from ..fixtures.kinds import KINDS, MIXES

    parser = commands.add_parser(
        "fixture",
        help="write a synthetic file: " + ", ".join(KINDS),
        description=__doc__,
        epilog="The bytes depend on kind, types and seed alone. 30b is 16.7 GB on disk.",
    )
    parser.add_argument("kind", choices=tuple(KINDS))
    parser.add_argument("path", metavar="FILE", nargs="?", help="default: KIND.gguf")
    parser.add_argument("-o", "--out", metavar="FILE", help="the same as FILE")
    parser.add_argument(
        "--types",
        choices=tuple(MIXES),
        metavar="TYPES",
        help=f"weight types, default the kind's own: {', '.join(MIXES)}",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default 1")
    parser.add_argument("--head-dim", type=int, metavar="N", help="another head width (tiny)")
    parser.add_argument(
        "--scalar-pattern", action="store_true", help="spell the window pattern as the number 4"
    )
    parser.add_argument(
        "--sparse", action="store_true", help="header only; the tensors are a hole of zeros"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from .. import fixtures

    path = arguments.out or arguments.path or f"{arguments.kind}.gguf"
    with progress() as bars:
        bar = bars.add_task(arguments.kind, total=None)
        info = fixtures.write(
            arguments.kind,
            path,
            types=arguments.types,
            seed=arguments.seed,
            head_dim=arguments.head_dim,
            scalar_pattern=arguments.scalar_pattern,
            sparse=arguments.sparse,
            progress=lambda done, total: bars.update(bar, completed=done, total=total),
        )
    if arguments.json:
        emit("fixture", {**asdict(info), "path": str(info.path)})
        return 0
    counts = ", ".join(f"{count} {kind}" for kind, count in info.census.items())
    say(f"{info.path}: {size(info.file_bytes)} in {info.seconds:.1f} s")
    say(f"  {info.tensors} tensors ({counts})")
    say(f"  {info.weight_bytes:,} bytes of weights, {info.bytes_per_token:,} read per token")
    return 0
