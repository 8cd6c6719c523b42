"""What memory can be had, read from files as Linux writes them, and the check against it."""

from __future__ import annotations

from pathlib import Path

import pytest

from muser import memory
from muser.errors import DeviceMemoryError


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_meminfo(tmp_path: Path) -> None:
    meminfo = write(
        tmp_path / "meminfo", "MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable:    42 kB\n"
    )
    assert memory.system_available(meminfo) == 42 * 1024


def test_cgroup_v2_takes_the_tightest_level_and_counts_cache_as_free(tmp_path: Path) -> None:
    membership = write(tmp_path / "cgroup", "0::/a/b\n")
    root = tmp_path / "fs"
    write(root / "a/b/memory.max", "max\n")
    write(root / "a/b/memory.current", "10\n")
    write(root / "a/memory.max", "1000\n")
    write(root / "a/memory.current", "700\n")
    write(root / "a/memory.stat", "anon 500\ninactive_file 150\n")
    assert memory.cgroup_available(root, membership) == 1000 - 700 + 150


def test_cgroup_v1(tmp_path: Path) -> None:
    membership = write(tmp_path / "cgroup", "5:cpu,cpuacct:/x\n4:memory:/y\n")
    root = tmp_path / "fs"
    write(root / "memory/y/memory.limit_in_bytes", "5000\n")
    write(root / "memory/y/memory.usage_in_bytes", "4000\n")
    write(root / "memory/memory.limit_in_bytes", str((1 << 63) - 4096))
    write(root / "memory/memory.usage_in_bytes", "1\n")
    assert memory.cgroup_available(root, membership) == 1000


def test_usage_above_the_limit_leaves_nothing(tmp_path: Path) -> None:
    membership = write(tmp_path / "cgroup", "0::/\n")
    root = tmp_path / "fs"
    write(root / "memory.max", "10\n")
    write(root / "memory.current", "12\n")
    assert memory.cgroup_available(root, membership) == 0


def test_no_cgroup_is_no_limit(tmp_path: Path) -> None:
    assert memory.cgroup_available(tmp_path, tmp_path / "missing") is None
    assert memory.cgroup_available(tmp_path, write(tmp_path / "cgroup", "0::/\nnoise\n")) is None


def test_this_machine_says_something_sane() -> None:
    free = memory.available()
    assert free is not None
    assert 1 << 20 < free < 1 << 50


ESTIMATE = {
    "weights_mapped": 17 << 30,
    "weights_repacked": 0,
    "kv": 3 << 30,
    "activations": 1 << 20,
    "total": (3 << 30) + (1 << 20),
}


def test_an_estimate_that_fits_passes() -> None:
    memory.check(ESTIMATE, (3 << 30) + (1 << 20))
    memory.check(ESTIMATE, None)


def test_an_estimate_that_does_not_fit_says_why() -> None:
    with pytest.raises(DeviceMemoryError, match=r"3\.00 GiB \(kv 3\.00 GiB") as caught:
        memory.check(ESTIMATE, 3 << 30)
    assert caught.value.facts["needed"] == ESTIMATE["total"]
    assert caught.value.facts["available"] == 3 << 30
    assert caught.value.facts["kv"] == 3 << 30
