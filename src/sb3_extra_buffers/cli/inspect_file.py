"""Show what a replay buffer holds that was saved by SB3's `model.save_replay_buffer(FILE)`.

Such a file is a pickle, and opening a pickle can run any code that is in it: open only files that you trust.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sb3_extra_buffers.cli.columns import codecs_of, columns_of
from sb3_extra_buffers.cli.output import Table, human_bytes, say, show, show_json

if TYPE_CHECKING:
    from stable_baselines3.common.buffers import ReplayBuffer

HELP = "what a saved replay buffer holds (trusted files only)"
EXAMPLES = """\
  sb3-extra-buffers inspect replay_buffer.pkl
  sb3-extra-buffers inspect replay_buffer.pkl --frames frames.png
  sb3-extra-buffers inspect replay_buffer.pkl --json"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", type=Path, metavar="FILE", help="file made by model.save_replay_buffer; trusted files only")
    parser.add_argument("--frames", type=Path, metavar="PNG", help="save a contact sheet of stored frames")
    parser.add_argument("--key", help="key of a Dict observation to show frames of (default: the first with images)")


def run(args: argparse.Namespace) -> int:
    """Load, describe, and draw the frames if asked to."""
    buffer = load(args.file)
    facts = {"file": str(args.file), "file_bytes": args.file.stat().st_size, **describe(buffer)}
    if args.frames:
        from sb3_extra_buffers.cli.contact_sheet import save_contact_sheet

        facts["frames"] = save_contact_sheet(buffer, args.frames, args.key)
    if args.json:
        show_json(facts)
    else:
        present(facts)
        if args.frames:
            say(f"Frames: {args.frames}")
    return 0


def load(path: Path) -> ReplayBuffer:
    """The replay buffer in a file, or an error that says why there is none."""
    if not path.is_file():
        raise ValueError(f"No file {path}")
    from stable_baselines3.common.buffers import ReplayBuffer
    from stable_baselines3.common.save_util import load_from_pkl

    try:
        with path.open("rb") as file:
            buffer = load_from_pkl(file)
    except Exception as error:  # unpickling damaged bytes raises anything at all
        raise ValueError(
            f"{path} cannot be opened as a saved replay buffer ({type(error).__name__}: {error}). "
            "Expected a file made by model.save_replay_buffer"
        ) from error
    if not isinstance(buffer, ReplayBuffer):
        raise ValueError(f"{path} holds a {type(buffer).__name__}, not a replay buffer")
    return buffer


def describe(buffer: ReplayBuffer) -> dict[str, Any]:
    """All that `inspect` knows, ready for JSON."""
    import numpy as np

    from sb3_extra_buffers.compressed.replay import ReplayObservations

    size, n_envs = buffer.size(), buffer.n_envs
    order = (np.arange(size) + (buffer.pos if buffer.full else 0)) % buffer.buffer_size  # oldest first
    rewards, dones = buffer.rewards[order], buffer.dones[order].astype(bool)
    returns = _returns(rewards, dones, begins_at_reset=not buffer.full)
    one = sum(int(np.prod(column.shape[2:])) * column.dtype.itemsize for column in columns_of(buffer).values())
    if isinstance(buffer, ReplayObservations):
        stored = buffer.memory_usage().stored_bytes
    else:
        names = ("observations", "next_observations")
        stored = sum(int(column.nbytes) for name in names for column in columns_of(buffer, name).values())
    return {
        "class": f"{type(buffer).__module__}.{type(buffer).__qualname__}",
        "observation_space": str(buffer.observation_space),
        "action_space": str(buffer.action_space),
        "n_envs": n_envs,
        "transitions": size * n_envs,
        "capacity": buffer.buffer_size * n_envs,
        "ends": int(dones.sum()),
        "complete_episodes": len(returns),
        "raw_bytes": 2 * size * n_envs * one,
        "stored_bytes": stored,
        "codecs": codecs_of(buffer),
        "reward": _statistics(rewards),
        "episode_return": _statistics(np.asarray(returns)),
    }


def present(facts: dict[str, Any]) -> None:
    """Print the facts as a table."""
    raw, stored = facts["raw_bytes"], facts["stored_bytes"]
    rows = [
        ["class", facts["class"]],
        ["observations", facts["observation_space"]],
        ["actions", facts["action_space"]],
        [
            "transitions",
            f"{facts['transitions']:,} of {facts['capacity']:,} ({facts['n_envs']} env{'s' * (facts['n_envs'] > 1)})",
        ],
        ["episodes", f"{facts['ends']:,} ends, {facts['complete_episodes']:,} complete episodes"],
        ["observations, raw", human_bytes(raw)],
        ["observations, stored", f"{human_bytes(stored)} ({100 * stored / raw:.2f} %)" if raw else human_bytes(stored)],
        ["file", human_bytes(facts["file_bytes"])],
    ]
    if facts["codecs"]:
        rows.insert(7, ["codec", ", ".join(f"{key}: {codec}".removeprefix(": ") for key, codec in facts["codecs"].items())])
    for name, title in (("reward", "reward"), ("episode_return", "return of an episode")):
        values = facts[name]
        if values:
            rows.append([title, "mean {mean:.4g}, std {std:.4g}, min {min:.4g}, max {max:.4g}".format(**values)])
    show(Table(["", facts["file"]], rows, "ll"))


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
