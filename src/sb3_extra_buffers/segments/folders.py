"""Checkpoint folders: a file per segment, and one that lists them. Saving again writes only what is new.

    checkpoint.json              the newest complete state: the buffer, its files with checksums, and the other files
    <life>-<first>-<count>.sb3x  segments; steps are counted from the first one that the buffer ever got

Segments are written first, then the list is replaced, then files that it does not name are removed. So a crash at any moment
leaves either the old or the new state. A segment whose steps have changed is written again. Arrays that
change all the time, as priorities do, are written each time, to a file of their own.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import secrets
import sys
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from sb3_extra_buffers.errors import CorruptDataError, SegmentVersionError
from sb3_extra_buffers.segments.files import UNFINISHED, replacing
from sb3_extra_buffers.segments.runs import Contents, StoredBuffer, StoredRun, check_about, check_header
from sb3_extra_buffers.store.format import Segment

LIST = "checkpoint.json"
SUFFIX = ".sb3x"
VERSION = 1
_KIND = "sb3-extra-buffers checkpoint"
#: If the last file has fewer steps and fewer bytes, it is written again together with the new steps, so that files stay few.
_FEW_STEPS, _FEW_BYTES = 1000, 1 << 20
#: With so many files, everything is written again as fewer files: a process can only open some hundreds.
_MOST_FILES = 500
#: Names of files have so many digits for a step.
_MOST_STEPS = 10**12
#: How often reading is tried while another process writes to the folder.
_MOST_TRIES = 20
#: How often to look whether a thread has begun, a hundredth of a second apart.
_START_TRIES = 100
#: Names of files that a checkpoint may remove: those it has written, finished or not. All others belong to the user.
_SEGMENT_NAME = r"[0-9a-f]{12}-\d{12}-\d+-[0-9a-f]{8}\.sb3x"
_NAMES = rf"{_SEGMENT_NAME}|(model|vecnormalize)-\d+-[0-9a-f]{{8}}\.(zip|pkl)"
_OURS = re.compile(rf"{_NAMES}|({_NAMES}|checkpoint\.json)\.[0-9a-f]{{8}}{re.escape(UNFINISHED)}")


@dataclass(frozen=True)
class Entry:
    """A file of a checkpoint.

    :param first: its first step, counted from the first step ever added
    :param arrays: checksum of its arrays; if they have changed since, the file is written again
    """

    file: str
    bytes: int
    checksum: int
    first: int
    count: int
    arrays: int

    @property
    def last(self) -> int:
        return self.first + self.count


@dataclass
class Checkpoint:
    """The contents of the list."""

    life: str
    oldest: int
    buffer: dict[str, Any]
    entries: list[Entry] = field(default_factory=list)
    changing: Entry | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> bytes:
        said = {
            "kind": _KIND, "version": VERSION, "life": self.life, "oldest": self.oldest, "buffer": self.buffer,
            "files": [vars(entry) for entry in self.entries], "extra": self.extra,
            "changing": None if self.changing is None else vars(self.changing),
        }  # fmt: skip
        text = json.dumps(said, separators=(",", ":"), allow_nan=False)
        return json.dumps({"checksum": zlib.crc32(text.encode()), "state": text}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Checkpoint:
        try:
            outer = json.loads(data)
            text = outer["state"]
            if zlib.crc32(text.encode()) != outer["checksum"]:
                raise CorruptDataError(f"{LIST} is damaged: its checksum does not match")
            said = json.loads(text)
            if said["kind"] != _KIND:
                raise CorruptDataError(f"{LIST} is no list of a checkpoint")
            if said["version"] > VERSION:
                raise SegmentVersionError(
                    f"The checkpoint has version {said['version']}; this sb3-extra-buffers reads up to {VERSION}. Upgrade it"
                )
            entries = [Entry(**entry) for entry in said["files"]]
            changing = Entry(**said["changing"]) if said.get("changing") is not None else None
            files = [*entries, changing] if changing is not None else entries
            numbers = [n for one in files for n in (one.bytes, one.checksum, one.first, one.count, one.arrays)]
            if not all(type(n) is int and 0 <= n < _MOST_STEPS for n in [*numbers, said["oldest"]]):
                raise CorruptDataError(f"{LIST} is damaged: {numbers}")
            names, life = [one.file for one in files], said["life"]
            if not all(re.fullmatch(_SEGMENT_NAME, name) for name in names) or len(set(names)) < len(names):
                raise CorruptDataError(f"{LIST} is damaged: it names {names}")
            if not re.fullmatch(r"[0-9a-f]{12}", life) and (entries or life):  # it becomes part of file names
                raise CorruptDataError(f"{LIST} is damaged: it names the life {life!r}")
            if not isinstance(said["extra"], dict) or not isinstance(said["buffer"], dict):
                raise CorruptDataError(f"{LIST} is damaged")
            return cls(life, said["oldest"], said["buffer"], entries, changing, said["extra"])
        except CorruptDataError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptDataError(f"{LIST} is damaged: {type(error).__name__}: {error}") from error


def is_checkpoint(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder with a checkpoint."""
    return (Path(path) / LIST).is_file()


