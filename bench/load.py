"""Load time and peak memory beside one plain read of the same file, cold and warm.

    python bench/load.py FILE [--threads N] [--rounds 3] [--json]

Cold: the file's pages are dropped from the page cache first. Warm: the file has just been read
once; of a file that does not fit into memory beside its repacked weights, some is cold again by
then. The plain read is one thread reading the file in order into a small buffer, as `cat` does.
Each load runs in a process of its own, whose peak is told: `anonymous` is what the engine holds
(repacked weights, KV, activations), `mapped` the file's pages in the process at the end, which are
the system's to drop.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import muser
from muser import memory, receipt

BUFFER = 16 << 20


def drop(path: str) -> None:
    """Takes a file out of the page cache (its pages must be clean and mapped by nobody)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def plain_read(path: str) -> float:
    """Seconds of reading the whole file once, in order."""
    buffer = bytearray(BUFFER)
    started = time.perf_counter()
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 (unbuffered, into one buffer)
        while file.readinto(buffer):
            pass
    return time.perf_counter() - started


def status(*names: str) -> dict[str, int]:
    """Bytes from /proc/self/status."""
    found = dict.fromkeys(names, 0)
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name in found:
            found[name] = int(value.split()[0]) * 1024
    return found


def load_here(path: str, threads: int) -> None:
    """Loads in this process and prints what it took."""
    before = status("VmHWM")
    started = time.perf_counter()
    config = muser.Config(device="cpu", threads=threads)
    with muser.load(path, config=config) as engine:
        seconds = time.perf_counter() - started
        now = status("VmHWM", "RssAnon", "RssFile")
        first = time.perf_counter()
        engine.decode_token(1)
        told = {
            "seconds": seconds,
            "first_token_seconds": time.perf_counter() - first,
            "peak": now["VmHWM"],
            "before": before["VmHWM"],
            "anonymous": now["RssAnon"],
            "mapped": now["RssFile"],
            "threads": engine.device["threads"],
            "isa": engine.device["isa"],
        }
    print(json.dumps(told))


def load(path: str, threads: int) -> dict[str, Any]:
    """What load_here tells, from a new process."""
    command = [sys.executable, __file__, path, "--threads", str(threads), "--here"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip() or f"the load ended with {done.returncode}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def measure(path: str, threads: int, rounds: int) -> dict[str, Any]:
    states: dict[str, Any] = {}
    for state in ("cold", "warm"):
        reads, loads = [], []
        for _ in range(rounds):
            if state == "cold":
                drop(path)
            reads.append(plain_read(path))
            if state == "cold":
                drop(path)
            loads.append(load(path, threads))
        states[state] = {
            "read_seconds": median(reads),
            "load_seconds": median(one["seconds"] for one in loads),
            "ratio": median(one["seconds"] / read for one, read in zip(loads, reads, strict=True)),
            "first_token_seconds": median(one["first_token_seconds"] for one in loads),
            "peak": max(one["peak"] for one in loads),
            "anonymous": max(one["anonymous"] for one in loads),
            "mapped": max(one["mapped"] for one in loads),
            "rounds": [{"read": read, **one} for one, read in zip(loads, reads, strict=True)],
        }
    return {
        "schema": "muser.bench.load/1",
        "model": path,
        "file_bytes": Path(path).stat().st_size,
        "memory_available": memory.available(),
        "machine": receipt.machine(),
        "muser": receipt.versions(),
        "states": states,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="the GGUF file")
    parser.add_argument("--threads", type=int, default=0, help="0: as many as there are")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        load_here(options.model, options.threads)
        return 0
    told = measure(options.model, options.threads, options.rounds)
    if options.json:
        print(json.dumps(told, allow_nan=False))
        return 0
    print(f"{told['file_bytes'] / 1e9:.2f} GB file; medians of {options.rounds} rounds")
    print("state  read s  load s  ratio  peak GiB  anonymous  mapped  first token s")
    for state, row in told["states"].items():
        sizes = [row[name] / (1 << 30) for name in ("peak", "anonymous", "mapped")]
        print(
            f"{state:<5} {row['read_seconds']:>7.2f} {row['load_seconds']:>7.2f}"
            f" {row['ratio']:>6.2f} {sizes[0]:>9.2f} {sizes[1]:>10.2f} {sizes[2]:>7.2f}"
            f" {row['first_token_seconds']:>14.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
