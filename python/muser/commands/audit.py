"""`muser audit`: are the memory accesses of a step ordered? Of this engine, or of a trace."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .common import Subparsers, Usage, add_engine, add_json, config_of, emit, integer, say, table
from .common import console as make_console

if TYPE_CHECKING:
    from ..audit import Event, Result
    from ..config import Config

SHOWN = 20


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "audit",
        help="find accesses that nothing orders",
        description=__doc__,
        epilog="Exit code 1 on any finding but REDUNDANT, on a mutant judged wrongly, and on rows "
        "that depend on the schedule. docs/ordering.md tells how to read a finding.",
    )
    parser.add_argument(
        "-m",
        "--model",
        metavar="FILE",
        default="synthetic:tiny",
        help="the GGUF file; default: synthetic:tiny, the built-in one",
    )
    parser.add_argument(
        "--trace", metavar="FILE", help="audit a recorded command stream instead (JSON Lines)"
    )
    parser.add_argument(
        "--position",
        type=integer(0, 1 << 24),
        metavar="P",
        help="of the step; default: the first wrapped one",
    )
    parser.add_argument(
        "--tokens",
        type=integer(1, 64),
        metavar="N",
        default=1,
        help="more than one: a teacher-forced lane, or what the next options make of them",
    )
    together = parser.add_mutually_exclusive_group()
    together.add_argument("--greedy", action="store_true", help="a greedy lane: the device chooses")
    together.add_argument("--chunk", action="store_true", help="one prompt chunk")
    parser.add_argument(
        "--mutate", action="store_true", help="judge every mutant: is the auditor right?"
    )
    parser.add_argument(
        "--seeds",
        type=integer(1, 1 << 20),
        metavar="N",
        help="run the step under N schedules of the emulator and count distinct rows",
    )
    parser.add_argument("--record", metavar="FILE", help="write the trace (JSON Lines)")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--html", metavar="FILE", help="draw it: one self-contained page")
    add_json(output)
    add_engine(parser)
    parser.set_defaults(run=run)


def _record(arguments: argparse.Namespace) -> tuple[list[Event], dict[str, Any]]:
    """The engine's own stream, and what it is of."""
    from ..engine import load

    with load(arguments.model, config=config_of(arguments)) as engine:
        position = arguments.position
        if position is None:
            position = min(engine.geometry["window"], engine.context - arguments.tokens)
        facts = {
            "model": engine.path,
            "schedule": engine.config.schedule,
            "device": engine.device["name"],
            "barrier_mode": engine.config.barriers,
            "position": position,
            "tokens": arguments.tokens,
            "closures": len(engine.plan_at(position).closures) + arguments.greedy,
        }
        events = engine.record(
            position, arguments.tokens, chunk=arguments.chunk, greedy=arguments.greedy
        )
        return events, facts


def _seeds(
    arguments: argparse.Namespace, config: Config, position: int, together: tuple[int, ...]
) -> dict[str, Any]:
    """Distinct rows over the emulator's schedules, as it is and without the greedy joint set."""
    from ..audit import seeds

    state = seeds.prepare(arguments.model, config, position)
    wanted = range(1, arguments.seeds + 1)

    def count(faults: dict[str, int]) -> int:
        found = seeds.run(
            arguments.model,
            config,
            state,
            position,
            wanted,
            tokens=arguments.tokens,
            greedy=arguments.greedy,
            faults=faults,
        )
        return len(set(found.values()))

    told: dict[str, Any] = {"run": arguments.seeds, "distinct_hashes": count({})}
    # Barriers are left out by their number within a step, so one step is what this can judge.
    if arguments.mutate and together and arguments.tokens == 1:
        told["distinct_hashes_without_redundant"] = count(seeds.omitting(together))
    return told


def _failed(result: Result, mutants: dict[str, Any] | None, seeds: dict[str, Any] | None) -> bool:
    if result.hazards:
        return True
    if mutants is not None and (
        mutants["missed"]
        or mutants["extra"]
        or not mutants["silent_is_redundant"]
        or not mutants["together_sound"]
    ):
        return True
    return seeds is not None and any(
        count != 1 for name, count in seeds.items() if name.startswith("distinct")
    )


def _tell(
    facts: dict[str, Any],
    result: Result,
    mutants: dict[str, Any] | None,
    seeds: dict[str, Any] | None,
) -> None:
    for finding in result.hazards[:SHOWN]:
        say(finding["text"])
    if len(result.hazards) > SHOWN:
        say(f"... and {len(result.hazards) - SHOWN} findings more; --json has them all\n")
    rows = table("what", ">count")
    for name, value in facts.items():
        rows.add_row(name.replace("_", " "), str(value))
    for name, value in result.counts.items():
        rows.add_row(name.replace("_", " "), str(value))
    rows.add_row("findings but REDUNDANT", str(len(result.hazards)))
    for name, value in result.barriers.items():
        rows.add_row(f"barriers, {name}", str(value))
    rows.add_row("barriers that can all go together", str(len(result.together)))
    if mutants is not None:
        for name in ("total", "reported", "missed", "extra", "silent_redundant"):
            rows.add_row(f"mutants, {name.replace('_', ' ')}", str(mutants[name]))
        for name, kind in mutants["kinds"].items():
            rows.add_row(f"  {name.replace('_', ' ')}", f"{kind['reported']} of {kind['total']}")
    for name, value in (seeds or {}).items():
        rows.add_row(f"seeds, {name.replace('_', ' ')}", str(value))
    make_console().print(rows)


def run(arguments: argparse.Namespace) -> int:
    from ..audit import audit, dump, load, mutate
    from ..audit.page import page

    if arguments.trace is not None:
        if arguments.seeds is not None:
            raise Usage("--seeds runs the engine; a trace alone cannot be run")
        events = load(arguments.trace)
        facts: dict[str, Any] = {"trace": arguments.trace}
    else:
        if arguments.chunk and arguments.seeds is not None:
            raise Usage("--seeds runs a step or a lane, not a prompt chunk")
        events, facts = _record(arguments)
    if arguments.record is not None:
        dump(events, arguments.record)
    result = audit(events)
    mutants = mutate(events) if arguments.mutate and not result.hazards else None
    seeds = None
    if arguments.seeds is not None:
        seeds = _seeds(arguments, config_of(arguments), facts["position"], result.together)
    failed = _failed(result, mutants, seeds)
    if arguments.json:
        told: dict[str, Any] = {**facts, **result.counts}
        told["findings"] = list(result.findings)
        told["barriers"] = dict(result.barriers)
        told["redundant_together"] = list(result.together)
        told["mutants"] = mutants
        told["seeds"] = seeds
        emit("audit", told)
    elif arguments.html is not None:
        title = facts.get("trace") or f"{facts['schedule']} at position {facts['position']}"
        Path(arguments.html).write_text(page(title, events, result, facts), encoding="utf-8")
        say(f"{arguments.html}: {len(result.hazards)} findings, {result.counts['pairs']} pairs")
    else:
        _tell(facts, result, mutants, seeds)
    return 1 if failed else 0
