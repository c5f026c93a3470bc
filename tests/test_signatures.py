"""Constructors: SB3's own arguments first, then this library's keywords, all of them shown; wrong ones name the right ones."""

from __future__ import annotations

import copy
import inspect
import pickle
import pydoc
import re
import warnings
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

import numpy as np
import pytest
from gymnasium import spaces
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer
from sb3_contrib.common.recurrent.buffers import RecurrentDictRolloutBuffer, RecurrentRolloutBuffer
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.buffers import (
    DictReplayBuffer,
    DictRolloutBuffer,
    NStepReplayBuffer,
    ReplayBuffer,
    RolloutBuffer,
)
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers import compressed, contrib, gpu_buffers
from sb3_extra_buffers.compressed import (
    CompressedDictReplayBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
)
from sb3_extra_buffers.compressed.mixin import CompressedObservations
from sb3_extra_buffers.compressed.options import CompressionOptions, ReplayOptions
from sb3_extra_buffers.compressed.replay import ReplayObservations
from sb3_extra_buffers.errors import LossyStorageWarning
from sb3_extra_buffers.gpu_buffers import GpuReplayBuffer, GpuRolloutBuffer
from sb3_extra_buffers.gpu_buffers.options import GpuOptions, GpuReplayOptions
from tests.oracle import add_to_replay, assert_same_samples
from tests.transitions import play

VECTOR = spaces.Box(-1, 1, (8,), np.float32)
DICT = spaces.Dict({"camera": spaces.Box(0, 255, (1, 12, 12), np.uint8), "speed": VECTOR})
ACTIONS = spaces.Discrete(3)
STORAGE = [
    "dtypes", "normalize_images", "compression_method", "compression_kwargs", "decompression_kwargs", "output_dtype",
    "frame_stack", "block_frames",
]  # fmt: skip
REPLAY_STORAGE = [*STORAGE, "directory", "keep", "max_memory", "random_shift"]
GPU_STORAGE = [*STORAGE, "buffer_device", "heap_bytes", "max_slot_bytes", "on_full"]

#: Every public buffer class, by the class that it is a compressed form of.
SB3_CLASSES: dict[type, type] = {
    getattr(module, f"{prefix}{base.__name__}"): base
    for module, prefix, bases in (
        (compressed, "Compressed", (
            ReplayBuffer, DictReplayBuffer, HerReplayBuffer, NStepReplayBuffer, RolloutBuffer, DictRolloutBuffer,
        )),
        (contrib, "Compressed", (
            MaskableRolloutBuffer, MaskableDictRolloutBuffer, RecurrentRolloutBuffer, RecurrentDictRolloutBuffer,
        )),
        (gpu_buffers, "Gpu", (ReplayBuffer, DictReplayBuffer, RolloutBuffer, DictRolloutBuffer)),
    )
    for base in bases
}  # fmt: skip
every_class = pytest.mark.parametrize("kind", SB3_CLASSES, ids=lambda kind: kind.__name__)


def parameters(kind: type) -> list[inspect.Parameter]:
    return list(inspect.signature(kind).parameters.values())


def storage_of(kind: type) -> list[str]:
    if kind.__name__.startswith("Gpu"):
        return [*GPU_STORAGE, "random_shift"] if issubclass(kind, ReplayBuffer) else GPU_STORAGE
    return REPLAY_STORAGE if issubclass(kind, ReplayBuffer) else STORAGE


def positional_in_0_5(kind: type) -> list[str]:
    """Storage keywords that 0.5's buffers took by position. Its GPU buffers took three more, after those that are new here."""
    if SB3_CLASSES[kind] in (ReplayBuffer, DictReplayBuffer):
        return STORAGE[:6]
    return STORAGE[:5] if SB3_CLASSES[kind] in (RolloutBuffer, DictRolloutBuffer) else []


def make(kind: type, space: spaces.Space[Any], **keywords: Any) -> Any:
    """A buffer with what its class requires."""
    if issubclass(kind, HerReplayBuffer):
        keywords.setdefault("env", None)
    if "Recurrent" in kind.__name__:
        keywords.setdefault("hidden_state_shape", (20, 1, 1, 16))
    return kind(20, space, ACTIONS, device="cpu", **keywords)


def space_of(kind: type) -> spaces.Space[Any]:
    return DICT if issubclass(kind, (DictReplayBuffer, DictRolloutBuffer)) else VECTOR


# ---- what is shown


