"""Checkpoint folders: only what is new is written, any moment of a crash leaves a complete state, and runs go on from it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_extra_buffers import BufferCheckpointCallback, load_buffer, resume
from sb3_extra_buffers.compressed import (
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
)
from sb3_extra_buffers.compressed.episodes import end_last_episode
from sb3_extra_buffers.errors import CorruptDataError, SegmentVersionError, UncompressedBufferWarning
from sb3_extra_buffers.segments.folders import LIST, read_list
from tests.oracle import add_to_replay, assert_same_samples
from tests.saved_buffers import ACTIONS, N_ENVS, REPLAY, assert_equal, her, replay
from tests.transitions import play


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def more(kind: str, buffers: list[Any], n: int, seed: int) -> None:
    for step in play(REPLAY[kind][2], ACTIONS, N_ENVS, n, seed=seed):
        add_to_replay(buffers, step)


def files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.name != LIST}


@pytest.mark.parametrize("kind", ["replay", "replay-zstd", "replay-vector", "dict", "n-step", "gpu"])
def test_every_checkpoint_restores_the_buffer(kind: str, folder: Path) -> None:
    ours, theirs = replay(kind, 0, slots=60)
    for i, n in enumerate((0, 5, 0, 20, 40, 3, 200, 1, 60, 61)):
        more(kind, [ours, theirs], n, seed=i)
        ours.checkpoint(folder)
        loaded = load_buffer(folder, device="cpu", truncate_last_traj=False)
        assert_equal(loaded, ours)
        if ours.size():
            assert_same_samples(loaded, theirs)
    more(kind, [loaded, theirs], 30, seed=99)  # what was loaded goes on, in the same folder
    loaded.checkpoint(folder)
    assert_equal(load_buffer(folder, device="cpu", truncate_last_traj=False), loaded)


def test_only_what_is_new_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_extra_buffers.segments.folders._FEW_STEPS", 0)
    ours, _ = replay("replay", 50, slots=200)
    ours.checkpoint(folder)
    first = files(folder)
    for i in range(3):
        more("replay", [ours], 50, seed=i)
        ours.checkpoint(folder)
        assert first.items() <= files(folder).items()  # untouched
        assert len(files(folder)) == i + 2
    ours.checkpoint(folder)
    assert len(files(folder)) == 4  # nothing new
    more("replay", [ours], 60, seed=5)  # the ring has overwritten the first 60: one file and a part of the next
    ours.checkpoint(folder)
    assert not first.keys() & files(folder).keys()
    assert len(files(folder)) == 4
    assert_equal(load_buffer(folder, device="cpu"), ours)
    more("replay", [ours], 500, seed=6)
    ours.checkpoint(folder)
    assert len(files(folder)) == 1
    assert_equal(load_buffer(folder, device="cpu"), ours)


def test_small_files_are_put_together(folder: Path) -> None:
    ours, _ = replay("replay", 0, slots=3000)
    for i in range(30):
        more("replay", [ours], 7, seed=i)
        ours.checkpoint(folder)
    assert len(files(folder)) == 1
    assert_equal(load_buffer(folder, device="cpu"), ours)


def test_files_stay_few(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_extra_buffers.segments.folders._FEW_STEPS", 0)
    monkeypatch.setattr("sb3_extra_buffers.segments.folders._MOST_FILES", 10)
    ours, _ = replay("replay", 0, slots=300)
    for i in range(25):
        more("replay", [ours], 3, seed=i)
        ours.checkpoint(folder)
        assert len(files(folder)) <= 10
        assert_equal(load_buffer(folder, device="cpu"), ours)


def test_a_folder_is_read_while_another_process_writes_to_it(folder: Path) -> None:
    import threading

    ours, _ = replay("replay", 30)
    ours.checkpoint(folder)
    ends = threading.Event()

    def write() -> None:
        for i in range(60):
            more("replay", [ours], 2 + i % 5, seed=i)
            ours.checkpoint(folder)
        ends.set()

    thread = threading.Thread(target=write)
    thread.start()
    n_read = 0
    while not ends.is_set():
        assert load_buffer(folder, device="cpu").size() == 30
        n_read += 1
    thread.join()
    assert n_read > 3
    assert_equal(load_buffer(folder, device="cpu"), ours)


def test_steps_that_have_changed_are_written_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_extra_buffers.segments.folders._FEW_STEPS", 0)
    ours, _ = replay("replay", 50, slots=200)
    ours.checkpoint(folder)
    more("replay", [ours], 50, seed=1)
    ours.checkpoint(folder)
    kept = files(folder)
    ours.rewards[60] = 7
    ours.checkpoint(folder)
    assert len(kept.items() & files(folder).items()) == 1
    assert_equal(load_buffer(folder, device="cpu"), ours)
    ours.observations[3] = 1  # not a step
    ours.checkpoint(folder)
    assert not kept.items() & files(folder).items()
    assert_equal(load_buffer(folder, device="cpu"), ours)


@pytest.mark.parametrize("kind", ["replay-vector", "dict"])
def test_small_observations_that_have_changed_are_written_again(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sb3_extra_buffers.segments.folders._FEW_STEPS", 0)
    ours, _ = replay(kind, 50, slots=45)
    ours.checkpoint(folder)
    more(kind, [ours], 5, seed=1)
    kept = files(folder)
    ours.checkpoint(folder)
    assert kept.keys() <= files(folder).keys()  # steps alone change nothing
    columns = ours.observations.values() if kind == "dict" else [ours.observations]
    for column in columns:
        column[5] = np.ones_like(column[5])
        ours.checkpoint(folder)
        assert_equal(load_buffer(folder, device="cpu"), ours)


def test_what_else_is_listed_stays(folder: Path) -> None:
    ours, _ = replay("replay", 20)
    folder.mkdir(parents=True)
    model = folder / "model-20-0123abcd.zip"
    model.write_bytes(b"a model")
    ours.checkpoint(folder, extra={"files": [model.name], "n": 20})
    load_buffer(folder, device="cpu").checkpoint(folder)
    assert model.exists()
    assert read_list(folder).extra == {"files": [model.name], "n": 20}
    ours.checkpoint(folder, extra={})
    assert not model.exists()
    with pytest.raises(TypeError, match="must be names of files, got"):
        ours.checkpoint(folder, extra={"files": [5]})


def test_a_thread_that_cannot_be_started_is_no_fault_of_the_next_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    def refuse(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    ours, _ = replay("replay", 20)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match=r"can't start new thread: the checkpoint in .* was not written"):
        ours.checkpoint(folder, background=True)
    monkeypatch.undo()
    ours.checkpoint(folder, background=True)
    ours.wait_for_checkpoint()
    assert_equal(load_buffer(folder, device="cpu"), ours)


def test_ctrl_c_while_a_thread_starts_is_no_fault_of_the_next_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    def interrupted(self: Any) -> None:
        raise KeyboardInterrupt

    ours, _ = replay("replay", 20)
    monkeypatch.setattr("sb3_extra_buffers.segments.folders._START_TRIES", 2)
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ours.checkpoint(folder, background=True)
    monkeypatch.undo()
    ours.checkpoint(folder)
    assert_equal(load_buffer(folder, device="cpu"), ours)


def test_files_of_a_list_that_came_while_loading_are_not_taken_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old training writes once more, while its last checkpoint is loaded by another."""
    monkeypatch.setattr("sb3_extra_buffers.segments.folders._FEW_STEPS", 0)
    old, _ = replay("replay", 20, slots=100)
    old.checkpoint(folder)
    go_on = CompressedReplayBuffer._go_on_from

    def late(self: Any, stored: Any) -> None:
        more("replay", [old], 5, seed=1)
        old.checkpoint(folder)
        go_on(self, stored)

    monkeypatch.setattr(CompressedReplayBuffer, "_go_on_from", late)
    loaded = load_buffer(folder, device="cpu")
    more("replay", [loaded], 5, seed=2)
    for name in ("actions", "rewards", "dones", "timeouts"):  # all that is compared is equal: observations are not
        getattr(loaded, name)[:] = getattr(old, name)
    loaded.checkpoint(folder)
    assert_equal(load_buffer(folder, device="cpu"), loaded)


