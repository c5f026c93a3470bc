"""Train DQN on Pong with observations that live on the device the model is trained on; runs on a CPU too."""

from __future__ import annotations

from shared import GAMES, arguments, finish
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.utils import get_device

from sb3_extra_buffers.gpu_buffers import GpuReplayBuffer, find_gpu_buffer_dtypes
from sb3_extra_buffers.gpu_buffers.dtypes import numpy_dtype_to_torch
from sb3_extra_buffers.training_utils.atari import make_env


def main(argv: list[str] | None = None) -> DQN:
    parser = arguments(__doc__, total_timesteps=10_000_000, n_envs=1)
    parser.set_defaults(compression_method="tiles")
    parser.add_argument("--buffer-size", type=int, default=100_000)
    parser.add_argument("--learning-starts", type=int, default=100_000)
    parser.add_argument("--buffer-device", help="where observations live, if not where the model is trained")
    args = parser.parse_args(argv)
    env = make_env(GAMES["pong"].env_id, args.n_envs, framestack=4, seed=args.seed)
    device, space = get_device(args.device), env.observation_space
    storage = {
        "dtypes": find_gpu_buffer_dtypes(space.shape, numpy_dtype_to_torch(space.dtype), args.compression_method),
        "compression_method": args.compression_method,
        "buffer_device": args.buffer_device or device,
    }
    model = DQN(  # hyperparameters of the RL Zoo for Atari
        "CnnPolicy", env, buffer_size=args.buffer_size, learning_starts=args.learning_starts, learning_rate=1e-4,
        batch_size=32, target_update_interval=1000, train_freq=4, gradient_steps=1, exploration_fraction=0.1,
        exploration_final_eps=0.01, seed=args.seed, device=device,
        replay_buffer_class=ReplayBuffer if args.raw else GpuReplayBuffer,
        replay_buffer_kwargs={} if args.raw else storage,
    )  # fmt: skip
    model.learn(args.total_timesteps, progress_bar=args.progress)
    return finish(model, args)


if __name__ == "__main__":
    main()