def test_no_public_class_is_left_out() -> None:
    for module in (compressed, contrib, gpu_buffers):
        for name in module.__all__:
            if name.endswith("Buffer") and name not in ("BaseGpuBuffer", "RawBuffer"):  # of 0.5, no buffers of SB3
                assert getattr(module, name) in SB3_CLASSES


@every_class
def test_the_signature_begins_with_sb3s_and_ends_with_the_storage_keywords(kind: type) -> None:
    n_storage = len(storage_of(kind))
    ours, storage = parameters(kind)[:-n_storage], parameters(kind)[-n_storage:]
    expected = parameters(SB3_CLASSES[kind])
    if SB3_CLASSES[kind] is NStepReplayBuffer:  # it names two, and hands *args and **kwargs to ReplayBuffer
        own = [one for one in expected if one.kind is one.KEYWORD_ONLY]
        assert [one.name for one in own] == ["n_steps", "gamma"]
        expected = parameters(ReplayBuffer) + own
    assert [(one.name, one.kind, one.default) for one in ours] == [(one.name, one.kind, one.default) for one in expected]
    assert [one.name for one in storage] == storage_of(kind)
    assert [one.name for one in storage if one.kind is not one.KEYWORD_ONLY] == positional_in_0_5(kind)


@every_class
def test_storage_keywords_have_the_types_and_defaults_of_the_options(kind: type) -> None:
    options: type[CompressionOptions] = ReplayOptions if issubclass(kind, ReplayBuffer) else CompressionOptions
    if kind.__name__.startswith("Gpu"):
        options = GpuReplayOptions if issubclass(kind, ReplayBuffer) else GpuOptions
    assert options.keywords() == storage_of(kind)
    shown = inspect.signature(kind, eval_str=True).parameters
    for field in fields(options):
        if field.name.startswith("_") or field.name == "buffer_device":  # None: where the buffer is
            continue
        assert field.default is not MISSING
        assert shown[field.name].default == field.default, field.name
        assert shown[field.name].annotation == get_type_hints(options)[field.name], field.name


@every_class
def test_every_argument_is_typed_and_documented(kind: type) -> None:
    names = [one.name for one in parameters(kind)]
    assert all(one.annotation is not one.empty for one in parameters(kind))
    assert re.findall(r"^ *:param (\w+):", kind.__dict__["__doc__"], re.MULTILINE) == names
    shown = pydoc.render_doc(kind, renderer=pydoc.plaintext)
    assert re.search(rf"{kind.__name__}\([\s|]*buffer_size: ", shown)  # from Python 3.13 on in a line of its own
    assert "*args, **kwargs" not in shown.split("Methods defined here")[0]
    for name in names:
        assert f":param {name}:" in shown


def entries(kind: type) -> dict[str, str]:
    parts = re.split(r"^ *:param (\w+):", inspect.getdoc(kind) or "", flags=re.MULTILINE)[1:]
    return {name: " ".join(text.split()) for name, text in zip(parts[::2], parts[1::2], strict=True)}


def test_the_same_keyword_is_documented_in_the_same_words() -> None:
    for name, text in entries(CompressedObservations).items():
        for kind in SB3_CLASSES:
            if not kind.__name__.startswith("Gpu"):
                assert entries(kind)[name] == text, f"{kind.__name__}: {name}"
    for name in set(REPLAY_STORAGE) - set(STORAGE):
        for kind in SB3_CLASSES:
            if storage_of(kind) is REPLAY_STORAGE:
                assert entries(kind)[name] == entries(CompressedReplayBuffer)[name], f"{kind.__name__}: {name}"
    first = {"Replay": entries(GpuReplayBuffer), "Rollout": entries(GpuRolloutBuffer)}
    for kind in SB3_CLASSES:
        if kind.__name__.startswith("Gpu"):
            assert entries(kind) == first["Replay" if "Replay" in kind.__name__ else "Rollout"]


# ---- what is taken


