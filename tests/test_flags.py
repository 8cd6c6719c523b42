"""The flag table: parsing, precedence, and the page made from it."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import pytest

from muser import Config, flags
from muser.errors import ConfigError

ROOT = Path(__file__).parent.parent


def test_the_page_is_current() -> None:
    page = (ROOT / "docs" / "flags.md").read_text(encoding="utf-8")
    assert page == flags.markdown(), "run: muser flags --markdown > docs/flags.md"


def test_every_flag_is_the_default_of_a_field() -> None:
    fields = {field.name for field in dataclasses.fields(Config)}
    assert [flag.field for flag in flags.FLAGS if flag.field not in fields] == []
    assert len({flag.name for flag in flags.FLAGS}) == len(flags.FLAGS)


SAMPLES: dict[str, tuple[str, object]] = {
    "MUSER_DEVICE": ("emulator", "emulator"),
    "MUSER_SCHEDULE": ("baseline", "baseline"),
    "MUSER_SERIAL_DISPATCH": ("1", True),
    "MUSER_METAL_PHASE_PROFILE": ("1", True),
    "MUSER_FERRITE_FFN_GATE_UP": ("on", True),
    "MUSER_BARRIERS": ("planned", "planned"),
    "MUSER_UNTRACKED": ("true", True),
    "MUSER_THREADS": ("3", 3),
    "MUSER_CPU_ISA": ("portable", "portable"),
    "MUSER_WAIT_SECONDS": ("2.5", 2.5),
    "MUSER_KV_DTYPE": ("f32", "f32"),
}


@pytest.mark.parametrize("flag", flags.FLAGS, ids=lambda flag: flag.name)
def test_a_flag_reaches_its_field_and_an_argument_beats_it(
    flag: flags.Flag, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, value = SAMPLES[flag.name]
    monkeypatch.delenv(flag.name, raising=False)
    assert getattr(Config(), flag.field) == flag.default != value
    monkeypatch.setenv(flag.name, text)
    assert getattr(Config(), flag.field) == value
    assert flags.active()[flag.name] == text
    arguments: dict[str, object] = {flag.field: flag.default}
    assert getattr(Config(**arguments), flag.field) == flag.default  # type: ignore[arg-type]
    monkeypatch.setenv(flag.name, "")
    assert getattr(Config(), flag.field) == flag.default
    assert flag.name not in flags.active()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("MUSER_DEVICE", "gpu"),
        ("MUSER_SERIAL_DISPATCH", "2"),
        ("MUSER_BARRIERS", "none"),
        ("MUSER_THREADS", "-1"),
        ("MUSER_THREADS", "two"),
        ("MUSER_THREADS", "²"),
        ("MUSER_THREADS", "1e3"),
        ("MUSER_WAIT_SECONDS", "0"),
        ("MUSER_WAIT_SECONDS", "inf"),
        ("MUSER_WAIT_SECONDS", "nan"),
        ("MUSER_KV_DTYPE", "F16"),
    ],
)
def test_a_bad_value_names_flag_value_and_what_is_allowed(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ConfigError, match=re.escape(name)) as caught:
        Config()
    assert caught.value.facts["flag"] == name
    assert caught.value.facts["value"] == text
    assert caught.value.facts["allowed"]


def test_out_of_range_values_are_found_by_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSER_THREADS", "1025")
    with pytest.raises(ConfigError, match="threads is 1025"):
        Config()


def test_an_unknown_flag_is_an_error_with_a_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSER_THREAD", "1")
    with pytest.raises(ConfigError, match=r"MUSER_THREAD; did you mean MUSER_THREADS\?"):
        Config()


def test_other_variables_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSERS", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert Config().threads == 0


def test_the_environment_is_read_in_one_file_only() -> None:
    package = ROOT / "python" / "muser"
    readers = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"\bos\.environ|\bgetenv\b", path.read_text(encoding="utf-8"))
    }
    assert readers == {"flags.py"}


def test_the_cache_folder_follows_the_xdg_rule() -> None:
    if sys.platform == "darwin":
        assert flags.cache_directory({}).parts[-2:] == ("Caches", "muser")
        return
    assert flags.cache_directory({"XDG_CACHE_HOME": "/x"}) == Path("/x/muser")
    assert flags.cache_directory({"XDG_CACHE_HOME": "x"}) == Path.home() / ".cache" / "muser"
    assert flags.cache_directory({}) == Path.home() / ".cache" / "muser"