def segment_files(folder: Path) -> list[Path]:
    """The segments that checkpoints have written to a folder, also where no list names them."""
    return sorted(one for one in folder.glob(f"*{SUFFIX}") if re.fullmatch(_SEGMENT_NAME, one.name) and one.is_file())


def read_list(folder: Path) -> Checkpoint:
    """The list of a checkpoint folder. Errors name the folder."""
    try:
        return Checkpoint.from_json((folder / LIST).read_bytes())
    except CorruptDataError as error:
        raise type(error)(f"{folder}: {error}") from error


def write_list(folder: Path, extra: dict[str, Any]) -> None:
    """Write a checkpoint without a buffer, with only the extra entries."""
    checkpoint = Checkpoint("", 0, {}, extra=extra)
    with replacing(folder / LIST, follow_links=False) as file:
        file.write(checkpoint.to_json())
    remove_others(folder, checkpoint)


@contextmanager
def open_checkpoint(folder: Path) -> Iterator[StoredBuffer]:
    """Open the newest complete state of a folder. Another process may write there: open files stay readable."""
    with ExitStack() as stack:
        data, checkpoint, segments, changing = _open_all(folder, stack)
        check_about(checkpoint.buffer)
        stored = StoredBuffer.of(segments)
        expected = checkpoint.entries[0].first
        for entry, run in zip(checkpoint.entries, stored.runs, strict=True):
            if entry.first != expected or entry.count != run.count:
                raise CorruptDataError(f"{folder}: {entry.file} has {run.count} steps from {entry.first}; expected {expected}")
            expected += run.count
            run.where = entry.file
        stored.about = checkpoint.buffer
        stored.skipped = checkpoint.oldest - checkpoint.entries[0].first
        stored.folder, stored.life, stored.age = folder, checkpoint.life, expected
        stored.list_checksum = zlib.crc32(data)
        if not 0 <= stored.skipped <= stored.n_stored:
            raise CorruptDataError(f"{folder}: {LIST} names step {checkpoint.oldest}, which no file has")
        if changing is not None:
            check_header(changing)
            if changing.header["count"] != stored.n_steps:
                raise CorruptDataError(
                    f"A segment is damaged: {changing.header['count']} rows of arrays that change for {stored.n_steps} steps"
                )
            take_changed(stored, [entry.first for entry in checkpoint.entries], changing, checkpoint.oldest)
        yield stored


def take_changed(stored: StoredBuffer, firsts: list[int], changing: Segment, first: int) -> None:
    """Let runs have the newest rows of arrays that change.

    :param firsts: first steps of the runs, counted from the first one ever added
    :param changing: the segment with these rows
    :param first: its first step
    """
    newest = StoredRun(changing, 0)
    for name in stored.names("array"):
        if f"array/{name}" not in changing.names:
            continue
        rows = newest.array(name)
        for run, begin in zip(stored.runs, firsts, strict=True):
            changed, skipped = run.array(name).copy(), max(first - begin, 0)
            part = rows[max(begin - first, 0) : max(begin + run.count - first, 0)]
            if part.dtype != changed.dtype or part.shape != changed[skipped:].shape:
                raise CorruptDataError(f"A segment is damaged: {name!r} is {part.dtype} of {part.shape} in one of two files")
            changed[skipped:] = part
            run.changed[name] = changed


def _open_all(folder: Path, stack: ExitStack) -> tuple[bytes, Checkpoint, list[Segment], Segment | None]:
    """The list, as bytes too, and all its files. If another process writes a checkpoint in between, once more."""
    for _ in range(_MOST_TRIES):
        data = (folder / LIST).read_bytes()
        checkpoint = Checkpoint.from_json(data)
        if not checkpoint.entries:
            raise CorruptDataError(f"{folder} is a checkpoint of a model alone, without a buffer")
        try:
            with ExitStack() as opened:
                segments = [_open_entry(folder, entry, opened) for entry in checkpoint.entries]
                kept_apart = checkpoint.changing
                changing = None if kept_apart is None else _open_entry(folder, kept_apart, opened)
                stack.push(opened.pop_all())
                return data, checkpoint, segments, changing
        except CorruptDataError:
            if (folder / LIST).read_bytes() == data:
                raise
    raise CorruptDataError(f"{folder} is written to so often that it cannot be read. Copy it, and read the copy")


