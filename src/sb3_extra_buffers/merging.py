"""One replay buffer of several: `merge_buffers`. Their steps are put one behind the other; encoded blocks stay as they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_extra_buffers.compressed.contents import cells_for, contents_of, put_steps
from sb3_extra_buffers.compressed.episodes import stand_with_episodes
from sb3_extra_buffers.compressed.mixin import CompressedObservations
from sb3_extra_buffers.persistence import positive
from sb3_extra_buffers.segments.dealing import deal
from sb3_extra_buffers.segments.runs import Contents


def merge_buffers(buffers: Iterable[Any], *, buffer_size: int | None = None) -> Any:
    """A new replay buffer with the steps of several, one after the other, of the class of the first.

    Where one buffer follows another, unfinished episodes end by a timeout. Those of the last buffer go on with the next `add`,
    as they would there, unless they were dealt to other envs.

    :param buffers: replay buffers of this library with the same spaces; a buffer with another number of envs than the
        first has its episodes dealt to as many
    :param buffer_size: size of the new one; as many as there are steps if not given. The newest of the last are kept
    """
    buffers = _mergeable(buffers)
    first = buffers[0]
    lengths = [one.size() * one.n_envs // first.n_envs for one in buffers]
    slots = sum(lengths) if buffer_size is None else max(positive("buffer_size", buffer_size, 1) // first.n_envs, 1)
    merged = first._like(max(slots, 1))
    skipped, at, cuts = max(sum(lengths) - slots, 0), 0, []
    expected = contents_of(merged, np.arange(0))
    for one, length in zip(buffers, lengths, strict=True):
        with one._at_rest() as contents:
            if missing := {*expected.arrays, *expected.objects} - {*contents.arrays, *contents.objects}:
                raise ValueError(
                    f"A {type(one).__name__} cannot be put behind a {type(first).__name__}: it does not keep "
                    f"{', '.join(sorted(missing))}. Merge buffers of one class"
                )
            dealt = deal(_ends(one, contents), first.n_envs, length) if one.n_envs != first.n_envs else None
            to = cells_for(contents.n_steps, one.n_envs, np.arange(length)) if dealt is None else dealt.to
            # What follows the last step of a buffer is the first of the next.
            last = to[-1:][~_ends(one, contents)[-1:]] if dealt is None else dealt.cut
            is_newest = at + length == sum(lengths)
            if is_newest and dealt is None:
                last = last[:0]  # what is added next follows, as it would in the buffer itself
            shift = (at - skipped) * first.n_envs
            moved = np.where(to >= 0, to + shift, -1)
            put_steps(merged, contents.run(0, contents.n_steps), np.where(moved >= 0, moved, -1))
            cuts.append(last[last >= 0] + shift)
            at += length
    kept = min(sum(lengths), slots)
    cells = np.concatenate(cuts)
    stand_with_episodes(merged, kept, cells[cells >= 0])
    return merged


def _mergeable(given: Iterable[Any]) -> list[Any]:
    """Replay buffers of ours with the same spaces, or an error that says what is wrong."""
    buffers = list(given) if isinstance(given, Iterable) else [given]
    is_ours = all(isinstance(one, CompressedObservations) and isinstance(one, ReplayBuffer) for one in buffers)
    if not buffers or not is_ours or not isinstance(given, Iterable):
        found = [type(one).__name__ for one in buffers] if isinstance(given, Iterable) else type(given).__name__
        raise TypeError(f"merge_buffers takes a list of replay buffers of this library, got {found}")
    first = buffers[0]
    for one in buffers[1:]:
        if (one.observation_space, one.action_space) != (first.observation_space, first.action_space):
            raise ValueError(
                f"The buffers have different spaces: {first.observation_space}, {first.action_space} and "
                f"{one.observation_space}, {one.action_space}"
            )
    return buffers


def _ends(buffer: Any, contents: Contents) -> Any:
    return buffer.dones[contents.slots].astype(bool)


__all__ = ["merge_buffers"]
