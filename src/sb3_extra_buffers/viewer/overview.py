"""The overview: numbers, histograms, and what the blocks take over the life of a buffer, as plain values for JSON."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sb3_extra_buffers.native.store import BASE, CODED, LENGTH
from sb3_extra_buffers.segments.spaces import names_of
from sb3_extra_buffers.store.extract import Extract
from sb3_extra_buffers.store.host.coding import Coding
from sb3_extra_buffers.viewer.episodes import ENDINGS, Episodes
from sb3_extra_buffers.viewer.experience import Experience

#: Points of a plot over episodes; more of them are put together.
_POINTS = 400
_BINS = 40
#: Different values up to which each has a bar of its own.
_FEW_VALUES = 15
#: Dimensions of an action or other vector that get a histogram.
_MOST_DIMENSIONS = 12


def overview(experience: Experience, episodes: Episodes) -> dict[str, Any]:
    """All but the observations."""
    complete = (episodes.ended != len(ENDINGS) - 1) & ~episodes.is_cut
    return {
        "class": experience.class_name,
        "transitions": experience.n_steps * experience.n_envs,
        "capacity": experience.capacity,
        "steps": experience.n_steps,
        "first": experience.first,
        "envs": experience.n_envs,
        "episodes": len(episodes),
        "complete": int(complete.sum()),
        "ended": {name: int((episodes.ended == i).sum()) for i, name in enumerate(ENDINGS)},
        "observation_space": str(experience.spaces.get("observation_space", "")),
        "action_space": str(experience.spaces.get("action_space", "")),
        "episode_return": _summary(episodes.returns[complete]),
        "episode_length": _summary(episodes.length[complete]),
        "over_time": _over_time(episodes, complete),
        "rewards": _reward_histogram(experience),
        "actions": _action_histograms(experience),
    }


def _summary(values: NDArray[Any]) -> dict[str, float] | None:
    if not len(values):
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        return {name: float(getattr(np, name)(values)) for name in ("mean", "median", "min", "max")}


def _over_time(episodes: Episodes, complete: NDArray[np.bool_]) -> dict[str, Any]:
    """Return and length of complete episodes by the step of their ends; several together where there are many."""
    rows = np.flatnonzero(complete)
    rows = rows[np.argsort(episodes.last[rows], kind="stable")]
    groups = np.array_split(rows, min(_POINTS, len(rows))) if len(rows) else []
    points: dict[str, Any] = {"step": [int(episodes.last[group[-1]]) - 1 for group in groups]}
    with np.errstate(invalid="ignore"):
        for name, values in (("return", episodes.returns), ("length", episodes.length)):
            points[name] = [[float(f(values[group])) for f in (np.mean, np.min, np.max)] for group in groups]
    points["episode"] = [int(episodes.number[group[0]]) for group in groups]
    points["together"] = bool(len(rows) > _POINTS)
    return points


def _reward_histogram(experience: Experience) -> dict[str, Any] | None:
    if not experience.has("rewards") or not experience.n_steps:
        return None
    return histogram(experience.array("rewards"))


def histogram(values: NDArray[Any]) -> dict[str, Any]:
    """Counts by value where there are few, else by range."""
    flat = values.reshape(-1)
    finite = flat[np.isfinite(flat)] if flat.dtype.kind == "f" else flat
    found: dict[str, Any] = {"n": int(flat.size), "not_finite": int(flat.size - finite.size)}
    if not finite.size:
        return {**found, "kind": "values", "values": [], "counts": []}
    look = finite if finite.size <= 50_000 else finite[:: finite.size // 50_000]
    if len(np.unique(look)) <= _FEW_VALUES:
        each, counts = np.unique(finite, return_counts=True)
        if len(each) <= _FEW_VALUES:
            return {**found, "kind": "values", "values": each.tolist(), "counts": counts.tolist()}
    low, high = float(finite.min()), float(finite.max())
    counts, edges = np.histogram(finite, bins=_BINS, range=(low, high if high > low else low + 1))
    return {
        **found, "kind": "bins", "edges": edges.tolist(), "counts": counts.tolist(),
        "mean": float(finite.mean(dtype=np.float64)), "min": low, "max": high,
    }  # fmt: skip


def _action_histograms(experience: Experience) -> list[dict[str, Any]]:
    """One for each number of an action."""
    if not experience.has("actions") or not experience.n_steps:
        return []
    space = experience.spaces.get("action_space")
    if isinstance(space, spaces.Discrete):
        n, start = int(space.n), int(space.start)
        if n <= 1000:
            counts = np.zeros(n, np.int64)
            for _, part in experience.parts("actions"):
                values = part.reshape(-1).astype(np.int64) - start
                counts += np.bincount(values[(values >= 0) & (values < n)], minlength=n)
            return [{
                "kind": "values", "values": list(range(start, start + n)), "counts": counts.tolist(), "n": int(counts.sum()),
                "not_finite": 0, "names": names_of(space),
            }]  # fmt: skip
    return _by_dimension(experience, "actions")


def _by_dimension(experience: Experience, name: str) -> list[dict[str, Any]]:
    parts = [part.reshape(part.shape[0] * part.shape[1], -1)[:, :_MOST_DIMENSIONS] for _, part in experience.parts(name)]
    values = np.concatenate(parts)
    return [histogram(values[:, i]) for i in range(values.shape[1])]


# ---- memory


def memory(experience: Experience, n_points: int = 120) -> dict[str, Any]:
    """What observations take and would take, by key and over the steps of the buffer.

    A block counts where it is used first. Steps of the first file that were overwritten since count to the oldest one.
    """
    n = max(experience.n_steps, 1)
    blocks = [extract.block_frames for key in experience.leaves if not experience.is_plain(key)
              for _, _, extract in islice(experience.blocks(key), 1)]  # fmt: skip
    n_bins = max(min(n_points, n // (4 * max(blocks, default=1))), 1)  # of several blocks each
    edges = np.unique(np.linspace(0, n, n_bins + 1).astype(np.int64))
    stored = np.zeros(len(edges) - 1)
    keys = {}
    raw_step = 0
    for key, leaf in experience.leaves.items():
        by_bin, codecs = np.zeros(len(edges) - 1), {}
        columns = 1 + leaf.has_next
        raw = leaf.n_bytes * columns * experience.n_envs
        if experience.is_plain(key):
            by_bin += np.diff(edges) * raw
        else:
            codecs = _blocks_by_bin(experience, key, edges, by_bin)
        keys[key] = {
            "shape": list(leaf.shape), "dtype": leaf.dtype.name, "stack": leaf.stack, "raw": raw * experience.n_steps,
            "stored": int(by_bin.sum()), "codecs": codecs or {"plain": 1.0},
        }  # fmt: skip
        stored += by_bin
        raw_step += raw
    widths = np.diff(edges)
    total, raw_bins = np.cumsum(stored), widths * raw_step
    return {
        "keys": keys, "raw": raw_step * experience.n_steps, "stored": int(stored.sum()),
        "step": (edges[1:] - 1 + experience.first).tolist(), "total": total.tolist(),
        "ratio": [float(a / b) if b else None for a, b in zip(stored, raw_bins, strict=True)],
    }  # fmt: skip


def _blocks_by_bin(experience: Experience, key: str, edges: NDArray[np.int64], by_bin: NDArray[Any]) -> dict[str, float]:
    """Adds the bytes of blocks to the bins of the steps that use them first; gives the share of each codec."""
    shares: dict[str, int] = {}
    for begin, run, extract in experience.blocks(key):
        blocks = (extract.heads.reshape(run.count, -1) - 1) // extract.block_frames
        n = len(extract.table)
        first = np.full(n + 1, run.count, np.int64)
        # Steps go backwards here, so that the first one that names a block is the one that stays.
        flat = blocks[::-1].reshape(-1)
        first[np.where(flat < 0, n, flat)] = np.repeat(np.arange(run.count)[::-1], blocks.shape[1])
        first = first[:n]
        first[first == run.count] = 0  # blocks that others are encoded against
        at = np.clip(np.searchsorted(edges, first + begin, side="right") - 1, 0, len(by_bin) - 1)
        np.add.at(by_bin, at, extract.table[:, LENGTH])
        for name, n_bytes in _codec_bytes(extract).items():
            shares[name] = shares.get(name, 0) + n_bytes
    total = sum(shares.values()) or 1
    return {name: n_bytes / total for name, n_bytes in sorted(shares.items(), key=lambda one: -one[1])}


def _codec_bytes(extract: Extract) -> dict[str, int]:
    """Bytes of blocks by what has encoded them. Blocks that are still open are kept as they are, and so are base frames."""
    bases, lengths = extract.table[:, BASE], extract.table[:, LENGTH]
    found: dict[str, int] = {}
    for base in np.unique(bases[bases <= CODED]).tolist():
        name = Coding.restored(extract.codings[CODED - base]).name if CODED - base < len(extract.codings) else "unknown"
        found[name] = found.get(name, 0) + int(lengths[bases == base].sum())
    for name, mine in (("plain", bases == -1), ("delta", (bases == -2) | (bases >= 0))):
        if mine.any():
            found[name] = int(lengths[mine].sum())
    return found
