"""`resume` with the envs that users give it, folders that hold another run, and what is exact afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack, VecNormalize

from sb3_extra_buffers import BufferCheckpointCallback, load_buffer, resume
from sb3_extra_buffers.callbacks import BufferMemoryCallback
from sb3_extra_buffers.compressed import CompressedHerReplayBuffer, CompressedNStepReplayBuffer, CompressedReplayBuffer
from sb3_extra_buffers.compressed.episodes import end_last_episode
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.prioritized import PrioritizedDQN
from sb3_extra_buffers.resuming import save_checkpoint
from tests.saved_buffers import assert_equal, her, replay


def small(**options: Any) -> dict[str, Any]:
    return {
        "seed": 1, "device": "cpu", "learning_starts": 20, "buffer_size": 150, "batch_size": 8,
        "policy_kwargs": {"net_arch": [8]}, "replay_buffer_class": CompressedReplayBuffer, **options,
    }  # fmt: skip


class Walk(gym.Env[np.ndarray, Any]):
    """Ten steps without chance: a run that begins anew at the end of an episode is as one that went on."""

    observation_space = spaces.Box(-10, 10, (3,), np.float32)

    def __init__(self, *, continuous: bool = False) -> None:
        self.action_space: Any = spaces.Box(-1, 1, (1,), np.float32) if continuous else spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t, self.at = 0, 0.5
        return self._position(), {}

    def step(self, action: Any) -> Any:
        self.t, self.at = self.t + 1, (self.at * 1.7 + float(np.ravel(action)[0])) % 5
        return self._position(), float(self.at > 3), False, self.t == 10, {}

    def _position(self) -> np.ndarray:
        return np.array([self.at, self.t / 3, self.at * self.t / 10], np.float32)


def walks(n_envs: int = 1, *, continuous: bool = False) -> VecEnv:
    return DummyVecEnv([lambda: Walk(continuous=continuous)] * n_envs)


def stacked() -> VecEnv:
    return VecFrameStack(VecNormalize(walks()), 2)


def dqn(env: Any = None, **options: Any) -> DQN:
    return DQN("MlpPolicy", env or walks(), train_freq=2, **small(**options))


def ppo(env: Any = None, **options: Any) -> PPO:
    policy = {"net_arch": [8]}
    return PPO(
        "MlpPolicy",
        env or walks(),
        n_steps=20,
        batch_size=10,
        n_epochs=2,
        seed=1,
        device="cpu",
        policy_kwargs=policy,
        **options,
    )


def sac(env: Any = None, **options: Any) -> SAC:
    return SAC("MlpPolicy", env or walks(continuous=True), train_freq=5, **small(**options))


def same_weights(one: Any, other: Any) -> bool:
    pairs = zip(one.policy.state_dict().values(), other.policy.state_dict().values(), strict=True)
    return all(np.array_equal(a.numpy(), b.numpy()) for a, b in pairs)


def assert_same_statistics(one: VecNormalize | None, other: VecNormalize | None) -> None:
    assert one is not None
    assert other is not None
    for a, b in ((one.obs_rms, other.obs_rms), (one.ret_rms, other.ret_rms)):
        assert (a.count, a.mean.tolist(), a.var.tolist()) == (b.count, b.mean.tolist(), b.var.tolist())  # type: ignore[union-attr]


# ---- envs


def test_statistics_are_loaded_into_the_vecnormalize_of_the_env(tmp_path: Path) -> None:
    model = dqn(VecNormalize(walks()))
    model.learn(45, callback=BufferCheckpointCallback(20, tmp_path / "run"))
    mine = VecNormalize(walks())
    again = resume(tmp_path / "run", mine, device="cpu")
    assert again.get_vec_normalize_env() is mine
    assert_same_statistics(mine, model.get_vec_normalize_env())
    assert mine.training


def test_vecnormalize_is_found_below_other_wrappers(tmp_path: Path) -> None:
    model = ppo(stacked())
    model.learn(40, callback=BufferCheckpointCallback(20, tmp_path / "run"))
    again = resume(tmp_path / "run", stacked(), device="cpu")
    assert_same_statistics(again.get_vec_normalize_env(), model.get_vec_normalize_env())
    again.learn(20, reset_num_timesteps=False)
    with pytest.raises(ValueError, match=r"VecNormalize was used with .*\(3,\).*the env has .*\(6,\).*made in the same way"):
        resume(tmp_path / "run", VecFrameStack(walks(), 2))
    with pytest.raises(ValueError, match=r"are of observations \(3,\); the env has \(6,\)\. Give an env"):
        resume(tmp_path / "run", VecNormalize(VecFrameStack(walks(), 2)))
    with pytest.raises(ValueError, match=r"are of observations \(3,\); the env has none that are normalized"):
        resume(tmp_path / "run", VecFrameStack(VecNormalize(walks(), norm_obs=False), 2))


def test_several_vecnormalize_keep_their_own_statistics(tmp_path: Path) -> None:
    def make() -> VecEnv:
        return VecNormalize(VecNormalize(walks(), norm_obs=False), norm_reward=False)

    model = dqn(make())
    model.learn(30, callback=BufferCheckpointCallback(20, tmp_path / "run"))
    outer: Any = model.get_env()
    again: Any = resume(tmp_path / "run", make(), device="cpu").get_env()
    assert again.obs_rms.mean.tolist() == outer.obs_rms.mean.tolist()
    assert again.venv.ret_rms.mean == outer.venv.ret_rms.mean != 0
    with pytest.raises(ValueError, match="trained with 2 VecNormalize; the env has none"):
        resume(tmp_path / "run", walks())


def test_an_env_that_normalizes_cannot_go_on_with_a_run_that_did_not(tmp_path: Path) -> None:
    dqn().learn(30, callback=BufferCheckpointCallback(20, tmp_path / "run"))
    with pytest.raises(ValueError, match="trained with no VecNormalize; the env has 1"):
        resume(tmp_path / "run", VecNormalize(walks()))


def test_an_env_is_wrapped_as_sb3_wraps_it(tmp_path: Path) -> None:
    dqn(gym.make("CartPole-v1")).learn(60, callback=BufferCheckpointCallback(20, tmp_path / "run"))
    for env in (gym.make("CartPole-v1"), "CartPole-v1"):
        again = resume(tmp_path / "run", env, device="cpu")
        assert again.get_env().env_is_wrapped(Monitor) == [True]
        again.ep_info_buffer.clear()
        again.learn(200, reset_num_timesteps=False)
        assert len(again.ep_info_buffer) > 0
    normalized = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")]))
    dqn(normalized).learn(60, callback=BufferCheckpointCallback(20, tmp_path / "normalized"))
    again = resume(tmp_path / "normalized", gym.make("CartPole-v1"), device="cpu")
    assert again.get_env().env_is_wrapped(Monitor) == [True]
    assert_same_statistics(again.get_vec_normalize_env(), normalized)
    with pytest.raises(ValueError, match="resume needs an env to go on in, got None"):
        resume(tmp_path / "run", None)


# ---- what is exact


@pytest.mark.parametrize(
    ("make", "n_envs", "continuous"), [(dqn, 1, False), (sac, 2, True), (ppo, 1, False)], ids=["dqn", "sac", "ppo"]
)
@pytest.mark.parametrize("is_mine", [True, False])
def test_a_run_with_vecnormalize_ends_in_the_same_weights_when_it_is_resumed(
    make: Any, n_envs: int, continuous: bool, is_mine: bool, tmp_path: Path
) -> None:
    def env() -> VecEnv:
        return walks(n_envs, continuous=continuous)

    straight = make(VecNormalize(env()))
    straight.learn(200)
    straight.learn(100, reset_num_timesteps=False)
    make(VecNormalize(env())).learn(200, callback=BufferCheckpointCallback(1000, tmp_path / "run"))
    resumed = resume(tmp_path / "run", VecNormalize(env()) if is_mine else env(), device="cpu")
    resumed.learn(100, reset_num_timesteps=False)
    assert same_weights(resumed, straight)
    assert_same_statistics(resumed.get_vec_normalize_env(), straight.get_vec_normalize_env())


@pytest.mark.parametrize("make", [sac, lambda **options: ppo(walks(continuous=True), **options)], ids=["sac", "ppo"])
def test_state_dependent_exploration_is_exact_after_the_end_of_learn(make: Any, tmp_path: Path) -> None:
    straight = make(use_sde=True)
    straight.learn(100)
    straight.learn(50, reset_num_timesteps=False)
    make(use_sde=True).learn(100, callback=BufferCheckpointCallback(1000, tmp_path / "run"))
    resumed = resume(tmp_path / "run", walks(continuous=True), device="cpu")
    resumed.learn(50, reset_num_timesteps=False)
    assert same_weights(resumed, straight)


# ---- episodes that were running


def test_a_loaded_hindsight_buffer_does_not_join_two_episodes(tmp_path: Path) -> None:
    ours, _, env = her(10)
    assert (ours._current_ep_start != ours.pos).any()
    ours.save(tmp_path / "buffer")
    ours.checkpoint(tmp_path / "folder")
    for path in (tmp_path / "buffer", tmp_path / "folder"):
        assert_equal(load_buffer(path, env=env, device="cpu", truncate_last_traj=False), ours)
        loaded = load_buffer(path, env=env, device="cpu")
        assert (loaded._current_ep_start == loaded.pos).all()
        assert loaded.dones[9].all()
        assert (loaded.timeouts[9] == (ours.dones[9] == 0) | (ours.timeouts[9] == 1)).all()
        loaded.checkpoint(tmp_path / "folder")
        assert_equal(load_buffer(tmp_path / "folder", env=env, device="cpu", truncate_last_traj=False), loaded)
        ours.checkpoint(tmp_path / "folder")
    end_last_episode(ours)
    assert_equal(loaded, ours)


def test_a_loaded_n_step_buffer_does_not_join_two_episodes(tmp_path: Path) -> None:
    model = dqn(replay_buffer_class=CompressedNStepReplayBuffer, replay_buffer_kwargs={"n_steps": 3})
    model.learn(24)
    model.replay_buffer.save(tmp_path / "buffer")
    kept = load_buffer(tmp_path / "buffer", device="cpu", truncate_last_traj=False)
    assert_equal(kept, model.replay_buffer)
    for changes in ({}, {"n_envs": 2}, {"buffer_size": 10}):
        loaded = load_buffer(tmp_path / "buffer", device="cpu", **changes)  # type: ignore[arg-type]
        newest = loaded.pos - 1
        assert loaded.dones[newest].all()
        assert loaded.timeouts[newest].any()
    plain, _ = replay("replay", 7)  # nothing follows from one transition to the next: it stays as it is
    plain.save(tmp_path / "plain")
    assert_equal(load_buffer(tmp_path / "plain", device="cpu"), plain)


# ---- arguments


def test_another_buffer_size_keeps_the_newest_steps(tmp_path: Path) -> None:
    model = dqn()
    model.learn(100, callback=BufferCheckpointCallback(50, tmp_path / "run"))
    again = resume(tmp_path / "run", walks(), device="cpu", buffer_size=50)
    assert (again.buffer_size, again.replay_buffer.buffer_size, again.replay_buffer.size()) == (50, 50, 50)
    assert np.array_equal(again.replay_buffer.actions, model.replay_buffer.actions[50:100])
    again.learn(20, reset_num_timesteps=False, callback=BufferCheckpointCallback(10, tmp_path / "run"))
    assert resume(tmp_path / "run", walks(), device="cpu").replay_buffer.buffer_size == 50
    with pytest.raises(ValueError, match="leave replay_buffer_class out"):
        resume(tmp_path / "run", walks(), replay_buffer_class=CompressedHerReplayBuffer)


def test_the_wrong_algorithm_is_refused(tmp_path: Path) -> None:
    class Mine(DQN): ...

    dqn().learn(30, callback=BufferCheckpointCallback(20, tmp_path / "run"))
    assert type(resume(tmp_path / "run", walks(), Mine, device="cpu")) is Mine
    for wrong in (PPO, "PPO", CompressedReplayBuffer):
        with pytest.raises(ValueError, match=r"checkpoint of a DQN: algorithm=.* cannot go on with it\. Leave algorithm out"):
            resume(tmp_path / "run", walks(), wrong)  # type: ignore[arg-type]
    Mine("MlpPolicy", walks(), **small()).learn(30, callback=BufferCheckpointCallback(20, tmp_path / "mine"))
    assert type(resume(tmp_path / "mine", walks(), Mine, device="cpu")) is Mine
    with pytest.raises(ValueError, match=r"of a Mine, which is no class of .* give algorithm=Mine"):
        resume(tmp_path / "mine", walks())
    with pytest.raises(ValueError, match="Give the class Mine"):
        resume(tmp_path / "mine", walks(), "Mine")  # type: ignore[arg-type]


def test_algorithms_of_this_library_are_found_by_their_name(tmp_path: Path) -> None:
    model = PrioritizedDQN("MlpPolicy", walks(), **small(replay_buffer_class=None))
    model.learn(30, callback=BufferCheckpointCallback(20, tmp_path / "run"))
    again = resume(tmp_path / "run", walks(), device="cpu")
    assert type(again) is PrioritizedDQN
    again.learn(20, reset_num_timesteps=False)


@pytest.mark.parametrize("name", ["model-*.zip", "vecnormalize-*.pkl"])
@pytest.mark.parametrize("damage", ["garbage", "cut", "one bit"])
def test_damaged_files_of_the_model_are_named(name: str, damage: str, tmp_path: Path) -> None:
    dqn(VecNormalize(walks())).learn(30, callback=BufferCheckpointCallback(20, tmp_path / "run"))
    path = next((tmp_path / "run").glob(name))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes({"garbage": b"garbage", "cut": data[: len(data) // 2], "one bit": data}[damage])
    with pytest.raises(CorruptDataError, match=rf"{path.name} is damaged.*load_buffer"):
        resume(tmp_path / "run", walks())


@pytest.mark.parametrize("wrong", [0, -1, "a", 1e3, True, None])
def test_frequencies_are_whole_numbers(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="save_freq must be at least 1 step, as a whole number; got"):
        BufferCheckpointCallback(wrong, tmp_path)
    with pytest.raises(ValueError, match="log_freq must be at least 1 step, as a whole number; got"):
        BufferMemoryCallback(wrong)


# ---- folders of other runs


@pytest.mark.parametrize("make", [dqn, ppo])
def test_a_folder_of_another_run_is_not_replaced(make: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    model = make()
    model.learn(40, callback=BufferCheckpointCallback(20, folder))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    other = make()
    with pytest.raises(ValueError, match=r"holds a checkpoint of another run.*resume\(.*another folder"):
        other.learn(40, callback=BufferCheckpointCallback(20, folder))
    with pytest.raises(ValueError, match="another run"):
        save_checkpoint(other, folder)
    assert other.num_timesteps == 0  # refused before the first step
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    model.learn(20, callback=BufferCheckpointCallback(20, folder), reset_num_timesteps=False)  # its own
    for _ in range(2):
        again = resume(folder, walks(), device="cpu")
        again.learn(20, callback=BufferCheckpointCallback(20, folder), reset_num_timesteps=False)
    assert resume(folder, walks(), device="cpu").num_timesteps == 100


def test_a_folder_of_a_buffer_belongs_to_the_buffer(tmp_path: Path) -> None:
    model = dqn()
    model.learn(30)
    model.replay_buffer.checkpoint(tmp_path / "run")
    with pytest.raises(ValueError, match="another run"):
        dqn().learn(30, callback=BufferCheckpointCallback(20, tmp_path / "run"))
    model.learn(30, callback=BufferCheckpointCallback(20, tmp_path / "run"), reset_num_timesteps=False)
    assert resume(tmp_path / "run", walks(), device="cpu").num_timesteps == 60


def test_a_damaged_list_is_replaced_by_its_own_run_alone(tmp_path: Path) -> None:
    model = dqn()
    model.learn(30, callback=BufferCheckpointCallback(20, tmp_path / "run"))
    (tmp_path / "run" / "checkpoint.json").write_text("{}")
    with pytest.raises(ValueError, match="another run"):
        dqn().learn(30, callback=BufferCheckpointCallback(20, tmp_path / "run"))
    model.learn(10, callback=BufferCheckpointCallback(20, tmp_path / "run"), reset_num_timesteps=False)
    assert resume(tmp_path / "run", walks(), device="cpu").num_timesteps == 40
