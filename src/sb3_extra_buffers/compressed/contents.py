"""Buffer <-> Contents: the parts of a buffer of any class, and how to make a similar buffer with other sizes.

Above: the mixin's `save` and `slice`, and persistence, which loads. Below: segments.
"""

from __future__ import annotations

import enum
import inspect
from importlib import import_module
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.her.goal_selection_strategy import GoalSelectionStrategy

from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.segments.runs import Contents, Ints, Run, put_run
from sb3_extra_buffers.segments.spaces import space_to_json
from sb3_extra_buffers.store.format import number_dtype
from sb3_extra_buffers.store.leaf import LeafStore

#: Arguments that are not read from a buffer: they are given again, or follow from its spaces. A file from someone else must
#: not name a directory to write to.
_GIVEN = {
    "self", "args", "kwargs", "buffer_size", "observation_space", "action_space", "device", "n_envs", "env",
    "optimize_memory_usage", "buffers", "directory", "keep",
}  # fmt: skip

#: All classes that a file may name, and their modules. Nothing else is ever imported for a file.
CLASSES = {
    name: module
    for module, names in {
        "sb3_extra_buffers.compressed": (
            "CompressedReplayBuffer", "CompressedDictReplayBuffer", "CompressedHerReplayBuffer", "CompressedNStepReplayBuffer",
            "CompressedRolloutBuffer", "CompressedDictRolloutBuffer", "CompressedArray",
        ),
        "sb3_extra_buffers.contrib": (
            "CompressedMaskableRolloutBuffer", "CompressedMaskableDictRolloutBuffer", "CompressedRecurrentRolloutBuffer",
            "CompressedRecurrentDictRolloutBuffer",
        ),
        "sb3_extra_buffers.gpu_buffers": (
            "GpuReplayBuffer", "GpuDictReplayBuffer", "GpuRolloutBuffer", "GpuDictRolloutBuffer",
        ),
        "sb3_extra_buffers.prioritized": (
            "CompressedPrioritizedReplayBuffer", "CompressedPrioritizedDictReplayBuffer",
            "CompressedPrioritizedNStepReplayBuffer",
        ),
        "sb3_extra_buffers.recording": ("RecordBuffer", "FramelessRecordBuffer", "DummyRecordBuffer"),
    }.items()
    for name in names
}  # fmt: skip
#: Arguments that a file may give as numbers, from and up to which; and those that count something, from which on.
_NUMBERS = {"gamma": (0, 1), "gae_lambda": (0, 1), "alpha": (0, 1), "eps": (0, 1e30)}
_COUNTS = {"n_steps": 1, "n_sampled_goal": 0}
#: How a schedule of SB3's that can be written down stands in JSON.
_LINEAR = "linear schedule"
#: What sb3-contrib only keeps from one minibatch to the next.
_SCRATCH = ("seq_start_indices",)


def contents_of(buffer: Any, slots: Ints) -> Contents:
    """The parts of a buffer. Arrays are not copied, so the caller must hold the lock.

    :param slots: the slots of its steps, oldest first
    """
    generator_ready = bool(getattr(buffer, "generator_ready", False))
    arrays: dict[str, NDArray[Any]] = {}
    objects: dict[str, NDArray[Any]] = {}
    whole: dict[str, NDArray[Any]] = {}
    n_slots = int(getattr(buffer, "_capacity", buffer.buffer_size))
    for name, value in vars(buffer).items():
        if not isinstance(value, np.ndarray) or name in _SCRATCH:
            continue
        by_step = value.ndim >= 2 and len(value) == n_slots and not generator_ready
        if value.dtype == object and by_step and getattr(buffer, "copy_info_dict", True):
            objects[name] = value
        elif value.dtype.kind in "biufc":
            (arrays if by_step else whole)[name] = value
    about = {
        "class": known_class(buffer).__name__, "slots": n_slots, "n_envs": int(buffer.n_envs),
        "pos": int(buffer.pos), "full": bool(buffer.full), "oldest": int(slots[0]) if len(slots) else 0,
        "generator_ready": generator_ready,
    }  # fmt: skip
    if buffer.buffer_size != n_slots:
        about["ring"] = int(buffer.buffer_size)
    leaves: dict[str, LeafStore] = dict(buffer._leaves)
    changing = tuple(name for name in getattr(buffer, "_changing_arrays", ()) if name in arrays)
    return Contents(about, slots, buffer.n_envs, arrays, leaves, objects, whole, changing)


