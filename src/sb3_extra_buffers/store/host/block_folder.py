"""A folder for the blocks of one store, in a directory that a user named. Above: blocks. Below: the core, which writes there.

It is removed with the store, and at the end of the process. A killed process leaves its folders behind; the next store in the
same directory removes folders whose lock nobody holds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import IO, Any

try:
    import fcntl

    _HAS_LOCKS = True
except ImportError:  # Windows
    _HAS_LOCKS = False

_PREFIX = "sb3-extra-buffers-"
_LOCK = "owner.lock"
_MOST_TRIES = 100


class BlockFolder:
    """A folder that is removed when nothing refers to it any more.

    :param directory: given by the user; created if it does not exist
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        parent = Path(directory)
        try:
            parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(parent)
            self.path, lock = _locked_folder(parent)  # the lock is held as long as there is the folder
        except OSError as error:
            raise OSError(error.errno, f"Cannot keep blocks in directory={str(directory)!r}: {error.strerror}") from error
        self._finalizer = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def remove(self) -> None:
        """Remove it now."""
        self._finalizer()


def _locked_folder(parent: Path) -> tuple[Path, IO[Any]]:
    """A new folder, and its lock. Another process may take it for abandoned until it is locked: then, another one."""
    for _ in range(_MOST_TRIES):
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        lock: IO[Any] | None = None
        with contextlib.suppress(FileNotFoundError):
            lock = open(path / _LOCK, "wb")  # noqa: SIM115
            if (_try_lock(lock) or not _HAS_LOCKS) and (path / _LOCK).exists():
                return path, lock
        if lock is not None:
            lock.close()
    raise OSError(errno.EBUSY, f"{_MOST_TRIES} new folders were removed at once by others")


def _remove(path: Path, lock: IO[Any], owner: int) -> None:
    lock.close()
    if os.getpid() == owner:  # a forked child must not remove it
        shutil.rmtree(path, ignore_errors=True)


def _try_lock(file: IO[Any]) -> bool:
    """Try to take the lock. Where the system has no such locks, folders of killed processes stay."""
    if not _HAS_LOCKS:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_abandoned(directory: Path) -> None:
    for folder in directory.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), open(folder / _LOCK, "rb") as lock:
            if _try_lock(lock):
                shutil.rmtree(folder, ignore_errors=True)