def _open_entry(folder: Path, entry: Entry, stack: ExitStack) -> Segment:
    path = folder / entry.file
    try:
        file = stack.enter_context(open(path, "rb"))  # noqa: SIM115
    except (FileNotFoundError, IsADirectoryError) as error:
        raise CorruptDataError(f"{folder} lacks {entry.file}; `sb3-extra-buffers repair` keeps what is there") from error
    end = file.seek(0, 2)
    try:
        segment = Segment(file, 0, end)
    except CorruptDataError as error:
        raise type(error)(f"{path}: {error}") from error
    if segment.end != end or segment.checksum != entry.checksum:
        raise CorruptDataError(f"{path} is another file than the one that {LIST} names")
    return segment


def _report_error(reference: weakref.ref[CheckpointWriter]) -> None:
    """At the end of the process, report an error of the background thread that nobody has seen."""
    writer = reference()
    if writer is not None and writer._error is not None:
        sys.stderr.write(f"The checkpoint in {writer.folder} was not written: {writer._error}\n")


class CheckpointWriter:
    """Writes checkpoints of one buffer to one folder.

    :param folder: created if it does not exist
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        # Life and state of the observations in the files, and the checksum of the list that describes them.
        self._trusted: tuple[str, Any, int] | None = None
        atexit.register(_report_error, weakref.ref(self))

    def write(
        self, contents: Contents, *, life: str, age: int, changes: Any, extra: dict[str, Any] | None, background: bool = False
    ) -> list[Path]:
        """Write a checkpoint. Returns the new files.

        :param life: of the buffer; with another one, no old file can be used
        :param age: number of steps ever added
        :param changes: how often observations were overwritten; if it changes, they are written anew
        :param extra: to be listed too, with the names of its own files as `files`; what is listed now if it is None
        :param background: return when all is copied; a thread writes it. `wait` raises what it has raised
        """
        self.wait()
        if extra is None:
            extra = self._listed_extra()
        elif not all(isinstance(name, str) for name in extra.get("files", [])):
            raise TypeError(f"extra['files'] must be names of files, got {extra['files']!r}")
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"{self.folder} is a file: a checkpoint needs a folder, buffer.save(path) writes a file")
        self.folder.mkdir(parents=True, exist_ok=True)
        oldest = age - contents.n_steps
        entries: list[Entry] = []
        new: list[tuple[Entry, BytesIO | None]] = []
        for one in self._planned(contents, life, oldest, changes):
            if isinstance(one, Entry):
                entries.append(one)
                continue
            new.append(self._segment(contents, *one, life, oldest, {}, in_memory=background))
            entries.append(new[-1][0])
        changing = None
        if contents.changing:
            arrays = {name: contents.arrays[name] for name in contents.changing}
            changed = replace(contents, arrays=arrays, objects={}, leaves={}, whole={})
            new.append(self._segment(changed, 0, contents.n_steps, life, oldest, {"changing": True}, in_memory=background))
            changing = new[-1][0]
        buffer = {**contents.about, "age": age, "life": life}
        checkpoint = Checkpoint(life, oldest, buffer, entries, changing, extra)
        self._trusted = None

        def finish() -> None:
            for entry, data in new:
                if data is not None:
                    with replacing(self.folder / entry.file, follow_links=False) as file:
                        file.write(data.getbuffer())
            listed = checkpoint.to_json()
            with replacing(self.folder / LIST, follow_links=False) as file:
                file.write(listed)
            self.trust(life, changes, zlib.crc32(listed))
            remove_others(self.folder, checkpoint)

        if background:
            self._start(finish)
        else:
            finish()
        return [self.folder / entry.file for entry, _ in new]

    def wait(self) -> None:
        """Wait for the background thread. Raises its error."""
        if self._thread is not None:
            for _ in range(_START_TRIES):  # Ctrl-C may have come while it started, and before it says so
                if self._thread.ident is not None:
                    self._thread.join()  # dropped only when it has ended: it must not run beside the next one
                    break
                time.sleep(0.01)
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def trust(self, life: str, changes: Any, checksum: int) -> None:
        """The files of the list with this checksum hold what the buffer holds."""
        self._trusted = life, changes, checksum

    def _start(self, finish: Callable[[], None]) -> None:
        def run() -> None:
            try:
                finish()
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=run, name="checkpoint")  # not a daemon: the interpreter waits for it
        try:
            self._thread.start()
        except RuntimeError as error:  # the system has no thread left
            self._thread = None
            raise RuntimeError(f"{error}: the checkpoint in {self.folder} was not written") from error

    def _segment(
        self, contents: Contents, first: int, last: int, life: str, oldest: int, header: dict[str, Any], *, in_memory: bool
    ) -> tuple[Entry, BytesIO | None]:
        # Never the name of a file in the last list, which must stay unchanged until the next list is there.
        name = f"{life}-{oldest + first:012d}-{last - first}-{secrets.token_hex(4)}{SUFFIX}"
        run, arrays = contents.run(first, last), _arrays_checksum(contents, first, last)
        if in_memory:
            data = BytesIO()
            checksum, size = run.write(data, header, with_whole=True), data.tell()
        else:
            data = None
            with replacing(self.folder / name, follow_links=False) as file:
                checksum, size = run.write(file, header, with_whole=True), file.tell()
        return Entry(name, size, checksum, oldest + first, last - first, arrays), data

    def _planned(self, contents: Contents, life: str, oldest: int, changes: Any) -> list[Entry | tuple[int, int]]:
        """Files of the last checkpoint that stay, and ranges of steps to write, in order."""
        old = [entry for entry in self._old_entries(life, changes) if entry.last > oldest]
        if len(old) >= _MOST_FILES:
            old = []
        last = old[-1] if old else None
        end = oldest + contents.n_steps
        if last is not None and last.last < end and last.count < _FEW_STEPS and last.bytes < _FEW_BYTES:
            old.pop()
        planned: list[Entry | tuple[int, int]] = []
        at = oldest
        for entry in old:
            # differs from the buffer: everything after it is written again
            if max(entry.first, oldest) != at or entry.last > end:
                break
            is_same = self._has_same_arrays(contents, entry, oldest)
            planned += [entry] if is_same else contents.edges(at - oldest, entry.last - oldest)
            at = entry.last
        if at < end or not planned:
            planned += contents.edges(at - oldest, contents.n_steps)
        return planned

    def _listed_extra(self) -> dict[str, Any]:
        """What the folder's list has beside a buffer, e.g. a model: it is not lost with the next one."""
        try:
            return read_list(self.folder).extra
        except (OSError, CorruptDataError):
            return {}

    def _old_entries(self, life: str, changes: Any) -> list[Entry]:
        try:
            data = (self.folder / LIST).read_bytes()
            if self._trusted != (life, changes, zlib.crc32(data)):
                return []
            return Checkpoint.from_json(data).entries
        except (OSError, CorruptDataError):
            return []

    def _has_same_arrays(self, contents: Contents, entry: Entry, oldest: int) -> bool:
        """Whether a file is there and the arrays of its steps are unchanged."""
        path = self.folder / entry.file
        first, last = entry.first - oldest, entry.last - oldest
        if first >= 0:
            is_there = path.is_file() and path.stat().st_size == entry.bytes
            return is_there and _arrays_checksum(contents, first, last) == entry.arrays
        try:  # its first steps were overwritten: compare the others
            with ExitStack() as stack:
                segment = _open_entry(self.folder, entry, stack)
                slots = contents.slots[:last]
                return all(
                    segment.array(f"array/{name}")[-first:].tobytes() == array[slots].tobytes()
                    for name, array in contents.arrays.items()
                    if name not in contents.changing
                )
        except CorruptDataError:
            return False


def remove_others(folder: Path, checkpoint: Checkpoint) -> None:
    """Remove files that the list no longer names, and leftovers of crashes."""
    named = {entry.file for entry in checkpoint.entries} | set(checkpoint.extra.get("files", ()))
    if checkpoint.changing is not None:
        named.add(checkpoint.changing.file)
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name) and path.name not in named:
            with suppress(OSError):
                path.unlink()


def _arrays_checksum(contents: Contents, first: int, last: int) -> int:
    crc = 0
    for name in sorted(set(contents.arrays) - set(contents.changing)):
        crc = zlib.crc32(
            np.ascontiguousarray(contents.arrays[name][contents.slots[first:last]]).reshape(-1).view(np.uint8), crc
        )
    return crc
