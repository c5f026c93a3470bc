"""What sb3-extra-buffers 0.5 offered works: its modules, names and parameters, and the models and buffers that it saved."""

from __future__ import annotations

import importlib
import inspect
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import stable_baselines3
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.buffers import DictReplayBuffer, DictRolloutBuffer, ReplayBuffer, RolloutBuffer

import sb3_extra_buffers
from sb3_extra_buffers.compat.paths import CALLED, FORMER_PATHS
from sb3_extra_buffers.compressed import (
    CompressedDictReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
    DummyCls,
)
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.gpu_buffers import BaseGpuBuffer, GpuReplayBuffer, GpuRolloutBuffer
from tests.fixtures.former.make import BOTH, PICTURE, Pictures, few, observation_at
from tests.oracle import add_to_replay
from tests.transitions import play

FORMER = Path(__file__).parent / "fixtures" / "former"
#: Module of 0.5 -> {"all": exported names, "names": name -> parameters, or None for what cannot be called}.
API: dict[str, dict[str, Any]] = json.loads((FORMER / "api.json").read_text())
#: The file that 0.5 read its version from, closed and left behind.
LEFT_BEHIND = {("sb3_extra_buffers.current_version", "f")}
ACTIONS = spaces.Discrete(3)
IMAGE = spaces.Box(0, 255, (4, 20, 20), np.uint8)


# ---- modules, names, parameters


@pytest.mark.parametrize("module", API)
def test_every_module_has_its_names(module: str) -> None:
    imported = importlib.import_module(module)
    expected = {*API[module]["all"], *API[module]["names"]} - {name for path, name in LEFT_BEHIND if path == module}
    assert {name for name in expected if not hasattr(imported, name)} == set()
    assert expected <= set(dir(imported))
    if API[module]["all"]:
        star: dict[str, Any] = {}
        exec(f"from {module} import *", star)
        assert set(API[module]["all"]) - {"__version__"} <= star.keys()


CALLABLE = [
    (module, name, parameters)
    for module, known in API.items()
    for name, parameters in known["names"].items()
    if parameters is not None and name not in ("NumberType", "ReplayLike")
]


@pytest.mark.parametrize(("module", "name", "former"), CALLABLE, ids=[f"{module}.{name}" for module, name, _ in CALLABLE])
def test_every_parameter_is_accepted_by_name_and_in_its_place(module: str, name: str, former: list[str]) -> None:
    parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    named = [one for one in former if one not in ("args", "kwargs")]
    assert set(named) <= parameters.keys()
    positions = {one.name: i for i, one in enumerate(parameters.values()) if one.kind is one.POSITIONAL_OR_KEYWORD}
    in_their_place = [one for i, one in enumerate(named) if positions.get(one, i) == i]
    assert in_their_place == named


def test_the_walk_sees_all_of_the_api() -> None:
    assert len(API) == 38
    assert len(CALLABLE) > 100
    assert {f"sb3_extra_buffers.{path}" for path in FORMER_PATHS} - API.keys() == {
        "sb3_extra_buffers.training_utils.warmup", "sb3_extra_buffers.training_utils.warm_up",
    }  # fmt: skip


@pytest.mark.parametrize("path", FORMER_PATHS)
def test_every_former_path_leads_to_what_is_there_now(path: str) -> None:
    former = importlib.import_module(f"sb3_extra_buffers.{path}")
    for where, names in FORMER_PATHS[path].items():
        for name in names.split():
            assert getattr(former, name) is getattr(importlib.import_module(f"sb3_extra_buffers.{where}"), name)
    assert former.__doc__
    assert former.__all__ == sorted(name for names in FORMER_PATHS[path].values() for name in names.split())


