"""The C++ hash program prints the golden hashes, as x86-64 and as aarch64."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests import platform_hashes
from tests.test_sampling import cpu_isas

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "build" / "release" / "cpp" / "tools" / "muser_hash"

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(7200)]


@pytest.mark.parametrize("isa", cpu_isas())
def test_this_machine_with_every_instruction_set(isa: str) -> None:
    assert PROGRAM.exists(), "scripts/test builds it: cmake --build --preset release"
    different = []
    for run, device, equal in platform_hashes.compare([str(PROGRAM)], isa):
        assert device.split()[1] == isa
        if not equal:
            different.append(run)
    assert different == []


def test_aarch64_under_an_emulator() -> None:
    subprocess.run([ROOT / "scripts" / "check_aarch64"], check=True)
