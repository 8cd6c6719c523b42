"""Environment flags: one table, from which docs/flags.md is generated.

This is the only file that reads the environment. A flag is the default of one field of
`muser.Config`; a value given to `Config` beats the environment. An unknown `MUSER_...` variable is
an error, since a misspelt flag would otherwise silently do nothing.

    muser flags --markdown       prints docs/flags.md
"""

from __future__ import annotations

import difflib
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from .errors import ConfigError

Value: TypeAlias = "bool | int | float | str"

DEVICES = ("auto", "metal", "cpu", "cuda", "emulator")
KV_DTYPES = ("f16", "f32")
BARRIERS = ("hand", "planned", "all")


def _switch(text: str) -> bool:
    if text in {"1", "true", "yes", "on"}:
        return True
    if text in {"0", "false", "no", "off"}:
        return False
    raise ValueError


def _seconds(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError
    return value


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError
    return int(text)


def _choice(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError
        return text

    return parse


@dataclass(frozen=True)
class Flag:
    """One row: what the variable is called, what it means and whether it may change bits."""

    name: str
    field: str
    default: Value
    parse: Callable[[str], Value]
    allowed: str
    effect: str
    exactness: str


EXACT = "bits never change"

FLAGS: tuple[Flag, ...] = (
    Flag(
        "MUSER_DEVICE",
        "device",
        "auto",
        _choice(*DEVICES),
        " \\| ".join(f"`{name}`" for name in DEVICES),
        "What runs the kernels. `auto`: `metal` where the build has it, else `cpu`.",
        EXACT,
    ),
    Flag(
        "MUSER_SCHEDULE",
        "schedule",
        "auto",
        str,
        "`auto` or a name of the schedule table (docs/graph.md)",
        "Which closures a token is made of, in which order, with which kernels. `auto`: the "
        "fastest exact ones on the device (docs/ladder.md).",
        "exact schedules: bits never change; inexact ones need `allow_inexact=True`",
    ),
    Flag(
        "MUSER_SERIAL_DISPATCH",
        "serial_dispatch",
        False,
        _switch,
        "`1` \\| `0`",
        "A serial encoder: the device runs one dispatch after the other, without barriers.",
        EXACT,
    ),
    Flag(
        "MUSER_METAL_PHASE_PROFILE",
        "phase_profile",
        False,
        _switch,
        "`1` \\| `0`",
        "`muser profile` submits each closure as its own command buffer and waits for it: it "
        "measures a graph that production never runs, and says so.",
        EXACT,
    ),
    Flag(
        "MUSER_FERRITE_FFN_GATE_UP",
        "ffn_gate_up",
        False,
        _switch,
        "`1` \\| `0`",
        "Gate product, up product and SiLU in one kernel.",
        EXACT,
    ),
    Flag(
        "MUSER_BARRIERS",
        "barriers",
        "hand",
        _choice(*BARRIERS),
        " \\| ".join(f"`{name}`" for name in BARRIERS),
        "Where barriers stand: placed by hand, planned from the declared accesses, or after "
        "every dispatch.",
        EXACT,
    ),
    Flag(
        "MUSER_UNTRACKED",
        "untracked",
        False,
        _switch,
        "`1` \\| `0`",
        "Buffers without the driver's hazard tracking; ordering then rests on the barriers alone, "
        "which must be `planned`.",
        EXACT,
    ),
    Flag(
        "MUSER_THREADS",
        "threads",
        0,
        _count,
        "0 ... 1024",
        "Worker threads of the `cpu` and `emulator` devices. 0: the share that affinity and "
        "cgroup give this process.",
        EXACT,
    ),
    Flag(
        "MUSER_CPU_ISA",
        "isa",
        "auto",
        str,
        "`auto` or a name that `muser devices` lists",
        "Instruction set of the `cpu` device. One that this machine lacks is an error.",
        EXACT,
    ),
    Flag(
        "MUSER_WAIT_SECONDS",
        "wait_seconds",
        300.0,
        _seconds,
        "seconds above 0",
        "How long a step may take before `DeadlineError`; the engine is dead afterwards.",
        EXACT,
    ),
    Flag(
        "MUSER_KV_DTYPE",
        "kv_dtype",
        "f16",
        _choice(*KV_DTYPES),
        " \\| ".join(f"`{name}`" for name in KV_DTYPES),
        "Type of the KV cache. `f32` takes twice the memory and is for parity work.",
        "changes bits: each type has its own, equal on every device",
    ),
)

_BY_FIELD = {flag.field: flag for flag in FLAGS}


def _check_names(environ: Mapping[str, str]) -> None:
    known = [flag.name for flag in FLAGS]
    for name in environ:
        if name.startswith("MUSER_") and name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.75)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
            raise ConfigError(f"unknown environment flag {name}{hint}", {"flag": name})


def value(field: str, environ: Mapping[str, str] | None = None) -> Value:
    """The value of a Config field that was not given: from its flag, else the default.

    An empty variable counts as unset. Raises ConfigError naming flag, value and what is allowed.
    """
    environ = os.environ if environ is None else environ
    _check_names(environ)
    flag = _BY_FIELD[field]
    text = environ.get(flag.name, "")
    if text == "":
        return flag.default
    try:
        return flag.parse(text)
    except ValueError:
        allowed = flag.allowed.replace("\\", "").replace("`", "")
        raise ConfigError(
            f"environment flag {flag.name} is {text!r}; allowed: {allowed}",
            {"flag": flag.name, "field": field, "value": text, "allowed": allowed},
        ) from None


def active(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The flags that are set, as written, in the table's order. For receipts."""
    environ = os.environ if environ is None else environ
    return {flag.name: environ[flag.name] for flag in FLAGS if environ.get(flag.name, "")}


def cache_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Where compiled kernels and generated fixtures may be kept: the user's cache folder."""
    environ = os.environ if environ is None else environ
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "muser"
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG rule: a relative path is invalid and is ignored.
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "muser"


def markdown() -> str:
    """docs/flags.md."""
    lines = [
        "# Environment flags",
        "",
        "<!-- Generated by `muser flags --markdown`; a test compares. -->",
        "",
        "A flag is the default of one field of `muser.Config`. What is given to `Config`, to",
        "`muser.load` or on the command line beats it. An empty variable counts as unset, an",
        "unknown `MUSER_` variable is an error, and every receipt lists the flags that were set.",
        "Nothing below Python reads the environment.",
        "",
        "| flag | field | default | allowed | effect | exactness |",
        "|---|---|---|---|---|---|",
    ]
    for flag in FLAGS:
        default = int(flag.default) if isinstance(flag.default, bool) else flag.default
        lines.append(
            f"| `{flag.name}` | `{flag.field}` | `{default}` | {flag.allowed} | {flag.effect} "
            f"| {flag.exactness} |"
        )
    return "\n".join(lines) + "\n"
