"""The parts of a turn as the model writes it, told apart while it is being written.

After the generation prompt `<|start|>assistant` the model writes messages of the form

    HEADER <|message|> BODY <|eom|>     the turn goes on, with <|start|>assistant and a header
    HEADER <|message|> BODY <|eot|>     the turn ends

where a header such as ` to=self` names who reads the body: `self` (thinking), `user`, `tool`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .tokenizer import Tokenizer

HEADER_TOKENS = 16  # headers are shorter; what is longer is text without a header

_MARKS = {name: f"<|{name}|>" for name in ("start", "message", "eom", "eot")}


class TurnStream:
    """Ids of one assistant turn to (recipient, text) pieces, without broken characters.

    Text that comes without a header belongs to `user`. Special tokens other than the markup are
    left out.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = {name: tokenizer.special.get(text) for name, text in _MARKS.items()}
        self._mark = {token: name for name, token in ids.items() if token is not None}
        self._stream = tokenizer.stream(special=False)
        self._recipient: str | None = None  # None within a header
        self._header: list[str] = []

    def push(self, token: int) -> Iterator[tuple[str, str]]:
        """The pieces of text that this id completes, each with its reader."""
        mark = self._mark.get(token)
        if mark is None:
            yield from self._text(self._stream.push(token))
            return
        yield from self._text(self._stream.finish())
        if mark == "message" and self._recipient is None:
            named = re.search(r"\bto=(\S+)", "".join(self._header))
            self._recipient = named[1] if named else "user"
            self._header = []
        elif mark != "message":
            yield from self._end()

    def finish(self) -> Iterator[tuple[str, str]]:
        """What is left at the end of a turn, which may have been cut."""
        yield from self._text(self._stream.finish())
        yield from self._end()

    def _text(self, text: str) -> Iterator[tuple[str, str]]:
        if self._recipient is not None:
            if text:
                yield self._recipient, text
            return
        self._header.append(text)
        if len(self._header) > HEADER_TOKENS:
            yield from self._end()
            self._recipient = "user"

    def _end(self) -> Iterator[tuple[str, str]]:
        """The message is over; a header that no body followed was text after all."""
        text = "".join(self._header)
        if self._recipient is None and text.strip() not in ("", "assistant"):
            yield "user", text
        self._recipient, self._header = None, []
