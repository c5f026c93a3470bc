"""The mixin that makes an SB3 buffer compressed: SB3's code does all the work, on columns instead of arrays.

SB3's constructor runs on a hollow observation space, so it allocates no observations; then the columns are installed. From
there on SB3's own `add`, `sample` and `get` find something that answers like the arrays they know. Random numbers are drawn
by SB3's code in SB3's order, which is why training ends in the same weights, bit for bit.

Below: store. Above: replay.py and rollout.py, whose classes are little more than an MRO.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch as th
from gymnasium import spaces
from numpy import ndarray
from numpy.typing import NDArray
from stable_baselines3.common.buffers import BaseBuffer, DictReplayBuffer, DictRolloutBuffer
from stable_baselines3.common.preprocessing import get_obs_shape

from sb3_extra_buffers.compressed.options import CompressionOptions
from sb3_extra_buffers.compressed.signatures import constructor
from sb3_extra_buffers.compressed.stored_leaf import StoredDict, StoredLeaf
from sb3_extra_buffers.spaces import PLAIN, Leaf, hollow, leaves_of
from sb3_extra_buffers.store import MemoryUsage
from sb3_extra_buffers.store.array_view import Reader
from sb3_extra_buffers.store.locks import give_way, new_lock, waiting_forks

#: What may be interrupted beside an `add`, see `CompressedObservations._interrupted`.
READING, RESETTING = -1, -2

Batch = TypeVar("Batch", bound=tuple[Any, ...])


class BufferMemoryUsage(NamedTuple):
    """What the observations of a buffer take, in all and by key. See `MemoryUsage`."""

    raw_bytes: int
    stored_bytes: int
    ratio: float
    blocks: int
    keys: dict[str, MemoryUsage]

    @property
    def codec(self) -> str:
        """How new observations are encoded, and why."""
        return "; ".join(f"{key}: {usage.codec}" if key != PLAIN else usage.codec for key, usage in self.keys.items())


class CompressedObservations(BaseBuffer):
    """Put before an SB3 buffer class, keeps its observations compressed.

    It also takes the arguments of the SB3 class, by name. The public classes show their whole signature.

    :param dtypes: ``dict(elem_type=..., runs_type=...)``, as `find_buffer_dtypes` makes it. ``elem_type`` asks to store
        another dtype than the space's; left out, nothing is ever lost
    :param normalize_images: divide images by 255 after sampling (the policy then needs ``normalize_images=False``)
    :param compression_method: codec, e.g. ``"zstd3"``; for Dict observations also one per key
    :param compression_kwargs: options of the codec, e.g. ``dict(level=3)``
    :param decompression_kwargs: kept for compatibility; may hold the same options
    :param output_dtype: dtype of the batches: ``"raw"``, the space's own, or ``"float"``, float32
    :param frame_stack: frames in an observation, for Dict observations also one per key. ``"auto"`` detects it; 1 turns
        off the sharing of frames within a stack
    :param block_frames: frames that are compressed together; chosen by the size of a frame if not given
    """

    #: Columns that share a store: `observations`, and for replay buffers `next_observations`.
    _column_names: tuple[str, ...]
    #: Whether SB3 reads the columns with the same indices, so that one gather can serve both.
    _reads_together = True
    #: What keywords there are, and what holds a leaf; device buffers have their own.
    _options_class: ClassVar[type[CompressionOptions]] = CompressionOptions
    _leaf_class: ClassVar[type[StoredLeaf]] = StoredLeaf
    #: What was interrupted and is to be made up for by the next call: an `add` to this slot, READING or RESETTING.
    _interrupted: int | None = None
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
        """The classes that follow this mixin: SB3's, and a user's own that are named behind a buffer of this library."""
        return cls.__mro__[cls.__mro__.index(CompressedObservations) + 1 :]

    def _set_up(self, arguments: dict[str, Any]) -> None:
        """Construct the buffer. SB3's constructor gets all arguments but the storage keywords.

        :param arguments: the arguments that were given to the constructor, by name
        """
        buffer_size, action_space = arguments.pop("buffer_size"), arguments.pop("action_space")
        observation_space = arguments.pop("observation_space")
        self._check_space(observation_space)
        storage = {name: arguments.pop(name) for name in self._storage_keywords() if name in arguments}
        self._options = self._options_class(**storage)
        self._lock = new_lock()
        self._leaves: dict[str, StoredLeaf] = {}
        self._fresh: list[NDArray[Any]] = []  # decoded for the batch that is being made, held by nobody else
        obs_shape = get_obs_shape(observation_space)
        super().__init__(buffer_size, hollow(observation_space), action_space, **arguments)
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
        """Let the buffer and its leaves have one lock, and read for one batch."""
        #: All of the observation, to check and to write.
        self._stored: Any = StoredDict(self._leaves) if self._is_dict else self._leaves[PLAIN]
        for leaf in self._leaves.values():
            leaf.lock = self._lock
            leaf.reader = Reader(leaf, len(self._column_names) if self._reads_together else 1, self._fresh)

    def _install_columns(self) -> None:
        """Put columns where SB3 has its arrays."""
        for number, name in enumerate(self._column_names):
            columns = {key: leaf.column(number) for key, leaf in self._leaves.items()}
            setattr(self, name, columns if self._is_dict else columns[PLAIN])

    def memory_usage(self) -> BufferMemoryUsage:
        """What the observations would take as plain arrays, and what they take."""
        with self._lock:
            keys = {key: leaf.store.memory_usage() for key, leaf in self._leaves.items()}
        raw, stored = sum(usage.raw_bytes for usage in keys.values()), sum(usage.stored_bytes for usage in keys.values())
        return BufferMemoryUsage(raw, stored, stored / raw if raw else 0.0, sum(usage.blocks for usage in keys.values()), keys)

    def __repr__(self) -> str:
        usage = self.memory_usage()
        written = self.buffer_size if self.full else self.pos
        return (
            f"<{type(self).__name__} {written} of {self.buffer_size} steps of {self.n_envs} env{'s' * (self.n_envs != 1)}, "
            f"observations in {usage.stored_bytes / 1e6:.3g} MB instead of {usage.raw_bytes / 1e6:.3g} MB; {usage.codec}>"
        )

    # ---- writing

    def _make_up(self) -> None:
        """Put everything in order after a call that was interrupted. Can be interrupted itself, and repeated."""
        for leaf in self._leaves.values():
            leaf.reader.end()
        slot = self._interrupted
        if slot == RESETTING:
            self._reset()
        elif slot is not None and slot >= 0 and (self.pos != slot or self.buffer_size == 1):
            self._stored.commit_step()
            self._complete_add(slot)
        self._interrupted = None

    def _reset(self) -> None:
        """Do all of `reset`, once more if it was interrupted."""

    def _complete_add(self, slot: int) -> None:
        """Do what is left of SB3's `add`, which has moved `pos` on from this slot."""

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

    # ---- reading

    def _reading(self, make_batch: Callable[[], Batch]) -> Batch:
        """A batch by SB3's code, with columns read together and no writer in between."""
        if waiting_forks:
            give_way()
        with self._lock:
            if self._interrupted is not None:
                self._make_up()
            readers = [leaf.reader for leaf in self._leaves.values()]
            try:
                for reader in readers:
                    reader.begin()
                batch = self._finish(make_batch())
                for reader in readers:
                    reader.end()
            except BaseException:
                self._interrupted = READING
                self._make_up()
                raise
            return batch

    def to_torch(self, array: NDArray[Any], copy: bool = True) -> th.Tensor:
        """SB3's conversion, but for what was just decoded: it is nobody else's, so it becomes the tensor's memory.

        On the CPU, torch takes on an array and copies its memory in half the time that `torch.tensor` needs.
        """
        for i, decoded in enumerate(self._fresh):
            if array is decoded:
                copy = False
                del self._fresh[i]  # for once: from now on it is the tensor's
                break
        if self.device.type != "cpu" or type(array) is not ndarray or not array.flags.writeable:
            return super().to_torch(array, copy)
        try:
            tensor = th.from_numpy(array)
        except (TypeError, ValueError):  # strides or dtypes that torch has no tensor for: SB3 says so, or finds a way
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

    # ---- pickling and copying

    def __getstate__(self) -> dict[str, Any]:
        """All that is to be saved, of one moment: other threads may add while it is written."""
        with self._lock:
            if self._interrupted is not None:
                self._make_up()
            parent = super()
            state: Any = parent.__getstate__() if hasattr(parent, "__getstate__") else self.__dict__
            saved = {name: value.copy() if type(value) is ndarray else value for name, value in state.items()}
            saved["_leaves"] = {key: (type(leaf), leaf.__getstate__()) for key, leaf in self._leaves.items()}
            for name in self._column_names:
                columns = getattr(self, name) if self._is_dict else {PLAIN: getattr(self, name)}
                saved[name] = {key: column.rearranged_cells for key, column in columns.items()}
            for name in ("_lock", "_stored", "_fresh"):
                del saved[name]
            return saved

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = {**state, "_lock": new_lock(), "_fresh": [], "_leaves": dict(state["_leaves"])}
        cells = {name: state.pop(name) for name in self._column_names}
        for key, (leaf_class, saved) in state["_leaves"].items():
            state["_leaves"][key] = leaf = leaf_class.__new__(leaf_class)
            leaf.__setstate__(saved)
        parent = super()
        if hasattr(parent, "__setstate__"):
            parent.__setstate__(state)
        else:
            self.__dict__.update(state)
        self._set_up_leaves()
        self._install_columns()
        for name, rearranged in cells.items():  # as SB3 leaves them when a rollout was read
            columns = getattr(self, name)
            for key, given in rearranged.items():
                if given is None:
                    continue
                if self._is_dict:
                    columns[key] = columns[key].rearranged(given)
                else:
                    setattr(self, name, columns.rearranged(given))

    def __copy__(self) -> Any:
        """A shallow copy: it has the stores of the original, and with them its lock."""
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied
