"""Writes ``tiny-f32.gguf``, the F32 file that the float64 rows in tests/data were made with.

The file is 20 MB of NumPy's PCG64 normal variates, so the code that makes it is kept instead; the
SHA-256 in tests/data/SHA256SUMS says whether it still makes the same bytes. Do not use this for
anything else: ``muser.fixtures`` does not depend on a library's random stream.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from muser.fixtures.vocabulary import byte_tokens

_LAYERS, _HIDDEN, _HEADS, _KV_HEADS, _HEAD_DIM, _FF = 8, 256, 8, 2, 64, 768
_VOCAB, _SPECIALS, _WINDOW = 1024, 16, 16
_LOGIT_SCALE = 0.19611613513818404
_LOGIT_STD = 6.0
_SEED = 1
_LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


def _vocabulary() -> tuple[list[str], list[str]]:
    """(tokens, merges): bytes, pairs of letters, the first pairs of such pairs, specials."""

    def parts() -> Iterator[tuple[str, str]]:
        firsts = "\u0120" + _LETTERS
        pairs = [a + b for a in firsts for b in _LETTERS]
        yield from ((p[0], p[1]) for p in pairs)
        inner = len(_LETTERS)  # pairs from here on have no leading blank
        for diagonal in range(inner, 2 * inner):
            for j in range(diagonal - inner + 1):
                yield pairs[j], pairs[diagonal - j]

    tokens = byte_tokens()
    merged = list(islice(parts(), _VOCAB - _SPECIALS - len(tokens)))
    tokens += [a + b for a, b in merged]
    names = ["begin_of_text", "end_of_text", "eot", "start", "message"]
    names += [f"reserved_special_token_{i}" for i in range(len(names), _SPECIALS)]
    return tokens + [f"<|{name}|>" for name in names], [f"{a} {b}" for a, b in merged]


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    q, kv = _HEADS * _HEAD_DIM, _KV_HEADS * _HEAD_DIM
    yield "token_embd", (_VOCAB, _HIDDEN)
    for layer in range(_LAYERS):
        for name, shape in (
            ("attn_norm", (_HIDDEN,)),
            ("attn_q", (q, _HIDDEN)),
            ("attn_k", (kv, _HIDDEN)),
            ("attn_v", (kv, _HIDDEN)),
            ("attn_q_norm", (_HEAD_DIM,)),
            ("attn_k_norm", (_HEAD_DIM,)),
            ("attn_gate", (q, _HIDDEN)),
            ("attn_output", (_HIDDEN, q)),
            ("post_attention_norm", (_HIDDEN,)),
            ("ffn_norm", (_HIDDEN,)),
            ("ffn_gate", (_FF, _HIDDEN)),
            ("ffn_up", (_FF, _HIDDEN)),
            ("ffn_down", (_HIDDEN, _FF)),
            ("post_ffw_norm", (_HIDDEN,)),
        ):
            yield f"blk.{layer}.{name}", shape
    yield "output_norm", (_HIDDEN,)
    yield "output", (_VOCAB, _HIDDEN)


def _weights(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    rng = np.random.default_rng([_SEED, zlib.crc32(f"{name}.weight".encode())])
    role = name.rpartition(".")[2]
    if role == "attn_q_norm":
        return np.full(shape, 3.87, np.float32)
    if role == "attn_k_norm":
        return np.ones(shape, np.float32)
    if len(shape) == 1:
        gain = 0.25 if role.startswith("post_") else 1.0
        steps = np.round(1024 * gain * np.maximum(1 + 0.15 * rng.standard_normal(shape), 0.3))
        norm: NDArray[np.float32] = (steps / 1024).astype(np.float32)
        return norm
    std = (_LOGIT_STD / _LOGIT_SCALE if role == "output" else 1.0) / np.sqrt(shape[1])
    if role in ("token_embd", "attn_q", "attn_k", "attn_output", "ffn_down"):
        std *= 0.1
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(std)


def write_tiny_f32(path: Path) -> None:
    """Write the file; the caller checks its SHA-256."""
    writer = gguf.GGUFWriter(path, "muse-glimmer")
    writer.add_string("general.name", "synthetic muse-glimmer tiny")
    for name, value in (
        ("block_count", _LAYERS),
        ("context_length", 131072),
        ("embedding_length", _HIDDEN),
        ("feed_forward_length", _FF),
        ("attention.head_count", _HEADS),
        ("attention.head_count_kv", _KV_HEADS),
        ("rope.freq_base", 500000.0),
        ("attention.layer_norm_rms_epsilon", 1e-5),
        ("attention.key_length", _HEAD_DIM),
        ("attention.value_length", _HEAD_DIM),
        ("vocab_size", _VOCAB),
        ("final_logit_softcapping", 20.0),
        ("logit_scale", _LOGIT_SCALE),
        ("attention.sliding_window", _WINDOW),
    ):
        if isinstance(value, float):
            writer.add_float32(f"muse-glimmer.{name}", value)
        else:
            writer.add_uint32(f"muse-glimmer.{name}", value)
    pattern = [layer % 4 < 3 for layer in range(_LAYERS)]
    writer.add_array("muse-glimmer.attention.sliding_window_pattern", pattern)
    writer.add_uint32("general.file_type", 0)
    writer.add_uint32("general.quantization_version", 2)
    tokens, merges = _vocabulary()
    first_special = _VOCAB - _SPECIALS
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", "llama4")
    writer.add_array("tokenizer.ggml.tokens", tokens)
    writer.add_array("tokenizer.ggml.token_type", [1] * first_special + [3] * _SPECIALS)
    writer.add_array("tokenizer.ggml.merges", merges)
    writer.add_uint32("tokenizer.ggml.bos_token_id", first_special)
    writer.add_uint32("tokenizer.ggml.eos_token_id", first_special + 1)
    writer.add_uint32("tokenizer.ggml.eot_token_id", first_special + 2)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    for name, shape in _shapes():
        writer.add_tensor(f"{name}.weight", _weights(name, shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