def test_a_file_that_is_removed_while_it_is_opened_is_looked_for_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sb3_extra_buffers.segments import folders

    ours, _ = replay("replay", 20)
    ours.checkpoint(folder)
    open_entry, n_calls = folders._open_entry, 0

    def late(*args: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 1:
            more("replay", [ours], 5, seed=1)
            ours.checkpoint(folder)
        return open_entry(*args)

    monkeypatch.setattr(folders, "_open_entry", late)
    assert_equal(load_buffer(folder, device="cpu"), ours)
    assert n_calls > 1


def test_links_in_a_folder_are_replaced_and_not_followed(folder: Path, tmp_path: Path) -> None:
    ours, _ = replay("replay", 20)
    ours.checkpoint(folder)
    elsewhere = tmp_path / "elsewhere"
    (folder / LIST).rename(elsewhere)
    (folder / LIST).symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    loaded = load_buffer(folder, device="cpu")
    more("replay", [loaded], 5, seed=1)
    loaded.checkpoint(folder)
    assert elsewhere.read_bytes() == before
    assert_equal(load_buffer(folder, device="cpu"), loaded)


def test_after_a_reset_everything_is_new(folder: Path) -> None:
    ours, _ = replay("replay", 80, slots=60)
    ours.checkpoint(folder)
    old = files(folder)
    ours.reset()
    ours.checkpoint(folder)
    assert load_buffer(folder).size() == 0
    more("replay", [ours], 80, seed=3)
    ours.checkpoint(folder)
    assert not old.keys() & files(folder).keys()
    assert_equal(load_buffer(folder, device="cpu"), ours)


def test_two_buffers_do_not_mix_in_a_folder(folder: Path) -> None:
    one, two = replay("replay", 30)[0], replay("replay", 30, seed=7)[0]
    for buffer in (one, two, one):
        buffer.checkpoint(folder)
        more("replay", [buffer], 4, seed=2)
        buffer.checkpoint(folder)
        assert_equal(load_buffer(folder, device="cpu"), buffer)


def test_hindsight_episodes_that_the_ring_cut_are_not_sampled(folder: Path) -> None:
    ours, theirs, env = her(0, slots=40)
    from tests.test_oracle_her import play_both

    for n in (33, 21, 17, 40, 5, 64):
        play_both(env, [ours, theirs], n, check_every=10**9)
        ours.checkpoint(folder)
        loaded = load_buffer(folder, env=env, device="cpu", truncate_last_traj=False)
        assert np.array_equal(loaded.ep_length, theirs.ep_length)
        assert_same_samples(loaded, theirs, batch_size=100)


def test_in_the_background(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from sb3_extra_buffers.segments import folders

    ours, _ = replay("replay", 45)
    may_write = threading.Event()
    replacing = folders.replacing

    def slow(path: Any, **options: Any) -> Any:
        assert may_write.wait(20)
        return replacing(path, **options)

    monkeypatch.setattr(folders, "replacing", slow)
    copy = replay("replay", 45)[0]
    ours.checkpoint(folder, background=True)
    more("replay", [ours], 20, seed=1)  # training does not wait
    assert not (folder / LIST).exists()
    may_write.set()
    ours.wait_for_checkpoint()
    assert_equal(load_buffer(folder, device="cpu"), copy)  # what it was when it was asked for
    monkeypatch.setattr(folders, "replacing", lambda path, **_: (_ for _ in ()).throw(OSError(28, "No space left")))
    ours.checkpoint(folder, background=True)
    with pytest.raises(OSError, match="No space left"):
        ours.wait_for_checkpoint()
    monkeypatch.undo()
    ours.checkpoint(folder)
    assert_equal(load_buffer(folder, device="cpu"), ours)


def test_a_failed_checkpoint_leaves_the_last_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sb3_extra_buffers.segments import folders

    monkeypatch.setattr(folders, "_FEW_STEPS", 0)
    ours, _ = replay("replay", 45)
    ours.checkpoint(folder)
    copy = load_buffer(folder, device="cpu")
    replacing, calls = folders.replacing, []
    for fails_at in (0, 1):
        more("replay", [ours], 5, seed=fails_at)

        def failing(path: Any, fails_at: int = fails_at, **options: Any) -> Any:
            calls.append(path)
            if len(calls) == fails_at + 1:
                raise OSError(28, "No space left on device")
            return replacing(path, **options)

        calls.clear()
        monkeypatch.setattr(folders, "replacing", failing)
        with pytest.raises(OSError, match="No space"):
            ours.checkpoint(folder)
        monkeypatch.setattr(folders, "replacing", replacing)
        assert_equal(load_buffer(folder, device="cpu"), copy)
    ours.checkpoint(folder)
    assert_equal(load_buffer(folder, device="cpu"), ours)


def test_files_of_the_last_checkpoint_stay_until_the_next_is_complete(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where steps that it holds are written anew: a kill at the worst moment is an error in front of the list."""
    from sb3_extra_buffers.segments import folders

    ours, _ = replay("replay", 45)
    ours.checkpoint(folder)
    copy = load_buffer(folder, device="cpu")
    replacing = folders.replacing

    def killed(path: Any, **options: Any) -> Any:
        if Path(path).name == LIST:
            raise OSError(5, "killed")
        return replacing(path, **options)

    for change in (ours.rewards, ours.observations):
        change[3] = 7
        monkeypatch.setattr(folders, "replacing", killed)
        with pytest.raises(OSError, match="killed"):
            ours.checkpoint(folder)
        monkeypatch.setattr(folders, "replacing", replacing)
        assert_equal(load_buffer(folder, device="cpu"), copy)
    ours.checkpoint(folder)
    assert_equal(load_buffer(folder, device="cpu"), ours)


def test_damaged_files_of_the_last_checkpoint_are_written_again(folder: Path) -> None:
    ours, _ = replay("replay", 45)
    ours.checkpoint(folder)
    [name] = files(folder)
    (folder / name).write_bytes((folder / name).read_bytes()[:-9])
    ours.checkpoint(folder)
    assert_equal(load_buffer(folder, device="cpu"), ours)


def test_two_buffers_that_were_loaded_from_one_folder_do_not_mix(folder: Path) -> None:
    ours, _ = replay("replay", 20)
    ours.checkpoint(folder)
    one, two = load_buffer(folder, device="cpu"), load_buffer(folder, device="cpu")
    for buffer, value in ((one, 1), (two, 2)):  # nothing but observations tells them apart
        obs = np.full((N_ENVS, *REPLAY["replay"][2].shape), value, np.uint8)
        buffer.add(obs, obs, np.zeros((N_ENVS, 1)), np.zeros(N_ENVS), np.zeros(N_ENVS), [{}] * N_ENVS)
    one.checkpoint(folder)
    two.checkpoint(folder)
    assert_equal(load_buffer(folder, device="cpu"), two)


def test_an_interrupted_wait_does_not_let_two_checkpoints_run_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    ours, _ = replay("replay", 45)
    ours.checkpoint(folder, background=True)
    thread = ours._writer._thread
    join = thread.join
    monkeypatch.setattr(thread, "join", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        ours.wait_for_checkpoint()
    assert ours._writer._thread is thread
    monkeypatch.setattr(thread, "join", join)
    ours.wait_for_checkpoint()
    assert thread not in threading.enumerate()


def test_a_list_cannot_name_places_elsewhere(folder: Path, tmp_path: Path) -> None:
    import zlib

    replay("replay", 20)[0].checkpoint(folder)
    state = json.loads(json.loads((folder / LIST).read_bytes())["state"])
    for life in ("../evil", str(tmp_path / "evil"), "", "x" * 12, 7, None):
        inner = json.dumps({**state, "life": life})
        (folder / LIST).write_text(json.dumps({"checksum": zlib.crc32(inner.encode()), "state": inner}))
        with pytest.raises(CorruptDataError, match=LIST):
            load_buffer(folder)


def test_damaged_lists_and_files(folder: Path) -> None:
    ours, _ = replay("replay", 45)
    ours.checkpoint(folder)
    text = (folder / LIST).read_bytes()
    [name] = files(folder)
    for changed in (b"", b"{}", b"[1]", text[:-3], text.replace(b"0", b"1", 3), text.replace(b"checkpoint", b"checkmate", 1)):
        (folder / LIST).write_bytes(changed)
        with pytest.raises(CorruptDataError, match=LIST):
            load_buffer(folder)
    state = json.loads(json.loads(text)["state"])
    import zlib

    def signed(said: dict[str, Any]) -> bytes:
        inner = json.dumps(said)
        return json.dumps({"checksum": zlib.crc32(inner.encode()), "state": inner}).encode()

    (folder / LIST).write_bytes(signed({**state, "version": 99}))
    with pytest.raises(SegmentVersionError, match=r"version 99.*Upgrade"):
        load_buffer(folder)
    outside = [{**state["files"][0], "file": "../" + name}]
    for change in ({"files": outside}, {"files": []}, {"oldest": -1}, {"oldest": 10**9}, {"buffer": {}}, {"files": [1]}):
        (folder / LIST).write_bytes(signed({**state, **change}))
        with pytest.raises(CorruptDataError):
            load_buffer(folder)
    (folder / LIST).write_bytes(text)
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:-1])
    with pytest.raises(CorruptDataError, match="cut off"):
        load_buffer(folder)
    (folder / name).unlink()
    with pytest.raises(CorruptDataError, match=r"lacks .*repair"):
        load_buffer(folder)


# ---- models


class Corridor(gym.Env[np.ndarray, int]):
    """Ten steps, always the same: a run that begins anew at the end of an episode is as one that went on."""

    observation_space = spaces.Box(0, 255, (2, 24, 24), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t, self.at = 0, 0
        return self._picture(), {}

    def step(self, action: int) -> Any:
        self.t, self.at = self.t + 1, (self.at * 3 + int(action)) % 19
        return self._picture(), float(self.at == 4), False, self.t == 10, {}

    def _picture(self) -> np.ndarray:
        picture = np.zeros((2, 24, 24), np.uint8)
        picture[0, self.t, :], picture[1, :, self.at] = 200, 90
        return picture


def dqn(**options: Any) -> DQN:
    kwargs: dict[str, Any] = {
        "learning_starts": 20, "buffer_size": 150, "batch_size": 8, "train_freq": 2, "target_update_interval": 30, "seed": 1,
        "policy_kwargs": {"net_arch": [16], "normalize_images": True}, "replay_buffer_class": CompressedReplayBuffer,
        "device": "cpu",
        "exploration_fraction": 0.5,
    }  # fmt: skip
    return DQN("MlpPolicy", DummyVecEnv([Corridor]), **{**kwargs, **options})


def weights(model: Any) -> list[np.ndarray]:
    return [value.detach().numpy() for value in model.policy.state_dict().values()]


def same_weights(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


class Crash(BaseCallback):
    """Ends the process, as far as a test can."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def _on_step(self) -> bool:
        if self.num_timesteps == self.at:
            raise RuntimeError("the power is gone")
        return True


@pytest.mark.parametrize("background", [False, True])
def test_a_run_that_crashed_ends_in_the_same_weights_when_it_is_resumed(background: bool, folder: Path) -> None:
    straight = dqn()
    straight.learn(400)
    stopped = dqn()
    with pytest.raises(RuntimeError, match="power"):
        stopped.learn(400, callback=[BufferCheckpointCallback(50, folder, background=background), Crash(237)])
    stopped.replay_buffer.wait_for_checkpoint()
    np.random.seed(77)  # another process
    th.manual_seed(77)
    resumed = resume(folder, DummyVecEnv([Corridor]), device="cpu")
    assert isinstance(resumed, DQN)
    assert resumed.num_timesteps == 200
    resumed.learn(400 - resumed.num_timesteps, reset_num_timesteps=False, callback=BufferCheckpointCallback(50, folder))
    assert same_weights(resumed, straight)
    assert_equal(resumed.replay_buffer, straight.replay_buffer)
    assert same_weights(resume(folder, DummyVecEnv([Corridor]), device="cpu"), straight)  # the last checkpoint is the end


def test_other_algorithms_resume(folder: Path, tmp_path: Path) -> None:
    ppo = PPO(
        "MlpPolicy",
        DummyVecEnv([Corridor]),
        n_steps=16,
        batch_size=8,
        rollout_buffer_class=CompressedRolloutBuffer,
        device="cpu",
    )
    ppo.learn(64, callback=BufferCheckpointCallback(16, folder))
    again = resume(folder, DummyVecEnv([Corridor]), device="cpu")
    assert isinstance(again, PPO)
    assert same_weights(again, ppo)
    with pytest.raises(CorruptDataError, match="model alone"):
        load_buffer(folder)
    normalized = VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]))
    sac = SAC("MlpPolicy", normalized, learning_starts=10, buffer_size=200, batch_size=4,
              replay_buffer_class=CompressedReplayBuffer, policy_kwargs={"net_arch": [8]}, device="cpu")  # fmt: skip
    other = tmp_path / "sac"
    sac.learn(60, callback=BufferCheckpointCallback(20, other))
    again = resume(other, DummyVecEnv([lambda: gym.make("Pendulum-v1")]), device="cpu")
    assert isinstance(again, SAC)
    assert same_weights(again, sac)
    assert np.array_equal(again.get_vec_normalize_env().obs_rms.mean, normalized.obs_rms.mean)
    end_last_episode(sac.replay_buffer)  # what comes next does not follow
    assert_equal(again.replay_buffer, sac.replay_buffer)
    again.learn(20, reset_num_timesteps=False)


