"""Check the tag of wheels, and that each has the library of its platform and no other: python check_wheels.py WHEEL..."""

from __future__ import annotations

import struct
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from compile import fail, library_name

FOLDER = "sb3_extra_buffers/native/"
LIBRARIES = (".so", ".dylib", ".dll", ".pyd", ".a", ".lib", ".pdb")

# The end of a platform tag, and the system and processor that a library for it has.
BINARIES = {
    "linux_x86_64": ("ELF", 0x3E),
    "linux_aarch64": ("ELF", 0xB7),
    "manylinux_2_17_x86_64": ("ELF", 0x3E),
    "manylinux_2_17_aarch64": ("ELF", 0xB7),
    "macosx_11_0_x86_64": ("Mach-O", 0x01000007),
    "macosx_11_0_arm64": ("Mach-O", 0x0100000C),
    "win_amd64": ("PE", 0x8664),
}


def binary_kind(data: bytes) -> tuple[str, int]:
    """The format of a library and the number of its processor in that format."""
    if data[:6] == b"\x7fELF\x02\x01":
        return "ELF", struct.unpack_from("<H", data, 18)[0]
    if data[:4] == b"\xcf\xfa\xed\xfe":
        return "Mach-O", struct.unpack_from("<I", data, 4)[0]
    if data[:2] == b"MZ":
        return "PE", struct.unpack_from("<H", data, struct.unpack_from("<I", data, 60)[0] + 4)[0]
    return "unknown", 0


def check(path: Path) -> None:
    """End with a sentence if a wheel is not what its name says."""
    python, abi, platform = path.stem.split("-")[-3:]
    if (python, abi) != ("py3", "none") or platform not in BINARIES:
        fail(f"{path.name} should have the tag py3-none-<platform>, with one of {', '.join(BINARIES)}.")
    with zipfile.ZipFile(path) as wheel:
        header = wheel.read(next(name for name in wheel.namelist() if name.endswith(".dist-info/WHEEL"))).decode()
        libraries = [name for name in wheel.namelist() if name.endswith(LIBRARIES)]
        expected = FOLDER + library_name(platform)
        if libraries != [expected]:
            fail(f"{path.name} should have the library {expected}, but has {libraries}.")
        kind = binary_kind(wheel.read(expected))
    if kind != BINARIES[platform]:
        fail(f"The library in {path.name} should be {BINARIES[platform]}, but is {kind}.")
    for line in (f"Tag: py3-none-{platform}", "Root-Is-Purelib: false"):
        if line not in header.splitlines():
            fail(f"{path.name} should say '{line}' in its file WHEEL.")


def main(paths: Sequence[str]) -> None:
    for path in paths:
        check(Path(path))
        print(f"{path}: right tag, right library")


if __name__ == "__main__":
    main(sys.argv[1:])
