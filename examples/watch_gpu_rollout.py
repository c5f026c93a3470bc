"""Watch the PPO that train_gpu_rollout.py saved play Pong: in a window, or as a GIF or MP4 with --video."""

from __future__ import annotations

from stable_baselines3 import PPO
from watch_gpu_replay import watch


def main(argv: list[str] | None = None) -> float:
    return watch(PPO, __doc__, argv)


if __name__ == "__main__":
    main()
