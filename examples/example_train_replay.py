"""Train DQN on MsPacman with a compressed replay buffer; --n-step 3 for n-step returns."""

from __future__ import annotations

from shared import GAMES, arguments, finish, storage
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer

from sb3_extra_buffers.callbacks import BufferMemoryCallback
from sb3_extra_buffers.compressed import CompressedNStepReplayBuffer, CompressedReplayBuffer
from sb3_extra_buffers.training_utils.atari import make_env


def main(argv: list[str] | None = None) -> DQN:
    parser = arguments(__doc__, total_timesteps=10_000_000, n_envs=1)
    parser.add_argument("--buffer-size", type=int, default=100_000)
    parser.add_argument("--learning-starts", type=int, default=100_000)
    parser.add_argument("--n-step", type=int, default=1, help="steps of reward before the value takes over")
    parser.add_argument("--tensorboard", metavar="FOLDER", help="log there, the buffer's memory and speed too")
    args = parser.parse_args(argv)
    game = GAMES["mspacman"]
    env = make_env(game.env_id, args.n_envs, framestack=game.framestack, seed=args.seed)
    if args.n_step > 1:
        buffer_class = NStepReplayBuffer if args.raw else CompressedNStepReplayBuffer
        buffer_kwargs = {"n_steps": args.n_step, "gamma": 0.99, **storage(args)}
    else:
        buffer_class = ReplayBuffer if args.raw else CompressedReplayBuffer
        buffer_kwargs = storage(args)
    model = DQN(  # hyperparameters of the RL Zoo for Atari
        "CnnPolicy", env, buffer_size=args.buffer_size, learning_starts=args.learning_starts, learning_rate=1e-4,
        batch_size=32, target_update_interval=1000, train_freq=4, gradient_steps=1, exploration_fraction=0.1,
        exploration_final_eps=0.01, seed=args.seed, device=args.device, tensorboard_log=args.tensorboard,
        replay_buffer_class=buffer_class, replay_buffer_kwargs=buffer_kwargs,
    )  # fmt: skip
    model.learn(args.total_timesteps, callback=BufferMemoryCallback(), progress_bar=args.progress)
    return finish(model, args)


if __name__ == "__main__":
    main()
