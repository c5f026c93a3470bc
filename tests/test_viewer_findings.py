"""Each warning of the viewer appears where it should, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.viewer.source import Source

IMAGE = spaces.Box(0, 255, (4, 20, 20), np.uint8)
VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)
N = 120
Step = dict[str, Any]


def moving(t: int) -> np.ndarray:
    """A frame that no other step has."""
    picture = np.zeros((20, 20), np.uint8)
    picture[5:9, t % 16 : t % 16 + 4] = 200
    picture[0, 0], picture[0, 1] = 1 + t % 250, t // 250
    return picture


def usual(t: int) -> Step:
    """A step with nothing wrong; episodes have different lengths."""
    obs, following = (np.stack([moving(t + k + i - 3 + 9) for i in range(4)]) for k in (0, 1))
    done = t in (17, 40, 59, 90)
    return {"obs": obs, "next": following, "action": t % 4, "reward": float(t % 3 == 0), "done": done, "timeout": False}


def vector(t: int) -> Step:
    obs, following = (np.array([np.sin(t + k), np.cos(t + k), t + k], np.float32) for k in (0, 1))
    return {**usual(t), "obs": obs, "next": following}


def kinds(tmp_path: Path, change: Callable[[int, Step], Any], **options: Any) -> list[str]:
    """The warnings about steps that were changed."""
    base = options.pop("base", usual)
    n, actions, space = options.pop("n", N), options.pop("actions", spaces.Discrete(4)), options.pop("space", IMAGE)
    buffer = CompressedReplayBuffer(n, space, actions, "cpu", 1, **options)
    for t in range(n - 1):
        step = base(t)
        change(t, step)
        infos = [{"TimeLimit.truncated": step["timeout"]}]
        action = np.asarray(step["action"]).reshape(1, -1)
        done, reward = np.array([step["done"]]), np.array([step["reward"]], np.float32)
        buffer.add(step["obs"][None], step["next"][None], action, reward, done, infos)
    path = tmp_path / "buffer.sb3x"
    buffer.save(path)
    found = Source(path, "x").state().findings
    for one in found:
        assert one.text.endswith(".")
        assert one.at is None or 0 <= one.at[1] < n
    return [one.kind for one in found]


def nothing(t: int, step: Step) -> None:
    pass


def test_nothing_is_said_about_a_usual_buffer(tmp_path: Path) -> None:
    assert kinds(tmp_path, nothing) == []
    assert kinds(tmp_path, nothing, base=vector, space=VECTOR) == []


def test_stacks_that_begin_with_zeros_or_the_first_frame_are_usual(tmp_path: Path) -> None:
    def begin(t: int, step: Step) -> None:
        if t in (0, 18, 41, 60, 91):
            step["obs"][:3] = 0

    assert kinds(tmp_path, begin) == []


def test_black_observations(tmp_path: Path) -> None:
    assert kinds(tmp_path, lambda t, s: (s["obs"].fill(0), s["next"].fill(0))) == ["black"]
    assert kinds(tmp_path, lambda t, s: (s["obs"].fill(7), s["next"].fill(7))) == ["black"]


def test_constant_observations(tmp_path: Path) -> None:
    same = usual(50)["obs"]
    assert "constant" in kinds(tmp_path, lambda t, s: s.update(obs=same, next=same))
    zeros = np.zeros(3, np.float32)
    assert kinds(tmp_path, lambda t, s: s.update(obs=zeros, next=zeros), base=vector, space=VECTOR) == ["constant"]


def test_a_stack_that_repeats(tmp_path: Path) -> None:
    def repeat(t: int, step: Step) -> None:
        step["obs"][:], step["next"][:] = step["obs"][-1], step["next"][-1]

    assert kinds(tmp_path, repeat) == ["repeated stack"]


def test_a_stack_out_of_order(tmp_path: Path) -> None:
    assert kinds(tmp_path, lambda t, s: s.update(obs=s["obs"][::-1], next=s["next"][::-1])) == ["stack order"]
    order = [2, 0, 3, 1]
    assert kinds(tmp_path, lambda t, s: s.update(obs=s["obs"][order], next=s["next"][order])) == ["stack order"]


def test_next_observations_that_do_not_follow(tmp_path: Path) -> None:
    assert kinds(tmp_path, lambda t, s: s.update(next=usual(t + 40)["obs"])) == ["next_obs"]


def test_rewards_that_are_all_zero(tmp_path: Path) -> None:
    assert kinds(tmp_path, lambda t, s: s.update(reward=0.0)) == ["zero rewards"]


def test_nan(tmp_path: Path) -> None:
    assert kinds(tmp_path, lambda t, s: s.update(reward=np.nan if t == 63 else 1.0)) == ["NaN"]

    def broken(t: int, step: Step) -> None:
        step["obs"][1] = step["next"][1] = np.nan

    assert kinds(tmp_path, broken, base=vector, space=VECTOR) == ["NaN"]


def test_actions_never_taken(tmp_path: Path) -> None:
    assert kinds(tmp_path, lambda t, s: s.update(action=t % 3)) == ["actions never taken"]
    box = spaces.Box(-1, 1, (2,), np.float32)
    assert kinds(tmp_path, lambda t, s: s.update(action=[np.sin(t), 0.5]), actions=box) == ["actions never taken"]
    assert kinds(tmp_path, lambda t, s: s.update(action=[np.sin(t), np.cos(t)]), actions=box) == []


def test_timeouts_that_count_as_terminal(tmp_path: Path) -> None:
    def limit(t: int, step: Step) -> None:
        step["done"] = t % 20 == 19

    assert kinds(tmp_path, limit) == ["timeouts as terminal"]
    assert kinds(tmp_path, limit, handle_timeout_termination=False) == ["timeouts as terminal"]
    assert kinds(tmp_path, lambda t, s: (limit(t, s), s.update(timeout=s["done"]))) == []


def test_episodes_that_never_end(tmp_path: Path) -> None:
    never = lambda t, s: s.update(done=False)
    assert kinds(tmp_path, never, base=vector, space=VECTOR, n=1200) == ["endless episodes"]
    assert kinds(tmp_path, never, base=vector, space=VECTOR) == []


@pytest.mark.parametrize("key", ["lives", "other"])
def test_lost_lives_are_marked_where_they_are_known(key: str, tmp_path: Path) -> None:
    from sb3_extra_buffers.compressed import CompressedDictReplayBuffer
    from sb3_extra_buffers.viewer import answers

    space = spaces.Dict({"image": IMAGE, key: spaces.Box(0, 5, (1,), np.int64)})
    buffer = CompressedDictReplayBuffer(60, space, spaces.Discrete(4), "cpu", 1)
    for t in range(50):
        step, lives = usual(t), np.array([[5 - (t > 10) - (t > 30)]])
        obs, following = {"image": step["obs"][None], key: lives}, {"image": step["next"][None], key: lives}
        buffer.add(obs, following, np.array([[1]]), np.array([1.0]), np.array([False]), [{}])
    buffer.save(tmp_path / "buffer.sb3x")
    marks = answers.episode(Source(tmp_path / "buffer.sb3x", "x").state(), 0)["marks"]
    assert marks == ([{"step": 11, "kind": "life"}, {"step": 31, "kind": "life"}] if key == "lives" else [])


def test_an_end_after_which_the_game_goes_on_looks_like_a_lost_life(tmp_path: Path) -> None:
    from sb3_extra_buffers.viewer import answers

    def fresh(t: int) -> int:  # the game begins anew behind step 59, but not behind the lost life at 40
        return t - 60 if t > 59 else t

    def play(t: int, step: Step) -> None:
        picture = np.full((4, 20, 20), 0, np.uint8)
        picture[:, : 1 + fresh(t) // 4] = 150  # what the player has filled
        picture[-1, 19, t % 20] = 255
        end = picture.copy()
        step.update(obs=picture, next=end)

    kinds(tmp_path, play)
    state = Source(tmp_path / "buffer.sb3x", "x").state()
    ends = {
        int(last) - 1: answers.episode(state, int(number))
        for last, number in zip(state.episodes.last, state.episodes.number, strict=True)
    }
    assert ends[40]["life"]
    assert ends[40]["marks"][-1]["kind"] == "life"
    assert not ends[59]["life"]
