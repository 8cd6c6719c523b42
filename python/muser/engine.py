"""`load` and `Engine`: one loaded file on one device, one sequence of tokens."""

from __future__ import annotations

import atexit
import operator
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from . import flags, memory, snapshot
from .config import Config, refusal
from .errors import ConfigError, ContextFullError, GGUFError, TokenRangeError
from .receipt import SCHEMA, fingerprint, machine, versions

if TYPE_CHECKING:
    from .profiler import Profile

Row: TypeAlias = NDArray[np.float32]
SYNTHETIC = "synthetic:"

_live: weakref.WeakSet[Engine] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # While the interpreter is whole: waits for a step that a daemon thread may still be running.
    for engine in list(_live):
        engine.close()


@dataclass(frozen=True)
class Plan:
    """The graph of one token: what an engine runs at a position."""

    schedule: str
    closures: tuple[str, ...]
    """Labels in order."""
    dispatches: tuple[Mapping[str, Any], ...]
    """`closure`, `kernel`, `groups`, `threads` of each kernel launch."""
    barriers: Mapping[str, int]
    """Number of `broad` and `targeted` barriers."""
    hash: str
    """SHA-256 (hex)."""

    def summary(self) -> dict[str, Any]:
        """For receipts and JSON output: names and counts."""
        return {
            "schedule": self.schedule,
            "closures": len(self.closures),
            "dispatches": len(self.dispatches),
            "barriers": dict(self.barriers),
            "hash": self.hash,
        }


def resolve(path: str | os.PathLike[str]) -> str:
    """The file's path. `synthetic:tiny` is made by muser.fixtures, in the user's cache folder."""
    name = os.fspath(path)
    if not isinstance(name, str):
        raise refusal("path", path, "a str or os.PathLike[str]")
    if name.startswith(SYNTHETIC):
        from .fixtures import synthetic_path

        return os.fspath(synthetic_path(name))
    return name


