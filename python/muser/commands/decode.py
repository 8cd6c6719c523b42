"""`muser decode`: feed tokens, generate greedily, and tell the hash of every logits row."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .common import (
    Subparsers,
    add_engine,
    add_json,
    add_model,
    config_of,
    emit,
    integer,
    say,
    token_ids,
    used,
    used_text,
)

if TYPE_CHECKING:
    from ..engine import Engine


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "decode",
        usage="muser decode -m FILE --tokens IDS [options]",
        help="feed tokens and generate, with the hash of every row",
        description=__doc__,
        epilog="Ids given by --tokens are fed as they are; nothing is added and no id stops "
        "the run. Generation takes the largest logit, the lowest id on a tie.",
    )
    add_model(parser)
    parser.add_argument(
        "--tokens", type=token_ids, metavar="IDS", required=True, help="ids to feed: 1,2,3"
    )
    parser.add_argument(
        "-n",
        "--steps",
        type=integer(0, 1 << 24),
        default=16,
        metavar="N",
        help="tokens to generate and feed after those; default 16",
    )
    parser.add_argument(
        "--dump-logits", metavar="FILE", help="write every row: float32[n, vocab] .npy"
    )
    parser.add_argument("--receipt", metavar="FILE", help="write what ran, on what, as JSON")
    parser.add_argument(
        "--full-sha", action="store_true", help="hash the whole file for the receipt"
    )
    add_json(parser)
    add_engine(parser)
    parser.set_defaults(run=run)


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

    def append(self, row: NDArray[np.float32]) -> None:
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


def greedy(row: NDArray[np.float32]) -> int:
    """The id of the largest logit, the lowest id on a tie."""
    return int(np.argmax(row))


def steps(
    engine: Engine, tokens: list[int], generate: int
) -> Iterator[tuple[int, int, NDArray[np.float32], float]]:
    """(position, input token, row, seconds) of each token fed: the given ones, then `generate`
    more, each the greedy choice of the row before. The row is reused by the next step."""
    row = np.empty(engine.vocab, np.float32)
    for step in range(len(tokens) + generate):
        token = tokens[step] if step < len(tokens) else greedy(row)
        position = engine.position
        started = time.perf_counter()
        engine.decode_token(token, out=row)
        yield position, token, row, time.perf_counter() - started


def run(arguments: argparse.Namespace) -> int:
    from ..engine import load
    from ..receipt import row_sha256, write_json

    seconds: list[float] = []
    with ExitStack() as stack:
        engine = stack.enter_context(load(arguments.model, config=config_of(arguments)))
        engine.check_room(arguments.tokens, arguments.steps)
        dump = None
        if arguments.dump_logits:
            dump = stack.enter_context(RowFile(arguments.dump_logits, engine.vocab))
        if not arguments.json:
            say(f"{'position':>8} {'input':>7} {'argmax':>7} {'logit':>9}  row sha256")
        for position, token, row, elapsed in steps(engine, arguments.tokens, arguments.steps):
            seconds.append(elapsed)
            if dump is not None:
                dump.append(row)
            best, digest = greedy(row), row_sha256(row)
            if arguments.json:
                told = {"position": position, "input_token": token, "argmax": best}
                emit("decode.token", {**told, "row_sha256": digest})
            else:
                logit = float(row[best])
                say(f"{position:>8} {token:>7} {best:>7} {logit:>9.4f}  {digest[:32]}...")
        if arguments.receipt:
            write_json(arguments.receipt, engine.receipt(full=arguments.full_sha))
        summary(engine, seconds, arguments.json)
    return 0


def summary(engine: Engine, seconds: list[float], as_json: bool) -> None:
    """The last object, or the last lines: what ran, and how fast."""
    total = sum(seconds)
    rate = len(seconds) / total if total else 0.0
    plan = engine.plan_at(engine.position - 1)
    if as_json:
        told: dict[str, Any] = {
            "plan": plan.summary(),
            **used(engine),
            "tokens": len(seconds),
            "seconds": total,
            "tok_s": rate,
            "seconds_median": float(np.median(seconds)),
        }
        emit("decode.summary", told)
        return
    say(f"{len(seconds)} tokens in {total:.3f} s: {rate:.2f} tok/s on {used_text(engine)}")
    say(f"schedule {plan.schedule}, {len(plan.closures)} closures, plan {plan.hash[:16]}")
