"""Replay and collection on Ray: one local Ray for all of these tests, real processes, real kills."""

# ruff: noqa: E402
from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

ray = pytest.importorskip("ray")

from sb3_extra_buffers import distributed, load_buffer, resume
from sb3_extra_buffers.compressed import CompressedHerReplayBuffer, CompressedReplayBuffer
from sb3_extra_buffers.compressed.rebinding import Instead
from sb3_extra_buffers.distributed.collector import Setup
from sb3_extra_buffers.distributed.collectors import Collectors
from sb3_extra_buffers.distributed.learning import _hand_over, _setups
from sb3_extra_buffers.distributed.remote import RemoteShard, start_shards
from sb3_extra_buffers.distributed.sessions import end_actors
from sb3_extra_buffers.distributed.shard import Shard
from sb3_extra_buffers.errors import CollectorLostWarning, ShardLostWarning, WaitingForResourcesWarning
from sb3_extra_buffers.prioritized import PrioritizedDQN

from .distributed_kills import run
from .experience import ACTIONS, DICT, IMAGES, VECTORS, Walk, assert_batch
from .test_collectors import make_env, setup_of
from .test_shards import spec_of

pytestmark = [
    pytest.mark.usefixtures("ray_here"),
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # sockets and files that Ray leaves to the garbage collector
    pytest.mark.filterwarnings("ignore:rich is experimental"),  # SB3's progress bar
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def quick() -> dict[str, Any]:
    return {"buffer_size": 3000, "learning_starts": 100, "policy_kwargs": {"net_arch": [8]}, "seed": 1}


def cart_pole() -> Any:
    return make_env("CartPole-v1")


def pid_of(handle: Any) -> int:
    return int(ray.get(handle.__ray_call__.remote(lambda _: os.getpid()), timeout=60))


def kill(handle: Any) -> None:
    os.kill(pid_of(handle), signal.SIGKILL)


def collector_pids() -> set[int]:
    here = psutil.Process().children(recursive=True)
    return {one.pid for one in here if "ray::Collector" in " ".join(one.cmdline())}


def is_gone(pid: int) -> bool:
    for _ in range(200):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


class At(BaseCallback):
    """Does something once, after so many steps."""

    def __init__(self, step: int, action: Any) -> None:
        super().__init__()
        self.step, self.action = step, action

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.step and self.action is not None:
            action, self.action = self.action, None
            action(self.model)
        return True


# ---- the buffer


def test_a_run_that_was_killed_when_not_all_shards_had_saved_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, arguments = spec_of(VECTORS), []
    made = SimpleNamespace(options=lambda **_: made, remote=lambda *given: arguments.append(given))
    monkeypatch.setattr(ray, "remote", lambda _: made)
    start_shards(spec, 100, 2, folder=str(tmp_path))
    Shard(*arguments[0]).checkpoint(background=False)
    start_shards(spec, 100, 2, folder=str(tmp_path))
    with pytest.raises(ValueError, match="is a checkpoint of 2 shards, and n_shards=1"):
        start_shards(spec, 100, 1, folder=str(tmp_path))


@pytest.mark.usefixtures("reused_actors")
@pytest.mark.parametrize("space", [IMAGES, DICT], ids=["images", "dict"])
def test_what_is_added_is_sampled(space: Any, tmp_path: Path) -> None:
    walk = Walk(space, 2)
    buffer = distributed.RayReplayBuffer(1000, space, ACTIONS, "cpu", 2, n_shards=2, push_steps=16, seed=0)
    for _ in range(100):
        buffer.add(*walk.next())
    for size in (8, 32):
        for _ in range(5):
            assert_batch(buffer.sample(size), walk)
    buffer.flush()
    assert buffer.size() == 100
    usage = buffer.memory_usage()
    assert 0 < usage.stored_bytes < usage.raw_bytes
    local = buffer.to_local()
    assert sorted(local.rewards[:200].reshape(-1).tolist()) == list(range(200))
    local.save(tmp_path / "all.sb3x")
    assert load_buffer(tmp_path / "all.sb3x").size() == 200
    pickled = pickle.dumps(buffer)
    buffer.reset()
    assert buffer.size() == 0
    with pytest.raises(ValueError, match="The shards are empty"):
        buffer.sample(32)  # and no ShardLostWarning
    buffer.close()
    copied = pickle.loads(pickled)
    assert copied.size() == 100
    assert_batch(copied.sample(32), walk)
    copied.close()


def test_closing_a_buffer_ends_its_shards() -> None:
    buffer = distributed.RayReplayBuffer(1000, VECTORS, ACTIONS, "cpu")
    [pid] = [pid_of(handle) for handle in buffer.shards]
    buffer.close()
    assert is_gone(pid)
    with pytest.raises(ValueError, match="were ended"):
        buffer.sample(8)
    assert ray.is_initialized()  # it was there before


@pytest.mark.usefixtures("reused_actors")
def test_sb3_trains_with_it_as_with_its_own(tmp_path: Path) -> None:
    arguments = {"n_shards": 2, "push_steps": 8, "replay_buffer_class": CompressedReplayBuffer, "prefetch": 2}
    model = DQN(
        "MlpPolicy", cart_pole(), replay_buffer_class=distributed.RayReplayBuffer, replay_buffer_kwargs=arguments, **quick()
    )  # fmt: skip
    model.learn(300)
    assert model._n_updates == 50
    assert model.replay_buffer.size() == 296
    model.replay_buffer.checkpoint()  # with the steps that have not travelled yet
    assert model.replay_buffer.size() == 300
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    model.replay_buffer.close()
    model.load_replay_buffer(tmp_path / "buffer.pkl")
    model.learn(100, reset_num_timesteps=False)
    model.replay_buffer.close()


@pytest.mark.usefixtures("reused_actors")
def test_shards_have_room_for_all_that_a_buffer_held() -> None:
    """Handed over, and pickled: every transition once, also if the buffer is full."""
    n = 40_000
    held = ReplayBuffer(n, VECTORS, ACTIONS, "cpu")
    held.rewards[:, 0], held.full = np.arange(n), True
    buffer = distributed.RayReplayBuffer(n, VECTORS, ACTIONS, "cpu", n_shards=2)
    _hand_over(held, buffer)
    assert [state.size for state in buffer.states()] == [n // 2, n // 2]
    pickled = pickle.dumps(buffer)
    buffer.close()
    copied = pickle.loads(pickled)
    assert sorted(copied.to_local().rewards.reshape(-1).tolist()) == list(range(n))
    copied.close()


@pytest.mark.usefixtures("reused_actors")
def test_prioritized_learning_over_shards() -> None:
    model = PrioritizedDQN(
        "MlpPolicy", cart_pole(), replay_buffer_class=distributed.RayPrioritizedReplayBuffer,
        replay_buffer_kwargs={"n_shards": 2, "push_steps": 8, "prefetch": 1}, **quick(),
    )  # fmt: skip
    model.learn(300)
    weights = [state.weight for state in model.replay_buffer.states()]
    assert all(0 < weight != state.size for weight, state in zip(weights, model.replay_buffer.states(), strict=True))
    batch = model.replay_buffer.sample(32)
    assert batch.weights.max() == 1
    assert batch.indices.shape == (32,)
    model.replay_buffer.close()


def test_wrong_arguments_are_refused_before_anything_starts() -> None:
    make = distributed.RayReplayBuffer
    with pytest.raises(ValueError, match="n_shards must be a whole number from 1 on"):
        make(100, IMAGES, ACTIONS, n_shards=0)
    with pytest.raises(ValueError, match=r"prefetch must be a whole number from 0 on, got 1\.5"):
        make(100, IMAGES, ACTIONS, prefetch=1.5)
    with pytest.raises(ValueError, match="timeout must be a number from 0 on, got nan"):
        make(100, IMAGES, ACTIONS, timeout=float("nan"))
    with pytest.raises(ValueError, match="cannot share 3 transitions"):
        make(3, IMAGES, ACTIONS, n_shards=4)
    with pytest.raises(TypeError, match="hindsight"):
        make(100, DICT, ACTIONS, replay_buffer_class=CompressedHerReplayBuffer)
    with pytest.raises(TypeError, match="use RayPrioritizedReplayBuffer"):
        make(100, IMAGES, ACTIONS, replay_buffer_class=type(PrioritizedDQN("MlpPolicy", cart_pole(), 1e-3, 99).replay_buffer))
    with pytest.raises(ValueError, match="takes no Dict observation space"):
        make(100, DICT, ACTIONS, replay_buffer_class=CompressedReplayBuffer)
    with pytest.raises(TypeError, match="has no argument 'block_frame'"):
        make(100, IMAGES, ACTIONS, block_frame=3)


@pytest.mark.usefixtures("reused_actors")
def test_calls_have_a_time_out() -> None:
    [handle] = start_shards(spec_of(VECTORS), 100, 1)
    remote = RemoteShard(handle, 0, timeout=0.3)
    assert RemoteShard(handle, 0, timeout=60).call("state").size == 0
    handle.__ray_call__.remote(lambda _: time.sleep(2))
    with pytest.raises(TimeoutError, match=r"Shard 0 did not answer within 0\.3 s"):
        remote.call("state")
    end_actors([handle])


# ---- learn


class Counting(BaseCallback):
    """Counts what SB3 calls, and what of it is there."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = {"rollouts": 0, "ended": 0, "started": 0}
        self.returns: list[float] = []

    def _on_step(self) -> bool:
        self.returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        return True

    def _on_training_start(self) -> None:
        self.counts["started"] += 1

    def _on_rollout_start(self) -> None:
        self.counts["rollouts"] += 1

    def _on_training_end(self) -> None:
        self.counts["ended"] += 1


@pytest.mark.usefixtures("reused_actors")
def test_learn_counts_as_sb3_does(tmp_path: Path) -> None:
    """The same number of steps, gradient steps, target updates, callbacks and evaluations as `model.learn`."""
    results = []
    for is_distributed in (False, True):
        model = DQN("MlpPolicy", cart_pole(), train_freq=4, gradient_steps=2, target_update_interval=50, **quick())
        counting, evaluated = Counting(), EvalCallback(cart_pole(), eval_freq=150, n_eval_episodes=1, verbose=0)
        if is_distributed:
            distributed.learn(model, cart_pole, 602, 2, 2, [counting, evaluated], push_steps=20, progress_bar=True)
        else:
            model.learn(602, [counting, evaluated])
        numbers = [model.num_timesteps, model._n_updates, model._n_calls, counting.n_calls, evaluated.n_calls]
        times = None if evaluated.evaluations_timesteps is None else list(evaluated.evaluations_timesteps)
        results.append([numbers, counting.counts, times, model.exploration_rate, model._current_progress_remaining])
        assert len(counting.returns) == len(model.ep_info_buffer) == model._episode_num > 0
        model.save(tmp_path / "model.zip")
        assert DQN.load(tmp_path / "model.zip").num_timesteps == 604
    assert results[0] == results[1]
    buffer = model.replay_buffer
    assert buffer.size() == 604
    assert sum(state.size > 0 for state in buffer.states()) == 2
    distributed.learn(model, cart_pole, 100, 1, reset_num_timesteps=False)  # goes on with the same shards
    assert model.replay_buffer is buffer
    assert buffer.size() == 704
    with pytest.raises(ValueError, match="are saved to None, not to"):
        distributed.learn(model, cart_pole, 100, 1, checkpoint=tmp_path / "run")
    buffer.close()


@pytest.mark.usefixtures("reused_actors")
def test_learn_with_several_envs_and_noise_of_each_collector() -> None:
    def two() -> Any:
        return DummyVecEnv([lambda: make_env("Pendulum-v1")] * 2)

    from stable_baselines3.common.noise import NormalActionNoise

    model = SAC("MlpPolicy", make_env("Pendulum-v1"), train_freq=1, gradient_steps=-1, **quick())
    noise = [NormalActionNoise(np.zeros(1), np.full(1, 0.1))]
    held = model.replay_buffer
    model.learn(20)  # what the model has already is handed over
    distributed.learn(model, two, 150, callback=lambda *_: model.num_timesteps < 130, push_steps=10, exploration=noise)
    assert model.num_timesteps == 130  # the callback has stopped it
    assert model._n_updates == 29  # as many as SB3 takes, although a batch has 256 transitions
    assert np.array_equal(model.replay_buffer.to_local().rewards[:20], held.rewards[:20])
    model.replay_buffer.close()


def test_an_error_ends_what_was_started_and_nothing_else() -> None:
    @ray.remote(num_cpus=0)
    class Other:
        pass

    other, before, pids = Other.remote(), collector_pids(), []

    def fail(model: Any) -> None:
        pids.extend(collector_pids() - before)
        pids.extend(pid_of(handle) for handle in model.replay_buffer.shards)
        raise RuntimeError("as asked")

    model = DQN("MlpPolicy", cart_pole(), **quick())
    held = model.replay_buffer
    with pytest.raises(RuntimeError, match="as asked"):
        distributed.learn(model, cart_pole, 500, 1, 1, At(100, fail))
    assert len(pids) == 2
    assert all(map(is_gone, pids))
    assert model.replay_buffer is held
    assert psutil.pid_exists(pid_of(other))  # still there
    ray.kill(other)


def test_every_collector_of_every_learn_has_its_own_seed() -> None:
    model = DQN("MlpPolicy", cart_pole(), **quick())
    buffer: Any = SimpleNamespace(spec=setup_of(model).spec)
    first = [one.seed for one in _setups(model, cart_pole, buffer, 64, 3, None)]
    model.num_timesteps = 1000
    second = [one.seed for one in _setups(model, cart_pole, buffer, 64, 3, None)]
    assert len({*first, *second}) == 6


def test_what_learn_cannot_do_is_refused() -> None:
    model = DQN("MlpPolicy", cart_pole(), **quick())
    with pytest.raises(TypeError, match="off-policy algorithm"):
        distributed.learn(PPO("MlpPolicy", cart_pole()), cart_pole, 100)  # type: ignore[type-var]
    with pytest.raises(TypeError, match=r"env_fn must be a function that makes an env.*, got str"):
        distributed.learn(model, "CartPole-v1", 100)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_collectors must be a whole number"):
        distributed.learn(model, cart_pole, 100, n_collectors=0)
    with pytest.raises(ValueError, match="an entry for each of the 2 collectors"):
        distributed.learn(model, cart_pole, 100, 2, exploration=[0.1])
    normalized = DQN("MlpPolicy", VecNormalize(DummyVecEnv([cart_pole])), **quick())
    with pytest.raises(ValueError, match="The model's env uses VecNormalize"):
        distributed.learn(normalized, cart_pole, 100)


# ---- faults


def wait_until(collectors: Collectors, condition: Any) -> None:
    while not condition():
        collectors.wait()


def test_collectors_that_wait_for_cpus_are_said_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_extra_buffers.distributed.collectors._STARTING_SECONDS", 0.2)
    model = DQN("MlpPolicy", cart_pole(), **quick())
    collectors = Collectors([setup_of(model, cart_pole)], [], model, cpus=64, max_versions_behind=2, timeout=300)
    # Warnings are errors here.
    with pytest.raises(WaitingForResourcesWarning, match=r"1 of 1 collectors have .* 64 CPUs, and of the 2 that Ray has"):
        collectors.begin()
    collectors.close()


@pytest.mark.parametrize("free", [0.0, 8.0])
def test_collectors_are_said_to_wait_once_and_only_if_cpus_are_missing(free: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model, waited = DQN("MlpPolicy", cart_pole(), **quick()), []

    def wait(refs: list[Any], timeout: float, **_: Any) -> Any:
        waited.append(timeout)
        return (refs, []) if len(waited) == 4 else ([], refs)

    handle = SimpleNamespace(begin=SimpleNamespace(remote=lambda *_: "ref"))
    made = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda: handle))
    fake = Instead(
        ray, wait=wait, get=lambda _: 1, put=lambda one: one, remote=lambda _: made,
        cluster_resources=lambda: {"CPU": 8.0}, available_resources=lambda: {"CPU": free},
    )  # fmt: skip
    monkeypatch.setattr("sb3_extra_buffers.distributed.collectors.ray", fake)
    monkeypatch.setattr("sb3_extra_buffers.distributed.collectors._STARTING_SECONDS", 0.0)
    collectors = Collectors([setup_of(model, cart_pole)], [], model, cpus=1, max_versions_behind=2, timeout=300)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        collectors.begin()
    assert len(warned) == (free == 0)
    assert waited[0] < 1
    assert all(200 < one <= 300 for one in waited[1:])  # as long as an order may take
    assert collectors.n_envs == 1


@pytest.mark.usefixtures("reused_actors")
def test_versions_stay_within_the_bound_and_a_hung_collector_is_replaced() -> None:
    model = DQN("MlpPolicy", cart_pole(), **quick())
    spec = setup_of(model).spec
    handles = start_shards(spec, 3000, 1)
    setups: list[Setup] = [setup_of(model, cart_pole, number=i) for i in range(2)]
    collectors = Collectors(
        setups, [RemoteShard(handles[0], 0, 60)], model, cpus=0.5, max_versions_behind=2, timeout=120
    )  # fmt: skip
    collectors.begin()
    behind = []
    for came in range(0, 600, 10):
        collectors.trained()
        collectors.keep_busy(10, came, 10_000, 10_000)
        behind.append(collectors.versions_behind)
        while collectors.wait() is None or collectors.is_too_far_behind:
            collectors.keep_busy(10, came, 10_000, 10_000)
    assert max(behind) <= 2
    assert collectors.version > 5
    collectors.handles[0].__ray_call__.remote(lambda _: time.sleep(600))
    worker = collectors._workers[0]
    while worker.placed:
        collectors.wait()
    collectors.keep_busy(10, 0, 10_000, 10_000)  # waits behind the nap
    worker.deadline = 0
    with pytest.warns(CollectorLostWarning, match="did not answer within 120 s"):
        wait_until(collectors, lambda: collectors.n_restarts > 0)
    while worker.beginning is not None:
        collectors.wait()
    collectors.keep_busy(10, 0, 10_000, 10_000)
    while worker.placed:
        collectors.wait()
    collectors.close()
    end_actors(handles)


def test_training_goes_on_when_a_collector_and_a_shard_die() -> None:
    model = DQN("MlpPolicy", cart_pole(), **quick())
    before = collector_pids()

    def shoot(_: Any) -> None:
        [collector] = collector_pids() - before
        os.kill(collector, signal.SIGKILL)
        kill(model.replay_buffer.shards[0])

    with pytest.warns((CollectorLostWarning, ShardLostWarning)) as warned:
        distributed.learn(model, cart_pole, 1200, 1, 2, At(400, shoot), push_steps=16)
    messages = [str(one.message) for one in warned]
    assert any("Collector 0 died and was started anew" in one for one in messages)
    assert any("Shard 0 died with" in one and "was started anew without them" in one for one in messages)
    assert model.num_timesteps == 1200
    assert model._n_updates == 275
    sizes = [state.size for state in model.replay_buffer.states()]
    assert 0 < sizes[0] < sizes[1]  # it was refilled
    model.replay_buffer.close()


@pytest.mark.usefixtures("reused_collectors")
def test_a_lost_shard_comes_back_with_its_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    model = DQN("MlpPolicy", cart_pole(), **quick())
    distributed.learn(model, cart_pole, 400, 1, 1, checkpoint=folder, checkpoint_freq=200, push_steps=16)
    buffer = model.replay_buffer
    before = buffer.to_local()
    kill(buffer.shards[0])
    assert buffer.size() == 400
    after = buffer.to_local()
    assert np.array_equal(before.rewards, after.rewards)
    assert np.array_equal(before.observations[:400], after.observations[:400])
    buffer.close()
    # The learner too: a new one goes on from the folder.
    model = resume(folder, cart_pole())
    assert model.num_timesteps == 400
    distributed.learn(model, cart_pole, 100, 1, 1, checkpoint=folder, reset_num_timesteps=False)
    assert model.replay_buffer.size() == 500
    assert np.array_equal(model.replay_buffer.to_local().rewards[:400], before.rewards[:400])
    model.replay_buffer.close()
    with pytest.raises(ValueError, match="holds a checkpoint of another run"):
        distributed.learn(DQN("MlpPolicy", cart_pole(), **quick()), cart_pole, 100, checkpoint=folder)
    with pytest.raises(ValueError, match="is a checkpoint of 1 shards, and n_shards=2"):
        distributed.RayReplayBuffer(100, VECTORS, ACTIONS, n_shards=2, checkpoint=folder)


def test_trainings_survive_kills_of_any_process(tmp_path: Path) -> None:
    """A short run of `make kills`."""
    ended = run(["learner", "shard"], 1200, tmp_path, n_collectors=1, n_shards=1)
    assert ended["killed"] == ["learner", "shard"]
    assert ended["steps"] >= 1200
    assert ended["wrong"] == 0
    assert ended["transitions"] > 1000
    [lost] = [text for name, text in ended["warnings"] if name == "ShardLostWarning"]
    assert "of its checkpoint" in lost


JOINED_AND_INTERRUPTED = """
import os, signal, sys
import gymnasium as gym
import psutil, ray
from stable_baselines3 import DQN
from sb3_extra_buffers import distributed

def env_fn():
    return gym.make("CartPole-v1")

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
address, model = sys.argv[1], DQN("MlpPolicy", "CartPole-v1", buffer_size=2000, learning_starts=10)
distributed.learn(model, env_fn, 200, 1, 1, address=address)
print("JOINED", ray.get_runtime_context().gcs_address == address, model.replay_buffer.size(), flush=True)
model.replay_buffer.close()
print("LEFT", not ray.is_initialized(), flush=True)

def stop(_, __):
    if model.num_timesteps == 100:
        names = [" ".join(one.cmdline()) for one in psutil.Process().children(recursive=True)]
        print("STARTED", sum("ray::Shard" in one for one in names), sum("ray::Collector" in one for one in names), flush=True)
        os.kill(os.getpid(), signal.SIGINT)
    return True

model = DQN("MlpPolicy", "CartPole-v1", buffer_size=2000, learning_starts=10)
try:
    distributed.learn(model, env_fn, 100_000, 1, 1, stop)
except KeyboardInterrupt:
    print("STOPPED", ray.is_initialized(), model.num_timesteps, flush=True)
"""


def test_another_process_joins_by_address_and_ctrl_c_stops_everything_that_it_started() -> None:
    command = [sys.executable, "-c", JOINED_AND_INTERRUPTED, ray.get_runtime_context().gcs_address]
    made = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert "JOINED True 200\nLEFT True\n" in made.stdout, made.stderr[-2000:]
    assert "STARTED 1 1\nSTOPPED False 100" in made.stdout, made.stderr[-2000:]
    assert ray.is_initialized()  # that of these tests
