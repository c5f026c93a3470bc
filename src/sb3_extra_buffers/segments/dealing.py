"""Distribute the steps of some envs over another number of envs, keeping trajectories together. Above: persistence.

Episodes are taken in the order in which they began. Each goes to the env that has the fewest steps so far. An SB3 buffer has
the same number of steps for all envs, so in the end the longest envs give steps to the shortest: fewer than `n_envs` episodes
are cut. If the steps cannot be divided evenly, fewer than `n_envs` steps are left out.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Piece(NamedTuple):
    """Consecutive steps of an env, up to the one before `last`."""

    env: int
    first: int
    last: int


class Deal(NamedTuple):
    """The result: the new cell of each step.

    :param to: ``(n_steps, old envs)``: new cell, ``slot * n_envs + env``; -1 for steps that are left out
    :param cut: new cells whose next step is not the original one, though no episode ends there
    :param n_slots: steps of each new env
    """

    to: Ints
    cut: Ints
    n_slots: int


def deal(is_end: NDArray[np.bool_], n_envs: int, most_slots: int) -> Deal:
    """Distribute steps over envs.

    :param is_end: ``(n_steps, old envs)``: whether an episode ends with a step
    :param n_envs: new number of envs
    :param most_slots: steps that fit per env; the newest are kept
    """
    n_steps, old_envs = is_end.shape
    n_slots = min(n_steps * old_envs // n_envs, most_slots)
    streams = [_even(pieces, n_slots) for pieces in _dealt(_pieces(is_end), n_envs)]
    surplus = [piece for _, rest in streams for piece in rest]
    to, cut = np.full((n_steps, old_envs), -1, np.int64), []
    for env, (pieces, _) in enumerate(streams):
        while (missing := n_slots - sum(one.last - one.first for one in pieces)) > 0:
            pieces.append(_cut_off(surplus, missing))
        slot = 0
        for i, (old, first, last) in enumerate(pieces):
            cells = (slot + np.arange(last - first)) * n_envs + env
            to[first:last, old] = cells
            slot += last - first
            goes_on = i + 1 < len(pieces) and pieces[i + 1][:2] == (old, last)
            if not is_end[last - 1, old] and not goes_on:
                cut.append(int(cells[-1]))
    return Deal(to, np.array(cut, np.int64), n_slots)


def _pieces(is_end: NDArray[np.bool_]) -> list[Piece]:
    """All episodes, whole or not, in the order in which they began."""
    pieces = []
    for env in range(is_end.shape[1]):
        ends = (np.flatnonzero(is_end[:, env]) + 1).tolist()
        edges = [0, *ends] if ends and ends[-1] == len(is_end) else [0, *ends, len(is_end)]
        pieces += [Piece(env, first, last) for first, last in pairwise(edges) if last > first]
    return sorted(pieces, key=lambda piece: (piece.first, piece.env))


def _dealt(pieces: list[Piece], n_envs: int) -> list[list[Piece]]:
    streams: list[list[Piece]] = [[] for _ in range(n_envs)]
    lengths = [0] * n_envs
    for piece in pieces:
        env = lengths.index(min(lengths))
        streams[env].append(piece)
        lengths[env] += piece.last - piece.first
    return streams


def _even(pieces: list[Piece], n_slots: int) -> tuple[list[Piece], list[Piece]]:
    """The newest steps of an env that fit, and the older ones that do not."""
    kept: list[Piece] = []
    left, rest = n_slots, list(pieces)
    while rest and left:
        piece = rest.pop()
        first = max(piece.last - left, piece.first)
        kept.insert(0, Piece(piece.env, first, piece.last))
        left -= piece.last - first
        if first > piece.first:
            rest.append(Piece(piece.env, piece.first, first))
    return kept, rest


def _cut_off(pieces: list[Piece], n: int) -> Piece:
    """Remove at most n of the newest steps of the last piece, and return them."""
    piece = pieces.pop()
    first = max(piece.last - n, piece.first)
    if first > piece.first:
        pieces.append(Piece(piece.env, piece.first, first))
    return Piece(piece.env, first, piece.last)
