"""Whether the cuda device stays with the cpu's bits: a thousand steps, many processes; and what a
barrier left out does.

    python bench/cuda/steady.py [--steps 1000] [--processes 20]

Prints one JSON object per check. Exit status 1 where a row differs that must not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import muser
from muser import fixtures
from muser.audit import audit

TOKENS = [(17 * i * i + 5 * i + 3) % 1024 for i in range(4000)]


def say(what: str, **facts: Any) -> None:
    print(json.dumps({"what": what, **facts}), flush=True)


def digest(path: str, device: str, steps: int, **settings: Any) -> str:
    """One hash over every row of so many steps."""
    config = muser.Config(device=device, schedule="lean", context=4096, **settings)
    rows = hashlib.sha256()
    with muser.load(path, config=config) as engine:
        for token in TOKENS[:steps]:
            rows.update(engine.decode_token(token).tobytes())
    return rows.hexdigest()


def processes(path: str, count: int, steps: int) -> set[str]:
    """The hashes that so many processes of their own find, four at a time."""
    command = [sys.executable, __file__, "--one", path, "--steps", str(steps)]
    found: set[str] = set()
    for first in range(0, count, 4):
        running = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            for _ in range(min(4, count - first))
        ]
        found |= {p.communicate()[0].strip() or f"status {p.wait()}" for p in running}
    return found


def omitted(path: str, steps: int) -> None:
    """Barriers left out by the fault switch, one at a time: what the audit says, and the card."""
    config = muser.Config(device="cuda", schedule="lean", context=2048)
    with muser.load(path, config=config) as engine:
        position = engine.geometry["window"]
        clean = audit(engine.record(position))
    whole = digest(path, "cuda", steps)
    moved = []
    reported = []
    tried = list(range(0, 40, 5))
    for barrier in tried:
        faults = {f"omit_barrier_{barrier}": 1}
        with muser.load(
            path, config=muser.Config(device="cuda", schedule="lean", faults=faults)
        ) as e:
            reported.append(len(audit(e.record(position)).hazards))
        if digest(path, "cuda", steps, faults=faults) != whole:
            moved.append(barrier)
    say(
        "omitted_barriers",
        hazards_of_the_whole=len(clean.hazards),
        tried=tried,
        hazards=reported,
        hash_moved=moved,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--one", metavar="FILE", help="print one hash of FILE and end")
    arguments = parser.parse_args()
    if arguments.one:
        print(digest(arguments.one, "cuda", arguments.steps))
        return 0
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for head_dim in (64, 128):
            path = str(Path(folder) / f"{head_dim}.gguf")
            fixtures.write("tiny", path, types="mix", head_dim=head_dim, heads=2048 // head_dim)
            cpu, cuda = (digest(path, d, arguments.steps) for d in ("cpu", "cuda"))
            say("steps", head_dim=head_dim, steps=arguments.steps, cpu=cpu, equal=cpu == cuda)
            wrong += cpu != cuda
            found = processes(path, arguments.processes, 64)
            expected = digest(path, "cpu", 64)
            say(
                "processes",
                head_dim=head_dim,
                processes=arguments.processes,
                hashes=sorted(found),
                equal=found == {expected},
            )
            wrong += found != {expected}
        omitted(path, 32)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
