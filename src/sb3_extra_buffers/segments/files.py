"""Files that are replaced as a whole: after a crash or on a full disk, either the old or the new file is there."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

#: Suffix of unfinished files.
UNFINISHED = ".unfinished"


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, follow_links: bool = True) -> Iterator[BinaryIO]:
    """Write a new file, which replaces the old one when it is completely on the disk.

    After an exception, the old file is as it was, and the new one is removed.

    :param follow_links: replace what a link points to, not the link. Not in a folder that somebody else may have made
    """
    target = Path(os.path.realpath(path) if follow_links else path)
    if target.exists() and not target.is_file() and not target.is_dir():
        raise FileExistsError(errno.EEXIST, f"{path} is neither a file nor free: name another place")
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder: buffer.save(path) writes a file, buffer.checkpoint(folder) to a folder")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no folder {target.parent}. Make it first")
    unfinished = target.with_name(f"{target.name}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        with open(unfinished, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.is_file():
            shutil.copymode(target, unfinished)  # keep the permissions
        os.replace(unfinished, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        if isinstance(error, OSError) and error.filename in (None, str(unfinished)):
            raise type(error)(
                error.errno, f"{error.strerror}: {target} was not written, and what was there before is as it was"
            ) from error
        raise
    sync_folder(target.parent)


def is_pickle(path: str | os.PathLike[str]) -> bool:
    """Whether a file is none of this library's, but begins like a pickle."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        begin = file.read(2)
    return len(begin) == 2 and begin[0] == 0x80 and 2 <= begin[1] <= pickle.HIGHEST_PROTOCOL


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, if the system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
