"""Perplexity, against logprobs summed by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import muser
from muser.fixtures import fixed_tokens
from muser.perplexity import perplexity, windows

IDS = [int(token) for token in fixed_tokens(300, 1024)]


def by_hand(engine: muser.Engine, pieces: list[list[int]]) -> tuple[int, float]:
    """(predicted ids, mean negative log-likelihood), one token at a time in float64."""
    losses = []
    for piece in pieces:
        engine.reset()
        for token, target in itertools.pairwise(piece):
            row = engine.decode_token(token).astype(np.float64)
            losses.append(float(np.logaddexp.reduce(row) - row[target]))
    return len(losses), sum(losses) / len(losses)


@pytest.mark.parametrize(("bos", "window"), [(None, None), (1008, 50), (None, 2), (1008, 150)])
def test_it_is_the_mean_negative_log_likelihood(bos: int | None, window: int | None) -> None:
    with muser.load("synthetic:tiny", config=muser.Config(context=301)) as engine:
        heard: list[int] = []
        found = perplexity(engine, IDS, bos=bos, window=window, told=heard.append)
        pieces = windows(IDS, window or 301, bos)
        count, mean = by_hand(engine, pieces)
        assert (found.tokens, found.windows) == (count, len(pieces))
        assert math.isclose(found.nll, mean, rel_tol=1e-12)
        assert math.isclose(found.perplexity, math.exp(mean), rel_tol=1e-10)
        assert heard[-1] == count


def test_it_does_not_depend_on_threads_or_history() -> None:
    found = set()
    for threads in (1, 3):
        with muser.load("synthetic:tiny", config=muser.Config(context=64, threads=threads)) as e:
            e.prefill([1, 2, 3])
            found.add(perplexity(e, IDS).nll)
    assert len(found) == 1


def test_windows_cover_the_text() -> None:
    assert windows([1, 2, 3, 4, 5], 2, None) == [[1, 2], [3, 4]]
    assert windows([1, 2, 3, 4, 5], 3, 9) == [[9, 1, 2], [9, 3, 4], [9, 5]]
    assert windows([1], 5, None) == []
    assert windows([], 5, 9) == []


def test_nothing_to_predict_and_windows_out_of_range() -> None:
    with muser.load("synthetic:tiny", config=muser.Config(context=64)) as engine:
        for ids, window in (([], None), ([1], None), (IDS, 1), (IDS, 65)):
            with pytest.raises(muser.ConfigError):
                perplexity(engine, ids, window=window)
