"""The command line as a user meets it: subprocesses, exit codes, output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muser import cli, errors, flags
from muser.fixtures.errors import DiskSpaceError, FixtureError

ROOT = Path(__file__).parent.parent


def muser(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {key: text for key, text in os.environ.items() if not key.startswith("MUSER_")}
    env |= environment
    return subprocess.run(
        [sys.executable, "-m", "muser", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=env,
    )


def widest(text: str) -> int:
    return max(map(len, text.splitlines()), default=0)


@pytest.mark.parametrize("command", ["", *cli.COMMANDS])
def test_help_is_readable_at_80_columns(command: str) -> None:
    done = muser(*command.split(), "--help", COLUMNS="80")
    assert done.returncode == 0
    assert done.stderr == ""
    assert widest(done.stdout) <= 80


def test_help_lists_every_command_and_exit_code() -> None:
    text = muser("--help").stdout
    for command in cli.COMMANDS:
        assert re.search(rf"^    {command}\s", text, re.MULTILINE)
    for code, meaning in cli.EXIT_CODES:
        assert f"{code:>3}  {meaning}" in text


def test_the_page_documents_commands_and_exit_codes() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for code, meaning in cli.EXIT_CODES:
        assert f"| {code} | {meaning} |" in page
    for command in cli.COMMANDS:
        assert f"\n## `muser {command}`\n" in page


def test_version() -> None:
    done = muser("--version")
    assert re.fullmatch(r"muser \d+\.\d+\.\d+\n", done.stdout)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("wrong",),
        ("decode",),
        ("decode", "-m", "x.gguf"),
        ("decode", "-m", "x.gguf", "--tokens", "1,b"),
        ("decode", "-m", "x.gguf", "--tokens", ""),
        ("decode", "-m", "x.gguf", "--tokens", "1", "--steps", "-1"),
        ("decode", "-m", "x.gguf", "--tokens", "1", "--threads", "1025"),
        ("decode", "-m", "x.gguf", "--tokens", "1", "--kv-dtype", "f64"),
        ("decode", "-m", "x.gguf", "--tokens", "1", "--wait-seconds", "0"),
        ("fixture", "huge"),
        ("inspect",),
    ],
)
def test_usage_errors(arguments: tuple[str, ...]) -> None:
    done = muser(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert widest(done.stderr.split("muser: ")[0]) <= 80


def test_errors_are_json_where_json_is_asked_for() -> None:
    done = muser("decode", "-m", "x.gguf", "--tokens", "1", "--threads", "9999", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 2
    assert told["schema"] == "muser.error/1"
    assert told["exit_code"] == 2
    assert "9999" in told["message"]


def test_a_bad_environment_flag_is_a_usage_error() -> None:
    done = muser("flags", MUSER_THREADS="many")
    assert done.returncode == 2
    assert "MUSER_THREADS" in done.stderr
    done = muser("flags", "--json", MUSER_THREDS="1")
    assert done.returncode == 2
    assert json.loads(done.stdout)["facts"] == {"flag": "MUSER_THREDS"}


def test_flags_shows_values_and_writes_the_page() -> None:
    done = muser("flags", "--json", MUSER_THREADS="3")
    rows = {row["name"]: row for row in json.loads(done.stdout)["flags"]}
    assert set(rows) == {flag.name for flag in flags.FLAGS}
    assert (rows["MUSER_THREADS"]["value"], rows["MUSER_THREADS"]["set"]) == (3, True)
    assert rows["MUSER_DEVICE"]["set"] is False
    assert muser("flags", "--markdown").stdout == flags.markdown()
    people = muser("flags")
    assert widest(people.stdout) <= 80


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.GGUFError("x"), 3),
        (errors.ConfigError("x"), 2),
        (errors.ContextFullError("x"), 2),
        (errors.TokenRangeError("x"), 2),
        (errors.EngineBusy("x"), 5),
        (errors.EngineClosed("x"), 5),
        (errors.DeadlineError("x"), 4),
        (errors.DeviceError("x"), 4),
        (errors.DeviceMemoryError("x"), 4),
        (errors.NonFiniteError("x"), 5),
        (errors.RollbackError("x"), 5),
        (errors.SnapshotError("x"), 5),
        (errors.ForkError("x"), 5),
        (errors.ProbeError("x"), 4),
        (errors.TokenizerError("x"), 3),
        (errors.MuserError("x"), 5),
        (FixtureError("x"), 2),
        (DiskSpaceError("x"), 3),
        (FileNotFoundError("x"), 3),
        (MemoryError(), 4),
    ],
    ids=lambda part: type(part).__name__ if isinstance(part, BaseException) else "",
)
def test_every_error_has_its_code(error: BaseException, code: int) -> None:
    assert cli.exit_code(error) == code


def test_every_kind_was_tried_above() -> None:
    assert all(cli.exit_code(kind("x")) in range(2, 6) for kind in errors.KINDS.values())


def test_fixture_writes_a_file_and_tells_about_it(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    done = muser("fixture", "tiny", str(path), "--json")
    told: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 0
    assert done.stderr == ""
    assert told["schema"] == "muser.fixture/1"
    assert told["file_bytes"] == path.stat().st_size
    again = muser("fixture", "tiny", "-o", str(path))
    assert again.returncode == 0
    assert widest(again.stdout.replace(str(path), "FILE")) <= 80


def test_a_folder_that_is_not_there_is_a_file_error(tmp_path: Path) -> None:
    done = muser("fixture", "tiny", str(tmp_path / "no" / "tiny.gguf"))
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = [sys.executable, "-m", "muser", "flags", "--markdown"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_python_m_and_the_script_are_the_same_program() -> None:
    script = Path(sys.executable).with_name("muser")
    done = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout == muser("--help").stdout
