"""The cuda device as Python sees it: listed everywhere, clear about what is missing, and with the
cpu's bits where there is a GPU."""

from __future__ import annotations

from typing import Any

import pytest

import muser
from muser import _core

TOKENS = [3, 900, 17, 256, 1000, 5] * 4  # past the tiny file's window of 16


def listed() -> dict[str, Any]:
    (row,) = [row for row in _core.devices() if row["name"] == "cuda"]
    return dict(row)


def test_is_listed_with_a_reason_where_it_is_unusable() -> None:
    row = listed()
    if row["usable"]:
        assert row["isas"][0].startswith("sm_")
        assert row["description"]
    else:
        assert "NVIDIA driver" in row["why_not"]


def test_asking_for_it_decodes_or_says_what_is_missing() -> None:
    if not listed()["usable"]:
        with pytest.raises(muser.DeviceError, match="NVIDIA driver") as caught:
            muser.load("synthetic:tiny", device="cuda")
        assert caught.value.facts["device"] == "cuda"
        return
    for schedule in ("baseline", "production", "dual_norm", "gqa", "ring", "joined", "lean"):
        hashes = []
        for device in ("cpu", "cuda"):
            config = muser.Config(device=device, schedule=schedule)
            with muser.load("synthetic:tiny", config=config) as engine:
                hashes.append([muser.row_sha256(engine.decode_token(t)) for t in TOKENS])
        assert hashes[0] == hashes[1], schedule


def test_an_index_without_a_gpu_is_refused() -> None:
    expected = muser.ConfigError if listed()["usable"] else muser.DeviceError
    with pytest.raises(expected):
        muser.load("synthetic:tiny", config=muser.Config(device="cuda", gpu=1000))
