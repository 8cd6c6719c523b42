"""muser's cpu device and llama.cpp side by side on one file: decode and prompt speed.

    python bench/compare_llama.py FILE --threads 1 2 --prompt 128 512 --pairs 9
    python bench/compare_llama.py FILE --json > result.json

Needs llama-cpp-python, built for this processor. Each pair runs one side and the other; which side
begins alternates, so that a machine whose speed drifts favours none. The read probe runs before and
after each side. Both sides have the same threads on the same processors, their weights in memory,
and have run once before anything is timed. `read` is the share of the probe's rate, around the same
run and with as many threads, at which the weights of a token (all but the embedding) are read.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from llama_side import KV, Llama, LlamaMissingError

import muser
from muser import _core, receipt

PAUSE = 0.05  # for threads of the side before to fall asleep
# Seconds. With --cpu-time the process's own, which other programs on the machine stretch far less.
clock: Callable[[], float] = time.perf_counter


def timed(work: Callable[[], object]) -> float:
    started = clock()
    work()
    return clock() - started


class Muser:
    def __init__(self, path: str, threads: int, tokens: int, kv: str, isa: str) -> None:
        config = muser.Config(device="cpu", threads=threads, context=tokens, kv_dtype=kv, isa=isa)
        self.engine = muser.load(path, config=config)

    def prompt(self, tokens: list[int]) -> None:
        self.engine.reset()
        self.engine.prefill(tokens)

    def steps(self, tokens: list[int]) -> None:
        for token in tokens:
            self.engine.decode_token(token)

    def equal_rows(self, prompt: list[int]) -> int:
        """Rows of a prompt that have the hash of the same row decoded."""
        self.engine.reset()
        rows = self.engine.prefill(prompt, all_rows=True)
        self.engine.reset()
        return sum(
            receipt.row_sha256(self.engine.decode_token(token)) == receipt.row_sha256(row)
            for token, row in zip(prompt, rows, strict=True)
        )


def tokens_of(count: int, vocab: int, first: int = 0) -> list[int]:
    return [(first + i) * 7919 % (vocab - 64) for i in range(count)]


def interleave(
    sides: Mapping[str, Callable[[], float]], probe: _core.ReadProbe, pairs: int
) -> list[dict[str, float]]:
    """Seconds of both sides and the probe's bytes a second around each, of each pair, after a
    warm-up."""
    for side in sides.values():
        side()
    found = []
    for pair in range(pairs):
        row: dict[str, float] = {}
        for name in sorted(sides, reverse=pair % 2 == 1):
            time.sleep(PAUSE)
            before = timed(probe.read_pass)
            row[name] = sides[name]()
            time.sleep(PAUSE)
            row[f"read_{name}"] = 2 * probe.bytes / (before + timed(probe.read_pass))
        row["read"] = (row["read_muser"] + row["read_llama"]) / 2
        found.append(row)
    return found


def decode_time(side: Muser | Llama, prompt: list[int], tokens: list[int]) -> float:
    side.prompt(prompt)
    return timed(partial(side.steps, tokens))


def prompt_time(side: Muser | Llama, prompt: list[int]) -> float:
    return timed(partial(side.prompt, prompt))


def summary(what: dict[str, Any], count: int, rows: list[dict[str, float]]) -> dict[str, Any]:
    """Medians over pairs; the ratio is the median of the pairs' ratios."""
    return {
        **what,
        "tokens": count,
        "muser_tok_s": median(count / row["muser"] for row in rows),
        "llama_tok_s": median(count / row["llama"] for row in rows),
        "ratio": median(row["llama"] / row["muser"] for row in rows),
        "read_bytes_s": median(row["read"] for row in rows),
        "pairs": rows,
    }


def read_shares(found: dict[str, Any], weight_bytes: int) -> None:
    """Adds the share of the probe's rate at which each side reads weights."""
    for side in ("muser", "llama"):
        found[f"{side}_read_percent"] = 100 * median(
            found["tokens"] / row[side] * weight_bytes / row[f"read_{side}"]
            for row in found["pairs"]
        )


def pin(processors: list[int]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, processors)


