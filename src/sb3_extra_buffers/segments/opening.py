"""What is saved at a path, opened to be read: a file, or the newest complete state of a folder. Above: persistence, viewer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.segments.files import is_pickle
from sb3_extra_buffers.segments.folders import LIST, is_checkpoint, open_checkpoint, segment_files
from sb3_extra_buffers.segments.runs import StoredBuffer


@contextmanager
def open_stored(path: str | os.PathLike[str]) -> Iterator[StoredBuffer]:
    """A saved buffer, or the newest complete state of a checkpoint folder, to be read. Errors name it."""
    try:
        with open_checkpoint(Path(path)) if is_checkpoint(path) else _open_file(Path(path)) as stored:
            yield stored
    except CorruptDataError as error:
        is_named = str(error).startswith(str(Path(path)))
        raise type(error)(str(error) if is_named else f"{path}: {error}") from error


@contextmanager
def _open_file(path: Path) -> Iterator[StoredBuffer]:
    if path.is_dir():
        raise FileNotFoundError(
            f"{path} is a folder without a checkpoint: it has no {LIST}, which buffer.checkpoint(folder) writes"
            + (f". It has segments: `sb3-extra-buffers repair {path} OUT` keeps them" if segment_files(path) else "")
        )
    if path.exists() and not path.is_file():
        raise CorruptDataError(f"{path} is no file: it cannot hold a buffer")
    with open(path, "rb") as file:
        if is_pickle(path):
            raise CorruptDataError(
                f"{path} looks like a pickle, as model.save_replay_buffer writes it. Only if you trust where it comes "
                "from: read it with model.load_replay_buffer, then buffer.save(...) it"
            )
        yield StoredBuffer.of_file(file)
