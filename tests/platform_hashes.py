"""Compares what the C++ hash program prints with tests/data/golden_hashes.json.

    python -m tests.platform_hashes [--isa ISA] COMMAND...

COMMAND runs `muser_hash`, maybe through an emulator of another processor. Exit code 1 on any
difference.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests import golden_hashes

import muser
from muser.fixtures import fixed_tokens
from muser.rope import inverse_frequencies


def program_hash(
    command: Sequence[str], path: Path, kv_dtype: str, positions: int, isa: str
) -> tuple[str, str]:
    """(hash of a run, device line) as the program prints them. CalledProcessError."""
    geometry = muser.inspect(path)["geometry"]
    rope = inverse_frequencies(geometry["rope_base"], geometry["head_dim"])
    arguments = (
        path,
        ",".join(str(token) for token in fixed_tokens(positions, geometry["vocab"])),
        ",".join(float(value).hex() for value in rope),
        *("cpu", isa, "2", "production", kv_dtype),
    )
    done = subprocess.run(
        [*command, *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=True
    )
    *_, run, device = done.stdout.splitlines()
    return run.removeprefix("run "), device.removeprefix("# ")


def compare(command: Sequence[str], isa: str = "") -> Iterator[tuple[str, str, bool]]:
    """(run, device line, equal) of every golden run."""
    stored = json.loads(golden_hashes.FILE.read_text("utf-8"))["sha256"]
    for name, path, positions in golden_hashes.runs():
        for kv_dtype in golden_hashes.KV_DTYPES:
            found, device = program_hash(command, path, kv_dtype, positions, isa)
            run = f"{name} {kv_dtype}"
            yield run, device, found == stored[run]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isa", default="", help="instruction set; default: the machine's best")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    failed = 0
    for run, device, equal in compare(arguments.command, arguments.isa):
        print(f"{'equal' if equal else 'DIFFERS'}  {run}  {device}", flush=True)
        failed += not equal
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
