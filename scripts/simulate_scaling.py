"""Simulate `distributed.learn` on clusters that are not here, from the costs that were measured here. Makes the plot of
docs/scaling.md: `python scripts/simulate_scaling.py`.

    collector: takes 64 steps, encodes them, has two orders         -> shard: appends, one message after the other
    shard: also draws the batches that the learner needs            -> learner: callbacks, batches, gradient steps
    network of the learner: batches in, weights out, one copy for each node

Costs are those of benchmarks/campaigns/distributed.json, on one core of the machine that measured them; what is assumed is in
`Cluster`. Events are simulated in the order in which they happen. Each of these does one thing at a time.
"""

from __future__ import annotations

import argparse
import heapq
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COSTS = ROOT / "benchmarks" / "campaigns" / "distributed.json"
PLOT = ROOT / "docs" / "_static" / "scaling.png"
PAGE = ROOT / "docs" / "scaling.md"
TABLE = ROOT / "benchmarks" / "campaigns" / "scaling.json"
COLLECTORS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
SHARDS = (1, 10, 100)
STEPS, BATCH, ROWS = 64, 32, 512
#: Simulated seconds; the first part, in which queues fill, is not counted.
SECONDS, WARM_UP = 30.0, 10.0


@dataclass
class Cluster:
    """What is assumed.

    :param transitions_per_gradient_step: the model's `train_freq` divided by its `gradient_steps`
    :param learner_speed: how many times as fast the learner's gradient steps are as on one core here
    :param env_step_us: microseconds of an env's step; those of Pong if not given
    :param network_bytes: per second, of the learner's machine
    :param collectors_per_node: that share a copy of the weights
    """

    name: str
    transitions_per_gradient_step: float
    learner_speed: float
    env_step_us: float | None = None
    network_bytes: float = 10e9 / 8
    collectors_per_node: int = 32


CLUSTERS = [
    Cluster("SB3's ratio, learner on a core: 1 gradient step per 4 transitions", 4, 1),
    Cluster("SB3's ratio, learner 20 times as fast", 4, 20),
    Cluster("SB3's ratio, learner 20 times as fast, a slow simulator: 20 ms for a step", 4, 20, 20_000),
    Cluster("1 gradient step per 64 transitions, learner 20 times as fast", 64, 20),
]


class Server:
    """Does one thing after the other."""

    def __init__(self) -> None:
        self.free, self.busy = 0.0, 0.0

    def serve(self, at: float, seconds: float) -> float:
        """When something that comes at `at` is done."""
        begin = max(self.free, at)
        self.free = begin + seconds
        self.busy += max(self.free - max(begin, WARM_UP), 0.0)
        return self.free


