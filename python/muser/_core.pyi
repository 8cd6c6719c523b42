"""The compiled core: a few calls. Everything here is wrapped by the package; use `muser.load`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONTRACT: int
"""Version of the arithmetic contract (docs/numerics.md)."""

def inspect(path: str) -> dict[str, Any]:
    """Checks a GGUF's header against the model, maps no weights.

    Keys: `file_bytes`, `header_bytes`, `alignment`, `version`, `geometry` (dict: layers, hidden,
    heads, kv_heads, head_dim, ff, vocab, window, context, rope_base, eps, post_eps, logit_scale,
    softcap, is_local (list of bool)), `tensors` (list of dict: name, type, shape (rows, cols) or
    (n,), offset (in the file), bytes), `bytes_per_token`, `warnings` (list of str), `metadata`
    (dict: key -> scalar or str; an array is given as its length under `key[]`).
    Raises GGUFError.
    """

def tokenizer(path: str) -> dict[str, Any]:
    """The file's tokenizer: `model`, `pre`, `tokens` (list of bytes), `token_types` (int32 array),
    `merges` (list of bytes), `chat_template` (str or None), and the scalar `tokenizer.ggml.*` keys
    under `ids` (bos_token_id, eos_token_id, eot_token_id, padding_token_id, add_bos_token, ...)."""

def sample(
    logits: NDArray[np.float32],
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
    position: int,
) -> int:
    """One id by docs/numerics.md §10; `position` is the one that the id will take. The same on
    every machine. Raises ConfigError (a parameter out of range), NonFiniteError."""

def schedules() -> list[dict[str, Any]]:
    """The schedule table in order: `name`, `exact` (bool), `differs` (one sentence),
    `max_queries_per_kv_head` (0: any number)."""

def kernels() -> list[dict[str, Any]]:
    """The kernel catalogue: `name`, `threads` per threadgroup, `per_group` units that one takes,
    `unit`, `args` (struct of metal/kernels/args.h), `buffers` (argument names from index 1)."""

def trace(engine: Engine, tokens: Sequence[int], greedy: bool = False) -> dict[str, Any]:
    """A step (one token) or prompt chunks (several) on the emulator, or with `greedy` a lane of as
    many steps from the first token on, every load and store judged against the declarations:
    `loads`, `stores`, `findings` (list of {kind, kernel, closure, argument, text}), `suppressed`,
    `dispatches` (list of {closure, kernel, arguments: name -> (bytes read, bytes written)}),
    `logits` of the last row. ConfigError on another device."""

def devices() -> list[dict[str, Any]]:
    """Devices of this build: `name`, `usable` (bool), `description`, `isas` (list of str, best
    first; only what this machine can run), `why_not` (str)."""

def memory_estimate(path: str, config: Config) -> dict[str, int]:
    """Bytes an engine would need, before anything is allocated: `weights_mapped`,
    `weights_repacked`, `kv`, `shadow`, `journal`, `activations`, `total` (without the mapped file).
    """

def audit(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Judges a trace (docs/audit-trace.md): `findings` (list of dict: kind, sentence, text, places,
    and where they apply pair, ordering, repair, model, barrier), `barriers` {broad, targeted,
    redundant}, `redundant_together` (list of barrier numbers), `dispatches`, `accesses`, `pairs`,
    `command_buffers`. ConfigError for an unsound trace."""

