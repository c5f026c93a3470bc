"""Episodes into buffers of every class: the oracle is SB3's own buffer, filled by its own `add`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer, RolloutBuffer
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers import load_buffer
from sb3_extra_buffers.compressed import (
    CompressedDictReplayBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
)
from sb3_extra_buffers.datasets import from_episodes
from sb3_extra_buffers.errors import ObservationError
from sb3_extra_buffers.gpu_buffers import GpuReplayBuffer
from sb3_extra_buffers.native.binding import core
from sb3_extra_buffers.prioritized import CompressedPrioritizedReplayBuffer
from tests.episodes import Episode, add_all, n_steps, part, play_episodes
from tests.oracle import DICT_SPACE, IMAGE, SPACES, assert_same_samples

ACTIONS = spaces.Discrete(5)


def convert(episodes: Any, space: spaces.Space[Any], actions: spaces.Space[Any] = ACTIONS, **kwargs: Any) -> Any:
    kwargs["buffer_kwargs"] = {"device": "cpu", **kwargs.get("buffer_kwargs", {})}
    return from_episodes(episodes, observation_space=space, action_space=actions, progress_bar=False, **kwargs)


def oracle(space: spaces.Space[Any], size: int, actions: spaces.Space[Any] = ACTIONS, **kwargs: Any) -> Any:
    made_class = DictReplayBuffer if isinstance(space, spaces.Dict) else ReplayBuffer
    return made_class(size, space, actions, device="cpu", **kwargs)


def assert_same(ours: Any, theirs: Any) -> None:
    assert (ours.pos, ours.full, ours.size()) == (theirs.pos, theirs.full, theirs.size())
    for seed in range(3):
        assert_same_samples(ours, theirs, seed=seed)
    for name in ("actions", "rewards", "dones", "timeouts"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name


# ---- any space, any class


@pytest.mark.parametrize("name", [*SPACES, "dict"])
def test_a_buffer_holds_what_sb3_would_have_added(name: str) -> None:
    space = {**SPACES, "dict": DICT_SPACE}[name]
    episodes = play_episodes(space, ACTIONS)
    theirs = add_all(oracle(space, n_steps(episodes)), episodes)
    ours = convert([episode.as_dict() for episode in episodes], space)
    assert type(ours) is (CompressedDictReplayBuffer if name == "dict" else CompressedReplayBuffer)
    assert_same(ours, theirs)


@pytest.mark.parametrize("actions", [spaces.MultiDiscrete([3, 4]), spaces.MultiBinary(3), spaces.Box(-1, 1, (2, 3))], ids=repr)
def test_actions_of_any_space_are_kept(actions: spaces.Space[Any]) -> None:
    episodes = play_episodes(IMAGE, actions)
    theirs = add_all(oracle(IMAGE, n_steps(episodes), actions), episodes)
    assert_same(convert([one.as_dict() for one in episodes], IMAGE, actions), theirs)


class Own(CompressedReplayBuffer):
    """A user's class with an `add` of its own."""

    n_adds = 0

    def add(self, *args: Any, **kwargs: Any) -> None:
        self.n_adds += 1
        super().add(*args, **kwargs)


@pytest.mark.parametrize(
    "made_class",
    [ReplayBuffer, CompressedReplayBuffer, GpuReplayBuffer, Own, NStepReplayBuffer, CompressedNStepReplayBuffer],
)
def test_any_class_can_be_filled(made_class: Any) -> None:
    episodes = play_episodes(IMAGE, ACTIONS)
    ours = convert([episode.as_dict() for episode in episodes], IMAGE, into=made_class)
    is_n_step = issubclass(made_class, NStepReplayBuffer)
    theirs = (NStepReplayBuffer if is_n_step else ReplayBuffer)(n_steps(episodes), IMAGE, ACTIONS, device="cpu")
    assert_same(ours, add_all(theirs, episodes))
    assert getattr(ours, "n_adds", n_steps(episodes)) == n_steps(episodes)


