"""Each known mistake of a port, seeded by a test switch, must turn a gate red within three windows.

The gates are the full-row ones: row hash, and error against the float64 reference. What argmax, the
gate that people use first, cannot see is pinned too (tests/README.md tells the story).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.reference import FAULTS, Reference

import muser
from muser.fixtures import fixed_tokens, synthetic_path

WINDOW = 16
IDS = fixed_tokens(3 * WINDOW, 1024)
TOKENS = [int(t) for t in IDS]
INVISIBLE_TO_ARGMAX = {"drop_softcap", "drop_multiplier", "swap_order", "post_norm_eps"}


def rows(fault: str | None = None) -> NDArray[np.float32]:
    faults = {fault: 1} if fault else {}
    config = muser.Config(context=64, kv_dtype="f32", faults=faults)
    with muser.load(synthetic_path("synthetic:tiny"), config=config) as engine:
        return engine.prefill(TOKENS, all_rows=True)


@cache
def sound_rows() -> NDArray[np.float32]:
    return rows()


@cache
def reference() -> Reference:
    return Reference(synthetic_path("synthetic:tiny"))


def test_the_sound_engine_meets_the_reference() -> None:
    error = np.abs(sound_rows() - reference().logits(IDS))
    assert error.mean() < 1.5e-3
    assert error.max() < 0.05


@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_mistake_turns_the_gates_red(fault: str) -> None:
    wrong = rows(fault)
    sound = sound_rows()
    assert wrong.tobytes() != sound.tobytes()
    # Far outside the sound engine's error, and exactly the mistake that the name says: the float64
    # reference with the same mistake agrees with it.
    assert np.abs(wrong - reference().logits(IDS)).max() > 0.1
    assert np.abs(wrong - reference().logits(IDS, fault=fault)).max() < 0.1
    agrees = bool((wrong.argmax(-1) == sound.argmax(-1)).all())
    assert agrees == (fault in INVISIBLE_TO_ARGMAX)


def test_an_unknown_switch_is_refused() -> None:
    with pytest.raises(muser.ConfigError, match="no_such_fault"):
        rows("no_such_fault")
