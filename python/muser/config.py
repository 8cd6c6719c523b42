"""What an engine is told: `Config`, validated field by field."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from . import flags
from .defaults import AUTO, default_device, default_schedule
from .errors import ConfigError
from .flags import BARRIERS, DEVICES, KV_DTYPES

if TYPE_CHECKING:
    from . import _core

DEFAULT_CONTEXT = 4096
MAX_THREADS = 1024
MAX_ROLLBACK = 1 << 16

_T = TypeVar("_T")


def _flag(name: str, kind: type[_T]) -> _T:
    """A field whose default comes from its environment flag (muser.flags)."""
    return cast(_T, field(default_factory=partial(flags.value, name)))


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of one engine. A field that is not given takes its environment flag's value
    (docs/flags.md), else its default. Invalid values raise ConfigError with the facts `field`,
    `value` and `allowed`.
    """

    device: str = _flag("device", str)
    """`auto`, `metal`, `cpu`, `cuda` or `emulator`."""
    schedule: str = _flag("schedule", str)
    """Row of the schedule table (docs/graph.md); `auto`: the fastest exact one on the device."""
    context: int | None = None
    """Positions the KV cache holds; None: 4096, or the file's if that is less."""
    kv_dtype: str = _flag("kv_dtype", str)
    """`f16` or `f32`."""
    threads: int = _flag("threads", int)
    """Worker threads; 0: the share that affinity and cgroup give this process."""
    isa: str = _flag("isa", str)
    """Instruction set of the `cpu` device; `auto`: the best this machine has."""
    barriers: str = _flag("barriers", str)
    """`hand`, `planned` or `all`."""
    wait_seconds: float = _flag("wait_seconds", float)
    """Seconds a step may take before DeadlineError."""
    serial_dispatch: bool = _flag("serial_dispatch", bool)
    """A serial encoder, without barriers."""
    phase_profile: bool = _flag("phase_profile", bool)
    """Profiles submit and wait for each closure by itself."""
    ffn_gate_up: bool = _flag("ffn_gate_up", bool)
    """Gate, up and SiLU in one kernel."""
    untracked: bool = _flag("untracked", bool)
    """Buffers without the driver's hazard tracking; needs `barriers="planned"`."""
    allow_inexact: bool = False
    """Permits schedules that the table calls inexact."""
    force_memory: bool = False
    """Loads even where the memory estimate says that it cannot fit."""
    rollback_max: int = 64
    """Rows of each ring that a rollback can bring back."""
    prefill_rows: int = 128
    """Tokens of one prompt chunk, at most the window; no result depends on it."""
    gpu: int = 0
    """Index of the GPU for `cuda` and `metal`."""
    seed: int = 0
    """Seed of the emulator's scheduler; no result may depend on it."""
    cache_dir: str = ""
    """Folder for compiled kernels; empty: the user's cache folder."""
    faults: Mapping[str, int] = field(default_factory=dict)
    """Seeded defects by name, for tests of the gates; refused by builds without them."""

    def __post_init__(self) -> None:
        self._one_of("device", DEVICES)
        self._one_of("kv_dtype", KV_DTYPES)
        self._one_of("barriers", BARRIERS)
        for name in ("schedule", "isa"):
            self._check(name, isinstance(getattr(self, name), str), "a name")
            self._check(name, getattr(self, name) != "", "a name, not empty")
        self._check("cache_dir", isinstance(self.cache_dir, str), "a folder's path")
        for name in (
            "serial_dispatch",
            "phase_profile",
            "ffn_gate_up",
            "untracked",
            "allow_inexact",
        ):
            self._check(name, isinstance(getattr(self, name), bool), "True or False")
        self._check("force_memory", isinstance(self.force_memory, bool), "True or False")
        if self.context is not None:
            self._integer("context", 1, 1 << 24)
        self._integer("threads", 0, MAX_THREADS)
        self._integer("rollback_max", 0, MAX_ROLLBACK)
        self._integer("prefill_rows", 1, 4096)
        self._integer("gpu", 0, 1023)
        self._integer("seed", 0, (1 << 64) - 1)
        seconds = self.wait_seconds
        self._check(
            "wait_seconds",
            isinstance(seconds, numbers.Real)
            and not isinstance(seconds, bool)
            and math.isfinite(seconds)
            and seconds > 0,
            "seconds above 0",
        )
        object.__setattr__(self, "wait_seconds", float(seconds))
        self._check(
            "faults",
            isinstance(self.faults, Mapping)
            and all(type(k) is str and type(v) is int for k, v in self.faults.items()),
            "a mapping of names to integers",
        )
        object.__setattr__(self, "faults", dict(self.faults))

    def _check(self, name: str, good: bool, allowed: str) -> None:
        if not good:
            raise refusal(name, getattr(self, name), allowed)

    def _one_of(self, name: str, allowed: tuple[str, ...]) -> None:
        self._check(name, getattr(self, name) in allowed, ", ".join(allowed))

    def _integer(self, name: str, low: int, high: int) -> None:
        found = getattr(self, name)
        good = isinstance(found, numbers.Integral) and not isinstance(found, bool)
        self._check(name, good and low <= found <= high, f"an integer from {low} to {high}")
        object.__setattr__(self, name, int(found))

    def as_dict(self) -> dict[str, Any]:
        """All fields, JSON-serialisable. For receipts."""
        return asdict(self)

    def to_core(self, geometry: Mapping[str, Any]) -> _core.Config:
        """The core's settings for a file's `geometry` (of muser.inspect). Raises ConfigError."""
        from . import _core
        from .rope import inverse_frequencies

        limit = int(geometry["context"])
        if self.context is not None and self.context > limit:
            raise refusal("context", self.context, f"at most {limit}, the file's own context")
        if self.schedule != AUTO:
            check_schedule(self.schedule, self.allow_inexact)
        core = _core.Config()
        core.device = default_device() if self.device == AUTO else self.device
        core.isa = "" if self.isa == "auto" else self.isa
        core.context = min(DEFAULT_CONTEXT, limit) if self.context is None else self.context
        core.kernel_dir = str(Path(__file__).with_name("kernels"))
        core.cache_dir = self.cache_dir or str(flags.cache_directory())
        core.rope_inverse = inverse_frequencies(geometry["rope_base"], geometry["head_dim"])
        core.faults = dict(self.faults)
        for name in _SAME_IN_CORE:
            setattr(core, name, getattr(self, name))
        if self.schedule == AUTO:
            core.schedule = default_schedule(core.device, geometry)
        return core


