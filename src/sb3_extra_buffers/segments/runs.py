"""Runs: consecutive steps of a buffer with all their arrays and observations, live or in a file.

    buffer -> Contents -> run -> segment -> file        saving, checkpoints
    file -> segment -> run -> Contents -> buffer        loading, also with other sizes
    buffer -> Contents -> run -> Contents -> buffer     merging, slicing

`Contents` describes a buffer independently of its class. Steps are numbered from the oldest one on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.segments.values import value_from_json, value_to_json
from sb3_extra_buffers.store.base import Store
from sb3_extra_buffers.store.extract import Extract
from sb3_extra_buffers.store.format import Section, Segment, segments_in, write_segment
from sb3_extra_buffers.store.host.blocks import BlockStore
from sb3_extra_buffers.store.leaf import LeafStore

Ints = NDArray[np.int64]

KIND = "sb3-extra-buffers"
#: Approximate bytes of a segment. Damage to one segment leaves the others readable.
_SEGMENT_BYTES = 16 << 20
#: Blocks at the edges of segments are in both: a segment has at least the bytes of so many blocks of each env.
_LEAST_BLOCKS = 32
_USUAL_BLOCK_FRAMES = 16
#: Every step has a byte at least, and zlib makes no more than so many of one.
_MOST_STEPS_PER_BYTE = 1032


@dataclass
class Contents:
    """The parts of a buffer.

    :param about: class, arguments, spaces and state, as JSON
    :param slots: the slots of its steps, oldest first
    :param n_envs: cells of a step
    :param arrays: by step: ``(slots, ...)``
    :param objects: the same, of values that JSON can hold
    :param whole: arrays that belong to no step
    :param changing: names of arrays whose rows change later on, as priorities do
    :param leaves: the observations; cell ``slot * n_envs + env``
    """

    about: dict[str, Any]
    slots: Ints
    n_envs: int
    arrays: dict[str, NDArray[Any]]
    leaves: dict[str, LeafStore]
    objects: dict[str, NDArray[Any]] = field(default_factory=dict)
    whole: dict[str, NDArray[Any]] = field(default_factory=dict)
    changing: tuple[str, ...] = ()

    @property
    def n_steps(self) -> int:
        return len(self.slots)

    def cells(self, first: int = 0, last: int | None = None) -> Ints:
        """The cells of steps."""
        slots = self.slots[first:last]
        cells: Ints = (slots[:, None] * self.n_envs + np.arange(self.n_envs)).reshape(-1)
        return cells

    def run(self, first: int, last: int) -> LiveRun:
        """The steps from `first` to the one before `last`."""
        return LiveRun(self, first, last - first)

    def runs(self) -> list[LiveRun]:
        """All steps, in runs of the size of a segment. One run without steps if there are none."""
        return [self.run(first, last) for first, last in self.edges(0, self.n_steps)]

    def edges(self, first: int, last: int) -> list[tuple[int, int]]:
        """Where to cut these steps into runs of the size of a segment."""
        stored = sum(leaf.store.memory_usage().stored_bytes for leaf in self.leaves.values())
        stored += sum(array[self.slots[:1]].nbytes * self.n_steps for array in self.arrays.values())
        at_an_edge = self.n_envs * sum(_block_bytes(leaf.store) for leaf in self.leaves.values())
        per_step = max(stored // max(self.n_steps, 1), 1)
        steps = max(max(_SEGMENT_BYTES, _LEAST_BLOCKS * at_an_edge) // per_step, 1)
        n = max(-(-(last - first) // steps), 1)
        edges = [first + (last - first) * i // n for i in range(n + 1)]
        return list(pairwise(edges))


def _block_bytes(store: Store) -> int:
    """What a block takes, about, with the frame that it may be encoded against."""
    usage, frame = store.memory_usage(), store.layout.frame_bytes
    if isinstance(store, BlockStore) and usage.blocks:
        return usage.stored_bytes // usage.blocks + frame
    return (_USUAL_BLOCK_FRAMES + 1) * frame  # what is kept otherwise is encoded for the file


class Run(Protocol):
    """Consecutive steps."""

    first: int
    count: int

    def array(self, name: str) -> NDArray[Any]:
        """``(count, ...)``."""

    def objects(self, name: str) -> NDArray[Any]:
        """``(count, n_envs)``."""

    def extract(self, key: str) -> Any:
        """A context with the `Extract` of a leaf: ``count * n_envs`` cells."""


class LiveRun:
    """Steps of a buffer, whose lock the caller must hold."""

    def __init__(self, contents: Contents, first: int, count: int) -> None:
        self.contents, self.first, self.count = contents, first, count

    @property
    def slots(self) -> Ints:
        return self.contents.slots[self.first : self.first + self.count]

    def array(self, name: str) -> NDArray[Any]:
        return self.contents.arrays[name][self.slots]

    def objects(self, name: str) -> NDArray[Any]:
        return self.contents.objects[name][self.slots]

    @contextmanager
    def extract(self, key: str) -> Iterator[Extract]:
        with self.contents.leaves[key].extract(self.contents.cells(self.first, self.first + self.count)) as extract:
            yield extract

    def write(self, file: BinaryIO, header: dict[str, Any], *, with_whole: bool) -> int:
        """Write a segment with these steps. Returns its checksum.

        :param header: further entries of the header
        :param with_whole: also write arrays that belong to no step
        """
        contents, leaves, sections = self.contents, {}, []
        for name in contents.arrays:
            sections.append(Section.of(f"array/{name}", self.array(name)))
        for name in contents.objects:
            said = json.dumps([value_to_json(one, name) for one in self.objects(name).reshape(-1)], allow_nan=True).encode()
            sections.append(Section.of(f"object/{name}", np.frombuffer(said, np.uint8)))
        for name, array in contents.whole.items() if with_whole else ():
            sections.append(Section.of(f"whole/{name}", array))
        with _all_of({key: self.extract(key) for key in contents.leaves}) as extracts:
            for key, extract in extracts.items():
                leaves[key] = extract.about()
                sections += extract.sections(f"leaf/{key}")
            about = {"kind": KIND, "buffer": contents.about, "first": self.first, "count": self.count}
            return write_segment(file, {**about, **header, "leaves": leaves}, sections)


@contextmanager
def _all_of(contexts: dict[str, Any]) -> Iterator[dict[str, Extract]]:
    with ExitStack() as stack:
        yield {key: stack.enter_context(one) for key, one in contexts.items()}


def write_buffer(file: BinaryIO, contents: Contents) -> None:
    """Write a buffer as segments, one after the other. Each names the previous one."""
    runs, checksum = contents.runs(), None
    for i, run in enumerate(runs):
        header = {"part": i, "parts": len(runs), "after": checksum}
        checksum = run.write(file, header, with_whole=i == len(runs) - 1)


# ---- reading


class StoredRun:
    """Steps in a segment.

    :param where: the file that it is in, if there are several: errors name it
    """

    def __init__(self, segment: Segment, first: int, where: str = "") -> None:
        self.segment, self.first, self.where = segment, first, where
        self.count: int = segment.header["count"]
        self.n_envs: int = segment.header["buffer"]["n_envs"]
        #: What has changed since the segment was written.
        self.changed: dict[str, NDArray[Any]] = {}

    def array(self, name: str) -> NDArray[Any]:
        if name in self.changed:
            return self.changed[name]
        with self.naming_file():
            array = self.segment.array(f"array/{name}")
        if array.ndim < 1 or len(array) != self.count:
            raise CorruptDataError(f"A segment is damaged: {name!r} has the shape {array.shape}, for {self.count} steps")
        return array

    def names(self) -> set[str]:
        """Names of the sections that every run of a buffer has."""
        return {name for name in self.segment.names if name.startswith(("array/", "object/"))}

    @contextmanager
    def naming_file(self) -> Iterator[None]:
        """Let errors about what is read say which file it is in."""
        try:
            yield
        except CorruptDataError as error:
            raise type(error)(f"{self.where}: {error}" if self.where else str(error)) from error

    def objects(self, name: str) -> NDArray[Any]:
        with self.naming_file():
            said = self.segment.array(f"object/{name}", np.uint8, (None,)).tobytes()
        try:
            values = [value_from_json(one) for one in json.loads(said)]
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise CorruptDataError(f"A segment is damaged: {name!r} cannot be read: {error}") from error
        if len(values) != self.count * self.n_envs:
            raise CorruptDataError(f"A segment is damaged: {name!r} has {len(values)} values for {self.count} steps")
        out = np.empty(len(values), object)
        out[:] = values
        return out.reshape(self.count, self.n_envs)

    @contextmanager
    def extract(self, key: str) -> Iterator[Extract]:
        leaves = self.segment.header.get("leaves")
        if not isinstance(leaves, dict) or key not in leaves:
            raise CorruptDataError(f"A segment holds no {key!r}")
        with self.naming_file():
            extract = Extract.of_segment(self.segment, f"leaf/{key}", leaves[key])
            if len(extract.heads) != self.count * self.n_envs:
                raise CorruptDataError(
                    f"A segment is damaged: {key!r} has {len(extract.heads)} observations for {self.count} steps"
                )
            yield extract


@dataclass
class StoredBuffer:
    """A buffer in one or more files: its runs in order, and the description in the newest of them."""

    about: dict[str, Any]
    runs: list[StoredRun]
    #: Number of steps at the beginning of the first run that the ring has overwritten since.
    skipped: int = 0
    #: For a checkpoint: the state to continue from.
    folder: Path | None = None
    life: str = ""
    age: int = 0
    list_checksum: int = 0

    @property
    def n_stored(self) -> int:
        """Steps in the runs."""
        return sum(run.count for run in self.runs)

    @property
    def n_steps(self) -> int:
        """Number of steps of the buffer, which are the last ones in the runs."""
        return self.n_stored - self.skipped

    def names(self, kind: str) -> list[str]:
        """Names of the sections of a kind, in the newest segment."""
        return [name.removeprefix(f"{kind}/") for name in self.runs[-1].segment.names if name.startswith(f"{kind}/")]

    def array(self, name: str) -> NDArray[Any]:
        """An array over all steps."""
        return np.concatenate([run.array(name) for run in self.runs])[self.skipped :]

    def whole(self, name: str) -> NDArray[Any]:
        """An array that belongs to no step."""
        with self.runs[-1].naming_file():
            return self.runs[-1].segment.array(f"whole/{name}")

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> StoredBuffer:
        """From segments in order."""
        runs: list[StoredRun] = []
        for segment in segments:
            check_header(segment)
            runs.append(StoredRun(segment, sum(run.count for run in runs)))
        if not runs:
            raise CorruptDataError("There are no segments")
        newest = runs[-1].segment.header["buffer"]
        for run in runs:
            if run.n_envs != newest["n_envs"] or run.segment.header["buffer"]["class"] != newest["class"]:
                raise CorruptDataError("The segments are not of one buffer: they differ in class or number of envs")
            if run.names() != runs[-1].names():
                raise CorruptDataError("The segments are not of one buffer: they differ in what they hold of a step")
        return cls(newest, runs)

    @classmethod
    def of_file(cls, file: BinaryIO) -> StoredBuffer:
        """From a complete file of `write_buffer`."""
        segments = list(segments_in(file))
        checksum, parts = None, segments[0].header.get("parts")
        for i, segment in enumerate(segments):
            header = segment.header
            if header.get("part") != i or header.get("parts") != parts or header.get("after") != checksum:
                raise CorruptDataError(f"Segment {i + 1} does not belong where it stands: the file was put together wrongly")
            checksum = segment.checksum
        if len(segments) != parts:
            raise CorruptDataError(f"The file is cut off: it has {len(segments)} of {parts} segments")
        return cls.of(segments)


def check_header(segment: Segment) -> None:
    """Raise CorruptDataError unless a segment belongs to a buffer."""
    header = segment.header
    buffer = header.get("buffer")
    if header.get("kind") != KIND or not isinstance(buffer, dict):
        raise CorruptDataError("The file holds no buffer")
    numbers = [header.get("count"), header.get("first")]
    if not all(type(one) is int and 0 <= one < 2**40 for one in numbers):
        raise CorruptDataError(f"A segment is damaged: it says {numbers} of its steps")
    if header["count"] > _MOST_STEPS_PER_BYTE * (segment.end - segment.begin):
        raise CorruptDataError(f"A segment is damaged: {header['count']} steps are more than its bytes can hold")
    check_about(buffer)
    for one in header["sections"]:  # before memory is allocated for so many steps
        rows = header["count"] * (buffer["n_envs"] if one["name"].endswith("/heads") else 1)
        shape, is_by_step = one.get("shape"), one["name"].startswith("array/") or one["name"].endswith("/heads")
        if is_by_step and (not isinstance(shape, list) or shape[:1] != [rows]):
            raise CorruptDataError(f"A segment is damaged: {one['name']!r} has the shape {shape} for {header['count']} steps")


def check_about(buffer: dict[str, Any]) -> None:
    """Raise CorruptDataError unless a buffer is described by a class and its sizes."""
    numbers = [buffer.get("n_envs"), buffer.get("slots")]
    if not all(type(one) is int and 0 <= one < 2**40 for one in numbers) or buffer["n_envs"] < 1:
        raise CorruptDataError(f"A segment is damaged: it says {numbers} of its envs and slots")
    if not isinstance(buffer.get("class"), str):
        raise CorruptDataError("A segment is damaged: it names no class")


Made = TypeVar("Made")


def make_from_file(made_class: Callable[..., Made], about: dict[str, Any]) -> Made:
    """An empty object as a file describes it. CorruptDataError if that cannot be made."""
    arguments = about.get("arguments")
    if not isinstance(arguments, dict):
        raise CorruptDataError("A file describes no arguments of what it holds")
    try:
        return made_class(**{name: tuple(one) if isinstance(one, list) else one for name, one in arguments.items()})
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        raise CorruptDataError(f"The file describes something that cannot be made: {type(error).__name__}: {error}") from error


# ---- putting steps into a buffer


def put_run(target: Contents, run: Run, to: Ints, *, encode: bool = False) -> None:
    """Put steps into cells of a buffer.

    :param to: ``(count, n_envs)``: the cell of each step and env; -1 for those that are left out. With the same number of
        envs, whole steps go to whole slots
    :param encode: encode observations again
    """
    kept = to.reshape(-1) >= 0
    if not kept.any():
        return
    cells, rows = to.reshape(-1)[kept], None if kept.all() else np.flatnonzero(kept)
    n_envs = to.shape[1]
    for key, leaf in target.leaves.items():
        with run.extract(key) as extract:
            leaf.put(cells, extract, rows=rows, encode=encode)
    by_step = n_envs == target.n_envs
    steps = np.flatnonzero(to[:, 0] >= 0)
    for name, array in target.arrays.items():
        _put(array, run.array(name), to, by_step, steps, name)
    for name, array in target.objects.items():
        _put(array, run.objects(name), to, by_step, steps, name)


def _put(array: NDArray[Any], values: NDArray[Any], to: Ints, by_step: bool, steps: Ints, name: str) -> None:
    if values.dtype != array.dtype or values.shape[1:] != (array.shape[1:] if by_step else (to.shape[1], *array.shape[2:])):
        raise CorruptDataError(
            f"{name!r} has {values.dtype} of shape {values.shape[1:]} per step; "
            f"the buffer keeps {array.dtype} of {array.shape[1:]}"
        )
    if by_step:
        array[to[steps, 0] // to.shape[1]] = values[steps]
        return
    kept = to.reshape(-1) >= 0
    array.reshape(-1, *array.shape[2:])[to.reshape(-1)[kept]] = values.reshape(-1, *values.shape[2:])[kept]
