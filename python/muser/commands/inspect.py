"""`muser inspect`: a file's geometry, tensor census, bytes per token and warnings."""

from __future__ import annotations

import argparse
from typing import Any

from .common import Subparsers, add_json, add_model, console, emit, say, size, table


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "inspect",
        help="geometry, tensor census and bytes per token of a file",
        description=__doc__,
    )
    add_model(parser)
    parser.add_argument("--tensors", action="store_true", help="list every tensor")
    parser.add_argument("--metadata", action="store_true", help="list the metadata")
    parser.add_argument(
        "--fingerprint",
        action="store_true",
        help="SHA-256 of the header and of each tensor's first and last MiB",
    )
    parser.add_argument("--full-sha", action="store_true", help="SHA-256 of the whole file, too")
    add_json(parser)
    parser.set_defaults(run=run)


def census(info: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Tensors and bytes by type, in the order of their share."""
    found: dict[str, dict[str, int]] = {}
    for tensor in info["tensors"]:
        entry = found.setdefault(tensor["type"], {"tensors": 0, "bytes": 0})
        entry["tensors"] += 1
        entry["bytes"] += tensor["bytes"]
    return dict(sorted(found.items(), key=lambda item: -item[1]["bytes"]))


def layer_text(is_local: list[bool]) -> str:
    """`52 (39 local, 13 global: every 4th)`, or the letters where no such rule holds."""
    local = sum(is_local)
    text = f"{len(is_local)} ({local} local, {len(is_local) - local} global"
    globals_at = [layer for layer, local in enumerate(is_local) if not local]
    if globals_at and all((layer % 4 == 3) != local for layer, local in enumerate(is_local)):
        return f"{text}: every 4th)"
    letters = "".join("L" if local else "G" for local in is_local)
    return f"{text}: {letters})" if len(letters) <= 32 else f"{text})"


def geometry_rows(geometry: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and value of what people want to see of a model's shape."""
    return [
        ("layers", layer_text(geometry["is_local"])),
        ("hidden", f"{geometry['hidden']:,}"),
        (
            "attention",
            f"{geometry['heads']} query heads on {geometry['kv_heads']} KV heads of "
            f"{geometry['head_dim']}",
        ),
        ("feed-forward", f"{geometry['ff']:,}"),
        ("vocabulary", f"{geometry['vocab']:,}"),
        ("window", f"{geometry['window']:,} positions, itself included"),
        ("context", f"{geometry['context']:,} positions"),
        ("RoPE base", f"{geometry['rope_base']:,.0f} (local layers)"),
        ("RMS eps", f"{geometry['eps']:g}; post-norms {geometry['post_eps']:g}"),
        ("head", f"x {geometry['logit_scale']:.8g}, cap {geometry['softcap']:g}"),
    ]


def run(arguments: argparse.Namespace) -> int:
    from ..engine import inspect, resolve
    from ..receipt import fingerprint

    path = resolve(arguments.model)
    info = inspect(path)
    print_of = None
    if arguments.fingerprint or arguments.full_sha:
        print_of = fingerprint(path, info, full=arguments.full_sha)
    if arguments.json:
        told: dict[str, Any] = {"path": path, **info, "census": census(info)}
        if print_of is not None:
            told["fingerprint"] = {**print_of.as_dict(), "tensor_sha256": dict(print_of.tensors)}
        emit("inspect", told)
        return 0
    out = console()
    say(path)
    shape = table("geometry", "")
    for name, value in geometry_rows(info["geometry"]):
        shape.add_row(name, value)
    out.print(shape)
    counted = table("type", ">tensors", ">bytes", ">share")
    total = sum(entry["bytes"] for entry in census(info).values())
    for kind, entry in census(info).items():
        share = f"{100 * entry['bytes'] / total:.1f} %"
        counted.add_row(kind, str(entry["tensors"]), f"{entry['bytes']:,}", share)
    counted.add_row("all", str(len(info["tensors"])), f"{total:,}", "")
    out.print(counted)
    say(f"file            {info['file_bytes']:,} bytes, header {info['header_bytes']:,}")
    per_token = info["bytes_per_token"]
    say(f"read per token  {per_token:,} bytes ({size(per_token)})")
    if arguments.tensors:
        listed = table("tensor", "type", ">shape", ">bytes", ">offset")
        for tensor in info["tensors"]:
            shape_text = " x ".join(str(n) for n in tensor["shape"])
            row = (tensor["name"], tensor["type"], shape_text)
            listed.add_row(*row, str(tensor["bytes"]), str(tensor["offset"]))
        out.print(listed)
    if arguments.metadata:
        keys = table("key", "value")
        for key, value in info["metadata"].items():
            text = str(value)
            keys.add_row(key, text if len(text) <= 200 else f"{text[:200]}... ({len(text)} chars)")
        out.print(keys)
    if print_of is not None:
        say(f"header sha256   {print_of.header_sha256}")
        say(f"fingerprint     {print_of.digest}")
        if print_of.file_sha256 is not None:
            say(f"file sha256     {print_of.file_sha256}")
    for warning in info["warnings"]:
        say(f"warning: {warning}")
    return 0