def description_of(buffer: Any) -> dict[str, Any]:
    """What is needed, besides sizes, to make an empty buffer like this one, as JSON."""
    return {
        "arguments": arguments_of(buffer), "observation_space": space_to_json(buffer.observation_space),
        "action_space": space_to_json(buffer.action_space),
    }  # fmt: skip


def class_named(name: str) -> Any:
    """Import one of `CLASSES`. Done late, because sb3-contrib may not be installed."""
    return getattr(import_module(CLASSES[name]), name)


def known_class(buffer: Any) -> type:
    """The class of this library that a buffer has, or that its class is derived from."""
    package = __name__.partition(".")[0]
    for one in type(buffer).__mro__:  # leaves out mixins that store nothing
        if one.__module__.partition(".")[0] == package and hasattr(one, "_storage_keywords"):
            return one
    raise TypeError(f"{type(buffer).__name__} is no buffer of {package}")


def constructor_arguments(buffer: Any, made_class: type) -> dict[str, Any]:
    """Arguments of a class, or of its bases, that would make a buffer like this one, as far as the buffer keeps them."""
    constructors = [vars(one)["__init__"] for one in made_class.__mro__ if "__init__" in vars(one)]
    names = dict.fromkeys(name for one in constructors for name in inspect.signature(one).parameters)
    return {name: getattr(buffer, name) for name in names if name not in _GIVEN and hasattr(buffer, name)}


def arguments_of(buffer: Any) -> dict[str, Any]:
    """The arguments that make a buffer like this one, except spaces and sizes, as JSON."""
    made_class = known_class(buffer)
    arguments = constructor_arguments(buffer, made_class)
    arguments |= {name: getattr(buffer._options, name) for name in buffer._storage_keywords() if name not in _GIVEN}
    return {name: argument_to_json(value, name) for name, value in arguments.items()}