@every_class
def test_arguments_may_be_given_by_position_or_by_name(kind: type) -> None:
    by_name = make(kind, space_of(kind), n_envs=2, frame_stack=1)
    given = {"buffer_size": 20, "observation_space": space_of(kind), "action_space": ACTIONS, "device": "cpu", "n_envs": 2}
    given |= {"env": None, "hidden_state_shape": (20, 1, 1, 16), "frame_stack": 1}
    positional = [one for one in parameters(kind) if one.kind is one.POSITIONAL_OR_KEYWORD]
    by_position = kind(*[given.get(one.name, one.default) for one in positional], frame_stack=1)
    all_by_name = kind(**{one.name: given.get(one.name, one.default) for one in positional}, frame_stack=1)
    for buffer in (by_name, by_position, all_by_name):
        assert (buffer.n_envs, buffer.buffer_size) == (2, 20 if "Rollout" in kind.__name__ else 10)
        assert buffer.observation_space is space_of(kind)
        assert buffer._options.frame_stack == 1
        copied = pickle.loads(pickle.dumps(copy.deepcopy(buffer)))
        assert (copied.buffer_size, copied._options.frame_stack) == (buffer.buffer_size, 1)


def test_every_sb3_argument_arrives() -> None:
    replay = CompressedReplayBuffer(20, VECTOR, ACTIONS, "meta", 4, True, False)
    assert (replay.device.type, replay.n_envs, replay.handle_timeout_termination) == ("meta", 4, False)
    assert not replay.optimize_memory_usage
    n_step = CompressedNStepReplayBuffer(20, VECTOR, ACTIONS, "cpu", optimize_memory_usage=True, n_steps=5, gamma=0.5)
    assert (n_step.n_steps, n_step.gamma) == (5, 0.5)
    her = CompressedHerReplayBuffer(20, DICT, ACTIONS, "env", "cpu", 2, True, False, 7, "final", True)
    assert (her.env, her.n_sampled_goal, her.goal_selection_strategy.name, her.copy_info_dict) == ("env", 7, "FINAL", True)
    rollout = CompressedRolloutBuffer(20, VECTOR, ACTIONS, "cpu", 0.9, 0.8, 3)
    assert (rollout.gae_lambda, rollout.gamma, rollout.n_envs) == (0.9, 0.8, 3)
    recurrent = contrib.CompressedRecurrentRolloutBuffer(20, VECTOR, ACTIONS, (20, 1, 3, 16), "cpu", 0.9, 0.8, 3)
    assert (recurrent.hidden_state_shape, recurrent.gae_lambda, recurrent.n_envs) == ((20, 1, 3, 16), 0.9, 3)


def test_a_gpu_buffer_is_where_its_batches_are_unless_told_otherwise() -> None:
    assert GpuReplayBuffer(20, VECTOR, ACTIONS, "meta").buffer_device.type == "meta"
    assert GpuReplayBuffer(20, VECTOR, ACTIONS, device="meta", buffer_device=None).buffer_device.type == "meta"
    assert GpuReplayBuffer(20, VECTOR, ACTIONS, "meta", buffer_device="cpu").buffer_device.type == "cpu"


def test_an_argument_that_is_not_given_has_sb3s_own_default(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    original = RolloutBuffer.__init__

    def spy(self: Any, *args: Any, **kwargs: Any) -> None:
        seen.update(kwargs)
        original(self, *args, **kwargs)

    monkeypatch.setattr(RolloutBuffer, "__init__", spy)
    CompressedRolloutBuffer(20, VECTOR, ACTIONS, "cpu", gamma=0.9, frame_stack=1)
    assert seen == {"device": "cpu", "gamma": 0.9}


def test_missing_and_surplus_arguments_are_told() -> None:
    with pytest.raises(TypeError, match="CompressedReplayBuffer also needs observation_space, action_space"):
        CompressedReplayBuffer(10)
    with pytest.raises(TypeError, match=r"takes 12 positional arguments \(buffer_size, .*\), got 13. Give the others by name"):
        CompressedRolloutBuffer(10, VECTOR, ACTIONS, "cpu", 1, 0.9, 1, None, False, "zstd", None, None, "raw")
    with pytest.raises(TypeError, match="several values for device, n_envs"):
        CompressedReplayBuffer(10, VECTOR, ACTIONS, "cpu", 1, n_envs=4, device="cpu")


# ---- wrong keywords


@every_class
@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("compression", "compression_method"), ("codec", "compression_method"), ("method", "compression_method"),
        ("compresion_method", "compression_method"), ("level", "compression_kwargs"), ("framestack", "frame_stack"),
        ("stack", "frame_stack"), ("n_stack", "frame_stack"), ("blockframes", "block_frames"), ("block_size", "block_frames"),
        ("dtype", "dtypes"), ("output_type", "output_dtype"), ("normalise_images", "normalize_images"),
        ("num_envs", "n_envs"), ("bufer_size", "buffer_size"), ("Device", "device"),
    ],
)  # fmt: skip
def test_a_wrong_keyword_names_the_right_one(kind: type, wrong: str, right: str) -> None:
    message = f"^{kind.__name__} has no argument '{wrong}'. Did you mean '{right}'\\?$"
    with pytest.raises(TypeError, match=message):
        make(kind, space_of(kind), **{wrong: 1})