def test_hindsight_and_other_numbers_of_envs_resume(folder: Path) -> None:
    from tests.test_oracle_her import goal_env

    model = DQN("MultiInputPolicy", goal_env(2), replay_buffer_class=CompressedHerReplayBuffer, learning_starts=30,
                buffer_size=200, batch_size=8, policy_kwargs={"net_arch": [8]}, device="cpu")  # fmt: skip
    model.learn(120, callback=BufferCheckpointCallback(20, folder))
    again = resume(folder, goal_env(2), device="cpu")
    end_last_episode(model.replay_buffer)
    assert_equal(again.replay_buffer, model.replay_buffer)
    again.learn(40, reset_num_timesteps=False)
    with_more = resume(folder, goal_env(3), device="cpu")
    assert with_more.replay_buffer.n_envs == 3
    with_more.learn(60, reset_num_timesteps=False)


def test_what_comes_after_a_resume_does_not_continue_an_episode(folder: Path, tmp_path: Path) -> None:
    from tests.test_oracle_her import goal_env

    model = DQN("MultiInputPolicy", goal_env(1), replay_buffer_class=CompressedHerReplayBuffer, learning_starts=90,
                buffer_size=200, device="cpu")  # fmt: skip
    model.learn(38, callback=BufferCheckpointCallback(10, folder))
    again = resume(folder, goal_env(1), device="cpu")
    again.learn(40, reset_num_timesteps=False)
    assert again.replay_buffer.ep_length.max() <= 7
    steps = dqn(replay_buffer_class=CompressedNStepReplayBuffer, replay_buffer_kwargs={"n_steps": 3})
    steps.learn(44, callback=BufferCheckpointCallback(10, tmp_path / "n-step"))
    assert steps.replay_buffer.dones[43] == 0
    again = resume(tmp_path / "n-step", DummyVecEnv([Corridor]), device="cpu")
    assert (again.replay_buffer.dones[43], again.replay_buffer.timeouts[43]) == (1, 1)


