"""How much memory is to be had, and the check of an engine's estimate against it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from .errors import DeviceMemoryError

GIB = 1 << 30


def _read_number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdecimal() else None


def _stat_field(path: Path, field: str) -> int:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return 0
    for line in lines:
        name, _, number = line.partition(" ")
        if name == field and number.isdecimal():
            return int(number)
    return 0


def _cgroup_folders(root: Path, membership: str) -> list[tuple[Path, str, str, str]]:
    """(folder, limit file, usage file, stat field of reclaimable cache) from leaf to root, for the
    memory controllers that a /proc/self/cgroup text names."""
    found = []
    for line in membership.splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        _, controllers, path = parts
        if controllers == "":  # version 2
            base, names = root, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):  # version 1
            base = root / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        folder = base / path.lstrip("/")
        while True:
            found.append((folder, *names))
            if folder == base or base not in folder.parents:
                break
            folder = folder.parent
    return found


def cgroup_available(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> int | None:
    """Bytes left under the tightest cgroup limit of this process; None without a limit.

    File cache that the kernel can drop counts as available.
    """
    try:
        text = membership.read_text(encoding="utf-8")
    except OSError:
        return None
    left: list[int] = []
    for folder, limit_name, usage_name, cache_field in _cgroup_folders(root, text):
        limit, usage = _read_number(folder / limit_name), _read_number(folder / usage_name)
        if limit is None or usage is None or limit >= 1 << 60:  # version 1 says "none" this way
            continue
        cache = _stat_field(folder / "memory.stat", cache_field)
        left.append(max(0, limit - usage + min(cache, usage)))
    return min(left, default=None)


def system_available(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that the system can give without swapping; None where it does not say."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    if sys.platform == "darwin":  # no such figure there; physical memory is the bound
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def available() -> int | None:
    """Bytes this process can still allocate: the system's figure or the cgroup's, whichever is
    smaller; None where neither is known."""
    known = [figure for figure in (system_available(), cgroup_available()) if figure is not None]
    return min(known, default=None)


def check(estimate: Mapping[str, int], free: int | None) -> None:
    """Raises DeviceMemoryError when an estimate (of `_core.memory_estimate`) exceeds `free` bytes.

    The mapped file is not counted: its pages are the system's to drop.
    """
    needed = estimate["total"]
    if free is None or needed <= free:
        return
    parts = {key: size for key, size in estimate.items() if key not in {"total", "weights_mapped"}}
    largest = ", ".join(
        f"{key.replace('_', ' ')} {size / GIB:.2f} GiB"
        for key, size in sorted(parts.items(), key=lambda item: -item[1])[:3]
        if size
    )
    raise DeviceMemoryError(
        f"the engine needs {needed / GIB:.2f} GiB ({largest}) and {free / GIB:.2f} GiB can be had. "
        "A smaller context needs less; force_memory=True loads all the same",
        {"needed": needed, "available": free, **parts},
    )
