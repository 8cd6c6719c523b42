"""The published gap, from recordings: 760 closures against 564, four families, no remainder."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

import pytest

import muser
from muser import profiler
from muser.fixtures import synthetic_path
from muser.reconcile import PUBLISHED, census, reconcile

COUNTS = {
    "baseline": 760,
    "production": 759,
    "dual_norm_4sg": 655,
    "dual_norm": 655,
    "gqa": 655,
    "ring": 616,
    "joined": 564,
    "lean": 369,
    "legacy": 564,
    "hybrid": 655,
}
POSITION = 2048


@cache
def closures(schedule: str, position: int) -> tuple[str, ...]:
    config = muser.Config(schedule=schedule, context=POSITION + 1, allow_inexact=True)
    with muser.load(synthetic_path("synthetic:narrow"), config=config) as engine:
        return engine.plan_at(position).closures


@pytest.mark.parametrize(("schedule", "count"), COUNTS.items())
def test_closures_of_every_schedule_with_the_ring_wrapped(schedule: str, count: int) -> None:
    assert len(closures(schedule, POSITION)) == count


def test_baseline_before_the_wrap() -> None:
    assert len(closures("baseline", 2047)) == 721


def test_the_published_families_and_no_remainder() -> None:
    found = reconcile(
        "baseline",
        closures("baseline", POSITION),
        "legacy",
        closures("legacy", POSITION),
        POSITION,
    )
    assert found.families == PUBLISHED == found.published
    assert found.named == {
        "norm boundaries": 104,
        "SWA staging": 39,
        "KV publication": 52,
        "last-row copy": 1,
    }
    assert found.remainder == 0
    assert sum(found.families.values()) == 196


@pytest.mark.parametrize("b", COUNTS)
def test_any_two_schedules_reconcile(b: str) -> None:
    found = reconcile(
        "baseline", closures("baseline", POSITION), b, closures(b, POSITION), POSITION
    )
    assert found.remainder == 0


def test_a_closure_of_no_family_shows_as_remainder() -> None:
    labels = closures("legacy", POSITION)
    found = reconcile("a", [*labels, "blk.0.unheard_of"], "b", labels, POSITION)
    assert found.remainder == 1
    both = reconcile("a", [*labels, "blk.0.unheard_of"], "b", [*labels, "x"], POSITION)
    assert both.remainder == 2


def test_census_counts_every_closure_once() -> None:
    families, strangers = census(closures("hybrid", POSITION))
    assert sum(families.values()) == 655
    assert strangers == 0


@pytest.mark.parametrize("schedule", COUNTS)
@pytest.mark.parametrize("position", [0, 2047, 2048, 2049])
def test_the_profilers_own_labels_agree_with_the_recording(schedule: str, position: int) -> None:
    geometry = muser.inspect(synthetic_path("synthetic:narrow"))["geometry"]
    expected = profiler.labels(schedule, geometry["is_local"], geometry["window"], position + 1)
    if position <= POSITION:
        assert expected == list(closures(schedule, position))
    else:
        assert expected == list(closures(schedule, POSITION))


def test_the_command_prints_json() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "muser", "reconcile", "baseline", "legacy", "--json",
         "-m", "synthetic:narrow", "--position", str(POSITION)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["schema"] == "muser.reconcile/1"
    assert told["a"] == {"schedule": "baseline", "closures": 760}
    assert told["b"] == {"schedule": "legacy", "closures": 564}
    assert told["families"] == PUBLISHED
    assert told["remainder"] == 0
