"""A fast way for SB3's own `add` to write a step. Above: replay.py. Below: the window of a row store.

    transition  ->  SB3's `add`, with an AddView in the place of the buffer  ->  slices of its arrays

SB3's code copies each part of a transition and assigns the copy to an array. An AddView has slices of the buffer's arrays, and
no copies are made for it. Vectors are written by these assignments, too: it has the arrays of the row store's window, with no
code of this library in between. Other observations are in their store by then, and what is assigned for them is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import CodeType, SimpleNamespace
from typing import Any

import numpy as np
from numpy import ndarray
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_extra_buffers.compressed.rebinding import rebound
from sb3_extra_buffers.store.host.rows import Window

#: What SB3's `add` asks of a buffer and AddView has; and other names in its code.
_CONSTANTS = ("observation_space", "n_envs", "obs_shape", "action_dim")
_ARRAYS = ("actions", "rewards", "dones", "timeouts")
_OTHERS = (
    "observations",
    "next_observations",
    "optimize_memory_usage",
    "handle_timeout_termination",
    "buffer_size",
    "pos",
    "full",
)
_NAMES = {*_CONSTANTS, *_ARRAYS, *_OTHERS, "isinstance", "spaces", "Discrete", "reshape", "np", "array", "get"}


class _Dropped:
    """An array that keeps nothing."""

    def __setitem__(self, index: Any, value: Any) -> None: ...


class AddView:
    """Stands in for a replay buffer in SB3's `add`, for the slots of one window. See `view_for`.

    :param buffer: a replay buffer
    :param window: of its row store; or one that drops observations
    :param takes_observations: whether observations are written by SB3's assignments
    :param dtype: of observations that need no check before that; None if all do: an assignment would change integers silently
    """

    optimize_memory_usage = full = False

    def __init__(self, buffer: Any, window: Window, *, takes_observations: bool, dtype: np.dtype[Any] | None = None) -> None:
        self.window, self.takes_observations, self.dtype = window, takes_observations, dtype
        self.buffer_size = window.stop - window.first + 1  # `pos` never begins anew here
        self.pos = 0  # set for each step
        self.observations, self.next_observations = window.obs, window.following
        for name in _CONSTANTS:
            setattr(self, name, getattr(buffer, name))
        #: The arrays that this view has slices of. If the buffer has others by now, it must make another view.
        self.all_actions, self.all_rewards = buffer.actions, buffer.rewards
        self.all_dones, self.all_timeouts = buffer.dones, buffer.timeouts
        for name in _ARRAYS:
            setattr(self, name, getattr(buffer, name)[window.first : window.stop])
        self.add = _without_copies(ReplayBuffer.add)


def view_for(buffer: Any, add: Callable[..., None]) -> AddView | None:
    """A view for the next steps; None if there is none.

    :param buffer: with observations of one leaf
    :param add: of the class behind ours
    """
    stored, size = buffer._stored, buffer.buffer_size
    if not is_known(add) or any(type(getattr(buffer, name)) is not ndarray for name in _ARRAYS) or size == 1:
        return None
    if not stored.has_rows:
        window = Window(0, _Dropped(), _Dropped(), size)  # the whole ring
        window.next_slot = buffer.pos
        return AddView(buffer, window, takes_observations=False)
    window, dtype = stored.store.window, stored.store.layout.dtype
    if window is None:
        return None
    window.stop = min(window.stop, size - 1)  # the store ends the lap, and begins the next with another window
    is_safe = dtype.kind == "f" and dtype == stored.leaf.dtype
    return AddView(buffer, window, takes_observations=True, dtype=dtype if is_safe else None)


def is_known(add: Callable[..., None]) -> bool:
    """Whether this is SB3's `add`, and an AddView has all that it asks of a buffer."""
    return getattr(add, "__func__", None) is ReplayBuffer.add and _names_in(ReplayBuffer.add.__code__) <= _NAMES


@cache  # asked for every window
def _names_in(code: CodeType) -> frozenset[str]:
    """The names of globals and attributes in a function, with those inside of it."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return frozenset(code.co_names).union(*map(_names_in, inner))


@cache
def _without_copies(add: Callable[..., None]) -> Callable[..., None]:
    """SB3's `add` without copies of arrays: an assignment copies already. `np.array` is all that it has of NumPy."""
    return rebound(add, np=SimpleNamespace(array=np.asarray))
