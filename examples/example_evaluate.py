"""Evaluate a trained model on whole games, with true scores; may fill a compressed buffer with what it meets."""

from __future__ import annotations

import argparse

from shared import GAMES
from stable_baselines3 import DQN, PPO

from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.training_utils.atari import make_env
from sb3_extra_buffers.training_utils.eval_model import eval_model
from sb3_extra_buffers.training_utils.summary import RewardSummary, summarize


def main(argv: list[str] | None = None) -> RewardSummary:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("model", help="what a training example saved")
    parser.add_argument("--algo", choices=["ppo", "dqn"], default="ppo")
    parser.add_argument("--game", choices=GAMES, default="pong")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--n-envs", type=int, default=4, help="envs that run side by side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--buffer-size", type=int, default=0, help="transitions to keep in a compressed buffer")
    args = parser.parse_args(argv)
    game = GAMES[args.game]
    env = make_env(game.env_id, args.n_envs, framestack=game.framestack, seed=args.seed)
    model = {"ppo": PPO, "dqn": DQN}[args.algo].load(args.model)
    buffer = None
    if args.buffer_size:
        buffer = CompressedReplayBuffer(args.buffer_size, env.observation_space, env.action_space, n_envs=args.n_envs)
    rewards, seconds = eval_model(args.episodes, env, model, buffer=buffer, deterministic=False)
    summary = summarize(rewards)
    print(summary)
    if buffer is not None:
        megabytes = buffer.memory_usage().stored_bytes / 1e6
        print(f"{buffer.size() * args.n_envs} transitions in {megabytes:.2f} MB, {seconds[0]:.2f} s to add")
    return summary


if __name__ == "__main__":
    main()
