"""The error hierarchy and its mapping from the core's kinds."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

import muser
from muser.errors import KINDS, ConfigError, GGUFError, MuserError, from_core

ROOT = Path(__file__).parent.parent


def test_every_kind_of_the_core_has_a_class() -> None:
    header = (ROOT / "cpp" / "errors.h").read_text(encoding="utf-8")
    kinds = re.findall(r"^MUSER_ERROR\((\w+)\)", header, re.MULTILINE)
    assert len(kinds) > 10
    assert set(kinds) <= set(KINDS)
    for kind in kinds:
        assert getattr(muser, kind) is KINDS[kind]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_kind_maps_to_the_class_of_its_name(kind: str) -> None:
    error = from_core(kind, "a sentence", [("offset", "12"), ("tensor", "blk.0.attn_q.weight")])
    assert type(error).__name__ == kind
    assert isinstance(error, MuserError)
    assert str(error) == "a sentence"
    assert error.facts == {"offset": 12, "tensor": "blk.0.attn_q.weight"}


def test_an_unknown_kind_keeps_its_name() -> None:
    error = from_core("NewError", "a sentence", [("found", "1")])
    assert type(error) is MuserError
    assert error.facts == {"kind": "NewError", "found": 1}


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("0", 0),
        ("-7", -7),
        ("18446744073709551615", 18446744073709551615),
        ("1e-08", 1e-8),
        ("0.5", 0.5),
        ("", ""),
        ("q4_K", "q4_K"),
        ("0x10", "0x10"),
        ("1,024", "1,024"),
        ("nan", "nan"),
        ("9" * 21, "9" * 21),
    ],
)
def test_facts_are_numbers_where_they_are_numbers(text: str, fact: object) -> None:
    parsed = from_core("GGUFError", "", [("found", text)]).facts["found"]
    assert parsed == fact
    assert type(parsed) is type(fact)


def test_errors_survive_pickling() -> None:
    error = GGUFError("bad", {"offset": 3})
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is GGUFError
    assert (str(again), again.facts) == ("bad", {"offset": 3})


def test_facts_are_a_copy() -> None:
    facts: dict[str, int | float | str] = {"offset": 3}
    error = MuserError("bad", facts)
    facts["offset"] = 4
    assert error.facts == {"offset": 3}


def test_settings_are_value_errors_too() -> None:
    with pytest.raises(ValueError, match="threads is -1"):
        muser.Config(threads=-1)
    assert issubclass(ConfigError, ValueError)
