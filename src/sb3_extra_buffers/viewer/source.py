"""A path that is looked at: opened, and opened again when it has changed. What cannot be opened is kept as an error."""

from __future__ import annotations

import os
import threading
import zlib
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sb3_extra_buffers.segments.folders import LIST, is_checkpoint
from sb3_extra_buffers.segments.opening import open_stored
from sb3_extra_buffers.viewer.episodes import Episodes, find_episodes
from sb3_extra_buffers.viewer.experience import Experience
from sb3_extra_buffers.viewer.findings import Finding, findings
from sb3_extra_buffers.viewer.looking import Look, look_at
from sb3_extra_buffers.viewer.overview import memory, overview
from sb3_extra_buffers.viewer.pictures import Picture, looks_like_labels, picture_of


@dataclass
class State:
    """What is at a path at one moment. Whatever takes a while is found out when it is asked for."""

    version: str
    life: str
    experience: Experience
    episodes: Episodes

    @cached_property
    def overview(self) -> dict[str, Any]:
        """See `overview`."""
        return overview(self.experience, self.episodes)

    @cached_property
    def memory(self) -> dict[str, Any]:
        """See `memory`."""
        return memory(self.experience)

    @cached_property
    def look(self) -> Look:
        """Some observations from all over."""
        return look_at(self.experience, self.episodes, self.pictures)

    @cached_property
    def findings(self) -> list[Finding]:
        """What is probably wrong."""
        return list(findings(self.look))

    @cached_property
    def _samples(self) -> dict[str, NDArray[Any]]:
        """A few observations of each leaf, from the middle of the buffer: quickly read, for what a picture needs to know."""
        n = self.experience.n_steps
        at = np.unique(np.clip(n // 2 + np.arange(0, 128, 32), 0, n - 1)) if n else np.arange(0)
        return {key: self.experience.observations(key, 0, at) for key in self.experience.leaves}

    @cached_property
    def pictures(self) -> dict[str, Picture]:
        """The leaves that are seen as pictures."""
        space = self.experience.spaces.get("observation_space")
        found = {}
        for key, leaf in self.experience.leaves.items():
            sub = space.spaces.get(key) if isinstance(space, spaces.Dict) else space
            picture = picture_of(leaf, sub, self._samples[key])
            if picture is not None:
                found[key] = picture
        return found

    @cached_property
    def labels(self) -> list[str]:
        """The pictures whose pixels name classes."""
        return [key for key in self.pictures if looks_like_labels(key, self._samples[key])]


class Source:
    """A path that is followed.

    :param path: a file, or a checkpoint folder
    :param name: what the page calls it
    :param action_names: names of discrete actions, where the space has none
    """

    def __init__(self, path: Path, name: str, action_names: list[str] | None = None) -> None:
        self.path, self.name = path, name
        self._action_names = action_names
        self._lock = threading.Lock()
        self._stamp: Any = None
        self._state: State | None = None
        self._error: Exception | None = None

    @property
    def is_followed(self) -> bool:
        """Whether it is a folder that a training may write to."""
        return self.path.is_dir()

    def state(self) -> State:
        """What is there now. Raises what was wrong when it was last opened."""
        with self._lock:
            stamp = self._look()
            if stamp != self._stamp:
                self._open(stamp)
            if self._error is None and self._state is not None:
                return self._state
            raise self._error or FileNotFoundError(str(self.path))

    def _look(self) -> Any:
        """Something that changes when the path does."""
        watched = self.path / LIST if is_checkpoint(self.path) else self.path
        try:
            found = watched.stat()
        except OSError as error:
            return type(error).__name__
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _open(self, stamp: Any) -> None:
        before = self._state
        self._stamp, self._error = stamp, None
        files = ExitStack()
        try:
            stored = files.enter_context(open_stored(self.path))
            is_same = before is not None and stored.folder is not None and stored.life == before.life
            experience = Experience(stored, files, before.experience.cache if before is not None else None)
            self._name_actions(experience)
            episodes = find_episodes(experience, before.episodes if before is not None and is_same else None)
        except Exception as error:
            files.close()
            self._error = error
            return
        checksums = zlib.crc32(repr([run.segment.checksum for run in stored.runs]).encode())
        self._state = State(f"{checksums:08x}-{stored.n_steps}", stored.life, experience, episodes)
        # The files of the state before are closed when nobody reads from it any more.

    def _name_actions(self, experience: Experience) -> None:
        space = experience.spaces.get("action_space")
        if self._action_names is None or not isinstance(space, spaces.Discrete):
            return
        if len(self._action_names) != int(space.n):
            raise ValueError(f"{len(self._action_names)} action names were given; {self.path.name} has {int(space.n)} actions")
        space.names = self._action_names  # type: ignore[attr-defined]

    def close(self) -> None:
        """Let go of the files."""
        with self._lock:
            if self._state is not None:
                self._state.experience.close()


def names_of(paths: list[Path]) -> list[str]:
    """Short names that tell paths apart."""
    names = [path.name or str(path) for path in paths]
    if len(set(names)) == len(names):
        return names
    whole = [os.path.abspath(path) for path in paths]
    shared = len(os.path.commonpath(whole)) if len(set(whole)) > 1 else 0
    longer = [one[shared:].lstrip(os.sep) for one in whole]
    if len(set(longer)) == len(longer) and all(longer):
        return longer
    return [f"{name} ({i + 1})" for i, name in enumerate(names)]
