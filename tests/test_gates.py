"""Gates: what they measure, the verdict's rule, and that they find a planted difference exactly."""

from __future__ import annotations

import numpy as np
import pytest

import muser
from muser import gates
from muser.fixtures import fixed_tokens, synthetic_path

TOKENS = [int(t) for t in fixed_tokens(60, 1024)]
CAP = 20.0


def load(schedule: str = "production", kind: str = "tiny") -> muser.Engine:
    config = muser.Config(schedule=schedule, context=128, allow_inexact=True)
    return muser.load(synthetic_path(f"synthetic:{kind}"), config=config)


def test_equal_rows() -> None:
    row = np.linspace(-19, 19, 1000, dtype=np.float32)
    found = gates.row_diff(row, row.copy(), CAP)
    assert found.equal
    assert (found.differing, found.max_abs, found.logprob_max) == (0, 0.0, 0.0)
    assert found.top_k_overlap == 1.0


def test_a_single_bit_is_seen() -> None:
    row = np.linspace(-19, 19, 1000, dtype=np.float32)
    other = row.copy()
    other[10] = np.nextafter(other[10], np.float32(0))
    found = gates.row_diff(other, row, CAP)
    assert not found.equal
    assert found.differing == 1
    assert found.argmax == (999, 999)
    assert 0 < found.max_abs < 1e-5


def test_signed_zeros_are_different_bits() -> None:
    row = np.zeros(8, np.float32)
    assert not gates.row_diff(-row, row, CAP).equal


def test_logprob_error_is_of_the_normalised_distribution() -> None:
    row = np.zeros(4, np.float32)
    shifted = row + np.float32(3)
    found = gates.row_diff(shifted, row, CAP)
    assert found.max_abs == 3.0
    assert found.logprob_max < 1e-12
    assert found.entropy == pytest.approx((np.log(4), np.log(4)))


def test_entries_at_the_cap_are_counted() -> None:
    row = np.array([20.0, -19.999, 19.0, 0.0], np.float32)
    assert gates.row_diff(row, row, CAP).at_cap == (2, 2)


def test_rows_of_other_shapes_are_refused() -> None:
    with pytest.raises(muser.ConfigError):
        gates.row_diff(np.zeros(3, np.float32), np.zeros(4, np.float32), CAP)


@pytest.mark.parametrize(
    ("exact", "changed", "error", "expected"),
    [
        (True, False, 0.0, "exact"),
        (True, True, 1e-9, "rejected"),
        (False, False, 0.0, "exact"),
        (False, True, 1e-4, "within contract"),
        (False, True, 1.01e-4, "rejected"),
        (False, True, float("nan"), "rejected"),
    ],
)
def test_the_rule(exact: bool, changed: bool, error: float, expected: str) -> None:
    assert gates.verdict(exact, changed, error) == expected


def test_one_ulp_planted_in_v_is_located_exactly_and_invisible_to_argmax() -> None:
    layer, position, element = 1, 47, 77
    # Float weights: a block form could round so small a change away.
    with load(kind="tiny-f32") as sound, load(kind="tiny-f32") as planted:
        for engine in (sound, planted):
            engine.prefill(TOKENS[:50])
        assert gates.kv_first_difference(planted, sound) is None
        row = planted.kv(layer, "v", position, 1)[0].copy()
        bits = row.view(np.uint16).reshape(-1)
        before = int(bits[element])
        bits[element] += 1
        planted.set_kv(layer, "v", position, row)
        found = gates.kv_first_difference(planted, sound)
        assert found is not None
        assert (found.layer, found.plane, found.position, found.element) == (
            layer,
            "v",
            position,
            element,
        )
        assert found.bits == (before + 1, before)
        # The next rows differ in their bits, and no greedy token moves.
        rows = [[e.decode_token(t) for t in TOKENS[50:58]] for e in (planted, sound)]
        changed = gates.rows_differing(*rows)
        assert changed, "a changed value that nobody reads would be a dead gate"
        for a, b in zip(*rows, strict=True):
            diff = gates.row_diff(a, b, CAP)
            assert diff.argmax[0] == diff.argmax[1]


def test_the_first_closure_that_differs_is_named() -> None:
    with load() as sound, load() as planted:
        for engine in (sound, planted):
            engine.prefill(TOKENS[:50])
        row = planted.kv(2, "v", 49, 1)[0].copy()
        row.view(np.uint16).reshape(-1)[:] += 8
        planted.set_kv(2, "v", 49, row)
        found = gates.stage_first_difference(planted, sound, TOKENS[50])
        assert found is not None
        assert found.closure == "blk.2.attention"


def test_equal_routes_have_no_difference() -> None:
    with load("baseline") as a, load("lean") as b:
        for engine in (a, b):
            engine.prefill(TOKENS[:50])
        assert gates.stage_first_difference(a, b, TOKENS[50]) is None
        assert gates.kv_first_difference(a, b) is None


def test_engines_at_different_positions_are_refused() -> None:
    with load() as a, load() as b:
        a.prefill(TOKENS[:3])
        with pytest.raises(muser.ConfigError, match="position"):
            gates.kv_first_difference(a, b)
