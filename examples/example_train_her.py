"""Train DQN with hindsight experience replay on SB3's bit-flipping task.

Its observations are a few numbers, so there is little to save here; image goals use the same class.
"""

from __future__ import annotations

from shared import arguments, finish, storage
from stable_baselines3 import DQN, HerReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv

from sb3_extra_buffers.compressed import CompressedHerReplayBuffer


def main(argv: list[str] | None = None) -> DQN:
    parser = arguments(__doc__, total_timesteps=50_000, n_envs=1)
    parser.add_argument("--bits", type=int, default=15)
    args = parser.parse_args(argv)
    env_kwargs = {"n_bits": args.bits, "max_steps": args.bits}
    model = DQN(
        "MultiInputPolicy", make_vec_env(BitFlippingEnv, args.n_envs, args.seed, env_kwargs=env_kwargs),
        buffer_size=100_000, learning_starts=100, seed=args.seed, device=args.device,
        replay_buffer_class=HerReplayBuffer if args.raw else CompressedHerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": 4, "goal_selection_strategy": "future", **storage(args)},
    )  # fmt: skip
    model.learn(args.total_timesteps, progress_bar=args.progress)
    return finish(model, args)


if __name__ == "__main__":
    main()
