"""GPT-2's printable stand-ins for the 256 bytes, in which byte-level BPE writes its tokens.

A byte that prints as itself in Latin-1 keeps that character; the others are numbered from U+0100.
"""

from __future__ import annotations

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = tuple(byte for byte in range(256) if byte not in _PRINTABLE)

CHARACTER_OF: dict[int, str] = {byte: chr(byte) for byte in _PRINTABLE} | {
    byte: chr(0x100 + at) for at, byte in enumerate(_OTHERS)
}
BYTE_OF: dict[str, int] = {character: byte for byte, character in CHARACTER_OF.items()}


def token_bytes(token: str) -> bytes:
    """The bytes that a token stands for. KeyError for a character outside the alphabet."""
    return bytes(BYTE_OF[character] for character in token)
