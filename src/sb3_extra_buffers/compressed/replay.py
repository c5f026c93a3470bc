"""Replay buffers: SB3's classes over columns. `obs` and `next_obs` share a store, so each frame is kept once.

So the saving of `optimize_memory_usage` is always there, with the true terminal observation. The buffers accept the argument
everywhere, also where SB3 refuses it, and ignore it. Better leave it out: SB3's algorithms then cut off the last episode when
`learn` is called again.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch as th
from gymnasium import spaces
from numpy import ndarray
from numpy.typing import NDArray
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from stable_baselines3.her.goal_selection_strategy import GoalSelectionStrategy
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from sb3_extra_buffers.compressed.add_view import view_for
from sb3_extra_buffers.compressed.augmentation import check_pad, shift_batch
from sb3_extra_buffers.compressed.batch_view import BatchView, can_be_viewed, is_known
from sb3_extra_buffers.compressed.episodes import forget_cut_episodes
from sb3_extra_buffers.compressed.limits import LimitedObservations
from sb3_extra_buffers.compressed.loading_warning import warn_of_uncompressed_files
from sb3_extra_buffers.compressed.mixin import CLOSED
from sb3_extra_buffers.compressed.options import CompressionOptions, ReplayOptions
from sb3_extra_buffers.compressed.sequences import SequenceSamples, check_windows, draw_windows, read_sequences, same_episode
from sb3_extra_buffers.compressed.signatures import constructor
from sb3_extra_buffers.store import BlockStore
from sb3_extra_buffers.store.locks import give_way, waiting_forks

warn_of_uncompressed_files()


class ReplayObservations(LimitedObservations):
    """The part that is specific to replay buffers: two columns, one store."""

    _column_names = ("observations", "next_observations")
    _made_by = -1
    _batch_view: BatchView | None = None
    _add_view: Any = None  # an AddView
    #: SB3's.
    actions: NDArray[Any]
    rewards: NDArray[Any]
    dones: NDArray[Any]
    timeouts: NDArray[Any]
    handle_timeout_termination: bool
    _options_class: ClassVar[type[CompressionOptions]] = ReplayOptions

    def _set_up(self, arguments: dict[str, Any]) -> None:
        """See `CompressedObservations`."""
        # SB3's trick of one array for both is not needed here, and it would lose the terminal observation (SB3 #934).
        is_optimized = arguments.pop("optimize_memory_usage", False)
        super()._set_up(arguments)
        check_pad(getattr(self._options, "random_shift", 0), [leaf.leaf for leaf in self._leaves.values()])
        if is_optimized and not self._is_dict:  # SB3's Dict buffers refuse it
            self._sb3_columns = 1
        self._made_by = os.getpid()
        if getattr(self._options, "keep", False):
            # All that the buffer holds must outlive it: `__del__` may come when the stores are freed already. At exit, too.
            weakref.finalize(self, _close, self._twin())

    def close(self) -> None:
        """Remove the files in `directory`, after a checkpoint there if `keep` is set. The buffer is empty afterwards.

        This also happens when the buffer is garbage or the process ends. With `keep`, nothing can be added afterwards. Without
        a `directory` it only empties the buffer.
        """
        self.wait_for_checkpoint()
        with self._lock:
            options, is_kept = self._options, self._is_kept()
            if is_kept and self._age > 0:  # one that never got a step replaces nothing, e.g. that of `DQN.load`
                self.checkpoint(vars(options)["directory"])
            vars(options)["keep"] = False
            self.reset()
            for leaf in self._leaves.values():
                leaf.clear()
                if isinstance(leaf.store, BlockStore):
                    leaf.store.let_go_of_files()
            if is_kept:
                self._interrupted = CLOSED

    def _is_kept(self) -> bool:
        """Whether a checkpoint has to be left in the directory. Only the process that made the buffer writes it."""
        return bool(getattr(self.__dict__.get("_options"), "keep", False)) and self._made_by == os.getpid()

    def _twin(self) -> ReplayObservations:
        """An object with the same attributes, now and later."""
        twin: ReplayObservations = object.__new__(type(self))
        twin.__dict__ = self.__dict__
        return twin

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any, *more: Any) -> None:
        """SB3's `add`. A transition that is refused changes no other. In a full buffer, the oldest may be damaged where SB3's
        code refuses, e.g. a wrong number of rewards: it is the one that the next `add` replaces.

        :param more: further arguments for a user's class after this one, which gets placeholders instead of observations
        """
        if waiting_forks:
            give_way()
        with self._lock:
            if self._interrupted is not None:
                self._make_up()
                if self._interrupted == CLOSED:
                    raise ValueError("The buffer was closed, and is kept in its directory: load_buffer(directory) to go on")
            if self._max_bytes is not None:
                self._keep_limit()
            stored, slot, age, view = self._stored, self.pos, self._age, self._add_view
            fits = (  # not in a method of the view: a call takes longer than the comparisons
                view is not None and slot == view.window.next_slot < view.window.stop and not more
                and self.actions is view.all_actions and self.rewards is view.all_rewards
                and self.dones is view.all_dones and self.timeouts is view.all_timeouts
            )  # fmt: skip
            is_direct = fits and view.takes_observations
            if not is_direct:
                stored.prepare(slot, (obs, next_obs))
                obs = next_obs = stored.placeholder
            elif not (type(obs) is type(next_obs) is ndarray and obs.dtype is next_obs.dtype is view.dtype):
                obs, next_obs = stored.checked((obs, next_obs))
            try:
                if fits:
                    view.pos, view.handle_timeout_termination = slot - view.window.first, self.handle_timeout_termination
                    view.add(view, obs, next_obs, action, reward, done, infos)
                    self.pos = view.window.next_slot = slot + 1
                    if self.pos == self.buffer_size:
                        self._complete_add(slot)
                        view.window.next_slot = 0
                else:
                    super().add(obs, next_obs, action, reward, done, infos, *more)
                if not is_direct:
                    stored.commit_step()
                    if not fits:
                        self._add_view = None if self._is_dict else view_for(self, super().add)
                self._age = age + 1
            except BaseException as error:
                self._interrupted, self._next_age = slot, age + 1
                self._make_up()
                if is_direct and isinstance(error, (TypeError, ValueError)):
                    stored.checked((obs, next_obs))  # says more than NumPy does of wrong shapes
                raise

    def _make_up(self) -> None:
        """See `CompressedObservations`."""
        slot, view = self._interrupted, self._add_view
        if view is not None and slot is not None and self.pos != slot == view.window.next_slot < view.window.stop:
            view.window.next_slot = slot + 1
        self._add_view = None
        super()._make_up()

    def _complete_add(self, slot: int) -> None:
        """See `CompressedObservations`."""
        if self.pos >= self.buffer_size:
            self.full = True
            self.pos = 0

    def _get_samples(self, batch_inds: NDArray[np.int64], env: VecNormalize | None = None) -> Any:
        """SB3's batch of these slots."""
        return self._run(super()._get_samples.__func__, batch_inds, env)  # type: ignore[safe-super,attr-defined]

    def _run(self, get_samples: Callable[..., Any], batch_inds: NDArray[np.int64], env: VecNormalize | None) -> Any:
        """The batch that this function makes. SB3's own gets a view of the buffer that is faster to read."""
        if env is not None or not is_known(get_samples):
            return get_samples(self, batch_inds, env)
        with self._lock:
            view = self._batch_view
            if view is None or not view.fits(self):
                if not can_be_viewed(self):
                    return get_samples(self, batch_inds, env)
                view = self._batch_view = BatchView(self)
            return view.run(get_samples, self, batch_inds)

    def _finish(self, batch: Any) -> Any:
        """See `CompressedObservations`. Shifts images, if that was asked for."""
        batch, pad = super()._finish(batch), getattr(self._options, "random_shift", 0)
        return shift_batch(batch, pad, {key: leaf.leaf for key, leaf in self._leaves.items()}) if pad else batch

    def sample_sequences(
        self,
        batch_size: int,
        length: int,
        burn_in: int = 0,
        across_episodes: bool = False,
        env: VecNormalize | None = None,
    ) -> SequenceSamples:
        """Draw sequences of consecutive steps; all that are in the buffer are equally likely.

        :param batch_size: number of sequences
        :param length: steps of each, those of `burn_in` included
        :param burn_in: of these, steps that a recurrent network only runs through, to get into its state. The `mask` is about
            the episode of the first step after them
        :param across_episodes: let the mask be true for all steps, also behind the end of an episode
        :param env: normalizes the batch, as in SB3
        """
        check_windows(batch_size, length, burn_in)

        def make_batch() -> SequenceSamples:
            steps, envs = draw_windows(self.size(), self.n_envs, batch_size, length)
            chosen = (self._oldest() + steps) % self.buffer_size
            ends = self.dones[chosen, envs[:, None]].astype(bool)
            mask = np.ones_like(ends) if across_episodes else same_episode(ends, burn_in)
            return read_sequences(self, chosen, envs, mask, env)

        return self._reading(make_batch, is_pairs=False)


