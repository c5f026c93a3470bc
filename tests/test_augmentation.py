"""Random shifts: the images of DrQ's pad and crop, drawn by torch's seed, one shift per sequence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from torch.nn import functional

from sb3_extra_buffers import load_buffer
from sb3_extra_buffers.compressed import CompressedDictReplayBuffer, CompressedReplayBuffer, random_shift
from sb3_extra_buffers.gpu_buffers import GpuReplayBuffer
from sb3_extra_buffers.prioritized import CompressedPrioritizedReplayBuffer

ACTIONS, PAD = spaces.Discrete(3), 3
IMAGE = spaces.Box(0, 255, (2, 12, 14), np.uint8)


def padded_and_cropped(images: th.Tensor, shifts: th.Tensor, pad: int) -> th.Tensor:
    """What DrQ does: repeat the border, then cut out a window at random."""
    around = functional.pad(images.float(), (pad,) * 4, "replicate")
    height, width = images.shape[-2:]
    windows = [
        one[:, pad + y : pad + y + height, pad + x : pad + x + width]
        for one, (y, x) in zip(around, shifts.tolist(), strict=True)
    ]
    return th.stack(windows).to(images.dtype)


def drawn(n: int, pad: int = PAD) -> th.Tensor:
    return th.randint(-pad, pad + 1, (n, 2))


def filled(made: Any, space: spaces.Space[Any], steps: int = 60) -> Any:
    space.seed(0)
    for i in range(steps):
        obs, following = space.sample(), space.sample()
        done = np.array([i % 20 == 19])
        if isinstance(obs, dict):
            obs, following = ({key: one[None] for key, one in part.items()} for part in (obs, following))
        else:
            obs, following = obs[None], following[None]
        made.add(obs, following, np.zeros((1, 1)), np.zeros(1), done, [{}])
    return made


def pair(made_class: Any, space: spaces.Space[Any] = IMAGE, **options: Any) -> tuple[Any, Any]:
    """A buffer with shifts and one without, which hold the same."""
    shifts, plain = ({"random_shift": PAD}, {})
    return tuple(filled(made_class(50, space, ACTIONS, "cpu", **options, **one), space) for one in (shifts, plain))  # type: ignore[return-value]


def batches_of(ours: Any, plain: Any, draw: Any, seed: int = 0) -> tuple[Any, Any]:
    """The same draws from both. Afterwards, torch is as before ours was drawn: `drawn` gives the shifts of ours."""
    np.random.seed(seed)
    th.manual_seed(seed)
    shifted = draw(ours)
    np.random.seed(seed)
    expected = draw(plain)
    th.manual_seed(seed)
    return shifted, expected


@pytest.mark.parametrize("dtype", [th.uint8, th.float32, th.uint16])
@pytest.mark.parametrize("pad", [0, 1, 4])
def test_images_are_padded_and_cropped(dtype: th.dtype, pad: int) -> None:
    images = (th.rand(9, 3, 11, 7) * 255).to(dtype)
    th.manual_seed(5)
    ours = random_shift(images, pad)
    th.manual_seed(5)
    assert th.equal(ours, padded_and_cropped(images, drawn(9, pad), pad))
    assert ours.dtype == dtype


def test_all_shifts_are_equally_likely() -> None:
    at = th.arange(81).reshape(1, 1, 9, 9).expand(20_000, 1, 9, 9)
    middle = random_shift(at, 2)[:, 0, 4, 4]
    counts = th.bincount(middle, minlength=81).reshape(9, 9)[2:7, 2:7]
    assert counts.sum() == 20_000
    assert ((counts - 800).abs() < 6 * 800**0.5).all()


def test_channels_may_come_last() -> None:
    images = th.randint(0, 256, (5, 8, 9, 3), dtype=th.uint8)
    th.manual_seed(1)
    ours = random_shift(images, 2, channels_first=False)
    th.manual_seed(1)
    assert th.equal(ours, random_shift(images.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1))


@pytest.mark.parametrize("made_class", [CompressedReplayBuffer, CompressedPrioritizedReplayBuffer, GpuReplayBuffer])
def test_a_batch_is_shifted_image_by_image(made_class: Any) -> None:
    ours, plain = pair(made_class)
    for seed in range(3):
        batch, expected = batches_of(ours, plain, lambda buffer: buffer.sample(20), seed)
        for name in ("observations", "next_observations"):
            assert th.equal(getattr(batch, name), padded_and_cropped(getattr(expected, name), drawn(20), PAD))
        assert th.equal(batch.actions, expected.actions)


def test_only_images_of_a_dict_are_shifted() -> None:
    space = spaces.Dict({"camera": IMAGE, "depth": spaces.Box(0, 9, (1, 8, 8), np.float32), "joints": spaces.Box(-1, 1, (6,))})
    ours, plain = pair(CompressedDictReplayBuffer, space)
    batch, expected = batches_of(ours, plain, lambda buffer: buffer.sample(10))
    for part in ("observations", "next_observations"):
        ours_by_key, by_key = getattr(batch, part), getattr(expected, part)
        assert th.equal(ours_by_key["joints"], by_key["joints"])
        for key in ("camera", "depth"):
            assert th.equal(ours_by_key[key], padded_and_cropped(by_key[key], drawn(10), PAD))


def test_all_images_of_a_sequence_are_shifted_by_the_same() -> None:
    ours, plain = pair(CompressedReplayBuffer)
    batch, expected = batches_of(ours, plain, lambda buffer: buffer.sample_sequences(6, 5))
    shifts = drawn(6)
    for t in range(5):
        assert th.equal(batch.observations[:, t], padded_and_cropped(expected.observations[:, t], shifts, PAD))
    assert th.equal(batch.next_observations, padded_and_cropped(expected.next_observations, shifts, PAD))


def test_what_is_stored_is_not_shifted(tmp_path: Path) -> None:
    ours, plain = pair(CompressedReplayBuffer)
    ours.sample(20)
    assert (ours.observations[:] == plain.observations[:]).all()
    ours.save(tmp_path / "buffer.sb3x")
    loaded = load_buffer(tmp_path / "buffer.sb3x", device="cpu")
    batches = []
    for one in (ours, loaded):
        np.random.seed(0)
        th.manual_seed(0)
        batches.append(one.sample(20))
    assert th.equal(batches[0].observations, batches[1].observations)


def test_shifts_go_with_normalized_images() -> None:
    ours, plain = pair(CompressedReplayBuffer, normalize_images=True)
    batch, expected = batches_of(ours, plain, lambda buffer: buffer.sample(10))
    assert th.equal(batch.observations, padded_and_cropped(expected.observations, drawn(10), PAD))


@pytest.mark.parametrize("pad", [-1, 1.5, True, "4", 12])
def test_what_is_no_shift_is_refused(pad: Any) -> None:
    with pytest.raises(ValueError, match=f"random_shift.*{pad}"):
        CompressedReplayBuffer(10, IMAGE, ACTIONS, random_shift=pad)


def test_observations_without_images_are_refused() -> None:
    with pytest.raises(ValueError, match=r"random_shift=4 needs images.*\(5,\)"):
        CompressedReplayBuffer(10, spaces.Box(-1, 1, (5,)), ACTIONS, random_shift=4)
    with pytest.raises(ValueError, match="takes batches of images"):
        random_shift(th.zeros(3, 4), 1)
    with pytest.raises(ValueError, match="number of pixels, got -1"):
        random_shift(th.zeros(1, 1, 8, 8), -1)


def test_dqn_learns_from_shifted_images() -> None:
    from stable_baselines3 import DQN
    from stable_baselines3.common.envs import FakeImageEnv

    env = FakeImageEnv(screen_height=40, screen_width=40, discrete=True)
    model = DQN(
        "CnnPolicy", env, buffer_size=100, learning_starts=20, replay_buffer_class=CompressedReplayBuffer,
        replay_buffer_kwargs={"random_shift": 4}, seed=0, device="cpu",
    )  # fmt: skip
    model.learn(60)
    assert model._n_updates > 0


@pytest.mark.parametrize("offline_pad", [0, PAD])
def test_offline_samples_are_shifted_once_too(offline_pad: int) -> None:
    from sb3_extra_buffers.datasets import OfflineMix

    class Mixed(OfflineMix, CompressedReplayBuffer): ...

    offline = filled(CompressedReplayBuffer(50, IMAGE, ACTIONS, "cpu", random_shift=offline_pad), IMAGE)
    plain = filled(CompressedReplayBuffer(50, IMAGE, ACTIONS, "cpu"), IMAGE)
    ours = filled(Mixed(50, IMAGE, ACTIONS, "cpu", random_shift=PAD, offline=offline, offline_fraction=0.5), IMAGE)
    np.random.seed(0)
    th.manual_seed(0)
    batch = ours.sample(20)
    np.random.seed(0)
    expected = [plain.sample(10), plain.sample(10)]  # fresh and offline hold the same
    th.manual_seed(0)
    shifts = [drawn(10) for _ in range(4)]  # fresh: observations and next ones; then the same of the offline part
    for name, fresh, recorded in (("observations", 0, 2), ("next_observations", 1, 3)):
        parts = [
            padded_and_cropped(getattr(expected[0], name), shifts[fresh], PAD),
            padded_and_cropped(getattr(expected[1], name), shifts[recorded], PAD),
        ]
        assert th.equal(getattr(batch, name), th.cat(parts))
