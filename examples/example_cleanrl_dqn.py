"""DQN in a single file, in the manner of CleanRL. The buffer's import is the only line that is not plain SB3 and torch."""

from __future__ import annotations

import argparse
import random
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from sb3_extra_buffers.compressed import CompressedReplayBuffer as ReplayBuffer


def make_env(env_id: str) -> gym.Env[Any, Any]:
    gym.register_envs(ale_py)
    env = gym.wrappers.RecordEpisodeStatistics(gym.make(env_id))
    env = gym.wrappers.AtariPreprocessing(env, terminal_on_life_loss=True)
    env = gym.wrappers.TransformReward(env, np.sign)
    return gym.wrappers.FrameStackObservation(env, 4)


class QNetwork(nn.Module):
    def __init__(self, n_actions: int) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, n_actions),
        )  # fmt: skip

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.network(pixels.float() / 255)


def main(argv: list[str] | None = None) -> QNetwork:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--env-id", default="BreakoutNoFrameskip-v4")
    parser.add_argument("--total-timesteps", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--buffer-size", type=int, default=1_000_000)
    parser.add_argument("--learning-starts", type=int, default=80_000)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--train-frequency", type=int, default=4)
    parser.add_argument("--target-network-frequency", type=int, default=1000)
    parser.add_argument("--exploration-fraction", type=float, default=0.1)
    parser.add_argument("--end-e", type=float, default=0.01)
    args = parser.parse_args(argv)

    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    env = make_env(args.env_id)
    env.action_space.seed(args.seed)
    q_network = QNetwork(int(env.action_space.n)).to(device)
    target_network = QNetwork(int(env.action_space.n)).to(device)
    target_network.load_state_dict(q_network.state_dict())
    optimizer = torch.optim.Adam(q_network.parameters(), lr=args.learning_rate)
    rb = ReplayBuffer(args.buffer_size, env.observation_space, env.action_space, device, handle_timeout_termination=False)

    obs, _ = env.reset(seed=args.seed)
    for step in range(args.total_timesteps):
        epsilon = max(args.end_e, 1 + (args.end_e - 1) * step / (args.exploration_fraction * args.total_timesteps))
        if random.random() < epsilon:
            action = env.action_space.sample()
        else:
            action = q_network(torch.as_tensor(obs[None], device=device)).argmax(1).item()
        next_obs, reward, terminated, truncated, info = env.step(action)
        rb.add(obs[None], next_obs[None], np.array([action]), np.array([reward]), np.array([terminated]), [info])
        obs = next_obs
        if terminated or truncated:
            if "episode" in info:
                print(f"step {step}: score {info['episode']['r']:g}")
            obs, _ = env.reset()

        if step > args.learning_starts and step % args.train_frequency == 0:
            data = rb.sample(args.batch_size)
            with torch.no_grad():
                best_next = target_network(data.next_observations).max(1).values
                target = data.rewards.flatten() + args.gamma * best_next * (1 - data.dones.flatten())
            value = q_network(data.observations).gather(1, data.actions).squeeze(1)
            loss = F.mse_loss(value, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % args.target_network_frequency == 0:
            target_network.load_state_dict(q_network.state_dict())
    env.close()
    return q_network


if __name__ == "__main__":
    main()
