"""What the server says about a source: plain values for JSON. Above: server. Below: everything that reads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sb3_extra_buffers.segments.spaces import names_of
from sb3_extra_buffers.viewer.conditions import FIELDS, parse_conditions
from sb3_extra_buffers.viewer.episodes import ENDINGS, RUNNING, spark_of
from sb3_extra_buffers.viewer.lives import goes_on, lost_lives
from sb3_extra_buffers.viewer.source import State

MOST_ROWS = 200
#: Values of the track of an episode; of longer ones, the greatest rewards of several steps stand for them.
_TRACK = 2000
MOST_STEPS = 1000
#: Numbers of a vector that are shown.
_MOST_DIMENSIONS = 64
_MOST_POINTS = 1000


def keys(state: State) -> list[dict[str, Any]]:
    """The leaves, and how each is shown."""
    found = []
    for key, leaf in state.experience.leaves.items():
        about: dict[str, Any] = {
            "key": key, "shape": list(leaf.shape), "dtype": leaf.dtype.name, "has_next": leaf.has_next, "stack": leaf.stack,
        }  # fmt: skip
        picture = state.pictures.get(key)
        if picture is not None:
            about["picture"] = {
                "height": picture.height, "width": picture.width, "frames": picture.n_frames, "channels": picture.n_channels,
                "low": picture.low, "high": picture.high, "exact": picture.is_exact, "labels": key in state.labels,
            }  # fmt: skip
        found.append(about)
    return sorted(found, key=lambda one: "picture" not in one)


def episodes(state: State, query: Any) -> dict[str, Any]:
    """A part of the table."""
    table, sort = state.episodes, query.get("sort", "episode")
    if sort not in FIELDS:
        raise ValueError(f"Episodes are sorted by one of {', '.join(FIELDS)}, not by {sort!r}")
    rows = table.chosen(parse_conditions(query.get("where", "")), sort, descending=query.get("desc") == "1")
    offset, limit = number(query, "offset", 0), min(number(query, "limit", 50), MOST_ROWS)
    return {
        "version": state.version, "total": len(table), "found": len(rows), "offset": offset,
        "rows": [{**row(state, i), "spark": _spark(state, i)} for i in rows[offset : offset + limit].tolist()],
    }  # fmt: skip


def row(state: State, i: int) -> dict[str, Any]:
    """One line of the table."""
    table = state.episodes
    return {
        "episode": int(table.number[i]), "env": int(table.env[i]), "first": int(table.first[i]), "last": int(table.last[i]),
        "length": int(table.length[i]), "return": float(table.returns[i]), "ended": ENDINGS[int(table.ended[i])],
        "cut": bool(table.is_cut[i]),
    }  # fmt: skip


def _spark(state: State, i: int) -> list[float]:
    table, begin = state.episodes, state.experience.first
    first, last = int(table.first[i]) - begin, int(table.last[i]) - begin
    return spark_of(state.experience, int(table.env[i]), first, last)


def episode(state: State, name: int) -> dict[str, Any]:
    """An episode with the track that one scrubs on, and its neighbours."""
    table, experience = state.episodes, state.experience
    try:
        i = table.index_of(name)
    except KeyError:
        said = f"{table.number.min()} to {table.number.max()}" if len(table) else "none"
        raise LookupError(f"There is no episode {name}. There are {said}") from None
    begin, env = experience.first, int(table.env[i])
    first, last = int(table.first[i]) - begin, int(table.last[i]) - begin
    marks = [{"step": at + begin, "kind": "life"} for at in lost_lives(experience, env, first, last)]
    is_end = int(table.ended[i]) != RUNNING
    key = next(iter(state.pictures), None)
    is_life = bool(is_end and key and goes_on(experience, key, state.pictures[key], env, last - 1))
    if is_end:
        marks.append({"step": last - 1 + begin, "kind": "life" if is_life else ENDINGS[int(table.ended[i])]})
    same = np.flatnonzero(table.env == env)
    at = int(np.flatnonzero(same == i)[0])
    return {
        **row(state, i), "version": state.version, "marks": marks, "life": is_life, **_track(state, env, first, last),
        "identity": state.life or state.version,  # while it stays, a step has the same observations
        "previous": int(table.number[same[at - 1]]) if at else None,
        "next": int(table.number[same[at + 1]]) if at + 1 < len(same) else None,
    }  # fmt: skip


def _track(state: State, env: int, first: int, last: int) -> dict[str, Any]:
    if not state.experience.has("rewards"):
        return {"per": 1, "track": []}
    rewards = state.experience.rows("rewards", env, first, last).astype(np.float64)
    per = -(-len(rewards) // _TRACK)
    if per > 1:
        padded = np.concatenate((rewards, np.zeros(-len(rewards) % per))).reshape(-1, per)
        rewards = padded[np.arange(len(padded)), np.abs(np.nan_to_num(padded)).argmax(axis=1)]
    return {"per": per, "track": rewards.tolist()}


def containing(state: State, env: int, step: int) -> dict[str, Any]:
    """The episode that a step belongs to."""
    table = state.episodes
    found = np.flatnonzero((table.env == env) & (table.first <= step) & (step < table.last))
    if not len(found):
        raise LookupError(f"There is no step {step} of env {env}")
    return row(state, int(found[0]))


def steps(state: State, env: int, query: Any) -> dict[str, Any]:
    """What belongs to some steps beside observations."""
    experience = state.experience
    first, last = _range(state, env, query, MOST_STEPS)
    arrays = {}
    for name in experience.names:
        values = experience.rows(name, env, first, last)
        arrays[name] = values.reshape(len(values), -1)[:, :_MOST_DIMENSIONS].tolist()
    space = experience.spaces.get("action_space")
    names = None if space is None else names_of(space)
    start = int(space.start) if isinstance(space, spaces.Discrete) else 0
    return {"version": state.version, "first": first + experience.first, "arrays": arrays, "names": names, "start": start}


def values(state: State, env: int, query: Any) -> dict[str, Any]:
    """A leaf that is no picture, as lines; every n-th step of a long stretch."""
    experience, key = state.experience, query.get("key", "")
    if key not in experience.leaves:
        raise LookupError(f"There is no {key!r} among the observations; there are {', '.join(experience.leaves) or 'none'}")
    first, last = _range(state, env, query, 2**40)
    at = np.arange(first, last, max(-(-(last - first) // _MOST_POINTS), 1))
    # Copies, as a part of an array keeps all of it.
    flat = [some.reshape(len(some), -1)[:, :_MOST_DIMENSIONS].copy() for some in experience.chunks(key, env, at)]
    return {
        "version": state.version, "steps": (at + experience.first).tolist(),
        "dimensions": math.prod(experience.leaves[key].shape), "values": _short(np.concatenate(flat)),
    }  # fmt: skip


def _short(flat: NDArray[Any]) -> list[list[Any]]:
    """Numbers with as many digits as a plot needs."""
    if flat.dtype.kind != "f":
        return flat.astype(np.int64).tolist()  # type: ignore[no-any-return]
    return [[float(f"{one:.6g}") if math.isfinite(one) else None for one in line] for line in flat.tolist()]


def _range(state: State, env: int, query: Any, most: int) -> tuple[int, int]:
    experience = state.experience
    check_env(state, env)
    first = number(query, "first", experience.first) - experience.first
    last = min(first + min(number(query, "count", most), most), experience.n_steps)
    if not 0 <= first < last:
        raise LookupError(
            f"There is no step {first + experience.first}: steps go from {experience.first} to "
            f"{experience.first + experience.n_steps - 1}"
        )
    return first, last


def check_env(state: State, env: int) -> None:
    """LookupError unless there is this env."""
    if not 0 <= env < state.experience.n_envs:
        raise LookupError(f"There is no env {env}; there are {state.experience.n_envs}")


def number(query: Any, name: str, default: int) -> int:
    """A whole number of the address, at least 0."""
    text = query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise ValueError(f"{name} must be a whole number, got {text[:40]!r}")
    return int(text)


def finite(value: Any) -> Any:
    """The same without NaN and infinity, which JSON does not have: they become null."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
