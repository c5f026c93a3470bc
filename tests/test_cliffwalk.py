"""The Blind Cliffwalk of benchmarks/cliffwalk.py: what prioritized replay gains over uniform replay."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def cliffwalk() -> Any:
    spec = importlib.util.spec_from_file_location("cliffwalk", ROOT / "benchmarks" / "cliffwalk.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_gap(growth: dict[str, dict[str, float]]) -> None:
    """Uniform replay doubles with each state; what is replayed again by priorities grows far less."""
    uniform, again = growth["uniform"], growth["replays again"]
    assert 1.8 < uniform["factor"] < 2.3
    assert uniform["off"] < uniform["off by power"] / 3
    assert again["factor"] < 1.45
    assert again["power"] < 2.5
    assert again["off by power"] < 0.02


def test_the_memory_holds_what_all_sequences_of_actions_meet(cliffwalk: Any) -> None:
    for n in (2, 5):
        found = list(cliffwalk.transitions(n, np.random.default_rng(0)))
        assert len(found) == 2 ** (n + 1) - 2
        assert [one for one in found if one[3]] == [(n - 1, cliffwalk.RIGHT, n - 1, 1.0, True)]
        for state in range(n):
            for action in (cliffwalk.WRONG, cliffwalk.RIGHT):
                assert sum(one[:2] == (state, action) for one in found) == 2 ** (n - 1 - state)
        assert all(is_end == (action == cliffwalk.WRONG or state == n - 1) for state, action, _, _, is_end in found)


def test_uniform_replay_doubles_with_each_state_and_replaying_again_by_priorities_does_not(cliffwalk: Any) -> None:
    results = cliffwalk.measured([4, 5, 6, 7, 8], 5)
    check_gap(results["growth"])
    for n in results["states"]:
        # At first all have the same priority, the largest: each is replayed once, which takes as many updates as there are.
        assert results["first replays"][str(n)] == [2 ** (n + 1) - 2] * 5


def test_the_committed_results_have_the_gap(cliffwalk: Any) -> None:
    results = json.loads((ROOT / "benchmarks" / "campaigns" / "cliffwalk.json").read_text())
    assert len(results["states"]) >= 12
    assert {len(runs) for name in ("uniform", "prioritized", "oracle") for runs in results[name].values()} == {10}
    growth = cliffwalk.growth(results)
    assert all(growth[name] == pytest.approx(results["growth"][name]) for name in growth)
    check_gap(growth)
    assert growth["oracle"]["power"] < 3
    assert growth["oracle"]["off by power"] < growth["oracle"]["off"]