def test_a_path_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"compressed\.compressed_nothing"):
        importlib.import_module("sb3_extra_buffers.compressed.compressed_nothing")
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec("from sb3_extra_buffers.compressed.base import Nothing")
    base = importlib.import_module("sb3_extra_buffers.compressed.base")
    with pytest.raises(AttributeError, match=r"module 'sb3_extra_buffers.compressed.base' has no attribute 'nothing'"):
        _ = base.nothing
    with pytest.raises(TypeError, match=r"'sb3_extra_buffers.compressed.base' is not callable"):
        base()


def test_a_former_path_may_be_the_first_import_of_a_process() -> None:
    path = "gpu_buffers.compression_methods.compression_methods_zstd"
    code = f"import sb3_extra_buffers.{path} as module; print(module.__name__, *module.__all__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = sorted(name for names in FORMER_PATHS[path].values() for name in names.split())
    assert done.stdout.split() == [f"sb3_extra_buffers.{path}", *names]
    assert done.stderr == ""


def test_the_package_costs_nothing_for_those_who_do_not_use_0_5() -> None:
    code = (
        "import sys, sb3_extra_buffers.codecs\n"
        "print(*[name for name in sys.modules if name.startswith('sb3_extra_buffers.compat')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["sb3_extra_buffers.compat", "sb3_extra_buffers.compat.finder"]


def test_a_class_is_unpickled_by_its_former_path() -> None:
    assert (
        pickle.loads(b"csb3_extra_buffers.compressed.compressed_replay\nCompressedReplayBuffer\n.") is CompressedReplayBuffer
    )
    assert pickle.loads(b"csb3_extra_buffers.gpu_buffers.gpu_rollout\nGpuRolloutBuffer\n.") is GpuRolloutBuffer


def test_warm_up_can_be_called_by_all_of_its_names() -> None:
    from sb3_extra_buffers.training_utils import eval_model, warm_up, warmup
    from sb3_extra_buffers.training_utils.buffer_warmup import warm_up as function

    assert warmup.warm_up is warm_up.warm_up is function
    assert warmup.eval_model is eval_model.eval_model
    for called in (warmup, warm_up, function):
        with pytest.raises(TypeError, match="missing 4 required positional arguments"):
            called()
    assert {path.partition(".")[0] for path in CALLED} == {"training_utils"}


def test_versions() -> None:
    assert sb3_extra_buffers.sb3_ver == stable_baselines3.__version__
    assert sb3_extra_buffers.sb3_version() == tuple(map(int, stable_baselines3.__version__.split(".")[:3]))
    assert sb3_extra_buffers.package_version == sb3_extra_buffers.__version__


@pytest.mark.parametrize(
    ("said", "expected"), [("2.7.1a0", (2, 7, 1)), ("2.7.1rc1", (2, 7, 1)), ("3.0", (3, 0, 0)), ("2.x.dev1", (2, 0, 0))]
)
def test_odd_versions_of_sb3_are_read(said: str, expected: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_extra_buffers.compat.versions.sb3_ver", said)
    assert sb3_extra_buffers.sb3_version() == expected


def test_types_name_the_classes_that_they_named() -> None:
    from stable_baselines3.common.buffers import BaseBuffer

    from sb3_extra_buffers.recording import BaseRecordBuffer, DummyRecordBuffer, FramelessRecordBuffer, RecordBuffer

    assert get_args(sb3_extra_buffers.ReplayLike) == (BaseBuffer, BaseRecordBuffer)
    assert isinstance(np.float32(1), get_args(sb3_extra_buffers.NumberType))
    for record in (RecordBuffer((8, 8), 1, 4), FramelessRecordBuffer(size=4), DummyRecordBuffer()):
        assert isinstance(record, get_args(sb3_extra_buffers.ReplayLike))


# ---- models that 0.5 has saved

EXPECTED: dict[str, list[int]] = json.loads((FORMER / "expected.json").read_text())
CLASSES = {
    "dqn-dict": "CompressedDictReplayBuffer", "dqn-gpu-zstd": "GpuReplayBuffer", "ppo-dict": "CompressedDictRolloutBuffer",
    "ppo-gpu-rle": "GpuRolloutBuffer", "ppo-rle-jit": "CompressedRolloutBuffer",
}  # fmt: skip


def kind_of(name: str) -> tuple[Any, str, spaces.Space[Any]]:
    """Algorithm, what its buffer is called there, and observation space."""
    algorithm, prefix = (DQN, "replay") if name.startswith("dqn") else (PPO, "rollout")
    return algorithm, f"{prefix}_buffer", BOTH if name.endswith("dict") else PICTURE


@pytest.mark.parametrize("name", EXPECTED)
def test_a_saved_model_predicts_and_trains_to_the_weights_that_sb3s_buffer_gives(name: str) -> None:
    algorithm, attribute, space = kind_of(name)
    model = algorithm.load(FORMER / f"{name}.zip", env=Pictures(space), device="cpu")
    assert type(getattr(model, attribute)).__name__ == CLASSES.get(name, "CompressedReplayBuffer")
    assert model.predict(few(space), deterministic=True)[0].tolist() == EXPECTED[name]
    plain: Any = {
        ("replay_buffer", False): ReplayBuffer, ("replay_buffer", True): DictReplayBuffer,
        ("rollout_buffer", False): RolloutBuffer, ("rollout_buffer", True): DictRolloutBuffer,
    }[attribute, space is BOTH]  # fmt: skip
    objects = {f"{attribute}_class": plain, f"{attribute}_kwargs": {}}
    theirs = algorithm.load(FORMER / f"{name}.zip", env=Pictures(space), device="cpu", custom_objects=objects)
    before = {key: value.clone() for key, value in model.policy.state_dict().items()}
    for one in (model, theirs):
        one.set_random_seed(3)
        one.learn(90)
    assert type(getattr(theirs, attribute)) is plain
    weights = model.policy.state_dict()
    assert any(not th.equal(weights[key], value) for key, value in before.items())
    for key, value in theirs.policy.state_dict().items():
        assert th.equal(weights[key], value), key


def test_the_fixtures_hold_levels_in_all_places_where_0_5_put_them() -> None:
    places = {}
    for name in EXPECTED:
        algorithm, attribute, _ = kind_of(name)
        kwargs = getattr(algorithm.load(FORMER / f"{name}.zip", device="cpu"), f"{attribute}_kwargs")
        places[name] = {key for key, value in kwargs.items() if isinstance(value, dict) and "compresslevel" in value}
    assert places["dqn-zstd19"] == places["dqn-gpu-zstd"] == {"dtypes"}
    assert places["dqn-gzip-kwargs"] == {"compression_kwargs", "decompression_kwargs"}


def test_the_level_of_a_saved_model_is_used() -> None:
    for name, spec in (("dqn-zstd19", "zstd/19"), ("dqn-gzip-kwargs", "gzip/5"), ("dqn-lz4-block", "lz4-block/16")):
        model = DQN.load(FORMER / f"{name}.zip", env=Pictures(), device="cpu")
        assert model.replay_buffer.observations.leaf.plan.codec.spec == spec


@pytest.mark.parametrize("name", EXPECTED)
def test_a_saved_model_can_be_loaded_without_its_buffer(name: str) -> None:
    algorithm, attribute, space = kind_of(name)
    objects = {f"{attribute}_class": DummyCls}
    model = algorithm.load(FORMER / f"{name}.zip", device="cpu", custom_objects=objects)
    assert isinstance(getattr(model, attribute, None), (DummyCls, type(None)))
    assert model.predict(few(space), deterministic=True)[0].tolist() == EXPECTED[name]


# ---- replay buffers that 0.5 has pickled


@pytest.mark.parametrize("name", ["dqn-zstd19", "dqn-dict"])
def test_a_pickled_replay_buffer_comes_back_with_all_transitions(name: str) -> None:
    _, _, space = kind_of(name)
    model = DQN.load(FORMER / f"{name}.zip", env=Pictures(space), device="cpu")
    model.load_replay_buffer(FORMER / f"{name}.pkl")
    buffer: Any = model.replay_buffer
    assert isinstance(buffer, CompressedDictReplayBuffer if space is BOTH else CompressedReplayBuffer)
    assert (buffer.full, buffer.pos, buffer.size()) == (True, 0, 60)
    for slot, t in enumerate(range(20, 80)):  # the last 60 of 80 steps
        for column, at in ((buffer.observations, t), (buffer.next_observations, t + 1)):
            expected = observation_at(at, space)
            if space is BOTH:
                assert all(np.array_equal(column[key][slot, 0], value) for key, value in expected.items())
            else:
                assert np.array_equal(column[slot, 0], expected)
        is_over = (t + 1) % 7 == 0
        assert (buffer.dones[slot, 0], buffer.timeouts[slot, 0]) == (is_over, is_over and t % 2 == 0)
        assert buffer.rewards[slot, 0] == buffer.actions[slot, 0, 0]
    model.learn(30, reset_num_timesteps=False)
    assert pickle.loads(pickle.dumps(buffer)).size() == 60


def pickled_by_0_5(name: str) -> dict[str, Any]:
    """What a pickle of 0.5 holds, without making a buffer of it."""

    class Shell:
        def __setstate__(self, state: dict[str, Any]) -> None:
            self.state = state

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, one: str) -> Any:
            return Shell if one.endswith("ReplayBuffer") else super().find_class(module, one)

    with (FORMER / f"{name}.pkl").open("rb") as file:
        state: dict[str, Any] = Unpickler(file).load().state
    return state


def restored(state: dict[str, Any]) -> Any:
    buffer = CompressedReplayBuffer.__new__(CompressedReplayBuffer)
    buffer.__setstate__(state)
    return buffer


def test_a_pickled_buffer_that_is_not_full_comes_back() -> None:
    state = pickled_by_0_5("dqn-zstd19")
    state.update(full=False, pos=20)  # steps 60 to 79
    buffer = restored(state)
    assert (buffer.size(), buffer.pos, buffer.full) == (20, 20, False)
    assert np.array_equal(buffer.next_observations[19, 0], observation_at(80, PICTURE))


def test_a_pickled_buffer_that_shared_next_observations_loses_the_one_that_was_overwritten() -> None:
    state = pickled_by_0_5("dqn-zstd19")
    cells, following = state["observations"], state.pop("next_observations")
    cells[state["pos"], 0] = following[state["pos"] - 1, 0]
    state.update(optimize_memory_usage=True, handle_timeout_termination=False)
    buffer = restored(state)
    assert buffer.size() == 59
    for slot, t in enumerate(range(21, 80)):
        assert np.array_equal(buffer.observations[slot, 0], observation_at(t, PICTURE))
        assert np.array_equal(buffer.next_observations[slot, 0], observation_at(t + 1, PICTURE))


def test_pickles_that_are_not_of_0_5_are_refused() -> None:
    with pytest.raises(CorruptDataError, match="pickled by an earlier version"):
        restored({"buffer_size": 3})
    gpu = GpuReplayBuffer.__new__(GpuReplayBuffer)
    with pytest.raises(CorruptDataError, match="pickled by an earlier version"):
        gpu.__setstate__({"obs_store": None, "_decompress": len})


# ---- attributes of its buffers


def filled(buffer_class: Any = CompressedReplayBuffer, space: spaces.Space[Any] = IMAGE, **kwargs: Any) -> Any:
    buffer = buffer_class(40, space, ACTIONS, "cpu", 2, **kwargs)
    for step in play(space, ACTIONS, 2, 15):
        add_to_replay([buffer], step)
    return buffer


def test_buffers_have_the_attributes_that_they_had() -> None:
    dtypes = {"elem_type": np.uint8, "runs_type": np.uint16}
    buffer = filled(dtypes=dtypes, compression_method="gzip3", normalize_images=True, output_dtype="float")
    assert (buffer.version, buffer.dtypes, buffer.normalize_images) == (sb3_extra_buffers.__version__, dtypes, True)
    assert (buffer.compression_method, buffer.compression_kwargs, buffer.decompression_kwargs) == ("gzip3", dtypes, dtypes)
    assert (buffer.flatten_len, buffer.flatten_config) == (1600, {"shape": 1600, "dtype": np.dtype(np.uint8)})
    assert buffer.output_dtype is th.float32
    assert filled().output_dtype is None
    assert filled().dtypes == dtypes
    assert np.array_equal(buffer.reconstruct_obs(3, 1), buffer.observations[3, 1])
    assert np.array_equal(buffer.reconstruct_nextobs(3, 1), buffer.next_observations[3, 1])
    assert np.array_equal(buffer._decompress(buffer.observations[3][1]).reshape(buffer.obs_shape), buffer.observations[3, 1])


def test_rollouts_and_dicts_have_theirs() -> None:
    rollout = CompressedRolloutBuffer(5, IMAGE, ACTIONS, "cpu", n_envs=2)
    for step in play(IMAGE, ACTIONS, 2, 5):
        rollout.add(step.obs, step.action, step.reward, np.zeros(2), th.zeros(2), th.zeros(2))
    list(rollout.get(4))
    assert np.array_equal(rollout.reconstruct_obs(7), rollout.observations[7])  # type: ignore[attr-defined]
    assert isinstance(rollout.reconstruct_obs(7), th.Tensor)  # type: ignore[attr-defined]
    both: Any = CompressedDictReplayBuffer(10, BOTH, ACTIONS, "cpu")
    assert both.flatten_configs == {
        "camera": {"shape": 256, "dtype": np.dtype(np.uint8)}, "speed": {"shape": 3, "dtype": np.dtype(np.uint8)},
    }  # fmt: skip


def test_a_gpu_buffer_says_how_full_its_heap_is() -> None:
    buffer = filled(GpuReplayBuffer, compression_method="rle", frame_stack=1, heap_bytes=100_000)
    assert 0 < buffer.shared_heap.data_end <= buffer.shared_heap.buffer.size
    assert buffer.shared_heap.buffer.size >= 100_000
    assert filled(GpuReplayBuffer).shared_heap is None
    both: Any = GpuReplayBuffer(10, IMAGE, ACTIONS, "cpu", compression_method={"observation": "zstd"})
    assert both.shared_heap.data_end == 0


def test_other_attributes_are_still_errors() -> None:
    buffer = filled()
    for name in ("flatten", "obs_store", "_compress"):
        with pytest.raises(AttributeError, match=f"'CompressedReplayBuffer' object has no attribute '{name}'"):
            getattr(buffer, name)
    assert not hasattr(GpuReplayBuffer.__new__(GpuReplayBuffer), "nothing")


# ---- base classes


def test_all_buffers_count_as_those_of_0_5() -> None:
    from sb3_extra_buffers.compressed.base import BaseCompressedBuffer

    assert isinstance(filled(), BaseCompressedBuffer)
    assert isinstance(filled(GpuReplayBuffer), BaseGpuBuffer)
    assert not isinstance(filled(), BaseGpuBuffer)
    assert not isinstance(ReplayBuffer(4, IMAGE, ACTIONS), BaseCompressedBuffer)


@pytest.mark.parametrize("method", ["none", "rle", "rle-old", "gzip5", "zstd-3", "lz4-frame/1"])
def test_a_buffer_of_ones_own_can_derive_from_the_base_class(method: str) -> None:
    from sb3_extra_buffers.compressed.base import BaseCompressedBuffer

    class Mine(ReplayBuffer, BaseCompressedBuffer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            dtypes = {"elem_type": np.uint8, "runs_type": np.uint16}
            BaseCompressedBuffer.__init__(self, method, dtypes, dtypes, {"shape": 1600, "dtype": np.uint8})

    mine, values = Mine(4, IMAGE, ACTIONS), np.repeat(np.arange(40, dtype=np.uint8), 40)
    assert isinstance(mine._compress(values), bytes)
    assert np.array_equal(mine._decompress(mine._compress(values)), values)
    assert mine.version == sb3_extra_buffers.__version__


def test_base_classes_refuse_what_buffers_refuse() -> None:
    from sb3_extra_buffers.compressed.base import BaseCompressedBuffer

    assert not hasattr(BaseCompressedBuffer(), "_compress")
    for method, message in (
        ("gzip10", "gzip level must be"), ("zsdt", "Did you mean 'zstd'"), ("delta", "cannot be compressed by 'delta'"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            BaseCompressedBuffer(method)
    with pytest.raises(ValueError, match=r"cannot be compressed by 'gzip'. Known: none, rle, zstd"):
        BaseGpuBuffer("gzip3")


def test_a_gpu_buffer_of_ones_own_can_derive_from_the_base_class() -> None:
    from sb3_extra_buffers.gpu_buffers import RawBuffer

    memory, values = RawBuffer(1000), th.arange(100, dtype=th.uint8) // 10
    for method, level in (("zstd", -3), ("zstd9", 9), ("rle", None)):
        mine: Any = BaseGpuBuffer(method, None, {"elem_type": th.uint8, "runs_type": th.uint16}, {"size": 100})
        assert mine.compression_method == method.rstrip("9")
        assert mine._compress.keywords.get("compresslevel") == level
        assert th.equal(mine._decompress(memory, mine._compress(values, memory, 5)), values)


# ---- what is different on purpose: docs/migrating.md has the list


def test_bare_names_stand_for_faster_levels_than_in_0_5() -> None:
    methods = {"gzip": "gzip/1", "igzip": "igzip/1", "zstd": "zstd/3", "lz4-frame": "lz4-frame/0", "lz4-block": "lz4-block/0"}
    for method, spec in methods.items():
        assert filled(compression_method=method).observations.leaf.plan.codec.spec == spec
    assert (filled().compression_method, filled(GpuReplayBuffer).compression_method) == ("auto", "tiles")


def test_a_compressed_array_is_array_like() -> None:
    from sb3_extra_buffers.compressed import CompressedArray

    array = CompressedArray((3, 2), np.uint8, (4, 5))
    assert not isinstance(array, np.ndarray)
    assert array.shape == (3, 2, 4, 5)
    assert isinstance(array[0:2, 1], np.ndarray)


def test_gpu_buffers_keep_their_own_options_by_name() -> None:
    replay = (10, IMAGE, ACTIONS, "cpu", 1, False, True, None, False, "rle", None, None, "raw")
    rollout = (10, IMAGE, ACTIONS, "cpu", 1, 0.99, 1, None, False, "rle", None, None)
    for buffer_class, arguments in ((GpuReplayBuffer, replay), (GpuRolloutBuffer, rollout)):
        assert buffer_class(*arguments, buffer_device="cpu", heap_bytes=5000).buffer_device.type == "cpu"
        with pytest.raises(TypeError, match="Give the others by name"):
            buffer_class(*arguments, "cpu")
    assert not hasattr(GpuReplayBuffer(10, IMAGE, ACTIONS, "cpu"), "obs_store")


def test_small_differences() -> None:
    from sb3_extra_buffers.gpu_buffers import RawBuffer
    from sb3_extra_buffers.recording import RecordBuffer
    from sb3_extra_buffers.training_utils.eval_model import eval_model

    assert sb3_extra_buffers.__version__[0].isdigit()
    assert importlib.import_module("sb3_extra_buffers.logging").logger.handlers == []
    assert not hasattr(RawBuffer(4), "malloc")
    assert RecordBuffer((4, 4), 1, 2).actions.dtype == np.int64
    with pytest.raises(TypeError, match="unexpected keyword argument 'eval_model'"):
        eval_model(1, None, eval_model=None)  # type: ignore[call-arg]
    CompressedReplayBuffer(10, IMAGE, ACTIONS, optimize_memory_usage=True, handle_timeout_termination=True)
