"""Files that are replaced as a whole: after a crash or on a full disk, either the old or the new file is there."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

#: Suffix of unfinished files.
UNFINISHED = ".unfinished"


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Write a new file, which replaces the old one when it is completely on the disk.

    After an exception, the old file is as it was, and the new one is removed.
    """
    target = Path(os.path.realpath(path))  # replace the target of a link, not the link
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
        if isinstance(error, OSError) and error.filename is None:
            raise type(error)(
                error.errno, f"{error.strerror}: {target} was not written, and what was there before is as it was"
            ) from error
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, if the system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
