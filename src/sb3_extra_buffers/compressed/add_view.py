"""A fast way for SB3's own `add` to write vectors. Above: replay.py. Below: the window of a row store.

    transition  ->  SB3's `add`, with an AddView in the place of the buffer  ->  slices of its arrays, and the window

SB3's code assigns each part of a transition to an array. An AddView has slices of the buffer's arrays, and the window's two:
SB3's assignments write the observations, too, with no code of this library in between.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import CodeType
from typing import Any

from numpy import ndarray
from stable_baselines3.common.buffers import ReplayBuffer

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


class AddView:
    """Stands in for a replay buffer in SB3's `add`, for the slots of one window. See `view_for`.

    :param buffer: a replay buffer
    :param window: of its row store
    :param is_checked: whether observations have to be checked first: SB3's assignment would change integers silently
    """

    optimize_memory_usage = full = False

    def __init__(self, buffer: Any, window: Window, *, is_checked: bool) -> None:
        self.window, self.is_checked, self.first = window, is_checked, window.first
        self.buffer_size = window.stop - window.first + 1  # `pos` never begins anew here
        self.pos = 0
        self.observations, self.next_observations = window.obs, window.following
        for name in _CONSTANTS:
            setattr(self, name, getattr(buffer, name))
        #: The arrays that this view has slices of. If the buffer has others by now, it must make another view.
        self.all_actions, self.all_rewards = buffer.actions, buffer.rewards
        self.all_dones, self.all_timeouts = buffer.dones, buffer.timeouts
        for name in _ARRAYS:
            setattr(self, name, getattr(buffer, name)[window.first : window.stop])


def view_for(buffer: Any, add: Callable[..., None]) -> AddView | None:
    """A view for the next steps; None if there is none.

    :param buffer: whose observations are in a row store
    :param add: of the class behind ours
    """
    stored, store = buffer._stored, buffer._stored.store
    if store.window is None or not is_known(add) or any(type(getattr(buffer, name)) is not ndarray for name in _ARRAYS):
        return None
    store.window.stop = min(store.window.stop, buffer.buffer_size - 1)  # SB3's code ends the lap, with the buffer itself
    dtype = store.layout.dtype
    return AddView(buffer, store.window, is_checked=dtype.kind != "f" or dtype != stored.leaf.dtype)


def is_known(add: Callable[..., None]) -> bool:
    """Whether this is SB3's `add`, and an AddView has all that it asks of a buffer."""
    return getattr(add, "__func__", None) is ReplayBuffer.add and _names_in(ReplayBuffer.add.__code__) <= _NAMES


@cache  # asked for every window
def _names_in(code: CodeType) -> frozenset[str]:
    """The names of globals and attributes in a function, with those inside of it."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return frozenset(code.co_names).union(*map(_names_in, inner))
