"""Where episodes begin and end in a replay buffer whose steps were put elsewhere: cut, dealt, or loaded. Above: persistence.

Steps that follow each other in a buffer count as one trajectory, for n-step returns and for hindsight. Where something else
follows than what did, an episode ends, by a timeout: its last step is learned from as before, and nothing goes beyond it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from stable_baselines3.common.buffers import NStepReplayBuffer
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.segments.runs import Ints, StoredBuffer


def stand_with_episodes(buffer: Any, n_steps: int, cut: Ints) -> None:
    """Let a buffer stand behind steps that were put into its first slots.

    :param cut: cells after which something else follows than what did
    """
    end_episodes(buffer, cut)
    buffer._stand_after(n_steps)
    if isinstance(buffer, HerReplayBuffer):
        _number_episodes(buffer, n_steps)


def end_episodes(buffer: Any, cut: Ints) -> None:
    """Let episodes end, by a timeout, where something else follows that did not follow."""
    if not len(cut):
        return
    if getattr(buffer, "handle_timeout_termination", False):
        buffer.dones.reshape(-1)[cut] = 1
        buffer.timeouts.reshape(-1)[cut] = 1
    elif isinstance(buffer, (NStepReplayBuffer, HerReplayBuffer)):
        raise ValueError(
            f"{len(cut)} episodes would have to be cut, which needs timeouts, and this {type(buffer).__name__} keeps none "
            "(handle_timeout_termination=False). Load it with its own n_envs; merge only buffers whose last episodes are over"
        )


def end_last_episode(buffer: Any) -> None:
    """What comes next does not follow: let the newest steps end their episodes, by a timeout, as SB3 does on loading."""
    if isinstance(buffer, HerReplayBuffer):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # SB3 says that it does so
            buffer.truncate_last_trajectory()
    elif buffer.size():
        newest = (buffer.pos - 1) % buffer.buffer_size * buffer.n_envs + np.arange(buffer.n_envs)
        if getattr(buffer, "handle_timeout_termination", False):
            end_episodes(buffer, newest[buffer.dones.reshape(-1)[newest] == 0])


# ---- what SB3's hindsight buffer keeps of episodes


def _number_episodes(buffer: Any, n_steps: int) -> None:
    """Where episodes begin and how long they are, as SB3's hindsight buffer keeps it. A running one has no length yet."""
    buffer.ep_start[:], buffer.ep_length[:] = 0, 0
    for env in range(buffer.n_envs):
        first = 0
        for end in (np.flatnonzero(buffer.dones[:n_steps, env]) + 1).tolist():
            buffer.ep_start[first:end, env], buffer.ep_length[first:end, env] = first, end - first
            first = end
        buffer.ep_start[first:n_steps, env] = first
        buffer._current_ep_start[env] = first % buffer.buffer_size


def check_episodes(stored: StoredBuffer, whole: dict[str, Any]) -> None:
    """CorruptDataError unless episodes lie within the ring: SB3 counts through them."""
    slots = stored.about["slots"]
    numbers = {name: stored.array(name) for name in ("ep_start", "ep_length")} | {
        "_current_ep_start": whole["_current_ep_start"]
    }
    for name, values in numbers.items():
        if values.size and not 0 <= values.min() <= values.max() <= slots:
            raise CorruptDataError(f"A file is damaged: {name!r} goes beyond the {slots} slots")
    oldest, starts, lengths = stored.about.get("oldest"), numbers["ep_start"], numbers["ep_length"]
    if type(oldest) is int and slots:
        within = (oldest + np.arange(len(starts))[:, None] - starts) % slots
        if ((lengths > 0) & (within >= lengths)).any():
            raise CorruptDataError("A file is damaged: steps lie behind the end of their episodes")


def forget_cut_episodes(buffer: Any) -> None:
    """An episode whose first steps were overwritten cannot be sampled, as SB3 has it. A checkpoint may not know yet."""
    if not buffer.full:
        return
    oldest = buffer.pos
    for env in range(buffer.n_envs):
        start, length = int(buffer.ep_start[oldest, env]), int(buffer.ep_length[oldest, env])
        if length > 0 and start != oldest:
            left = length - (oldest - start) % buffer.buffer_size
            buffer.ep_length[(oldest + np.arange(max(left, 0))) % buffer.buffer_size, env] = 0
