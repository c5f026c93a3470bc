"""What `inspect` says of a buffer: facts, ready for JSON, and the same as rows of a table. Whatever its kind."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sb3_extra_buffers._text import human_bytes, human_share
from sb3_extra_buffers.cli.columns import codecs_of, columns_of

if TYPE_CHECKING:
    from stable_baselines3.common.buffers import BaseBuffer


def describe(buffer: Any) -> dict[str, Any]:
    """All that `inspect` knows, ready for JSON."""
    from stable_baselines3.common.buffers import BaseBuffer

    from sb3_extra_buffers.recording import RecordBuffer

    facts = {"class": f"{type(buffer).__module__}.{type(buffer).__qualname__}"}
    if isinstance(buffer, BaseBuffer):
        return facts | _of_buffer(buffer)
    return facts | (_of_record(buffer) if isinstance(buffer, RecordBuffer) else _of_array(buffer))


def _of_buffer(buffer: BaseBuffer) -> dict[str, Any]:
    """Of a replay buffer or a rollout."""
    import numpy as np

    from sb3_extra_buffers.compressed.mixin import CompressedObservations

    rewards, dones, begins_at_reset = _played(buffer)
    returns = _returns(rewards, dones, begins_at_reset=begins_at_reset)
    columns = [columns_of(buffer, name) for name in ("observations", "next_observations")]
    size, n_envs = len(rewards), buffer.n_envs
    if isinstance(buffer, CompressedObservations):
        raw, stored, *_ = buffer.memory_usage()
    else:
        raw = stored = sum(int(column.nbytes) for some in columns for column in some.values()) * size // buffer.buffer_size
    return {
        "observation_space": str(buffer.observation_space),
        "action_space": str(buffer.action_space),
        "n_envs": n_envs,
        "transitions": size * n_envs,
        "capacity": buffer.buffer_size * n_envs,
        "ends": int(dones.sum()),
        "complete_episodes": len(returns),
        "raw_bytes": raw,
        "stored_bytes": stored,
        "codecs": codecs_of(buffer),
        "reward": _statistics(rewards),
        "episode_return": _statistics(np.asarray(returns)),
    }


def _played(buffer: Any) -> tuple[Any, Any, bool]:
    """Rewards and ends of all steps ``(steps, envs)``, the oldest first, and whether the first step begins an episode."""
    import numpy as np

    size, n_envs, slots = buffer.size(), buffer.n_envs, buffer.buffer_size
    if hasattr(buffer, "dones"):
        order = (np.arange(size) + (buffer.pos if buffer.full else 0)) % slots
        return buffer.rewards[order], buffer.dones[order].astype(bool), not buffer.full
    # A rollout says where episodes start. SB3 flattens some arrays, env by env, when minibatches are read.
    rewards, starts = (
        array if array.shape == (slots, n_envs) else array.reshape(n_envs, slots).T
        for array in (buffer.rewards, buffer.episode_starts)
    )
    ends = np.roll(starts[:size], -1, axis=0).astype(bool)
    ends[-1:] = False  # nobody knows yet
    return rewards[:size], ends, bool(size and starts[0].all())


def _of_record(record: Any) -> dict[str, Any]:
    import numpy as np

    usage = record.memory_usage()
    return {
        "frame_shape": list(record.frame_shape) if record.frames is not None else None,
        "frame_dtype": str(record.dtypes.frame),
        "transitions": len(record),
        "capacity": record.size,
        "raw_bytes": usage.raw_bytes,
        "stored_bytes": usage.stored_bytes,
        "codecs": {"": usage.codec},
        "reward": _statistics(np.asarray(record[:].reward)),
    }


def _of_array(array: Any) -> dict[str, Any]:
    usage = array.memory_usage()
    return {
        "shape": list(array.shape), "dtype": str(array.dtype), "raw_bytes": usage.raw_bytes,
        "stored_bytes": usage.stored_bytes, "codecs": {"": usage.codec},
    }  # fmt: skip


def rows(facts: dict[str, Any]) -> list[list[str]]:
    """The facts that there are, for a table."""
    found = [["class", f"{facts['class'].rpartition('.')[2]} ({facts['class'].partition('.')[0]})"]]
    for name, title in (("observation_space", "observations"), ("action_space", "actions")):
        if name in facts:
            found.append([title, facts[name]])
    if "frame_shape" in facts:
        channels_first = "x".join(map(str, facts["frame_shape"] or ()))
        found.append(["frames", f"{channels_first} {facts['frame_dtype']}" if channels_first else "none"])
    if "shape" in facts:
        found.append(["shape", f"{tuple(facts['shape'])} {facts['dtype']}"])
    if "transitions" in facts:
        envs = f" ({facts['n_envs']} env{'s' * (facts['n_envs'] > 1)})" if "n_envs" in facts else ""
        found.append(["transitions", f"{facts['transitions']:,} of {facts['capacity']:,}{envs}"])
    if "ends" in facts:
        found.append(["episodes", f"{facts['ends']:,} ends, {facts['complete_episodes']:,} complete episodes"])
    raw, stored, what = (
        facts["raw_bytes"],
        facts["stored_bytes"],
        "observations" if "observation_space" in facts else "contents",
    )
    found.append([f"{what}, {'in SB3' if what == 'observations' else 'raw'}", human_bytes(raw)])
    found.append([f"{what}, stored", f"{human_bytes(stored)} ({human_share(stored / raw)})" if raw else human_bytes(stored)])
    if facts["codecs"]:
        found.append(["codec", ", ".join(f"{key}: {codec}".removeprefix(": ") for key, codec in facts["codecs"].items())])
    found.append(["file", human_bytes(facts["file_bytes"])])
    for name, title in (("reward", "reward"), ("episode_return", "return of an episode")):
        if values := facts.get(name):
            found.append([title, "mean {mean:.4g}, std {std:.4g}, min {min:.4g}, max {max:.4g}".format(**values)])
    return found


def _returns(rewards: Any, dones: Any, *, begins_at_reset: bool) -> list[float]:
    """Sums of rewards per episode and env: only of episodes whose beginning is still there."""
    returns = []
    for env in range(rewards.shape[1]):
        ends = dones[:, env].nonzero()[0].tolist()
        if begins_at_reset:
            ends = [-1, *ends]
        returns += [float(rewards[a + 1 : b + 1, env].sum()) for a, b in pairwise(ends)]
    return returns


def _statistics(values: Any) -> dict[str, float] | None:
    if values.size == 0:
        return None
    return {name: float(getattr(values, name)()) for name in ("mean", "std", "min", "max")}
