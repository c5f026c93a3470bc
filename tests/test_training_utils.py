"""Evaluation and warm-up: exact episode counts, and buffers filled as SB3's own collection would fill them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import DQN, TD3
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.callbacks import StopTrainingOnMaxEpisodes
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecMonitor, VecNormalize
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers.compressed import (
    CompressedDictReplayBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
)
from sb3_extra_buffers.training_utils import atari
from sb3_extra_buffers.training_utils.buffer_warmup import warm_up
from sb3_extra_buffers.training_utils.eval_model import eval_model, process_outcome
from sb3_extra_buffers.training_utils.play import play
from sb3_extra_buffers.training_utils.summary import summarize


class Clockwork(gym.Env[Any, Any]):
    """Episodes of a fixed length; the observation is (episode, step), the reward is the episode's length in the end."""

    def __init__(self, length: int = 3, action_space: spaces.Space[Any] | None = None, times_out: bool = False) -> None:
        self.length, self.times_out = length, times_out
        self.observation_space = spaces.Box(-1e3, 1e3, (2,), np.float32)
        self.action_space = action_space or spaces.Discrete(2)
        self.episode = self.t = 0

    def _obs(self) -> np.ndarray:
        return np.array([self.episode, self.t], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        over = self.t == self.length
        return self._obs(), 1.0, over and not self.times_out, over and self.times_out, {}


class Lives(gym.Wrapper[Any, Any, Any, Any]):
    """Ends after every second step without a true reset, as EpisodicLife does, and lies about rewards as clipping does."""

    over = True

    def reset(self, **kwargs: Any) -> Any:
        return self.env.reset(**kwargs) if self.over else (self.unwrapped._obs(), {})  # type: ignore[attr-defined]

    def step(self, action: Any) -> Any:
        obs, _, terminated, truncated, info = self.env.step(action)
        self.over = terminated or truncated
        return obs, 0.5, terminated or self.unwrapped.t % 2 == 0, truncated, info  # type: ignore[attr-defined]


class Still:
    """A model that always does the same, and keeps what it was asked."""

    def __init__(self, action: Any = 0) -> None:
        self.action, self.seen, self.starts = action, list[Any](), list[Any]()

    def predict(self, obs: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False) -> Any:
        self.seen.append(obs)
        self.starts.append(np.array(episode_start))
        n = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
        return np.stack([np.asarray(self.action)] * n), state


def clockworks(*lengths: int, **kwargs: Any) -> VecEnv:
    return DummyVecEnv([lambda length=length: Monitor(Clockwork(length, **kwargs)) for length in lengths])  # type: ignore[misc]


def buffer_for(env: VecEnv, size: int = 400, buffer_class: Any = CompressedReplayBuffer, **kwargs: Any) -> Any:
    return buffer_class(size * env.num_envs, env.observation_space, env.action_space, "cpu", n_envs=env.num_envs, **kwargs)


@pytest.mark.parametrize("n_eps", [1, 2, 3, 7, 12])
def test_exactly_n_eps_episodes_are_finished(n_eps: int) -> None:
    rewards, seconds = eval_model(n_eps, clockworks(2, 3, 5), Still())
    assert len(rewards) == n_eps
    assert seconds == []


def test_each_env_plays_its_share_so_that_short_episodes_are_not_favoured() -> None:
    rewards, _ = eval_model(10, clockworks(1, 50), Still())
    assert sorted(rewards) == [1] * 5 + [50] * 5


def test_lost_lives_are_no_episodes_and_rewards_are_the_true_ones() -> None:
    env = DummyVecEnv([lambda: Lives(Monitor(Clockwork(7)))])
    rewards, _ = eval_model(4, env, Still())
    assert rewards == [7, 7, 7, 7]


def test_a_vec_monitor_does_too() -> None:
    rewards, _ = eval_model(3, VecMonitor(DummyVecEnv([lambda: Clockwork(4)] * 2)), Still())
    assert rewards == [4, 4, 4]


def test_an_env_without_monitor_is_refused_instead_of_played_forever() -> None:
    with pytest.raises(ValueError, match=r"no Monitor.*VecMonitor\(eval_env\)"):
        eval_model(1, DummyVecEnv([Clockwork]), Still())


def test_wrong_numbers_are_refused() -> None:
    env = clockworks(3, 3)
    with pytest.raises(ValueError, match="n_eps must be at least 1, got 0"):
        eval_model(0, env, Still())
    with pytest.raises(
        ValueError, match=r"for n_envs=4, and the steps of 2 envs cannot be dealt.*with n_envs=4, or a multiple of it"
    ):
        eval_model(1, env, Still(), buffer=ReplayBuffer(10, env.observation_space, env.action_space, n_envs=4))
    with pytest.raises(ValueError, match="n_envs is 3, but CompressedReplayBuffer was made for n_envs=2"):
        warm_up(buffer_for(env), 3, env, Still())
    with pytest.raises(ValueError, match="needs a buffer"):
        warm_up([], 2, env, Still())
    for length in (0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"mean_ep_len must be positive, got {length}"):
            warm_up(buffer_for(env), 2, env, Still(), mean_ep_len=length)
    with pytest.raises(ValueError, match="buffer must be a replay buffer, several of them, or None; got int"):
        eval_model(1, env, Still(), buffer=3)  # type: ignore[arg-type]
    other = spaces.Box(-1e3, 1e3, (4,), np.float32)
    with pytest.raises(ValueError, match=r"ReplayBuffer was made for obs_shape=\(4,\), but the env has \(2,\)"):
        eval_model(1, env, Still(), buffer=ReplayBuffer(10, other, env.action_space, n_envs=2))


@pytest.mark.parametrize("close_env", [True, False])
def test_the_env_is_closed_when_asked(close_env: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in (
        lambda env: eval_model(1, env, Still(), close_env),
        lambda env: warm_up(buffer_for(env, 5), 1, env, Still(), close_env=close_env),
    ):
        env, closed = clockworks(3), list[bool]()
        monkeypatch.setattr(env, "close", lambda closed=closed: closed.append(True))
        run(env)
        assert closed == [True] * close_env


def test_a_warm_up_leaves_the_env_open(monkeypatch: pytest.MonkeyPatch) -> None:
    env = clockworks(3)
    monkeypatch.setattr(env, "close", lambda: pytest.fail("closed"))
    warm_up(buffer_for(env, 5), 1, env, Still())
    warm_up(buffer_for(env, 5), 1, env, Still(), warmup_episodes=2)


def test_the_outcome_of_a_step_is_what_the_monitor_says() -> None:
    rewards, ended = process_outcome([{"episode": {"r": 3.5, "l": 2}}, {}, {"episode": {"r": -1, "l": 2}}])
    assert ended.tolist() == [True, False, True]
    assert rewards[ended].tolist() == [3.5, -1]
    assert np.isnan(rewards[1])


# ---- more envs than a buffer has


class Named(Clockwork):
    """Its observations also say which env it is: 1,000 times its number is added to the episode."""

    def __init__(self, number: int, length: int) -> None:
        super().__init__(length)
        self.number = number

    def _obs(self) -> np.ndarray:
        return np.array([1000 * self.number + self.episode, self.t], np.float32)


def named(*lengths: int) -> VecEnv:
    envs = enumerate(lengths)
    return DummyVecEnv([lambda i=i, length=length: Monitor(Named(i, length)) for i, length in envs])  # type: ignore[misc]


def transitions_of(buffer: Any) -> list[Any]:
    """All that a buffer holds, in an order that does not depend on where it is."""
    n = buffer.size()
    rows = (buffer.observations, buffer.next_observations, buffer.actions, buffer.rewards[..., None], buffer.dones[..., None])
    together = np.concatenate([np.asarray(row)[:n].reshape(n * buffer.n_envs, -1) for row in rows], axis=1)
    return sorted(together.tolist())


@pytest.mark.parametrize("n_envs", [1, 2, 3])
@pytest.mark.parametrize(
    "buffer_class", [ReplayBuffer, CompressedReplayBuffer, NStepReplayBuffer, CompressedNStepReplayBuffer]
)
def test_more_envs_than_a_buffer_has_are_dealt_out_with_trajectories_kept_apart(buffer_class: Any, n_envs: int) -> None:
    env = named(3, 90, 7, 200, 5, 4)
    few: Any = buffer_class(3000, env.observation_space, env.action_space, "cpu", n_envs=n_envs)
    many: Any = ReplayBuffer(3000, env.observation_space, env.action_space, "cpu", n_envs=6)
    _, seconds = eval_model(6, env, Still(), buffer=[few, many])
    assert min(seconds) > 0
    assert transitions_of(few) == transitions_of(many)
    for slot in range(few.size() - 1):  # what follows is the next step, or an end is marked
        goes_on = np.all(few.next_observations[slot] == few.observations[slot + 1], axis=1)
        assert np.all(goes_on | (few.dones[slot] == 1) | (few.timeouts[slot] == 1))
    lonely = np.sum((few.timeouts[: few.size()] == 1) & (few.dones[: few.size()] == 0))
    assert lonely <= few.size() * n_envs / 64 + 6  # episodes are cut at the ends of runs only
    if isinstance(few, NStepReplayBuffer):
        batch = few.sample(2000)
        ahead = batch.next_observations - batch.observations
        assert np.all(ahead[:, 0].numpy() == 0)  # never into another episode, nor another env
        assert set(ahead[:, 1].int().tolist()) == {1, 2, 3}


def test_a_warm_up_with_more_envs_fills_a_buffer_to_the_brim() -> None:
    env = named(3, 90, 7, 200)
    buffers = [
        buffer_class(150, env.observation_space, env.action_space, "cpu", n_envs=2)
        for buffer_class in (ReplayBuffer, CompressedReplayBuffer)
    ]
    warm_up(buffers, 2, env, Still())
    assert all(buffer.full for buffer in buffers)
    assert transitions_of(buffers[0]) == transitions_of(buffers[1])
    rewards, _ = warm_up(buffer_for(env, 200), 4, env, Still(), mean_ep_len=50)
    assert len(rewards) == 16


def test_hindsight_stays_within_a_trajectory_where_envs_are_dealt_out() -> None:
    env = make_vec_env(BitFlippingEnv, 4, env_kwargs={"n_bits": 6, "max_steps": 6}, seed=0)
    buffer = CompressedHerReplayBuffer(400, env.observation_space, env.action_space, env, "cpu", n_envs=1)
    warm_up(buffer, 1, env, RandomPlayer(env), warmup_episodes=20)
    n = buffer.size()
    assert np.all(buffer.ep_length[:n] > 0)  # all of them ended or cut off
    starts = buffer.ep_start[:n, 0]
    for slot in range(n - 1):
        if starts[slot] == starts[slot + 1]:
            for key in ("observation", "achieved_goal"):
                assert np.array_equal(buffer.next_observations[key][slot], buffer.observations[key][slot + 1])
    assert buffer.sample(64).rewards.shape == (64, 1)


# ---- what is added


def test_the_model_is_told_where_episodes_start_and_gets_its_state_back() -> None:
    model = Still()
    eval_model(2, clockworks(2), model)
    assert [bool(start[0]) for start in model.starts] == [True, False, True, False]


def test_several_buffers_get_the_same_and_each_has_its_time() -> None:
    env = clockworks(2, 3)
    buffers = [buffer_for(env), buffer_for(env, buffer_class=ReplayBuffer)]
    _, seconds = eval_model(4, env, Still(), buffer=buffers)
    assert len(seconds) == 2
    assert all(0 < s < 10 for s in seconds)
    assert buffers[0].pos == buffers[1].pos > 0
    np.testing.assert_array_equal(np.asarray(buffers[0].next_observations), buffers[1].next_observations)


def assert_same_contents(ours: Any, theirs: Any) -> None:
    assert ours.pos == theirs.pos > 0
    for name in ("observations", "next_observations", "rewards", "dones", "timeouts", "actions"):
        mine, other = (np.asarray(getattr(buffer, name)) for buffer in (ours, theirs))
        if name == "actions" and mine.dtype.kind == "f":
            np.testing.assert_allclose(mine, other, atol=1e-6, err_msg=name)  # SB3 steps with a rescaled action
        else:
            np.testing.assert_array_equal(mine, other, err_msg=name)


@pytest.mark.parametrize("times_out", [True, False])
def test_a_buffer_is_filled_as_by_dqn(times_out: bool) -> None:
    dqn = DQN(
        "MlpPolicy", clockworks(3, 4, times_out=times_out), buffer_size=100, learning_starts=0, train_freq=1, gradient_steps=0,
        exploration_initial_eps=0, exploration_final_eps=0, seed=0, replay_buffer_class=CompressedReplayBuffer,
    )  # fmt: skip
    dqn.learn(10**6, callback=StopTrainingOnMaxEpisodes(3, verbose=0))
    theirs = dqn.replay_buffer
    env = clockworks(3, 4, times_out=times_out)
    ours = buffer_for(env, 50)
    steps = play(env, dqn)
    for _ in range(theirs.pos):  # type: ignore[union-attr]
        ours.add(*next(steps))
    assert_same_contents(ours, theirs)
    ends = np.argwhere(ours.dones)
    assert len(ends) > 0
    assert all(ours.next_observations[t, i][1] in (3, 4) for t, i in ends), "the last observation, not a first"


def test_a_buffer_is_filled_as_by_td3_with_vec_normalize() -> None:
    """Original observations and rewards, scaled actions: what SB3 keeps when it trains with VecNormalize."""
    actions = spaces.Box(np.float32([-2, 0]), np.float32([2, 5]))
    td3 = TD3(
        "MlpPolicy", VecNormalize(clockworks(3, 5, action_space=actions)), buffer_size=100,
        learning_starts=0, gradient_steps=0, seed=0,
    )  # fmt: skip
    td3.learn(10**6, callback=StopTrainingOnMaxEpisodes(4, verbose=0))
    theirs = td3.replay_buffer
    env = VecNormalize(clockworks(3, 5, action_space=actions))
    ours = buffer_for(env, 50)
    steps = play(env, td3)
    for _ in range(theirs.pos):  # type: ignore[union-attr]
        ours.add(*next(steps))
    mine, other = np.asarray(ours.next_observations), theirs.next_observations  # type: ignore[union-attr]
    np.testing.assert_allclose(mine, other, atol=1e-5)
    assert set(mine[:, :, 1].ravel()) >= {1, 2, 3, 4}
    np.testing.assert_array_equal(np.asarray(ours.observations), theirs.observations)  # type: ignore[union-attr]
    np.testing.assert_array_equal(ours.rewards, theirs.rewards)  # type: ignore[union-attr]
    np.testing.assert_allclose(ours.actions, theirs.actions, atol=1e-6)  # type: ignore[union-attr]


class Keyed(gym.ObservationWrapper[Any, Any, Any]):
    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = spaces.Dict({"pair": env.observation_space, "step": spaces.Discrete(9)})

    def observation(self, obs: Any) -> Any:
        return {"pair": obs, "step": int(obs[1])}


def test_dict_observations_keep_their_terminal_observation_in_every_key() -> None:
    env = DummyVecEnv([lambda: Monitor(Keyed(Clockwork(3)))] * 2)
    buffer, model = buffer_for(env, buffer_class=CompressedDictReplayBuffer), Still()
    eval_model(4, env, model, buffer=buffer)
    steps = np.asarray(buffer.next_observations["step"])[: buffer.pos].ravel()
    assert steps.tolist() == [1, 1, 2, 2, 3, 3] * 2
    assert np.array_equal(np.asarray(buffer.next_observations["pair"])[: buffer.pos, :, 1].ravel(), steps)
    assert all(obs["step"].ndim == 1 for obs in model.seen), "what the model sees is not what the buffer reshapes"


def test_warm_up_plays_the_episodes_it_was_told() -> None:
    env = clockworks(3, 3)
    buffer = buffer_for(env)
    rewards, seconds = warm_up(buffer, 2, env, Still(), warmup_episodes=6, mean_ep_len=1)
    assert len(rewards) == 6
    assert len(seconds) == 1
    assert buffer.size() == 9


def test_warm_up_plays_as_many_episodes_as_should_fill_the_largest_buffer() -> None:
    env = clockworks(5, 5)
    buffers = [buffer_for(env, 10), buffer_for(env, 40)]
    rewards, _ = warm_up(buffers, 2, env, Still(), mean_ep_len=5)
    assert len(rewards) == 40 * 2 / 5
    assert all(buffer.full for buffer in buffers)


def test_warm_up_fills_buffers_when_told_nothing() -> None:
    env = clockworks(7)
    buffers = [buffer_for(env, 10), buffer_for(env, 21)]
    rewards, seconds = warm_up(buffers, 1, env, Still())
    assert all(buffer.full for buffer in buffers)
    assert buffers[1].pos == 0
    assert rewards == [7, 7, 7]
    assert len(seconds) == 2


def test_a_warmed_up_buffer_trains() -> None:
    env = make_vec_env("CartPole-v1", 2, seed=0)
    model = DQN("MlpPolicy", env, buffer_size=200, replay_buffer_class=CompressedReplayBuffer, learning_starts=0, seed=0)
    warm_up(model.replay_buffer, 2, make_vec_env("CartPole-v1", 2, seed=1), model, deterministic=False)
    assert model.replay_buffer is not None
    assert model.replay_buffer.full
    model.learn(40)


def test_the_summary_reads_as_two_lines() -> None:
    assert str(summarize([21.0] * 10000)) == (
        "Evaluated 10000 episodes, mean reward: 21.0 +/- 0.00\n"
        "Q1: 21 | Q2: 21 | Q3: 21 | Relative IQR: 0.00 | Min: 21 | Max: 21"
    )
    assert str(summarize([1, 2, 3, 4.5])) == (
        "Evaluated 4 episodes, mean reward: 2.6 +/- 1.29\n"
        "Q1: 1.75 | Q2: 2.5 | Q3: 3.38 | Relative IQR: 0.65 | Min: 1 | Max: 4.5"
    )


def test_the_summary_of_rewards_around_zero_or_of_none() -> None:
    assert summarize([0, 0, 0]).relative_iqr == 0
    assert summarize([-1, 0, 1]).relative_iqr == np.inf
    assert summarize([-20, -10, -10, 0]).relative_iqr == 0.5
    assert "Min: -21 | Max: -19" in str(summarize([-21, -20, -19]))
    assert "-0" not in str(summarize([-0.001, -0.002]))
    with pytest.raises(ValueError, match="no episode was finished"):
        summarize([])


def test_a_bar_is_shown_on_a_terminal_only(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    eval_model(2, clockworks(2), Still())
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    eval_model(2, clockworks(2), Still())
    assert "2/2" in capfd.readouterr().err
    eval_model(2, clockworks(2), Still(), progress_bar=False)
    assert capfd.readouterr() == ("", "")


def test_the_bar_of_a_warm_up_says_so(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    env = clockworks(3, 3)
    warm_up(buffer_for(env), 2, env, Still(), warmup_episodes=6, close_env=False)
    episodes = capfd.readouterr().err
    assert "Warming up: 100%" in episodes
    assert "6/6" in episodes
    warm_up([buffer_for(env, 10), buffer_for(env, 21)], 2, env, Still(), close_env=False)
    until_full = capfd.readouterr().err
    assert "Warming up: 100%" in until_full
    assert "42/42" in until_full
    assert "transition" in until_full
    warm_up(buffer_for(env, 10), 2, env, Still(), progress_bar=False)
    assert capfd.readouterr() == ("", "")


def test_a_buffer_that_is_full_is_left_alone() -> None:
    env = clockworks(3)
    buffer, model = buffer_for(env, 10), Still()
    warm_up(buffer, 1, env, model, close_env=False)
    played = len(model.seen)
    assert warm_up(buffer, 1, env, model) == ([], [0.0])
    assert (len(model.seen), buffer.pos) == (played, 0)


def test_a_buffer_that_cannot_say_when_it_is_full_needs_a_number_of_episodes() -> None:
    class Spy:
        added = 0

        def add(self, *step: Any) -> None:
            self.added += 1

    spy, env = Spy(), clockworks(3)
    for kwargs in ({}, {"mean_ep_len": 3}):
        with pytest.raises(ValueError, match=r"Spy is no SB3 buffer.*Give warmup_episodes"):
            warm_up(spy, 1, env, Still(), **kwargs)
    warm_up(spy, 1, env, Still(), warmup_episodes=2)
    assert spy.added == 6


def test_evaluation_works_where_tqdm_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_extra_buffers.training_utils.eval_model.installed", lambda module: False)
    assert eval_model(2, clockworks(2), Still())[0] == [2, 2]


class RandomPlayer:
    """Plays at random; enough of a model for `play`."""

    def __init__(self, env: Any) -> None:
        self.space, self.n = env.action_space, env.num_envs

    def predict(self, *args: Any, **kwargs: Any) -> tuple[np.ndarray, None]:
        return np.array([self.space.sample() for _ in range(self.n)]), None


@pytest.mark.parametrize("buffer_class", [HerReplayBuffer, CompressedHerReplayBuffer])
def test_hindsight_does_not_look_from_a_warm_up_into_the_training(buffer_class: Any) -> None:
    def make() -> Any:
        return make_vec_env(BitFlippingEnv, 1, seed=0, env_kwargs={"n_bits": 8, "max_steps": 8})

    env = make()
    model = DQN("MultiInputPolicy", env, buffer_size=20, learning_starts=10**9, replay_buffer_class=buffer_class, seed=0)
    warm_up(model.replay_buffer, 1, make(), RandomPlayer(env))
    model.learn(10)
    assert model.replay_buffer.ep_length.max() <= 8


@pytest.mark.parametrize("buffer_class", [NStepReplayBuffer, CompressedNStepReplayBuffer])
def test_n_step_returns_do_not_reach_from_a_warm_up_into_the_training(buffer_class: Any) -> None:
    env = make_vec_env("CartPole-v1", 1, seed=0)
    buffer = buffer_class(40, env.observation_space, env.action_space, device="cpu", n_steps=3, gamma=1.0)
    warm_up(buffer, 1, make_vec_env("CartPole-v1", 1, seed=1), RandomPlayer(env))
    last = np.asarray(buffer.next_observations[39, 0]).copy()
    was_done = bool(buffer.dones[39, 0])
    for _ in range(5):
        obs = np.full((1, 4), 7, np.float32)
        buffer.add(obs, obs, np.zeros((1, 1)), np.ones(1), np.zeros(1), [{}])
    batch = buffer._get_samples(np.array([39]))
    assert np.array_equal(batch.next_observations[0], last)
    assert batch.rewards.item() == 1.0
    assert batch.dones.item() == was_done


def test_a_game_begun_before_an_evaluation_does_not_count() -> None:
    env = atari.make_env("BreakoutNoFrameskip-v4", 1, seed=0)
    model = RandomPlayer(env)
    env.reset()
    for _ in range(30):
        env.step(np.array([1]))
    added: list[Any] = []

    class Spy:
        def add(self, *step: Any) -> None:
            added.append(step)

    eval_model(1, env, model, buffer=Spy(), progress_bar=False)
    frames = next(info["episode"]["l"] for step in added for info in step[-1] if "episode" in info)
    # Steps are four frames each, and a reset plays up to 30 frames of doing nothing, and some to begin.
    assert frames <= 4 * len(added) + 30 + 8 * 5


def test_an_env_is_closed_after_an_error_too() -> None:
    class Broken(RandomPlayer):
        def predict(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("broken")

    env = make_vec_env("CartPole-v1", 2, vec_env_cls=SubprocVecEnv)
    with pytest.raises(RuntimeError, match="broken"):
        eval_model(1, env, Broken(env))
    assert env.closed


@pytest.mark.parametrize("n_eps", [0, 2.5, "2", True])
def test_a_number_of_episodes_that_is_none_is_refused(n_eps: Any) -> None:
    with pytest.raises(ValueError, match="n_eps must be"):
        eval_model(n_eps, make_vec_env("CartPole-v1", 1), None)


def test_a_game_that_does_not_exist_is_refused_before_a_process_is_started() -> None:
    with pytest.raises(gym.error.UnregisteredEnv, match="PongNoFrameskipp"):
        atari.make_env("PongNoFrameskipp-v4", 2)
