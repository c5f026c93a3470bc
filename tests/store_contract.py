"""What every store promises, as a test class. A store's own class inherits it and says how the store is made.

The oracle is a plain array per column: whatever is written in whatever order, a store gives back the same bytes.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sb3_extra_buffers.codecs import make_codec
from sb3_extra_buffers.errors import CorruptDataError
from sb3_extra_buffers.store import BlockStore, FrameLayout, Store
from tests.interrupts import Interrupts
from tests.invariants import check_invariants
from tests.store_model import (
    KINDS,
    LAYOUTS,
    STREAMS,
    as_array,
    assert_reads_as,
    next_observation,
    play,
    random_bytes,
)
from tests.store_segments import flips, header_changes, put_segment, segment_of

PROFILE = settings(
    max_examples=int(os.environ.get("STORE_EXAMPLES", "25")), deadline=None, suppress_health_check=list(HealthCheck)
)
STACKED = FrameLayout((4, 30), np.dtype(np.uint8), 4, 0)


@pytest.fixture
def no_collections() -> Iterator[None]:
    """No garbage collection: an interrupt in a callback of it, Hypothesis has one, would be nobody's."""
    gc.disable()
    yield
    gc.enable()


class StoreContract:
    """Inherit it, and say how the store is made."""

    def make(self, layout: FrameLayout, n_cells: int, *, n_streams: int = 1, n_columns: int = 1, extra: int = 0) -> Store:
        """A new store.

        :param extra: frames that a block has more than an observation, where there are blocks
        """
        raise NotImplementedError

    def empty(self, n_cells: int = 24) -> Store:
        """A store of two streams and columns."""
        return self.make(STACKED, n_cells, n_streams=2, n_columns=2, extra=1)

    def filled(self, n_cells: int = 24, n_steps: int = 60) -> tuple[Any, np.ndarray]:
        """The same, and what it holds."""
        store = self.empty(n_cells)
        *_, model = play(store, STACKED, n_cells, 2, 2, ["shift", "shift", "reset", "jump"] * (n_steps // 4), seed=0)
        return store, model

    # ---- whatever is written is read

    @PROFILE
    @given(
        layout=LAYOUTS, n_streams=STREAMS, slots=st.integers(1, 9), n_columns=st.integers(1, 2),
        extra=st.sampled_from([0, 1, 3, 12]), kinds=st.lists(KINDS, min_size=1, max_size=60),
        seed=st.integers(0, 2**32 - 1), copy_at=st.integers(0, 60),
    )  # fmt: skip
    def test_reads_as_plain_arrays(
        self, layout: FrameLayout, n_streams: int, slots: int, n_columns: int, extra: int, kinds: list[str], seed: int,
        copy_at: int,
    ) -> None:  # fmt: skip
        n_cells = slots * n_streams
        sizes = {"n_streams": n_streams, "n_columns": n_columns}
        store = self.make(layout, n_cells, **sizes, extra=extra)
        copies: list[tuple[Any, np.ndarray]] = []
        for t, model in enumerate(play(store, layout, n_cells, n_streams, n_columns, kinds, seed)):
            check_invariants(store)
            if t % 7 == 0 or t == copy_at:
                assert_reads_as(store, model, t)
            if t == copy_at:  # copies go on by themselves: one like it, and one with blocks of another length
                block_frames = layout.stack + extra + 1
                others = [
                    self.make(layout, n_cells, **sizes, extra=extra),
                    BlockStore(layout, n_cells, make_codec("delta"), **sizes, block_frames=block_frames),
                ]
                for other in others:
                    put_segment(other, segment_of(store))
                    copies.append((other, model.copy()))
        assert_reads_as(store, model)
        for other, then in copies:
            check_invariants(other)
            assert_reads_as(other, then)
            cells = np.arange(n_cells)
            other.write(0, cells, model[0])
            other.write(n_columns - 1, cells[::-1].copy(), model[n_columns - 1][::-1])
            check_invariants(other)
            assert as_array(other.read(n_columns - 1, cells)).tobytes() == model[n_columns - 1].tobytes()
        assert_reads_as(store, model)
        store.clear()
        check_invariants(store)
        assert store.memory_usage().raw_bytes == 0
        assert_reads_as(store, np.zeros_like(model))

    @PROFILE
    @given(
        layout=LAYOUTS, n_streams=STREAMS, n_columns=st.integers(1, 2), extra=st.sampled_from([0, 1, 12]),
        kinds=st.lists(st.sampled_from(["shift", "shift", "same", "reset", "jump", "byte"]), min_size=1, max_size=40),
        at_once=st.integers(1, 40), seed=st.integers(0, 999),
    )  # fmt: skip
    def test_many_steps_at_once_are_as_one_after_the_other(
        self, layout: FrameLayout, n_streams: int, n_columns: int, extra: int, kinds: list[str], at_once: int, seed: int
    ) -> None:
        rng, n = np.random.default_rng(seed), len(kinds)
        seen = [[random_bytes(layout, rng)] for _ in range(n_streams)]
        for kind in kinds:
            for stream in seen:
                stream.append(next_observation(kind, stream[-1], layout, rng))
        steps = np.moveaxis(np.array(seen), 0, 1)  # (n + 1, n_streams, ...): next_obs is a view that overlaps obs
        if n_streams % 2:
            steps = np.ascontiguousarray(steps)
        store = self.make(layout, 2 * n * n_streams, n_streams=n_streams, n_columns=n_columns, extra=extra)
        single = self.make(layout, 2 * n * n_streams, n_streams=n_streams, n_columns=n_columns, extra=extra)
        for first in range(0, n, at_once):
            last = min(first + at_once, n)
            store.write_steps(n + first, (steps[first:last], steps[first + 1 : last + 1])[:n_columns])
        for i in range(n):
            single.write_step(n + i, tuple(np.ascontiguousarray(steps[i + k]) for k in range(n_columns)))
        check_invariants(store)
        model = np.zeros((n_columns, 2 * n * n_streams, *layout.shape), layout.dtype)
        for k in range(n_columns):
            model[k, n * n_streams :] = steps[k : n + k].reshape(n * n_streams, *layout.shape)
        assert_reads_as(store, model)
        assert store.memory_usage() == single.memory_usage()
        store.write_steps(0, tuple(steps[:0] for _ in range(n_columns)))
        with pytest.raises(IndexError):
            store.write_steps(2 * n, tuple(steps[:1] for _ in range(n_columns)))
        assert_reads_as(store, model)

    def test_unwritten_cells_read_as_zeros(self) -> None:
        store = self.make(FrameLayout((4, 30), np.dtype(np.float32), 4, 0), 10, n_columns=2)
        store.write(0, np.array([3]), np.ones((1, 4, 30), np.float32))
        assert as_array(store.read(0, np.arange(10))).sum() == 120
        assert not as_array(store.read(1, np.arange(10))).any()

    def test_nothing_can_be_written_and_read(self) -> None:
        store, model = self.filled()
        none = np.arange(0)
        store.write(0, none, np.zeros((0, 4, 30), np.uint8))
        assert as_array(store.read(0, none)).shape == (0, 4, 30)
        assert_reads_as(store, model)

    def test_what_is_read_belongs_to_the_reader(self) -> None:
        store, model = self.filled()
        for _ in range(2):
            for array in store.read_columns((0, 1), np.arange(24)):
                assert array.shape == (24, 4, 30)
                array[:] = 7
        assert_reads_as(store, model)

    def test_what_was_written_belongs_to_the_writer(self) -> None:
        store, model = self.filled()
        step = tuple(np.full((2, 4, 30), 3 + i, np.uint8) for i in range(2))
        store.write_step(5, step)
        some = np.full((2, 4, 30), 9, np.uint8)
        store.write(1, np.array([0, 1]), some)
        model[:, 10:12], model[1, :2] = np.stack(step), 9
        for array in (*step, some):
            array[:] = 77
        assert_reads_as(store, model)

    def test_the_usage_counts_what_was_written(self) -> None:
        store = self.make(STACKED, 12, n_streams=2, n_columns=2)
        assert store.memory_usage().raw_bytes == 0
        for slot in range(4):
            store.write_step(slot, (np.full((2, 4, 30), slot, np.uint8), np.full((2, 4, 30), slot + 1, np.uint8)))
        usage = store.memory_usage()
        assert usage.raw_bytes == 4 * 2 * 2 * 120
        assert usage.stored_bytes > 0
        assert usage.ratio == usage.stored_bytes / usage.raw_bytes

    # ---- what is refused changes nothing

    @pytest.mark.parametrize("cells", [[-1], [24], [3, 24], [0, 1, 2, -25], [2**40]])
    def test_cells_that_do_not_exist_are_refused(self, cells: list[int]) -> None:
        store, model = self.filled()
        wrong = np.array(cells)
        values = np.full((len(cells), 4, 30), 5, np.uint8)
        for column in range(2):
            with pytest.raises(IndexError):
                store.write(column, wrong, values)
            with pytest.raises(IndexError):
                store.read(column, wrong)
        with pytest.raises(IndexError):
            store.read_columns((0, 1), wrong)
        check_invariants(store)
        assert_reads_as(store, model)

    @pytest.mark.parametrize("slot", [-1, 12, 2**40])
    def test_slots_and_envs_that_do_not_exist_are_refused(self, slot: int) -> None:
        store, model = self.filled()
        step = tuple(np.full((2, 4, 30), 5, np.uint8) for _ in range(2))
        with pytest.raises(IndexError):
            store.prepare_step(slot, step)
        with pytest.raises(IndexError):
            store.read_columns((0, 1), np.array([0, slot]), np.array([0, 1]))
        with pytest.raises(IndexError):
            store.read_columns((0,), np.array([0, 1]), np.array([0, 2]))
        store.commit_step()
        assert_reads_as(store, model)

    def test_a_step_is_written_when_it_is_committed(self) -> None:
        store, model = self.filled()
        first, second = (tuple(np.full((2, 4, 30), value + i, np.uint8) for i in range(2)) for value in (11, 21))
        store.commit_step()  # nothing is prepared
        store.prepare_step(3, first)
        assert_reads_as(store, model)
        store.prepare_step(7, second)  # the other one is forgotten
        assert_reads_as(store, model)
        check_invariants(store)
        store.commit_step()
        model[:, 14:16] = np.stack(second)
        assert_reads_as(store, model)
        store.commit_step()
        assert_reads_as(store, model)
        store.prepare_step(3, first)
        store.clear()
        store.commit_step()
        assert_reads_as(store, np.zeros_like(model))

    # ---- interrupts

    @pytest.mark.usefixtures("no_collections")
    def test_an_interrupted_step_is_written_whole_or_not_at_all(self) -> None:
        """Before each bytecode: of `prepare_step`, which changes nothing, and of `commit_step`, which can be repeated."""
        store, model = self.filled()
        interrupts, rng, number, n_faults = Interrupts(), np.random.default_rng(0), 0, 0
        last = model[1, -2:]
        for t in range(400):
            number += int(rng.integers(1, 6))
            slot = t % 12
            kind = ["shift", "shift", "reset", "jump"][t % 4]
            after = np.stack([next_observation(kind, one, STACKED, rng) for one in last])
            with contextlib.suppress(KeyboardInterrupt):
                interrupts.at_bytecode(number, lambda slot=slot, step=(last, after): store.prepare_step(slot, step))
            n_faults += interrupts.has_fired
            if t % 3 == 0:
                assert_reads_as(store, model)
            if interrupts.has_fired and t % 2:
                store.prepare_step(slot, (last, after))
            elif interrupts.has_fired:
                continue  # not tried again: the next step is another one
            with contextlib.suppress(KeyboardInterrupt):
                interrupts.at_bytecode(number, store.commit_step)
            if interrupts.has_fired:
                store.commit_step()
            n_faults += interrupts.has_fired
            number = number if interrupts.has_fired else 0
            model[:, 2 * slot : 2 * slot + 2] = last, after
            last = after
            check_invariants(store)
        assert_reads_as(store, model)
        assert n_faults > 50

    @pytest.mark.usefixtures("no_collections")
    def test_an_interrupted_write_damages_no_other_cell(self) -> None:
        store, model = self.filled()
        interrupts, rng, number = Interrupts(), np.random.default_rng(0), 0
        for _ in range(250):
            number += int(rng.integers(1, 9))
            column, cells = int(rng.integers(2)), rng.permutation(24)[:5]
            values = np.stack([random_bytes(STACKED, rng) for _ in range(5)])
            before = model[column, cells].copy()
            with contextlib.suppress(KeyboardInterrupt):
                interrupts.at_bytecode(number, lambda where=(column, cells, values): store.write(*where))
            read = as_array(store.read(column, cells))
            for got, old, new in zip(read, before, values, strict=True):
                assert got.tobytes() == new.tobytes() or (interrupts.has_fired and got.tobytes() == old.tobytes())
            model[column, cells] = read
            assert_reads_as(store, model)
            number = number if interrupts.has_fired else 0
            if rng.random() < 0.5:  # and it can be written again
                store.write(column, cells, values)
                model[column, cells] = values
        check_invariants(store)
        assert_reads_as(store, model)

    # ---- segments

    def test_a_segment_gives_back_what_it_was_made_of(self) -> None:
        store, model = self.filled()
        again = self.empty()
        put_segment(again, segment_of(store))
        check_invariants(again)
        assert_reads_as(again, model)
        assert_reads_as(store, model)
        put_segment(store, segment_of(again))  # what was there before is overwritten
        check_invariants(store)
        assert_reads_as(store, model)

    def test_a_damaged_segment_is_refused(self) -> None:
        store, model = self.filled()
        again, nothing = self.empty(), np.zeros_like(model)
        n_damaged = 0
        for data, means_something in flips(segment_of(store), np.random.default_rng(0), 12):
            if not means_something:
                other = self.empty()
                put_segment(other, data)
                assert_reads_as(other, model)
                continue
            with pytest.raises(CorruptDataError):
                put_segment(again, data)
            n_damaged += 1
            assert_reads_as(again, nothing)  # and nothing of it is there
        assert n_damaged > 60
        check_invariants(again)
        put_segment(again, segment_of(store))
        assert_reads_as(again, model)

    @pytest.mark.parametrize("shape", [(4, 3), (4, 3000), (4, 30, 1), (8, 15)])
    @pytest.mark.parametrize("dtype", ["uint8", "int8", "float64"])
    def test_a_segment_of_other_observations_is_refused(self, shape: tuple[int, ...], dtype: str) -> None:
        """It would be read beyond its end."""
        store, _ = self.filled()
        other = self.make(FrameLayout(shape, np.dtype(dtype), 4, 0), 24, n_streams=2, n_columns=2, extra=1)
        with pytest.raises(CorruptDataError, match="those of the buffer are"):
            put_segment(other, segment_of(store))
        assert not as_array(other.read(0, np.arange(24))).any()

    @pytest.mark.parametrize(("n_cells", "n_columns"), [(22, 2), (26, 2), (24, 1)])
    def test_a_segment_of_more_or_fewer_observations_is_refused(self, n_cells: int, n_columns: int) -> None:
        store, _ = self.filled()
        other = self.make(STACKED, n_cells, n_streams=2, n_columns=n_columns, extra=1)
        with pytest.raises(CorruptDataError, match="cannot fill"):
            put_segment(other, segment_of(store))
        assert not as_array(other.read(0, np.arange(n_cells))).any()

    def test_a_segment_that_says_something_else_is_refused_or_read(self) -> None:
        """Checksums are no help against a header that someone has changed."""
        store, _ = self.filled()
        for _, data in header_changes(segment_of(store)):
            again = self.empty()
            with contextlib.suppress(CorruptDataError):
                put_segment(again, data)
                again.read_columns((0, 1), np.arange(24))
            check_invariants(again)
