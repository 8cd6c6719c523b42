"""muser.fixtures: pinned bytes, real layout, sane weights, whole files or none."""

from __future__ import annotations

import errno
import hashlib
import json
import pickle
import shutil
import subprocess
import sys
from collections import Counter, namedtuple
from pathlib import Path
from typing import Any

import gguf
import jinja2.sandbox
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import muser
from muser import fixtures
from muser.errors import MuserError
from muser.fixtures import cache, fill, writer
from muser.fixtures.digests import LARGE_SHA256, SHA256
from muser.fixtures.kinds import KINDS, Tensor, tensors
from muser.fixtures.vocabulary import byte_tokens, make_vocabulary
from muser.fixtures.words import mix, stream_key, words

OFFICIAL_KEYS = {
    *(f"general.{k}" for k in ("architecture", "type", "name", "size_label")),
    "general.quantization_version",
    "general.file_type",
    *(f"muse-glimmer.{k}" for k in ("block_count", "context_length", "embedding_length")),
    *(f"muse-glimmer.{k}" for k in ("feed_forward_length", "rope.freq_base", "logit_scale")),
    "muse-glimmer.final_logit_softcapping",
    *(f"muse-glimmer.attention.{k}" for k in ("head_count", "head_count_kv", "key_length")),
    *(f"muse-glimmer.attention.{k}" for k in ("value_length", "layer_norm_rms_epsilon")),
    *(f"muse-glimmer.attention.sliding_window{k}" for k in ("", "_pattern")),
    *(f"tokenizer.ggml.{k}" for k in ("model", "pre", "tokens", "token_type", "merges")),
    *(f"tokenizer.ggml.{k}_token_id" for k in ("bos", "eos", "padding", "eot")),
    *(f"tokenizer.ggml.add_{k}_token" for k in ("bos", "sep")),
    "tokenizer.chat_template",
}
MORE_BITS_LAYERS = [*range(6), *range(8, 45, 3), *range(45, 52)]


def read(path: Path) -> gguf.GGUFReader:
    return gguf.GGUFReader(path)


def value(reader: gguf.GGUFReader, key: str) -> object:
    return reader.fields[key].contents()


# --- integers -------------------------------------------------------------------------------


def test_words_are_splitmix64() -> None:
    # The generator's published first outputs for seed 0.
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert words(0, 0, 4).tolist() == expected


