"""Portable Metal declares a selector exactly because the engine sends it: one that nothing calls is
dead code, and one that is called but missing would not have compiled."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADER = ROOT / "metal/portable/Metal/Metal.h"
CALLERS = [
    path
    for pattern in ("*.h", "*.mm", "launch/*.h", "portable/*.mm", "portable/*.h")
    for path in (ROOT / "metal").glob(pattern)
]
# Sent by the runtime, by @property-free memory management, or through a macro.
IMPLIED = {"alloc", "init", "dealloc", "retain", "release", "autorelease"}


def declared() -> set[str]:
    """Selectors of the header, by their first part."""
    return set(re.findall(r"^[-+] \([^)]*\)\s*(\w+)", HEADER.read_text(), re.MULTILINE))


def sent(name: str) -> bool:
    """Whether some file sends the selector: `[receiver name...` with the receiver before it."""
    call = re.compile(rf"\[[^;]*?[\])\w]\s+{name}\b", re.DOTALL)
    return any(call.search(path.read_text()) for path in CALLERS)


def test_the_header_declares_selectors() -> None:
    assert len(declared()) > 25


def test_every_declared_selector_is_sent() -> None:
    unused = sorted(name for name in declared() - IMPLIED if not sent(name))
    assert not unused


def test_an_unsent_selector_would_be_noticed() -> None:
    assert not sent("newHeapWithDescriptor")
