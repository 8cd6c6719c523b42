"""Reads compiled objects: isa_leaks.py NM OBJDUMP --kernels OBJECT... --libraries ARCHIVE

An object compiled for one instruction set may export its table functions and nothing else: a weak
symbol (an inline function) could be linked in place of the baseline's copy. Nor may it call
anything but memory functions: no libm. And no baseline object may use a wide register.
"""

import argparse
import re
import subprocess
import sys

TABLE = re.compile(r"kernels(_[a-z0-9]+)?\(\)$")
ALLOWED_CALLS = {"memcpy", "memset", "memmove", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_"}
WIDE_TABLE = re.compile(r"<.*(avx2|avx512vnni|avx512amx)(::[a-z]+_kernels)?\(\)>:")
WIDE_CODE = re.compile(r"%[yz]mm|\tv[a-z0-9]+ .*%xmm")


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbol_failures(nm: str, path: str) -> list[str]:
    found = []
    for line in output(nm, "-C", "-g", path).splitlines():
        match = re.match(r"^[0-9a-f]* +([A-Za-z]) (.*)$", line)
        if match is None:
            continue
        kind, name = match.groups()
        if kind == "U":
            if name not in ALLOWED_CALLS:
                found.append(f"{path} calls {name}")
        elif kind != "T" or not TABLE.search(name):
            found.append(f"{path} exports {kind} {name}")
    return found


def members(objdump: str, archive: str) -> list[tuple[str, str]]:
    """Disassembled members of an archive, by name."""
    parts = re.split(
        r"^(\S+\.o): +file format .*$", output(objdump, "-d", "-C", archive), flags=re.M
    )
    return list(zip(parts[1::2], parts[2::2], strict=True))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("nm")
    parser.add_argument("objdump")
    parser.add_argument("--kernels", nargs="+", required=True)
    parser.add_argument("--libraries", nargs="+", required=True)
    args = parser.parse_args()

    failures = []
    for path in args.kernels:
        failures += symbol_failures(args.nm, path)
    wide = 0
    for archive in args.libraries:
        for name, code in members(args.objdump, archive):
            if WIDE_CODE.search(code) is None:
                continue
            if WIDE_TABLE.search(code) is not None and not name.startswith("tables."):
                wide += 1
            else:
                failures.append(f"{archive}: {name} uses AVX in baseline code")
    expected = sum("portable" not in path for path in args.kernels)
    if "x86" in output("uname", "-m") and wide < expected:
        failures.append(f"only {wide} objects with AVX code: this check reads the wrong files")
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
