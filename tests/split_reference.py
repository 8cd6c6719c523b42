"""The pre-tokenizer's split, by hand: an independent witness for the regular expression.

Each alternative is tried in order at each position and matches as a backtracking engine would.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator

SPACES = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {
    chr(code) for code in range(0x2000, 0x200B)
}
CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")


def _is(*kinds: str) -> Callable[[str], bool]:
    return lambda c: unicodedata.category(c).startswith(kinds)


letter, number = _is("L"), _is("N")
upper = _is("Lu", "Lt", "Lm", "Lo", "M")
lower = _is("Ll", "Lm", "Lo", "M")


def _run(text: str, at: int, test: Callable[[str], bool]) -> int:
    """Where a run of characters that pass ends."""
    while at < len(text) and test(text[at]):
        at += 1
    return at


def _contraction(text: str, at: int) -> int:
    rest = text[at : at + 3].lower()
    return at + next((len(c) for c in CONTRACTIONS if rest.startswith(c)), 0)


def _leads(text: str, at: int) -> Iterator[int]:
    c = text[at]
    if c not in "\r\n" and not letter(c) and not number(c):
        yield at + 1
    yield at


def _word(text: str, at: int) -> int:
    for start in _leads(text, at):
        for middle in range(_run(text, start, upper), start - 1, -1):
            end = _run(text, middle, lower)
            if end > middle:
                return _contraction(text, end)
    return at


def _capitals(text: str, at: int) -> int:
    for start in _leads(text, at):
        middle = _run(text, start, upper)
        if middle > start:
            return _contraction(text, _run(text, middle, lower))
    return at


def _marks(text: str, at: int) -> int:
    start = at + (text[at] == " ")
    end = _run(text, start, lambda c: c not in SPACES and not letter(c) and not number(c))
    return _run(text, end, lambda c: c in "\r\n/") if end > start else at


def _blanks(text: str, at: int) -> int:
    end = _run(text, at, lambda c: c in SPACES)
    newline = max(text.rfind("\r", at, end), text.rfind("\n", at, end)) + 1
    if newline:
        return newline
    # All but the last before something else, which takes it along; one alone stays one.
    return end if end == len(text) or end - at <= 1 else end - 1


def split(text: str) -> list[str]:
    """The pieces, in order."""
    pieces, at = [], 0
    while at < len(text):
        end = _word(text, at)
        if end == at:
            end = _capitals(text, at)
        if end == at:
            end = min(_run(text, at, number), at + 3)
        if end == at:
            end = _marks(text, at)
        if end == at:
            end = _blanks(text, at)
        pieces.append(text[at:end])
        at = end
    return pieces
