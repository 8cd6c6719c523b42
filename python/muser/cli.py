"""`muser`: the command line. Each command is one module under muser.commands."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from . import errors
from .commands.common import DESCRIPTION, Usage, emit, say

COMMANDS = (
    "demo",
    "decode",
    "chat",
    "perplexity",
    "inspect",
    "profile",
    "reconcile",
    "ladder",
    "diff",
    "audit",
    "kernels",
    "fixture",
    "devices",
    "doctor",
    "flags",
)

OK, MISMATCH, USAGE, FILE, DEVICE, STATE = range(6)
INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 128 + 13  # SIGPIPE, by number: Windows has no name for it

EXIT_CODES = (
    (OK, "all went well"),
    (MISMATCH, "a comparison failed: bits, hashes or an error bound"),
    (USAGE, "a wrong argument, setting, flag or token id, or too small a context"),
    (FILE, "a file: missing, damaged, unsupported, not this model, no room for it"),
    (DEVICE, "the device: an error, too little memory, a missed deadline, the probe"),
    (STATE, "no usable result: a non-finite logit, a damaged snapshot, a dead engine"),
    (INTERRUPTED, "interrupted (Ctrl-C)"),
    (BROKEN_PIPE, "the reader of the output went away"),
)

# The first row that matches decides.
_CODE_OF: tuple[tuple[type[BaseException], int], ...] = (
    (Usage, USAGE),
    (errors.ConfigError, USAGE),
    (errors.TokenRangeError, USAGE),
    (errors.ContextFullError, USAGE),
    (errors.GGUFError, FILE),
    (errors.TokenizerError, FILE),
    (errors.DeviceError, DEVICE),
    (errors.DeviceMemoryError, DEVICE),
    (errors.DeadlineError, DEVICE),
    (errors.ProbeError, DEVICE),
    (OSError, FILE),
    (MemoryError, DEVICE),
    (errors.MuserError, STATE),
)


def exit_code(error: BaseException) -> int:
    """The exit code of an error (docs/cli.md)."""
    if isinstance(error, errors.MuserError) and isinstance(error, ValueError):
        return USAGE  # a wrong argument of any part of the package
    return next(code for kind, code in _CODE_OF if isinstance(error, kind))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Usage(message, self.format_usage())


def parser() -> argparse.ArgumentParser:
    """The whole command line; each command's module adds its own part."""
    codes = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES)
    top = _Parser(
        prog="muser",
        description=DESCRIPTION,
        epilog=f"exit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    for name in COMMANDS:
        importlib.import_module(f"muser.commands.{name}").add(commands)
    return top


def _report(error: BaseException, code: int, as_json: bool) -> None:
    if as_json:
        facts = error.facts if isinstance(error, errors.MuserError) else {}
        kind = type(error).__name__
        emit("error", {"error": kind, "message": str(error), "facts": facts, "exit_code": code})
        return
    if isinstance(error, Usage):
        print(error.usage, end="", file=sys.stderr)
    print(f"muser: {error}", file=sys.stderr)


def _run(argv: Sequence[str]) -> int:
    as_json = "--json" in argv
    try:
        arguments = parser().parse_args(argv)
        if arguments.version:
            from . import __version__

            say(f"muser {__version__}")
            return OK
        if arguments.command is None:
            parser().print_help()
            return USAGE
        code: int = arguments.run(arguments)
    except BrokenPipeError:
        raise
    except (Usage, errors.MuserError, OSError, MemoryError) as error:
        code = exit_code(error)
        _report(error, code, as_json)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line (sys.argv by default) and returns its exit code."""
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("muser: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Nobody reads any more; what is still buffered must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


if __name__ == "__main__":
    sys.exit(main())