def argument_to_json(value: Any, name: str) -> Any:
    """An argument of a constructor, as JSON. TypeError if it cannot be.

    :param name: what it is called
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.integer | np.floating):
        return value.item()
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, th.device):
        return str(value)
    if isinstance(value, LinearSchedule):
        return {_LINEAR: [value.start, value.end, value.end_fraction]}
    if isinstance(value, list | tuple):
        return [argument_to_json(one, name) for one in value]
    if hasattr(value, "items"):
        return {str(key): argument_to_json(one, name) for key, one in value.items()}
    try:
        return np.dtype(value).name
    except TypeError:
        raise TypeError(f"{name}={value!r} cannot be saved in a file. Save the buffer with pickle instead") from None


def arguments_from_json(said: Any) -> dict[str, Any]:
    """Arguments for a constructor, from JSON. CorruptDataError if they are not valid."""
    if not isinstance(said, dict):
        raise CorruptDataError("A file describes no arguments of its buffer")
    arguments = dict(said)
    for name, value in arguments.items():
        if name in _NUMBERS and not (type(value) in (int, float) and _NUMBERS[name][0] <= value <= _NUMBERS[name][1]):
            raise CorruptDataError(f"A file says {name}={value!r}; it must be a number between {_NUMBERS[name]}")
        if name in _COUNTS and not (type(value) is int and _COUNTS[name] <= value < 2**20):
            raise CorruptDataError(f"A file says {name}={value!r}; it must be a whole number from {_COUNTS[name]} on")
    if isinstance(arguments.get("dtypes"), dict):
        for value in arguments["dtypes"].values():
            number_dtype(value)
    if "hidden_state_shape" in arguments:
        arguments["hidden_state_shape"] = tuple(arguments["hidden_state_shape"])
    schedule = arguments.get("beta")
    if isinstance(schedule, dict):
        numbers = schedule.get(_LINEAR)
        if not isinstance(numbers, list) or len(numbers) != 3 or not all(type(one) in (int, float) for one in numbers):
            raise CorruptDataError(f"A file names the schedule {schedule!r}")
        arguments["beta"] = LinearSchedule(*numbers)
    strategy = arguments.get("goal_selection_strategy")
    if strategy is not None:
        try:
            arguments["goal_selection_strategy"] = GoalSelectionStrategy[strategy]
        except KeyError:
            raise CorruptDataError(f"A file names the goal selection strategy {strategy!r}") from None
    return arguments


def put_steps(buffer: Any, run: Run, to: Ints, *, encode: bool = False) -> None:
    """Put steps into cells of a buffer; see `put_run`. Does not change `pos`."""
    put_run(contents_of(buffer, np.arange(0)), run, to, encode=encode)


def cells_for(n_steps: int, n_envs: int, slots: Ints) -> Ints:
    """Cells for the last steps: the newest step goes to the last of these slots. Steps that do not fit have no cell.

    :return: ``(n_steps, n_envs)``, -1 for no cell
    """
    to = np.full((n_steps, n_envs), -1, np.int64)
    kept = min(n_steps, len(slots))
    to[n_steps - kept :] = slots[len(slots) - kept :, None] * n_envs + np.arange(n_envs)
    return to


def restore_state(buffer: Any, about: dict[str, Any], whole: dict[str, NDArray[Any]]) -> None:
    """Restore `pos`, `full` and the other state of the saved buffer, which has the same slots and envs."""
    pos, full, is_ready = (about.get(name) for name in ("pos", "full", "generator_ready"))
    buffer.buffer_size = about.get("ring", buffer.buffer_size)
    if type(pos) is not int or not 0 <= pos <= buffer.buffer_size or type(full) is not bool:
        raise CorruptDataError(f"A file is damaged: it says pos={pos!r} and full={full!r} of {buffer.buffer_size} slots")
    if is_ready and not isinstance(buffer, RolloutBuffer):
        raise CorruptDataError(f"A file says that {type(buffer).__name__} was read, as a rollout is")
    for name, array in whole.items():
        old = vars(buffer).get(name)
        if not isinstance(old, np.ndarray) or old.dtype != array.dtype or array.shape not in _shapes_of(old, is_ready):
            raise CorruptDataError(
                f"A file holds {name!r}, {array.dtype} of {array.shape}; {type(buffer).__name__} keeps no such array"
            )
        setattr(buffer, name, array)
    if is_ready:
        flatten_columns(buffer)
    stand_at(buffer, pos, full)


def stand_at(buffer: Any, pos: int, full: bool) -> None:
    """Set `pos` and `full`; a full buffer has wrapped around once."""
    buffer.pos, buffer.full = pos, full
    if hasattr(buffer, "_age"):  # one of ours
        buffer._age = pos + (buffer.buffer_size if full and pos < buffer.buffer_size else 0)


def _shapes_of(array: NDArray[Any], is_ready: Any) -> list[tuple[int, ...]]:
    """The shapes of an array: as SB3 makes it, and as SB3 flattens it before the first minibatch of a rollout."""
    shapes = [array.shape]
    if is_ready and array.ndim >= 2:
        shapes.append(RolloutBuffer.swap_and_flatten(array).shape)
    if is_ready and array.ndim >= 3:  # states of LSTMs, where the envs are one axis later
        shapes.append(RolloutBuffer.swap_and_flatten(array.swapaxes(1, 2)).shape)
    return shapes


def flatten_columns(buffer: Any) -> None:
    """Flatten the columns as SB3 does when a rollout is read."""
    columns = buffer.observations
    if isinstance(columns, dict):
        columns.update({key: RolloutBuffer.swap_and_flatten(column) for key, column in columns.items()})
    else:
        buffer.observations = RolloutBuffer.swap_and_flatten(columns)
    buffer.generator_ready = True
