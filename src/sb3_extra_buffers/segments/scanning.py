"""Find the damaged and the usable segments of a file or folder. Above: the commands `verify` and `repair`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.segments.folders import LIST, is_checkpoint, read_list
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
    def steps(self) -> int:
        """Number of usable steps."""
        return 0 if self.problems or self.segment is None else int(self.segment.header["count"])


@contextmanager
def scan(path: Path) -> Iterator[Iterator[Finding]]:
    """All segments at a path, damaged or not, in order. Every checksum is verified. Segments can be read while this runs."""
    with ExitStack() as stack:
        if is_checkpoint(path):
            yield _in_folder(path, stack)
        else:
            yield _in_file(stack.enter_context(open(path, "rb")), path.name)


def usable(findings: list[Finding]) -> tuple[StoredBuffer, list[int]]:
    """A buffer of all undamaged segments, and the steps that are followed by a gap."""
    kept = [one for one in findings if one.segment is not None and not one.problems]
    if not kept:
        raise CorruptDataError("No segment is undamaged: nothing can be saved")
    segments = [one.segment for one in kept if one.segment is not None]
    stored, gaps, n = StoredBuffer.of(segments), [], 0
    for one, following in zip(kept, [*kept[1:], None], strict=True):
        n += one.steps
        if following is not None and following.first != one.first + one.steps:
            gaps.append(n - 1)
    return stored, gaps


def _in_folder(folder: Path, stack: ExitStack) -> Iterator[Finding]:
    try:
        entries = read_list(folder).entries
        firsts = {entry.file: entry.first for entry in entries}
        paths = [folder / entry.file for entry in entries]
    except CorruptDataError as error:
        yield Finding(LIST, (folder / LIST).stat().st_size, None, [str(error)])
        paths, firsts = sorted(folder.glob("*.sb3x")), {}
    for path in paths:
        if not path.is_file():
            yield Finding(path.name, 0, None, ["the file is missing"])
            continue
        for finding in _in_file(stack.enter_context(open(path, "rb")), path.name):  # noqa: SIM115
            finding.first = firsts.get(path.name, _first_of_name(path.name))
            yield finding


def _first_of_name(name: str) -> int:
    """The first step of a segment, from the name of its file: ``<life>-<first>-<count>-<token>.sb3x``."""
    parts = name.split("-")
    return int(parts[1]) if len(parts) == 4 and parts[1].isdigit() else 0


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
