"""Logits against float64, and README's table of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests import golden_data
from tests.accuracy_table import against_float64, lines

from muser.accuracy import difference, log_softmax

README = Path(__file__).parent.parent / "README.md"


def test_float_weights_meet_the_contract() -> None:
    error = against_float64("tiny-f32", "f32")
    assert error.rows == 600
    assert error.max_logprob <= 1e-4
    assert error.equal_argmax == 600


@pytest.mark.parametrize("name", ["tiny-q4k", "tiny-mix"])
def test_quantised_weights_meet_the_contract(name: str) -> None:
    error = against_float64(name, "f32")
    assert error.rows == 200
    assert error.mean_logit <= 1.5e-3
    assert error.equal_argmax == 200


@pytest.mark.parametrize("name", ["tiny-q4k", "tiny-mix"])
def test_with_an_f16_cache_it_is_ten_times_closer_than_llama_cpp(name: str) -> None:
    theirs = difference(golden_data.llama(name), golden_data.ref64(name))
    assert against_float64(name, "f16").mean_logit <= theirs.mean_logit / 10


def test_the_table_in_readme_is_current() -> None:
    table = "\n".join(lines())
    assert table in README.read_text("utf-8"), "run scripts/accuracy and paste:\n" + table


def test_log_softmax_normalises() -> None:
    rows = np.array([[0.0, 1.0, 700.0], [-5.0, -5.0, -5.0]])
    assert np.allclose(np.exp(log_softmax(rows)).sum(axis=1), 1)
    assert np.allclose(log_softmax(rows)[1], np.log(1 / 3))


def test_difference_counts_what_it_says() -> None:
    reference = np.array([[0.0, 1.0, 2.0], [3.0, 1.0, 0.0]])
    rows = reference.copy()
    rows[0, 0] += 0.5  # one of six logits
    found = difference(rows, reference)
    assert (found.rows, found.max_logit, found.equal_argmax) == (2, 0.5, 2)
    assert found.mean_logit == pytest.approx(0.5 / 6)
    # A constant shift moves logits and not log probabilities.
    assert difference(reference + 1, reference).max_logprob == pytest.approx(0, abs=1e-12)
    rows[1] = [0.0, 1.0, 3.0]
    assert difference(rows, reference).equal_argmax == 1
    with pytest.raises(ValueError, match="the reference is"):
        difference(rows[:1], reference)
