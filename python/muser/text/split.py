"""How text is cut before BPE: one regular expression for each `tokenizer.ggml.pre` we know.

An expression is made of alternatives, of which the first that matches is taken. The names of the
parts are Unicode categories; M (marks) belongs to words, which is where approximations go wrong in
Devanagari, Thai and Arabic.
"""

from __future__ import annotations

_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"  # one blank or mark that a word takes along
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

O200K = "|".join(
    (
        rf"{_LEAD}{_UPPER}*{_LOWER}+{_CONTRACTION}",  # word, Word, the Case of CamelCase
        rf"{_LEAD}{_UPPER}+{_LOWER}*{_CONTRACTION}",  # WORD
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",  # punctuation
        r"\s*[\r\n]+",
        r"\s+(?!\S)",  # blanks but the last before a word, which goes with it
        r"\s+",
    )
)

PATTERNS = {"llama4": O200K, "gpt-4o": O200K}
"""`tokenizer.ggml.pre` to its expression."""
