"""Decoding a file on the GPU: load time against `cat`, hashes against cpu, tok/s and bytes/s.

    python bench/cuda/decode.py FILE [--hash-steps 64] [--depth 2048] [--llama FOLDER]

FOLDER has llama.cpp's sources and, in b/bin, its shared libraries built for CUDA. Prints one JSON
object per measurement.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from read_rate import read_rate

import muser


def say(what: str, **facts: Any) -> None:
    print(json.dumps({"what": what, **facts}), flush=True)


LANE = 64  # steps of one measurement, and the position of the shallow ones
DEEP_STEPS = 16


def tokens(count: int, vocab: int) -> list[int]:
    return [(7919 * i * i + 104729 * i + 11) % vocab for i in range(count)]


def chosen_on_the_device(engine: muser.Engine) -> None:
    engine.greedy(17, LANE)


def with_rows(engine: muser.Engine) -> None:
    engine.greedy(17, LANE, rows=True)


def chosen_by_the_host(engine: muser.Engine) -> None:
    row = np.empty(engine.vocab, np.float32)
    token = 17
    for _ in range(LANE):
        token = int(np.argmax(engine.decode_token(token, out=row)))


def known_tokens(engine: muser.Engine) -> None:
    engine.teacher_forced(tokens(LANE, engine.vocab))


def against(cpu: muser.Engine, fed: list[int], hashes: list[str], name: str) -> None:
    first = cpu.position
    bad = [i for i, t in enumerate(fed) if muser.row_sha256(cpu.decode_token(t)) != hashes[i]]
    say(name, first=first, steps=len(fed), different=bad, last=hashes[-1])


def profile(engine: muser.Engine, token: int) -> None:
    told = engine.profile_raw(token, phase=False, repeat={})
    times: dict[str, float] = collections.defaultdict(float)
    for sample in told["samples"]:
        if sample["start"] is not None:
            name = sample["closure"].split(".")[-1]
            times[name] += 1e6 * (sample["end"] - sample["start"])
    say(
        "closures_us",
        **{k: round(v, 1) for k, v in sorted(times.items(), key=lambda item: -item[1])},
        total=round(sum(times.values()), 1),
        encode=round(1e6 * told["encode_seconds"], 1),
        submit=round(1e6 * told["submit_seconds"], 1),
        wait=round(1e6 * told["wait_seconds"], 1),
        readback=round(1e6 * told["readback_seconds"], 1),
        device=round(1e6 * told["device_seconds"], 1),
    )


def measure(
    engine: muser.Engine, name: str, loop: Callable[[muser.Engine], None], weight_bytes: float
) -> float:
    """Tokens per second of 64 steps from where the engine is, again and again from there."""
    times = []
    for _ in range(8):
        started = time.perf_counter()
        loop(engine)
        times.append((time.perf_counter() - started) / LANE)
        engine.rollback(LANE)
    middle = sorted(times[1:])[3]  # the first is warm-up
    say(
        name,
        position=engine.position,
        ms=round(1e3 * middle, 4),
        tok_s=round(1 / middle, 2),
        best_tok_s=round(1 / min(times), 2),
        tb_s=round(weight_bytes / middle / 1e12, 3),
    )
    return 1 / middle


def llama_speeds(folder: str, file: str, depth: int) -> dict[str, Any]:
    """llama.cpp's tokens per second on the file, built against the libraries in `folder`."""
    root = Path(folder).resolve()
    with tempfile.TemporaryDirectory() as build:
        program = Path(build) / "llama_speed"
        source = Path(__file__).with_name("llama_speed.cpp")
        includes = [f"-I{root / 'include'}", f"-I{root / 'ggml' / 'include'}"]
        libraries = [f"-L{root}/b/bin", "-lllama", "-lggml", "-lggml-base"]
        command = ["g++", "-O2", "-std=c++17", *includes, str(source), "-o", str(program)]
        subprocess.run([*command, *libraries, f"-Wl,-rpath,{root}/b/bin"], check=True)
        told = subprocess.run(
            [str(program), file, str(depth)], check=True, capture_output=True, text=True
        )
    speeds: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return speeds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--schedule", default="lean")
    parser.add_argument("--hash-steps", type=int, default=64)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--llama", metavar="FOLDER", help="compare with llama.cpp built there")
    parser.add_argument("--no-cat", action="store_true", help="do not time `cat FILE`")
    parser.add_argument("--no-cpu", action="store_true", help="print the hash, compare nothing")
    arguments = parser.parse_args()

    cat = float("nan")
    for _ in range(0 if arguments.no_cat else 2):  # the first pass warms the page cache
        started = time.perf_counter()
        subprocess.run(f"cat {arguments.file} > /dev/null", shell=True, check=True)
        cat = time.perf_counter() - started
    started = time.perf_counter()
    muser.load("synthetic:tiny", device="cuda").close()  # compiles the kernels where nobody has yet
    say("first_load_of_a_tiny_file", seconds=round(time.perf_counter() - started, 3))
    config = muser.Config(device="cuda", schedule=arguments.schedule, context=4096)
    started = time.perf_counter()
    engine = muser.load(arguments.file, config=config)
    load = time.perf_counter() - started
    say("load", seconds=round(load, 3), cat_seconds=round(cat, 3), ratio=round(load / cat, 3))
    info = muser.inspect(arguments.file)
    bytes_per_token = float(info["bytes_per_token"])
    say("file", bytes_per_token=bytes_per_token, device=engine.device["description"])

    def go_to(position: int) -> None:
        while engine.position < position:
            count = min(LANE, position - engine.position)
            engine.teacher_forced(tokens(count, engine.vocab))

    known = tokens(arguments.hash_steps, engine.vocab)
    hashes = [muser.row_sha256(engine.decode_token(t)) for t in known]
    if arguments.no_cpu and hashes:
        say("hash", steps=len(known), last=hashes[-1])
    elif hashes:
        cpu_config = muser.Config(device="cpu", schedule="lean", context=4096)
        with muser.load(arguments.file, config=cpu_config) as cpu:
            started = time.perf_counter()
            against(cpu, known, hashes, "hashes_against_cpu")
            say("cpu", tok_s=round(len(known) / (time.perf_counter() - started), 2))
            if arguments.depth:
                # Through the wrap of the ring, from the same state.
                go_to(arguments.depth - DEEP_STEPS // 2)
                cpu.restore(engine.snapshot())
                deep = known[:DEEP_STEPS]
                found = [muser.row_sha256(engine.decode_token(t)) for t in deep]
                against(cpu, deep, found, "hashes_against_cpu_at_depth")
    rate = read_rate(0, 8.0)["tb_s"] * 1e12
    deep = float("nan")
    if arguments.depth:
        go_to(arguments.depth)
        engine.rollback(engine.position - arguments.depth)
        deep = measure(engine, "greedy_at_depth", chosen_on_the_device, bytes_per_token)
        profile(engine, 17)
    engine.reset()
    go_to(LANE)
    speed = measure(engine, "greedy", chosen_on_the_device, bytes_per_token)
    say("plain_read", tb_s=round(rate / 1e12, 3), share=round(speed * bytes_per_token / rate, 3))
    say("depth", slower=round(1 - deep / speed, 4))
    measure(engine, "greedy_with_rows", with_rows, bytes_per_token)
    measure(engine, "greedy_by_the_host", chosen_by_the_host, bytes_per_token)
    measure(engine, "known_tokens_with_rows", known_tokens, bytes_per_token)
    profile(engine, 17)
    engine.close()
    if arguments.llama:
        llama = llama_speeds(arguments.llama, arguments.file, arguments.depth)
        say(**llama)
        say("ratio_to_llama_cpp", ratio=round(speed / llama["tok_s"], 3))
    return 0


if __name__ == "__main__":
    sys.exit(main())