def test_a_prioritized_buffer_gives_all_steps_a_priority() -> None:
    episodes = play_episodes(IMAGE, ACTIONS)
    ours = convert([episode.as_dict() for episode in episodes], IMAGE, into=CompressedPrioritizedReplayBuffer)
    assert (ours.priorities == 1).all()
    assert set(ours.sample(200).indices.tolist()) == set(range(n_steps(episodes)))


def test_hindsight_replay_knows_the_episodes() -> None:
    env = DummyVecEnv([lambda: BitFlippingEnv(n_bits=4, continuous=False)])
    space: Any = env.observation_space
    episodes = play_episodes(space, env.action_space, n=20)
    theirs = add_all(HerReplayBuffer(n_steps(episodes), space, env.action_space, env, device="cpu"), episodes)
    ours = convert(
        [one.as_dict() for one in episodes],
        space,
        env.action_space,
        into=CompressedHerReplayBuffer,
        buffer_kwargs={"env": env},
    )
    assert_same(ours, theirs)
    assert np.array_equal(ours.ep_length, theirs.ep_length)


@pytest.mark.parametrize("method", ["zstd", "none", "delta", "rle", "gzip"])
def test_every_codec_takes_many_steps(method: str) -> None:
    pytest.importorskip("zstandard")
    episodes = play_episodes(IMAGE, ACTIONS, n=30)
    ours = convert([one.as_dict() for one in episodes], IMAGE, buffer_kwargs={"compression_method": method})
    assert_same(ours, add_all(oracle(IMAGE, n_steps(episodes)), episodes))


def test_a_buffer_in_files_takes_many_steps(tmp_path: Path) -> None:
    episodes = play_episodes(IMAGE, ACTIONS, n=30)
    kwargs = {"directory": tmp_path / "blocks", "keep": True}
    ours, theirs = convert([one.as_dict() for one in episodes], IMAGE, buffer_kwargs=kwargs), oracle(IMAGE, n_steps(episodes))
    assert_same(ours, add_all(theirs, episodes))
    ours.close()
    assert_same(load_buffer(tmp_path / "blocks", device="cpu"), theirs)


def test_another_dtype_is_stored_as_add_does() -> None:
    space, kwargs = spaces.Box(-9, 9, (300,), np.float32), {"dtypes": {"elem_type": np.float64}}
    episodes = play_episodes(space, ACTIONS)
    ours = convert([one.as_dict() for one in episodes], space, buffer_kwargs=kwargs)
    assert_same(ours, add_all(oracle(space, n_steps(episodes)), episodes))


# ---- sizes


@pytest.mark.parametrize("size", [1, 7, 40, 200])
@pytest.mark.parametrize("made_class", [ReplayBuffer, CompressedReplayBuffer])
def test_the_newest_steps_that_fit_are_kept(size: int, made_class: Any) -> None:
    episodes = play_episodes(IMAGE, ACTIONS)
    total, theirs = n_steps(episodes), add_all(oracle(IMAGE, size), episodes)
    ours = convert([one.as_dict() for one in episodes], IMAGE, buffer_size=size, into=made_class)
    assert ours.size() == min(size, total)
    newest = (np.arange(ours.size()) + theirs.pos * theirs.full) % size
    assert np.array_equal(ours.rewards[: ours.size()], theirs.rewards[newest])
    assert np.array_equal(
        ours.next_observations[np.arange(ours.size()), np.zeros(ours.size(), int)], theirs.next_observations[newest, 0]
    )


def test_a_stream_of_unknown_length_goes_round() -> None:
    episodes = play_episodes(IMAGE, ACTIONS)
    ours = convert((one.as_dict() for one in episodes), IMAGE, buffer_size=30)
    assert_same(ours, add_all(oracle(IMAGE, 30), episodes))
    with pytest.raises(ValueError, match="is not known: give buffer_size"):
        convert(iter([]), IMAGE)