def _close(twin: ReplayObservations) -> None:
    """When a buffer is gone: what it has left."""
    if twin._is_kept():
        twin.close()


class CompressedReplayBuffer(ReplayObservations, ReplayBuffer):
    """SB3's ReplayBuffer, with observations kept compressed.

    :param buffer_size: number of transitions, of all envs together
    :param observation_space: space of the observations
    :param action_space: space of the actions
    :param device: torch device of the batches
    :param n_envs: number of parallel envs
    :param optimize_memory_usage: accepted, but has no effect: each frame is stored once in any case
    :param handle_timeout_termination: do not treat a time limit as the end of an episode
    :param dtypes: ``dict(elem_type=..., runs_type=...)``, as `find_buffer_dtypes` makes it. ``elem_type`` asks to store
        another dtype than the space's, which may lose values; without it, nothing is lost
    :param normalize_images: divide images by 255 after sampling (the policy then needs ``normalize_images=False``)
    :param compression_method: codec, e.g. ``"zstd3"``; for Dict observations also one per key
    :param compression_kwargs: options of the codec, e.g. ``dict(level=3)``
    :param decompression_kwargs: accepted for old code; may hold the same options
    :param output_dtype: dtype of the batches: ``"raw"``, the space's own, or ``"float"``, float32
    :param frame_stack: frames in an observation, for Dict observations also one per key. ``"auto"`` detects it; 1 turns
        off the sharing of frames within a stack
    :param block_frames: frames that are compressed together; by default it depends on the size of a frame
    :param directory: keep compressed observations in files there, so that the buffer can be larger than memory
    :param keep: leave a checkpoint in the directory when the buffer is closed; `load_buffer(directory)` reads it
    :param max_memory: bytes that observations and arrays may take, e.g. ``"4GB"`` or ``"25%"`` of RAM: as many transitions
        are kept as fit, up to `buffer_size`
    :param random_shift: shift the images of each batch at random, by up to so many pixels, as DrQ does
    """

    _instead = "Use CompressedDictReplayBuffer"

    @constructor
    def __init__(
        self, buffer_size: int, observation_space: spaces.Space[Any], action_space: spaces.Space[Any],
        device: th.device | str = "auto", n_envs: int = 1, optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        dtypes: Mapping[str, Any] | None = None, normalize_images: bool = False,
        compression_method: str | Mapping[str, str] = "auto", compression_kwargs: Mapping[str, Any] | None = None,
        decompression_kwargs: Mapping[str, Any] | None = None, output_dtype: Literal["raw", "float"] = "raw",
        *, frame_stack: int | Literal["auto"] | Mapping[str, int | Literal["auto"]] = "auto", block_frames: int | None = None,
        directory: str | os.PathLike[str] | None = None, keep: bool = False, max_memory: int | str | None = None,
        random_shift: int = 0,
    ) -> None: ...  # fmt: skip


