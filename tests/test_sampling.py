"""Sampling: one seed, one sequence of ids, whatever runs it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

import muser
from muser import _core
from muser.commands.generate import feed_prompt, generate
from muser.sampling import GREEDY, MODEL_CARD, Sampling, logprobs, top

PROMPT = [7, 100, 500, 3]
COUNT = 60
PINNED = [256, 256, 256, 256, 56, 360, 381, 685, 683, 676, 486, 523]


def ids(sampling: Sampling, **settings: object) -> list[int]:
    """A prompt and COUNT ids drawn after it, past three windows."""
    config = muser.Config(context=128, **settings)  # type: ignore[arg-type]
    with muser.load("synthetic:tiny", config=config) as engine:
        first = feed_prompt(engine, PROMPT, sampling.choose, None)
        steps = generate(engine, first, COUNT, sampling.choose)
        return [first.next, *(step.next for step in steps)]


def cpu_isas() -> list[str]:
    return next(list(d["isas"]) for d in _core.devices() if d["name"] == "cpu")


def test_a_seed_gives_one_sequence_over_threads_isas_schedules_and_runs() -> None:
    sampling = Sampling(1.0, 64, 0.95, seed=42)
    expected = ids(sampling, threads=1)
    assert len(set(expected)) > COUNT // 3
    assert ids(sampling, threads=1) == expected
    for isa, threads in itertools.product(cpu_isas(), (1, 3)):
        assert ids(sampling, isa=isa, threads=threads) == expected, isa
    assert ids(sampling, schedule="baseline", barriers="all") == expected
    others = [ids(Sampling(1.0, 64, 0.95, seed=seed)) for seed in (0, 43, 42 << 32)]
    assert all(other != expected for other in others)


def test_the_sequence_is_pinned() -> None:
    assert ids(Sampling(1.0, 64, 0.95, seed=42))[:12] == PINNED


def philox(counter: int, key: int) -> int:
    """First word of Philox 4x32-10, written from the paper's description."""
    c = [counter >> 32 * i & 0xFFFFFFFF for i in range(4)]
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0]


def candidates(row: NDArray[np.float32], sampling: Sampling) -> tuple[list[int], list[float]]:
    """Candidate ids in order with their exact cumulated probability, in float64."""
    order = np.argsort(-row, kind="stable")
    if sampling.top_k:
        order = order[: sampling.top_k]
    scaled = row[order].astype(np.float64) / sampling.temperature
    weights = np.exp(scaled - scaled[0])
    share = np.cumsum(weights) / weights.sum()
    keep = int(np.searchsorted(share, sampling.top_p)) + 1 if sampling.top_p < 1 else len(order)
    share = share[:keep] / share[keep - 1]
    return [int(token) for token in order[:keep]], [float(value) for value in share]


@pytest.mark.parametrize(
    "sampling",
    [
        MODEL_CARD,
        Sampling(0.7, seed=1),
        Sampling(2.0, top_k=5, seed=1 << 40),
        Sampling(1.0, top_p=0.5, seed=(1 << 64) - 1),
    ],
)
def test_draws_agree_with_float64(sampling: Sampling) -> None:
    generator = np.random.Generator(np.random.PCG64(1))
    for position in range(200):
        row = generator.normal(0, 4, 300).astype(np.float32)
        order, share = candidates(row, sampling)
        u = (philox(position, sampling.seed) >> 8) / (1 << 24)
        at = order.index(sampling.choose(row, position))
        # Rounding may move the border between two candidates, not more.
        below = share[at - 1] if at else 0.0
        assert below - 1e-5 <= u <= share[at] + 1e-5


def test_greedy_takes_the_lowest_id_of_a_tie() -> None:
    row = np.array([1, 5, 5, 2], np.float32)
    assert GREEDY.choose(row, 0) == 1
    assert Sampling(1.0, top_k=1, seed=9).choose(row, 0) == 1


def test_limits_bind() -> None:
    row = np.arange(10, dtype=np.float32) / 10
    drawn = {Sampling(5.0, top_k=3).choose(row, position) for position in range(300)}
    assert drawn == {7, 8, 9}
    drawn = {Sampling(5.0, top_p=1e-6).choose(row, position) for position in range(300)}
    assert drawn == {9}


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_k": 1 << 32}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_p": math.nan}, "top_p"),
        ({"seed": -1}, "seed"),
        ({"seed": 1 << 64}, "seed"),
    ],
)
def test_settings_out_of_range_are_named(settings: dict[str, float], field: str) -> None:
    with pytest.raises(muser.ConfigError) as caught:
        Sampling(**settings)  # type: ignore[arg-type]
    assert caught.value.facts["field"] == field


def test_rows_that_are_none() -> None:
    for row in (np.zeros((2, 2), np.float32), np.zeros(0, np.float32), np.zeros(4)):
        with pytest.raises(muser.ConfigError):
            GREEDY.choose(row, 0)
    with pytest.raises(muser.NonFiniteError):
        MODEL_CARD.choose(np.array([1, math.nan], np.float32), 0)


def test_logprobs_are_a_distribution() -> None:
    row = np.random.Generator(np.random.PCG64(2)).normal(0, 5, 1000).astype(np.float32)
    values = logprobs(row)
    assert math.isclose(np.exp(values).sum(), 1, rel_tol=1e-12)
    assert np.allclose(values - values[0], row - row[0], atol=1e-5)
    best = top(row, 5)
    assert [token for token, _ in best] == [int(i) for i in np.argsort(-row)[:5]]
    assert all(value == values[token] for token, value in best)
    tied = top(np.array([0, 3, 3], np.float32), 2)
    assert [token for token, _ in tied] == [1, 2]
    assert tied[0][1] == tied[1][1] == pytest.approx(-0.7177, abs=1e-3)