def test_wrong_uses_of_the_callback(folder: Path) -> None:
    with pytest.raises(ValueError, match="save_freq must be at least 1"):
        BufferCheckpointCallback(0, folder)
    with pytest.raises(ValueError, match=r"ReplayBuffer.*CheckpointCallback.*checkpoint=folder"):
        dqn(replay_buffer_class=ReplayBuffer).learn(30, callback=BufferCheckpointCallback(10, folder))
    with pytest.raises(FileNotFoundError, match="holds no checkpoint"):
        resume(folder, Corridor())
    replay("replay", 10)[0].checkpoint(folder)
    with pytest.raises(ValueError, match=r"buffer alone.*load_buffer"):
        resume(folder, Corridor())


def test_a_missing_model_is_said(folder: Path) -> None:
    dqn().learn(30, callback=BufferCheckpointCallback(10, folder))
    next(iter(folder.glob("model-*.zip"))).unlink()
    with pytest.raises(CorruptDataError, match=r"lacks model-30-.*load_buffer"):
        resume(folder, DummyVecEnv([Corridor]))


def test_the_checkpoint_names_what_it_holds_and_removes_the_rest(folder: Path) -> None:
    model = dqn()
    model.learn(200, callback=BufferCheckpointCallback(20, folder))
    named = read_list(folder)
    assert named.extra["algorithm"] == "DQN"
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [LIST, *named.extra["files"], *(e.file for e in named.entries)]
    )
    (folder / "notes.txt").write_text("mine")  # what is not ours stays
    (folder / "mine.sb3x").write_text("mine, too")
    (folder / "model-1-00ff00ff.zip.ab12ab12.unfinished").write_text("left by a crash")
    model.replay_buffer.checkpoint(folder, extra=named.extra)
    assert (folder / "notes.txt").exists()
    assert (folder / "mine.sb3x").exists()
    assert not list(folder.glob("*.unfinished"))


