"""The mixin that makes an SB3 buffer compressed: SB3's code does all the work, on columns instead of arrays.

SB3's constructor runs on a hollow observation space, so it allocates no observations. Then the columns are installed, which
support what SB3's own `add`, `sample` and `get` do with arrays. SB3's code draws the random numbers in SB3's order, so
training ends in the same weights, bit for bit.

Below: store. Above: replay.py and rollout.py, whose classes are little more than a list of bases.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import torch as th
from gymnasium import spaces
from numpy import ndarray
from numpy.typing import NDArray
from stable_baselines3.common.buffers import BaseBuffer, DictReplayBuffer, DictRolloutBuffer, ReplayBuffer
from stable_baselines3.common.preprocessing import get_obs_shape
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers._text import counted
from sb3_extra_buffers.compressed.contents import (
    arguments_from_json,
    arguments_of,
    cells_for,
    contents_of,
    description_of,
    flatten_columns,
    known_class,
    put_steps,
)
from sb3_extra_buffers.compressed.former import FormerAttributes, is_pickled_by_former, restore_former
from sb3_extra_buffers.compressed.memory_usage import SB3S, BufferMemoryUsage
from sb3_extra_buffers.compressed.options import CompressionOptions
from sb3_extra_buffers.compressed.signatures import constructor
from sb3_extra_buffers.compressed.stored_leaf import StoredDict, StoredLeaf
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.segments.files import replacing
from sb3_extra_buffers.segments.folders import CheckpointWriter
from sb3_extra_buffers.segments.runs import Contents, StoredBuffer, put_run, write_buffer
from sb3_extra_buffers.spaces import PLAIN, Leaf, hollow, leaves_of
from sb3_extra_buffers.store import MemoryUsage
from sb3_extra_buffers.store.array_view import Reader
from sb3_extra_buffers.store.base import in_words
from sb3_extra_buffers.store.locks import give_way, new_lock, waiting_forks

#: Calls other than `add` that can be interrupted, see `CompressedObservations._interrupted`.
READING, RESETTING = -1, -2
#: The same of a buffer that was closed and has left all it had in its directory: nothing can be added any more.
CLOSED = -3

if TYPE_CHECKING:
    from typing_extensions import Self

Batch = TypeVar("Batch", bound=tuple[Any, ...])


def new_life() -> str:
    """A random name for the steps that are added from now on."""
    return secrets.token_hex(6)


@dataclass
class _Steps:
    """An array of objects in a pickle: only the entries of steps. All others are empty dicts, as in a new SB3 buffer."""

    shape: tuple[int, ...]
    slots: NDArray[np.int64]
    rows: NDArray[Any]

    @classmethod
    def of(cls, array: NDArray[Any], slots: NDArray[np.int64]) -> _Steps:
        """A copy: later steps do not change it."""
        return cls(array.shape, slots, array[slots])

    def array(self) -> NDArray[Any]:
        """The whole array."""
        filled = np.array([{} for _ in range(int(np.prod(self.shape)))], object).reshape(self.shape)
        filled[self.slots] = self.rows
        return filled


class CompressedObservations(FormerAttributes, BaseBuffer):
    """Put before an SB3 buffer class, keeps its observations compressed.

    It also takes the arguments of the SB3 class, by name. The public classes show their whole signature.

    :param dtypes: ``dict(elem_type=..., runs_type=...)``, as `find_buffer_dtypes` makes it. ``elem_type`` asks to store
        another dtype than the space's, which may lose values; without it, nothing is lost
    :param normalize_images: divide images by 255 after sampling (the policy then needs ``normalize_images=False``)
    :param compression_method: codec, e.g. ``"zstd3"``; for Dict observations also one per key
    :param compression_kwargs: options of the codec, e.g. ``dict(level=3)``
    :param decompression_kwargs: accepted for old code; may hold the same options
    :param output_dtype: dtype of the batches: ``"raw"``, the space's own, or ``"float"``, float32
    :param frame_stack: frames in an observation, for Dict observations also one per key. ``"auto"`` detects it; 1 turns
        off the sharing of frames within a stack
    :param block_frames: frames that are compressed together; by default it depends on the size of a frame
    """

    #: Columns that share a store: `observations`, and for replay buffers `next_observations`.
    _column_names: tuple[str, ...]
    #: Whether SB3 reads both columns with the same indices, so that one gather serves both.
    _reads_together = True
    #: The class of the keywords, and the class of a leaf. Device buffers have their own.
    _options_class: ClassVar[type[CompressionOptions]] = CompressionOptions
    _leaf_class: ClassVar[type[StoredLeaf]] = StoredLeaf
    #: What was interrupted and is to be made up for by the next call: an `add` to this slot, READING or RESETTING. Or CLOSED.
    _interrupted: int | None = None
    #: Number of steps ever added, and a name for them. A checkpoint compares both to find the new steps.
    _age = 0
    _life = ""
    #: `_age` after the `add` that was interrupted.
    _next_age = 0
    _writer: CheckpointWriter | None = None
    #: The arrays that SB3 itself would keep: how many per observation (0: as many as there are columns), and their dtypes.
    _sb3_columns = 0
    _sb3_dtypes: Mapping[str, np.dtype[Any]] = MappingProxyType({})
    #: The advice for an observation space of the wrong kind, Dict or not. None: the space is not checked.
    _instead: ClassVar[str | None] = None

    @constructor
    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        **arguments: Any,
    ) -> None: ...

    @classmethod
    def _storage_keywords(cls) -> list[str]:
        """Names of the keywords that this library adds to SB3's arguments."""
        return cls._options_class.keywords()

    @classmethod
    def _classes_behind(cls) -> tuple[type, ...]:
        """The classes after this mixin in the MRO: SB3's, and a user's own classes listed after a buffer of this library."""
        return cls.__mro__[cls.__mro__.index(CompressedObservations) + 1 :]

    def _set_up(self, arguments: dict[str, Any]) -> None:
        """Construct the buffer. SB3's constructor gets all arguments except the storage keywords.

        :param arguments: the arguments that were given to the constructor, by name
        """
        buffer_size, action_space = arguments.pop("buffer_size"), arguments.pop("action_space")
        observation_space = arguments.pop("observation_space")
        self._check_space(observation_space)
        storage = {name: arguments.pop(name) for name in self._storage_keywords() if name in arguments}
        self._options = self._options_class(**storage)
        self._lock, self._life = new_lock(), new_life()
        self._leaves: dict[str, StoredLeaf] = {}
        self._fresh: list[NDArray[Any]] = []  # arrays decoded for the batch in progress; nobody else holds them
        obs_shape = get_obs_shape(observation_space)
        super().__init__(buffer_size, hollow(observation_space), action_space, **arguments)
        arrays: Any = vars(self).get(self._column_names[0])  # hollow, but of the dtype that this version of SB3 chooses
        if arrays is not None:
            by_key = arrays if isinstance(arrays, dict) else {PLAIN: arrays}
            self._sb3_dtypes = {key: array.dtype for key, array in by_key.items()}
        self.observation_space, self.obs_shape = observation_space, obs_shape  # type: ignore[assignment]
        self._is_dict = isinstance(observation_space, spaces.Dict)
        leaves = leaves_of(observation_space, obs_shape)
        n_columns = len(self._column_names)
        plans = self._options.plans(leaves, n_cells=self.buffer_size * self.n_envs, n_streams=self.n_envs, n_columns=n_columns)
        for leaf in leaves:
            self._leaves[leaf.key] = self._leaf_class(leaf, plans[leaf.key], self.buffer_size, self.n_envs)
        self._set_up_leaves()
        self._install_columns()

    def _check_space(self, space: spaces.Space[Any]) -> None:
        """Raise ValueError if a Dict space is given to a class for plain spaces, or a plain space to a Dict class."""
        name, needs_dict = type(self).__name__, isinstance(self, (DictReplayBuffer, DictRolloutBuffer))
        if self._instead is None:
            return
        if needs_dict and not isinstance(space, spaces.Dict):
            raise ValueError(f"{name} needs a Dict observation space, got {space}. {self._instead}")
        if isinstance(space, spaces.Dict) and not needs_dict:
            raise ValueError(f"{name} takes no Dict observation space, got one with the keys {list(space)}. {self._instead}")

    def _set_up_leaves(self) -> None:
        """Give the leaves the buffer's lock, and readers that share a batch."""
        #: The whole observation, for checking and writing.
        self._stored: Any = StoredDict(self._leaves) if self._is_dict else self._leaves[PLAIN]
        for leaf in self._leaves.values():
            leaf.lock = self._lock
            leaf.reader = Reader(len(self._column_names) if self._reads_together else 1, self._fresh)

    def _install_columns(self) -> None:
        """Put columns in place of SB3's arrays."""
        for number, name in enumerate(self._column_names):
            columns = {key: leaf.column(number) for key, leaf in self._leaves.items()}
            setattr(self, name, columns if self._is_dict else columns[PLAIN])

    def memory_usage(self) -> BufferMemoryUsage:
        """What the observations take, beside what SB3's own buffer takes for the transitions that are there."""
        with self._lock:
            keys = {key: self._beside_sb3(leaf) for key, leaf in self._leaves.items()}
        raw, stored = sum(usage.raw_bytes for usage in keys.values()), sum(usage.stored_bytes for usage in keys.values())
        return BufferMemoryUsage(raw, stored, stored / raw if raw else 0.0, sum(usage.blocks for usage in keys.values()), keys)

    def _beside_sb3(self, leaf: StoredLeaf) -> MemoryUsage:
        """What a leaf takes, and what it takes in the arrays of SB3, which may be fewer or of another dtype."""
        usage, n_columns = leaf.store.memory_usage(), len(self._column_names)
        sb3_bytes = (self._sb3_columns or n_columns) * self._sb3_dtypes.get(leaf.leaf.key, leaf.leaf.dtype).itemsize
        raw = usage.raw_bytes * sb3_bytes // (n_columns * leaf.plan.dtype.itemsize)
        return MemoryUsage.of(raw, usage.stored_bytes, usage.blocks, usage.codec)

    def __repr__(self) -> str:
        transitions = counted(self.buffer_size * self.n_envs, "transition")
        codecs = {key: leaf.method or "codec undecided yet" for key, leaf in self._leaves.items()}
        beside_sb3 = in_words(self.memory_usage(), SB3S)
        return (
            f"<{type(self).__name__}: {self.size() * self.n_envs:,} of {transitions} ({counted(self.n_envs, 'env')}), "
            f"observations: {beside_sb3}, "
            f"{', '.join(f'{key}: {codec}' if self._is_dict else codec for key, codec in codecs.items())}>"
        )

    # ---- writing

    def _make_up(self) -> None:
        """Clean up after a call that was interrupted. It can itself be interrupted and repeated."""
        for leaf in self._leaves.values():
            leaf.reader.end()
        slot = self._interrupted
        if slot == CLOSED:
            return
        if slot == RESETTING:
            self._reset()
        elif slot is not None and slot >= 0 and (self.pos != slot or self.buffer_size == 1):
            self._stored.commit_step()
            self._complete_add(slot)
            self._age = self._next_age
        self._interrupted = None

    def _reset(self) -> None:
        """Do all of `reset`; repeated if it was interrupted."""

    def _complete_add(self, slot: int) -> None:
        """Complete an SB3 `add` that was interrupted after it had moved `pos` from this slot."""

    def size(self) -> int:
        """Transitions per env that can be sampled."""
        with self._lock:
            if self._interrupted is not None:
                self._make_up()
            return super().size()

    def reset(self) -> None:
        """SB3's `reset`."""
        with self._lock:
            if self._interrupted is not None:
                self._make_up()
            super().reset()
            self._age, self._life = 0, new_life()

    # ---- reading

    def _reading(self, make_batch: Callable[[], Batch], *, is_pairs: bool = True) -> Batch:
        """A batch by SB3's code, with no writer in between.

        :param is_pairs: read the columns together
        """
        if waiting_forks:
            give_way()
        with self._lock:
            if self._interrupted is not None:
                self._make_up()
            leaves = self._leaves.values()
            try:
                for leaf in leaves:
                    leaf.reader.begin(is_pairs=is_pairs)
                    leaf.store.expect_read()
                batch = self._finish(make_batch())
                for leaf in leaves:
                    leaf.reader.end()
            except BaseException:
                self._interrupted = READING
                self._make_up()
                raise
            return batch

    def to_torch(self, array: NDArray[Any], copy: bool = True) -> th.Tensor:
        """SB3's conversion, except that a freshly decoded array becomes the tensor's memory: nobody else holds it.

        On the CPU, `from_numpy` and `clone` take half the time of `torch.tensor`.
        """
        for i, decoded in enumerate(self._fresh):
            if array is decoded:
                copy = False
                del self._fresh[i]  # only once: from now on it belongs to the tensor
                break
        if self.device.type != "cpu" or type(array) is not ndarray or not array.flags.writeable:
            return super().to_torch(array, copy)
        try:
            tensor = th.from_numpy(array)
        # strides or dtypes that torch does not have: SB3 converts them, or raises its own error
        except (TypeError, ValueError):
            return super().to_torch(array, copy)
        return tensor.clone() if copy else tensor

    def _finish(self, batch: Batch) -> Batch:
        """Apply `normalize_images` and `output_dtype` to a batch that SB3 has made."""
        if not self._options.normalize_images and self._options.output_dtype == "raw":
            return batch
        names = [name for name in ("observations", "next_observations") if name in batch._fields]  # type: ignore[attr-defined]
        changed: Batch = batch._replace(**{name: self._converted(getattr(batch, name)) for name in names})  # type: ignore[attr-defined]
        return changed

    def _converted(self, observation: Any) -> Any:
        if isinstance(observation, dict):
            return {key: self._converted_leaf(self._leaves[key].leaf, value) for key, value in observation.items()}
        return self._converted_leaf(self._leaves[PLAIN].leaf, observation)

    def _converted_leaf(self, leaf: Leaf, value: th.Tensor) -> th.Tensor:
        if self._options.normalize_images and leaf.is_image:
            return value.float() / 255.0
        return value.float() if self._options.output_dtype == "float" else value

    # ---- saving, pickling and copying

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the buffer to a file, which `sb3_extra_buffers.load_buffer` reads. It contains no pickle.

        A new file replaces an old one only when it is complete.
        """
        with replacing(path) as file, self._at_rest() as contents:
            write_buffer(file, self._described(contents))

    def _described(self, contents: Contents) -> Contents:
        """The contents, with everything that is needed to make the buffer without a pickle."""
        if known_class(self) is not type(self):
            base = self._like(1, known_class(self))
            held = contents_of(base, np.arange(0))
            if more := sorted({*contents.arrays, *contents.whole} - {*held.arrays, *held.whole}):
                raise TypeError(
                    f"{type(self).__name__} keeps {', '.join(more)}, which a {type(base).__name__} does not: files are read "
                    "by the classes of this library. Save it with pickle (model.save_replay_buffer) instead"
                )
        return replace(contents, about={**contents.about, **description_of(self)})

    def slice(self, first: int, last: int) -> Self:
        """A new buffer with some of the steps.

        :param first: first step; 0 is the oldest, negative numbers count from the newest
        :param last: end of the range, which is not included
        """
        with self._at_rest() as contents:
            first, last, _ = slice(first, last).indices(contents.n_steps)
            count = max(last - first, 0)
            made = self._like(max(count, 1))
            to = cells_for(count, self.n_envs, np.arange(count))
            put_steps(made, contents.run(first, first + count), to)
            made._stand_after(count)
            return made

    def checkpoint(
        self, folder: str | os.PathLike[str], *, background: bool = False, extra: dict[str, Any] | None = None
    ) -> None:
        """Save what is new since the last checkpoint in this folder. `load_buffer(folder)` restores the whole buffer.

        :param folder: of this buffer alone; is made if it does not exist
        :param background: return when what is new is copied, and let a thread write it. The next call waits for it and raises
            what went wrong
        :param extra: what else is to be listed in ``checkpoint.json``, as JSON; what was listed there if it is not given
        """
        writer = self._checkpoint_writer(folder)
        directory = getattr(self._options, "directory", None)
        with self._at_rest() as contents:
            if directory is not None and os.path.abspath(folder) == directory:
                contents.about["lives_here"] = True
            writer.write(
                self._described(contents), life=self._life, age=self._age, changes=self._rewrites(), extra=extra,
                background=background,
            )  # fmt: skip

    def wait_for_checkpoint(self) -> None:
        """Wait until a checkpoint in the background is on disk. Raises the error of its thread."""
        if self._writer is not None:
            self._writer.wait()

    def _checkpoint_writer(self, folder: str | os.PathLike[str]) -> CheckpointWriter:
        if self._writer is None or self._writer.folder != Path(folder):
            self.wait_for_checkpoint()
            self._writer = CheckpointWriter(folder)
        return self._writer

    def _rewrites(self) -> list[int]:
        """Numbers that change when observations are written other than by `add`."""
        return [leaf.n_rewrites for leaf in self._leaves.values()]

    def _go_on_from(self, stored: StoredBuffer) -> None:
        """This buffer is what a checkpoint holds: the next one goes on from there."""
        if stored.folder is not None:
            self._life, self._age = stored.life, stored.age
            self._checkpoint_writer(stored.folder).trust(stored.life, self._rewrites(), stored.list_checksum)

    def _like(self, n_slots: int, made_class: Any = None) -> Self:
        """An empty buffer with the same arguments and another number of slots."""
        per_env = self.n_envs if isinstance(self, ReplayBuffer) else 1
        arguments = arguments_from_json(arguments_of(self))
        arguments.pop("max_memory", None)  # it has the slots that it needs
        if issubclass(type(self), HerReplayBuffer):
            arguments["env"] = vars(self)["env"]
        made: Self = (made_class or type(self))(
            n_slots * per_env, self.observation_space, self.action_space, device=self.device, n_envs=self.n_envs, **arguments
        )
        return made

    @contextmanager
    def _at_rest(self) -> Iterator[Contents]:
        """The contents of the buffer, under its lock."""
        with self._lock:
            if self._interrupted is not None:
                self._make_up()
            yield contents_of(self, self._kept_slots())

    def _kept_slots(self) -> NDArray[np.int64]:
        """The slots of all steps, the oldest first."""
        return np.arange(self.buffer_size if self.full else self.pos)

    def _stand_after(self, n_steps: int) -> None:
        """Set `pos` as after so many steps from slot 0 on."""
        self.pos, self.full, self._age = n_steps % self.buffer_size, n_steps == self.buffer_size, n_steps

    def __getstate__(self) -> dict[str, Any]:
        """The state for a pickle, as of one moment: other threads may add while it is written.

        Observations and arrays are stored as segments with checksums, and only the steps that exist.
        """
        with self._at_rest() as contents:
            parent, file = super(), BytesIO()
            write_buffer(file, replace(contents, objects={}))
            state: Any = parent.__getstate__() if hasattr(parent, "__getstate__") else self.__dict__
            elsewhere = {
                "_writer",
                "_batch_view",
                "_add_view",
                "_lock",
                "_stored",
                "_fresh",
                "_leaves",
                *self._column_names,
                *contents.arrays,
                *contents.whole,
            }
            saved = {name: value for name, value in state.items() if name not in elsewhere}
            objects = {name: value for name, value in saved.items() if isinstance(value, ndarray) and value.dtype == object}
            saved |= {name: _Steps.of(value, contents.slots) for name, value in objects.items()}
            return {
                **saved, "_segments": file.getvalue(),
                "_arrays": {name: (value.shape, value.dtype.str) for name, value in contents.arrays.items()},
                "_leaves": {key: (type(leaf), leaf.hollow_state()) for key, leaf in self._leaves.items()},
            }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        if is_pickled_by_former(self, state):
            restore_former(self, state)
            return
        if "_segments" not in state:
            raise CorruptDataError("The buffer was pickled by an earlier version of sb3-extra-buffers, which cannot be read")
        state = {name: value.array() if isinstance(value, _Steps) else value for name, value in state.items()}
        stored, arrays = StoredBuffer.of_file(BytesIO(state.pop("_segments"))), state.pop("_arrays")
        state |= {name: np.zeros(shape, dtype) for name, (shape, dtype) in arrays.items()}
        state |= {name: stored.whole(name) for name in stored.names("whole")}
        state.update(_lock=new_lock(), _fresh=[], _life=new_life(), _leaves=dict(state["_leaves"]))
        for key, (leaf_class, saved) in state["_leaves"].items():
            state["_leaves"][key] = leaf = leaf_class.__new__(leaf_class)
            leaf.__setstate__(saved)
        parent = super()
        if hasattr(parent, "__setstate__"):
            parent.__setstate__(state)
        else:
            self.__dict__.update(state)
        self._options = copy(self._options)
        vars(self._options).pop("keep", None)  # the original keeps its directory
        self._set_up_leaves()
        self._install_columns()
        target = replace(
            contents_of(self, self._kept_slots()), objects={}, arrays={name: getattr(self, name) for name in arrays}
        )
        if target.n_steps != stored.n_steps or any(stored.about.get(name) != value for name, value in target.about.items()):
            raise CorruptDataError(f"The pickled buffer is damaged: it is {target.about}, and its segments say {stored.about}")
        to = cells_for(target.n_steps, self.n_envs, target.slots)
        for run in stored.runs:
            put_run(target, run, to[run.first : run.first + run.count])
        if getattr(self, "generator_ready", False):
            flatten_columns(self)

    def __copy__(self) -> Any:
        """A shallow copy: it shares the stores and the lock of the original."""
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied
