"""Findings: what a look at the data says is probably wrong. Each check is a function, and gives a `Finding` or None."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sb3_extra_buffers.segments.spaces import names_of
from sb3_extra_buffers.viewer.episodes import TERMINAL
from sb3_extra_buffers.viewer.looking import LeafLook, Look

#: Checks that compare pictures want so many of them.
_ENOUGH = 4
#: Episodes of the same greatest length, from which on this is no chance.
_SAME_LENGTH = 3


@dataclass(frozen=True)
class Finding:
    """Something that is probably wrong.

    :param kind: a short name
    :param text: what was seen, in a sentence
    :param advice: what it may come from
    :param at: ``(env, step)`` to look at, if there is one
    """

    kind: str
    text: str
    advice: str
    at: tuple[int, int] | None = None


# ---- checks of observations


def _name(look: Look, key: str) -> str:
    return f"{key!r}" if len(look.leaves) > 1 else "observations"


def constant(look: Look, seen: LeafLook) -> Finding | None:
    """All observations that were looked at are the same."""
    every = np.concatenate((seen.first, seen.second))
    if len(seen.first) < _ENOUGH or not every[0].size or (every != every[:1]).any():
        return None
    if seen.picture is not None and (every[0] == every[0].flat[0]).all():  # which `black` says
        return None
    return Finding(
        "constant", f"All {len(every)} {_name(look, seen.leaf.key)} that were looked at are the same.",
        "The env may return the same array each time, or a wrapper may overwrite what it has returned.", seen.places[0],
    )  # fmt: skip


def black(look: Look, seen: LeafLook) -> Finding | None:
    """Pictures without anything in them."""
    flat = seen.first.reshape(len(seen.first), -1)
    if not flat.shape[1] or seen.picture is None:
        return None
    empty = np.flatnonzero((flat == flat[:, :1]).all(axis=1))
    if not len(empty) or len(empty) * 5 < len(flat):
        return None
    colour = "black" if not flat[empty].any() else "of one colour"
    return Finding(
        "black", f"{len(empty)} of {len(flat)} {_name(look, seen.leaf.key)} that were looked at are {colour}.",
        "Rendering may have failed, or values were divided by 255 and then stored as whole numbers.", seen.places[empty[0]],
    )  # fmt: skip


def repeated_stack(look: Look, seen: LeafLook) -> Finding | None:
    """Stacks whose frames are all the same although the env moves."""
    if seen.picture is None or seen.picture.n_frames < 2:
        return None
    frames = np.stack([seen.picture.frames(one) for one in seen.first])
    moved = (seen.first != seen.second).reshape(len(seen.first), -1).any(axis=1) & seen.goes_on
    same = (frames == frames[:, :1]).reshape(len(frames), -1).all(axis=1) & moved
    if moved.sum() < _ENOUGH or same.sum() * 2 < moved.sum():
        return None
    return Finding(
        "repeated stack",
        f"The {seen.picture.n_frames} frames of a stack are the same in {same.sum()} of {moved.sum()} "
        f"{_name(look, seen.leaf.key)}, although the next observation differs.",
        "The frame stack may be filled with the newest frame only.", seen.places[int(np.flatnonzero(same)[0])],
    )  # fmt: skip


def stack_order(look: Look, seen: LeafLook) -> Finding | None:
    """Stacks that do not move on by one frame, oldest first."""
    if seen.picture is None or seen.picture.n_frames < 2:
        return None
    a, b = (np.stack([seen.picture.frames(one) for one in many]) for many in (seen.first, seen.second))
    n = len(a)

    def agree(x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
        same: NDArray[np.bool_] = (x == y).reshape(n, -1).all(axis=1)
        return same

    moved = seen.goes_on & ~agree(a, b) & ~agree(a[:, 1:], a[:, :-1])
    in_order, backwards = agree(b[:, :-1], a[:, 1:]), agree(b[:, 1:], a[:, :-1])
    wrong = moved & ~in_order
    if moved.sum() < _ENOUGH or wrong.sum() * 2 < moved.sum():
        return None
    is_backwards = bool((backwards & wrong).sum() * 2 >= wrong.sum())
    return Finding(
        "stack order",
        f"In {wrong.sum()} of {moved.sum()} {_name(look, seen.leaf.key)} the stack "
        + ("has the newest frame first." if is_backwards else "does not move on by one frame from a step to the next."),
        "SB3's VecFrameStack puts the newest frame last." if is_backwards else
        "Frames may be stacked in another order, or skipped, or these channels may be no stack of frames.",
        seen.places[int(np.flatnonzero(wrong)[0])],
    )  # fmt: skip


def wrong_next(look: Look, seen: LeafLook) -> Finding | None:
    """`next_obs` that is not the observation that follows."""
    if seen.following is None:
        return None
    differs = (seen.following != seen.second) & (seen.following == seen.following)
    wrong = differs.reshape(len(seen.second), -1).any(axis=1) & seen.goes_on
    if wrong.sum() < 2:
        return None
    return Finding(
        "next_obs",
        f"next_obs of {wrong.sum()} of {seen.goes_on.sum()} steps is not the observation that follows ({seen.leaf.key!r}).",
        "The steps may be out of order, or the end of an episode is not marked as done.",
        seen.places[int(np.flatnonzero(wrong)[0])],
    )  # fmt: skip


def not_finite(look: Look, seen: LeafLook) -> Finding | None:
    """NaN or infinity in observations."""
    if seen.leaf.dtype.kind != "f":
        return None
    bad = ~np.isfinite(seen.first).reshape(len(seen.first), -1).all(axis=1)
    if not bad.any():
        return None
    return Finding(
        "NaN", f"{bad.sum()} of {len(bad)} {_name(look, seen.leaf.key)} that were looked at hold NaN or infinity.",
        "Training on them makes the weights NaN.", seen.places[int(np.flatnonzero(bad)[0])],
    )  # fmt: skip


# ---- checks of what belongs to steps


def zero_rewards(look: Look) -> Finding | None:
    """No reward at all."""
    if not look.experience.has("rewards") or look.experience.n_steps < 2:
        return None
    if any(part.any() for _, part in look.experience.parts("rewards")):
        return None
    return Finding(
        "zero rewards", f"All {look.experience.n_steps * look.experience.n_envs:,} rewards are zero.",
        "The agent has nothing to learn from yet: the rewards may be sparse, or lost in a wrapper.",
    )  # fmt: skip


def nan_values(look: Look) -> Finding | None:
    """NaN or infinity in rewards, actions and what else belongs to steps."""
    for name in look.experience.names:
        for at, part in look.experience.parts(name):
            if part.dtype.kind == "f" and not np.isfinite(part).all():
                bad = np.argwhere(~np.isfinite(part.reshape(len(part), look.experience.n_envs, -1)).all(axis=2))
                step, env = (int(n) for n in bad[0])
                return Finding(
                    "NaN", f"{name} hold NaN or infinity, first at step {step + at + look.experience.first} of env {env}.",
                    "Training on them makes the weights NaN.", (env, step + at + look.experience.first),
                )  # fmt: skip
    return None


def missing_actions(look: Look) -> Finding | None:
    """Actions of a discrete space that were never taken."""
    space = look.experience.spaces.get("action_space")
    if not isinstance(space, spaces.Discrete) or not look.experience.has("actions"):
        return None
    n = int(space.n)
    if look.experience.n_steps * look.experience.n_envs < 10 * n:
        return None
    taken = np.zeros(n, bool)
    for _, part in look.experience.parts("actions"):
        values = np.unique(part).astype(np.int64) - int(space.start)
        taken[values[(values >= 0) & (values < n)]] = True
    missing = np.flatnonzero(~taken)
    if not len(missing):
        return None
    names = names_of(space)
    said = ", ".join(names[i] if names else str(i + int(space.start)) for i in missing[:8].tolist())
    return Finding(
        "actions never taken", f"{len(missing)} of {n} actions were never taken: {said}{', …' if len(missing) > 8 else ''}.",
        "Exploration may have ended early, or the env has more actions than the agent knows.",
    )  # fmt: skip


def constant_action(look: Look) -> Finding | None:
    """A continuous action that never changes."""
    space = look.experience.spaces.get("action_space")
    if not isinstance(space, spaces.Box) or not look.experience.has("actions") or look.experience.n_steps < 10:
        return None
    low = high = None
    for _, part in look.experience.parts("actions"):
        flat = part.reshape(len(part) * look.experience.n_envs, -1)
        low = flat.min(axis=0) if low is None else np.minimum(low, flat.min(axis=0))
        high = flat.max(axis=0) if high is None else np.maximum(high, flat.max(axis=0))
    same = np.flatnonzero(low == high) if low is not None else np.arange(0)
    if not len(same):
        return None
    return Finding(
        "actions never taken", f"The action's values at {same[:8].tolist()} never change.",
        "The policy may be saturated, or the action may not be used.",
    )  # fmt: skip


def timeouts_as_terminal(look: Look) -> Finding | None:
    """Episodes that end at a limit of time and are stored as if they had reached a terminal state."""
    episodes = look.episodes
    ended = np.flatnonzero((episodes.ended == TERMINAL) & ~episodes.is_cut)
    if len(ended) < _SAME_LENGTH:
        return None
    lengths = episodes.length[ended]
    at_limit = ended[lengths == lengths.max()]
    if len(at_limit) < _SAME_LENGTH or len(at_limit) * 5 < len(ended) or lengths.max() < 10:
        return None
    handled = look.experience.has_timeouts
    return Finding(
        "timeouts as terminal",
        f"{len(at_limit)} of {len(ended)} terminal episodes have the same greatest length, {lengths.max():,} steps: "
        "these look like timeouts that count as terminal states.",
        "Give infos with 'TimeLimit.truncated' to add()." if handled else
        "The buffer was made with handle_timeout_termination=False, so values are not bootstrapped there.",
        (int(episodes.env[at_limit[0]]), int(episodes.last[at_limit[0]]) - 1),
    )  # fmt: skip


def endless(look: Look) -> Finding | None:
    """No episode ever ends."""
    n = look.experience.n_steps
    if n < 1000 or not look.experience.has_dones or look.experience.dones().any():
        return None
    return Finding(
        "endless episodes", f"No episode ends within {n:,} steps of {look.experience.n_envs} envs.",
        "The env may never terminate and have no time limit, or dones are lost.",
    )  # fmt: skip


OF_LEAVES: tuple[Callable[[Look, LeafLook], Finding | None], ...] = (
    constant, black, repeated_stack, stack_order, wrong_next, not_finite,
)  # fmt: skip
OF_STEPS: tuple[Callable[[Look], Finding | None], ...] = (
    zero_rewards, nan_values, missing_actions, constant_action, timeouts_as_terminal, endless,
)  # fmt: skip


def findings(look: Look) -> Iterator[Finding]:
    """All that the checks say."""
    for seen in look.leaves.values():
        for check in OF_LEAVES:
            if finding := check(look, seen):
                yield finding
    for one in OF_STEPS:
        if finding := one(look):
            yield finding
