"""Find the damaged and the usable segments of a file or folder. Above: the commands `verify` and `repair`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.segments.folders import LIST, read_list, segment_files, take_changed
from sb3_extra_buffers.segments.runs import StoredBuffer, check_header
from sb3_extra_buffers.store.format import MAGIC, PART_BYTES, Segment


@dataclass
class Finding:
    """A segment, or a damaged part of one.

    :param where: file, and number of the segment in it
    :param problems: what is wrong with it; nothing if it can be used
    :param first: its first step, where that is known
    """

    where: str
    n_bytes: int
    segment: Segment | None = None
    problems: list[str] = field(default_factory=list)
    first: int = 0

    @property
    def is_usable(self) -> bool:
        """Whether it has steps."""
        return self._is_undamaged(is_changing=False)

    @property
    def is_newer_rows(self) -> bool:
        """Whether it has newer rows of arrays alone, e.g. of priorities, which a checkpoint keeps apart."""
        return self._is_undamaged(is_changing=True)

    def _is_undamaged(self, *, is_changing: bool) -> bool:
        return self.segment is not None and not self.problems and bool(self.segment.header.get("changing")) == is_changing

    @property
    def steps(self) -> int:
        """Number of usable steps."""
        return int(self.segment.header["count"]) if self.segment is not None and self.is_usable else 0


@contextmanager
def scan(path: Path) -> Iterator[Iterator[Finding]]:
    """All segments at a path, damaged or not, in order. Every checksum is verified. Segments can be read while this runs."""
    with ExitStack() as stack:
        if path.is_dir():
            yield _in_folder(path, stack)
        else:
            yield _in_file(stack.enter_context(open(path, "rb")), path.name)


def files_of(path: Path) -> list[Path]:
    """The files of a saved buffer that are there: of a checkpoint folder those of the buffer, without list and model."""
    if not path.is_dir():
        return [path]
    return [one for one in _listed(path)[0] if one.is_file()]


def usable(findings: list[Finding]) -> tuple[StoredBuffer, list[int]]:
    """A buffer of all undamaged segments, and the steps that are followed by a gap."""
    kept = [one for one in findings if one.is_usable]
    if not kept:
        raise CorruptDataError("No segment is undamaged: nothing can be saved")
    segments = [one.segment for one in kept if one.segment is not None]
    stored, gaps, n = StoredBuffer.of(segments), [], 0
    newest = max((one for one in findings if one.is_newer_rows), key=lambda one: one.first, default=None)
    if newest is not None and newest.segment is not None:
        take_changed(stored, [one.first for one in kept], newest.segment, newest.first)
    for one, following in zip(kept, [*kept[1:], None], strict=True):
        n += one.steps
        if following is not None and following.first != one.first + one.steps:
            gaps.append(n - 1)
    return stored, gaps


def _in_folder(folder: Path, stack: ExitStack) -> Iterator[Finding]:
    paths, firsts, problem = _listed(folder)
    if problem is not None:
        yield Finding(LIST, 0, None, [problem])
    for path in paths:
        if not path.is_file():
            yield Finding(path.name, 0, None, ["the file is missing"])
            continue
        for finding in _in_file(stack.enter_context(open(path, "rb")), path.name):  # noqa: SIM115
            finding.first = firsts[path.name]
            yield finding


def _listed(folder: Path) -> tuple[list[Path], dict[str, int], str | None]:
    """The files of a checkpoint, their first steps, and what is wrong with the list: then all segments are taken."""
    try:
        checkpoint = read_list(folder)
        entries = [*checkpoint.entries, *([checkpoint.changing] if checkpoint.changing is not None else [])]
        return [folder / entry.file for entry in entries], {entry.file: entry.first for entry in entries}, None
    except CorruptDataError as error:
        problem = str(error)
    except FileNotFoundError:
        problem = "the file is missing"
    paths = segment_files(folder)  # their names say where they begin: <life>-<first>-<count>-<token>.sb3x
    return paths, {path.name: int(path.name.split("-")[1]) for path in paths}, problem


def _in_file(file: BinaryIO, name: str) -> Iterator[Finding]:
    end = file.seek(0, 2)
    begin = number = 0
    while begin < end:
        number += 1
        where = f"{name}, segment {number}"
        try:
            segment = Segment(file, begin, end)
            check_header(segment)
        except CorruptDataError as error:
            following = _next_magic(file, begin + 1, end)
            yield Finding(where, following - begin, None, [str(error)])
            begin = following
            continue
        problems = [f"the checksum of {section!r} does not match" for section in segment.verify()]
        yield Finding(where, segment.end - begin, segment, problems, segment.header["first"])
        begin = segment.end
    if number == 0:
        yield Finding(name, 0, None, ["the file is empty"])


def _next_magic(file: BinaryIO, begin: int, end: int) -> int:
    """The offset where the next segment seems to begin, or the end."""
    while begin < end:
        file.seek(begin)
        part = file.read(PART_BYTES)
        at = part.find(MAGIC)
        if at >= 0:
            return begin + at
        if len(part) < PART_BYTES:
            break
        begin += len(part) - len(MAGIC) + 1
    return end