def test_steps_are_added_to_a_buffer_that_has_some(tmp_path: Path) -> None:
    episodes = play_episodes(IMAGE, ACTIONS, n=12)
    for made in (CompressedReplayBuffer(200, IMAGE, ACTIONS, "cpu"), ReplayBuffer(200, IMAGE, ACTIONS, "cpu")):
        add_all(made, episodes[:3])
        if isinstance(made, CompressedReplayBuffer):
            made.checkpoint(tmp_path)
        got = from_episodes([one.as_dict() for one in episodes[3:]], into=made, progress_bar=False)
        assert got is made
        assert_same(made, add_all(oracle(IMAGE, 200), episodes))
        if isinstance(made, CompressedReplayBuffer):  # what is new is known to be new
            made.checkpoint(tmp_path)
            assert_same(load_buffer(tmp_path, device="cpu"), made)


def test_episodes_are_read_one_at_a_time() -> None:
    seen: list[int] = []

    def stream() -> Iterator[dict[str, Any]]:
        for i, one in enumerate(play_episodes(IMAGE, ACTIONS, n=20)):
            seen.append(i)
            yield one.as_dict()
            if i == 5:
                raise RuntimeError("a broken source")

    made = CompressedReplayBuffer(400, IMAGE, ACTIONS, "cpu")
    with pytest.raises(RuntimeError, match="a broken source"):
        from_episodes(stream(), into=made, progress_bar=False)
    assert seen == list(range(6))
    assert_same(made, add_all(oracle(IMAGE, 400), play_episodes(IMAGE, ACTIONS, n=20)[:6]))


# ---- what the data lack, and what they have too much


def said(caplog: pytest.LogCaptureFixture) -> str:
    [record] = [one for one in caplog.records if one.name == "sb3_extra_buffers.datasets"]
    return record.getMessage()


def test_truncations_are_timeouts_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    episodes = play_episodes(IMAGE, ACTIONS)
    ours = convert([one.as_dict() for one in episodes], IMAGE)
    assert "Truncations (3) are kept as timeouts" in said(caplog)
    assert ours.timeouts.sum() == 3
    assert ours.dones.sum() == 9
    caplog.clear()
    ours = convert([one.as_dict() for one in episodes], IMAGE, buffer_kwargs={"handle_timeout_termination": False})
    assert "Truncations (3) are treated as terminations" in said(caplog)
    assert_same(ours, add_all(oracle(IMAGE, n_steps(episodes), handle_timeout_termination=False), episodes))


def test_without_next_observations_terminal_steps_are_kept_and_others_left_out(caplog: pytest.LogCaptureFixture) -> None:
    episodes = play_episodes(DICT_SPACE, ACTIONS, n=12)
    given = [one._replace(observations=part(one.observations, slice(0, -1))).as_dict() for one in episodes]
    expected = []
    for one in episodes:
        n = len(one.rewards)
        if one.terminations[-1]:  # the last observation stands for what came next
            seen = {key: np.concatenate((each[:-1], each[-2:-1])) for key, each in one.observations.items()}
            expected.append(one._replace(observations=seen))
        elif n > 1:
            ends = np.arange(n - 1) == n - 2
            expected.append(
                Episode(part(one.observations, slice(0, -1)), one.actions[:-1], one.rewards[:-1], ends & False, ends)
            )
    ours = convert(given, DICT_SPACE)
    assert "Terminal steps without a next observation (8) repeat their own" in said(caplog)
    assert "Other steps without a next observation (4) are left out" in said(caplog)
    theirs = add_all(oracle(DICT_SPACE, n_steps(episodes)), expected)
    assert_same(ours, theirs)


