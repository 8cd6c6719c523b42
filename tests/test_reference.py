"""The float64 reference against rows of other programs, and the fixtures against the reference."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests import golden_data
from tests.reference import F64, FAULTS, Reference, block_round, log_softmax

from muser.fixtures import demo_reference, fixed_tokens, synthetic_path


@cache
def golden(name: str) -> Reference:
    return Reference(golden_data.model(name))


# --- the data -------------------------------------------------------------------------------


def test_every_data_file_has_its_sum() -> None:
    sums = golden_data.sums()
    stored = {p.name for p in golden_data.DATA.iterdir() if p.suffix in (".gguf", ".npy")}
    # What other tests keep there has its own checks; these files must be whole.
    assert {name for name in sums if name != "tiny-f32.gguf"} <= stored
    for name in sums:
        if name != "tiny-f32.gguf":
            assert golden_data.sha256(golden_data.DATA / name) == sums[name], name


def test_the_f32_file_is_made_anew_byte_for_byte() -> None:
    assert golden_data.sha256(golden_data.model("tiny-f32")) == golden_data.sums()["tiny-f32.gguf"]


@pytest.mark.parametrize(
    ("name", "largest", "mean", "same"),
    [
        ("tiny-f32", 2.92e-4, 1.82e-5, 600),
        ("tiny-q4k", 1.477, 0.1599, 191),
        ("tiny-mix", 1.624, 0.1583, 181),
    ],
)
def test_llama_figures_of_the_readme(name: str, largest: float, mean: float, same: int) -> None:
    rows, theirs = golden_data.ref64(name), golden_data.llama(name)
    error = np.abs(theirs - rows)
    assert error.max() == pytest.approx(largest, rel=0.01)
    assert error.mean() == pytest.approx(mean, rel=0.01)
    assert (theirs.argmax(-1) == rows.argmax(-1)).sum() == same


# --- the reference --------------------------------------------------------------------------


@pytest.mark.parametrize("name", golden_data.NAMES)
def test_reference_equals_transformers(name: str) -> None:
    rows = golden(name).logits(golden_data.tokens(name))
    assert np.abs(rows - golden_data.ref64(name)).max() < 1e-11


@pytest.mark.parametrize("name", ["tiny-q4k", "tiny-mix"])
def test_block_activations_cost_what_the_contract_says(name: str) -> None:
    rows = golden(name).logits(golden_data.tokens(name), activations="b16")
    error = np.abs(rows - golden_data.ref64(name))
    assert 5e-4 < error.mean() < 1e-3
    assert error.max() < 8e-3
    assert np.array_equal(rows.argmax(-1), golden_data.ref64(name).argmax(-1))


def test_block_activations_leave_float_weights_alone() -> None:
    ids = golden_data.tokens("tiny-f32")[:20]
    model = golden("tiny-f32")
    assert np.array_equal(model.logits(ids, activations="b16"), model.logits(ids))


def test_block_round() -> None:
    x = np.zeros((3, 256))
    x[0, :4] = 32639.0, -1.4, 0.5, 1.5  # the largest magnitude that keeps a step of 1
    x[1, :3] = 32639.5, 3.1, 0.9  # half a step more, and the step doubles
    y = block_round(x)
    assert y[0, :4].tolist() == [32639.0, -1.0, 0.0, 2.0]
    assert y[1, :3].tolist() == [32640.0, 4.0, 0.0]
    assert not y[2].any()


@cache
def faulty(fault: str) -> F64:
    """Three windows of tiny-f32 with that fault."""
    return golden("tiny-f32").logits(golden_data.tokens("tiny-f32")[:48], fault=fault)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_moves_the_logits(fault: str) -> None:
    error = np.abs(faulty(fault) - golden_data.ref64("tiny-f32")[:48])
    floor = {"post_norm_eps": 0.05}.get(fault, 5.0)
    assert error.max() > floor
    if fault == "window_off_by_one":  # invisible until there is a key to see too many
        assert error[:16].max() < 1e-11
        assert error[16].max() > 0.1


def test_faults_that_an_argmax_gate_cannot_see() -> None:
    best = golden_data.ref64("tiny-f32")[:48].argmax(-1)
    blind = {fault for fault in FAULTS if np.array_equal(faulty(fault).argmax(-1), best)}
    assert blind == {"drop_softcap", "drop_multiplier", "swap_order", "post_norm_eps"}


def test_unknown_faults_are_refused() -> None:
    with pytest.raises(ValueError, match="no fault named 'gate'"):
        golden("tiny-f32").logits(fixed_tokens(1, 1024), fault="gate")


def test_slabs_give_the_whole_product(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = golden_data.tokens("tiny-mix")[:4]
    whole = golden("tiny-mix").logits(ids)
    monkeypatch.setattr("tests.reference._CACHED_ELEMENTS", 10_000)
    slabs = Reference(golden_data.model("tiny-mix")).logits(ids)
    assert np.abs(slabs - whole).max() < 1e-11


def test_both_pattern_spellings_are_one_model() -> None:
    ids = fixed_tokens(20, 1024)
    one = Reference(synthetic_path("tiny-mix")).logits(ids)
    other = Reference(synthetic_path("tiny-mix-period")).logits(ids)
    assert np.array_equal(one, other)


# --- the fixtures' models -------------------------------------------------------------------


def test_the_shipped_demo_rows() -> None:
    ids, rows = demo_reference()
    assert ids.tolist() == fixed_tokens(32, 1024).tolist()
    assert rows.shape == (32, 1024)
    assert rows.dtype == np.float64
    assert np.abs(Reference(synthetic_path("synthetic:tiny")).logits(ids) - rows).max() < 1e-10


@pytest.mark.parametrize(
    "name",
    [
        *(f"tiny-{t}" for t in ("f32", "f16", "bf16", "q8_0", "q4_K", "q5_K", "q6_K", "mix")),
        *("tiny-mix-h16", "tiny-f32-h16", "tiny-mix-h128", "narrow"),
    ],
)
def test_fixtures_are_sane_models(name: str) -> None:
    model = Reference(synthetic_path(name))
    largest: dict[str, float] = {}
    spread: dict[str, float] = {}

    def see(label: str, values: F64) -> None:
        largest[label] = float(np.abs(values).max())
        spread[label] = float(np.sqrt(np.mean(values * values)))

    logits = model.logits(fixed_tokens(64, model.vocab), trace=see)
    assert np.isfinite(logits).all()
    assert np.mean(np.abs(logits) > 0.99 * model.cap) < 0.01
    assert 3 < spread["lm_head"] * model.logit_scale < 6.5
    assert max(top for label, top in largest.items() if label.startswith("blk.")) < 100
    assert all(0.02 < spread[f"blk.{i}.output"] < 5 for i in range(model.layers))
    assert spread[f"blk.{model.layers - 1}.post_ffn_norm"] < 5
    p = np.exp(log_softmax(logits))
    entropy = -(p * log_softmax(logits)).sum(-1)
    assert 1.5 < entropy.mean() < 5
    assert entropy.min() > 0.1
    assert len(set(logits.argmax(-1))) > 20