class CompressedDictReplayBuffer(ReplayObservations, DictReplayBuffer):
    """SB3's DictReplayBuffer, with observations kept compressed.

    :param buffer_size: number of transitions, of all envs together
    :param observation_space: space of the observations
    :param action_space: space of the actions
    :param device: torch device of the batches
    :param n_envs: number of parallel envs
    :param optimize_memory_usage: accepted, but has no effect: each frame is stored once in any case
    :param handle_timeout_termination: do not treat a time limit as the end of an episode
    :param dtypes: ``dict(elem_type=..., runs_type=...)``, as `find_buffer_dtypes` makes it. ``elem_type`` asks to store
        another dtype than the space's, which may lose values; without it, nothing is lost
    :param normalize_images: divide images by 255 after sampling (the policy then needs ``normalize_images=False``)
    :param compression_method: codec, e.g. ``"zstd3"``; for Dict observations also one per key
    :param compression_kwargs: options of the codec, e.g. ``dict(level=3)``
    :param decompression_kwargs: accepted for old code; may hold the same options
    :param output_dtype: dtype of the batches: ``"raw"``, the space's own, or ``"float"``, float32
    :param frame_stack: frames in an observation, for Dict observations also one per key. ``"auto"`` detects it; 1 turns
        off the sharing of frames within a stack
    :param block_frames: frames that are compressed together; by default it depends on the size of a frame
    :param directory: keep compressed observations in files there, so that the buffer can be larger than memory
    :param keep: leave a checkpoint in the directory when the buffer is closed; `load_buffer(directory)` reads it
    :param max_memory: bytes that observations and arrays may take, e.g. ``"4GB"`` or ``"25%"`` of RAM: as many transitions
        are kept as fit, up to `buffer_size`
    :param random_shift: shift the images of each batch at random, by up to so many pixels, as DrQ does
    """

    _instead = "Use CompressedReplayBuffer"

    @constructor
    def __init__(
        self, buffer_size: int, observation_space: spaces.Dict, action_space: spaces.Space[Any],
        device: th.device | str = "auto", n_envs: int = 1, optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        dtypes: Mapping[str, Any] | None = None, normalize_images: bool = False,
        compression_method: str | Mapping[str, str] = "auto", compression_kwargs: Mapping[str, Any] | None = None,
        decompression_kwargs: Mapping[str, Any] | None = None, output_dtype: Literal["raw", "float"] = "raw",
        *, frame_stack: int | Literal["auto"] | Mapping[str, int | Literal["auto"]] = "auto", block_frames: int | None = None,
        directory: str | os.PathLike[str] | None = None, keep: bool = False, max_memory: int | str | None = None,
        random_shift: int = 0,
    ) -> None: ...  # fmt: skip


