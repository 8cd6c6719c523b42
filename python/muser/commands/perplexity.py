"""`muser perplexity`: how well the model predicts a text file."""

from __future__ import annotations

import argparse
import time

from ..perplexity import perplexity
from .common import (
    Subparsers,
    add_engine,
    add_json,
    add_model,
    config_of,
    console,
    emit,
    integer,
    say,
    used,
    used_text,
)
from .decode import read_text


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "perplexity",
        help="how well the model predicts a text",
        description=__doc__,
        epilog="The text is cut into windows, each begun with the file's bos and predicted from "
        "its own beginning. Special tokens spelled in the text are text.",
    )
    parser.add_argument("file", metavar="TEXT", help="a UTF-8 text file; - is stdin")
    add_model(parser)
    parser.add_argument(
        "--window",
        type=integer(2, 1 << 24),
        metavar="N",
        help="positions of one window; default: the context",
    )
    add_json(parser)
    add_engine(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from ..engine import load
    from ..text import Tokenizer

    text = read_text(arguments.file)
    tokenizer = Tokenizer.from_file(arguments.model)
    ids = tokenizer.encode(text, bos=False)
    terminal = console(stderr=True)
    with load(arguments.model, config=config_of(arguments)) as engine:

        def told(done: int) -> None:
            if terminal.is_terminal:
                terminal.print(f"{done:,} of about {len(ids):,} tokens", end="\r")

        started = time.perf_counter()
        found = perplexity(
            engine,
            ids,
            bos=tokenizer.bos if tokenizer.add_bos else None,
            window=arguments.window,
            told=told,
        )
        seconds = time.perf_counter() - started
        rate = found.tokens / seconds
        if arguments.json:
            emit(
                "perplexity",
                {
                    "nll": found.nll,
                    "perplexity": found.perplexity,
                    "tokens": found.tokens,
                    "windows": found.windows,
                    "window": arguments.window or engine.context,
                    **used(engine),
                    "seconds": seconds,
                    "tok_s": rate,
                },
            )
            return 0
        say(f"perplexity {found.perplexity:.4f}, mean negative log-likelihood {found.nll:.6f} nats")
        say(f"{found.tokens} tokens in {found.windows} windows, {seconds:.1f} s: {rate:.1f} tok/s")
        say(f"on {used_text(engine)}")
    return 0
