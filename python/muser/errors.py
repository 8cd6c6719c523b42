"""Every error the package raises: one class per kind, each with `facts` for programs.

The compiled core throws the same kinds by name (cpp/errors.h); `from_core` maps one to the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

Fact: TypeAlias = "int | float | str"


class MuserError(Exception):
    """Base class. The message is a sentence; `facts` are the same numbers for programs.

    Usual facts: `offset`, `tensor`, `key`, `field`, `value`, `found`, `expected`, `position`.
    """

    facts: dict[str, Fact]

    def __init__(self, message: str, facts: Mapping[str, Fact] | None = None) -> None:
        super().__init__(message)
        self.facts = dict(facts or {})

    def __reduce__(self) -> tuple[type[MuserError], tuple[str, dict[str, Fact]]]:
        return type(self), (str(self), self.facts)


class GGUFError(MuserError):
    """The file: malformed, unsupported, or not this model."""


class ConfigError(MuserError, ValueError):
    """A setting or argument out of range, or in conflict with the file or the device."""


class ContextFullError(MuserError):
    """The next token does not fit the context."""


class TokenRangeError(MuserError, ValueError):
    """A token id outside the vocabulary."""


class EngineBusy(MuserError):  # noqa: N818 (a state, not a failure)
    """A second caller while a step runs."""


class EngineClosed(MuserError):  # noqa: N818
    """The engine is closed, or dead after a device error; load again to go on."""


class DeadlineError(MuserError):
    """The device did not finish in time."""


class DeviceError(MuserError):
    """The device reported a failure (code and place in the facts)."""


class DeviceMemoryError(MuserError, MemoryError):
    """An allocation was refused, or would be (bytes needed, bytes free where known)."""


class NonFiniteError(MuserError):
    """A NaN or an infinity reached the logits."""


class RollbackError(MuserError):
    """More rows asked back than the undo journal holds; nothing has changed."""


class SnapshotError(MuserError):
    """A snapshot that is damaged or belongs to another model or contract."""


class ForkError(MuserError):
    """Used in a child process that was forked after the load."""


class ProbeError(MuserError):
    """The load-time arithmetic probe found a wrong bit on the device."""


class TokenizerError(MuserError):
    """A tokenizer or chat template in the file that this package does not read."""


KINDS: dict[str, type[MuserError]] = {
    kind.__name__: kind for kind in (MuserError, *MuserError.__subclasses__())
}
"""Name of a kind, as in the core, to its class."""

_INTEGER = re.compile(r"[+-]?\d{1,20}")
_DECIMAL = re.compile(r"[+-]?(\d+\.\d*([eE][+-]?\d{1,3})?|\d+[eE][+-]?\d{1,3})")


def _fact(text: str) -> Fact:
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else text


def from_core(kind: str, message: str, facts: Iterable[tuple[str, str]]) -> MuserError:
    """The exception for an error of the core; numbers among the facts become numbers.

    A kind without a class of its own becomes a MuserError with the fact `kind`.
    """
    parsed = {name: _fact(value) for name, value in facts}
    known = KINDS.get(kind)
    if known is None:
        return MuserError(message, {"kind": kind, **parsed})
    return known(message, parsed)
