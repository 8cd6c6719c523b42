"""Text from ids that come one by one."""

from __future__ import annotations

import codecs
from typing import Protocol


class _Vocabulary(Protocol):
    def token_bytes(self, token: int) -> bytes: ...
    def is_special(self, token: int) -> bool: ...


class TextStream:
    """Turns ids into text as they come, never showing half a character.

    A token may end within a character of UTF-8; its bytes wait for the rest. Bytes that cannot
    become a character are shown as U+FFFD, as soon as that is certain.
    """

    def __init__(self, vocabulary: _Vocabulary, *, special: bool = True) -> None:
        """special=False leaves special tokens out of the text."""
        self._vocabulary = vocabulary
        self._special = special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that this id completes; often empty within a character. TokenRangeError."""
        if self._vocabulary.is_special(token):
            # A special token ends whatever came before it.
            text = self.finish()
            return text + self._vocabulary.token_bytes(token).decode() if self._special else text
        return self._decoder.decode(self._vocabulary.token_bytes(token))

    def finish(self) -> str:
        """What is left at the end: U+FFFD for an incomplete character, else nothing."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
