"""Train SBX's DQN (JAX) on MsPacman with a compressed replay buffer. Needs: pip install sbx-rl"""

from __future__ import annotations

from sbx import DQN
from shared import GAMES, arguments, finish, storage
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.training_utils.atari import make_env


def main(argv: list[str] | None = None) -> DQN:
    parser = arguments(__doc__, total_timesteps=10_000_000, n_envs=1, torch=False)
    parser.add_argument("--buffer-size", type=int, default=100_000)
    parser.add_argument("--learning-starts", type=int, default=100_000)
    args = parser.parse_args(argv)
    game = GAMES["mspacman"]
    env = make_env(game.env_id, args.n_envs, framestack=game.framestack, seed=args.seed)
    model = DQN(
        "CnnPolicy", env, buffer_size=args.buffer_size, learning_starts=args.learning_starts, learning_rate=1e-4,
        batch_size=32, target_update_interval=1000, train_freq=4, exploration_final_eps=0.01, seed=args.seed,
        replay_buffer_class=ReplayBuffer if args.raw else CompressedReplayBuffer, replay_buffer_kwargs=storage(args),
    )  # fmt: skip
    model.learn(args.total_timesteps, progress_bar=args.progress)
    return finish(model, args)


if __name__ == "__main__":
    main()
