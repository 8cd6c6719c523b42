"""Config: validation, immutability, and the settings handed to the core."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from muser import Config
from muser.errors import ConfigError

BAD: list[tuple[str, object]] = [
    ("device", "gpu"),
    ("device", None),
    ("schedule", ""),
    ("schedule", 1),
    ("context", 0),
    ("context", 4096.0),
    ("context", True),
    ("context", (1 << 24) + 1),
    ("kv_dtype", "f64"),
    ("kv_dtype", "F32"),
    ("threads", -1),
    ("threads", 1025),
    ("threads", "2"),
    ("threads", True),
    ("isa", ""),
    ("barriers", "none"),
    ("wait_seconds", 0),
    ("wait_seconds", -1.0),
    ("wait_seconds", math.inf),
    ("wait_seconds", math.nan),
    ("wait_seconds", "300"),
    ("wait_seconds", True),
    ("serial_dispatch", 1),
    ("phase_profile", 1),
    ("ffn_gate_up", "yes"),
    ("untracked", None),
    ("allow_inexact", 1),
    ("force_memory", 0),
    ("rollback_max", -1),
    ("rollback_max", (1 << 16) + 1),
    ("prefill_rows", 0),
    ("gpu", -1),
    ("seed", -1),
    ("seed", 1 << 64),
    ("cache_dir", 3),
    ("faults", {"skip_gate": "1"}),
    ("faults", {1: 1}),
    ("faults", ["skip_gate"]),
]


@pytest.mark.parametrize(("field", "value"), BAD, ids=lambda part: repr(part))
def test_a_bad_value_names_field_value_and_what_is_allowed(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(**{field: value})
    facts = caught.value.facts
    assert facts["field"] == field
    assert facts["allowed"]
    assert str(caught.value).startswith(f"{field} is {value!r}; allowed: ")


def test_the_list_above_tries_every_field() -> None:
    assert {field for field, _ in BAD} == {field.name for field in dataclasses.fields(Config)}


def test_good_values_are_kept_as_plain_python() -> None:
    config = Config(
        context=np.int64(17),  # type: ignore[arg-type]
        threads=np.int32(3),  # type: ignore[arg-type]
        wait_seconds=2,
        faults={"skip_gate": 1},
    )
    assert (config.context, config.threads, config.wait_seconds) == (17, 3, 2.0)
    assert type(config.context) is int
    assert type(config.threads) is int
    assert type(config.wait_seconds) is float
    assert config.as_dict()["faults"] == {"skip_gate": 1}


def test_it_is_frozen_and_keyword_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().threads = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        Config("cpu")  # type: ignore[misc]


def test_faults_are_a_copy() -> None:
    faults = {"skip_gate": 1}
    config = Config(faults=faults)
    faults["skip_gate"] = 2
    assert config.faults == {"skip_gate": 1}
