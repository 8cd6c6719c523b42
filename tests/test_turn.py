"""The parts of an assistant turn, told apart while it streams."""

from __future__ import annotations

import pytest
from tests.test_text import SMALL, stored

from muser.text import Tokenizer, TurnStream


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(stored(SMALL))


def parts(tokenizer: Tokenizer, text: str) -> list[tuple[str, str]]:
    """What a turn shows, neighbours of one reader joined."""
    stream = TurnStream(tokenizer)
    pieces: list[tuple[str, str]] = []
    for token in tokenizer.encode(text, bos=False, special=True):
        pieces += stream.push(token)
    pieces += stream.finish()
    joined: list[tuple[str, str]] = []
    for reader, piece in pieces:
        if joined and joined[-1][0] == reader:
            piece = joined.pop()[1] + piece
        joined.append((reader, piece))
    return joined


THINK = " to=self<|message|>hm\u2026<|eom|>"
ANSWER = "<|start|>assistant to=user<|message|>Yes, caf\u00e9.<|eot|>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (THINK + ANSWER, [("self", "hm\u2026"), ("user", "Yes, caf\u00e9.")]),
        (" to=user<|message|>Yes.<|eot|>", [("user", "Yes.")]),
        (" to=user<|message|>cut sho", [("user", "cut sho")]),
        (
            THINK + '<|start|>assistant to=tool<|message|><a b="1"/><|eot|>',
            [("self", "hm\u2026"), ("tool", '<a b="1"/>')],
        ),
        # A tool call first, without thinking.
        (
            " to=tool<|message|><a/><|eom|>" + ANSWER,
            [("tool", "<a/>"), ("user", "Yes, caf\u00e9.")],
        ),
        # No reader named, no header at all, nothing at all.
        ("<|message|>Yes.<|eot|>", [("user", "Yes.")]),
        ("Just text.", [("user", "Just text.")]),
        (" to=self", [("user", " to=self")]),
        ("<|eot|>", []),
        ("", []),
        # An empty body, and a mark where none belongs.
        (" to=self<|message|><|eom|>" + ANSWER, [("user", "Yes, caf\u00e9.")]),
        (" to=user<|message|>a<|message|>b<|pad|>c<|eot|>", [("user", "abc")]),
    ],
)
def test_a_turn_has_parts(tokenizer: Tokenizer, text: str, expected: list[tuple[str, str]]) -> None:
    assert parts(tokenizer, text) == expected


def test_text_without_a_header_streams_after_a_while(tokenizer: Tokenizer) -> None:
    stream = TurnStream(tokenizer)
    token = tokenizer.encode("a", bos=False)[0]
    shown = [list(stream.push(token)) for _ in range(40)]
    assert shown[:16] == [[]] * 16
    assert shown[16] == [("user", "a" * 17)]
    assert shown[17:] == [[("user", "a")]] * 23


def test_half_a_character_waits_for_its_rest(tokenizer: Tokenizer) -> None:
    byte_ids = {tokenizer.token_bytes(token): token for token in range(256)}
    stream = TurnStream(tokenizer)
    list(stream.push(tokenizer.special["<|message|>"]))
    raw = [byte_ids[bytes([byte])] for byte in "\u20ac".encode()]
    assert [list(stream.push(token)) for token in raw] == [[], [], [("user", "\u20ac")]]
    assert list(stream.push(raw[0])) == []
    assert list(stream.finish()) == [("user", "\ufffd")]
