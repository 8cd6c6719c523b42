"""The project's own rules for source files, as one table of patterns and two whole-file checks.

Run by scripts/lint from the top of the repository; prints `file:line: rule` and exits 1 on any.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LONG_FILE, TOO_LONG_FILE = 600, 700
METAL_PRAGMAS = ("#pragma METAL fp math_mode(safe)", "#pragma METAL fp contract(off)")


@dataclass(frozen=True)
class Rule:
    """A pattern that must not occur outside comments under some folders."""

    folders: tuple[str, ...]
    pattern: re.Pattern[str]
    reason: str


RULES = (
    Rule(
        ("cpp/", "metal/"),
        re.compile(r"\b(secure_)?getenv\b|\benviron\b"),
        "the environment is read in Python only",
    ),
    Rule(
        ("cpp/device/", "cpp/contract/", "metal/"),
        re.compile(
            r"\brsqrt|\bfast::|\b__expf\b|\b__fdividef\b|_mm\d*_(mask_|maskz_)?r(sqrt|cp)\w*_p[sd]"
            r"|\bstd::(exp|exp2|expm1|tanh|log|log2|pow|sin|cos|fma)f?\s*\("
            r"|(?<![\w.:>])(expf|exp2f|tanhf|logf|powf|sinf|cosf|fmaf)\s*\("
        ),
        "estimates and libm have no place in the token path",
    ),
    Rule(
        ("metal/kernels/",),
        re.compile(r"\b(0x[0-9a-fA-F]+|[0-9]+)[uU]?(ll|LL)[uU]?\b|\bdouble\b"),
        "MSL has neither long long nor double",
    ),
    Rule(
        ("cpp/", "metal/", "python/", "tests/", "bench/"),
        re.compile(
            r"\b(TODO|FIXME|XXX)\b|\bGTEST_SKIP\b|\bDISABLED_\w|\bpytest\.(skip|xfail)\b"
            r"|\bpytest\.mark\.(skip|skipif|xfail)\b|\bimportorskip\b"
        ),
        "finish it or leave it out: no skipped tests, no notes to self",
    ),
)


def tracked_sources() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=True)
    suffixes = {".cpp", ".h", ".mm", ".metal", ".cu", ".py", ".pyi"}
    paths = (Path(name) for name in listing.stdout.split("\0") if name)
    return [path for path in paths if path.suffix in suffixes and path.is_file()]


def without_comments(text: str, *, python: bool) -> str:
    """Blanks comments and keeps line numbers."""
    pattern = r"#[^\n]*" if python else r"//[^\n]*|/\*.*?\*/"
    return re.sub(pattern, lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)


def problems(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    if lines > TOO_LONG_FILE:
        yield f"{path}:{lines}: more than {TOO_LONG_FILE} lines; a file has one job"
    elif lines > LONG_FILE:
        print(f"{path}:{lines}: note: more than {LONG_FILE} lines")
    if path.suffix == ".metal":
        code = [line for line in without_comments(text, python=False).splitlines() if line.strip()]
        if tuple(code[:2]) != METAL_PRAGMAS:
            yield f"{path}:1: must begin with {METAL_PRAGMAS[0]!r} and {METAL_PRAGMAS[1]!r}"
    rules = [rule for rule in RULES if str(path).startswith(rule.folders)]
    code_text = without_comments(text, python=path.suffix in {".py", ".pyi"})
    for number, line in enumerate(code_text.splitlines(), 1):
        for rule in rules:
            if found := rule.pattern.search(line):
                yield f"{path}:{number}: {found[0].strip()!r}: {rule.reason}"


def main() -> int:
    found = [problem for path in tracked_sources() for problem in problems(path)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
