"""What is looked at: the steps of a saved buffer or record, of whichever class, read from segments as they are asked for.

    segment -> arrays of a run, or the blocks of some steps -> Experience -> rows, observations

Positions count from the oldest step that is there. `first` is the number of that step since the buffer's first one, so that
`first + position` stays the same while a training goes on.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.segments.runs import StoredBuffer, StoredRun
from sb3_extra_buffers.segments.spaces import space_from_json
from sb3_extra_buffers.store.extract import Extract, on_host, restored
from sb3_extra_buffers.store.format import number_dtype
from sb3_extra_buffers.viewer.cache import ByteCache

Ints = NDArray[np.int64]

#: Steps whose observations are read from a file together, for one env: what comes next is mostly a neighbour.
WINDOW = 128
#: Bytes of what was read lately.
CACHE_BYTES = 40 << 20
#: Bytes of observations that are decoded at a time, about.
CHUNK_BYTES = 8 << 20
#: No observation has more bytes; a forged file may say so.
_MOST_BYTES = 1 << 28
#: As for envs, which are gone through one by one.
_MOST_ENVS = 1 << 16
#: Arrays of rollouts that others follow from.
_STARTS = "episode_starts"


@dataclass(frozen=True)
class LeafShape:
    """One array of an observation, as it is stored.

    :param stack: frames that the store found in it; 1 if nothing is stacked
    :param axis: where they are stacked
    :param has_next: whether `next_obs` is stored too
    """

    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stack: int = 1
    axis: int = 0
    has_next: bool = False

    @property
    def n_bytes(self) -> int:
        """Bytes of one observation."""
        return math.prod(self.shape) * self.dtype.itemsize


class Experience:
    """The steps of something that was saved.

    :param stored: segments
    :param files: their files, which stay open as long as this is used
    :param cache: of an earlier state of the same folder; segments that both have are not read again
    """

    def __init__(self, stored: StoredBuffer, files: ExitStack, cache: ByteCache | None = None) -> None:
        about = stored.about
        self.close = weakref.finalize(self, files.close)
        self._stored, self.cache = stored, cache if cache is not None else ByteCache(CACHE_BYTES)
        self._lock = self.cache.lock
        self.class_name: str = about["class"]
        if self.class_name == "CompressedArray":
            raise CorruptDataError("The file holds a CompressedArray: it has no steps to look at")
        self.n_envs, self.n_steps = int(about["n_envs"]), stored.n_steps
        if self.n_envs > _MOST_ENVS:
            raise CorruptDataError(f"The steps are said to be of {self.n_envs:,} envs; at most {_MOST_ENVS:,} can be shown")
        self.capacity = int(about["slots"]) * self.n_envs
        self.is_record = "Record" in self.class_name
        self.first = stored.age - stored.n_steps if stored.folder is not None else 0
        #: Whether the oldest steps follow others that were overwritten. A file does not say it of a full buffer: they may.
        added = about.get("added")
        is_full = stored.folder is None and about.get("full") is True and not about.get("generator_ready")
        self.is_cut = self.first > 0 or is_full or (isinstance(added, int) and added > self.n_steps)
        self.arguments: dict[str, Any] = about["arguments"] if isinstance(about.get("arguments"), dict) else {}
        self.spaces: dict[str, spaces.Space[Any]] = {
            name: space_from_json(about[name]) for name in ("observation_space", "action_space") if about.get(name) is not None
        }
        self._runs = [run for run in stored.runs if run.count]
        self._edges = np.cumsum([0, *(run.count for run in self._runs)]) - stored.skipped
        self._by_step, self._whole = stored.names("array"), stored.names("whole")
        self.leaves = {leaf.key: leaf for leaf in self._found_leaves()}
        for leaf in self.leaves.values():
            if leaf.n_bytes > _MOST_BYTES:
                raise CorruptDataError(f"{leaf.key!r} is said to have observations of {leaf.n_bytes:,} bytes each")

    def _found_leaves(self) -> Iterator[LeafShape]:
        header = self._stored.runs[-1].segment.header
        listed = header.get("leaves")
        for key, about in listed.items() if isinstance(listed, dict) else ():
            with self._stored.runs[-1].extract(key) as extract:
                layout = extract.layout
                columns = int(extract.heads.shape[1])
                yield LeafShape(key, layout.shape, layout.dtype, int(about["stack"]), int(about["axis"]), columns > 1)
        for one in header["sections"]:  # the frames of a record that are not compressed
            if one["name"] == "array/frames":
                yield LeafShape("frames", tuple(one["shape"][1:]), number_dtype(one.get("dtype")))

    # ---- arrays

    @property
    def has_timeouts(self) -> bool:
        """Whether timeouts are told from terminal states."""
        return "timeouts" in self._by_step and self.arguments.get("handle_timeout_termination", True) is not False

    @property
    def has_dones(self) -> bool:
        """Whether it is known where episodes end."""
        return "dones" in self._by_step or self.has(_STARTS)

    def has(self, name: str) -> bool:
        """Whether there is an array of this name, by step and env."""
        return name in self._by_step or (name in self._whole and bool(self._stored.about.get("generator_ready")))

    @property
    def names(self) -> list[str]:
        """Arrays that belong to steps and envs, beside observations. States of LSTMs have another order of axes."""
        found = [name for name in (*self._by_step, *self._whole) if self.has(name) and name != "frames"]
        return [name for name in found if not name.startswith(("hidden_states_", "cell_states_"))]

    def array(self, name: str) -> NDArray[Any]:
        """All of an array: ``(steps, envs, ...)``."""
        parts = [part for _, part in self.parts(name)]
        return np.concatenate(parts) if parts else np.zeros((0, self.n_envs), np.float32)

    def parts(self, name: str) -> Iterator[tuple[int, NDArray[Any]]]:
        """An array a run at a time, each with the position of its first step."""
        if name not in self._by_step:
            yield 0, self._flattened(name)
            return
        for i in range(len(self._runs)):
            at = max(-int(self._edges[i]), 0)  # steps that were overwritten since
            with self._lock:
                rows = self._run_array(i, name)[at:]
            if len(rows):
                yield int(self._edges[i]) + at, rows

    def dones(self) -> NDArray[np.bool_]:
        """Whether an episode ends with a step: ``(steps, envs)``."""
        if "dones" in self._by_step:
            return self.array("dones").astype(bool)
        ends = np.zeros((self.n_steps, self.n_envs), bool)
        if self.has(_STARTS):
            ends[:-1] = self.array(_STARTS)[1:].astype(bool)
        return ends

    def rows(self, name: str, env: int, first: int, last: int) -> NDArray[Any]:
        """Steps of an env, from a position to the one before `last`."""
        if name not in self._by_step:
            return self._flattened(name)[first:last, env]
        found = []
        with self._lock:
            for i in range(len(self._runs)):
                low, high = max(first, int(self._edges[i])), min(last, int(self._edges[i + 1]))
                if low < high:
                    begin = int(self._edges[i])
                    found.append(self._run_array(i, name)[low - begin : high - begin, env])
        return np.concatenate(found)

    def _run_array(self, i: int, name: str) -> NDArray[Any]:
        def read() -> tuple[NDArray[Any], int]:
            array = self._runs[i].array(name)
            if self.is_record:
                array = array[:, None]
            if array.ndim < 2 or array.shape[1] != self.n_envs:
                raise CorruptDataError(f"A segment is damaged: {name!r} has the shape {array.shape} for {self.n_envs} envs")
            return array, array.nbytes

        found: NDArray[Any] = self.cache.get((self._identity(self._runs[i]), name), read)
        return found

    def _flattened(self, name: str) -> NDArray[Any]:
        """Of a rollout that was read: SB3 has put the steps of each env behind each other, in most arrays."""
        if not self.has(name):
            raise KeyError(name)
        with self._lock:
            array = self._stored.whole(name)
        if array.shape[:2] == (self.n_steps, self.n_envs):
            return array
        if len(array) != self.n_steps * self.n_envs:
            raise CorruptDataError(f"A segment is damaged: {name!r} has {len(array)} rows for {self.n_steps} steps")
        return array.reshape(self.n_envs, self.n_steps, *array.shape[1:]).swapaxes(0, 1)

    @staticmethod
    def _identity(run: StoredRun) -> tuple[int, int, int]:
        return run.segment.checksum, run.segment.begin, run.count

    # ---- observations

    def is_plain(self, key: str) -> bool:
        """Whether observations are kept as an array, as by a record without a codec."""
        return key == "frames" and "frames" in self._by_step

    def observations(self, key: str, env: int, positions: Ints, *, following: bool = False) -> NDArray[Any]:
        """Observations of an env.

        :param following: `next_obs` instead of `obs`
        """
        leaf = self.leaves[key]
        out = np.zeros((len(positions), *leaf.shape), leaf.dtype)
        if self.is_plain(key):
            for i, position in enumerate(positions.tolist()):
                out[i] = self.rows("frames", env, position, position + 1)[0]
            return out
        runs = np.searchsorted(self._edges, positions, side="right") - 1
        windows = (positions - self._edges[runs]) // WINDOW
        with self._lock:
            for run, window in sorted(set(zip(runs.tolist(), windows.tolist(), strict=True))):
                chosen = np.flatnonzero((runs == run) & (windows == window))
                store = self._window(run, key, env, window)
                cells = positions[chosen] - int(self._edges[run]) - window * WINDOW
                out[chosen] = on_host(store.read_columns((int(following),), np.ascontiguousarray(cells))[0])
        return out

    def chunks(self, key: str, env: int, positions: Ints, *, following: bool = False) -> Iterator[NDArray[Any]]:
        """The same, some at a time: all of a long episode may be more than the memory holds."""
        n = min(max(CHUNK_BYTES // max(self.leaves[key].n_bytes, 1), 1), WINDOW)
        for at in range(0, len(positions), n):
            yield self.observations(key, env, positions[at : at + n], following=following)

    def _window(self, i: int, key: str, env: int, window: int) -> Any:
        run = self._runs[i]

        def read() -> tuple[Any, int]:
            steps = np.arange(window * WINDOW, min((window + 1) * WINDOW, run.count))
            extract = self._extract(run, key).only(steps * self.n_envs + env)
            return restored(extract), extract.n_bytes + extract.heads.nbytes + (1 << 14)

        return self.cache.get((self._identity(run), key, env, window), read)

    def _extract(self, run: StoredRun, key: str) -> Extract:
        def read() -> tuple[Extract, int]:
            with run.extract(key) as extract:
                return extract, extract.heads.nbytes + extract.table.nbytes

        found: Extract = self.cache.get((self._identity(run), key), read)
        # It may be of an earlier state, whose files are closed.
        return replace(found, parts=functools.partial(run.segment.parts, f"leaf/{key}/frames"))

    def scattered(self, key: str, env: int, positions: Ints, *, following: bool = False) -> NDArray[Any]:
        """Observations from all over the buffer; each segment is gone through once, and nothing is kept."""
        if self.is_plain(key):
            return self.observations(key, env, positions)
        leaf = self.leaves[key]
        out = np.zeros((len(positions), *leaf.shape), leaf.dtype)
        runs = np.searchsorted(self._edges, positions, side="right") - 1
        for run in np.unique(runs).tolist():
            chosen = np.flatnonzero(runs == run)
            with self._lock:
                rows = (positions[chosen] - int(self._edges[run])) * self.n_envs + env
                store = restored(self._extract(self._runs[run], key).only(rows))
                out[chosen] = on_host(store.read_columns((int(following),), np.arange(len(rows)))[0])
        return out

    def blocks(self, key: str) -> Iterator[tuple[int, StoredRun, Extract]]:
        """How a leaf is stored, a run at a time, each with the position of its first step; it may be negative."""
        for i, run in enumerate(self._runs):
            with self._lock:
                yield int(self._edges[i]), run, self._extract(run, key)
