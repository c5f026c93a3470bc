"""Watch a trained model play one game: in a window, or as a GIF or MP4 with --video."""

from __future__ import annotations

import argparse

from shared import GAMES
from stable_baselines3 import DQN, PPO

from sb3_extra_buffers.recording import RecordBuffer
from sb3_extra_buffers.training_utils.atari import make_env
from sb3_extra_buffers.training_utils.play import play


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


if __name__ == "__main__":
    main()