@given(st.integers(0, 2**64 - 1), st.integers(0, 10**7), st.integers(1, 40_000))
def test_a_word_depends_on_its_index_alone(key: int, first: int, count: int) -> None:
    whole = words(key, first, count)
    for i in {0, count // 2, count - 1}:
        assert whole[i] == mix(key + (first + i + 1) * 0x9E3779B97F4A7C15)
    assert np.array_equal(whole[count // 3 :], words(key, first + count // 3, count - count // 3))


def test_streams_differ_by_seed_and_name() -> None:
    keys = {stream_key(seed, name) for seed in range(50) for name in ("a", "b", "blk.0.attn_q")}
    assert len(keys) == 150


def test_fixed_tokens() -> None:
    ids = fixtures.fixed_tokens(600, 1024)
    assert ids.dtype == np.int32
    assert ids[:6].tolist() == [(s >> 8) % 1008 for s in _lcg(6)]
    assert ids.min() >= 0
    assert ids.max() < 1008


def _lcg(n: int) -> list[int]:
    states, state = [], 12345
    for _ in range(n):
        state = (state * 1103515245 + 12345) % 2**31
        states.append(state)
    return states


# --- bytes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHA256)
def test_small_fixtures_have_their_pinned_bytes(name: str, tmp_path: Path) -> None:
    kind, types, head_dim, scalar = cache.parse(name)
    path = tmp_path / "f.gguf"
    info = fixtures.write(kind, path, types=types, head_dim=head_dim, scalar_pattern=scalar)
    assert info.sha256 == SHA256[name]
    data = path.read_bytes()
    assert hashlib.sha256(data).hexdigest() == SHA256[name]
    assert len(data) == info.file_bytes
    assert hashlib.sha256(data[: info.header_bytes]).hexdigest() == info.header_sha256


def test_pieces_make_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_PIECE_BYTES", 4096)
    monkeypatch.setattr(writer, "_THREADS", 1)
    seen: list[tuple[int, int]] = []
    info = fixtures.write("tiny", tmp_path / "f", progress=lambda *at: seen.append(at))
    assert info.sha256 == SHA256["tiny-mix"]
    assert len(seen) > 1000
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (info.file_bytes, info.file_bytes)


def test_another_seed_makes_another_model(tmp_path: Path) -> None:
    info = fixtures.write("tiny", tmp_path / "f", seed=2)
    assert info.sha256 not in SHA256.values()
    other = read(info.path).tensors
    ours = read(fixtures.synthetic_path("tiny")).tensors
    same = [a.name for a, b in zip(ours, other, strict=True) if np.array_equal(a.data, b.data)]
    assert all(name.endswith(("_q_norm.weight", "_k_norm.weight")) for name in same)


@pytest.mark.parametrize("types", ["f16", "bf16"])
def test_narrow_floats_are_the_wide_ones_rounded(types: str) -> None:
    wide = read(fixtures.synthetic_path("tiny-f32")).tensors
    narrow = read(fixtures.synthetic_path(f"tiny-{types}")).tensors
    for a, b in zip(wide, narrow, strict=True):
        exact = a.data.astype(np.float64)
        rounded = gguf.dequantize(b.data, b.tensor_type).astype(np.float64)
        if b.tensor_type.name == "F32":
            assert np.array_equal(exact, rounded)
            continue
        _, exponent = np.frexp(np.maximum(np.abs(exact), 2.0**-14 if types == "f16" else 2.0**-126))
        ulp = np.ldexp(1.0, exponent - (11 if types == "f16" else 8))
        assert np.all(np.abs(exact - rounded) <= ulp / 2)
        assert np.any(exact != rounded)


# --- weights --------------------------------------------------------------------------------


@pytest.mark.parametrize("types", ["f32", "f16", "bf16", "q8_0", "q4_K", "q5_K", "q6_K", "mix"])
def test_weights_have_zero_mean_and_the_intended_spread(types: str) -> None:
    plan = {t.name: t for t in tensors(KINDS["tiny"], types)}
    found = read(fixtures.synthetic_path(f"tiny-{types}")).tensors
    assert [t.name for t in found] == list(plan)
    for t in found:
        wanted = plan[t.name]
        assert t.tensor_type.name == wanted.format
        assert tuple(int(n) for n in t.shape) == wanted.shape[::-1]
        w = gguf.dequantize(t.data, t.tensor_type).astype(np.float64)
        if wanted.fill == "matrix":
            assert w.std() == pytest.approx(wanted.std, rel=0.06)
            assert abs(w.mean()) < 0.06 * w.std()
            assert np.abs(w).max() < 8 * w.std()
        elif wanted.fill in ("norm", "post_norm", "norm_with_zero"):
            assert np.array_equal(w * 1024, np.rint(w * 1024))
            centre = 0.25 if wanted.fill == "post_norm" else 1.0
            assert w.mean() == pytest.approx(centre, rel=0.05)
            assert (w.min() == 0) == (wanted.fill == "norm_with_zero")
        else:
            constant = 3.87 if wanted.fill == "q_scale" else 1.0
            assert np.all(t.data == np.float32(constant))


@pytest.mark.parametrize(
    ("types", "size", "at"), [("q4_K", 72, 0), ("q5_K", 88, 0), ("q6_K", 105, 104), ("q8_0", 17, 0)]
)
def test_block_scales_vary(types: str, size: int, at: int) -> None:
    t = next(t for t in read(fixtures.synthetic_path(f"tiny-{types}")).tensors if "down" in t.name)
    d = t.data.reshape(-1).view(np.float16).reshape(-1, size)[:, at].astype(np.float64)
    assert len(set(d)) > 20
    assert (d.min() < 0) == (types == "q6_K")
    assert np.abs(d).max() / np.abs(d).min() == pytest.approx(5 / 3, rel=0.1)


def test_a_piece_must_start_where_a_word_does() -> None:
    t = Tensor("t", (64, 256), "Q6_K", "matrix", 0.1)
    with pytest.raises(ValueError, match="multiple of 4"):
        fill.piece(t, 1, 2, 4)


# --- layout ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny", "tiny-mix-period", "narrow", "tiny-q8_0-h16"])
def test_header_has_the_official_keys(name: str) -> None:
    path = fixtures.synthetic_path(name)
    reader = read(path)
    assert len(OFFICIAL_KEYS) == 32
    # The reader adds three fields of its own for the file's counts.
    assert {k for k in reader.fields if not k.startswith("GGUF.")} == OFFICIAL_KEYS
    layers = 52 if name == "narrow" else 8
    pattern = value(reader, "muse-glimmer.attention.sliding_window_pattern")
    if name.endswith("-period"):
        assert pattern == 4
    else:
        assert pattern == [layer % 4 != 3 for layer in range(layers)]
    assert value(reader, "muse-glimmer.logit_scale") == np.float32(0.19611613513818404)
    assert value(reader, "muse-glimmer.attention.layer_norm_rms_epsilon") == np.float32(1e-5)
    assert reader.data_offset % 32 == 0
    assert all(t.data_offset % 32 == 0 for t in reader.tensors)


def test_narrow_has_the_real_graph() -> None:
    reader = read(fixtures.synthetic_path("narrow"))
    pattern = value(reader, "muse-glimmer.attention.sliding_window_pattern")
    assert isinstance(pattern, list)
    assert Counter(pattern) == {True: 39, False: 13}
    assert value(reader, "muse-glimmer.attention.sliding_window") == 2048
    census = Counter(t.tensor_type.name for t in reader.tensors)
    assert census == {"F32": 313, "Q4_K": 365, "Q5_K": 1, "Q6_K": 52}


def test_mid4_reads_the_intended_bytes_per_token(tmp_path: Path) -> None:
    info = fixtures.write("mid4", tmp_path / "m", sparse=True)
    assert info.bytes_per_token == 2_192_453_888
    assert info.census == {"Q4_K": 33, "F32": 25, "Q6_K": 1}


WRITE = """
import json, resource, sys
from dataclasses import asdict
from muser import fixtures

info = asdict(fixtures.write(sys.argv[1], sys.argv[2], sparse=sys.argv[3] == "True"))
if sys.platform == "linux":  # ru_maxrss would count the parent's memory at the fork
    with open("/proc/self/status") as file:
        peak = 1024 * next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({**info, "path": "", "peak": peak}))
"""


def written_apart(kind: str, path: Path, *, sparse: bool) -> dict[str, Any]:
    """FixtureInfo's fields, and ``peak`` resident bytes, of a process that writes the kind."""
    run = [sys.executable, "-c", WRITE, kind, str(path), str(sparse)]
    return dict(json.loads(subprocess.run(run, check=True, capture_output=True).stdout))


def test_30b_is_the_real_file_in_shape(tmp_path: Path) -> None:
    path = tmp_path / "30b.gguf"
    info = written_apart("30b", path, sparse=True)
    assert info["tensors"] == 731
    assert info["census"] == {"F32": 313, "Q4_K": 365, "Q5_K": 1, "Q6_K": 52}
    assert info["weight_bytes"] == 16_743_567_360
    assert path.stat().st_size == info["file_bytes"] == info["header_bytes"] + info["weight_bytes"]
    assert path.stat().st_blocks * 512 < 2 * info["header_bytes"]
    assert info["peak"] < 512 << 20  # the vocabulary is what needs memory
    plan = tensors(KINDS["30b"], "kquant-17gb")
    assert [t.name for t in plan if t.format == "Q6_K"] == [
        f"blk.{layer}.{name}.weight"
        for layer in MORE_BITS_LAYERS
        for name in ("attn_v", "ffn_down")
    ]
    assert (plan[-1].name, plan[-1].format) == ("output.weight", "Q5_K")
    assert plan[-1].shape == (202_048, 6656)


def test_the_real_vocabulary() -> None:
    v = make_vocabulary(202_048, 439_802)
    assert len(v.tokens) == len(v.types) == len(set(v.tokens)) == 202_048
    assert (v.bos, v.eos, v.eot, v.pad) == (200_000, 200_001, 200_008, 200_018)
    named = {200_007: "<|eom|>", 200_022: "<|start|>", 200_023: "<|message|>"}
    assert {i: v.tokens[i] for i in named} == named
    assert v.tokens[:256] == byte_tokens()
    assert len(v.merges) == len(set(v.merges)) == 439_802
    ids = {token: i for i, token in enumerate(v.tokens)}
    made = set()
    for merge in v.merges:
        left, right = merge.split(" ")
        result = ids[left + right]
        assert max(ids[left], ids[right]) < result < 200_000
        made.add(result)
    assert made == set(range(256, 200_000))


def test_small_vocabularies() -> None:
    v = make_vocabulary(1024)
    assert (v.bos, v.eos, v.eot, v.pad) == (1008, 1009, 1010, 1014)
    assert len(v.merges) == 752
    with pytest.raises(ValueError, match="no synthetic vocabulary"):
        make_vocabulary(200)
    with pytest.raises(ValueError, match="no synthetic vocabulary"):
        make_vocabulary(1024, 100_000)


def test_chat_template_renders() -> None:
    text = value(read(fixtures.synthetic_path("tiny")), "tokenizer.chat_template")
    template = jinja2.sandbox.ImmutableSandboxedEnvironment().from_string(str(text))
    turns = [{"role": "user", "content": "Hi"}]
    made = template.render(bos_token="<B>", messages=turns, add_generation_prompt=True)
    assert made == (
        "<B><|start|>system<|message|>You are a helpful assistant.\nKnowledge cutoff: 2026-01\n\n"
        "Reasoning strength: high.\nValid recipients: self, user.<|eot|>"
        "<|start|>user<|message|>Hi<|eot|><|start|>assistant"
    )
    turns = [
        {"role": "system", "content": "S"},
        *turns,
        {"role": "assistant", "content": "Yo", "reasoning_content": "hm"},
    ]
    made = template.render(bos_token="", messages=turns, reasoning_strength="low")
    assert made == (
        "<|start|>system<|message|>S\n\nReasoning strength: low.\nValid recipients: self, user."
        "<|eot|><|start|>user<|message|>Hi<|eot|><|start|>assistant to=self<|message|>hm<|eom|>"
        "<|start|>assistant to=user<|message|>Yo<|eot|>"
    )


# --- files ----------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "f.gguf"
    path.write_bytes(b"old")

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fixtures.write("tiny", path, progress=stop)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_dead_writers_part_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "f.gguf"
    (tmp_path / "f.gguf.part").write_bytes(b"x" * 10_000_000)
    assert fixtures.write("tiny", path).sha256 == SHA256["tiny-mix"]
    assert cache._has_digest(path, SHA256["tiny-mix"])
    assert list(tmp_path.iterdir()) == [path]


def test_no_room_is_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(16 << 30, 1 << 30, 15 << 30))
    with pytest.raises(fixtures.DiskSpaceError, match="no room") as caught:
        fixtures.write("30b", tmp_path / "30b.gguf")
    assert isinstance(caught.value, MuserError)
    assert caught.value.facts["free"] == 15 << 30
    needed = caught.value.facts["needed"]
    assert isinstance(needed, int)
    assert 16_743_567_360 < needed < 16_900_000_000
    assert list(tmp_path.iterdir()) == []
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.facts == caught.value.facts


def test_a_disk_that_fills_up_is_the_same_error(tmp_path: Path) -> None:
    def full(_done: int, _total: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(fixtures.DiskSpaceError, match="the whole file"):
        fixtures.write("tiny", tmp_path / "f.gguf", progress=full)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("huge", {}, "no fixture kind named 'huge'"),
        ("tiny", {"types": "q3_K"}, "no weight types named 'q3_K'"),
        ("tiny", {"head_dim": 24}, "head_dim 24"),
        ("tiny", {"heads": 5}, "5 query heads"),
    ],
)
def test_requests_that_make_no_model(
    kind: str, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(fixtures.FixtureError, match=words) as caught:
        fixtures.write(kind, tmp_path / "f", **options)
    assert isinstance(caught.value, MuserError)
    assert set(caught.value.facts) >= {"found", "expected"}
    assert list(tmp_path.iterdir()) == []


def test_another_number_of_query_heads(tmp_path: Path) -> None:
    path = tmp_path / "f.gguf"
    fixtures.write("tiny", path, types="q4_K", head_dim=128, heads=16)
    with muser.load(path) as engine:
        assert (engine.geometry["heads"], engine.geometry["kv_heads"]) == (16, 2)
        assert engine.decode_token(3).shape == (engine.vocab,)


def test_rows_that_do_not_fill_blocks_are_refused() -> None:
    ragged = KINDS["tiny"].__class__("r", 4, 256, 6, 2, 16, 256, 1024, 16, "q4_K", 1.0)
    with pytest.raises(fixtures.FixtureError, match=r"blk\.0\.attn_output.* 96 .*256"):
        tensors(ragged, "q4_K")


def test_a_folder_is_no_target(tmp_path: Path) -> None:
    with pytest.raises(fixtures.FixtureError, match="is a folder"):
        fixtures.write("tiny", tmp_path)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cache, "cache_dir", lambda: tmp_path / "muser")
    return tmp_path / "muser"


def test_synthetic_path(empty_cache: Path) -> None:
    path = fixtures.synthetic_path("synthetic:tiny")
    assert path == empty_cache / "tiny-mix.gguf"
    before = path.stat()
    assert fixtures.synthetic_path("tiny-mix") == path
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    with path.open("r+b") as file:
        file.seek(5000)
        file.write(b"damage")
    fixtures.synthetic_path("tiny")
    assert cache._has_digest(path, SHA256["tiny-mix"])


@pytest.mark.parametrize("name", ["30b", "mid4", "tiny-", "tiny-q4_k", "synthetic:synthetic:tiny"])
def test_unknown_synthetic_names(name: str, empty_cache: Path) -> None:
    with pytest.raises(fixtures.FixtureError, match="no synthetic file named"):
        fixtures.synthetic_path(name)
    assert not empty_cache.exists()


def test_other_bytes_than_the_pinned_ones_are_refused(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHA256, "tiny-mix", "0" * 64)
    with pytest.raises(fixtures.FixtureDigestError, match="not the pinned") as caught:
        fixtures.synthetic_path("tiny")
    assert caught.value.facts["expected"] == "0" * 64
    assert list(empty_cache.iterdir()) == []


def test_every_name_parses_to_itself() -> None:
    assert set(SHA256) < set(fixtures.synthetic_names())
    for name in SHA256:
        kind, types, head_dim, scalar = cache.parse(name)
        parts = [kind, types, f"h{head_dim}" if head_dim else "", "period" if scalar else ""]
        assert "-".join(part for part in parts if part) == name


def test_concurrent_processes_each_get_a_whole_file(tmp_path: Path) -> None:
    code = (
        "import hashlib, pathlib, sys; from muser.fixtures import cache; "
        "cache.cache_dir = lambda: pathlib.Path(sys.argv[1]); "
        "p = cache.synthetic_path('tiny'); "
        "print(hashlib.sha256(p.read_bytes()).hexdigest())"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    outputs = [process.communicate(timeout=120)[0].strip() for process in started]
    assert outputs == [SHA256["tiny-mix"]] * 4
    assert [p.name for p in tmp_path.iterdir()] == ["tiny-mix.gguf"]


@pytest.mark.sweep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["mid4", "30b"])
def test_large_fixtures_whole(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"{kind}.gguf"
    assert written_apart(kind, path, sparse=False)["peak"] < 1 << 30
    assert cache._has_digest(path, LARGE_SHA256[kind])
    path.unlink()
