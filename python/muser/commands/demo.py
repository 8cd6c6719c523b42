"""`muser demo`: one small model, decoded several ways; the bits must agree, the error be small.

Everything it needs is in the package. The exit code is 1 if any comparison fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accuracy import Difference, difference
from ..bandwidth import read_rate
from ..config import Config
from .common import Subparsers, add_engine, add_json, config_of, console, emit, say, table, used
from .inspect import geometry_rows

MODEL = "synthetic:tiny"
# Mean absolute logit error against float64. The f16 cache alone costs about ten times the
# 16-bit activations; llama.cpp's 8-bit activations are at 0.16 on files of this kind.
BOUNDS = {"f32": 1.5e-3, "f16": 1.6e-2}


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "demo",
        usage="muser demo [options]",
        help="decode the built-in file several ways and compare every bit",
        description=__doc__,
    )
    add_json(parser)
    add_engine(parser)
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class Run:
    """One way of decoding the demo's tokens."""

    label: str
    used: dict[str, Any]
    rows: NDArray[np.float32]
    seconds: float
    plan: dict[str, Any]

    def hash_after(self, count: int) -> str:
        """Running SHA-256 (hex) over the first rows, little-endian float32."""
        data = np.ascontiguousarray(self.rows[:count], "<f4").tobytes()
        return hashlib.sha256(data).hexdigest()

    @property
    def hash(self) -> str:
        return self.hash_after(len(self.rows))

    @property
    def tok_s(self) -> float:
        return len(self.rows) / self.seconds


def decode(label: str, config: Config, tokens: NDArray[np.int32]) -> Run:
    """Loads the model, decodes the tokens one by one."""
    from ..engine import load

    with load(MODEL, config=config) as engine:
        rows = np.empty((len(tokens), engine.vocab), np.float32)
        engine.decode_token(tokens[0])  # the first step touches the weights for the first time
        engine.reset()
        started = time.perf_counter()
        for token, row in zip(tokens, rows, strict=True):
            engine.decode_token(token, out=row)
        seconds = time.perf_counter() - started
        return Run(label, used(engine), rows, seconds, engine.plan.summary())


def variants(arguments: argparse.Namespace) -> list[tuple[str, Config]]:
    """The ways to compare: as asked for, then other thread counts, instruction sets, plans."""
    from .. import _core

    base = config_of(arguments)
    isas = next(device["isas"] for device in _core.devices() if device["name"] == "cpu")
    ways: dict[str, dict[str, Any]] = {
        "1 thread": {"threads": 1},
        f"{max(2, base.threads)} threads": {"threads": max(2, base.threads)},
        f"isa {isas[0]}": {"isa": isas[0]},
        f"isa {isas[-1]}": {"isa": isas[-1]},
        "baseline graph": {"schedule": "baseline"},
    }
    others = [(label, config_of(arguments, device="cpu", **way)) for label, way in ways.items()]
    return [("as configured", base), *others]


def golden() -> dict[str, Any]:
    """The hashes that every machine must reach: `contract`, and one by KV type."""
    text = (files("muser") / "data" / "demo_hashes.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def run(arguments: argparse.Namespace) -> int:
    from .. import __version__, _core
    from ..engine import inspect
    from ..fixtures import demo_reference

    quiet = bool(arguments.json)
    out = console()
    info = inspect(MODEL)
    tokens, reference = demo_reference()
    if not quiet:
        say(f"muser {__version__}, contract {_core.CONTRACT}, model {MODEL}")
        shape = table("geometry", "")
        for name, value in geometry_rows(info["geometry"]):
            shape.add_row(name, value)
        out.print(shape)

    ways = variants(arguments)
    runs = [decode(*ways[0], tokens)]
    first = runs[0]
    if not quiet:
        say(f"{'position':>8} {'input':>6} {'argmax':>6}  sha256 of all rows so far")
        for at, (token, row) in enumerate(zip(tokens, first.rows, strict=True)):
            digest = first.hash_after(at + 1)
            say(f"{at:>8} {token:>6} {int(row.argmax()):>6}  {digest[:48]}...")
    runs += [decode(label, config, tokens) for label, config in ways[1:]]

    kv = ways[0][1].kv_dtype
    expected = golden()
    checks = {way.label: way.hash == first.hash for way in runs[1:]}
    checks["stored hash"] = expected["contract"] == _core.CONTRACT and first.hash == expected[kv]
    errors: dict[str, Difference] = {}
    for kv_dtype in ("f16", "f32"):
        rows = first.rows
        if kv_dtype != kv:
            rows = decode(kv_dtype, config_of(arguments, kv_dtype=kv_dtype), tokens).rows
        errors[kv_dtype] = difference(rows, reference)
        checks[f"error, KV {kv_dtype}"] = errors[kv_dtype].mean_logit <= BOUNDS[kv_dtype]

    read = read_rate(first.used["threads"] or 1)
    model_rate = first.tok_s * info["bytes_per_token"]
    passed = all(checks.values())
    if quiet:
        told = {
            "contract": _core.CONTRACT,
            "geometry": info["geometry"],
            "sha256": first.hash,
            "plan": first.plan,
            **first.used,
            "tok_s": first.tok_s,
            "bytes_per_token": info["bytes_per_token"],
            "read_bytes_s": read,
            "read_percent": 100 * model_rate / read,
            "runs": [
                {"label": way.label, **way.used, "tok_s": way.tok_s, "sha256": way.hash}
                for way in runs
            ],
            "errors": {kv_dtype: error.as_dict() for kv_dtype, error in errors.items()},
            "checks": checks,
            "passed": passed,
        }
        emit("demo", told)
        return 0 if passed else 1

    compared = table("run", "device", ">threads", "isa", ">tok/s", "hash", "bits")
    for way in runs:
        same = "the first" if way is first else "equal" if checks[way.label] else "DIFFER"
        device = (way.used["device"], str(way.used["threads"]), way.used["isa"])
        compared.add_row(way.label, *device, f"{way.tok_s:.1f}", way.hash[:8], same)
    out.print(compared)
    told_error = table("against float64", ">max logprob", ">max logit", ">mean logit", ">argmax")
    for kv_dtype, error in errors.items():
        told_error.add_row(
            f"KV {kv_dtype}",
            f"{error.max_logprob:.2e}",
            f"{error.max_logit:.2e}",
            f"{error.mean_logit:.2e}",
            f"{error.equal_argmax}/{error.rows}",
        )
    out.print(told_error)
    say(
        f"{first.tok_s:.1f} tok/s, {model_rate / 1e9:.2f} GB/s of weights: "
        f"{100 * model_rate / read:.0f} % of the {read / 1e9:.1f} GB/s this machine reads"
    )
    say("(a model of this size lives in the caches and its steps are mostly overhead)")
    for name, good in checks.items():
        if not good:
            say(f"FAILED: {name}")
    say("all bits agree, all errors within bounds" if passed else "the demo FAILED")
    return 0 if passed else 1
