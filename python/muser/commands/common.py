"""What commands share: output for people and for programs, model and engine arguments."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import flags
from ..config import MAX_THREADS, Config

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from ..engine import Engine

# argparse's own type is generic in a private name.
Subparsers: TypeAlias = "argparse._SubParsersAction[Any]"

DESCRIPTION = "Decode Muse Glimmer 30B from its GGUF file with reproducible bits."
PLAIN_WIDTH = 80


class Usage(Exception):  # noqa: N818 (what argparse found wrong, with the usage line)
    """A command line that does not parse."""

    def __init__(self, message: str, usage: str = "") -> None:
        super().__init__(message)
        self.usage = usage


# --- output -----------------------------------------------------------------------------------


def emit(schema: str, value: Mapping[str, Any]) -> None:
    """One JSON object on one line of stdout, with `schema` first."""
    line = json.dumps({"schema": f"muser.{schema}/1", **value}, allow_nan=False)
    print(line, flush=True)


def say(text: str = "") -> None:
    """One line for people, now."""
    print(text, flush=True)


def console(*, stderr: bool = False) -> Console:
    """For tables and progress: the terminal's width, 80 columns where there is no terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PLAIN_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, soft_wrap=False, markup=False)


def table(*columns: str, title: str | None = None) -> Table:
    """An empty table; a column whose name begins with `>` is right-aligned."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        made.add_column(column.lstrip(">"), justify="right" if right else "left", overflow="fold")
    return made


def progress() -> Progress:
    """Progress bars on stderr, silent where that is no terminal."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    target = console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=target,
        disable=not target.is_terminal,
        transient=True,
    )


def size(count: int) -> str:
    """Bytes for people: 16.0 GiB."""
    if count < 1024:
        return f"{count} B"
    value = count / 1024
    units = ["KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.1f} {units[0]}"


# --- arguments --------------------------------------------------------------------------------


def integer(low: int, high: int) -> Any:
    """An argparse type: an integer in a range."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is not within {low} to {high}")
        return value

    return parse


def token_ids(text: str) -> list[int]:
    """An argparse type: comma-separated token ids."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of ids such as 1,2,3") from None


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-m",
        "--model",
        metavar="FILE",
        required=True,
        help="the GGUF file; synthetic:tiny is the built-in one",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="JSON objects, one a line")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """The settings of muser.Config. One that is not given stays with its environment flag."""
    group = parser.add_argument_group(
        "engine", "One that is not given takes its environment flag's value, then the default."
    )
    group.add_argument("--device", choices=flags.DEVICES, help="default: auto")
    group.add_argument(
        "--schedule",
        metavar="NAME",
        help="row of the schedule table; default: auto, the fastest exact one on the device",
    )
    group.add_argument(
        "-t",
        "--threads",
        type=integer(0, MAX_THREADS),
        metavar="N",
        help="default: 0, what affinity and cgroup give",
    )
    group.add_argument(
        "--isa", metavar="NAME", help="instruction set of the cpu device; default: auto"
    )
    group.add_argument("--kv-dtype", choices=flags.KV_DTYPES, help="of the KV cache; default: f16")
    group.add_argument(
        "-c",
        "--context",
        type=integer(1, 1 << 24),
        metavar="N",
        help="positions to hold; default: 4096, or the file's if that is less",
    )
    group.add_argument("--barriers", choices=flags.BARRIERS, help="default: hand")
    group.add_argument(
        "--wait-seconds", type=float, metavar="S", help="deadline of a step; default: 300"
    )
    group.add_argument(
        "--gpu", type=integer(0, 1023), metavar="N", help="index of the GPU; default: 0"
    )
    for name, text in (
        ("serial-dispatch", "a serial encoder, without barriers"),
        ("ffn-gate-up", "gate, up and SiLU in one kernel"),
        ("untracked", "buffers without hazard tracking"),
        ("allow-inexact", "permit schedules that are not exact"),
        ("force-memory", "load even where the estimate says it cannot fit"),
    ):
        group.add_argument(
            f"--{name}", action=argparse.BooleanOptionalAction, default=None, help=text
        )


_CONFIG_FIELDS = (
    "device",
    "schedule",
    "threads",
    "isa",
    "kv_dtype",
    "context",
    "barriers",
    "wait_seconds",
    "gpu",
    "serial_dispatch",
    "ffn_gate_up",
    "untracked",
    "allow_inexact",
    "force_memory",
)


def config_of(arguments: argparse.Namespace, **more: Any) -> Config:
    """The Config of parsed engine arguments; `more` beats them."""
    given = {name: getattr(arguments, name) for name in _CONFIG_FIELDS}
    return Config(**{name: value for name, value in given.items() if value is not None} | more)


def used(engine: Engine) -> dict[str, Any]:
    """What an engine really runs on, for JSON output."""
    device = engine.device
    return {
        "device": device["name"],
        "description": device["description"],
        "isa": device["isa"],
        "threads": device["threads"],
    }


def used_text(engine: Engine) -> str:
    """The same for people: `cpu (avx512vnni, 2 threads)`."""
    device = engine.device
    threads = device["threads"]
    detail = [device["isa"]] if device["isa"] else []
    detail += [f"{threads} thread{'s' if threads != 1 else ''}"] if threads else []
    return f"{device['name']} ({', '.join(detail)})" if detail else str(device["name"])
