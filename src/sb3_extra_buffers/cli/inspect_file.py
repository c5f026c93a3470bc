"""Show what a saved buffer holds: a file made by `buffer.save`, a checkpoint folder, or a pickle made by SB3's
`model.save_replay_buffer`.

Opening a pickle can run any code that is in it, so that is asked about first. The other files hold no code.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sb3_extra_buffers._text import human_bytes, human_share
from sb3_extra_buffers.cli.columns import codecs_of, columns_of
from sb3_extra_buffers.cli.opening import add_trust, open_buffer
from sb3_extra_buffers.cli.output import Table, say, show, show_json

if TYPE_CHECKING:
    from stable_baselines3.common.buffers import ReplayBuffer

HELP = "what a saved buffer holds"
EXAMPLES = """\
  sb3-extra-buffers inspect buffer.sb3x
  sb3-extra-buffers inspect checkpoints --frames frames.png
  sb3-extra-buffers inspect replay_buffer.pkl --trust --json"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", type=Path, metavar="FILE", help="saved buffer: a file, a checkpoint folder, or a pickle")
    add_trust(parser)
    parser.add_argument("--frames", type=_picture, metavar="PNG", help="save a contact sheet of stored frames, as a PNG")
    parser.add_argument("--key", help="key of a Dict observation to show frames of (default: the first with images)")


def run(args: argparse.Namespace) -> int:
    """Load, describe, and draw the frames if asked to."""
    from stable_baselines3.common.buffers import ReplayBuffer

    buffer = open_buffer(args.file, trust=args.trust)
    path: Path = args.file
    size = path.stat().st_size if path.is_file() else sum(one.stat().st_size for one in path.iterdir())
    facts: dict[str, Any] = {"file": str(path), "file_bytes": size}
    if not isinstance(buffer, ReplayBuffer):
        facts |= {"class": f"{type(buffer).__module__}.{type(buffer).__qualname__}", "contents": repr(buffer)}
        show_json(facts) if args.json else say(f"{path} ({human_bytes(size)}): {facts['contents']}")
        return 0
    facts |= describe(buffer)
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


def describe(buffer: ReplayBuffer) -> dict[str, Any]:
    """All that `inspect` knows, ready for JSON."""
    import numpy as np

    from sb3_extra_buffers.compressed.replay import ReplayObservations

    size, n_envs = buffer.size(), buffer.n_envs
    order = (np.arange(size) + (buffer.pos if buffer.full else 0)) % buffer.buffer_size  # oldest first
    rewards, dones = buffer.rewards[order], buffer.dones[order].astype(bool)
    returns = _returns(rewards, dones, begins_at_reset=not buffer.full)
    if isinstance(buffer, ReplayObservations):
        raw, stored, *_ = buffer.memory_usage()
    else:
        names = ("observations", "next_observations")
        arrays = [column for name in names for column in columns_of(buffer, name).values()]
        raw = stored = sum(array.nbytes for array in arrays) * size // buffer.buffer_size
    return {
        "class": f"{type(buffer).__module__}.{type(buffer).__qualname__}",
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


def present(facts: dict[str, Any]) -> None:
    """Print the facts as a table."""
    raw, stored = facts["raw_bytes"], facts["stored_bytes"]
    rows = [
        ["class", f"{facts['class'].rpartition('.')[2]} ({facts['class'].partition('.')[0]})"],
        ["observations", facts["observation_space"]],
        ["actions", facts["action_space"]],
        [
            "transitions",
            f"{facts['transitions']:,} of {facts['capacity']:,} ({facts['n_envs']} env{'s' * (facts['n_envs'] > 1)})",
        ],
        ["episodes", f"{facts['ends']:,} ends, {facts['complete_episodes']:,} complete episodes"],
        ["observations, in SB3", human_bytes(raw)],
        ["observations, stored", f"{human_bytes(stored)} ({human_share(stored / raw)})" if raw else human_bytes(stored)],
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


def _picture(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() != ".png":
        raise argparse.ArgumentTypeError(f"must name a PNG, such as {path.stem or 'frames'}.png, got {text!r}")
    return path
