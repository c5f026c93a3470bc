"""Buffers whose observations say which step and env they are of, so that a batch proves itself."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from gymnasium import spaces

from sb3_extra_buffers.compressed import CompressedDictReplayBuffer, CompressedReplayBuffer
from sb3_extra_buffers.gpu_buffers import GpuReplayBuffer

N_ENVS = 3
SHAPE = (4, 16, 16)
_CAMERA = spaces.Box(0, 255, SHAPE, np.uint8)
_VECTOR = spaces.Box(-1e9, 1e9, (6,), np.float32)
_BOTH = spaces.Dict({"camera": _CAMERA, "vector": _VECTOR})
#: Kind -> class, space, options.
KINDS: dict[str, tuple[Any, spaces.Space[Any], dict[str, Any]]] = {
    "delta": (CompressedReplayBuffer, _CAMERA, {"compression_method": "delta"}),
    "zstd": (CompressedReplayBuffer, _CAMERA, {"compression_method": "zstd", "block_frames": 4}),
    "lz4": (CompressedReplayBuffer, _CAMERA, {"compression_method": "lz4-block", "block_frames": 4}),
    "vectors": (CompressedReplayBuffer, _VECTOR, {}),
    "dict": (CompressedDictReplayBuffer, _BOTH, {}),
}
DEVICE_KINDS: dict[str, tuple[Any, spaces.Space[Any], dict[str, Any]]] = {
    "tiles": (GpuReplayBuffer, _CAMERA, {"buffer_device": "cpu"}),
    "heap": (GpuReplayBuffer, _CAMERA, {"buffer_device": "cpu", "compression_method": "rle"}),
}


@functools.lru_cache(10_000)
def camera(t: int, env: int) -> np.ndarray:
    """A stack whose frames tell their time and env, and are mostly black."""
    frames = np.zeros(SHAPE, np.uint8)
    for k in range(4):
        time = t - 3 + k
        frames[k, time % 16, :4] = time % 256, time // 256 % 256, env, 255
    return frames


@functools.lru_cache(10_000)
def vector(t: int, env: int) -> np.ndarray:
    return np.array([t, env, t * env, -t, 1, t % 7], np.float32)


class MarkedBuffer:
    """A buffer, and the next step to add. The reward of a transition is its step, the action its env.

    :param kind: of KINDS or DEVICE_KINDS
    :param steps: that it holds
    """

    def __init__(self, kind: str, steps: int) -> None:
        buffer_class, self.space, options = {**KINDS, **DEVICE_KINDS}[kind]
        self.is_read_by_threads = kind != "vectors"
        actions = spaces.Discrete(N_ENVS)
        self.buffer = buffer_class(steps * N_ENVS, self.space, actions, n_envs=N_ENVS, device="cpu", **options)
        self.t = 0
        leaves = self.space.spaces.values() if isinstance(self.space, spaces.Dict) else [self.space]
        #: Bytes of obs and next_obs of a step, as arrays.
        self.step_bytes = 2 * N_ENVS * sum(leaf.sample().nbytes for leaf in leaves)

    @property
    def camera(self) -> Any:
        observations = self.buffer.observations
        return next(iter(observations.values())) if isinstance(observations, dict) else observations

    def add(self) -> None:
        t = self.t
        obs, next_obs = self.observations(t), self.observations(t + 1)
        self.t += 1
        self.buffer.add(obs, next_obs, np.arange(N_ENVS), np.full(N_ENVS, t), np.zeros(N_ENVS), [{}] * N_ENVS)

    def observations(self, t: int) -> Any:
        leaves = {"camera": [], "vector": []}  # type: dict[str, list[np.ndarray]]
        for env in range(N_ENVS):
            leaves["camera"].append(camera(t, env))
            leaves["vector"].append(vector(t, env))
        stacked = {key: np.stack(values) for key, values in leaves.items()}
        if isinstance(self.space, spaces.Dict):
            return stacked
        return stacked["camera" if self.space is _CAMERA else "vector"]

    def check_sample(self, n: int = 24) -> None:
        """A batch holds transitions that were added, if there are any."""
        try:
            batch = self.buffer.sample(n)
        except ValueError as error:  # nothing since a reset
            if "high" not in str(error):
                raise
            return
        marks = zip(batch.rewards[:200, 0].int().tolist(), batch.actions[:200, 0].tolist(), strict=True)
        for i, (t, env) in enumerate(marks):
            for when, observations in ((t, batch.observations), (t + 1, batch.next_observations)):
                self._check(observations, i, when, env)

    def check_all(self) -> None:
        """Every slot holds what its reward says."""
        buffer, size = self.buffer, self.buffer.size()
        for ahead, columns in ((0, buffer.observations), (1, buffer.next_observations)):
            values = {"": columns} if not isinstance(columns, dict) else columns
            read = {key: np.asarray(one)[:size].reshape(size * N_ENVS, *one.obs_shape) for key, one in values.items()}
            for i, t in enumerate(buffer.rewards[:size].reshape(-1).astype(int).tolist()):
                self._check(read, i, t + ahead, i % N_ENVS)

    def _check(self, observations: Any, i: int, t: int, env: int) -> None:
        values = observations if isinstance(observations, dict) else {"": observations}
        for one in values.values():
            expected = vector(t, env) if one[i].ndim == 1 else camera(t, env)
            assert np.array_equal(np.asarray(one[i]), expected), (t, env)