def mutate(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Judges every mutant of a trace by the checker and by the oracle: `total`, `reported`,
    `missed`, `extra`, `silent_redundant`, `silent_is_redundant`, `kinds`, `together`,
    `together_sound`, `disagreements`. ConfigError for a trace that has findings itself."""

def order_edges(events: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many edges order the dispatches of a trace as its encoders and barriers do: `audit` by
    the auditor's own count, `cuda` as the cuda device builds its graph. ConfigError for an unsound
    trace."""

def barrier_sites() -> dict[str, list[dict[str, str]]]:
    """What the source says of its barriers: `closures` (closure, why) for the one before each
    closure, `sites` (site, resources, hazard, why) for those that name their resources."""

class ReadProbe:
    """Reads memory of its own at the rate this machine gives to `threads` threads (0: as many as
    the cpu device would use), with the widest loads, in huge pages where there are any. `bytes`
    is rounded down to whole MiB. Raises ConfigError, DeviceMemoryError."""

    def __init__(self, bytes: int, threads: int) -> None: ...
    def read_pass(self) -> float:
        """Reads all of it once; bytes per second."""
    @property
    def bytes(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def isa(self) -> str: ...
    @property
    def kernel(self) -> str:
        """The way of reading that was fastest, tried once each at the start."""

class Config:
    """What the engine is told; the package's `muser.Config` fills it. Attributes only."""

    device: str
    schedule: str
    context: int
    kv_dtype: str
    threads: int
    isa: str
    barriers: str
    wait_seconds: float
    allow_inexact: bool
    serial_dispatch: bool
    ffn_gate_up: bool
    untracked: bool
    rollback_max: int
    prefill_rows: int
    gpu: int
    seed: int
    kernel_dir: str
    cache_dir: str
    rope_inverse: NDArray[np.float64]
    faults: dict[str, int]
    def __init__(self) -> None: ...

class Engine:
    """One loaded file on one device. One caller at a time: a second thread gets EngineBusy."""

    def __init__(self, path: str, config: Config) -> None: ...
    def decode_token(
        self, token: int, out: NDArray[np.float32] | None, capture: Sequence[str]
    ) -> tuple[NDArray[np.float32], dict[str, NDArray[np.float32]]]:
        """Feeds one token at `position`; returns its float32[vocab] logits and the captured stages
        (closure label -> float32 values; `blk.3.qkvg` gives `blk.3.qkvg.q`, `.k`, `.v`, `.gate`).
        """
    def prefill(self, tokens: Sequence[int], all_rows: bool) -> NDArray[np.float32]:
        """Feeds tokens; returns the last row, or float32[n, vocab] of every one."""
    def teacher_forced(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Up to 64 known tokens, one command buffer each, no waits between: float32[n, vocab]."""
    def greedy(
        self, token: int, count: int, rows: bool, stop: Sequence[int]
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32] | None]:
        """Feeds `token` and then what each step chooses on the device, `count` steps or up to a
        choice in `stop`: uint32[n] of choices, and with `rows` float32[n, vocab]."""
    def reset(self) -> None: ...
    def close(self) -> None:
        """Waits for a step in flight, then releases everything. Idempotent."""
    def state(self) -> dict[str, Any]:
        """The sequence in position order, the same from every device: `position`, `journal` (undo
        rows of each ring), `element` (bytes), `layers`: a list of (k, v, journal_k, journal_v),
        each bytes of whole rows [rows, kv_heads, head_dim]."""
    def set_state(self, state: dict[str, Any]) -> None:
        """All or nothing: SnapshotError or ContextFullError changes nothing."""
    def rollback(self, tokens: int) -> None: ...
    def kv(self, layer: int, plane: str, first: int, count: int) -> NDArray[Any]:
        """Rows [first, first + count) by absolute position of plane "k" or "v": float16 or float32
        [count, kv_heads, head_dim]; ConfigError where a row is not held."""
    def set_kv(self, layer: int, plane: str, position: int, row: NDArray[Any]) -> None: ...
    def profile(self, token: int, phase: bool, repeat: dict[str, int]) -> dict[str, Any]:
        """decode_token, measured. Keys: `schedule`, `position`, `labels` (closures as encoded),
        `samples` (closures as the device ran them: {closure, start, end} in seconds on the
        device's clock, None where it cannot tell), `dispatches`, `barriers` {broad, targeted},
        `command_buffers`, `device_seconds`, `encode_seconds`, `submit_seconds`, `wait_seconds`,
        `readback_seconds`, `wall_seconds`, `spare_bytes` (of weights that only repetitions read),
        `logits`.

        `phase`: each closure in its own command buffer, waited for; a graph production never runs.
        `repeat`: stage name -> k runs its kernels k times (qkvg, output, ffn_down, lm_head), all
        but the last time on copies of weights (DeviceMemoryError), kept until the engine closes.
        """
    def plan(self, position: int) -> dict[str, Any]:
        """The graph at a position: `schedule`, `closures` (list of label), `dispatches` (list of
        {closure, kernel, groups, threads}), `barriers` {broad, targeted}, `hash` (SHA-256 hex)."""
    def record(self, position: int, tokens: int, chunk: bool, greedy: bool) -> list[dict[str, Any]]:
        """The command stream of one step (or a lane) at a position, not run."""
    @property
    def position(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def device(self) -> dict[str, Any]:
        """`name`, `description`, `isa`, `threads` as used, `weights` (layout -> bytes)."""
