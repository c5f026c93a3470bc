"""Train DQN on MsPacman, starting from recorded play: first it learns from the file alone, then from both."""

from __future__ import annotations

from pathlib import Path

from shared import GAMES, RandomPlayer, arguments, finish, storage
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.logger import configure
from stable_baselines3.common.utils import LinearSchedule

from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.datasets import OfflineMix, OfflineMixCallback
from sb3_extra_buffers.training_utils.atari import make_env
from sb3_extra_buffers.training_utils.buffer_warmup import warm_up


class RawMix(OfflineMix, ReplayBuffer): ...


class CompressedMix(OfflineMix, CompressedReplayBuffer): ...


def record(path: Path, n_steps: int, seed: int) -> None:
    """Record random play and save it. Play of a person or of a trained model is worth more."""
    game = GAMES["mspacman"]
    env = make_env(game.env_id, 1, framestack=game.framestack, seed=seed + 1)
    buffer = CompressedReplayBuffer(n_steps, env.observation_space, env.action_space, "cpu")
    warm_up(buffer, 1, env, RandomPlayer(env, seed))
    buffer.save(path)


def main(argv: list[str] | None = None) -> DQN:
    parser = arguments(__doc__, total_timesteps=1_000_000, n_envs=1)
    parser.add_argument(
        "--recorded", metavar="PATH", default="recorded.sb3x", help="a saved buffer; recorded if the file does not exist"
    )
    parser.add_argument("--recorded-steps", type=int, default=20_000, help="steps to record")
    parser.add_argument("--offline-steps", type=int, default=5_000, help="gradient steps before the first step in the env")
    parser.add_argument("--offline-fraction", type=float, default=0.5, help="share of recorded steps at the start; falls to 0")
    parser.add_argument("--buffer-size", type=int, default=100_000)
    parser.add_argument("--learning-starts", type=int, default=1_000)
    args = parser.parse_args(argv)
    if not Path(args.recorded).exists():
        record(Path(args.recorded), args.recorded_steps, args.seed)
    game = GAMES["mspacman"]
    env = make_env(game.env_id, args.n_envs, framestack=game.framestack, seed=args.seed)
    model = DQN(
        "CnnPolicy", env, buffer_size=args.buffer_size, learning_starts=args.learning_starts, learning_rate=1e-4,
        batch_size=32, target_update_interval=1000, train_freq=4, gradient_steps=1, exploration_fraction=0.1,
        exploration_final_eps=0.01, seed=args.seed, device=args.device,
        replay_buffer_class=RawMix if args.raw else CompressedMix,
        replay_buffer_kwargs={"offline": args.recorded, "offline_fraction": 1.0, **storage(args)},
    )  # fmt: skip
    model.set_logger(configure(format_strings=[]))  # `train` needs a logger
    model.train(args.offline_steps, batch_size=32)
    model.replay_buffer.offline_fraction = LinearSchedule(args.offline_fraction, 0.0, 1.0)
    model.learn(args.total_timesteps, callback=OfflineMixCallback(), progress_bar=args.progress)
    return finish(model, args)


if __name__ == "__main__":
    main()
