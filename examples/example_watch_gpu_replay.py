"""Watch the DQN that example_train_gpu_replay.py saved play Pong: in a window, or as a GIF or MP4 with --video."""

from __future__ import annotations

import argparse

from shared import GAMES, watch_episode
from stable_baselines3 import DQN
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.utils import get_device

from sb3_extra_buffers.training_utils.atari import make_env


def watch(algorithm: type[BaseAlgorithm], description: str | None, argv: list[str] | None) -> float:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("model", help="what the training example saved")
    parser.add_argument("--device", default="auto", help="where the model runs")
    parser.add_argument("--total-timesteps", type=int, default=10_000, help="stop after so many steps at the latest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--video", metavar="PATH", help="write a .gif or .mp4 instead of opening a window")
    args = parser.parse_args(argv)
    mode = "rgb_array" if args.video else "human"
    env = make_env(GAMES["pong"].env_id, 1, framestack=4, seed=args.seed, render_mode=mode)
    # The model knows its buffer's class and keywords; nothing is stored while it plays.
    model = algorithm.load(args.model, device=get_device(args.device))
    return watch_episode(env, model, args)


def main(argv: list[str] | None = None) -> float:
    return watch(DQN, __doc__, argv)


if __name__ == "__main__":
    main()
