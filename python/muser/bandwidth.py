"""The rate at which this machine reads memory, for judging tok/s: decoding is bound by it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

PROBE_BYTES = 256 << 20


def read_rate(threads: int, *, probe_bytes: int = PROBE_BYTES, repeats: int = 5) -> float:
    """Bytes a second that `threads` threads read from an array far larger than the caches.

    The best of `repeats` passes of a NumPy maximum (which releases the GIL), so a busy neighbour
    can make it too small, never too large.
    """
    words = np.ones(probe_bytes // 8, np.uint64)
    parts = np.array_split(words, threads)
    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(repeats):
            started = time.perf_counter()
            for _ in pool.map(np.max, parts):
                pass
            best = min(best, time.perf_counter() - started)
    return words.nbytes / best