class CompressedHerReplayBuffer(ReplayObservations, HerReplayBuffer):
    """SB3's HerReplayBuffer, with observations kept compressed.

    :param buffer_size: number of transitions, of all envs together
    :param observation_space: space of the observations
    :param action_space: space of the actions
    :param env: the training env, which computes the rewards of new goals
    :param device: torch device of the batches
    :param n_envs: number of parallel envs
    :param optimize_memory_usage: accepted, but has no effect: each frame is stored once in any case
    :param handle_timeout_termination: do not treat a time limit as the end of an episode
    :param n_sampled_goal: number of sampled transitions with a new goal per transition with its own
    :param goal_selection_strategy: how new goals are chosen: ``"future"``, ``"final"`` or ``"episode"``
    :param copy_info_dict: keep the infos and pass them to ``compute_reward``; slower
    :param dtypes: ``dict(elem_type=..., runs_type=...)``, as `find_buffer_dtypes` makes it. ``elem_type`` asks to store
        another dtype than the space's, which may lose values; without it, nothing is lost
    :param normalize_images: divide images by 255 after sampling (the policy then needs ``normalize_images=False``)
    :param compression_method: codec, e.g. ``"zstd3"``; for Dict observations also one per key
    :param compression_kwargs: options of the codec, e.g. ``dict(level=3)``
    :param decompression_kwargs: accepted for old code; may hold the same options
    :param output_dtype: dtype of the batches: ``"raw"``, the space's own, or ``"float"``, float32
    :param frame_stack: frames in an observation, for Dict observations also one per key. ``"auto"`` detects it; 1 turns
        off the sharing of frames within a stack
    :param block_frames: frames that are compressed together; by default it depends on the size of a frame
    :param directory: keep compressed observations in files there, so that the buffer can be larger than memory
    :param keep: leave a checkpoint in the directory when the buffer is closed; `load_buffer(directory)` reads it
    :param max_memory: bytes that observations and arrays may take, e.g. ``"4GB"`` or ``"25%"`` of RAM: as many transitions
        are kept as fit, up to `buffer_size`
    :param random_shift: shift the images of each batch at random, by up to so many pixels, as DrQ does
    """

    _instead = "Hindsight needs goals: for observations without them, use CompressedReplayBuffer"

    @constructor
    def __init__(
        self, buffer_size: int, observation_space: spaces.Dict, action_space: spaces.Space[Any], env: VecEnv,
        device: th.device | str = "auto", n_envs: int = 1, optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True, n_sampled_goal: int = 4,
        goal_selection_strategy: GoalSelectionStrategy | str = "future", copy_info_dict: bool = False,
        *, dtypes: Mapping[str, Any] | None = None, normalize_images: bool = False,
        compression_method: str | Mapping[str, str] = "auto", compression_kwargs: Mapping[str, Any] | None = None,
        decompression_kwargs: Mapping[str, Any] | None = None, output_dtype: Literal["raw", "float"] = "raw",
        frame_stack: int | Literal["auto"] | Mapping[str, int | Literal["auto"]] = "auto", block_frames: int | None = None,
        directory: str | os.PathLike[str] | None = None, keep: bool = False, max_memory: int | str | None = None,
        random_shift: int = 0,
    ) -> None: ...  # fmt: skip

    _draws_itself = True

    def _forget(self, slots: NDArray[np.int64]) -> None:
        """See `EvictingObservations`. An episode whose first steps are gone cannot be sampled, as SB3 has it."""
        first = int(slots[-1] + 1) % self.buffer_size
        self.ep_length[slots] = 0
        forget_cut_episodes(self, first)

    def _complete_add(self, slot: int) -> None:
        """See `CompressedObservations`. SB3 ends episodes when the transition is written."""
        super()._complete_add(slot)
        for env in np.flatnonzero(self.dones[slot]).tolist():
            self._compute_episode_length(env)


