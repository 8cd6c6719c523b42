"""The stored hashes, and the program that writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests import golden_hashes

from muser import _core

STORED: dict[str, Any] = json.loads(golden_hashes.FILE.read_text("utf-8"))
RUNS = list(golden_hashes.runs())


def test_the_contract_is_the_stored_one() -> None:
    assert STORED["contract"] == _core.CONTRACT


def test_every_run_is_stored() -> None:
    names = {f"{name} {kv}" for name, _, _ in RUNS for kv in golden_hashes.KV_DTYPES}
    assert set(STORED["sha256"]) == names


@pytest.mark.parametrize("kv_dtype", golden_hashes.KV_DTYPES)
@pytest.mark.parametrize(("name", "path", "positions"), RUNS, ids=[name for name, _, _ in RUNS])
def test_the_hash_is_the_stored_one(name: str, path: Path, positions: int, kv_dtype: str) -> None:
    found = golden_hashes.run_hash(path, kv_dtype, positions)
    assert found == STORED["sha256"][f"{name} {kv_dtype}"]


def test_the_demos_hashes_are_the_stored_ones() -> None:
    assert json.loads(golden_hashes.DEMO_FILE.read_text("utf-8")) == golden_hashes.demo_hashes()


def test_a_moved_hash_needs_a_new_contract() -> None:
    old = {"contract": 1, "sha256": {"a": "0", "b": "1"}}
    assert golden_hashes.changed(old, {"contract": 1, "sha256": {"a": "0", "b": "2"}}) == ["b"]
    assert golden_hashes.changed(old, {"contract": 1, "sha256": {"a": "0"}}) == ["b"]
    assert golden_hashes.changed(old, {"contract": 2, "sha256": {"a": "3", "b": "2"}}) == []
    more = {"contract": 1, "sha256": {"a": "0", "b": "1", "c": "2"}}
    assert golden_hashes.changed(old, more) == []
    demo = {"contract": 1, "f16": "0", "f32": "1"}
    assert golden_hashes.changed(demo, {**demo, "f16": "1"}) == ["f16"]
