"""Ways to damage saved files: by accident, where checksums tell, and on purpose, where they are made right again."""

from __future__ import annotations

import copy
import json
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers import load_buffer
from sb3_extra_buffers.errors import SB3ExtraBuffersError
from tests.saved_buffers import contents

PREFIX = struct.Struct("<8sIIQQ32x")


def by_accident(data: bytes, rng: random.Random) -> bytes:
    """One of the things that disks, downloads and editors do."""
    n, at = len(data), rng.randrange(len(data))
    changed = bytearray(data)
    kind = rng.randrange(7)
    if kind == 0:
        changed[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        changed[at] = rng.randrange(256)
    elif kind == 2:
        return data[:at]
    elif kind == 3:  # two pieces change places
        size = rng.randrange(1, 65)
        other = rng.randrange(n)
        changed[at : at + size], changed[other : other + size] = data[other : other + size], data[at : at + size]
    elif kind == 4:  # a page of zeros
        size = min(rng.choice((8, 64, 512)), n - at)
        changed[at : at + size] = bytes(size)
    elif kind == 5:
        changed[at:at] = rng.randbytes(rng.randrange(1, 9))
    else:
        changed += data[:at]
    return bytes(changed)


def sections(data: bytes) -> tuple[bytes, dict[str, Any], list[bytes]]:
    """What follows the first segment, its header, and its sections."""
    _, _, _, n_header, total = PREFIX.unpack_from(data)
    header = json.loads(data[PREFIX.size : PREFIX.size + n_header])
    at, found = PREFIX.size + n_header + -n_header % 64, []
    for one in header["sections"]:
        found.append(data[at : at + one["bytes"]])
        at += one["bytes"] + -one["bytes"] % 64
    return data[total:], header, found


def signed(header: dict[str, Any], parts: list[bytes], *, lengths: bool = True) -> bytes:
    """A segment with checksums that are right, whatever it says."""
    listed = header.get("sections")
    if lengths and isinstance(listed, list) and all(isinstance(one, dict) for one in listed):
        for one, part in zip(listed, parts, strict=False):
            one["bytes"] = len(part)
    said = json.dumps(header).encode()
    body = b"".join(part + bytes(-len(part) % 64) for part in parts)
    total = PREFIX.size + len(said) + -len(said) % 64 + len(body) + 4 * (len(parts) + 2)
    front = PREFIX.pack(b"SB3XSEG\n", 2, len(parts), len(said), total) + said + bytes(-len(said) % 64)
    checks = [zlib.crc32(part) for part in parts] + [zlib.crc32(front)]
    packed = struct.pack(f"<{len(checks)}I", *checks)
    return front + body + packed + struct.pack("<I", zlib.crc32(packed))


_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 2**31, 2**40, -(2**40), 2**63, 1.5, "", "x", "zstd", "<i8", "|O", "V8",
    "__import__('os')", [], [1], {}, {"type": "Box"}, [[]],
    "CompressedHerReplayBuffer", "GpuReplayBuffer", "CompressedArray", "os.system",
]  # fmt: skip


def on_purpose(data: bytes, rng: random.Random) -> bytes:
    """A value of the header, or bytes of a section, changed by someone who knows the format."""
    rest, header, parts = sections(data)
    header, parts = copy.deepcopy(header), list(parts)
    kind = rng.randrange(4)
    if kind < 2:
        _change_value(header, rng)
    elif kind == 2 and parts:
        i = rng.randrange(len(parts))
        part = bytearray(parts[i])
        if header["sections"][i].get("filter") == "zlib":
            part = bytearray(zlib.decompress(bytes(part)))
        for _ in range(rng.randrange(1, 4)):
            if part:
                at = rng.randrange(len(part))
                part[at] = rng.choice((0, 255, 127, 128, rng.randrange(256)))
        parts[i] = zlib.compress(bytes(part)) if header["sections"][i].get("filter") == "zlib" else bytes(part)
    elif parts:
        i = rng.randrange(len(parts))
        parts[i] = rng.choice((b"", parts[i][:-1], parts[i] * 2, parts[rng.randrange(len(parts))]))
    return signed(header, parts, lengths=rng.random() < 0.8) + rest


def _change_value(header: dict[str, Any], rng: random.Random) -> None:
    """Anywhere in the header."""
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            places.append((value, key))
            walk(inner)

    walk(header)
    holder, key = places[rng.randrange(len(places))]
    old = holder[key]
    if isinstance(old, int) and not isinstance(old, bool) and rng.random() < 0.5:
        holder[key] = old + rng.choice((-1, 1, 2, 1000))
    elif rng.random() < 0.15 and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = copy.deepcopy(rng.choice(_VALUES))


#: What loading may raise: an error that says what is wrong. A file may also ask for more memory than there is.
CLEAR = (SB3ExtraBuffersError, MemoryError, ValueError)


def outcome(path: Path, original: Any, *, is_hostile: bool = False) -> str:
    """What became of loading a damaged file: ``refused``, ``equal`` or, if hostile, ``loaded``; else an AssertionError."""
    try:
        loaded = load_buffer(path, device="cpu", truncate_last_traj=False)
    except CLEAR as error:
        if len(str(error)) < 15:
            raise AssertionError(f"An unclear error: {error!r}") from error
        return "refused"
    if not is_hostile:
        for a, b in zip(contents(loaded), contents(original), strict=True):
            assert a.dtype == b.dtype, "silently wrong"
            assert a.tobytes() == b.tobytes(), "silently wrong"
        return "equal"
    try:
        contents(loaded)
        if isinstance(loaded, ReplayBuffer) and not isinstance(loaded, HerReplayBuffer) and loaded.size():
            with np.errstate(all="ignore"):
                loaded.sample(8)
    except (*CLEAR, AttributeError, IndexError, TypeError):  # values that no check can know to be wrong, e.g. a goal's name
        return "refused"
    return "loaded"
