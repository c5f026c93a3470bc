"""Train DQN on ViZDoom: semantic-segmentation masks, RGB, or both as Dict observations."""

from __future__ import annotations

from shared import arguments, finish, storage
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer

from sb3_extra_buffers.compressed import CompressedDictReplayBuffer, CompressedReplayBuffer
from sb3_extra_buffers.training_utils.vizdoom import make_env


def main(argv: list[str] | None = None) -> DQN:
    parser = arguments(__doc__, total_timesteps=1_000_000, n_envs=1)
    parser.add_argument("--scenario", default="deadly_corridor", help="a scenario that ViZDoom brings, or a .cfg file")
    parser.add_argument("--obs", choices=["labels", "rgb", "both"], default="labels")
    parser.add_argument("--buffer-size", type=int, default=100_000)
    parser.add_argument("--learning-starts", type=int, default=10_000)
    args = parser.parse_args(argv)
    env = make_env(args.scenario, args.n_envs, args.obs, framestack=2, seed=args.seed)
    if args.obs == "both":
        policy, buffer_class = "MultiInputPolicy", DictReplayBuffer if args.raw else CompressedDictReplayBuffer
    else:
        policy, buffer_class = "CnnPolicy", ReplayBuffer if args.raw else CompressedReplayBuffer
    model = DQN(
        policy, env, buffer_size=args.buffer_size, learning_starts=args.learning_starts, learning_rate=1e-4, train_freq=4,
        target_update_interval=1000, seed=args.seed, device=args.device,
        replay_buffer_class=buffer_class, replay_buffer_kwargs=storage(args),
    )  # fmt: skip
    model.learn(args.total_timesteps, progress_bar=args.progress)
    return finish(model, args)


if __name__ == "__main__":
    main()