class CompressedNStepReplayBuffer(ReplayObservations, NStepReplayBuffer):
    """SB3's NStepReplayBuffer, with observations kept compressed.

    :param buffer_size: number of transitions, of all envs together
    :param observation_space: space of the observations
    :param action_space: space of the actions
    :param device: torch device of the batches
    :param n_envs: number of parallel envs
    :param optimize_memory_usage: accepted, but has no effect: each frame is stored once in any case
    :param handle_timeout_termination: do not treat a time limit as the end of an episode
    :param n_steps: number of steps whose rewards make up a return
    :param gamma: discount factor
    :param dtypes: ``dict(elem_type=..., runs_type=...)``, as `find_buffer_dtypes` makes it. ``elem_type`` asks to store
        another dtype than the space's, which may lose values; without it, nothing is lost
    :param normalize_images: divide images by 255 after sampling (the policy then needs ``normalize_images=False``)
    :param compression_method: codec, e.g. ``"zstd3"``; for Dict observations also one per key
    :param compression_kwargs: options of the codec, e.g. ``dict(level=3)``
    :param decompression_kwargs: accepted for old code; may hold the same options
    :param output_dtype: dtype of the batches: ``"raw"``, the space's own, or ``"float"``, float32
    :param frame_stack: frames in an observation, for Dict observations also one per key. ``"auto"`` detects it; 1 turns
        off the sharing of frames within a stack
    :param block_frames: frames that are compressed together; by default it depends on the size of a frame
    :param directory: keep compressed observations in files there, so that the buffer can be larger than memory
    :param keep: leave a checkpoint in the directory when the buffer is closed; `load_buffer(directory)` reads it
    :param max_memory: bytes that observations and arrays may take, e.g. ``"4GB"`` or ``"25%"`` of RAM: as many transitions
        are kept as fit, up to `buffer_size`
    :param random_shift: shift the images of each batch at random, by up to so many pixels, as DrQ does
    """

    _instead = "SB3 has no n-step buffer for Dict observations: use CompressedDictReplayBuffer, with single steps"
    _reads_together = False  # obs and next_obs are n steps apart

    @constructor
    def __init__(
        self, buffer_size: int, observation_space: spaces.Space[Any], action_space: spaces.Space[Any],
        device: th.device | str = "auto", n_envs: int = 1, optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *, n_steps: int = 3, gamma: float = 0.99, dtypes: Mapping[str, Any] | None = None, normalize_images: bool = False,
        compression_method: str | Mapping[str, str] = "auto", compression_kwargs: Mapping[str, Any] | None = None,
        decompression_kwargs: Mapping[str, Any] | None = None, output_dtype: Literal["raw", "float"] = "raw",
        frame_stack: int | Literal["auto"] | Mapping[str, int | Literal["auto"]] = "auto", block_frames: int | None = None,
        directory: str | os.PathLike[str] | None = None, keep: bool = False, max_memory: int | str | None = None,
        random_shift: int = 0,
    ) -> None: ...  # fmt: skip

    def _get_samples(self, batch_inds: NDArray[np.int64], env: VecNormalize | None = None) -> Any:
        """SB3's batch. SB3 changes the newest timeouts for a moment; after an error they are restored here."""
        newest = self.pos - 1
        timeouts = self.timeouts[newest].copy()
        try:
            return super()._get_samples(batch_inds, env)
        except BaseException:
            self.timeouts[newest] = timeouts
            raise