def compare(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    weight_bytes = int(muser.inspect(options.model)["bytes_per_token"])
    everywhere = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    room = max([options.depth + options.gen, *options.prompt])
    llama = Llama(options.model, repack=not options.no_repack)
    say(f"llama.cpp: {llama.about()['system_info']}")
    say(f"llama.cpp: weights in {llama.about()['weights_mib']}")
    results: list[dict[str, Any]] = []
    device = ""
    for threads in options.threads:
        if not options.no_pin and everywhere:
            pin(everywhere[:threads])
        llama.context(threads, room, options.kv_dtype)
        ours = Muser(options.model, threads, room, options.kv_dtype, options.isa)
        device = ours.engine.device["description"]
        probe = _core.ReadProbe(weight_bytes, threads)
        prompt = tokens_of(options.depth, llama.vocab)
        more = tokens_of(options.gen, llama.vocab, options.depth)
        sides: dict[str, Muser | Llama] = {"llama": llama, "muser": ours}
        if options.gen:
            runs = {name: partial(decode_time, side, prompt, more) for name, side in sides.items()}
            rows = interleave(runs, probe, options.pairs)
            what = {"what": "decode", "threads": threads, "depth": options.depth}
            found = summary(what, options.gen, rows)
            read_shares(found, weight_bytes)
            results.append(found)
            say(line(found))
        for length in options.prompt:
            prompt = tokens_of(length, llama.vocab)
            runs = {name: partial(prompt_time, side, prompt) for name, side in sides.items()}
            rows = interleave(runs, probe, options.pairs)
            found = summary({"what": "prefill", "threads": threads, "depth": 0}, length, rows)
            if options.check_rows:
                found["equal_rows"] = ours.equal_rows(prompt)
            results.append(found)
            say(line(found))
        ours.engine.close()
        if not options.no_pin and everywhere:
            pin(everywhere)
    told = {
        "schema": "muser.bench.compare_llama/1",
        "model": str(options.model),
        "weight_bytes_per_token": weight_bytes,
        "muser": {"commit": commit(), "device": device, **receipt.versions()},
        "llama": llama.about(),
        "machine": receipt.machine(),
        "clock": "processor time" if options.cpu_time else "wall",
        "pinned": not options.no_pin and bool(everywhere),
        "kv_dtype": options.kv_dtype,
        "results": results,
    }
    llama.close()
    return told


HEADER = "what     threads tokens depth   muser   llama  ratio   read %muser %llama"


def line(found: dict[str, Any]) -> str:
    text = (
        f"{found['what']:<8} {found['threads']:>7} {found['tokens']:>6} {found['depth']:>5}"
        f" {found['muser_tok_s']:>7.2f} {found['llama_tok_s']:>7.2f} {found['ratio']:>6.3f}"
        f" {found['read_bytes_s'] / 1e9:>6.1f}"
    )
    if "muser_read_percent" in found:
        text += f" {found['muser_read_percent']:>6.1f} {found['llama_read_percent']:>6.1f}"
    if "equal_rows" in found:
        text += f"  {found['equal_rows']}/{found['tokens']} rows as decoded"
    return text


def commit() -> str:
    done = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="the GGUF file")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--prompt", type=int, nargs="*", default=[128, 512], help="prompt lengths")
    parser.add_argument("--gen", type=int, default=8, help="tokens of a decode run; 0: no decode")
    parser.add_argument("--depth", type=int, default=1, help="tokens before those of a decode run")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--kv-dtype", choices=KV, default="f16")
    parser.add_argument("--isa", default="auto", help="muser's instruction set")
    parser.add_argument("--no-pin", action="store_true", help="leave placing threads to the system")
    parser.add_argument("--no-repack", action="store_true", help="llama.cpp without repacking")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="measure processor time, for one thread on a machine that does other work too",
    )
    parser.add_argument(
        "--check-rows", action="store_true", help="compare each prompt row's hash with decode's"
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    options = parser.parse_args()
    if options.cpu_time:
        if options.threads != [1]:
            parser.error("--cpu-time is for --threads 1: waiting threads use the processor too")
        global clock
        clock = time.process_time

    def say(text: str) -> None:
        print(text, file=sys.stderr if options.json else sys.stdout, flush=True)

    say(HEADER)
    try:
        told = compare(options, say)
    except LlamaMissingError as missing:
        print(f"compare_llama: {missing}", file=sys.stderr)
        return 2
    except muser.MuserError as error:
        print(f"compare_llama: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(told, allow_nan=False))
    else:
        say("tok/s, medians of pairs; ratio: muser to llama.cpp; read: the probe's GB/s")
    failed = any(
        found.get("equal_rows", found["tokens"]) != found["tokens"] for found in told["results"]
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
