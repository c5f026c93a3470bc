"""What the examples share: the command line, the games, buffers to compare, and a line about a buffer's memory."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.vec_env import VecEnv

from sb3_extra_buffers.callbacks import transition_memory
from sb3_extra_buffers.codecs import available_codecs
from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.recording import RecordBuffer
from sb3_extra_buffers.training_utils.atari import make_env
from sb3_extra_buffers.training_utils.buffer_warmup import warm_up
from sb3_extra_buffers.training_utils.play import play


class Game(NamedTuple):
    env_id: str
    framestack: int


GAMES = {"pong": Game("PongNoFrameskip-v4", 1), "mspacman": Game("MsPacmanNoFrameskip-v4", 4)}


def arguments(description: str | None, total_timesteps: int, n_envs: int, torch: bool = True) -> argparse.ArgumentParser:
    """A parser with the options that all training examples have.

    :param total_timesteps: default number of steps, of all envs together
    :param n_envs: default number of envs
    :param torch: whether the model is torch's, which is told its device
    """
    parser = base_arguments(description, total_timesteps, n_envs)
    parser.add_argument("--compression-method", default="auto", help="codec, e.g. zstd3")
    parser.add_argument("--raw", action="store_true", help="use the library's own buffer instead, to compare with")
    if torch:
        parser.add_argument("--device", default="auto", help="where the model is trained")
    parser.add_argument("--save", metavar="PATH", help="where to save the trained model, e.g. models/pong.zip")
    parser.add_argument("--progress", action="store_true", help="show a progress bar")
    return parser


def base_arguments(description: str | None, total_timesteps: int, n_envs: int) -> argparse.ArgumentParser:
    """The options that make sense without training, too."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--total-timesteps", type=int, default=total_timesteps, help="steps, of all envs together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n-envs", type=int, default=n_envs, help="envs that run side by side")
    return parser


def storage(args: argparse.Namespace) -> dict[str, Any]:
    """Keywords for a compressed buffer, none for a raw one."""
    return {} if args.raw else {"compression_method": args.compression_method}


def finish(model: Any, args: argparse.Namespace) -> Any:
    """Say what the buffer took, save the model, close its env."""
    buffer = getattr(model, "replay_buffer", None) or model.rollout_buffer
    usage = transition_memory(buffer)
    print(
        f"{type(buffer).__name__}: {buffer.size() * buffer.n_envs} transitions in {usage.stored_bytes / 1e6:.2f} MB, "
        f"{usage.ratio:.1%} of {usage.raw_bytes / 1e6:.2f} MB"
    )
    if args.save:
        model.save(args.save)
    model.get_env().close()
    return model


def comparison_arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser for the tables that compare codecs."""
    parser = base_arguments(description, total_timesteps=20_000, n_envs=4)
    parser.add_argument("--game", choices=GAMES, default="mspacman")
    parser.add_argument("--methods", nargs="+", default=["auto", *available_codecs()], help="codecs, e.g. zstd3 lz4-frame/1")
    return parser


def filled_buffers(args: argparse.Namespace) -> tuple[dict[str, ReplayBuffer], list[float]]:
    """SB3's buffer and one for each codec, all full of the same game played at random, and the seconds that this took."""
    game = GAMES[args.game]
    env = make_env(game.env_id, args.n_envs, framestack=game.framestack, seed=args.seed)
    sizes = (args.total_timesteps, env.observation_space, env.action_space, "cpu", args.n_envs)
    buffers = {"SB3": ReplayBuffer(*sizes)}
    buffers |= {method: CompressedReplayBuffer(*sizes, compression_method=method) for method in args.methods}
    player = RandomPlayer(env, args.seed)
    warm_up(list(buffers.values()), args.n_envs, env, player)
    for buffer in buffers.values():  # only the second lap is timed: the first loads codecs and touches fresh memory
        buffer.reset()
    _, seconds = warm_up(list(buffers.values()), args.n_envs, env, player, close_env=True)
    return buffers, seconds


class RandomPlayer:
    """Draws actions; has the one method of a model that playing needs."""

    def __init__(self, env: VecEnv, seed: int) -> None:
        self.action_space, self.n_envs = env.action_space, env.num_envs
        self.action_space.seed(seed)

    def predict(self, obs: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False) -> Any:
        return np.array([self.action_space.sample() for _ in range(self.n_envs)]), state


def watch_episode(env: VecEnv, model: Any, args: argparse.Namespace) -> float:
    """Let a model play one episode, in its window or into a video; the score."""
    record = RecordBuffer(res=(210, 160), ch_num=3, size=args.total_timesteps, compression_method="auto")
    score = 0.0
    for t, step in enumerate(play(env, model)):
        score += float(step.reward[0])
        if args.video:
            record.add(env.render(), step.reward[0], step.action[0])
        if "episode" in step.infos[0] or t + 1 == args.total_timesteps:
            break
    env.close()
    if args.video:
        record.save_video(args.video, fps=15)
    print(f"Score, clipped to -1..1 per step: {score:g} in {t + 1} steps")
    return score
