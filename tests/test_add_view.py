"""SB3's `add` writes through an AddView. Nothing that a user changes, refuses or interrupts may be missed by it."""

from __future__ import annotations

import pickle
import sys
from copy import copy
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.compressed.add_view import is_known
from sb3_extra_buffers.errors import ObservationError
from tests.invariants import check_invariants
from tests.test_batch_view import same_batches

VECTOR = spaces.Box(-np.inf, np.inf, (5,), np.float32)
#: Large enough to be encoded, so that an AddView drops them.
FRAMES = spaces.Box(0, 255, (1, 40, 40), np.uint8)
SPACES = {"floats": VECTOR, "integers": spaces.Box(-9, 9, (3,), np.int16), "numbers": spaces.Discrete(7), "frames": FRAMES}
BOTH = pytest.mark.parametrize("space", [VECTOR, FRAMES], ids=["floats", "frames"])
ACTIONS = spaces.Box(-1, 1, (2,), np.float32)
N_ENVS, SLOTS = 2, 400


class Play:
    """Transitions, most of which begin where the one before ended, for both buffers."""

    def __init__(self, space: spaces.Space[Any] = VECTOR, made: Any = CompressedReplayBuffer, **options: Any) -> None:
        self.ours, self.theirs = (
            one(SLOTS * N_ENVS, space, ACTIONS, "cpu", N_ENVS, **options) for one in (made, ReplayBuffer)
        )
        self.rng, self.space = np.random.default_rng(0), space
        self.obs = self.new_obs()

    def new_obs(self) -> Any:
        if isinstance(self.space, spaces.Discrete):
            return self.rng.integers(0, 7, N_ENVS)
        low = 0 if self.space is FRAMES else -9
        return self.rng.integers(low, 9, (N_ENVS, *self.space.shape)).astype(self.space.dtype)  # type: ignore[misc]

    def step(self) -> tuple[Any, ...]:
        done = self.rng.random(N_ENVS) < 0.05
        following = self.new_obs()
        step = self.obs, following, self.rng.random((N_ENVS, 2), np.float32), self.rng.random(N_ENVS), done, [{}, {}]
        self.obs = np.where(done.reshape(-1, *(1,) * (following.ndim - 1)), self.new_obs(), following)
        return step

    def go_on(self, n: int) -> None:
        for _ in range(n):
            step = self.step()
            self.ours.add(*step)
            self.theirs.add(*step)

    def check(self) -> None:
        ours, theirs = self.ours, self.theirs
        assert (ours.pos, ours.full) == (theirs.pos, theirs.full)
        for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
            size = theirs.size()
            np.testing.assert_array_equal(np.asarray(getattr(ours, name))[:size], getattr(theirs, name)[:size], name)
        check_invariants(ours._stored.store)
        same_batches(ours, theirs)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("n", [1, 2, 3, 6, 7, 100, SLOTS - 1, SLOTS, SLOTS + 1, 3 * SLOTS + 50])
def test_vectors_are_those_of_sb3_at_every_fill(space: str, n: int) -> None:
    play = Play(SPACES[space])
    play.go_on(n)
    play.check()


def test_frames_are_written_through_one_view_lap_after_lap() -> None:
    play = Play(FRAMES)
    play.go_on(3)
    view = play.ours._add_view
    assert view is not None
    for n in (SLOTS - 4, 1, 1, 2 * SLOTS + 7):  # before, at and behind the end of the ring
        play.go_on(n)
        play.check()
        assert play.ours._add_view is view


