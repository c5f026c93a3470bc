"""Bytes that a frame takes, by kind of observation and codec: measured by `bench --sizes`, read by `estimate`.

A buffer is filled in two sizes, each in a process of its own. What the larger process has more is the price of its
transitions; what is left are blocks that are still open, a few frames of each env. GPU buffers are filled once, and counted by
themselves; scripts/fit_heap_heuristic.py reads that. The figures are committed beside this module, in `sizes.json`, and come
with the package.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .bars import DEFAULT, SMALLEST
from .frames import STACK, envs_of, is_vectors, most_recorded, split_stack
from .jobs import Result
from .kinds import KINDS
from .measure import Job

#: Where the committed figures are.
SIZES = Path(__file__).with_name("sizes.json")

BUFFERS = (DEFAULT, "zstd3", SMALLEST, "lz4-block", "igzip1", "none")
#: GPU buffers, and how many transitions of a game they get: levels of zstd are slow, and each frame is on its own there.
GPU_BUFFERS = {
    **dict.fromkeys(("gpu-tiles", "gpu-none", "gpu-rle"), 40_000),
    **{f"gpu-zstd{level}": 10_000 for level in (-5, 1, 3, 9, 15, 19)},
}
GPU_GAMES = KINDS["atari"].workloads
#: Laps through the recording that the two buffers hold, and steps that count as a lap where nothing is recorded.
LAPS, VECTOR_STEPS = (1, 3), 20_000
#: For each transition a store keeps where `obs` and `next_obs` are: 4 bytes each, however large a frame is.
INDEX_BYTES = 8


@dataclass(frozen=True)
class Size:
    """What one buffer has shown.

    :param frame_bytes: a frame as it is
    :param bytes_per_frame: what a transition takes, without action, reward and done
    :param open_frames: what an env takes once, in frames as they are; 0 for vectors, where it is nothing
    """

    kind: str
    workload: str
    buffer: str
    frame_bytes: int
    bytes_per_frame: float
    open_frames: float

    def observation_bytes(self, transitions: int, n_envs: int, frame_bytes: int) -> float:
        """Memory of the observations in a buffer of another size, for frames of another size.

        In proportion to the bytes of a frame, but for the index.
        """
        return transitions * self._of_a_transition(frame_bytes) + n_envs * self.open_frames * frame_bytes

    def most_transitions(self, memory: float, n_envs: int, frame_bytes: int, other_bytes: int) -> int:
        """Transitions of a buffer that takes so much memory.

        :param other_bytes: what a transition takes beside its observations
        """
        left = memory - n_envs * self.open_frames * frame_bytes
        return max(int(left / (self._of_a_transition(frame_bytes) + other_bytes)), 0)

    def _of_a_transition(self, frame_bytes: int) -> float:
        share = max(self.bytes_per_frame - INDEX_BYTES, 0) / self.frame_bytes
        return share * frame_bytes + INDEX_BYTES


def jobs_for(kind: str, cache: Path) -> list[Job]:
    """Buffers to fill for a kind: for each workload and codec a smaller and a larger one."""
    return [
        Job(buffer, workload, laps * _lap(workload), str(cache), laps=0, samples=0)
        for workload in KINDS[kind].workloads
        for buffer in BUFFERS
        for laps in LAPS
    ]


def gpu_jobs(cache: Path) -> list[Job]:
    """GPU buffers to fill, for each game."""
    return [
        Job(buffer, game, transitions, str(cache), laps=0, samples=0)
        for game in GPU_GAMES
        for buffer, transitions in GPU_BUFFERS.items()
    ]


def gpu_ratios_of(results: Sequence[Result]) -> list[dict[str, Any]]:
    """From the results of `gpu_jobs`: what observations take, tables and spare room included, as a part of SB3's array."""
    return [
        {
            "workload": result["workload"], "buffer": result["buffer"], "transitions": result["transitions"],
            "ratio": round(result["observation_bytes"] / (result["transitions"] * STACK * result["frame_bytes"]), 5),
        }
        for result in results
    ]  # fmt: skip


