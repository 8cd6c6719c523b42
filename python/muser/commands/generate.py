"""What the commands that generate share: sampling arguments, the loop, rows told and kept."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..sampling import Sampling
from .common import integer

if TYPE_CHECKING:
    from ..engine import Engine

PROMPT_CHUNK = 128  # rows that are held at once where every row is wanted

Row = NDArray[np.float32]


def add_sampling(parser: argparse.ArgumentParser, default: Sampling) -> None:
    """--temp, --top-k, --top-p, --seed. The defaults are those of `default`."""
    group = parser.add_argument_group(
        "sampling", "The model card recommends --temp 1.0 --top-k 64 --top-p 0.95."
    )
    for name, kind, value, letter, text in (
        ("temp", float, default.temperature, "T", "0 takes the largest logit"),
        ("top-k", integer(0, (1 << 32) - 1), default.top_k, "K", "candidates; 0: all"),
        ("top-p", float, default.top_p, "P", "probability that the candidates reach"),
        ("seed", integer(0, (1 << 64) - 1), default.seed, "S", "the same seed, the same ids"),
    ):
        group.add_argument(
            f"--{name}", type=kind, default=value, metavar=letter, help=f"{text}; default {value}"
        )


def sampling_of(arguments: argparse.Namespace) -> Sampling:
    """The parsed sampling arguments; ConfigError for one out of range."""
    return Sampling(arguments.temp, arguments.top_k, arguments.top_p, arguments.seed)


@dataclass(frozen=True)
class Step:
    """One token fed: the row that followed, and the id drawn from it for the next position."""

    position: int
    token: int
    row: Row
    """Reused by the next step."""
    next: int
    seconds: float


Choose = Callable[[Row, int], int]


def feed_singly(engine: Engine, tokens: Sequence[int], choose: Choose) -> Iterator[Step]:
    """Feeds known tokens one by one."""
    row = np.empty(engine.vocab, np.float32)
    for token in tokens:
        position = engine.position
        started = time.perf_counter()
        engine.decode_token(token, out=row)
        seconds = time.perf_counter() - started
        yield Step(position, token, row, choose(row, position + 1), seconds)


def feed_prompt(
    engine: Engine, tokens: Sequence[int], choose: Choose, keep: Callable[[Row], None] | None
) -> Step:
    """Feeds a prompt as the engine does best; the step of its last token. `keep` is given every
    row."""
    started = time.perf_counter()
    if keep is None:
        row = engine.prefill(tokens)
    else:
        for at in range(0, len(tokens), PROMPT_CHUNK):
            rows = engine.prefill(tokens[at : at + PROMPT_CHUNK], all_rows=True)
            for row in rows:
                keep(row)
    seconds = time.perf_counter() - started
    position = engine.position
    return Step(position - 1, tokens[-1], row, choose(row, position), seconds)


def generate(
    engine: Engine, last: Step, count: int, choose: Choose, stop: Collection[int] = ()
) -> Iterator[Step]:
    """Feeds what the last step drew, and what that draws, `count` times; an id in `stop` ends it
    and is not fed."""
    token = last.next
    row = np.empty(engine.vocab, np.float32)
    for _ in range(count):
        if token in stop:
            return
        position = engine.position
        started = time.perf_counter()
        engine.decode_token(token, out=row)
        seconds = time.perf_counter() - started
        step = Step(position, token, row, choose(row, position + 1), seconds)
        yield step
        token = step.next


def write(text: str) -> None:
    """Text for people without a newline, now, in whatever encoding the output has."""
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


class RowFile:
    """A .npy file that grows row by row and appears, whole, under its name at the end.

    An interrupted run leaves the rows that it had.
    """

    def __init__(self, path: str, vocab: int) -> None:
        self.target = Path(path)
        self.partial = self.target.with_name(f".{self.target.name}.part")
        self.vocab = vocab
        self.rows = 0
        self.file: BinaryIO = self.partial.open("w+b")
        self._header()

    def _header(self) -> None:
        # Padded to one size, so that the number of rows can be set when it is known.
        shape = f"({self.rows}, {self.vocab})"
        text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
        self.file.seek(0)
        self.file.write(b"\x93NUMPY\x01\x00\x76\x00" + text.ljust(117).encode() + b"\n")
        self.file.seek(0, 2)

    def append(self, row: Row) -> None:
        self.file.write(np.ascontiguousarray(row, "<f4").tobytes())
        self.rows += 1

    def __enter__(self) -> RowFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self.file:
            self._header()
        if self.rows:
            self.partial.replace(self.target)
        else:
            self.partial.unlink()


def common_prefix(first: Iterable[int], second: Iterable[int]) -> int:
    """How many ids two sequences begin with alike."""
    count = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        count += 1
    return count