_SAME_IN_CORE = (
    "schedule",
    "kv_dtype",
    "threads",
    "barriers",
    "wait_seconds",
    "allow_inexact",
    "serial_dispatch",
    "ffn_gate_up",
    "untracked",
    "rollback_max",
    "prefill_rows",
    "gpu",
    "seed",
)


def refusal(name: str, value: object, allowed: str) -> ConfigError:
    """A ConfigError about one field: what was given and what is allowed."""
    shown = value if isinstance(value, (bool, int, float, str)) else repr(value)
    return ConfigError(
        f"{name} is {value!r}; allowed: {allowed}",
        {"field": name, "value": shown, "allowed": allowed},
    )


def check_schedule(name: str, allow_inexact: bool) -> None:
    """Raises ConfigError for a schedule that is not in the table, or inexact and not allowed."""
    from . import _core

    table = {row["name"]: bool(row["exact"]) for row in _core.schedules()}
    if name not in table:
        raise refusal("schedule", name, ", ".join([AUTO, *table]))
    if not (table[name] or allow_inexact):
        exact = ", ".join(row for row, is_exact in table.items() if is_exact)
        raise ConfigError(
            f"schedule {name!r} is inexact: its logits are not the contract's. Set "
            f"allow_inexact=True to run it all the same; exact ones are {exact}",
            {"field": "schedule", "value": name, "allowed": exact},
        )