def _lap(workload: str) -> int:
    """Transitions of a lap."""
    return VECTOR_STEPS if is_vectors(workload) else most_recorded(split_stack(workload)[0]) * envs_of(workload)


def sizes_of(kind: str, results: Sequence[Result]) -> list[Size]:
    """Figures from the results of `jobs_for`, in its order."""
    sizes = []
    for small, large in zip(results[::2], results[1::2], strict=True):
        growth = (large["rss_bytes"] - small["rss_bytes"]) / (large["transitions"] - small["transitions"])
        frames = envs_of(small["workload"]) * small["frame_bytes"]
        at_once = max(small["rss_bytes"] - growth * small["transitions"], 0) / frames
        sizes.append(
            Size(
                kind, large["workload"], large["buffer"], large["frame_bytes"],
                bytes_per_frame=round(growth - large["other_bytes"], 1),
                open_frames=0.0 if is_vectors(large["workload"]) else round(at_once, 1),
            )
        )  # fmt: skip
    return sizes


def load(path: Path = SIZES) -> tuple[list[Size], dict[str, Any]]:
    """Committed figures, and where they come from: command, version, revision and machine."""
    saved = json.loads(path.read_text())
    saved.pop("gpu", None)
    return [Size(**values) for values in saved.pop("sizes")], saved


def source_of(kind: str, source: dict[str, Any]) -> dict[str, Any]:
    """Where the figures of a kind come from: an earlier run, if the last one did not measure it.

    :param source: of all, from `load`
    """
    earlier: dict[str, Any] = source.get("earlier", {}).get(kind, {})
    return {**{key: value for key, value in source.items() if key != "earlier"}, **earlier}


def document(sizes: Sequence[Size], gpu: list[dict[str, Any]], command: str, machine: dict[str, Any]) -> dict[str, Any]:
    """What is written to `sizes.json`."""
    from sb3_extra_buffers import __version__

    return {
        "command": command, "version": __version__, "revision": revision(), "machine": machine,
        "sizes": [asdict(size) for size in sizes], "gpu": gpu,
    }  # fmt: skip


def with_earlier(measured: dict[str, Any], path: Path = SIZES) -> dict[str, Any]:
    """A document of some kinds, with the committed figures of the others and of GPU buffers."""
    sizes, source = load(path)
    kinds = list(dict.fromkeys(size.kind for size in sizes))
    found = {size["kind"] for size in measured["sizes"]}
    earlier = {kind: source_of(kind, source) for kind in kinds if kind not in found}
    both = [*measured["sizes"], *(asdict(size) for size in sizes if size.kind in earlier)]
    return {
        **measured, "earlier": earlier, "sizes": sorted(both, key=lambda size: kinds.index(size["kind"])),
        "gpu": json.loads(path.read_text())["gpu"],
    }  # fmt: skip


def revision() -> str | None:
    """The commit that this package was changed by last; None where it is no checkout."""
    package = SIZES.parent.parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(package), *arguments, "--", "."], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        commit = git("log", "-1", "--format=%h")
        return f"{commit} with changes" if commit and git("status", "--porcelain") else commit or None
    except (OSError, subprocess.CalledProcessError):
        return None


def table_of(sizes: Sequence[Size]) -> tuple[list[str], list[list[str]], str]:
    """Columns, rows and alignment: by recording and codec what a transition takes, of the bytes of a frame."""
    codecs = list(dict.fromkeys(size.buffer for size in sizes))
    rows: dict[tuple[str, str], list[str]] = {}
    for size in sizes:
        row = rows.setdefault((size.kind, size.workload), [f"{size.kind}: {size.workload}", f"{size.frame_bytes:,} B"])
        row.append(_share(size))
    return ["observations", "a frame", *codecs], list(rows.values()), "lr" + "r" * len(codecs)


def _share(size: Size) -> str:
    percent = 100 * size.bytes_per_frame / size.frame_bytes
    return f"{percent:.2f} %" if percent < 9.995 else f"{percent:.0f} %"
