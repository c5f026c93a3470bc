"""Record buffers: the last `size` steps of an agent, oldest to newest.

    add:   frame (H, W, C) -> (C, H, W) -> ndarray, or frame store where a codec was asked for
    read:  position, oldest is 0 -> slot of the ring -> Record

Below: store. Beside: video.py and minari_dataset.py, which turn a record into a video or a dataset.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from sb3_extra_buffers.codecs import AUTO, Codec, make_codec
from sb3_extra_buffers.errors import CodecError, CorruptDataError
from sb3_extra_buffers.recording.dtypes import dtypes_from_json, fitted, parse_dtypes
from sb3_extra_buffers.segments.files import replacing
from sb3_extra_buffers.segments.runs import Contents, StoredBuffer, make_from_file, put_run, write_buffer
from sb3_extra_buffers.store import ArrayView, LeafStore, MemoryUsage, StorePlan

#: Records that are read together while iterating: several blocks, so that a block is not decoded once per frame.
_AT_ONCE = 64


class Record(NamedTuple):
    """One step, or arrays of several steps. None for parts that the buffer does not keep."""

    frame: Any
    reward: Any
    action: Any
    features: Any


class BaseRecordBuffer:
    """What every record has: arrays in ring order, None where it keeps no such thing."""

    frames: NDArray[Any] | ArrayView | None
    rewards: NDArray[Any]
    actions: NDArray[Any]
    features: NDArray[Any] | None


class RecordBuffer(BaseRecordBuffer):
    """The last ``size`` steps: frames, rewards, actions and, if they have dtypes, features.

    ``len(record)`` is the number of steps. ``record[i]``, slices, index arrays and iteration go from oldest to newest and
    return copies. ``frames``, ``rewards``, ``actions`` and ``features`` are the ring itself, in ring order.

    :param res: height and width of a frame
    :param ch_num: channels of a frame
    :param size: number of steps; the oldest is overwritten
    :param dtypes: ``[frame, reward, *features]``, or a dict with any of ``frame`` (uint8), ``reward`` (float32), ``action``
        (int64; with a shape for vectors: ``np.dtype((np.float32, (6,)))``) and ``features`` (a list, none by default)
    :param compression_method: codec for frames, e.g. ``"auto"`` or ``"zstd3"``; None keeps them in a plain array
    :param compression_kwargs: options of the codec
    """

    _keeps_frames: ClassVar[bool] = True

    def __init__(
        self,
        res: tuple[int, int] = (240, 320),
        ch_num: int = 3,
        size: int = 40_000,
        dtypes: Sequence[DTypeLike] | Mapping[str, Any] | None = None,
        *,
        compression_method: str | None = None,
        compression_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        numbers = (*np.atleast_1d(np.asarray(res, object)), ch_num, size)
        if len(numbers) != 4 or any(isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1 for n in numbers):
            raise ValueError(f"res must be (height, width), all sizes integers of at least 1; got {res=}, {ch_num=}, {size=}")
        self.dtypes = parse_dtypes(dtypes)
        self.size = size
        self.frame_shape = (ch_num, *res)  # as kept: (C, H, W)
        self._compressed = compression_method is not None
        if compression_kwargs and compression_method in (None, *AUTO):
            raise CodecError(f"compression_kwargs={dict(compression_kwargs)} needs the name of a codec as compression_method")
        self._method, self._kwargs = compression_method, dict(compression_kwargs or {}) or None
        self._codec: Codec | str = compression_method or "auto"
        if compression_method is not None and compression_method not in AUTO:
            self._codec = make_codec(compression_method, compression_kwargs, elem_type=self.dtypes.frame.name)
        self.clear()

    # ---- writing

    def add(self, frame: ArrayLike, reward: ArrayLike, action: ArrayLike, features: Sequence[Any] | None = None) -> None:
        """Append one step. If a value does not fit, raise ValueError and write nothing.

        :param frame: ``(H, W, C)``
        :param reward: a number
        :param action: a number, or an array with the shape of the action's dtype
        :param features: one value per feature
        """
        values = self._fitted_frame(frame) if self._keeps_frames else None
        number = fitted("reward", reward, self.dtypes.reward)
        act = fitted("action", action, self.dtypes.action.base, self.dtypes.action.shape)
        row = self._fitted_features(features)
        slot = self._added % self.size
        if isinstance(self.frames, ArrayView):
            self.frames.write_cells(np.array([slot]), values[None])  # type: ignore[index]
        elif self.frames is not None:
            self.frames[slot] = values
        self.rewards[slot], self.actions[slot] = number, act
        if self.features is not None:
            self.features[slot] = row
        self._added += 1

    def clear(self) -> None:
        """Remove all steps and free their memory."""
        self._allocate(self.size)

    def _allocate(self, n: int) -> None:
        # Untouched pages of zeros cost nothing: the arrays grow as they are written.
        self._added = 0
        self.frames = self._new_frames(n) if self._keeps_frames else None
        self.rewards = np.zeros(n, self.dtypes.reward)
        self.actions = np.zeros(n, self.dtypes.action)
        self.features = np.zeros(n, self.dtypes.feature_row) if self.dtypes.features else None

    def _new_frames(self, n: int) -> NDArray[Any] | ArrayView:
        shape, dtype = self.frame_shape, self.dtypes.frame
        if not self._compressed:
            return np.zeros((n, *shape), dtype)
        leaf = LeafStore(StorePlan(shape, dtype, n_cells=n, n_streams=1, n_columns=1, codec=self._codec))
        return ArrayView(leaf, 0, (n,), shape, dtype)

    def _fitted_frame(self, frame: ArrayLike) -> NDArray[Any]:
        channels, *res = self.frame_shape
        return np.moveaxis(fitted("frame", frame, self.dtypes.frame, (*res, channels)), -1, 0)

    def _fitted_features(self, features: Sequence[Any] | None) -> tuple[Any, ...]:
        expected = self.dtypes.features
        try:
            given = () if features is None else tuple(features)
        except TypeError:
            raise ValueError(f"features must be a sequence of {len(expected)} values or None, got {features!r}") from None
        if len(given) != len(expected):
            raise ValueError(
                f"Got {len(given)} features; this record keeps {len(expected)}, the ones that dtypes= has dtypes for"
            )
        return tuple(fitted(f"feature {i}", *pair)[()] for i, pair in enumerate(zip(given, expected, strict=True)))

    # ---- reading

    def __len__(self) -> int:
        return min(self._added, self.size)

    def __getitem__(self, index: Any) -> Record:
        """The step at a position, or arrays of the steps at several; 0 is the oldest, -1 the newest."""
        positions = np.arange(len(self))[index]
        oldest = self._added - len(self)
        slots = (np.atleast_1d(positions) + oldest) % self.size
        several = [self._read_frames(slots), self.rewards[slots], self.actions[slots]]
        several.append(None if self.features is None else self.features[slots])
        if np.ndim(positions) > 0:
            return Record(*several)
        return Record(*(None if values is None else values[0] for values in several))

    def __iter__(self) -> Iterator[Record]:
        return self.steps(range(len(self)))

    def steps(self, positions: range) -> Iterator[Record]:
        """The steps at some positions, read a few at a time."""
        added = self._added
        for first in range(0, len(positions), _AT_ONCE):
            several = self[np.array(positions[first : first + _AT_ONCE])]
            for i in range(len(several.reward)):
                if self._added != added:
                    raise RuntimeError("The record was changed while it was iterated over. Read record[:] first")
                yield Record(*(None if values is None else values[i] for values in several))

    def _read_frames(self, slots: NDArray[np.int64]) -> NDArray[Any] | None:
        # Straight from the store: a view would first list all its cells.
        return self.frames.leaf.read(0, slots) if isinstance(self.frames, ArrayView) else _taken(self.frames, slots)

    def memory_usage(self) -> MemoryUsage:
        """Bytes of the steps in plain arrays, and bytes that are stored."""
        rest = len(self) * sum(part.itemsize for part in (self.dtypes.reward, self.dtypes.action, *self.dtypes.features))
        if isinstance(self.frames, ArrayView):
            raw, stored, _, blocks, codec = self.frames.leaf.store.memory_usage()
        else:
            n = len(self) if self._keeps_frames else 0
            raw = stored = n * math.prod(self.frame_shape) * self.dtypes.frame.itemsize
            blocks, codec = 0, "none"
        raw, stored = raw + rest, stored + rest
        return MemoryUsage.of(raw, stored, blocks, codec)

    # ---- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the record to a file, which `sb3_extra_buffers.load_buffer` reads. It contains no pickle."""
        with replacing(path) as file:
            write_buffer(file, self._contents())

    def _contents(self) -> Contents:
        channels, *res = self.frame_shape
        dtypes = self.dtypes
        arguments = {
            "res": list(map(int, res)), "ch_num": int(channels), "size": int(self.size), "dtypes": dtypes.to_json(),
            "compression_method": self._method, "compression_kwargs": self._kwargs,
        }  # fmt: skip
        about = {
            "class": type(self).__name__,
            "arguments": arguments,
            "slots": int(self.size),
            "n_envs": 1,
            "added": self._added,
        }
        arrays: dict[str, NDArray[Any]] = {"rewards": self.rewards, "actions": self.actions}
        if self.features is not None:
            fields = self.features.dtype.names
            arrays |= {f"features.{name}": self.features[name] for name in fields} if fields else {"features": self.features}
        leaves = {"frames": self.frames.leaf} if isinstance(self.frames, ArrayView) else {}
        if isinstance(self.frames, np.ndarray):
            arrays["frames"] = self.frames
        slots = (np.arange(len(self)) + self._added - len(self)) % max(self.size, 1)
        return Contents(about, slots, 1, arrays, leaves)

    @classmethod
    def _from_stored(cls, stored: StoredBuffer) -> RecordBuffer:
        about = stored.about
        try:
            arguments = {**about["arguments"], "dtypes": dtypes_from_json(about["arguments"]["dtypes"])}
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(f"The file describes a record wrongly: {error}") from error
        made, added = make_from_file(cls, {**about, "arguments": arguments}), about.get("added")
        if type(added) is not int or min(added, made.size) != stored.n_steps:
            raise CorruptDataError(f"The file has {stored.n_steps} steps and says {added!r} of {made.size}")
        made._added = added
        target = made._contents()
        if set(stored.names("array")) != set(target.arrays):
            raise CorruptDataError(f"The file has {stored.names('array')}; the record needs {list(target.arrays)}")
        for run in stored.runs:
            put_run(target, run, target.slots[run.first : run.first + run.count, None])
        return made

    def __repr__(self) -> str:
        channels, height, width = self.frame_shape
        what = f"{height}x{width}x{channels} {self.dtypes.frame}" if self._keeps_frames else "no frames"
        return f"<{type(self).__name__} {what}, {len(self)} of {self.size} steps>"

    # ---- videos and datasets

    def save_video(
        self,
        path: str | os.PathLike[str],
        fps: float = 30,
        *,
        start: int = 0,
        stop: int | None = None,
        channels: Sequence[int] | None = None,
    ) -> None:
        """Write frames as a GIF (needs Pillow) or an MP4 (needs imageio), by the suffix of the path.

        :param path: ends with ``.gif`` or ``.mp4``
        :param fps: frames per second, at least 0.01
        :param start: first position, as in ``record[start:stop]``
        :param stop: end of the range, which is not included; None for all
        :param channels: one channel for grey, three for colour; by default the last three if the number of channels is a
            multiple of three, else the last one, which is the newest frame of a stack
        """
        from sb3_extra_buffers.recording.video import save_video

        self._need_frames("save_video")
        save_video(self, path, fps, range(len(self))[start:stop], channels)

    def to_minari(
        self,
        dataset_id: str,
        *,
        action_space: Any = None,
        observation_space: Any = None,
        terminations: ArrayLike | None = None,
        truncations: ArrayLike | None = None,
        **metadata: Any,
    ) -> Any:
        """Write the record as a Minari dataset, without loss. Observations are the frames as they were added, ``(H, W, C)``.

        A record has no frame after the last action of an episode. So in a *terminated* episode, the last frame is repeated as
        the terminal observation, which nobody bootstraps from. In an episode that was *truncated*, or that the record cuts
        off, the last frame is the final observation, and its action and reward are left out.

        :param dataset_id: the name, e.g. ``"mspacman/expert-v0"``
        :param action_space: Gymnasium space of the actions; may be left out where ``env`` is given
        :param observation_space: of the frames; by default a Box with all values of their dtype
        :param terminations: per step, oldest first: whether the episode terminated there; by default never
        :param truncations: the same for truncation
        :param metadata: more arguments of ``minari.create_dataset_from_buffers``: ``env``, ``author``, ...
        :return: the ``minari.MinariDataset``
        """
        from sb3_extra_buffers.recording.minari_dataset import to_minari

        self._need_frames("to_minari")
        spaces = {"action_space": action_space, "observation_space": observation_space}
        return to_minari(self, dataset_id, terminations, truncations, {**metadata, **spaces})

    def _need_frames(self, what: str) -> None:
        if not self._keeps_frames:
            raise ValueError(f"{what} needs frames, and a {type(self).__name__} keeps none. Use a RecordBuffer")


class FramelessRecordBuffer(RecordBuffer):
    """A RecordBuffer that keeps everything except frames: `add` ignores its `frame`."""

    _keeps_frames = False


class DummyRecordBuffer(FramelessRecordBuffer):
    """A RecordBuffer that keeps nothing. It has all methods, and its length stays 0."""

    def add(self, frame: Any, reward: Any, action: Any, features: Any = None) -> None:
        """Do nothing."""

    def clear(self) -> None:
        """Do nothing: there are no steps."""
        self._allocate(0)


def _taken(array: NDArray[Any] | None, slots: NDArray[np.int64]) -> NDArray[Any] | None:
    return None if array is None else array[slots]