def test_next_observations_may_be_given(caplog: pytest.LogCaptureFixture) -> None:
    episodes = play_episodes(IMAGE, ACTIONS)
    given = []
    for one in episodes:
        arrays = part(one.observations, slice(0, -1)), part(one.observations, slice(1, None))
        given.append({**one.as_dict(), "observations": arrays[0], "next_observations": arrays[1]})
    assert_same(convert(given, IMAGE), add_all(oracle(IMAGE, n_steps(episodes)), episodes))
    assert "left out" not in said(caplog)


def test_an_episode_without_an_end_is_cut_off_by_a_timeout(caplog: pytest.LogCaptureFixture) -> None:
    episodes = play_episodes(IMAGE, ACTIONS)
    given = [{name: one.as_dict()[name] for name in ("observations", "actions", "rewards")} for one in episodes]
    expected = [
        one._replace(terminations=one.terminations & False, truncations=one.terminations | one.truncations) for one in episodes
    ]
    assert_same(convert(given, IMAGE), add_all(oracle(IMAGE, n_steps(episodes)), expected))
    assert "Episodes that the data do not hold to their end (9) end with a timeout" in said(caplog)
    # Without timeouts, a step is learned from as it is: it neither ends an episode nor leads to the next one.
    caplog.clear()
    ours = convert(given, IMAGE, buffer_kwargs={"handle_timeout_termination": False})
    assert not ours.dones.any()
    assert "(9) are not marked" in said(caplog)
    with pytest.raises(ValueError, match="CompressedNStepReplayBuffer reads consecutive steps"):
        convert(given, IMAGE, into=CompressedNStepReplayBuffer, buffer_kwargs={"handle_timeout_termination": False})


@pytest.mark.parametrize("has_last", [True, False])
def test_an_episode_may_go_on_behind_a_termination(has_last: bool) -> None:
    episodes = play_episodes(IMAGE, ACTIONS)
    given = [
        one._replace(terminations=np.arange(len(one.rewards)) % 3 == 2, truncations=one.truncations & False)
        for one in episodes
    ]
    expected, cut = [], []
    for one in given:
        n, ends = len(one.rewards), bool(one.terminations[-1])
        last = np.arange(n) == n - 1
        if has_last or ends:
            seen = one.observations if has_last else np.concatenate((one.observations[:-1], one.observations[-2:-1]))
            expected.append(one._replace(observations=seen, truncations=last & (not ends)))
        elif n > 1:
            kept = np.arange(n - 1) == n - 2
            expected.append(
                Episode(
                    one.observations[:-1],
                    one.actions[:-1],
                    one.rewards[:-1],
                    one.terminations[:-1],
                    kept & ~one.terminations[:-1],
                )
            )
        cut.append(part(one.observations, slice(0, n + has_last)))
    ours = convert([{**one.as_dict(), "observations": seen} for one, seen in zip(given, cut, strict=True)], IMAGE)
    assert_same(ours, add_all(oracle(IMAGE, n_steps(episodes)), expected))


def test_fields_that_have_no_place_are_named(caplog: pytest.LogCaptureFixture) -> None:
    episodes = play_episodes(DICT_SPACE, ACTIONS)
    more = {"infos": {"lives": 3}, "mood": [1], "id": 7, "seed": None}
    given = [
        {**one.as_dict(), **more, "observations": {**one.observations, "extra": np.zeros(len(one.rewards) + 1)}}
        for one in episodes
    ]
    assert_same(convert(given, DICT_SPACE), add_all(oracle(DICT_SPACE, n_steps(episodes)), episodes))
    assert "Not used: infos, mood, observations/extra." in said(caplog)


def test_data_that_need_nothing_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    episode = play_episodes(IMAGE, ACTIONS, n=2)[1]
    with caplog.at_level(logging.INFO):
        convert([SimpleNamespace(**{**episode.as_dict(), "terminations": True, "truncations": None})], IMAGE)
    [record] = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage() == f"Episodes: {len(episode.rewards)} steps, 1 terminations."


# ---- as SB3's algorithms have it


