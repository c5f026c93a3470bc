"""The store of a leaf. The first observations wait until they show how they are stacked; then the store is built, once.

The detected stack only affects memory: the store compares every observation and always returns the bytes that were written.
Above: array views and the buffers. Below: detect, which finds the layout, and the stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.native.binding import core
from sb3_extra_buffers.store.base import Cells, Store
from sb3_extra_buffers.store.detect import FrameDetector, StorePlan, WaitingStore
from sb3_extra_buffers.store.extract import Extract, extract_of, put_extract
from sb3_extra_buffers.store.format import segments_in, write_segment
from sb3_extra_buffers.store.host.rows import RowStore
from sb3_extra_buffers.store.layout import FrameLayout
from sb3_extra_buffers.store.locks import new_lock


class LeafStore:
    """A plan, and the store of the leaf's observations. Readers and writers must hold `lock`.

    :param plan: what is known about the leaf
    """

    def __init__(self, plan: StorePlan) -> None:
        core()  # a missing library is an error now, not at the first `add`
        self.plan = plan
        self.lock = new_lock()
        layouts = plan.storable_layouts()
        self._detector = FrameDetector(layouts, plan.n_streams) if len(layouts) > 1 else None
        #: A WaitingStore until the layout is known, then the store that the plan builds.
        self.store: Store = WaitingStore(layouts[-1], plan) if self._detector else plan.build(layouts[0])
        #: Whether observations are so small that they are kept as they are.
        self.has_rows = isinstance(self.store, RowStore)
        #: Writes other than of steps: whoever has saved cells must save them again after one.
        self.n_rewrites = 0

    @property
    def layout(self) -> FrameLayout | None:
        """The given or detected layout; None while it is unknown."""
        return None if self._detector else self.store.layout

    @property
    def method(self) -> str | None:
        """How observations are encoded, as a shorthand, e.g. ``"zstd/3"``; None while `auto` waits for the layout."""
        if self._detector is None:
            return self.store.method
        return None if isinstance(self.plan.codec, str) else self.plan.codec.spec

    def prepare_step(self, slot: int, observations: tuple[NDArray[Any], ...]) -> None:
        """See `Store.prepare_step`."""
        if self._detector is not None:
            self._look_at(range(self.plan.n_streams), observations)
        self.store.prepare_step(slot, observations)

    def commit_step(self) -> None:
        """See `Store.commit_step`."""
        self.store.commit_step()

    def write_step(self, slot: int, observations: tuple[NDArray[Any], ...]) -> None:
        """See `Store.write_step`."""
        self.prepare_step(slot, observations)
        self.commit_step()

    def write_steps(self, slot: int, observations: tuple[NDArray[Any], ...]) -> None:
        """See `Store.write_steps`."""
        i = 0
        while self._detector is not None and i < len(observations[0]):
            self.write_step(slot + i, tuple(np.ascontiguousarray(one[i]) for one in observations))
            i += 1
        self.store.write_steps(slot + i, tuple(one[i:] for one in observations))

    def write(self, column: int, cells: Cells, observations: NDArray[Any]) -> None:
        """See `Store.write`."""
        with self.lock:
            self.n_rewrites += 1
            # Not while a step is prepared, which would not move to the new store. The next write shows the layout too.
            if isinstance(self.store, WaitingStore) and not self.store.is_prepared:
                self._look_at((cells % self.plan.n_streams).tolist(), (observations,))
            self.store.write(column, cells, observations)

    def read(self, column: int, cells: Cells) -> Any:
        """See `Store.read`."""
        with self.lock:
            return self.store.read(column, cells)

    def clear(self) -> None:
        """Remove all observations. The detected frame layout is kept."""
        with self.lock:
            self.store.clear()
            if self._detector is not None:
                self._detector.forget()

    def _look_at(self, streams: Any, columns: tuple[NDArray[Any], ...]) -> None:
        """Build the store as soon as the observations show their layout."""
        waiting = self.store
        # interrupted between the last two lines of `_build`
        if self._detector is None or not isinstance(waiting, WaitingStore):
            self._detector = None
            return
        layout = self._detector.look_at(streams, columns) or waiting.give_up(self._detector.layouts)
        if layout is None:
            return
        self._build(waiting, layout)

    def _build(self, waiting: WaitingStore, layout: FrameLayout) -> None:
        store = self.plan.build(layout)
        waiting.move_to(store)
        self.store, self.has_rows = store, isinstance(store, RowStore)
        self._detector = None

    # ---- what leaves the process

    @contextmanager
    def extract(self, cells: Cells) -> Iterator[Extract]:
        """Cells of all columns with everything that is needed to read them, under the lock."""
        with self.lock, extract_of(self.store, cells) as extract:
            yield extract

    def put(self, cells: Cells, extract: Extract, *, rows: Cells | None = None, encode: bool = False) -> None:
        """See `put_extract`. An extract whose layout is known ends the wait for one."""
        with self.lock:
            waiting = self.store
            is_found = extract.chosen is not None or extract.layout.stack > 1
            if isinstance(waiting, WaitingStore) and is_found and extract.layout in self.plan.storable_layouts():
                self._build(waiting, extract.layout)
            put_extract(self.store, cells, extract, rows=rows, encode=encode)

    def __getstate__(self) -> dict[str, Any]:
        """The state for a pickle, with the observations as the bytes of a segment."""
        with self.lock:
            return {**self.hollow_state(), "segment": self._segment()}

    def hollow_state(self) -> dict[str, Any]:
        """The state without observations, for a buffer, which saves them itself."""
        return {name: value for name, value in self.__dict__.items() if name not in ("lock", "store", "_detector")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({name: value for name, value in state.items() if name != "segment"})
        LeafStore.__init__(self, self.plan)
        if "segment" in state:
            segment, *others = segments_in(BytesIO(state["segment"]))
            if others:
                raise CorruptDataError(f"A pickled leaf is damaged: it has {1 + len(others)} segments")
            extract = Extract.of_segment(segment, "leaf", segment.header.get("leaf"))
            self.put(np.arange(self.plan.n_cells), extract)

    def _segment(self) -> bytes:
        file = BytesIO()
        with extract_of(self.store, np.arange(self.plan.n_cells)) as extract:
            write_segment(file, {"leaf": extract.about()}, extract.sections("leaf"))
        return file.getvalue()
