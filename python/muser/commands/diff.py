"""`muser diff A B`: are two runs the same, and if not, where do they part?

A and B are dumps (the .npy of `decode --dump-logits`), the JSON lines of
`decode --json`, or receipts (`decode --receipt`), from one machine or from two;
both of one kind.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .common import Subparsers, add_json, emit, say

Rows: TypeAlias = NDArray[np.float32]
SOFTCAP = 20.0  # of the model; only the count of entries at the cap depends on it
_IGNORED = {"file.path", "machine", "versions.python"}  # tell where it ran, not what


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "diff",
        help="compare two dumps, two decode outputs or two receipts",
        description=__doc__,
    )
    parser.add_argument("a", metavar="A", type=Path)
    parser.add_argument("b", metavar="B", type=Path)
    add_json(parser)
    parser.set_defaults(run=run)


def _load(path: Path) -> tuple[str, Any]:
    """(`rows`, array), (`tokens`, (token objects, summary)) or (`receipt`, dict)."""
    if path.suffix == ".npy":
        try:
            rows = np.load(path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}", {"file": str(path)}) from error
        if rows.ndim != 2 or rows.dtype != np.float32:
            found = f"{rows.dtype}{list(rows.shape)}"
            raise ConfigError(
                f"{path}: a dump is float32[n, vocab], not {found}",
                {"file": str(path), "found": found, "expected": "float32[n, vocab]"},
            )
        return "rows", rows
    try:
        text = path.read_text(encoding="utf-8")
        try:
            objects = [json.loads(text)]
        except ValueError:
            objects = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON ({error})", {"file": str(path)}) from error
    objects = [o for o in objects if isinstance(o, dict)]
    schemas = {str(o.get("schema", "")) for o in objects}
    tokens = [o for o in objects if o.get("schema") == "muser.decode.token/1"]
    if tokens:
        summary: dict[str, Any] = next(
            (o for o in objects if o.get("schema") == "muser.decode.summary/1"), {}
        )
        return "tokens", (tokens, summary)
    if len(objects) == 1 and "contract" in objects[0]:
        return "receipt", objects[0]
    raise ConfigError(
        f"{path}: neither a dump, nor decode output, nor a receipt (schema {sorted(schemas)})",
        {"file": str(path), "found": ", ".join(sorted(schemas))},
    )


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}; lists are values."""
    found: dict[str, Any] = {}
    for key, item in value.items():
        name = f"{prefix}{key}"
        if name in _IGNORED:
            continue
        if isinstance(item, Mapping):
            found.update(flatten(item, f"{name}."))
        else:
            found[name] = item
    return found


def receipt_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Field -> [value of a, value of b], where they differ (None: not there)."""
    left, right = flatten(a), flatten(b)
    names = [*left, *(name for name in right if name not in left)]
    return {n: [left.get(n), right.get(n)] for n in names if left.get(n) != right.get(n)}


def compare_rows(a: Rows, b: Rows) -> dict[str, Any]:
    """Two dumps: the first differing row, how many differ, and the errors of the worst."""
    from ..gates import row_diff

    if a.shape[1] != b.shape[1]:
        raise ConfigError(
            f"rows of {a.shape[1]} and of {b.shape[1]} logits cannot be compared",
            {"found": int(b.shape[1]), "expected": int(a.shape[1])},
        )
    common = min(len(a), len(b))
    differing = [i for i in range(common) if a[i].tobytes() != b[i].tobytes()]
    diffs = {i: row_diff(np.asarray(a[i]), np.asarray(b[i]), SOFTCAP) for i in differing}
    worst = max(differing, key=lambda i: diffs[i].max_abs, default=None)
    return {
        "kind": "rows",
        "identical": not differing and len(a) == len(b),
        "rows": [len(a), len(b)],
        "differing": len(differing),
        "first": differing[0] if differing else None,
        "first_diff": diffs[differing[0]].as_dict() if differing else None,
        "worst": worst,
        "worst_diff": None if worst is None else diffs[worst].as_dict(),
    }


def compare_tokens(a: Any, b: Any) -> dict[str, Any]:
    """Two decode outputs: the first token whose input, choice or row hash differs."""
    (left, a_summary), (right, b_summary) = a, b
    common = min(len(left), len(right))
    fields = ("position", "input_token", "argmax", "row_sha256")
    differing = [i for i in range(common) if any(left[i][f] != right[i][f] for f in fields)]
    first = differing[0] if differing else None
    told = ("plan", "device", "isa", "threads")
    return {
        "kind": "tokens",
        "identical": not differing and len(left) == len(right),
        "rows": [len(left), len(right)],
        "differing": len(differing),
        "first": first,
        "first_diff": None
        if first is None
        else {f: [left[first][f], right[first][f]] for f in fields},
        "runs": receipt_differences(
            {k: a_summary.get(k) for k in told}, {k: b_summary.get(k) for k in told}
        ),
    }


def compare(a: Path, b: Path) -> dict[str, Any]:
    """Compares two files of one kind. ConfigError where they are not."""
    (kind, left), (other, right) = _load(a), _load(b)
    if kind != other:
        raise ConfigError(
            f"{a} holds {kind}, {b} holds {other}", {"found": other, "expected": kind}
        )
    if kind == "rows":
        return compare_rows(left, right)
    if kind == "tokens":
        return compare_tokens(left, right)
    fields = receipt_differences(left, right)
    return {"kind": "receipt", "identical": not fields, "fields": fields}


def run(args: argparse.Namespace) -> int:
    found = compare(args.a, args.b)
    if args.json:
        emit("diff", {"a": str(args.a), "b": str(args.b), **found})
    else:
        _show(found)
    return 0 if found["identical"] else 1


def _show(found: Mapping[str, Any]) -> None:
    if found["kind"] == "receipt":
        say("receipts agree" if found["identical"] else "receipts differ in:")
        for name, (left, right) in found["fields"].items():
            say(f"  {name}: {left} | {right}")
        return
    left, right = found["rows"]
    if found["identical"]:
        say(f"identical: {left} rows, every bit")
    elif found["first"] is None:
        say(f"the first {min(left, right)} rows are identical; one has {left}, the other {right}")
    else:
        say(
            f"{found['differing']} of {min(left, right)} rows differ, the first is {found['first']}"
        )
    if found["kind"] == "tokens":
        for name, (a, b) in (found["first_diff"] or {}).items():
            say(f"  {name}: {a} | {b}" if a != b else f"  {name}: {a}")
        for name, (a, b) in found["runs"].items():
            say(f"  runs differ in {name}: {a} | {b}")
        return
    for which in ("first", "worst"):
        diff = found[f"{which}_diff"]
        if diff is None or (which == "worst" and found["worst"] == found["first"]):
            continue
        say(
            f"  row {found[which]}: {diff['differing']} logits differ, max {diff['max_abs']:.3g}, "
            f"mean {diff['mean_abs']:.3g},"
        )
        say(
            f"    logprob {diff['logprob_max']:.3g}, argmax {diff['argmax'][0]} | "
            f"{diff['argmax'][1]}, top-40 overlap {diff['top_k_overlap']:.0%}"
        )