def test_actions_are_scaled_as_sb3_stores_them() -> None:
    actions = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))
    episodes = play_episodes(IMAGE, actions)
    given = np.concatenate([one.actions for one in episodes])
    ours = convert([one.as_dict() for one in episodes], IMAGE, actions)
    assert np.allclose(ours.actions[:, 0], 2 * (given - actions.low) / (actions.high - actions.low) - 1)
    assert np.abs(ours.actions).max() <= 1
    raw = convert([one.as_dict() for one in episodes], IMAGE, actions, scale_actions=False)
    assert np.array_equal(raw.actions[:, 0], given)


def test_actions_without_bounds_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    actions = spaces.Box(-np.inf, np.inf, (2,))
    episodes = play_episodes(IMAGE, actions)
    ours = convert([one.as_dict() for one in episodes], IMAGE, actions)
    assert np.array_equal(ours.actions[:, 0], np.concatenate([one.actions for one in episodes]))
    assert "has no bounds to scale them by" in said(caplog)


def test_images_are_turned_to_the_space_that_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    last, first = spaces.Box(0, 255, (40, 36, 3), np.uint8), spaces.Box(0, 255, (3, 40, 36), np.uint8)
    episodes = play_episodes(last, ACTIONS)
    ours = convert([one.as_dict() for one in episodes], first)
    turned = [one._replace(observations=np.moveaxis(one.observations, -1, 1)) for one in episodes]
    assert_same(ours, add_all(oracle(first, n_steps(episodes)), turned))
    assert "The channels of images are moved to the front" in said(caplog)
    as_they_are = convert([one.as_dict() for one in episodes], last)
    assert_same(as_they_are, add_all(oracle(last, n_steps(episodes)), episodes))


# ---- what is refused


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rewards": np.zeros(3)}, ValueError, "Episode 0 has 3 rewards, .* and 3 or 4 observations"),
        ({"actions": np.zeros(99, int)}, ValueError, "99 actions"),
        ({"observations": np.zeros((2, 4, 12, 12), np.uint8)}, ValueError, "and 2 observations"),
        ({"next_observations": np.zeros((2, 4, 12, 12), np.uint8)}, ValueError, "2 next_observations. There must be"),
        ({"terminations": np.ones(5, bool)}, ValueError, r"terminations of episode 0 must be .* got bool of shape \(5,\)"),
        ({"truncations": 0.5}, ValueError, r"truncations of episode 0 must be .* got float64 of shape \(\)"),
        ({"truncations": "early"}, ValueError, "Episode 0 is truncated before its last step. Split it there"),
        ({"actions": "too large"}, ValueError, r"actions from 5 to 5, but the action space is Discrete\(5\)"),
        ({"actions": "two of them"}, ValueError, r"Actions of shape .* do not fit .* Discrete\(5\)"),
        ({"observations": "small"}, ObservationError, r"Got observation of shape .* need \(\d+, 4, 12, 12\)"),
        ({"observations": "float"}, ObservationError, "which uint8 cannot hold"),
        ({"observations": "dict"}, ObservationError, r"lack \['observation'\]"),
    ],
    ids=str,
)  # fmt: skip
def test_an_episode_that_cannot_be_is_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    episode = play_episodes(IMAGE, ACTIONS, n=1, seed=4)[0].as_dict()
    n = len(episode["rewards"])
    assert n > 5
    made: dict[str, Any] = {
        "too large": np.full(n, 5), "two of them": np.zeros((n, 2), int), "small": np.zeros((n + 1, 4, 12, 11), np.uint8),
        "float": np.full((n + 1, 4, 12, 12), 0.5), "dict": {"camera": episode["observations"]}, "early": np.arange(n) == 2,
    }  # fmt: skip
    given = {name: made.get(value, value) if isinstance(value, str) else value for name, value in change.items()}
    buffer = CompressedReplayBuffer(50, IMAGE, ACTIONS, "cpu")
    with pytest.raises(error, match=message):
        from_episodes([{**episode, **given}], into=buffer, progress_bar=False)
    assert buffer.size() == 0


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"into": RolloutBuffer}, TypeError, "must be a replay buffer or a class of replay buffers"),
        ({"into": CompressedRolloutBuffer}, TypeError, "must be a replay buffer or a class of replay buffers"),
        ({"into": "CompressedReplayBuffer"}, TypeError, "must be a replay buffer or a class of replay buffers"),
        ({"buffer_size": 0}, ValueError, "buffer_size must be a positive number, got 0"),
        ({"buffer_size": 2.5}, ValueError, "buffer_size must be a positive number, got 2.5"),
        ({"buffer_kwargs": {"n_envs": 4}}, ValueError, "the steps of one env, got n_envs=4. OfflineMix mixes"),
        ({"buffer_kwargs": {"compression": "zstd"}}, TypeError, "Did you mean 'compression_method'"),
        (
            {"into": ReplayBuffer, "buffer_kwargs": {"optimize_memory_usage": True, "handle_timeout_termination": False}},
            ValueError,
            "SB3's optimize_memory_usage uses",
        ),
        ({"observation_space": None}, ValueError, "give observation_space and action_space"),
    ],
    ids=str,
)
def test_a_buffer_that_cannot_be_is_refused(kwargs: dict[str, Any], error: type[Exception], message: str) -> None:
    episodes = [one.as_dict() for one in play_episodes(IMAGE, ACTIONS)]
    arguments = {"observation_space": IMAGE, "action_space": ACTIONS, "progress_bar": False, **kwargs}
    with pytest.raises(error, match=message):
        from_episodes(episodes, **arguments)


