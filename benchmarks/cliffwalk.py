"""The Blind Cliffwalk of Schaul et al. (2016, section 3.1, appendix B.1): updates until values are right, by kind of replay.

`n` states in a row, two actions. The right one leads on, and from the last state to a reward of 1; the wrong one ends the
episode with 0. The replay memory holds what all 2**n sequences of actions meet, in random order: 2**(n+1) - 2 transitions, of
which one has the reward. Q-learning with a table replays one transition per update, with a step size of 1/4 and a discount of
1 - 1/n, until the mean squared error of all values is below 0.001. They begin with normal values of deviation 0.1.

    uniform      drawn by CompressedReplayBuffer
    prioritized  drawn by CompressedPrioritizedReplayBuffer, in full proportion to the last error (alpha=1). A new one has
                 the largest priority, so all of them are replayed once, most of them before others are replayed again. These
                 `first replays` are counted apart
    oracle       the transition that reduces the error most, which takes knowing the solution

    python benchmarks/cliffwalk.py            benchmarks/campaigns/cliffwalk.json, docs/_static/cliffwalk.png; some minutes
    python benchmarks/cliffwalk.py --plot     the plot again, from the JSON
    python benchmarks/cliffwalk.py --states 8 --runs 3 --out somewhere
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.prioritized import CompressedPrioritizedReplayBuffer

ROOT = Path(__file__).resolve().parent.parent
RIGHT, WRONG = 1, 0
ALPHA, EPS = 1.0, 1e-8
#: Uniform draws do not depend on the updates, so many are made at once.
AT_ONCE = 10_000


class Learner:
    """Q-learning with a table.

    :param n: number of states
    """

    def __init__(self, n: int, rng: np.random.Generator) -> None:
        self.n, self.gamma = n, 1 - 1 / n
        self.values: list[list[float]] = rng.normal(0, 0.1, (n, 2)).tolist()
        self.truth = [[0.0, self.gamma ** (n - 1 - state)] for state in range(n)]
        self._squares = self._sum_of_squares()

    def _sum_of_squares(self) -> float:
        return sum((self.values[s][a] - self.truth[s][a]) ** 2 for s in range(self.n) for a in (WRONG, RIGHT))

    def error(self, state: int, action: int) -> float:
        """The temporal difference of a transition."""
        target = 0.0
        if action == RIGHT:
            target = 1.0 if state == self.n - 1 else self.gamma * max(self.values[state + 1])
        return target - self.values[state][action]

    def update(self, state: int, action: int) -> float:
        """Replay a transition. Returns its error before."""
        error, truth, values = self.error(state, action), self.truth[state][action], self.values[state]
        self._squares -= (values[action] - truth) ** 2
        values[action] += error / 4
        self._squares += (values[action] - truth) ** 2
        return error

    def gain(self, state: int, action: int) -> float:
        """How much an update with this transition would reduce the squared error."""
        before = self.values[state][action] - self.truth[state][action]
        return before**2 - (before + self.error(state, action) / 4) ** 2

    def is_done(self) -> bool:
        """Whether the mean squared error is below 0.001."""
        return self._squares < 2e-3 * self.n and self._sum_of_squares() < 2e-3 * self.n


# ---- the memory


def transitions(n: int, rng: np.random.Generator) -> Iterator[tuple[int, int, int, float, bool]]:
    """State, action, next state, reward and end of all that random play meets, as often as it meets it, in random order."""
    for code in rng.permutation(2**n).tolist():
        for state in range(n):
            action = (code >> state) & 1
            is_goal = state == n - 1 and action == RIGHT
            yield state, action, min(state + 1, n - 1), float(is_goal), is_goal or action == WRONG
            if action == WRONG:
                break


def filled(buffer_class: Any, n: int, rng: np.random.Generator, **arguments: Any) -> Any:
    """A buffer with all transitions."""
    buffer = buffer_class(2 ** (n + 1) - 2, spaces.Discrete(n), spaces.Discrete(2), "cpu", **arguments)
    for state, action, following, reward, is_end in transitions(n, rng):
        one = (np.array([state]), np.array([following]), np.array([[action]]), np.array([reward]), np.array([is_end]))
        buffer.add(*one, [{}])
    assert buffer.full
    return buffer


# ---- updates until the values are right


def uniform(n: int, seed: int) -> int:
    """By uniform replay."""
    rng = np.random.default_rng(seed)
    learner, buffer, n_updates = Learner(n, rng), filled(CompressedReplayBuffer, n, rng), 0
    np.random.seed(seed)
    while True:
        batch = buffer.sample(AT_ONCE)
        for state, action in zip(batch.observations[:, 0].tolist(), batch.actions[:, 0].tolist(), strict=True):
            learner.update(state, action)
            n_updates += 1
            if learner.is_done():
                return n_updates


def prioritized(n: int, seed: int, alpha: float = ALPHA, eps: float = EPS) -> tuple[int, int]:
    """By prioritized replay; and how many of the updates were the first with their transition."""
    rng = np.random.default_rng(seed)
    learner = Learner(n, rng)
    buffer = filled(CompressedPrioritizedReplayBuffer, n, rng, alpha=alpha, beta=0, eps=eps)
    np.random.seed(seed)
    n_updates, seen = 0, set()
    while not learner.is_done():
        batch = buffer.sample(1)
        error = learner.update(int(batch.observations), int(batch.actions))
        buffer.update_priorities(batch.indices, np.array([abs(error)], np.float32))
        seen.add(int(batch.indices[0]))
        n_updates += 1
    return n_updates, len(seen)


def oracle(n: int, seed: int) -> int:
    """By the transition that helps most. It needs no buffer: equal transitions are equally good."""
    learner, n_updates = Learner(n, np.random.default_rng(seed)), 0
    everything = [(state, action) for state in range(n) for action in (WRONG, RIGHT)]
    while not learner.is_done():
        learner.update(*max(everything, key=lambda one: learner.gain(*one)))
        n_updates += 1
    return n_updates


def measured(states: list[int], runs: int) -> dict[str, Any]:
    """Updates of each kind, by number of states, of several runs."""
    results: dict[str, Any] = {"alpha": ALPHA, "eps": EPS, "states": states}
    names = ("uniform", "prioritized", "first replays", "oracle")
    results.update({name: {} for name in names})
    for n in states:
        found = [(uniform(n, seed), *prioritized(n, seed), oracle(n, seed)) for seed in range(runs)]
        for name, values in zip(names, zip(*found, strict=True), strict=True):
            results[name][str(n)] = list(values)
        print(f"{n} states:", ", ".join(f"{name} {np.median(results[name][str(n)]):,.0f}" for name in names), flush=True)
    return {**results, "growth": growth(results)}


# ---- what they say


def medians(results: dict[str, Any], name: str) -> np.ndarray:
    """Median by number of states. `replays again` are the updates that were not the first of their transition."""
    if name == "replays again":
        runs = [np.subtract(results["prioritized"][str(n)], results["first replays"][str(n)]) for n in results["states"]]
    else:
        runs = [results[name][str(n)] for n in results["states"]]
    return np.median(runs, axis=1)


def growth(results: dict[str, Any]) -> dict[str, dict[str, float]]:
    """How the medians grow from 4 states on, fitted as `factor ** n` and as `n ** power`, with the deviation of each fit.

    The deviation is the mean of squared differences of logarithms. Where one is much smaller, it says which of the two it is.
    """
    states = np.array(results["states"])
    some, fits = states >= 4, {}
    for name in ("uniform", "prioritized", "replays again", "oracle"):
        logs = np.log(medians(results, name)[some])
        (factor, _), off = _line(states[some], logs)
        (power, _), off_by_power = _line(np.log(states[some]), logs)
        fits[name] = {"factor": float(np.exp(factor)), "off": off, "power": float(power), "off by power": off_by_power}
    return fits


def _line(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    line = np.polyfit(x, y, 1)
    return line, float(np.mean((np.polyval(line, x) - y) ** 2))


def plot(results: dict[str, Any], path: Path) -> None:
    """Median updates over the number of states."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    kinds = {
        "uniform": ("#888888", "uniform"),
        "prioritized": ("#1f6feb", "prioritized, the first replay of each included"),
        "replays again": ("#0a3069", "prioritized, without the first replays"),
        "oracle": ("#1a7f37", "oracle"),
    }
    states = results["states"]
    for name, (colour, label) in kinds.items():
        axes.plot(
            states,
            medians(results, name),
            "--" if name == "replays again" else "-",
            marker="o",
            ms=4,
            color=colour,
            label=label,
        )
        if name in results:
            runs = [results[name][str(n)] for n in states]
            axes.fill_between(states, np.min(runs, axis=1), np.max(runs, axis=1), color=colour, alpha=0.2)
    axes.plot(states, [2 ** (n + 1) - 2 for n in states], ":", color="#cf222e", label="transitions in the memory")
    axes.set(yscale="log", xlabel="states", ylabel="updates until values are right")
    axes.set_title("Blind Cliffwalk: median, smallest and largest of the runs")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Run, write, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=13, help="the most; 13 unless given, the paper has up to 16")
    parser.add_argument("--runs", type=int, default=10, help="per number of states; 10 unless given")
    parser.add_argument("--out", type=Path, default=None, help="folder for both files")
    parser.add_argument("--plot", action="store_true", help="only draw what the JSON has")
    args = parser.parse_args()
    data, picture = ROOT / "benchmarks" / "campaigns", ROOT / "docs" / "_static"
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        data = picture = args.out
    path = data / "cliffwalk.json"
    if not args.plot:
        results = {"command": f"python benchmarks/cliffwalk.py --states {args.states} --runs {args.runs}"}
        results |= measured(list(range(2, args.states + 1)), args.runs)
        path.write_text(json.dumps(results, indent=1) + "\n")
    results = json.loads(path.read_text())
    print(json.dumps(results["growth"], indent=1))
    plot(results, picture / "cliffwalk.png")


if __name__ == "__main__":
    main()
