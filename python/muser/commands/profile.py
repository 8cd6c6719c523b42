"""`muser profile`: one token, closure by closure; counts exact, times where the device can tell."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from .. import profiler
from ..engine import load
from ..fixtures import fixed_tokens
from ..receipt import write_atomic
from .common import (
    Subparsers,
    Usage,
    add_engine,
    add_json,
    add_model,
    config_of,
    console,
    emit,
    integer,
    say,
    table,
)


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("profile", help="where one token's time goes", description=__doc__)
    add_model(parser)
    parser.add_argument(
        "--position",
        type=integer(0, (1 << 24) - 1),
        default=64,
        metavar="P",
        help="tokens fed before the one that is measured; default: 64",
    )
    parser.add_argument(
        "--phase",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="each closure as its own command buffer, waited for (a graph production never runs)",
    )
    parser.add_argument(
        "--repeat",
        action="append",
        default=[],
        metavar="STAGE=K",
        help="run a stage's kernels K times, all but the last on copies of its weights",
    )
    parser.add_argument(
        "--slope",
        metavar="STAGE",
        help="a stage's own time by repetition: its kernels run 1, 2, 4 and 8 times",
    )
    parser.add_argument(
        "--rounds",
        type=integer(1, 10000),
        default=20,
        metavar="N",
        help="--slope: times each count is run, in turns; default: 20",
    )
    parser.add_argument(
        "--precision",
        type=percent,
        metavar="P",
        help="--slope: go on until the comparison's standard error is P %% (ten times N at most)",
    )
    parser.add_argument("--closures", action="store_true", help="list every closure")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="a Chrome trace")
    add_json(parser)
    add_engine(parser)
    parser.set_defaults(run=run)


def percent(text: str) -> float:
    value = float(text) / 100
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"a percentage above 0 and below 100, not {text}")
    return value


def _repeats(items: list[str]) -> dict[str, int]:
    found = {}
    for item in items:
        stage, equals, count = item.partition("=")
        if not equals or not count.isdigit():
            raise Usage(f"--repeat takes STAGE=K, not {item!r}")
        found[stage] = int(count)
    return found


def run(args: argparse.Namespace) -> int:
    repeat = _repeats(args.repeat)
    if args.slope is not None and (repeat or args.phase or args.trace is not None):
        raise Usage("--slope goes without --repeat, --phase and --trace")
    config = config_of(args)
    phase = config.phase_profile if args.phase is None else args.phase
    with load(args.model, config=config) as engine:
        tokens = [int(t) for t in fixed_tokens(args.position + 2, engine.vocab)]
        if args.position:
            engine.prefill(tokens[: args.position])
        engine.decode_token(tokens[args.position])  # warm: first touches are not this token's time
        engine.rollback(1)
        if args.slope is not None:
            _slope(
                profiler.slope(
                    engine,
                    tokens[args.position],
                    args.slope,
                    rounds=args.rounds,
                    precision=args.precision,
                ),
                args.json,
            )
            return 0
        if repeat:  # makes the copies, which caches hold just then
            profiler.profile(engine, tokens[args.position], repeat=repeat, compare_off=False)
            engine.rollback(1)
        found = profiler.profile(engine, tokens[args.position], phase=phase, repeat=repeat)
    if args.trace is not None:
        write_atomic(args.trace, json.dumps(found.chrome_trace()).encode())
    if args.json:
        told = found.as_dict()
        del told["schema"]
        emit("profile", told)
        return 0
    _show(found, args.closures)
    return 0


def _slope(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit("slope", found)
        return
    shown = table(f">times {found['stage']} runs", ">span ms")
    for count, span in zip(found["counts"], found["span_ms"], strict=True):
        shown.add_row(str(count), _ms(span))
    console().print(shown)
    slope_ms = _with_error(found["slope_ms"], found["slope_error_ms"])
    own_ms = _with_error(found["own_ms"], found["own_error_ms"])
    say(f"slope {slope_ms} ms; its closures measured at one run {own_ms} ms")
    if found["apart"] is not None:
        error = found["apart_error"]
        more = "" if error is None else f" +- {error * 100:.1f}"
        say(f"{found['apart'] * 100:+.1f}{more} % apart")
    left_out = sum(one["left_out"] for one in found["rounds"])
    say(
        f"means of {len(found['rounds']) - left_out} rounds ({left_out} more left out), with "
        f"standard errors; repetitions read {found['spare_bytes'] / 1e6:,.1f} MB of copied weights"
    )


def _with_error(value: float | None, error: float | None) -> str:
    return _ms(value) + ("" if error is None else f" +- {error:.3f}")


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


def _show(found: profiler.Profile, closures: bool) -> None:
    say(
        f"schedule {found.schedule}, position {found.position:,}: {len(found.closures)} closures, "
        f"{found.dispatches} dispatches,\n{found.barriers['broad']} broad and "
        f"{found.barriers['targeted']} targeted barriers, {found.command_buffers} command buffer"
        f"{'s' if found.command_buffers != 1 else ''}"
    )
    if found.phase:
        say(profiler.PHASE_NOTE)
    shown = table("stage", ">closures", ">ms", ">ms each")
    for stage, entry in found.stages().items():
        each = None if entry["time_ms"] is None else entry["time_ms"] / entry["count"]
        shown.add_row(stage, str(entry["count"]), _ms(entry["time_ms"]), _ms(each))
    shown.add_section()
    shown.add_row("closures", str(len(found.closures)), _ms(found.closures_ms), "")
    shown.add_row("gaps between them", "", _ms(found.gaps_ms), "")
    shown.add_row("span", "", _ms(found.span_ms), "")
    console().print(shown)
    if closures:
        rows = table("closure", ">start ms", ">ms", ">gap ms")
        for closure in found.closures:
            rows.add_row(
                closure.label,
                _ms(closure.start_ms),
                _ms(closure.time_ms),
                _ms(closure.gap_ms),
            )
        console().print(rows)
    say(
        f"encode {_ms(found.encode_ms)}  submit {_ms(found.submit_ms)}  wait "
        f"{_ms(found.wait_ms)}  readback {_ms(found.readback_ms)} ms"
    )
    say(f"wall {_ms(found.wall_ms)} ms profiled, {_ms(found.wall_off_ms)} ms not")
