"""Train DQN on Pong twice with the same seed, once with SB3's replay buffer and once with the compressed one.

Each training runs in a process of its own. Shows the memory of both, how fast they are, and that the weights that were
learned are the same to the last bit. Saves a plot of memory over steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sb3_extra_buffers._text import human_bytes
from sb3_extra_buffers.cli.arguments import at_least
from sb3_extra_buffers.cli.output import Table, complain, human_seconds, progress, say, show, show_json
from sb3_extra_buffers.errors import MissingBackendError

HELP = "train with SB3's buffer and with ours: memory, speed, identical weights"
EXAMPLES = """\
  sb3-extra-buffers demo
  sb3-extra-buffers demo --steps 5000 --out my_demo
  sb3-extra-buffers demo --json > demo.json"""

FEWEST_STEPS = 200
LABELS = {"ReplayBuffer": "SB3 ReplayBuffer", "CompressedReplayBuffer": "CompressedReplayBuffer"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    steps, seed = at_least(FEWEST_STEPS), at_least(0)
    parser.add_argument("--steps", type=steps, default=20_000, metavar="N", help="transitions to train on (default: 20,000)")
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="seed of both trainings (default: 0)")
    parser.add_argument(
        "--out", type=Path, default=Path("demo_output"), metavar="DIR", help="for the plot (default: demo_output)"
    )


def run(args: argparse.Namespace) -> int:
    """Run both trainings and compare them."""
    args.out.mkdir(parents=True, exist_ok=True)
    results = [train_in_own_process(name, args.steps, args.seed) for name in LABELS]
    identical = len({result["weights_sha256"] for result in results}) == 1
    plot = save_plot(results, args.out / "memory.png")
    if args.json:
        show_json({"identical_weights": identical, "plot": plot and str(plot), "trainings": results})
    else:
        present(results, identical)
        if plot:
            say(f"Plot: {plot}")
    return 0 if identical else 1


def train_in_own_process(name: str, steps: int, seed: int) -> dict[str, Any]:
    """The result of one training, with its memory over steps as ``curve``.

    :param name: a key of `LABELS`
    """
    command = [sys.executable, "-m", "sb3_extra_buffers.cli.demo_training", name, str(steps), str(seed)]
    curve: list[tuple[int, int]] = []
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (
        tempfile.TemporaryFile("w+") as errors,
        progress(LABELS[name], steps) as update,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as process,
    ):
        try:
            update(0, "")
            for line in process.stdout or ():
                message = json.loads(line)
                if "result" in message:
                    return {**message["result"], "curve": curve}
                curve.append((message["step"], message["growth_bytes"]))
                update(message["step"], f"+{human_bytes(max(message['growth_bytes'], 0))}")
            status = process.wait()
            errors.seek(0)
            last_words = errors.read().strip().splitlines() or [f"exit code {status}"]
            raise RuntimeError(f"The training with {LABELS[name]} failed: {last_words[-1]}")
        finally:
            process.kill()  # after Ctrl-C it must not go on by itself


def present(results: list[dict[str, Any]], identical: bool) -> None:
    """Print the table and what it says."""
    theirs, ours = results
    say("DQN on PongNoFrameskip-v4 (4 envs, 4 frames stacked), trained on one thread")
    say(f"for {theirs['steps']:,} steps and {theirs['gradient_steps']:,} gradient steps")
    say()
    verdict = "identical" if identical else "DIFFERENT"
    rows = [
        _row("Memory growth (RSS)", results, "growth_bytes", human_bytes, _times_less(results, "growth_bytes")),
        _row("Observations stored", results, "stored_bytes", human_bytes, _times_less(results, "stored_bytes")),
        _row("Steps per second", results, "steps_per_second", "{:.0f}".format, _change(results, "steps_per_second")),
        _row("Sample of 32, median", results, "sample_seconds", human_seconds, _change(results, "sample_seconds")),
        _row("SHA-256 of the weights", results, "weights_sha256", lambda digest: f"{digest[:12]}...", verdict),
    ]
    show(Table(["", *LABELS.values(), ""], rows, "lrrr"))
    say()
    say("Memory growth is the resident memory of the process at the end, minus that after")
    say("the first gradient steps: network, optimizer and envs are in memory by then, and")
    say("the buffer is nearly empty. Steps per second are counted from there, too. The two")
    say("trainings run one after the other, so a busy machine can favour either.")
    say()
    if identical:
        say("The weights are identical, bit for bit. SHA-256:")
        say(ours["weights_sha256"])
    else:
        say("The weights DIFFER: the two buffers did not give the same batches. Please report this.")


def save_plot(results: list[dict[str, Any]], path: Path) -> Path | None:
    """Draw memory over steps, or say what is missing to do so."""
    from sb3_extra_buffers.cli.demo_plot import draw

    try:
        draw({LABELS[result["buffer"]]: result["curve"] for result in results}, path)
    except MissingBackendError as error:
        complain(f"No plot: {error}")
        return None
    return path


def _row(name: str, results: list[dict[str, Any]], key: str, text: Callable[[Any], str], comparison: str) -> list[str]:
    return [name, *(text(result[key]) for result in results), comparison]


def _times_less(results: list[dict[str, Any]], key: str) -> str:
    theirs, ours = (result[key] for result in results)
    return f"{theirs / ours:.0f} times less" if 0 < ours < theirs else ""


def _change(results: list[dict[str, Any]], key: str) -> str:
    theirs, ours = (result[key] for result in results)
    return f"{100 * (ours / theirs - 1):+.0f} %"
