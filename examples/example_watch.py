"""Watch a trained model play one game: in a window, or as a GIF or MP4 with --video."""

from __future__ import annotations

import argparse

from shared import GAMES, watch_episode
from stable_baselines3 import DQN, PPO

from sb3_extra_buffers.training_utils.atari import make_env


def main(argv: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("model", help="what a training example saved")
    parser.add_argument("--algo", choices=["ppo", "dqn"], default="ppo")
    parser.add_argument("--game", choices=GAMES, default="pong")
    parser.add_argument("--total-timesteps", type=int, default=10_000, help="stop after so many steps at the latest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--video", metavar="PATH", help="write a .gif or .mp4 instead of opening a window")
    args = parser.parse_args(argv)
    game = GAMES[args.game]
    mode = "rgb_array" if args.video else "human"
    env = make_env(game.env_id, 1, framestack=game.framestack, seed=args.seed, render_mode=mode)
    model = {"ppo": PPO, "dqn": DQN}[args.algo].load(args.model)
    return watch_episode(env, model, args)


if __name__ == "__main__":
    main()