def test_a_file_of_sb3s_own_buffer_warns(tmp_path: Path) -> None:
    plain = dqn(replay_buffer_class=ReplayBuffer)
    plain.learn(40)
    plain.save_replay_buffer(tmp_path / "plain.pkl")
    model = dqn()
    with pytest.warns(UncompressedBufferWarning, match=r"CompressedReplayBuffer.*ReplayBuffer.*compress_buffer"):
        model.load_replay_buffer(tmp_path / "plain.pkl")
    plain.load_replay_buffer(tmp_path / "plain.pkl")  # as ever
    from sb3_extra_buffers import compress_buffer

    model.replay_buffer = compress_buffer(model.replay_buffer)
    assert_same_samples(model.replay_buffer, plain.replay_buffer)
    model.save_replay_buffer(tmp_path / "ours.pkl")
    model.load_replay_buffer(tmp_path / "ours.pkl")
    assert_same_samples(model.replay_buffer, plain.replay_buffer)


def test_a_folder_can_be_copied(folder: Path, tmp_path: Path) -> None:
    ours, _ = replay("replay", 45)
    ours.checkpoint(folder)
    shutil.copytree(folder, tmp_path / "copy")
    loaded = load_buffer(tmp_path / "copy", device="cpu")
    more("replay", [loaded], 10, seed=1)
    loaded.checkpoint(tmp_path / "copy")
    assert_equal(load_buffer(folder, device="cpu"), ours)