def test_a_buffer_that_was_given_must_fit() -> None:
    episodes = [one.as_dict() for one in play_episodes(IMAGE, ACTIONS)]
    with pytest.raises(ValueError, match="got n_envs=2"):
        from_episodes(episodes, into=ReplayBuffer(50, IMAGE, ACTIONS, n_envs=2))
    with pytest.raises(ValueError, match="optimize_memory_usage"):
        from_episodes(
            episodes, into=ReplayBuffer(50, IMAGE, ACTIONS, optimize_memory_usage=True, handle_timeout_termination=False)
        )
    with pytest.raises(ValueError, match="buffer_size are for a new buffer, but into is already a ReplayBuffer"):
        from_episodes(episodes, into=ReplayBuffer(50, IMAGE, ACTIONS), buffer_size=5)
    with pytest.raises(ValueError, match="was made for the action_space"):
        from_episodes(episodes, into=ReplayBuffer(50, IMAGE, ACTIONS), action_space=spaces.Discrete(6))
    with pytest.raises(ValueError, match="The data have no steps"):
        convert([], IMAGE)
    with pytest.raises(ValueError, match="has no 'rewards': it must be a dict or an object with observations"):
        convert([{"observations": 1}], IMAGE)


def test_refused_memory_leaves_the_steps_that_were_there() -> None:
    space = spaces.Box(0, 255, (3, 90, 90), np.uint8)
    episodes = play_episodes(space, ACTIONS, n=40)
    lengths, n_refused = np.cumsum([0, *(len(one.rewards) for one in episodes)]), 0
    for allowed in range(100):
        buffer = convert([one.as_dict() for one in episodes[:20]], space, buffer_size=400)
        core().sb3x_fail_allocation(allowed, 1)
        try:
            from_episodes([one.as_dict() for one in episodes[20:]], into=buffer, progress_bar=False)
        except MemoryError:
            n_refused += 1
        finally:
            core().sb3x_fail_allocation(-1, 0)
        n_whole = lengths.tolist().index(buffer.size())  # an episode is written whole or not at all
        assert n_whole >= 20
        assert_same(buffer, add_all(oracle(space, 400), episodes[:n_whole]))
        if n_whole == 40:
            break
    assert n_refused > 1
    assert n_whole == 40
