"""The Blind Cliffwalk of Schaul et al. (2016): how many updates uniform and prioritized replay need until Q-values are right.

`n` states in a row, two actions. The right one leads on, and from the last state to a reward of 1; the wrong one ends the
episode with 0. The replay memory holds what all 2**n sequences of actions meet: 2**(n+1) - 2 transitions, one of which has the
reward. Q-learning replays one transition per update, with a step size of 1/4 and a discount of 1 - 1/n, until the mean squared
error of all values is below 0.001.

    python benchmarks/cliffwalk.py            benchmarks/campaigns/cliffwalk.json, docs/_static/cliffwalk.png; some minutes
    python benchmarks/cliffwalk.py --states 8 --runs 3 --out somewhere
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.prioritized import CompressedPrioritizedReplayBuffer

ROOT = Path(__file__).resolve().parent.parent
RIGHT, WRONG = 1, 0
#: Updates after which a run is given up.
MOST_UPDATES = 5_000_000


def transitions(n: int, rng: np.random.Generator) -> list[tuple[int, int, int, float, bool]]:
    """State, action, next state, reward and end of all that random play meets, as often as it meets it, in random order."""
    episodes = []
    for code in rng.permutation(2**n):
        actions = [(int(code) >> i) & 1 for i in range(n)]
        for state, action in enumerate(actions):
            is_goal = state == n - 1 and action == RIGHT
            episodes.append((state, action, min(state + 1, n - 1), float(is_goal), is_goal or action == WRONG))
            if episodes[-1][-1]:
                break
    return episodes


def fill(n: int, is_prioritized: bool, seed: int) -> Any:
    """A buffer with all transitions."""
    played = transitions(n, np.random.default_rng(seed))
    args = (len(played), spaces.Discrete(n), spaces.Discrete(2), "cpu")
    buffer: Any = (
        CompressedPrioritizedReplayBuffer(*args, alpha=0.7, beta=0, eps=1e-4)
        if is_prioritized
        else CompressedReplayBuffer(*args)
    )
    for state, action, following, reward, is_end in played:
        one = (np.array([state]), np.array([following]), np.array([[action]]), np.array([reward]), np.array([is_end]))
        buffer.add(*one, [{}])
    return buffer


def updates_needed(n: int, is_prioritized: bool, seed: int) -> int:
    """Updates until all values are right, for one order of the transitions."""
    buffer, gamma = fill(n, is_prioritized, seed), 1 - 1 / n
    np.random.seed(seed)
    truth = np.zeros((n, 2))
    truth[:, RIGHT] = gamma ** np.arange(n - 1, -1, -1)
    values = np.random.default_rng(seed + 1).normal(0, 0.1, (n, 2))
    for update in range(1, MOST_UPDATES):
        batch = buffer.sample(1)
        state, action, following = int(batch.observations[0, 0]), int(batch.actions[0, 0]), int(batch.next_observations[0, 0])
        target = float(batch.rewards[0, 0]) + (0.0 if batch.dones[0, 0] else gamma * values[following].max())
        error = target - values[state, action]
        values[state, action] += error / 4
        if is_prioritized:
            buffer.update_priorities(batch.indices, [abs(error)])
        if ((values - truth) ** 2).mean() < 1e-3:
            return update
    return MOST_UPDATES


def plot(results: dict[str, Any], path: Path) -> None:
    """Median updates over the number of states."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
    for name, colour in (("uniform", "#888888"), ("prioritized", "#1f6feb")):
        runs = [results[name][str(n)] for n in results["states"]]
        axes.plot(results["states"], np.median(runs, axis=1), "o-", color=colour, label=name)
        axes.fill_between(results["states"], np.min(runs, axis=1), np.max(runs, axis=1), color=colour, alpha=0.2)
    axes.set(yscale="log", xlabel="states", ylabel="updates until values are right")
    axes.set_title("Blind Cliffwalk: median, smallest and largest of the runs")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Run, write, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=12, help="the most; 12 unless given")
    parser.add_argument("--runs", type=int, default=5, help="per number of states; 5 unless given")
    parser.add_argument("--out", type=Path, default=None, help="folder for both files")
    args = parser.parse_args()
    results: dict[str, Any] = {"states": list(range(2, args.states + 1)), "uniform": {}, "prioritized": {}}
    for n in results["states"]:
        for name in ("uniform", "prioritized"):
            results[name][str(n)] = [updates_needed(n, name == "prioritized", seed) for seed in range(args.runs)]
        print(f"{n} states: uniform {np.median(results['uniform'][str(n)]):,.0f}", end=", ")
        print(f"prioritized {np.median(results['prioritized'][str(n)]):,.0f}", flush=True)
    data, picture = ROOT / "benchmarks" / "campaigns", ROOT / "docs" / "_static"
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        data = picture = args.out
    (data / "cliffwalk.json").write_text(json.dumps(results, indent=1) + "\n")
    plot(results, picture / "cliffwalk.png")


if __name__ == "__main__":
    main()
