"""`muser doctor`: checks the installation and each device on the built-in file, and prints what
a report should carry. On a Mac, please send the output of `muser doctor --json`: no Apple GPU has
run this program yet.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import sys
from typing import Any

from .. import flags, memory
from ..errors import MuserError
from ..receipt import machine, versions
from .common import Subparsers, add_json, console, emit, say, size, table

TOKENS = 4
OPTIONAL = {
    "tokenizers": "text in and out",
    "jinja2": "chat templates",
    "gguf": "writing fixtures",
    "rich": "tables",
}


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "doctor",
        help="check installation and devices; what to put in a report",
        description=__doc__,
    )
    add_json(parser)
    parser.set_defaults(run=run)


def _cores() -> dict[str, Any]:
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {"cores": os.cpu_count(), "affinity": affinity}


def _packages() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in OPTIONAL:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def try_device(name: str, isa: str) -> dict[str, Any]:
    """A few tokens of the built-in file: `sha256` over the rows, or `error`."""
    import hashlib

    from ..config import Config
    from ..engine import load
    from ..fixtures import fixed_tokens

    tried: dict[str, Any] = {"device": name, "isa": isa}
    try:
        with load("synthetic:tiny", config=Config(device=name, isa=isa, context=64)) as engine:
            digest = hashlib.sha256()
            for token in fixed_tokens(TOKENS, engine.vocab):
                digest.update(engine.decode_token(token).astype("<f4").tobytes())
            about = {name: engine.device[name] for name in ("isa", "description")}
            return {**tried, **about, "sha256": digest.hexdigest()}
    except MuserError as error:
        told = {"kind": type(error).__name__, "message": str(error), "facts": error.facts}
        return {**tried, "error": told}


def examine() -> dict[str, Any]:
    """Everything doctor knows, JSON-serialisable; `problems` is empty when all is well."""
    from .. import _core

    problems: list[str] = []
    devices = _core.devices()
    tried = [
        try_device(device["name"], isa)
        for device in devices
        if device["usable"]
        for isa in (device["isas"] if device["name"] == "cpu" else ["auto"])
    ]
    for attempt in tried:
        if "error" in attempt:
            problems.append(f"{attempt['device']} {attempt['isa']}: {attempt['error']['message']}")
    hashes = {attempt["sha256"] for attempt in tried if "sha256" in attempt}
    if len(hashes) > 1:
        problems.append("devices or instruction sets disagree about the bits of a token")
    if not hashes:
        problems.append("no device decoded the built-in file")
    packages = _packages()
    for name, version in packages.items():
        if version is None:
            problems.append(f"package {name} is missing ({OPTIONAL[name]})")
    return {
        "versions": versions(),
        "contract": _core.CONTRACT,
        "core": _core.__file__,
        "machine": machine(),
        **_cores(),
        "memory_available": memory.available(),
        "flags": flags.active(),
        "packages": packages,
        "devices": devices,
        "tried": tried,
        "problems": problems,
    }


def run(arguments: argparse.Namespace) -> int:
    told = examine()
    code = 1 if told["problems"] else 0
    if arguments.json:
        emit("doctor", told)
        return code
    about = table("installation", "")
    for name, version in told["versions"].items():
        about.add_row(name, version)
    about.add_row("contract", str(told["contract"]))
    about.add_row("core", told["core"])
    for name, value in told["machine"].items():
        about.add_row(name, str(value))
    about.add_row("cores usable", str(told["affinity"] or told["cores"]))
    free = told["memory_available"]
    about.add_row("memory", "unknown" if free is None else f"{size(free)} available")
    for name, version in told["packages"].items():
        about.add_row(name, version or "missing")
    for name, value in told["flags"].items():
        about.add_row(name, value)
    console().print(about)
    checked = table("device", "isa", f"sha256 of {TOKENS} rows, or what went wrong")
    for device in told["devices"]:
        if not device["usable"]:
            checked.add_row(device["name"], "", device["why_not"])
    for attempt in told["tried"]:
        result = attempt.get("sha256", "")[:32] or attempt["error"]["message"]
        checked.add_row(attempt["device"], attempt["isa"], result)
    console().print(checked)
    if sys.platform == "darwin":
        say("No Apple GPU has run this program yet: please send `muser doctor --json`.")
    for problem in told["problems"]:
        say(f"problem: {problem}")
    if not told["problems"]:
        say("no problems found")
    return code