def simulate(costs: dict[str, Any], cluster: Cluster, n_collectors: int, n_shards: int) -> dict[str, Any]:
    """Env steps per second, and how busy each part is."""
    us = {**costs["costs"], **costs["ray_costs"]}
    if cluster.env_step_us is not None:
        us["env_step_us"] = cluster.env_step_us
    call = 1e-6 * us["call_us"] / 2  # at each end
    order = STEPS * 1e-6 * (us["env_step_us"] + us["policy_us"] + us["add_us"] + us["take_us"]) + call
    append = STEPS * 1e-6 * us["append_us"] + call
    gradient_steps = STEPS / cluster.transitions_per_gradient_step
    rows = gradient_steps * BATCH
    answers = rows / ROWS
    read = rows * 1e-6 * (us["put_us"] + us["read_us"]) + answers * call
    learn = gradient_steps * 1e-6 * us["train_us"] / cluster.learner_speed + STEPS * 1e-6 * us["callback_us"] + read + 2 * call
    draw = (rows * 1e-6 * us["draw_us"] + answers * call) / n_shards
    n_nodes = -(-n_collectors // cluster.collectors_per_node)
    weights = us["weights_bytes"] * n_nodes / n_collectors  # of an order: one version for each round of orders
    sent = (rows * us["drawn_bytes_per_transition"] + weights) / cluster.network_bytes
    learn += 1e-6 * us["put_weights_us"] / n_collectors
    shards, learner, network = [Server() for _ in range(n_shards)], Server(), Server()
    collectors = [Server() for _ in range(n_collectors)]
    events: list[tuple[float, int, str]] = []
    for i in range(n_collectors):
        for depth in range(2):
            heapq.heappush(events, (order * (i / n_collectors) + depth * 1e-9, i, "order"))
    came, turn = 0, 0
    while events and events[0][0] < SECONDS:
        at, i, kind = heapq.heappop(events)
        if kind == "order":
            heapq.heappush(events, (collectors[i].serve(at, order), i, "push"))
        elif kind == "push":
            turn += 1
            heapq.heappush(events, (shards[turn % n_shards].serve(at, append), i, "report"))
        else:
            drawn = [shard.serve(at, draw) for shard in shards] if answers * n_shards >= 1 or turn % 8 == 0 else []
            done = max(learner.serve(at, learn), network.serve(at, sent), *(drawn or [0.0]))
            learner.free = max(learner.free, done)
            came += STEPS if WARM_UP < done <= SECONDS else 0
            heapq.heappush(events, (done, i, "order"))
    counted = SECONDS - WARM_UP
    busy = {
        "collectors": sum(one.busy for one in collectors) / n_collectors / counted,
        "shards": sum(one.busy for one in shards) / n_shards / counted,
        "learner": learner.busy / counted, "network": network.busy / counted,
    }  # fmt: skip
    busy = {name: round(min(one, 1.0), 3) for name, one in busy.items()}
    return {
        "cluster": cluster.name, "collectors": n_collectors, "shards": n_shards, "env_steps_per_s": round(came / counted),
        "busy": busy, "bottleneck": max(busy, key=lambda name: busy[name]),
    }  # fmt: skip


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """One panel for each cluster: env steps per second over collectors, a line for each number of shards."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    markers = {"collectors": "o", "shards": "s", "learner": "^", "network": "D"}
    figure, grid = plt.subplots(2, 2, figsize=(9, 7.5), sharex=True, sharey=True)
    panels = list(grid.flat)
    for panel, cluster in zip(panels, CLUSTERS, strict=True):
        for n_shards, colour in zip(SHARDS, ("tab:red", "tab:orange", "tab:blue"), strict=True):
            some = [one for one in results if one["cluster"] == cluster.name and one["shards"] == n_shards]
            xs, ys = [one["collectors"] for one in some], [one["env_steps_per_s"] for one in some]
            panel.loglog(xs, ys, "-", color=colour, lw=1, label=f"{n_shards} shard{'s' * (n_shards > 1)}")
            for one, x, y in zip(some, xs, ys, strict=True):
                panel.plot(x, y, markers[one["bottleneck"]], color=colour, ms=5)
        panel.set_title(cluster.name.replace(", ", ",\n", 1), fontsize=8)
        panel.grid(True, which="both", lw=0.3)
    for panel in grid[:, 0]:
        panel.set_ylabel("env steps per second")
    for panel in grid[1]:
        panel.set_xlabel("collectors")
    handles, labels = panels[0].get_legend_handles_labels()
    for name, marker in markers.items():
        handles.append(plt.Line2D([], [], color="black", marker=marker, ls=""))
        labels.append(f"busiest: {name}")
    figure.legend(handles, labels, loc="lower center", ncol=4, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, dpi=110)


# ---- the page


def measured_table(costs: dict[str, Any]) -> str:
    """The bars of one machine."""
    add, batches, training, chance = (costs[name] for name in ("add", "batches", "training", "chance"))
    rates, degrees = training["env_steps_per_s"], chance["transitions"] - 1
    cores = "one core" if training["torch_threads"] == 1 else f"{training['torch_threads']} cores"
    return "\n".join([
        "| | |", "|---|---|",
        f"| bytes on the wire for a transition that is pushed, observations included | {add['bytes_per_transition']:,.0f} |",
        f"| transitions per second, encoded by 2 processes and pushed to 2 shards | {add['transitions_per_s']:,.0f} |",
        f"| the same, in segments of 256 steps instead of 64 | {add['long_transitions_per_s']:,.0f} |",
        f"| of segments of 64 steps that are encoded already | {add['made_before_per_s']:,.0f} |",
        f"| batches of 32 per second, one learner and 2 shards | {batches['uniform_per_s']:,.0f} |",
        f"| the same, prioritized, with an update of each batch | {batches['prioritized_per_s']:,.0f} |",
        f"| DQN on Pong, torch on {cores}, env steps per second: `model.learn` | {rates['plain']:,.0f} |",
        f"| the same with 1 collector and 1 shard | {rates['distributed']:,.0f} ({training['ratio']:.2f}x) |",
        f"| {chance['draws']:,} draws from 3 unequal shards | chi-square {chance['chi_square']:,.0f} of {degrees:,} degrees |",
    ])  # fmt: skip


def costs_table(costs: dict[str, Any]) -> str:
    """Bytes and microseconds."""
    one, ray = costs["costs"], costs["ray_costs"]
    kilo = 32 * one["drawn_bytes_per_transition"] / 1000
    rows = [
        ("collector", "a step of the env, and of the policy", f"{ray['env_step_us']:,.0f} + {ray['policy_us']:,.0f} us"),
        ("collector", "encode a transition; write it as part of a segment", f"{one['add_us']:.1f} + {one['take_us']:.1f} us"),
        ("wire", "a transition that is pushed", f"{one['pushed_bytes_per_transition']:,.0f} bytes"),
        ("shard", "append a transition", f"{one['append_us']:.1f} us"),
        ("shard", "draw a transition; a batch of 32", f"{one['draw_us']:.1f} us; {32 * one['draw_us']:,.0f} us"),
        (
            "wire",
            "a transition that was drawn; a batch of 32",
            f"{one['drawn_bytes_per_transition']:,.0f} bytes; {kilo:,.0f} kB",
        ),
        ("learner", "take a batch of 32 in; read it", f"{32 * one['put_us']:,.0f} + {32 * one['read_us']:,.0f} us"),
        ("learner", "a gradient step of DQN with a batch of 32", f"{ray['train_us']:,.0f} us"),
        ("learner", "publish weights", f"{ray['put_weights_us']:,.0f} us, {ray['weights_bytes'] / 1e6:.1f} MB for each node"),
        ("Ray", "a call and its answer", f"{ray['call_us']:,.0f} us"),
    ]
    return "\n".join(["| part | what | cost |", "|---|---|---|", *(f"| {a} | {b} | {c} |" for a, b, c in rows)])


def simulated_table(results: list[dict[str, Any]]) -> str:
    """Where the bottleneck is."""
    lines = ["| | collectors | shards | env steps per second | busiest part |", "|---|---|---|---|---|"]
    for cluster in CLUSTERS:
        for n_shards in SHARDS:
            for n in (1, 10, 100, 1000):
                [one] = [r for r in results if (r["cluster"], r["shards"], r["collectors"]) == (cluster.name, n_shards, n)]
                busy = f"{one['bottleneck']}, {100 * one['busy'][one['bottleneck']]:.0f} %"
                lines.append(f"| {cluster.name} | {n:,} | {n_shards} | {one['env_steps_per_s']:,} | {busy} |")
    return "\n".join(lines)


def write_page(tables: dict[str, str]) -> None:
    """Put tables between their marks."""
    text = PAGE.read_text()
    for name, table in tables.items():
        begin = text.index(f"<!-- {name} -->\n") + len(f"<!-- {name} -->\n")
        text = text[:begin] + table + "\n" + text[text.index("<!-- end -->", begin) :]
    PAGE.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=PLOT)
    given = parser.parse_args()
    costs = json.loads(COSTS.read_text())
    results = [simulate(costs, cluster, c, s) for cluster in CLUSTERS for s in SHARDS for c in COLLECTORS]
    TABLE.write_text(json.dumps(results, indent=1) + "\n")
    plot(results, given.out)
    write_page({"measured": measured_table(costs), "costs": costs_table(costs), "simulated": simulated_table(results)})
    for one in results:
        print(f"{one['collectors']:5} {one['shards']:4} {one['env_steps_per_s']:9,} {one['bottleneck']:10} {one['cluster']}")


if __name__ == "__main__":
    main()
