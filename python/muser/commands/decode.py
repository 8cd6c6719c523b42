"""`muser decode`: feed ids or a text and generate, with the hash of every logits row."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..sampling import GREEDY, Sampling, logprobs, top
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
from .generate import (
    RowFile,
    Step,
    add_sampling,
    feed_prompt,
    feed_singly,
    generate,
    sampling_of,
    write,
)

if TYPE_CHECKING:
    from ..engine import Engine
    from ..text import TextStream, Tokenizer

STEPS, TEXT_STEPS = 16, 128


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "decode",
        usage="muser decode -m FILE (--tokens IDS | --prompt TEXT) [options]",
        help="feed tokens or text and generate, with the hash of every row",
        description=__doc__,
        epilog="Ids given by --tokens are fed as they are; nothing is added and no id stops the "
        "run. A text gets the file's bos, and generation ends at its end of text or of turn. "
        "Without --temp the largest logit is taken, the lowest id on a tie.",
    )
    add_model(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--tokens", type=token_ids, metavar="IDS", help="ids to feed: 1,2,3")
    source.add_argument("-p", "--prompt", metavar="TEXT", help="text to continue")
    source.add_argument("--prompt-file", metavar="FILE", help="the same from a file; - is stdin")
    parser.add_argument(
        "--special",
        action="store_true",
        help="text that spells a special token becomes that token",
    )
    parser.add_argument(
        "-n",
        "--steps",
        type=integer(0, 1 << 24),
        metavar="N",
        help=f"tokens to generate and feed; default {STEPS}, of a text at most {TEXT_STEPS}",
    )
    parser.add_argument(
        "--logprobs",
        type=integer(1, 1000),
        metavar="K",
        help="tell the K most likely ids of every row, before temperature and limits",
    )
    parser.add_argument(
        "--dump-logits", metavar="FILE", help="write every row: float32[n, vocab] .npy"
    )
    parser.add_argument("--receipt", metavar="FILE", help="write what ran, on what, as JSON")
    parser.add_argument(
        "--full-sha", action="store_true", help="hash the whole file for the receipt"
    )
    add_json(parser)
    add_sampling(parser, GREEDY)
    add_engine(parser)
    parser.set_defaults(run=run)


def read_text(path: str) -> str:
    """A UTF-8 text file, or stdin for `-`. TokenizerError where it is no UTF-8."""
    from ..errors import TokenizerError

    raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(
            f"{path} is not UTF-8: {error.reason} at byte {error.start}",
            {"path": path, "offset": error.start},
        ) from None


class _Teller:
    """Tells each step, for people or for programs, and remembers what the summary needs."""

    def __init__(
        self, arguments: argparse.Namespace, sampling: Sampling, tokenizer: Tokenizer | None
    ) -> None:
        self.json: bool = arguments.json
        self.count: int | None = arguments.logprobs
        self.sampling = sampling
        self.tokenizer = tokenizer
        self.stream: TextStream | None = tokenizer.stream(special=False) if tokenizer else None
        self.text = ""
        self.generated = 0
        self.seconds: list[float] = []
        if not self.json and tokenizer is None:
            say(f"{'position':>8} {'input':>7} {'next':>7} {'logit':>9}  row sha256")

    def generated_step(self, step: Step) -> None:
        """A step whose token was drawn by us."""
        self.generated += 1
        self.step(step, self.stream.push(step.token) if self.stream else "")

    def step(self, step: Step, text: str = "") -> None:
        self.seconds.append(step.seconds)
        self.text += text
        if self.json:
            self._emit(step, text)
        elif self.tokenizer is not None:
            write(text)
        else:
            logit, digest = float(step.row[step.next]), _sha256(step)[:32]
            say(f"{step.position:>8} {step.token:>7} {step.next:>7} {logit:>9.4f}  {digest}...")
        if self.count is not None and not self.json:
            self._say_logprobs(step)

    def _emit(self, step: Step, text: str) -> None:
        told: dict[str, Any] = {
            "position": step.position,
            "input_token": step.token,
            "argmax": int(np.argmax(step.row)),
            "next_token": step.next,
            "row_sha256": _sha256(step),
        }
        if self.tokenizer is not None:
            told["text"] = text
        if self.count is not None:
            told["next_logprob"] = float(logprobs(step.row)[step.next])
            told["logprobs"] = [[token, value] for token, value in top(step.row, self.count)]
        emit("decode.token", told)

    def _say_logprobs(self, step: Step) -> None:
        # Beside text these are no part of it.
        stream = sys.stdout if self.tokenizer is None else sys.stderr
        assert self.count is not None
        for token, value in top(step.row, self.count):
            shown = repr(self.tokenizer.token_bytes(token))[1:] if self.tokenizer else ""
            print(f"{'':>8} {token:>7} {value:>9.4f}  {shown}"[:80].rstrip(), file=stream)

    def end(self) -> None:
        """The last of the text, which may be half a character."""
        if self.stream is None:
            return
        rest = self.stream.finish()
        self.text += rest
        if not self.json:
            write(rest + "\n")


def _sha256(step: Step) -> str:
    from ..receipt import row_sha256

    return row_sha256(step.row)


def run(arguments: argparse.Namespace) -> int:
    from ..engine import load
    from ..receipt import write_json

    sampling = sampling_of(arguments)
    with ExitStack() as stack:
        tokenizer = None
        tokens: list[int] = arguments.tokens
        if arguments.tokens is None:
            from ..text import Tokenizer

            prompt = arguments.prompt
            if prompt is None:
                prompt = read_text(arguments.prompt_file)
            tokenizer = Tokenizer.from_file(arguments.model)
            tokens = tokenizer.encode(prompt, special=arguments.special)
        steps: int | None = arguments.steps
        engine = stack.enter_context(load(arguments.model, config=config_of(arguments)))
        if steps is None:
            steps = STEPS
            if tokenizer is not None:
                steps = max(0, min(TEXT_STEPS, engine.context - len(tokens)))
        engine.check_room(tokens, steps)
        dump = None
        if arguments.dump_logits:
            dump = stack.enter_context(RowFile(arguments.dump_logits, engine.vocab))
        teller = _Teller(arguments, sampling, tokenizer)
        stop = tokenizer.stop_ids if tokenizer else frozenset[int]()
        if tokenizer is not None:
            last = feed_prompt(engine, tokens, sampling.choose, dump.append if dump else None)
            teller.step(last)
        else:
            for last in feed_singly(engine, tokens, sampling.choose):
                if dump is not None:
                    dump.append(last.row)
                teller.step(last)
        first = last
        for last in generate(engine, first, steps, sampling.choose, stop):
            if dump is not None:
                dump.append(last.row)
            teller.generated_step(last)
        teller.end()
        if arguments.receipt:
            write_json(arguments.receipt, engine.receipt(full=arguments.full_sha))
        _summary(engine, teller, len(tokens), stopped=last.next if last.next in stop else None)
    return 0


def _summary(engine: Engine, teller: _Teller, given: int, *, stopped: int | None) -> None:
    """The last object, or the last lines: what ran, and how fast."""
    fed = given + teller.generated
    total = sum(teller.seconds)
    rate = fed / total if total else 0.0
    plan = engine.plan_at(engine.position - 1)
    sampling = teller.sampling
    if teller.json:
        told: dict[str, Any] = {
            "plan": plan.summary(),
            **used(engine),
            "tokens": fed,
            "seconds": total,
            "tok_s": rate,
            "seconds_median": float(np.median(teller.seconds)),
            "sampling": {
                "temperature": sampling.temperature,
                "top_k": sampling.top_k,
                "top_p": sampling.top_p,
                "seed": sampling.seed,
            },
        }
        if teller.tokenizer is not None:
            told |= {
                "prompt_tokens": given,
                "prompt_seconds": teller.seconds[0],
                "generated": teller.generated,
                "text": teller.text,
                "stopped_by": stopped,
            }
        emit("decode.summary", told)
        return
    # A text stands alone on stdout.
    stream = sys.stderr if teller.tokenizer is not None else sys.stdout
    if teller.tokenizer is not None:
        later = sum(teller.seconds[1:])
        speed = f"{teller.generated / later:.2f} tok/s" if later else "nothing generated"
        first = teller.seconds[0]
        print(
            f"prompt: {given} tokens in {first:.3f} s, {given / first:.2f} tok/s; "
            f"generated: {teller.generated}, {speed}",
            file=stream,
        )
        print(f"on {used_text(engine)}", file=stream)
        return
    print(f"{fed} tokens in {total:.3f} s: {rate:.2f} tok/s on {used_text(engine)}", flush=True)
    print(f"schedule {plan.schedule}, {len(plan.closures)} closures, plan {plan.hash[:16]}")