def test_an_interrupt_at_the_end_of_the_ring_keeps_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(FRAMES)
    play.go_on(SLOTS - 1)
    step = play.step()
    with monkeypatch.context() as patch:

        def interrupted(slot: int) -> None:
            raise KeyboardInterrupt

        patch.setattr(play.ours, "_complete_add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            play.ours.add(*step)
    play.theirs.add(*step)
    play.go_on(5)
    play.check()


@BOTH
def test_nearly_all_steps_are_written_through_a_view(space: spaces.Box) -> None:
    play = Play(space)
    steps = 0
    for _ in range(2 * SLOTS):
        before = play.ours._add_view
        slot = play.ours.pos
        play.go_on(1)
        steps += before is not None and before.pos == slot + 1 - before.window.first
    assert steps > 0.8 * 2 * SLOTS
    play.check()


@BOTH
@pytest.mark.parametrize("name", ["actions", "rewards", "dones", "timeouts"])
def test_an_array_that_is_replaced_is_written_from_then_on(name: str, space: spaces.Box) -> None:
    play = Play(space)
    play.go_on(20)
    for buffer in (play.ours, play.theirs):
        setattr(buffer, name, getattr(buffer, name).copy())
    play.go_on(30)
    play.check()


@BOTH
def test_timeouts_that_are_turned_off_are_not_kept_from_then_on(space: spaces.Box) -> None:
    play = Play(space)
    play.go_on(20)
    for buffer in (play.ours, play.theirs):
        buffer.handle_timeout_termination = False
    for _ in range(3):
        step = (*play.step()[:-1], [{"TimeLimit.truncated": True}] * N_ENVS)
        play.ours.add(*step)
        play.theirs.add(*step)
    play.check()


@pytest.mark.parametrize("column", ["observations", "next_observations"])
@pytest.mark.parametrize("slot", [3, 17, 18, 19, 20, 21])
def test_what_is_written_by_hand_stays_between_steps(column: str, slot: int) -> None:
    play = Play()
    play.go_on(20)
    for buffer in (play.ours, play.theirs):
        getattr(buffer, column)[slot] = 77
        getattr(buffer, column)[slot - 1] = np.full((N_ENVS, 5), 78, np.float32)
    play.go_on(1)
    play.check()
    play.go_on(30)
    play.check()


@pytest.mark.parametrize("n", range(1, 14))
@pytest.mark.parametrize(
    ("number", "wrong"),
    [(0, np.zeros((N_ENVS, 4), np.float32)), (1, np.zeros(3, np.float32)), (2, np.zeros(3)), (3, np.zeros(5)), (5, [3])],
)
def test_a_refused_step_changes_nothing_at_any_place_of_a_window(n: int, number: int, wrong: Any) -> None:
    play = Play()
    play.go_on(n)
    step = list(play.step())
    step[number] = wrong
    kept = play.obs
    with pytest.raises((ValueError, AttributeError)) as caught:
        play.ours.add(*step)
    assert isinstance(caught.value, ObservationError) == (number < 2)
    play.check()
    play.obs = kept
    play.go_on(20)
    play.check()


def test_integers_that_do_not_fit_are_refused() -> None:
    play = Play(SPACES["integers"])
    play.go_on(5)
    obs, *others = play.step()
    with pytest.raises(ObservationError, match="int16 cannot hold"):
        play.ours.add(obs + 0.5, *others)
    play.check()


@pytest.mark.parametrize(
    ("space", "start"), [("floats", n) for n in range(0, 300, 50)] + [("frames", n) for n in range(0, 600, 50)]
)
def test_an_interrupt_at_any_instruction_leaves_whole_steps(space: str, start: int) -> None:
    for at in range(start, start + 50):
        play = Play(SPACES[space])
        play.go_on(9)
        assert play.ours._add_view is not None
        step, before = play.step(), play.ours.pos
        interrupt_add(play.ours, step, at)
        if play.ours.size() > before:
            play.theirs.add(*step)
        play.go_on(1)
        play.check()
        play.go_on(20)
        play.check()


@BOTH
def test_an_interrupt_of_a_copy_does_not_change_the_original(space: spaces.Box) -> None:
    play = Play(space)
    play.go_on(9)
    code = play.ours._add_view.add.__code__

    def trace(frame: Any, event: str, _: Any) -> Any:
        if event == "return" and frame.f_code is code:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            copy(play.ours).add(*play.step())
    finally:
        sys.settrace(None)
    play.go_on(20)
    play.check()


def interrupt_add(buffer: Any, step: tuple[Any, ...], at: int) -> None:
    """`add`, with Ctrl-C at this instruction of Python, if there are so many."""
    count = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        if event == "opcode" and count == at:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        buffer.add(*step)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)