@every_class
@pytest.mark.parametrize(("wrong", "right"), [("device_buffer", "buffer_device"), ("heap_size", "heap_bytes")])
def test_keywords_of_the_gpu_buffers_are_told_apart(kind: type, wrong: str, right: str) -> None:
    if kind.__name__.startswith("Gpu"):
        with pytest.raises(TypeError, match=f"has no argument '{wrong}'. Did you mean '{right}'"):
            make(kind, space_of(kind), **{wrong: 1})
    else:
        for name in (wrong, right):
            with pytest.raises(TypeError, match=f"'{right}' belongs to the buffers of sb3_extra_buffers.gpu_buffers"):
                make(kind, space_of(kind), **{name: 1})


@every_class
@pytest.mark.parametrize("wrong", ["zork", "n_step_returns", "arguments", "self_"])
def test_a_keyword_like_no_other_lists_what_there_is(kind: type, wrong: str) -> None:
    with pytest.raises(TypeError) as caught:
        make(kind, space_of(kind), **{wrong: 1})
    assert str(caught.value) == (
        f"{kind.__name__} has no argument '{wrong}'. Beside SB3's own there are: {', '.join(storage_of(kind))}."
    )


def test_a_keyword_of_another_sb3_class_is_not_taken_for_a_misspelled_one() -> None:
    with pytest.raises(TypeError, match=r"no argument 'n_steps'. Beside SB3's own there are"):
        CompressedReplayBuffer(10, VECTOR, ACTIONS, n_steps=3)


def test_all_wrong_keywords_are_told_at_once_and_before_missing_arguments() -> None:
    with pytest.raises(TypeError, match=r"'codec'. Did you mean 'compression_method'.* 'size'. Did you mean 'buffer_size'"):
        CompressedReplayBuffer(size=10, codec="zstd")


def test_algorithms_hand_the_message_on() -> None:
    with pytest.raises(TypeError, match=r"CompressedReplayBuffer has no argument 'compression'. Did you mean 'compression_me"):
        DQN(
            "MlpPolicy", "CartPole-v1", device="cpu", replay_buffer_class=CompressedReplayBuffer,
            replay_buffer_kwargs={"compression": "zstd"},
        )  # fmt: skip
    with pytest.raises(TypeError, match=r"GpuRolloutBuffer has no argument 'stack'. Did you mean 'frame_stack'"):
        PPO(
            "MlpPolicy", "CartPole-v1", device="cpu", rollout_buffer_class=GpuRolloutBuffer,
            rollout_buffer_kwargs={"stack": 4},
        )  # fmt: skip


# ---- the wrong kind of space

#: What a class suggests for the other kind of space, where that is not the class of the same name with or without Dict.
OTHERS = {
    "CompressedHerReplayBuffer": "Hindsight needs goals: for observations without them, use CompressedReplayBuffer",
    "CompressedNStepReplayBuffer": "SB3 has no n-step buffer for Dict observations: use CompressedDictReplayBuffer",
}


@every_class
def test_the_wrong_kind_of_space_names_the_class_to_use(kind: type) -> None:
    name = kind.__name__
    if space_of(kind) is DICT:
        wrong, message = VECTOR, f"{name} needs a Dict observation space, got Box(-1.0, 1.0, (8,), float32). "
        use = name.replace("Dict", "")
    else:
        wrong, message = DICT, f"{name} takes no Dict observation space, got one with the keys ['camera', 'speed']. "
        use = name.replace("Replay", "DictReplay").replace("Rollout", "DictRollout")
    with pytest.raises(ValueError) as caught:
        make(kind, wrong)
    assert str(caught.value).startswith(message + OTHERS.get(name, f"Use {use}"))
    if name not in OTHERS:
        assert use in {other.__name__ for other in SB3_CLASSES}
        assert any(other.__name__ == use and space_of(other) is wrong for other in SB3_CLASSES)


