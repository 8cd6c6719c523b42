"""The read probe: the rate that decoding is judged by."""

from __future__ import annotations

import pytest

import muser
from muser import _core
from muser.bandwidth import read_rate


def test_a_rate_is_a_number_of_bytes_a_second() -> None:
    rate = read_rate(1, probe_bytes=64 << 20, passes=3)
    assert 1e8 < rate < 1e13


def test_the_probe_tells_what_it_reads() -> None:
    probe = _core.ReadProbe((8 << 20) + 5, 2)
    assert (probe.bytes, probe.threads) == (8 << 20, 2)
    assert probe.kernel.startswith("read_")
    isas = next(device["isas"] for device in _core.devices() if device["name"] == "cpu")
    assert probe.isa == isas[0]
    assert probe.read_pass() > 0


def test_threads_are_checked() -> None:
    with pytest.raises(muser.ConfigError, match="threads"):
        _core.ReadProbe(1, -1)