class Counting(ReplayBuffer):
    """A user's class behind ours, with an `add` of its own."""

    added = 0

    def add(self, *args: Any) -> None:
        self.added += 1
        super().add(*args)


def test_a_users_add_gets_the_buffer_itself() -> None:
    class Both(CompressedReplayBuffer, Counting):
        pass

    play = Play(made=Both)
    play.go_on(30)
    assert play.ours.added == 30
    assert play.ours._add_view is None
    play.check()


@BOTH
@pytest.mark.parametrize("copied", [copy, lambda buffer: pickle.loads(pickle.dumps(buffer))], ids=["copy", "pickle"])
def test_copies_go_on_by_themselves(copied: Any, space: spaces.Box) -> None:
    play = Play(space)
    play.go_on(20)
    play.ours = copied(play.ours)
    play.go_on(30)
    play.check()


@BOTH
def test_a_reset_begins_anew(space: spaces.Box) -> None:
    play = Play(space)
    play.go_on(20)
    for buffer in (play.ours, play.theirs):
        buffer.reset()
    play.go_on(15)
    play.check()


def test_what_cannot_be_assigned_is_refused_as_by_sb3() -> None:
    play = Play(FRAMES)
    play.go_on(5)
    obs, following, action, reward, done, infos = play.step()
    for wrong in ((obs, following, action, reward, done, [{}] * 3), (obs, following, action, [0.0] * 3, done, infos)):
        for buffer in (play.ours, play.theirs):
            with pytest.raises((TypeError, ValueError)):
                buffer.add(*wrong)
    for buffer in (play.ours, play.theirs):  # lists, which SB3 makes arrays of
        buffer.add(obs, following, action, reward.tolist(), done.tolist(), infos)
    play.check()


ODD = {
    "rewards in a list of lists": (3, [[1.0, 0.5]]),
    "large whole rewards": (3, [2**54 + 2**30 + 1] * N_ENVS),
    "dones in a list of lists": (4, [[True, False]]),
    "masked rewards": (3, np.ma.masked_array([1.0, 2.0], [True, False])),
    "a leading axis": (0, np.ones((1, N_ENVS, 5), np.float32)),
    "a list of observations": (1, [[1.0] * 5] * N_ENVS),
}


@pytest.mark.parametrize("name", ODD)
def test_what_sb3_takes_is_taken_at_any_place_of_a_window(name: str) -> None:
    number, value = ODD[name]
    play = Play()
    for _ in range(30):
        step = list(play.step())
        step[number] = value
        for buffer in (play.ours, play.theirs):
            buffer.add(*step)
        play.check()


@pytest.mark.parametrize("wrong", [None, np.full((N_ENVS, 5), 1.0, object)], ids=["None", "objects"])
def test_observations_that_are_no_numbers_are_refused_at_any_place_of_a_window(wrong: Any) -> None:
    play = Play()
    for _ in range(30):
        play.go_on(1)
        for number in range(2):
            step = list(play.step())
            step[number] = wrong
            with pytest.raises(ObservationError, match="it must be an array"):
                play.ours.add(*step)
    play.check()


def test_other_codes_of_sb3_get_no_view(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(self: Any, *args: Any) -> None:
        self.something_new += 1

    play = Play()
    monkeypatch.setattr(ReplayBuffer, "add", add)
    assert not is_known(play.theirs.add)
    monkeypatch.undo()
    assert is_known(play.theirs.add)
