"""Buffers sized by memory: they hold what fits, the newest of it, and sample all of it."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from sb3_extra_buffers import decompress_buffer, load_buffer, merge_buffers
from sb3_extra_buffers._machine import ram_bytes
from sb3_extra_buffers.compressed import (
    CompressedDictReplayBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
)
from sb3_extra_buffers.compressed.limits import bytes_of
from sb3_extra_buffers.prioritized import CompressedPrioritizedReplayBuffer

SIDE = 40
IMAGE = spaces.Box(0, 255, (2, SIDE, SIDE), np.uint8)
ACTIONS = spaces.Discrete(4)
LIMIT = 1_500_000


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """These buffers are small: at each megabyte would be too late."""
    monkeypatch.setattr("sb3_extra_buffers.compressed.limits._LOOK_BYTES", 20_000)


class Scene:
    """Numbered transitions whose frames are noise in some share of their rows: they compress as well as one likes."""

    def __init__(self, seed: int = 0) -> None:
        self.rng, self.n = np.random.default_rng(seed), 0
        self.frames = [self.frame(0.0), self.frame(0.0)]

    def frame(self, noise: float) -> np.ndarray:
        frame = np.zeros((SIDE, SIDE), np.uint8)
        rows = int(SIDE * noise)
        frame[:rows] = self.rng.integers(0, 256, (rows, SIDE))
        frame[-1, :4] = np.frombuffer(np.uint32(self.n).tobytes(), np.uint8)
        return frame

    def add_to(self, buffer: Any, n_steps: int, noise: float) -> None:
        for _ in range(n_steps):
            obs = np.stack(self.frames)[None]
            self.n += 1
            self.frames = [self.frames[1], self.frame(noise)]
            following, done = np.stack(self.frames)[None], self.n % 50 == 0
            given = (obs, following)
            if isinstance(buffer, CompressedDictReplayBuffer):
                given = tuple({"image": one, "vector": np.full((1, 5), self.n, np.float32)} for one in given)
            buffer.add(*given, np.zeros((1, 1)), np.full(1, self.n), np.full(1, done), [{}])


def numbers_of(observations: Any) -> np.ndarray:
    """The numbers of the transitions that observations come from."""
    images = observations["image"] if isinstance(observations, dict) else observations
    return images[:, -1, -1, :4].contiguous().numpy().view(np.uint32).ravel()


def check(buffer: Any, scene: Scene, limit: int = LIMIT) -> None:
    """It holds the newest transitions, each with its own observations, and draws all of them."""
    n = buffer.size()
    assert buffer.held_bytes() <= limit * 1.02 + 100_000
    batches = [buffer.sample(400) for _ in range(12)]
    rewards = np.concatenate([batch.rewards.numpy().ravel() for batch in batches]).astype(np.int64)
    if not isinstance(buffer, CompressedNStepReplayBuffer):
        assert (np.concatenate([numbers_of(batch.next_observations) for batch in batches]) == rewards).all()
        assert rewards.min() > scene.n - n
        assert rewards.max() <= scene.n
    else:
        firsts = np.concatenate([numbers_of(batch.observations) for batch in batches])
        assert firsts.min() >= scene.n - n
    for leaf in buffer._leaves.values():
        if hasattr(leaf.store, "check"):
            leaf.store.check()


def make(made_class: Any = CompressedReplayBuffer, **options: Any) -> Any:
    space = IMAGE
    if made_class is CompressedDictReplayBuffer:
        space = spaces.Dict({"image": IMAGE, "vector": spaces.Box(-np.inf, np.inf, (5,), np.float32)})
    return made_class(10**9, space, ACTIONS, "cpu", **{"max_memory": LIMIT, **options})


CLASSES = [
    CompressedReplayBuffer, CompressedDictReplayBuffer, CompressedNStepReplayBuffer, CompressedPrioritizedReplayBuffer,
]  # fmt: skip


@pytest.mark.parametrize("made_class", CLASSES)
def test_as_many_transitions_are_kept_as_fit(made_class: Any) -> None:
    buffer, scene = make(made_class), Scene()
    scene.add_to(buffer, 3000, 0.5)
    first = buffer.size()
    assert buffer.held_bytes() > 0.9 * LIMIT
    assert 0 < first < 3000
    check(buffer, scene)
    scene.add_to(buffer, 3000, 1.0)  # frames that take twice as much
    assert buffer.size() < 0.7 * first
    check(buffer, scene)
    scene.add_to(buffer, 9000, 0.1)  # and others that take a fifth
    assert buffer.size() > 2 * first
    check(buffer, scene)
    for noise in (1.0, 0.0, 0.3, 0.9):
        scene.add_to(buffer, 1500, noise)
        check(buffer, scene)


def test_a_small_buffer_is_an_ordinary_one() -> None:
    buffer, scene = CompressedReplayBuffer(100, IMAGE, ACTIONS, "cpu", max_memory="1GB"), Scene()
    plain = CompressedReplayBuffer(100, IMAGE, ACTIONS, "cpu")
    other = Scene()
    scene.add_to(buffer, 250, 0.2)
    other.add_to(plain, 250, 0.2)
    assert (buffer.size(), buffer.pos, buffer.full, buffer.buffer_size) == (100, 50, True, 100)
    np.random.seed(0)
    one = buffer.sample(20)
    np.random.seed(0)
    assert (one.rewards == plain.sample(20).rewards).all()


def test_little_is_allocated_up_front() -> None:
    buffer = CompressedReplayBuffer(10**12, IMAGE, ACTIONS, "cpu", max_memory="50MB")
    assert sum(one.nbytes for one in vars(buffer).values() if isinstance(one, np.ndarray)) < 60e6  # and nothing is touched
    assert buffer.held_bytes() < 1e6


def test_vectors_are_kept_to_the_limit_by_the_ring_alone() -> None:
    space = spaces.Box(-1, 1, (8,), np.float32)
    buffer = CompressedReplayBuffer(10**9, space, ACTIONS, "cpu", n_envs=2, max_memory="300kB")
    for i in range(5000):
        obs, following = np.full((2, 8), i, np.float32), np.full((2, 8), i + 1, np.float32)
        buffer.add(obs, following, np.zeros((2, 1)), np.full(2, i), np.zeros(2), [{}, {}])
    assert 270_000 < buffer.held_bytes() < 330_000
    assert buffer.size() > 1000
    batch = buffer.sample(1000)
    assert (batch.observations[:, 0] == batch.rewards[:, 0]).all()
    assert batch.rewards.min() >= 5000 - buffer.size()


@pytest.mark.parametrize("made_class", CLASSES)
def test_it_is_saved_and_copied_with_its_limit(made_class: Any, tmp_path: Path) -> None:
    buffer, scene = make(made_class), Scene()
    scene.add_to(buffer, 2000, 0.5)
    for noise, has_gap in ((0.4, False), (1.0, True)):
        scene.add_to(buffer, 300, noise)
        assert (buffer._n_evicted() > 0) == has_gap
        buffer.save(tmp_path / "file")
        buffer.checkpoint(tmp_path / "folder")
        for other in (
            load_buffer(tmp_path / "file", device="cpu"), load_buffer(tmp_path / "folder", device="cpu"),
            pickle.loads(pickle.dumps(buffer)),
        ):  # fmt: skip
            assert other.size() == buffer.size()
            check(other, scene)
            if not has_gap:
                assert (other.pos, other.full, other.buffer_size) == (buffer.pos, buffer.full, buffer.buffer_size)
            later = Scene(1)
            later.n, later.frames = scene.n, scene.frames
            later.add_to(other, 700, 0.7)
            check(other, later)


def test_slices_merges_and_plain_copies_of_it_are_whole() -> None:
    buffer, scene = make(), Scene()
    scene.add_to(buffer, 2000, 0.5)
    scene.add_to(buffer, 300, 1.0)
    n = buffer.size()
    newest = np.arange(scene.n - n + 1, scene.n + 1)
    assert (buffer.slice(0, n).rewards[:n, 0] == newest).all()
    assert (merge_buffers([buffer, buffer]).rewards[: 2 * n, 0] == np.tile(newest, 2)).all()
    plain = decompress_buffer(buffer)
    assert (plain.rewards[:n, 0] == newest).all()
    assert (plain.next_observations[:n, 0, -1, -1, :4].copy().view(np.uint32).ravel() == newest).all()


def test_reset_begins_anew() -> None:
    buffer, scene = make(), Scene()
    scene.add_to(buffer, 2500, 0.5)
    buffer.reset()
    assert buffer.size() == 0
    assert buffer.held_bytes() < 1_000_000
    scene.add_to(buffer, 100, 0.5)
    assert buffer.size() == 100
    check(buffer, scene)


def test_evicted_transitions_get_no_priority() -> None:
    buffer, scene = make(CompressedPrioritizedReplayBuffer), Scene()
    scene.add_to(buffer, 2000, 0.5)
    batch = buffer.sample(200)
    scene.add_to(buffer, 400, 1.0)
    assert buffer._n_evicted() > 0
    buffer.update_priorities(batch.indices, np.full(200, 1e6))
    check(buffer, scene)


def test_hindsight_episodes_that_were_cut_are_not_sampled() -> None:
    from tests.test_oracle_her import goal_env

    env = goal_env(2)
    buffer = CompressedHerReplayBuffer(
        10**6, env.observation_space, env.action_space, env=env, device="cpu", n_envs=2, max_memory=150_000
    )
    obs: Any = env.reset()
    for _ in range(4000):
        actions = np.array([env.action_space.sample() for _ in range(2)])
        following, rewards, dones, infos = env.step(actions)
        buffer.add(obs, following, actions, rewards, dones, infos)
        obs = following
        if buffer.size() and (buffer.ep_length > 0).any():
            gone = np.setdiff1d(np.arange(buffer._capacity), buffer._kept_slots())
            assert not buffer.ep_length[gone].any()
    assert 300 < buffer.size() < 2000
    buffer.sample(100)


@pytest.mark.parametrize(
    ("said", "expected"),
    [(5, 5), ("4GB", 4 * 10**9), ("512MiB", 2**29), ("1.5kB", 1500), ("10", 10), ("2 g", 2 * 10**9), ("1e6", 10**6),
     ("1_000", 1000)],
)  # fmt: skip
def test_amounts_of_memory(said: Any, expected: int) -> None:
    assert bytes_of(said) == expected


def test_a_share_of_ram() -> None:
    assert bytes_of("25%") == pytest.approx(ram_bytes() / 4)


def test_a_limit_that_is_too_small_for_a_batch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"max_memory=100000 is too little: 32 observations of 1 env, .* take 102 kB"):
        make(max_memory=100_000)


@pytest.mark.parametrize("said", [0, -1, "lots", "4XB", "0%", "101%", 1.5, True, "-3MB", ""])
def test_amounts_that_are_none_are_refused(said: Any) -> None:
    with pytest.raises(ValueError, match=r"max_memory must be .* got"):
        CompressedReplayBuffer(10, IMAGE, ACTIONS, max_memory=said)


@pytest.mark.parametrize("made_class", [CompressedReplayBuffer, CompressedPrioritizedReplayBuffer])
def test_a_thread_that_samples_never_sees_what_is_evicted(made_class: Any) -> None:
    buffer, scene = make(made_class), Scene()
    scene.add_to(buffer, 1500, 0.5)
    wrong: list[str] = []
    is_done = threading.Event()

    def sample() -> None:
        while not is_done.is_set():
            batch = buffer.sample(64)
            n_wrong = int((numbers_of(batch.next_observations) != batch.rewards.numpy().ravel()).sum())
            if n_wrong:
                wrong.append(f"{n_wrong} wrong observations")

    thread = threading.Thread(target=sample)
    thread.start()
    for noise in (1.0, 0.2, 0.9):
        scene.add_to(buffer, 400, noise)
    is_done.set()
    thread.join()
    assert not wrong
