"""Train RecurrentPPO on Pong: an LSTM remembers what a frame stack would show."""

from __future__ import annotations

from sb3_contrib import RecurrentPPO
from shared import GAMES, arguments, finish, storage

from sb3_extra_buffers.contrib import compress_rollout_buffer
from sb3_extra_buffers.training_utils.atari import make_env


def main(argv: list[str] | None = None) -> RecurrentPPO:
    args = arguments(__doc__, total_timesteps=10_000_000, n_envs=8).parse_args(argv)
    env = make_env(GAMES["pong"].env_id, args.n_envs, framestack=1, seed=args.seed)
    model = RecurrentPPO(
        "CnnLstmPolicy", env, n_steps=128, n_epochs=4, batch_size=32 * args.n_envs, learning_rate=2.5e-4, clip_range=0.1,
        ent_coef=0.01, policy_kwargs={"lstm_hidden_size": 128, "enable_critic_lstm": False, "shared_lstm": True},
        seed=args.seed, device=args.device,
    )  # fmt: skip
    if not args.raw:
        compress_rollout_buffer(model, **storage(args))  # RecurrentPPO takes no buffer class
    model.learn(args.total_timesteps, progress_bar=args.progress)
    return finish(model, args)


if __name__ == "__main__":
    main()
