"""Watch the PPO that example_train_gpu_rollout.py saved play Pong: in a window, or as a GIF or MP4 with --video."""

from __future__ import annotations

from example_watch_gpu_replay import watch
from stable_baselines3 import PPO


def main(argv: list[str] | None = None) -> float:
    return watch(PPO, __doc__, argv)


if __name__ == "__main__":
    main()
