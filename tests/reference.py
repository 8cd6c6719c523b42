"""Muse Glimmer in NumPy float64, straight from a GGUF file: the tests' truth.

Written from the model's description alone and as plainly as possible: a whole sequence at once,
full attention matrices, no cache. ``logits`` can plant one of the classic porting mistakes
(``FAULTS``), round the input of quantised products to the contract's block format, and round K and
V to f16.

    python -m tests.reference --demo-rows     # recompute python/muser/data/demo_rows.npy
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from muser.fixtures import demo_reference, fixed_tokens, synthetic_path
from muser.fixtures.demo import DEMO_FIXTURE, DEMO_POSITIONS

F64 = NDArray[np.float64]
Trace = Callable[[str, F64], None]

FAULTS = {
    "drop_softcap": "logits are not capped",
    "drop_multiplier": "logits are not multiplied by logit_scale",
    "swap_order": "the cap is applied before the multiplier",
    "skip_gate": "attention is not gated",
    "skip_embedding_norm": "the embedded row is not normalised",
    "post_norm_eps": "post-norms use 1e-5 for 1e-8",
    "rope_on_global": "RoPE on the first global layer",
    "half_split_pairs": "RoPE pairs (i, i + n/2) for (2i, 2i + 1)",
    "window_off_by_one": "a window one key too long",
    "q_scale_twice": "the q factor is applied twice",
}

_POST_NORM_EPS = 1e-8  # not among the file's keys
_CACHED_ELEMENTS = 1 << 22  # larger matrices are dequantised in slabs, each time
_FLOAT_TYPES = ("F32", "F16", "BF16")


def rms_norm(x: F64, eps: float, weight: F64 | None = None) -> F64:
    """RMS norm over the last axis."""
    y: F64 = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    return y if weight is None else y * weight


def sigmoid(x: F64) -> F64:
    y: F64 = 1 / (1 + np.exp(-x))
    return y


def block_round(x: F64) -> F64:
    """x as contract 1 stores activations: per 256 values the smallest power-of-two step for which
    every rounded magnitude is at most 32639."""
    blocks = x.reshape(*x.shape[:-1], -1, 256)
    top = np.abs(blocks).max(axis=-1, keepdims=True)
    _, exponent = np.frexp(top)  # top = m * 2^exponent, 0.5 <= m < 1
    step = np.ldexp(1.0, exponent - 15)
    step = np.where(top / step >= 32639.5, 2 * step, step)
    rounded: F64 = np.rint(blocks / step) * step
    return rounded.reshape(x.shape)


def rope(x: F64, theta: float, *, half_split: bool = False) -> F64:
    """Rotate the pairs (2i, 2i + 1) of x[position, head, dim] by position * theta^(-2i/dim)."""
    n, _, dim = x.shape
    angle = np.arange(n)[:, None] * theta ** (-np.arange(0, dim, 2) / dim)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    first, second = (
        (slice(0, dim // 2), slice(dim // 2, dim))
        if half_split
        else (slice(0, dim, 2), slice(1, dim, 2))
    )
    y = np.empty_like(x)
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., first] * sin + x[..., second] * cos
    return y


class Reference:
    """The model of one file. Weights are the gguf package's float32 values, lifted to float64."""

    def __init__(self, path: str | Path) -> None:
        reader = gguf.GGUFReader(path)
        self._fields = reader.fields
        self._tensors = {t.name: t for t in reader.tensors}
        self._cache: dict[str, F64] = {}
        self.layers = int(self._key("block_count"))
        self.heads = int(self._key("attention.head_count"))
        self.kv_heads = int(self._key("attention.head_count_kv"))
        self.head_dim = int(self._key("attention.key_length"))
        self.window = int(self._key("attention.sliding_window"))
        self.eps = float(self._key("attention.layer_norm_rms_epsilon"))
        self.theta = float(self._key("rope.freq_base"))
        self.logit_scale = float(self._key("logit_scale"))
        self.cap = float(self._key("final_logit_softcapping"))
        self.vocab = int(self._tensors["output.weight"].shape[1])
        pattern = self._key("attention.sliding_window_pattern")
        self.local: list[bool] = (
            [layer % pattern < pattern - 1 for layer in range(self.layers)]
            if isinstance(pattern, int)
            else [bool(flag) for flag in pattern]
        )

    def _key(self, name: str) -> Any:
        return self._fields[f"muse-glimmer.{name}"].contents()

    def weight(self, name: str) -> F64:
        """A whole tensor, float64."""
        if name not in self._cache:
            tensor = self._tensors[name]
            values: F64 = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
            if values.size > _CACHED_ELEMENTS:
                return values
            self._cache[name] = values
        return self._cache[name]

    def rows(self, name: str, ids: NDArray[np.int32]) -> F64:
        """Some rows of a matrix, float64."""
        tensor = self._tensors[name]
        values: F64 = gguf.dequantize(tensor.data[ids], tensor.tensor_type).astype(np.float64)
        return values

    def product(self, name: str, x: F64, activations: str) -> F64:
        """x @ W.T, the input rounded first where the weight is quantised and the mode says so."""
        tensor = self._tensors[name]
        if activations == "b16" and tensor.tensor_type.name not in _FLOAT_TYPES:
            x = block_round(x)
        if tensor.n_elements <= _CACHED_ELEMENTS:
            y: F64 = x @ self.weight(name).T
            return y
        rows = len(tensor.data)
        slab = max(1, _CACHED_ELEMENTS * rows // int(tensor.n_elements))
        parts = [
            x @ gguf.dequantize(tensor.data[at : at + slab], tensor.tensor_type).astype(float).T
            for at in range(0, rows, slab)
        ]
        return np.concatenate(parts, axis=-1)

    def logits(
        self,
        tokens: NDArray[np.int32],
        *,
        fault: str | None = None,
        activations: str = "exact",
        kv: str = "f64",
        trace: Trace | None = None,
    ) -> F64:
        """Logits float64[len(tokens), vocab] of a sequence that starts at position 0.

        fault: a name of FAULTS. activations: ``exact`` or ``b16``. kv: ``f64`` or ``f16``. trace:
        called with (closure label, values), as in ``blk.3.attention``.
        """
        if fault is not None and fault not in FAULTS:
            raise ValueError(f"no fault named {fault!r}")
        see: Trace = trace or (lambda _name, _values: None)

        h = self.rows("token_embd.weight", tokens)
        see("embedding", h)
        if fault != "skip_embedding_norm":
            h = rms_norm(h, self.eps)
        see("entry_norm", h)
        for layer in range(self.layers):
            h = self._layer(layer, h, fault, activations, kv, see)
        h = rms_norm(h, self.eps, self.weight("output_norm.weight"))
        see("output_norm", h)
        x = self.product("output.weight", h, activations)
        see("lm_head", x)
        scale = 1.0 if fault == "drop_multiplier" else self.logit_scale
        if fault == "drop_softcap":
            out: F64 = x * scale
        elif fault == "swap_order":
            out = self.cap * np.tanh(x / self.cap) * scale
        else:
            out = self.cap * np.tanh(x * scale / self.cap)
        see("softcap", out)
        return out

    def _layer(
        self, layer: int, h: F64, fault: str | None, activations: str, kv: str, see: Trace
    ) -> F64:
        b = f"blk.{layer}."
        post_eps = 1e-5 if fault == "post_norm_eps" else _POST_NORM_EPS

        a = rms_norm(h, self.eps, self.weight(b + "attn_norm.weight"))
        see(b + "attn_norm", a)
        o = self._attention(layer, a, fault, activations, kv)
        see(b + "attention", o)
        if fault != "skip_gate":
            o = o * sigmoid(self.product(b + "attn_gate.weight", a, activations))
        see(b + "sigmoid_gate", o)
        y = self.product(b + "attn_output.weight", o, activations)
        see(b + "output", y)
        h = h + rms_norm(y, post_eps, self.weight(b + "post_attention_norm.weight"))
        see(b + "post_attn_norm", h)

        f = rms_norm(h, self.eps, self.weight(b + "ffn_norm.weight"))
        see(b + "ffn_norm", f)
        g = self.product(b + "ffn_gate.weight", f, activations)
        act = g * sigmoid(g) * self.product(b + "ffn_up.weight", f, activations)
        see(b + "silu", act)
        y = self.product(b + "ffn_down.weight", act, activations)
        see(b + "ffn_down", y)
        h = h + rms_norm(y, post_eps, self.weight(b + "post_ffw_norm.weight"))
        see(b + "post_ffn_norm", h)
        return h

    def _attention(self, layer: int, a: F64, fault: str | None, activations: str, kv: str) -> F64:
        b = f"blk.{layer}."
        n, dim = len(a), self.head_dim
        q: F64 = self.product(b + "attn_q.weight", a, activations).reshape(n, self.heads, dim)
        k: F64 = self.product(b + "attn_k.weight", a, activations).reshape(n, self.kv_heads, dim)
        v: F64 = self.product(b + "attn_v.weight", a, activations).reshape(n, self.kv_heads, dim)
        q_weight = self.weight(b + "attn_q_norm.weight")
        q = rms_norm(q, self.eps, q_weight)
        k = rms_norm(k, self.eps, self.weight(b + "attn_k_norm.weight"))
        if fault == "q_scale_twice":
            q = q * q_weight
        local = self.local[layer]
        if local or (fault == "rope_on_global" and layer == self.local.index(False)):
            half = fault == "half_split_pairs"
            q, k = rope(q, self.theta, half_split=half), rope(k, self.theta, half_split=half)
        if kv == "f16":
            k, v = (x.astype(np.float32).astype(np.float16).astype(np.float64) for x in (k, v))

        distance = np.arange(n)[:, None] - np.arange(n)[None, :]
        visible = distance >= 0
        if local:
            visible &= distance < self.window + (fault == "window_off_by_one")
        out = np.empty_like(q)
        for head in range(self.heads):
            kv_head = head * self.kv_heads // self.heads
            score = q[:, head] @ k[:, kv_head].T / np.sqrt(dim)
            score = np.where(visible, score, -np.inf)
            p = np.exp(score - score.max(axis=-1, keepdims=True))
            out[:, head] = p @ v[:, kv_head] / p.sum(axis=-1, keepdims=True)
        return out.reshape(n, self.heads * dim)


def log_softmax(logits: NDArray[Any]) -> F64:
    """Normalised log-probabilities of each row, float64."""
    x = logits.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    y: F64 = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
    return y


def demo_rows() -> F64:
    """The rows that the package ships for ``muser demo``."""
    model = Reference(synthetic_path(DEMO_FIXTURE))
    return model.logits(fixed_tokens(DEMO_POSITIONS, model.vocab))


def main() -> None:
    parser = argparse.ArgumentParser(description="The float64 reference of the tests.")
    parser.add_argument("--demo-rows", action="store_true", required=True)
    parser.parse_args()
    root = Path(__file__).resolve().parent.parent
    np.save(root / "python" / "muser" / "data" / "demo_rows.npy", demo_rows())
    _, rows = demo_reference()
    print(f"{len(rows)} rows of {rows.shape[1]} logits, {rows.min():.3f} ... {rows.max():.3f}")


if __name__ == "__main__":
    main()
