"""Commands that load a model: output, JSON, exit codes, interruption."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.test_cli import muser, widest

from muser import _core, load
from muser.fixtures import synthetic_path

TINY = ("-m", "synthetic:tiny")


def objects(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines()]
    assert all(item["schema"].startswith("muser.") for item in found)
    return found


def test_decode_tells_every_token(tmp_path: Path) -> None:
    dump, receipt = tmp_path / "rows.npy", tmp_path / "receipt.json"
    done = muser(
        *("decode", *TINY, "--tokens", "1,2,3", "--steps", "4", "--json", "--threads", "1"),
        *("--dump-logits", str(dump), "--receipt", str(receipt)),
    )
    assert (done.returncode, done.stderr) == (0, "")
    *tokens, summary = objects(done.stdout)
    assert [item["schema"] for item in tokens] == ["muser.decode.token/1"] * 7
    assert [item["position"] for item in tokens] == list(range(7))
    fed = [item["input_token"] for item in tokens]
    assert fed[:3] == [1, 2, 3]
    assert fed[3:] == [item["argmax"] for item in tokens[2:6]]
    rows = np.load(dump)
    assert rows.shape == (7, 1024)
    assert rows.dtype == np.float32
    for row, item in zip(rows, tokens, strict=True):
        assert item["row_sha256"] == hashlib.sha256(row.tobytes()).hexdigest()
        assert item["argmax"] == row.argmax()
    with load("synthetic:tiny") as engine:
        assert engine.prefill(fed, all_rows=True).tobytes() == rows.tobytes()
    assert summary["schema"] == "muser.decode.summary/1"
    assert summary["threads"] == 1
    assert summary["device"] == "cpu"
    assert summary["isa"] in next(d["isas"] for d in _core.devices() if d["name"] == "cpu")
    assert summary["tok_s"] > 0
    assert summary["tokens"] == 7
    told = json.loads(receipt.read_text())
    assert told["plan"]["schedule"] == summary["plan"]["schedule"] == "lean"
    assert told["file"]["file_sha256"] is None
    assert {path.name for path in tmp_path.iterdir()} == {dump.name, receipt.name}


def test_decode_hashes_do_not_depend_on_settings() -> None:
    runs = set()
    for settings in (
        ("--threads", "1"),
        ("--threads", "3", "--isa", "portable"),
        ("--schedule", "baseline", "--barriers", "all"),
        ("--serial-dispatch",),
    ):
        arguments = ("decode", *TINY, "--tokens", "1,2,3", "--steps", "20", "--json", *settings)
        *tokens, _ = objects(muser(*arguments).stdout)
        runs.add(tuple(item["row_sha256"] for item in tokens))
    assert len(runs) == 1


def test_flags_work_and_arguments_beat_them() -> None:
    arguments = ("decode", *TINY, "--tokens", "1", "--steps", "0", "--json")
    *_, by_flag = objects(muser(*arguments, MUSER_THREADS="3").stdout)
    *_, by_argument = objects(muser(*arguments, "--threads", "1", MUSER_THREADS="3").stdout)
    assert (by_flag["threads"], by_argument["threads"]) == (3, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("decode", *TINY, "--tokens", "1,2", "--steps", "3"),
        ("inspect", *TINY),
        ("inspect", *TINY, "--tensors", "--metadata", "--full-sha"),
        ("devices",),
        ("doctor",),
        ("demo",),
    ],
    ids=" ".join,
)
def test_output_for_people_fits_80_columns(arguments: tuple[str, ...]) -> None:
    done = muser(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    text = done.stdout.replace(str(synthetic_path("tiny")), "FILE")
    assert widest(text) <= 80
    assert "Traceback" not in text


def test_demo_passes_and_tells_all() -> None:
    started = time.monotonic()
    done = muser("demo", "--json")
    assert done.returncode == 0, done.stdout
    assert time.monotonic() - started < 60
    (told,) = objects(done.stdout)
    assert told["passed"]
    assert all(told["checks"].values())
    assert {run["threads"] for run in told["runs"]} >= {1, 2}
    assert {run["isa"] for run in told["runs"]} >= {"portable"}
    assert len({run["sha256"] for run in told["runs"]}) == 1
    assert told["errors"]["f32"]["mean_logit"] < 1.5e-3
    assert told["read_bytes_s"] > 0


def test_demo_fails_where_a_bit_differs() -> None:
    done = muser("demo", "--schedule", "legacy", "--allow-inexact")
    assert done.returncode == 1
    assert "FAILED" in done.stdout
    assert "DIFFER" in done.stdout


def test_inspect_as_json() -> None:
    (told,) = objects(muser("inspect", *TINY, "--json", "--fingerprint").stdout)
    assert told["schema"] == "muser.inspect/1"
    assert told["geometry"]["layers"] == 8
    assert sum(entry["tensors"] for entry in told["census"].values()) == len(told["tensors"])
    whole = sum(tensor["bytes"] for tensor in told["tensors"])
    table = next(t["bytes"] for t in told["tensors"] if t["name"] == "token_embd.weight")
    # Everything but the embedding table, of which a token reads one row.
    assert told["bytes_per_token"] == whole - table + table // told["geometry"]["vocab"]
    assert len(told["fingerprint"]["tensor_sha256"]) == len(told["tensors"])


def test_devices_and_doctor_as_json() -> None:
    (devices,) = objects(muser("devices", "--json").stdout)
    assert devices["default"] == "cpu"
    (doctor,) = objects(muser("doctor", "--json").stdout)
    assert doctor["problems"] == []
    assert len({attempt["sha256"] for attempt in doctor["tried"]}) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("decode", "-m", "missing.gguf", "--tokens", "1"), 3, "missing.gguf"),
        (("inspect", "-m", "README.md"), 3, "README.md"),
        (("decode", *TINY, "--tokens", "1024"), 2, "0 to 1023"),
        (("decode", *TINY, "--tokens", "1,-1"), 2, "-1"),
        (("decode", *TINY, "--tokens", "1", "--steps", "16", "-c", "16"), 2, "context of 16"),
        (("decode", *TINY, "--tokens", "1", "--isa", "sve9"), 2, "sve9"),
        (("decode", *TINY, "--tokens", "1", "--schedule", "fast"), 2, "baseline"),
        (("decode", *TINY, "--tokens", "1", "--schedule", "legacy"), 2, "allow_inexact"),
        (("decode", *TINY, "--tokens", "1", "-c", "131073"), 2, "131072"),
        (("decode", "-m", "synthetic:nothing", "--tokens", "1"), 2, "nothing"),
        (("decode", *TINY, "--tokens", "1", "--dump-logits", "/no/x.npy"), 3, "/no/"),
        (("decode", *TINY, "--tokens", "1", "--receipt", "/no/x.json"), 3, "/no/"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_errors_have_their_code_and_one_line(
    arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = muser(*arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert done.stderr.startswith("muser: ")
    assert done.stderr.count("\n") == 1
    (told,) = [
        item for item in objects(muser(*arguments, "--json").stdout) if "error" in item["schema"]
    ]
    assert told["exit_code"] == code
    assert words in told["message"]


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "muser", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_ends_a_run_and_keeps_its_rows(tmp_path: Path) -> None:
    dump = tmp_path / "rows.npy"
    run = ("decode", *TINY, "--tokens", "1", "--steps", "100000", "-c", "131072", "--json")
    process = start(*run, "--dump-logits", str(dump))
    assert process.stdout is not None
    for _ in range(5):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "muser: interrupted\n"
    rows = np.load(dump)
    assert 5 <= len(rows) <= 6 + rest.count("\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.npy"]


def test_a_reader_that_goes_away_ends_the_run() -> None:
    process = start("decode", *TINY, "--tokens", "1", "--steps", "100000", "-c", "131072")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == ""
    process.stderr.close()


def test_progress_does_not_reach_pipes(tmp_path: Path) -> None:
    done = muser("fixture", "tiny", str(tmp_path / "x.gguf"))
    assert done.stderr == ""
    assert (tmp_path / "x.gguf").stat().st_size > 0
