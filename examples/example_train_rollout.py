"""Train PPO on Pong (single frames) or MsPacman (stacks of four) with a compressed rollout buffer."""

from __future__ import annotations

from shared import GAMES, arguments, finish, storage
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.utils import LinearSchedule

from sb3_extra_buffers.compressed import CompressedRolloutBuffer
from sb3_extra_buffers.training_utils.atari import make_env


def main(argv: list[str] | None = None) -> PPO:
    parser = arguments(__doc__, total_timesteps=10_000_000, n_envs=8)
    parser.add_argument("--game", choices=GAMES, default="pong")
    args = parser.parse_args(argv)
    game = GAMES[args.game]
    env = make_env(game.env_id, args.n_envs, framestack=game.framestack, seed=args.seed)
    model = PPO(  # hyperparameters of the RL Zoo for Atari
        "CnnPolicy", env, n_steps=128, n_epochs=4, batch_size=32 * args.n_envs, learning_rate=LinearSchedule(2.5e-4, 0, 1),
        clip_range=LinearSchedule(0.1, 0, 1), vf_coef=0.5, ent_coef=0.01, seed=args.seed, device=args.device,
        rollout_buffer_class=RolloutBuffer if args.raw else CompressedRolloutBuffer,
        rollout_buffer_kwargs=storage(args),
    )  # fmt: skip
    model.learn(args.total_timesteps, progress_bar=args.progress)
    return finish(model, args)


if __name__ == "__main__":
    main()
