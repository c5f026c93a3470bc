"""Writing Minari datasets: from a record, and for `datasets.minari` from a buffer. Minari is imported when used."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_extra_buffers._optional import require

if TYPE_CHECKING:
    from sb3_extra_buffers.recording.record import RecordBuffer


def to_minari(
    record: RecordBuffer,
    dataset_id: str,
    terminations: ArrayLike | None,
    truncations: ArrayLike | None,
    arguments: dict[str, Any],
) -> Any:
    """See `RecordBuffer.to_minari`."""
    require("minari", extra="minari", what="to_minari")
    if arguments["action_space"] is None and arguments.get("env") is None:
        raise ValueError("to_minari needs the action_space, or the env that has it")
    check_request(dataset_id, arguments)
    _check_spaces(record, arguments)
    terminated, truncated = _flags(record, "terminations", terminations), _flags(record, "truncations", truncations)
    episodes = list(_episodes(terminated, truncated))
    if not episodes:
        raise ValueError(f"The {len(record)} steps of this record make no episode with an action in it")
    if arguments["observation_space"] is None:
        arguments["observation_space"] = _observation_space(record)
    return write_dataset(dataset_id, (_episode(record, *episode) for episode in episodes), arguments)


def check_request(dataset_id: str, arguments: dict[str, Any]) -> None:
    """Refuse a name that Minari could not read again, and lossy frames, before anything is written.

    :param arguments: of ``minari.create_dataset_from_buffers``
    """
    require("h5py", extra="minari", what="to_minari")
    if not isinstance(dataset_id, str) or not re.search(r"-v\d+$", dataset_id):
        raise ValueError(f"A Minari dataset needs a version, as in 'pong/random-v0'; got {dataset_id!r}")
    # Minari checks the rest of the name only after it has written the dataset, and then cannot list any dataset.
    require("minari.dataset.minari_dataset", extra="minari", what="to_minari").parse_dataset_id(dataset_id)
    if arguments.get("jpeg_encoding"):
        raise ValueError("jpeg_encoding would change the frames, which are kept without loss")


def write_dataset(dataset_id: str, episodes: Iterable[dict[str, Any]], arguments: dict[str, Any]) -> Any:
    """Write a dataset without Minari's lossy JPEGs. If it fails, nothing of it is left.

    :param episodes: arguments of Minari's ``EpisodeBuffer``; consumed one at a time
    :param arguments: of ``minari.create_dataset_from_buffers``
    """
    minari: Any = require("minari", extra="minari", what="to_minari")
    make: Any = require("minari.data_collector", extra="minari", what="to_minari").EpisodeBuffer
    folder = require("minari.storage.datasets_root_dir", extra="minari", what="to_minari").get_dataset_path(dataset_id)
    if folder.exists():
        raise ValueError(
            f"The Minari dataset {dataset_id!r} exists already, in {folder}. Choose another name, or delete it first"
        )
    buffers = (make(**episode) for episode in episodes)
    try:
        return minari.create_dataset_from_buffers(dataset_id, buffers, **{**arguments, "jpeg_encoding": False})
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _check_spaces(record: RecordBuffer, arguments: dict[str, Any]) -> None:
    """Refuse spaces that do not contain the record's frames and actions."""
    steps = record[:]
    frames, space = np.moveaxis(steps.frame, 1, -1), arguments.get("observation_space")
    if space is not None and (space.shape != frames.shape[1:] or space.dtype != frames.dtype):
        raise ValueError(f"observation_space is {space}; the frames are {frames.dtype} of shape {frames.shape[1:]}")
    space = arguments.get("action_space")
    wrong = [] if space is None else [action for action in steps.action if not space.contains(action)]
    if wrong:
        raise ValueError(f"action_space is {space}; {len(wrong)} actions of the record are not in it, {wrong[0]!r} for one")


def _flags(record: RecordBuffer, name: str, values: ArrayLike | None) -> NDArray[np.bool_]:
    flags = np.zeros(len(record), np.bool_) if values is None else np.asarray(values)
    if flags.shape != (len(record),) or flags.dtype != bool:
        raise ValueError(f"{name} must be {len(record)} bools, one per step of the record; got {flags.dtype} {flags.shape}")
    return flags


def _episodes(terminated: NDArray[np.bool_], truncated: NDArray[np.bool_]) -> Iterator[tuple[int, int, bool]]:
    """Begin, end and whether it terminated, for each episode that has an action."""
    stops = [*np.flatnonzero(terminated | truncated) + 1, len(terminated)]
    for start, stop in zip([0, *stops], stops, strict=False):
        has_terminated = stop > start and bool(terminated[stop - 1])
        if stop - start >= (1 if has_terminated else 2):
            yield int(start), int(stop), has_terminated


def _episode(record: RecordBuffer, start: int, stop: int, has_terminated: bool) -> dict[str, Any]:
    steps = record[start:stop]
    # Minari needs one observation more than actions. Terminated: the last frame is repeated. Else: the last action is left
    # out.
    seen = np.r_[: stop - start, [stop - start - 1] * has_terminated].astype(np.int64)
    acted = slice(None) if has_terminated else slice(-1)
    rewards = steps.reward[acted]
    ends = np.arange(len(rewards)) == len(rewards) - 1
    return {
        "observations": np.moveaxis(steps.frame, 1, -1)[seen],
        "actions": steps.action[acted],
        "rewards": rewards,
        "terminations": ends & has_terminated,
        "truncations": ends & (not has_terminated),
        "infos": None if steps.features is None else _infos(steps.features[seen]),
    }


def _infos(features: NDArray[Any]) -> dict[str, Any]:
    if features.dtype.names is None:
        return {"features": features}
    return {"features": {name: features[name] for name in features.dtype.names}}


def _observation_space(record: RecordBuffer) -> Any:
    from gymnasium import spaces

    dtype = record.dtypes.frame
    channels, *res = record.frame_shape
    low: Any = -np.inf
    high: Any = np.inf
    if dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    elif dtype.kind == "b":
        low, high = 0, 1
    return spaces.Box(low, high, (*res, channels), dtype.type)