def test_algorithms_tell_the_wrong_kind_of_space_too() -> None:
    with pytest.raises(ValueError, match="Use CompressedDictReplayBuffer"):
        DQN("MultiInputPolicy", BitFlippingEnv(n_bits=4), device="cpu", replay_buffer_class=CompressedReplayBuffer)
    with pytest.raises(ValueError, match="Use CompressedReplayBuffer"):
        DQN("MlpPolicy", "CartPole-v1", device="cpu", replay_buffer_class=CompressedDictReplayBuffer)


# ---- subclasses


class Prioritized(ReplayBuffer):
    """A user's own buffer class, that knows nothing of compression."""

    def __init__(self, *args: Any, alpha: float = 0.6, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.alpha = alpha


class Named(ReplayBuffer):
    """A user's own buffer class, with an argument that stands before SB3's."""

    def __init__(self, size: int, space: Any, actions: Any, alpha: float, device: str = "auto", n_envs: int = 1) -> None:
        super().__init__(size, space, actions, device, n_envs)
        self.alpha = alpha


class Unnamed(ReplayBuffer):
    """A user's own buffer class, whose signature does not tell what it takes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.alpha = kwargs.pop("alpha")
        super().__init__(*args, **kwargs)


@pytest.mark.parametrize("below", [Prioritized, Named, Unnamed])
@pytest.mark.parametrize("mixin", [CompressedReplayBuffer, ReplayObservations, GpuReplayBuffer])
def test_keywords_of_a_class_behind_arrive_there(mixin: type, below: type) -> None:
    mine = type("Mine", (mixin, below), {})
    ours = mine(20, VECTOR, ACTIONS, device="cpu", n_envs=2, alpha=0.3, frame_stack=1)
    theirs = ReplayBuffer(20, VECTOR, ACTIONS, "cpu", 2)
    assert (ours.alpha, ours._options.frame_stack) == (0.3, 1)
    for step in play(VECTOR, ACTIONS, 2, 15):
        add_to_replay([ours, theirs], step)
    assert_same_samples(ours, theirs)
    if below is Named:  # it names all that it takes
        with pytest.raises(TypeError, match=r"Mine has no argument 'alhpa'. Did you mean 'alpha'"):
            mine(20, VECTOR, ACTIONS, alhpa=0.3)


def test_a_subclass_may_add_keywords_of_its_own() -> None:
    class Open(CompressedReplayBuffer):
        def __init__(self, *args: Any, compression: str = "strong", **kwargs: Any) -> None:
            super().__init__(*args, compression_method="zstd9" if compression == "strong" else "zstd1", **kwargs)

    class Closed(GpuRolloutBuffer):
        def __init__(self, size: int, observation_space: Any, action_space: Any, *, method: str, **kwargs: Any) -> None:
            super().__init__(size * 2, observation_space, action_space, compression_method=method, **kwargs)

    assert Open(10, VECTOR, ACTIONS, "cpu", compression="weak")._options.compression_method == "zstd1"
    assert Closed(10, VECTOR, ACTIONS, method="none", device="cpu").buffer_size == 20
    with pytest.raises(TypeError, match=r"Open has no argument 'codec'. Did you mean 'compression_method'"):
        Open(10, VECTOR, ACTIONS, codec="zstd")
    with pytest.raises(ValueError, match=r"Open takes no Dict observation space.*Use CompressedDictReplayBuffer"):
        Open(10, DICT, ACTIONS)
    assert list(inspect.signature(Closed).parameters) == ["size", "observation_space", "action_space", "method", "kwargs"]


def test_subclasses_that_can_be_pickled_keep_their_arguments() -> None:
    buffer = Mine(20, VECTOR, ACTIONS, "cpu", alpha=0.3)
    for again in (copy.copy(buffer), copy.deepcopy(buffer), pickle.loads(pickle.dumps(buffer))):
        assert (again.alpha, again.buffer_size) == (0.3, 20)


class Mine(CompressedReplayBuffer, Prioritized):
    """At the top of a module, so that it can be pickled."""


# ---- warnings


def test_warnings_point_at_the_line_that_made_the_buffer() -> None:
    class Derived(CompressedReplayBuffer):
        pass

    for kind in (CompressedReplayBuffer, CompressedRolloutBuffer, GpuReplayBuffer, Derived):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            kind(20, spaces.Box(-300, 300, (30,), np.float32), ACTIONS, "cpu", dtypes={"elem_type": np.uint8})
        assert [(one.category, one.filename) for one in caught] == [(LossyStorageWarning, __file__)]
