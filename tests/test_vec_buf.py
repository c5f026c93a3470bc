"""DummyVecRolloutBuffer: the model trains as with the first buffer alone, and the others do the same work."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.envs import SimpleMultiObsEnv
from stable_baselines3.common.vec_env import VecFrameStack

from sb3_extra_buffers.compressed import CompressedDictRolloutBuffer, CompressedRolloutBuffer
from sb3_extra_buffers.vec_buf import DummyVecRolloutBuffer
from tests.oracle import IMAGE, add_to_rollout, assert_same, assert_same_minibatches
from tests.transitions import play

ACTIONS = spaces.Discrete(4)
ARGS = (8, IMAGE, ACTIONS)
KWARGS: dict[str, Any] = {"device": "cpu", "gae_lambda": 0.9, "gamma": 0.95, "n_envs": 2}
GZIP = partial(CompressedRolloutBuffer, compression_method="gzip", frame_stack=4)


def fill(buffers: list[Any], n: int = 8) -> None:
    for step in play(IMAGE, ACTIONS, 2, n):
        add_to_rollout(buffers, step)
    for buffer in buffers:
        buffer.compute_returns_and_advantage(th.tensor([0.5, -0.5]), np.array([False, True]))


def pong() -> Any:
    gymnasium.register_envs(pytest.importorskip("ale_py"))
    return VecFrameStack(make_atari_env("PongNoFrameskip-v4", 2, seed=0), 4)


def train(algorithm: Any, env: Any, policy: str, **kwargs: Any) -> Any:
    sizes = {"batch_size": 16, "n_epochs": 2} if algorithm is PPO else {}
    model = algorithm(policy, env, n_steps=16, seed=3, gamma=0.9, gae_lambda=0.8, device="cpu", **sizes, **kwargs)
    return model.learn(96)


def assert_same_weights(one: Any, other: Any) -> None:
    weights = one.policy.state_dict(), other.policy.state_dict()
    assert weights[0].keys() == weights[1].keys()
    for name in weights[0]:
        assert th.equal(weights[0][name], weights[1][name]), name


@pytest.mark.parametrize("use_threads", [False, True])
@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_training_ends_in_the_weights_of_plain_sb3(algorithm: Any, use_threads: bool) -> None:
    buffers = [CompressedRolloutBuffer, RolloutBuffer, partial(CompressedRolloutBuffer, compression_method="gzip")]
    ours = train(
        algorithm, pong(), "CnnPolicy", rollout_buffer_class=DummyVecRolloutBuffer,
        rollout_buffer_kwargs={"buffers": buffers, "use_threads": use_threads},
    )  # fmt: skip
    assert_same_weights(ours, train(algorithm, pong(), "CnnPolicy"))
    first, *others = ours.rollout_buffer.buffers
    for other in others:
        assert_same_minibatches(other, first, 16)
    ours.rollout_buffer.close()


def test_training_with_dict_observations_ends_in_the_weights_of_plain_sb3() -> None:
    def env() -> Any:
        np.random.seed(0)  # it draws its pictures from there
        return make_vec_env(partial(SimpleMultiObsEnv, random_start=False), 2, seed=0)

    ours = train(
        PPO, env(), "MultiInputPolicy", rollout_buffer_class=DummyVecRolloutBuffer,
        rollout_buffer_kwargs={"buffers": [DictRolloutBuffer, CompressedDictRolloutBuffer]},
    )  # fmt: skip
    assert_same_weights(ours, train(PPO, env(), "MultiInputPolicy"))


@pytest.mark.parametrize("use_threads", [False, True])
@pytest.mark.parametrize("batch_size", [None, 5])
def test_minibatches_are_the_first_buffers_and_random_numbers_are_drawn_once(
    batch_size: int | None, use_threads: bool
) -> None:
    alone = RolloutBuffer(*ARGS, **KWARGS)
    with DummyVecRolloutBuffer(*ARGS, **KWARGS, buffers=[RolloutBuffer, GZIP, GZIP], use_threads=use_threads) as ours:
        for _ in range(2):
            fill([ours, alone])
            assert ours.full
            assert ours.pos == 8
            assert ours.size() == 8
            assert np.array_equal(ours.advantages, alone.advantages)
            assert np.array_equal(ours.values, alone.values)
            assert_same_minibatches(ours, alone, batch_size)
            np.random.seed(1)
            list(ours.get(batch_size))
            drawn = np.random.rand()
            np.random.seed(1)
            list(alone.get(batch_size))
            assert np.random.rand() == drawn
            assert_same(ours._get_samples(np.array([3, 1])), alone._get_samples(np.array([3, 1])))
            for buffer in (ours, alone):
                buffer.reset()
            assert not ours.full
            assert ours.pos == 0
            assert [buffer.pos for buffer in ours.buffers] == [0, 0, 0]


def test_arguments_have_the_order_of_0_5() -> None:
    plain = RolloutBuffer(*ARGS, "cpu", n_envs=3)
    ours = DummyVecRolloutBuffer(*ARGS, "cpu", 3, False, [plain])
    assert (ours.n_envs, ours.use_threads, ours.buffers) == (3, False, [plain])
    with pytest.raises(ValueError, match="at least one rollout buffer, got none"):
        DummyVecRolloutBuffer(*ARGS, "cpu", 3)


def test_all_buffers_make_the_same_minibatches_and_draw_nothing_for_the_training() -> None:
    class Spy(RolloutBuffer):
        """Remembers which transitions it was asked for, and draws a number too many."""

        def _get_samples(self, batch_inds: Any, env: Any = None) -> Any:
            asked.append(batch_inds)
            np.random.rand()
            return super()._get_samples(batch_inds, env)

    asked: list[Any] = []
    alone = RolloutBuffer(*ARGS, **KWARGS)
    ours = DummyVecRolloutBuffer(*ARGS, **KWARGS, buffers=[RolloutBuffer, Spy])
    fill([ours, alone])
    np.random.seed(5)
    list(alone.get(5))
    drawn = np.random.rand()
    np.random.seed(5)
    expected = np.random.permutation(16)
    np.random.seed(5)
    list(ours.get(5))
    assert np.random.rand() == drawn
    assert np.array_equal(np.concatenate(asked), expected)


def test_buffers_that_exist_already_are_taken_as_they_are() -> None:
    buffers = [RolloutBuffer(*ARGS, **KWARGS), GZIP(*ARGS, **KWARGS)]
    ours = DummyVecRolloutBuffer(*ARGS, **KWARGS, buffers=buffers)
    fill([ours])
    assert ours.buffers == buffers
    assert all(buffer.full for buffer in buffers)
    assert ours.gae_lambda == 0.9
    assert ours.gamma == 0.95
    assert ours.n_envs == 2


@pytest.mark.parametrize(
    ("args", "changed", "message"),
    [
        (ARGS, {"gae_lambda": 1.0}, "RolloutBuffer has gae_lambda=1.0, but the model needs gae_lambda=0.9"),
        (ARGS, {"gamma": 0.5}, "gamma=0.5"),
        (ARGS, {"n_envs": 3}, "n_envs=3"),
        ((9, IMAGE, ACTIONS), {}, "buffer_size=9"),
        ((8, IMAGE, spaces.Discrete(5)), {}, "action_space="),
    ],
)
def test_a_buffer_that_does_not_fit_the_model_is_refused(args: Any, changed: dict[str, Any], message: str) -> None:
    buffer = RolloutBuffer(*args, **{**KWARGS, **changed})
    with pytest.raises(ValueError, match=message):
        DummyVecRolloutBuffer(*ARGS, **KWARGS, buffers=[RolloutBuffer, buffer])


def test_what_is_no_buffer_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one rollout buffer"):
        DummyVecRolloutBuffer(*ARGS, **KWARGS, buffers=[])
    for no_list in (RolloutBuffer, RolloutBuffer(*ARGS, **KWARGS), (one for one in [RolloutBuffer]), {RolloutBuffer}, None):
        with pytest.raises(TypeError, match=r"buffers must be a list of rollout buffers.*got "):
            DummyVecRolloutBuffer(*ARGS, **KWARGS, buffers=no_list)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"must hold rollout buffers.*got 3"):
        DummyVecRolloutBuffer(*ARGS, **KWARGS, buffers=[3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="must hold rollout buffers"):
        DummyVecRolloutBuffer(*ARGS, **KWARGS, buffers=[lambda *args, **kwargs: None])  # type: ignore[list-item, return-value]


def test_a_buffer_that_stands_there_twice_is_refused() -> None:
    buffer = RolloutBuffer(*ARGS, **KWARGS)
    for buffers in ([buffer, GZIP, buffer], (buffer, lambda *args, **kwargs: buffer)):
        with pytest.raises(ValueError, match="must hold different buffers, got a RolloutBuffer twice"):
            DummyVecRolloutBuffer(*ARGS, **KWARGS, buffers=buffers)  # type: ignore[arg-type]


@pytest.mark.parametrize("use_threads", [False, True])
@pytest.mark.parametrize("how", [copy.deepcopy, lambda ours: pickle.loads(pickle.dumps(ours))], ids=["copy", "pickle"])
def test_a_copy_has_the_same_contents_and_its_own_pool(how: Any, use_threads: bool) -> None:
    with DummyVecRolloutBuffer(*ARGS, **KWARGS, buffers=[RolloutBuffer, GZIP], use_threads=use_threads) as ours:
        fill([ours])
        other = how(ours)
        assert_same_minibatches(other, ours, 5)
        ours.reset()
        assert other.full
    with other:
        other.reset()  # in its own threads: those of the original have ended
        assert bool(pool_threads()) == use_threads
        fill([other])
    assert pool_threads() == []


class Failing(RolloutBuffer):
    """Fails in one method, if it is armed."""

    where = ""

    def add(self, *args: Any, **kwargs: Any) -> None:
        self._fail("add")
        super().add(*args, **kwargs)

    def reset(self) -> None:
        self._fail("reset")
        super().reset()

    def compute_returns_and_advantage(self, *args: Any, **kwargs: Any) -> None:
        self._fail("compute")
        super().compute_returns_and_advantage(*args, **kwargs)

    def _get_samples(self, *args: Any, **kwargs: Any) -> Any:
        self._fail("get")
        return super()._get_samples(*args, **kwargs)

    def _fail(self, name: str) -> None:
        if self.where == name:
            raise ArithmeticError(f"{name} failed")


@pytest.mark.parametrize("use_threads", [False, True])
@pytest.mark.parametrize("where", ["add", "reset", "compute", "get"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_an_error_of_any_buffer_surfaces(where: str, which: int, use_threads: bool) -> None:
    def lap() -> None:
        ours.reset()
        fill([ours])
        list(ours.get(4))

    with DummyVecRolloutBuffer(*ARGS, **KWARGS, buffers=[Failing] * 3, use_threads=use_threads) as ours:
        lap()
        ours.buffers[which].where = where  # type: ignore[attr-defined]
        with pytest.raises(ArithmeticError, match=f"{where} failed"):
            lap()


def test_a_buffer_with_fewer_minibatches_is_an_error() -> None:
    class Short(RolloutBuffer):
        def get(self, batch_size: int | None = None) -> Any:
            yield next(super().get(batch_size))

    ours = DummyVecRolloutBuffer(*ARGS, **KWARGS, buffers=[RolloutBuffer, Short])
    fill([ours])
    with pytest.raises(RuntimeError, match="Short gave another number of minibatches"):
        list(ours.get(4))


def pool_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("rollout-buffer")]


@pytest.mark.parametrize("how", ["close", "with", "garbage"])
def test_the_pool_is_closed(how: str) -> None:
    assert pool_threads() == []
    ours = DummyVecRolloutBuffer(*ARGS, **KWARGS, buffers=[RolloutBuffer, GZIP], use_threads=True)
    fill([ours])
    assert pool_threads()
    if how == "garbage":
        del ours
        gc.collect()
    elif how == "with":
        with ours:
            pass
    else:
        ours.close()
        ours.close()
        ours.reset()  # stays usable
        fill([ours])
    assert pool_threads() == []


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'obs'"):
        _ = DummyVecRolloutBuffer(*ARGS, **KWARGS, buffers=[RolloutBuffer]).obs