def inspect(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A GGUF's header, checked against the model: `geometry`, `tensors`, `bytes_per_token`,
    `metadata`, `warnings`, `file_bytes`, `header_bytes`. Maps no weights. Raises GGUFError.
    """
    return _inspect(resolve(path))


def _inspect(path: str) -> dict[str, Any]:
    from . import _core

    try:
        return _core.inspect(path)
    except GGUFError as error:
        told = str(error)
        message = told if told.startswith(path) else f"{path}: {told}"
        raise GGUFError(message, {"path": path, **error.facts}) from None


def load(
    path: str | os.PathLike[str], device: str | None = None, config: Config | None = None
) -> Engine:
    """Loads a Muse Glimmer GGUF file on a device.

    `device` beats `config.device`; what neither gives comes from the environment flags
    (docs/flags.md). Raises GGUFError for the file, ConfigError for a setting,
    DeviceMemoryError where the estimate exceeds what can be had, DeviceError and ProbeError for
    the device.
    """
    config = Config() if config is None else config
    if not isinstance(config, Config):
        raise refusal("config", config, "a muser.Config")
    if device is not None:
        config = replace(config, device=device)
    return Engine(path, config)


class Engine:
    """One loaded file on one device, made by `muser.load`; a context manager.

    One caller at a time: a second thread gets EngineBusy, at once and without harm. The GIL is
    released while a step runs. Ctrl-C raises KeyboardInterrupt once the step has finished, whose
    token is then part of the sequence (`position` tells); a step that does not finish within
    seconds leaves a dead engine. A dead engine (device error, missed deadline) raises EngineClosed.
    In a child process forked after the load every call raises ForkError.
    """

    def __init__(self, path: str | os.PathLike[str], config: Config) -> None:
        from . import _core

        self.path = resolve(path)
        self.config = config
        self.info: dict[str, Any] = _inspect(self.path)
        """What `muser.inspect` told of the file."""
        core_config = config.to_core(self.info["geometry"])
        self.memory: dict[str, int] = _core.memory_estimate(self.path, core_config)
        """Bytes by purpose, estimated before anything was allocated."""
        if not config.force_memory:
            memory.check(self.memory, memory.available())
        self._flags = flags.active()
        self.context: int = core_config.context
        """Positions that the KV cache holds."""
        self._core = _core.Engine(self.path, core_config)
        self._device = dict(self._core.device)
        self._pid = os.getpid()
        self._model: dict[str, Any] | None = None
        _live.add(self)

    # --- what it is ---------------------------------------------------------------------------

    @property
    def core(self) -> Any:
        """The compiled engine, for muser's own modules."""
        return self._core

    @property
    def vocab(self) -> int:
        """Number of token ids, the length of a logits row."""
        return int(self.info["geometry"]["vocab"])

    @property
    def geometry(self) -> dict[str, Any]:
        """Shape of the model; keys as in `muser.inspect(path)["geometry"]`."""
        return dict(self.info["geometry"])

    @property
    def position(self) -> int:
        """Tokens fed so far, which is the position of the next one."""
        return self._core.position

    @property
    def closed(self) -> bool:
        """True after `close` and after an error that killed the engine."""
        return self._core.closed

    @property
    def device(self) -> dict[str, Any]:
        """`name`, `description`, `isa`, `threads` as used, `weights` (bytes by layout)."""
        return dict(self._device)

    @property
    def plan(self) -> Plan:
        """The graph of the next token."""
        return self.plan_at(self.position)

    def plan_at(self, position: int) -> Plan:
        """The graph of the token at a position, whatever the engine holds."""
        told = self._core.plan(_index("position", position))
        return Plan(
            told["schedule"],
            tuple(told["closures"]),
            tuple(told["dispatches"]),
            dict(told["barriers"]),
            told["hash"],
        )

    # --- steps --------------------------------------------------------------------------------

    @overload
    def decode_token(
        self, token: SupportsIndex, capture: None = None, out: Row | None = None
    ) -> Row: ...
    @overload
    def decode_token(
        self, token: SupportsIndex, capture: Iterable[str], out: Row | None = None
    ) -> tuple[Row, dict[str, Row]]: ...
    def decode_token(
        self,
        token: SupportsIndex,
        capture: Iterable[str] | None = None,
        out: Row | None = None,
    ) -> Row | tuple[Row, dict[str, Row]]:
        """Feeds one token at `position` and returns its logits, float32[vocab].

        The row is a fresh array, or `out` filled: a C-contiguous, writable float32[vocab].
        With `capture`, a list of closure labels such as `blk.3.output`, returns
        (row, {label: float32 values}); a closure with several results gives several entries
        (`blk.3.qkvg.q`, ...). Capturing changes no bit.

        Raises TokenRangeError, ContextFullError, ConfigError (`out`, a label), EngineBusy,
        EngineClosed, DeadlineError, DeviceError, NonFiniteError.
        """
        labels = [] if capture is None else _labels(capture)
        row, stages = self._core.decode_token(self._token(token), self._out(out), labels)
        return row if capture is None else (row, stages)

    def prefill(self, tokens: Iterable[SupportsIndex], all_rows: bool = False) -> Row:
        """Feeds tokens in order; returns the last one's logits, float32[vocab], or those of every
        one, float32[n, vocab]. The bits are those of `decode_token`.

        Raises what `decode_token` raises; a bad token id or too many tokens for the context are
        found before anything runs.
        """
        ids = self._tokens(tokens)
        return self._core.prefill(ids, bool(all_rows))

    def teacher_forced(self, tokens: Iterable[SupportsIndex]) -> Row:
        """Up to 64 known tokens, each its own command buffer, with no wait between them:
        float32[n, vocab]. The bits are those of `decode_token`."""
        return self._core.teacher_forced(self._tokens(tokens))

    @overload
    def greedy(
        self,
        token: SupportsIndex,
        count: SupportsIndex,
        *,
        rows: Literal[False] = False,
        stop: Iterable[SupportsIndex] = (),
    ) -> NDArray[np.uint32]: ...
    @overload
    def greedy(
        self,
        token: SupportsIndex,
        count: SupportsIndex,
        *,
        rows: Literal[True],
        stop: Iterable[SupportsIndex] = (),
    ) -> tuple[NDArray[np.uint32], Row]: ...
    def greedy(
        self,
        token: SupportsIndex,
        count: SupportsIndex,
        *,
        rows: bool = False,
        stop: Iterable[SupportsIndex] = (),
    ) -> NDArray[np.uint32] | tuple[NDArray[np.uint32], Row]:
        """Feeds `token`, then `count - 1` times the id of the largest logit (the lowest on a tie).
        The device chooses and goes on by itself, in lanes of up to 64 steps without a wait.

        Returns the ids chosen, uint32[count]: `ids[i]` after step i. The last one is not fed: it is
        the `token` of a call that goes on. With `rows` returns (ids, float32[count, vocab]). Ids
        and rows are those of `decode_token` and `np.argmax`.

        After a choice in `stop` nothing is kept: the ids end with it, steps that the device took
        beyond it are rolled back. Lanes are then as long as `rollback_max` allows, and the undo
        rows used up are not there for a `rollback` that follows.

        Raises TokenRangeError, ContextFullError (of all `count` steps, before any), ConfigError
        (untracked buffers), EngineBusy, EngineClosed, DeadlineError, DeviceError, NonFiniteError.
        A NonFiniteError takes its lane back where `rollback_max` allows; lanes before it stay, as
        they do after Ctrl-C, and `position` tells how many steps that is.
        """
        first, steps = self._token(token), _index("count", count)
        self._room(steps)
        ids, logits = self._core.greedy(first, steps, bool(rows), [self._token(s) for s in stop])
        return ids if logits is None else (ids, logits)

    def profile(self, token: SupportsIndex, *, phase: bool | None = None) -> Profile:
        """decode_token, measured: closures counted, and timed where the device can tell. `phase`
        defaults to the config's `phase_profile`. See muser.profiler.profile for more switches."""
        from . import profiler

        chosen = self.config.phase_profile if phase is None else phase
        return profiler.profile(self, operator.index(token), phase=chosen)

    def profile_raw(
        self, token: SupportsIndex, *, phase: bool, repeat: Mapping[str, int]
    ) -> dict[str, Any]:
        """What the core measured of one step, unchecked; muser.profiler makes sense of it."""
        return self._core.profile(self._token(token), phase, dict(repeat))

    def check_room(self, tokens: Iterable[SupportsIndex], more: int = 0) -> None:
        """Raises TokenRangeError or ContextFullError where feeding these tokens, and then `more`
        others, could not succeed."""
        self._room(len(self._tokens(tokens)) + _index("more", more))

    def _room(self, count: int) -> None:
        if self.position + count > self.context:
            raise ContextFullError(
                f"{count} tokens at position {self.position} do not fit the context of "
                f"{self.context}; load with a larger one",
                {"position": self.position, "tokens": count, "context": self.context},
            )

    # --- state --------------------------------------------------------------------------------

    def reset(self) -> None:
        """Back to an empty sequence."""
        self._core.reset()

    def snapshot(self) -> bytes:
        """The sequence's whole state, with checksums, contract and model: for any device that has
        the same file, in any process. Cheap next to a step but for the first one, which hashes
        parts of the file (`receipt.fingerprint`)."""
        from . import _core

        state = self._core.state()
        return snapshot.pack(state, self._identity(), _core.CONTRACT, self.config.kv_dtype)

    def restore(self, blob: bytes | bytearray | memoryview) -> None:
        """Takes a snapshot's state. SnapshotError (damaged, or of another contract, model or KV
        type) and ContextFullError leave the old state untouched."""
        from . import _core

        state = snapshot.unpack(blob, self._identity(), _core.CONTRACT, self.config.kv_dtype)
        self._core.set_state(state)

    def _identity(self) -> dict[str, Any]:
        """What a snapshot's model is compared by: the file's shape and its fingerprint."""
        if self._model is None:
            digest = fingerprint(self.path, self.info).digest
            self._model = {**self.info["geometry"], "file": digest}
        return self._model

    def rollback(self, tokens: int) -> None:
        """Takes the last tokens back. RollbackError (the journal holds fewer) changes nothing."""
        self._core.rollback(_index("tokens", tokens))

    def kv(
        self, layer: int, plane: str, first: int | None = None, count: int | None = None
    ) -> NDArray[Any]:
        """Rows of a layer's plane `"k"` or `"v"` by absolute position: float16 or float32
        [count, kv_heads, head_dim]. Defaults to all rows that the layer holds.
        ConfigError where a row is not held."""
        geometry = self.info["geometry"]
        index = _index("layer", layer)
        if index >= geometry["layers"]:
            raise refusal("layer", layer, f"0 to {geometry['layers'] - 1}")
        if plane not in {"k", "v"}:
            raise refusal("plane", plane, "k, v")
        position = self.position
        if first is None:
            held = min(position, geometry["window"]) if geometry["is_local"][index] else position
            first = position - held
        first = _index("first", first)
        if count is None:
            count = max(0, position - first)
        return self._core.kv(index, plane, first, _index("count", count))

    def set_kv(self, layer: int, plane: str, position: int, row: NDArray[Any]) -> None:
        """Overwrites one row of a plane; for tests that plant a difference."""
        self._core.set_kv(_index("layer", layer), plane, _index("position", position), row)

    def record(
        self, position: int, tokens: int = 1, *, chunk: bool = False, greedy: bool = False
    ) -> list[dict[str, Any]]:
        """The command stream of a step at a position, recorded and not run. Several tokens are a
        teacher-forced lane; with `greedy` a greedy one, with `chunk` one prompt chunk."""
        if chunk and greedy:
            raise refusal("greedy", greedy, "False for a prompt chunk")
        at, count = _index("position", position), _index("tokens", tokens)
        return self._core.record(at, count, chunk, greedy)

    # --- records ------------------------------------------------------------------------------

    def receipt(self, *, full: bool = False) -> dict[str, Any]:
        """What this engine is, JSON-serialisable: contract, plan, file fingerprint, device, isa,
        threads, config, flags, versions, machine. `full` hashes every byte of the file.

        Raises GGUFError when the file is no longer the one that was loaded.
        """
        from . import _core

        return {
            "schema": SCHEMA,
            "contract": _core.CONTRACT,
            "plan": self.plan.summary(),
            "file": {
                "path": self.path,
                **fingerprint(self.path, self.info, full=full).as_dict(),
            },
            "geometry": self.geometry,
            "device": self._device,
            "isa": self._device["isa"],
            "threads": self._device["threads"],
            "config": self.config.as_dict(),
            "flags": self._flags,
            "versions": versions(),
            "machine": machine(),
        }

    # --- end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Waits for a step in flight, then releases everything. Idempotent."""
        if os.getpid() != self._pid:
            return  # a forked child owns nothing of this
        self._core.close()
        _live.discard(self)

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<muser.Engine {self.path!r} on {self._device['name']}, {state}>"

    # --- arguments ----------------------------------------------------------------------------

    def _token(self, token: SupportsIndex) -> int:
        value = _index("token", token, negative=True)
        if not 0 <= value < self.vocab:
            raise TokenRangeError(
                f"token id {value} is outside the vocabulary; ids are 0 to {self.vocab - 1}",
                {"value": value, "expected": self.vocab},
            )
        return value

    def _tokens(self, tokens: Iterable[SupportsIndex]) -> Sequence[int]:
        if isinstance(tokens, (str, bytes)):
            raise refusal("tokens", tokens, "token ids")
        ids = [self._token(token) for token in tokens]
        if not ids:
            raise refusal("tokens", ids, "at least one token id")
        return ids

    def _out(self, out: Row | None) -> Row | None:
        if out is None:
            return None
        good = (
            isinstance(out, np.ndarray)
            and out.dtype == np.float32
            and out.dtype.isnative
            and out.shape == (self.vocab,)
            and out.flags.c_contiguous
            and out.flags.writeable
        )
        if not good:
            found = (
                f"{out.dtype}{list(out.shape)}"
                f"{'' if out.flags.c_contiguous else ', not contiguous'}"
                f"{'' if out.flags.writeable else ', read-only'}"
                if isinstance(out, np.ndarray)
                else type(out).__name__
            )
            allowed = f"a C-contiguous, writable float32[{self.vocab}]"
            raise ConfigError(
                f"out is {found}; allowed: {allowed}",
                {"field": "out", "value": found, "allowed": allowed},
            )
        return out


def _index(name: str, value: SupportsIndex, *, negative: bool = False) -> int:
    """A Python int from any integer type; ConfigError for anything else, bool included."""
    allowed = "an integer" if negative else "an integer, 0 or more"
    if isinstance(value, (bool, np.bool_)):
        raise refusal(name, value, allowed)
    try:
        number = operator.index(value)
    except TypeError:
        raise refusal(name, value, allowed) from None
    if number < 0 and not negative:
        raise refusal(name, number, allowed)
    return number


def _labels(capture: Iterable[str]) -> list[str]:
    labels = [capture] if isinstance(capture, str) else list(capture)
    for label in labels:
        if not isinstance(label, str):
            raise refusal("capture", label, "closure labels such as 'blk.3.attention'")
    return labels
