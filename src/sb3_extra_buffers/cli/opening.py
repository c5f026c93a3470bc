"""A saved buffer of any kind: a file of segments, a checkpoint folder, or a pickle, which is asked about first."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sb3_extra_buffers.cli.output import Update, complain

#: OUT that ends so is written as a pickle, for `model.load_replay_buffer`.
PICKLE_SUFFIXES = (".pkl", ".pickle")


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Declare --trust."""
    parser.add_argument("--trust", action="store_true", help="open a pickle without asking; it can run any code that is in it")


def check_segments(path: Path) -> None:
    """ValueError unless there is a file that is no pickle, or a folder with segments."""
    from sb3_extra_buffers.segments.files import is_pickle
    from sb3_extra_buffers.segments.folders import LIST, is_checkpoint, segment_files

    if not path.exists():
        raise ValueError(f"No file {path}")
    if path.is_dir() and not is_checkpoint(path) and not segment_files(path):
        raise ValueError(f"{path} is a folder without a checkpoint: it has no {LIST} and no segments")
    if is_pickle(path):
        raise ValueError(
            f"{path} is a pickle, as model.save_replay_buffer writes it, and has no segments to look at. `sb3-extra-buffers "
            f"inspect {path}` opens it, which fails if it is damaged; `sb3-extra-buffers convert {path} buffer.sb3x` makes a "
            "file of it that can be verified and repaired"
        )


def bytes_of(path: Path) -> int:
    """Bytes of a saved buffer: of a checkpoint folder, those of the buffer's own files."""
    from sb3_extra_buffers.segments.scanning import files_of

    return sum(file.stat().st_size for file in files_of(path))


def open_buffer(path: Path, *, trust: bool, **sizes: Any) -> Any:
    """The buffer at a path, or an error that says why there is none.

    :param trust: open a pickle without asking
    :param sizes: keywords of `load_buffer`
    """
    from sb3_extra_buffers.segments.files import is_pickle

    if not path.exists():
        raise ValueError(f"No file {path}")
    if not is_pickle(path):
        from sb3_extra_buffers.persistence import load_buffer

        return load_buffer(path, device="cpu", truncate_last_traj=False, **sizes)  # which says so if the file is anything else
    if not trust:
        _ask(path)
    buffer = load_pickle(path)
    return _with_sizes(buffer, sizes) if sizes else buffer


def _ask(path: Path) -> None:
    question = f"{path} is a pickle, as model.save_replay_buffer writes it. Opening it can run any code that is in it"
    if not (sys.stdin is not None and sys.stdin.isatty()):
        raise ValueError(f"{question}: give --trust if you trust where it comes from")
    complain(f"{question}. Do you trust it? [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ValueError(f"{path} was not opened")


def load_pickle(path: Path) -> Any:
    """The buffer in a pickle."""
    from stable_baselines3.common.buffers import BaseBuffer
    from stable_baselines3.common.save_util import load_from_pkl

    try:
        with path.open("rb") as file:
            buffer = load_from_pkl(file)
    except Exception as error:  # unpickling damaged bytes raises anything at all
        raise ValueError(
            f"{path} cannot be opened as a saved replay buffer ({type(error).__name__}: {error}). "
            "Expected a file made by buffer.save or model.save_replay_buffer"
        ) from error
    if not isinstance(buffer, BaseBuffer):
        raise ValueError(f"{path} holds a {type(buffer).__name__}, not a buffer")
    return buffer


def _with_sizes(buffer: Any, sizes: dict[str, Any]) -> Any:
    """A buffer of this library with these sizes: through a file, which knows how."""
    import tempfile

    from sb3_extra_buffers.converting import compress_buffer
    from sb3_extra_buffers.persistence import load_buffer

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "buffer.sb3x"
        compress_buffer(buffer).save(path)
        return load_buffer(path, device="cpu", truncate_last_traj=False, **sizes)


def write_buffer(buffer: Any, path: Path) -> None:
    """Save a buffer: to a checkpoint folder if the path is a folder or has no suffix, as a pickle if it ends as one does."""
    if path.is_dir() or not path.suffix:
        if not hasattr(buffer, "checkpoint"):
            raise ValueError(
                f"A {type(buffer).__name__} is saved to a file, not to a checkpoint folder: name one, e.g. {path}.sb3x"
            )
        buffer.checkpoint(path)
    elif path.suffix in PICKLE_SUFFIXES:
        _write_pickle(buffer, path)
    else:
        buffer.save(path)


def _write_pickle(buffer: Any, path: Path) -> None:
    from stable_baselines3.common.buffers import ReplayBuffer
    from stable_baselines3.common.save_util import save_to_pkl

    from sb3_extra_buffers.segments.files import replacing

    if not isinstance(buffer, ReplayBuffer):
        raise ValueError(
            f"{path} would be a pickle for model.load_replay_buffer, and a {type(buffer).__name__} is no replay buffer. Let "
            "OUT end with .sb3x"
        )
    with replacing(path) as file:
        save_to_pkl(file, buffer)  # type: ignore[arg-type]


@contextmanager
def stage(update: Update, number: int, total: int, note: str) -> Iterator[None]:
    """Let a progress bar go on by 100, from 100 times the number of this stage, as bytes of segments are read or written.

    :param total: how many they will be, about
    """
    from sb3_extra_buffers.store.format import watcher

    done = 0

    def count(n_bytes: int) -> None:
        nonlocal done
        done += n_bytes
        update(100 * number + min(100 * done // max(total, 1), 99), note)

    before = watcher.set(count)
    try:
        yield
    finally:
        watcher.reset(before)
    update(100 * (number + 1), note)
