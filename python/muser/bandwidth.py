"""The rate at which this machine reads memory, for judging tok/s: decoding is bound by it."""

from __future__ import annotations

from statistics import median

PROBE_BYTES = 1 << 30


def read_rate(threads: int, *, probe_bytes: int = PROBE_BYTES, passes: int = 5) -> float:
    """Bytes a second that `threads` threads (0: as many as the cpu device would use) read from
    memory far larger than the caches: the median of `passes` passes of the core's probe.

    For a comparison keep a `_core.ReadProbe` and let its passes take turns with what is compared.
    """
    from . import _core

    probe = _core.ReadProbe(probe_bytes, threads)
    return median(probe.read_pass() for _ in range(passes))
