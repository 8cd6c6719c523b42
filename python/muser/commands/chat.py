"""`muser chat`: a conversation over the file's chat template, a line of input for each turn."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import RollbackError
from ..sampling import MODEL_CARD, Sampling
from .common import Subparsers, add_engine, add_json, add_model, config_of, emit, integer
from .generate import (
    add_sampling,
    common_prefix,
    feed_prompt,
    generate,
    sampling_of,
    write,
)

if TYPE_CHECKING:
    from ..engine import Engine
    from ..text import ChatTemplate

STRENGTHS = ("low", "medium", "high", "xhigh")


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "chat",
        help="talk with the model, line by line",
        description=__doc__,
        epilog="Ctrl-D ends it; input may be a pipe. The same seed and the same lines give the "
        "same answers on every machine.",
    )
    add_model(parser)
    parser.add_argument("--system", metavar="TEXT", help="the system message")
    parser.add_argument(
        "--strength", choices=STRENGTHS, default="high", help="of the reasoning; default high"
    )
    parser.add_argument("--thinking", action="store_true", help="show what the model thinks")
    parser.add_argument(
        "-n",
        "--steps",
        type=integer(1, 1 << 24),
        metavar="N",
        help="most tokens of one answer; default: what the context has room for",
    )
    add_json(parser)
    add_sampling(parser, MODEL_CARD)
    add_engine(parser)
    parser.set_defaults(run=run)


@dataclass
class Turn:
    """One answer, as it grew."""

    thinking: str = ""
    text: str = ""
    prompt_tokens: int = 0
    fed_prompt_tokens: int = 0
    """Those that the cache did not hold yet."""
    generated: int = 0
    stopped_by: int | None = None
    seconds: float = 0.0


@dataclass
class Conversation:
    """An engine, its template, and what has been said. Tokens that a new prompt shares with the
    sequence in the cache are not fed again."""

    engine: Engine
    template: ChatTemplate
    sampling: Sampling
    variables: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, str]] = field(default_factory=list)
    fed: list[int] = field(default_factory=list)

    def answer(self, text: str, limit: int | None, turn: Turn) -> Iterator[tuple[str, str]]:
        """(recipient, piece) of the answer as it is generated; fills `turn`."""
        from ..text import TurnStream

        tokenizer, engine = self.template.tokenizer, self.engine
        started = time.perf_counter()
        self.messages.append({"role": "user", "content": text})
        prompt = self.template.encode(self.messages, **self.variables)
        new = self._rewind(prompt)
        engine.check_room(new, 1)
        turn.prompt_tokens, turn.fed_prompt_tokens = len(prompt), len(new)
        first = last = feed_prompt(engine, new, self.sampling.choose, None)
        self.fed = list(prompt)
        room = engine.context - engine.position
        stream = TurnStream(tokenizer)
        count = room if limit is None else min(limit, room)
        stop = tokenizer.stop_ids
        for last in generate(engine, first, count, self.sampling.choose, stop):
            self.fed.append(last.token)
            turn.generated += 1
            yield from self._keep(turn, stream.push(last.token))
        yield from self._keep(turn, stream.finish())
        turn.stopped_by = last.next if last.next in stop else None
        turn.seconds = time.perf_counter() - started
        said = {"role": "assistant", "content": turn.text}
        if turn.thinking:
            said["reasoning_content"] = turn.thinking
        self.messages.append(said)

    def _keep(self, turn: Turn, pieces: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        for recipient, piece in pieces:
            if recipient == "self":
                turn.thinking += piece
            else:
                turn.text += piece
            yield recipient, piece

    def _rewind(self, prompt: list[int]) -> list[int]:
        """Takes back what the prompt does not begin with; the ids that are still to be fed."""
        same = min(common_prefix(self.fed, prompt), len(prompt) - 1)
        try:
            self.engine.rollback(len(self.fed) - same)
        except RollbackError:
            # More than the journal holds: from the beginning.
            self.engine.reset()
            same = 0
        self.fed = self.fed[:same]
        return prompt[same:]


def _lines() -> Iterator[str]:
    """Lines of stdin until its end, with a prompt where somebody types them."""
    if sys.stdin.isatty():
        while True:
            try:
                yield input("> ")
            except EOFError:
                write("\n")
                return
    for raw in sys.stdin.buffer:
        yield raw.decode("utf-8", "replace").rstrip("\r\n")


def run(arguments: argparse.Namespace) -> int:
    from ..engine import load
    from ..text import ChatTemplate, Tokenizer

    sampling = sampling_of(arguments)
    template = ChatTemplate(Tokenizer.from_file(arguments.model))
    with load(arguments.model, config=config_of(arguments)) as engine:
        conversation = Conversation(
            engine, template, sampling, {"reasoning_strength": arguments.strength}
        )
        if arguments.system is not None:
            conversation.messages.append({"role": "system", "content": arguments.system})
        for line in _lines():
            if line.strip():
                _turn(conversation, line, arguments)
    return 0


def _turn(conversation: Conversation, line: str, arguments: argparse.Namespace) -> None:
    turn = Turn()
    before: str | None = None
    for recipient, piece in conversation.answer(line, arguments.steps, turn):
        if arguments.json or (recipient == "self" and not arguments.thinking):
            continue
        if arguments.thinking and recipient != before:
            write(f"{'' if before is None else chr(10)}[{recipient}] ")
            before = recipient
        write(piece)
    if not arguments.json:
        write("\n")
        return
    emit(
        "chat.turn",
        {
            "text": turn.text,
            "thinking": turn.thinking,
            "prompt_tokens": turn.prompt_tokens,
            "fed_prompt_tokens": turn.fed_prompt_tokens,
            "generated": turn.generated,
            "stopped_by": turn.stopped_by,
            "seconds": turn.seconds,
        },
    )
