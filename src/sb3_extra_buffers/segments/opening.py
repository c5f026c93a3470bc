"""What is saved at a path, opened to be read: a file, or the newest complete state of a folder. Above: persistence, viewer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.segments.folders import is_checkpoint, open_checkpoint
from sb3_extra_buffers.segments.runs import StoredBuffer


@contextmanager
def open_stored(path: str | os.PathLike[str]) -> Iterator[StoredBuffer]:
    """A saved buffer, or the newest complete state of a checkpoint folder, to be read."""
    if is_checkpoint(path):
        with open_checkpoint(Path(path)) as stored:
            yield stored
        return
    if Path(path).is_dir():
        raise FileNotFoundError(f"{path} is a folder without a checkpoint: buffer.checkpoint(folder) writes one")
    if Path(path).exists() and not Path(path).is_file():
        raise CorruptDataError(f"{path} is no file: it cannot hold a buffer")
    with open(path, "rb") as file:
        try:
            yield StoredBuffer.of_file(file)
        except CorruptDataError as error:
            if _looks_like_pickle(Path(path)):
                raise CorruptDataError(
                    f"{path} looks like a pickle, as model.save_replay_buffer writes it. Only if you trust where it comes "
                    "from: read it with model.load_replay_buffer, then buffer.save(...) it"
                ) from None
            raise type(error)(f"{path}: {error}") from error


def _looks_like_pickle(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(1) == b"\x80"
