"""What `auto` chooses."""

from __future__ import annotations

import pytest

import muser
from muser import _core
from muser.defaults import DEFAULT_SCHEDULES, UNGROUPED, default_schedule
from muser.flags import DEVICES

TABLE = {row["name"]: row for row in _core.schedules()}


def test_every_device_has_an_exact_default() -> None:
    assert set(DEFAULT_SCHEDULES) == set(DEVICES) - {"auto"}
    for measured in DEFAULT_SCHEDULES.values():
        assert TABLE[measured.schedule]["exact"]
    assert TABLE[UNGROUPED]["exact"]
    assert TABLE[UNGROUPED]["max_queries_per_kv_head"] == 0


def test_the_measured_default_is_no_slower_than_the_baseline() -> None:
    for measured in DEFAULT_SCHEDULES.values():
        if measured.ms is not None:
            assert measured.baseline_ms is not None
            assert measured.ms <= measured.baseline_ms


def test_a_file_whose_heads_do_not_fit_gets_another() -> None:
    most = int(TABLE["lean"]["max_queries_per_kv_head"])
    assert most > 0
    assert default_schedule("cpu", {"heads": 2 * most, "kv_heads": 2}) == "lean"
    assert default_schedule("cpu", {"heads": 2 * most + 2, "kv_heads": 2}) == UNGROUPED


def test_auto_is_the_default_and_a_name_beats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUSER_SCHEDULE", raising=False)
    for config, schedule in (
        (muser.Config(), DEFAULT_SCHEDULES["cpu"].schedule),
        (muser.Config(schedule="gqa"), "gqa"),
    ):
        with muser.load("synthetic:tiny", "cpu", config) as engine:
            assert engine.plan.schedule == schedule
