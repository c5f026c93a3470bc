"""Train PPO on Pong with observations that live on the device the model is trained on; runs on a CPU too."""

from __future__ import annotations

from shared import GAMES, arguments, finish
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.utils import LinearSchedule, get_device

from sb3_extra_buffers.gpu_buffers import GpuRolloutBuffer, find_gpu_buffer_dtypes
from sb3_extra_buffers.gpu_buffers.dtypes import numpy_dtype_to_torch
from sb3_extra_buffers.training_utils.atari import make_env


def main(argv: list[str] | None = None) -> PPO:
    parser = arguments(__doc__, total_timesteps=10_000_000, n_envs=8)
    parser.set_defaults(compression_method="tiles")
    parser.add_argument("--buffer-device", help="where observations live, if not where the model is trained")
    args = parser.parse_args(argv)
    env = make_env(GAMES["pong"].env_id, args.n_envs, framestack=4, seed=args.seed)
    device, space = get_device(args.device), env.observation_space
    storage = {
        "dtypes": find_gpu_buffer_dtypes(space.shape, numpy_dtype_to_torch(space.dtype), args.compression_method),
        "compression_method": args.compression_method,
        "buffer_device": args.buffer_device or device,
    }
    model = PPO(  # hyperparameters of the RL Zoo for Atari
        "CnnPolicy", env, n_steps=128, n_epochs=4, batch_size=32 * args.n_envs, learning_rate=LinearSchedule(2.5e-4, 0, 1),
        clip_range=LinearSchedule(0.1, 0, 1), vf_coef=0.5, ent_coef=0.01, seed=args.seed, device=device,
        rollout_buffer_class=RolloutBuffer if args.raw else GpuRolloutBuffer,
        rollout_buffer_kwargs={} if args.raw else storage,
    )  # fmt: skip
    model.learn(args.total_timesteps, progress_bar=args.progress)
    return finish(model, args)


if __name__ == "__main__":
    main()
