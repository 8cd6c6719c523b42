"""One token under every exact schedule, in turns, so that a slow minute is in all of them.

    python bench/schedules.py synthetic:narrow [--device cpu] [--position 64] [--tokens 150]

Prints the median and the fastest of so many tokens per schedule as JSON, milliseconds. Every
schedule has an engine of its own: for small files.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import muser
from muser.fixtures import fixed_tokens

SCHEDULES = ("baseline", "production", "dual_norm", "gqa", "ring", "joined", "lean")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--position", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=150)
    arguments = parser.parse_args()
    engines = {
        name: muser.load(
            arguments.file,
            config=muser.Config(device=arguments.device, schedule=name, context=4096),
        )
        for name in SCHEDULES
    }
    vocab = engines["baseline"].vocab
    tokens = [int(t) for t in fixed_tokens(arguments.position + arguments.tokens, vocab)]
    times: dict[str, list[float]] = {name: [] for name in SCHEDULES}
    for engine in engines.values():
        engine.prefill(tokens[: arguments.position])
    for token in tokens[arguments.position :]:
        for name, engine in engines.items():
            started = time.perf_counter()
            engine.decode_token(token)
            times[name].append(1e3 * (time.perf_counter() - started))
    for name, taken in times.items():
        median, fastest = statistics.median(taken), min(taken)
        print(json.dumps({"schedule": name, "ms": round(median, 3), "fastest": round(fastest, 3)}))


if __name__ == "__main__":
    main()
