"""The rules of scripts/source_rules.py see what they are for."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RULES = runpy.run_path(str(ROOT / "scripts" / "source_rules.py"))
PRAGMAS = "\n".join(RULES["METAL_PRAGMAS"]) + "\n"
KERNEL = "kernel void nothing() {}\n"


def problems(path: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return list(RULES["problems"](target))


@pytest.mark.parametrize(
    ("text", "sound"),
    [
        (PRAGMAS + KERNEL, True),
        ("// A comment first.\n" + PRAGMAS + KERNEL, True),
        (KERNEL, False),
        (PRAGMAS.splitlines()[0] + "\n" + KERNEL, False),
        (KERNEL + PRAGMAS, False),
        (PRAGMAS.replace("safe", "fast") + KERNEL, False),
        ("// " + PRAGMAS + KERNEL, False),
    ],
)
def test_kernel_files_begin_with_the_pragmas(
    text: str, sound: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = problems("metal/kernels/some.metal", text, tmp_path, monkeypatch)
    assert (found == []) == sound, found


def test_every_kernel_file_has_them() -> None:
    files = sorted((ROOT / "metal" / "kernels").glob("*.metal"))
    assert len(files) > 10
    assert [problem for path in files for problem in RULES["problems"](path)] == []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("cpp/model/some.cpp", 'const char* home = std::getenv("HOME");'),
        ("metal/some.mm", "float y = std::exp(x);"),
        ("metal/kernels/some.h", "float y = fast::divide(a, b);"),
        ("metal/kernels/some.h", "size_t bytes = 2ull * n;"),
        ("tests/some.py", "pytest." + "skip('later')"),
    ],
)
def test_the_other_rules(
    path: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert problems(path, line + "\n", tmp_path, monkeypatch)
    comment = "# " if path.endswith(".py") else "// "
    assert problems(path, comment + line + "\n", tmp_path, monkeypatch) == []
