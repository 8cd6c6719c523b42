"""Text to ids and back, by the tokenizer stored in the GGUF file."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import ConfigError, TokenizerError, TokenRangeError
from .alphabet import CHARACTER_OF, token_bytes
from .split import PATTERNS
from .stream import TextStream

_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4


def not_installed(package: str) -> ConfigError:
    """What to say where an optional package is missing."""
    return ConfigError(
        f"text needs the package {package}: pip install 'muser[text]'", {"package": package}
    )


def _text(raw: bytes, what: str, index: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(
            f"{what} {index} is not UTF-8: {error.reason} at byte {error.start}",
            {"index": index, "offset": error.start},
        ) from None


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Hundreds of thousands of strings and pairs are made at once and none is garbage; the cyclic
    collector would walk the whole process again and again for them, half of the time to load."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Tokenizer:
    """A byte-level BPE tokenizer: `decode(encode(text)) == text` for every text.

    Special ids are those whose type is control or user-defined; everything else is ordinary.
    """

    def __init__(self, stored: Mapping[str, Any]) -> None:
        """`stored` is what the file holds, as muser._core.tokenizer tells it; raises TokenizerError
        for a model, a pre-tokenizer tag or a vocabulary that is not the one we know."""
        with _collector_paused():
            self._load(stored)

    def _load(self, stored: Mapping[str, Any]) -> None:
        if stored["model"] != "gpt2":
            raise TokenizerError(
                f"tokenizer model is {stored['model']!r}; expected 'gpt2' (byte-level BPE)",
                {"key": "tokenizer.ggml.model", "found": stored["model"], "expected": "gpt2"},
            )
        pattern = PATTERNS.get(stored["pre"])
        if pattern is None:
            known = ", ".join(PATTERNS)
            raise TokenizerError(
                f"pre-tokenizer tag {stored['pre']!r} is unknown; known are {known}",
                {"key": "tokenizer.ggml.pre", "found": stored["pre"], "expected": known},
            )
        tokens = [_text(raw, "token", index) for index, raw in enumerate(stored["tokens"])]
        types = [int(kind) for kind in stored["token_types"]]
        if len(types) != len(tokens):
            raise TokenizerError(
                f"{len(tokens)} tokens have {len(types)} types",
                {"found": len(types), "expected": len(tokens)},
            )
        self.vocab = len(tokens)
        """Number of ids."""
        self.special: dict[str, int] = {}
        """Text of each special token to its id."""
        ordinary: dict[str, int] = {}
        for index, (token, kind) in enumerate(zip(tokens, types, strict=True)):
            target = self.special if kind in {_CONTROL, _USER_DEFINED} else ordinary
            if token in target:
                raise TokenizerError(
                    f"token {index} repeats token {target[token]}",
                    {"index": index, "found": target[token]},
                )
            target[token] = index
        self._tokens = tokens
        self._is_ordinary = [kind not in {_CONTROL, _USER_DEFINED} for kind in types]
        # Longest first, so that no special token hides another that it begins.
        names = sorted(filter(None, self.special), key=len, reverse=True)
        self._special_split = re.compile(f"({'|'.join(map(re.escape, names))})" if names else "$^")
        self._bpe = _make_bpe(ordinary, stored["merges"], pattern)

        ids: Mapping[str, Any] = stored["ids"]
        self.bos: int | None = ids.get("bos_token_id")
        """Id that begins a sequence."""
        self.eos: int | None = ids.get("eos_token_id")
        """Id that ends a text."""
        self.eot: int | None = ids.get("eot_token_id")
        """Id that ends a turn."""
        self.eom: int | None = ids.get("eom_token_id", self.special.get("<|eom|>"))
        """Id that ends a message within a turn; generation goes on after it."""
        self.add_bos: bool = bool(ids.get("add_bos_token", False))
        """Whether `encode` begins with bos unless told otherwise."""
        self.chat_template: str | None = stored["chat_template"]
        """The file's jinja2 template, if it has one (see ChatTemplate)."""

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """The tokenizer of a GGUF file. Raises GGUFError and TokenizerError."""
        from .. import _core
        from ..engine import resolve

        with _collector_paused():
            return cls(_core.tokenizer(resolve(path)))

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids after which generation ends: end of text and end of turn, never end of message."""
        return frozenset({self.eos, self.eot}) - {None, self.eom}  # type: ignore[return-value]

    def encode(self, text: str, *, bos: bool | None = None, special: bool = False) -> list[int]:
        """Ids of a text.

        bos: whether to begin with it; None: as the file says (`add_bos`).
        special: whether text that spells a special token becomes that token. Leave it off for text
        that you did not write yourself.
        """
        ids: list[int] = []
        if self.add_bos if bos is None else bos:
            if self.bos is None:
                raise TokenizerError("the file names no bos token", {"key": "bos_token_id"})
            ids.append(self.bos)
        if not special:
            return ids + self._ordinary(text)
        for at, piece in enumerate(self._special_split.split(text)):
            if at % 2:
                ids.append(self.special[piece])
            elif piece:
                ids += self._ordinary(piece)
        return ids

    def _ordinary(self, text: str) -> list[int]:
        # Lone surrogates have no bytes; an error here beats a silent replacement.
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise TokenizerError(
                f"the text has a lone surrogate at {error.start}", {"offset": error.start}
            ) from None
        encoded: list[int] = self._bpe.encode(text, add_special_tokens=False).ids
        return encoded

    def defuse(self, text: str, mark: str) -> str:
        """Text in which every spelling of a special token is replaced by its id between two marks.
        `mark` is a character that the text does not have; `encode_defused` takes it out again."""
        return self._special_split.sub(lambda m: f"{mark}{self.special[m[0]]}{mark}", text)

    def encode_defused(self, text: str, mark: str) -> list[int]:
        """Ids of a text made of trusted parts and of parts that went through `defuse`: only what
        trusted parts spell becomes a special token. No bos is added."""
        ids: list[int] = []
        for at, piece in enumerate(self._special_split.split(text)):
            if at % 2:
                ids.append(self.special[piece])
                continue
            parts = piece.split(mark)
            parts[1::2] = (self._tokens[int(token)] for token in parts[1::2])
            if plain := "".join(parts):
                ids += self._ordinary(plain)
        return ids

    def split(self, text: str) -> list[str]:
        """The pieces into which ordinary text is cut before BPE."""
        pre_tokenizer: Any = self._bpe.pre_tokenizer
        pieces = pre_tokenizer.pre_tokenize_str(text)
        return [token_bytes(piece).decode("utf-8") for piece, _ in pieces]

    def token_bytes(self, token: int) -> bytes:
        """The bytes that an id stands for. TokenRangeError."""
        if not 0 <= token < self.vocab:
            raise TokenRangeError(
                f"token id {token} is outside the vocabulary; ids are 0 to {self.vocab - 1}",
                {"value": token, "expected": self.vocab},
            )
        text = self._tokens[token]
        if self._is_ordinary[token]:
            try:
                return token_bytes(text)
            except KeyError:
                pass  # an unused id, with a name that is not in the byte alphabet
        return text.encode("utf-8")

    def is_special(self, token: int) -> bool:
        """True for control and user-defined tokens. TokenRangeError."""
        self.token_bytes(token)
        return not self._is_ordinary[token]

    def decode(self, ids: Iterable[int], *, special: bool = True) -> str:
        """Text of ids; bytes that are not UTF-8 become U+FFFD. special=False leaves special tokens
        out."""
        stream = self.stream(special=special)
        return "".join([*map(stream.push, ids), stream.finish()])

    def stream(self, *, special: bool = True) -> TextStream:
        """A decoder for ids that come one by one; it never shows half a character."""
        return TextStream(self, special=special)


def _make_bpe(vocabulary: Mapping[str, int], merges: Sequence[bytes], pattern: str) -> Any:
    try:
        from tokenizers import Regex, models, pre_tokenizers
        from tokenizers import Tokenizer as Library
    except ImportError as error:
        raise not_installed("tokenizers") from error

    missing = [byte for byte, character in CHARACTER_OF.items() if character not in vocabulary]
    if missing:
        raise TokenizerError(
            f"the vocabulary has no token for byte {missing[0]:#04x} ({len(missing)} are missing)",
            {"found": 256 - len(missing), "expected": 256},
        )
    pairs = []
    for index, raw in enumerate(merges):
        # The stand-in alphabet has no blank, so one blank separates the two halves.
        left, blank, right = _text(raw, "merge", index).partition(" ")
        if not (left in vocabulary and right in vocabulary and left + right in vocabulary):
            raise TokenizerError(
                f"merge {index} does not join two tokens into a third: {raw[:64]!r}"
                + ("" if blank else " (no blank)"),
                {"index": index},
            )
        pairs.append((left, right))
    library = Library(models.BPE(vocab=dict(vocabulary), merges=pairs))
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return library
