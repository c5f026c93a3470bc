"""Begin and end of episodes in a replay buffer whose steps were cut, distributed over other envs, or loaded. Above:
persistence.

For n-step returns and hindsight, consecutive steps in a buffer are one trajectory. Where the next step is not the original
one, the episode must end. It ends with a timeout: its last step is still learned from, and no return reaches beyond it.
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
    """Set `pos` after steps that were put into the first slots, and end the episodes that were cut.

    :param cut: cells whose next step is not the original one
    """
    end_episodes(buffer, cut)
    buffer._stand_after(n_steps)
    if isinstance(buffer, HerReplayBuffer):
        _number_episodes(buffer, n_steps)


def end_episodes(buffer: Any, cut: Ints) -> None:
    """End episodes with a timeout at cells whose next step is not the original one."""
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
    """End the running episodes with a timeout, as SB3 does when it loads a buffer: the next step begins another episode."""
    if isinstance(buffer, HerReplayBuffer):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # SB3 warns that it does so
            buffer.truncate_last_trajectory()
    elif buffer.size():
        newest = (buffer.pos - 1) % buffer.buffer_size * buffer.n_envs + np.arange(buffer.n_envs)
        if getattr(buffer, "handle_timeout_termination", False):
            end_episodes(buffer, newest[buffer.dones.reshape(-1)[newest] == 0])


# ---- the episode tables of SB3's hindsight buffer


def _number_episodes(buffer: Any, n_steps: int) -> None:
    """Fill the start and length of each episode, as SB3's hindsight buffer keeps them. A running episode has no length yet."""
    buffer.ep_start[:], buffer.ep_length[:] = 0, 0
    for env in range(buffer.n_envs):
        first = 0
        for end in (np.flatnonzero(buffer.dones[:n_steps, env]) + 1).tolist():
            buffer.ep_start[first:end, env], buffer.ep_length[first:end, env] = first, end - first
            first = end
        buffer.ep_start[first:n_steps, env] = first
        buffer._current_ep_start[env] = first % buffer.buffer_size


def check_episodes(stored: StoredBuffer, whole: dict[str, Any]) -> None:
    """Raise CorruptDataError unless episodes lie within the ring: SB3 uses them as indices."""
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


def forget_cut_episodes(buffer: Any, oldest: int) -> None:
    """An episode whose first steps are gone cannot be sampled, as SB3 has it.

    :param oldest: slot of the oldest step that is left
    """
    for env in range(buffer.n_envs):
        start, length = int(buffer.ep_start[oldest, env]), int(buffer.ep_length[oldest, env])
        if length > 0 and start != oldest:
            left = length - (oldest - start) % buffer.buffer_size
            buffer.ep_length[(oldest + np.arange(max(left, 0))) % buffer.buffer_size, env] = 0
