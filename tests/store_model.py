"""Random writes to a store and the plain arrays that it must read as. Used by the contract of all stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

from sb3_extra_buffers.store import FrameLayout

DTYPES = ["uint8", "bool", "int64", "float32", "float64", "int16"]
LAYOUTS = st.one_of(
    st.builds(
        lambda stack, channels, rest, dtype: FrameLayout((stack * channels, *rest), np.dtype(dtype), stack, 0),
        st.integers(1, 4), st.integers(1, 2), st.sampled_from([(), (3,), (4, 5)]), st.sampled_from(DTYPES),
    ),
    st.builds(
        lambda stack, channels, rest, dtype: FrameLayout((*rest, stack * channels), np.dtype(dtype), stack, -1),
        st.integers(2, 4), st.integers(1, 2), st.sampled_from([(3,), (4, 5)]), st.sampled_from(DTYPES),
    ),
    st.builds(lambda dtype: FrameLayout((), np.dtype(dtype)), st.sampled_from(DTYPES)),
)  # fmt: skip
#: What a stream writes next; the last three are no observations.
KINDS = st.sampled_from(["shift"] * 8 + ["same"] * 3 + ["reset", "jump", "byte"] * 2 + ["clear", "refused", "between"])
STREAMS = st.integers(1, 3)


# ---- observations


def random_bytes(layout: FrameLayout, rng: np.random.Generator) -> np.ndarray:
    """An observation of arbitrary bytes: NaN payloads, infinities and -0.0 among them."""
    data = rng.integers(0, 256, layout.observation_bytes, dtype=np.uint8)
    if layout.dtype == bool:
        data &= 1
    elif layout.dtype.kind == "f":
        values = data.view(layout.dtype)
        special = rng.random(values.size) < 0.3
        values[special] = rng.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan], layout.dtype), int(special.sum()))
    return data.view(layout.dtype).reshape(layout.shape)


def next_observation(kind: str, before: np.ndarray, layout: FrameLayout, rng: np.random.Generator) -> np.ndarray:
    """The observation that a stream writes next: as before, shifted by one frame, reset, jumped, or with one byte changed."""
    if kind == "same":
        return before
    if kind == "jump" or not layout.shape:
        return random_bytes(layout, rng)
    if kind == "byte":
        changed = before.copy()
        changed.reshape(-1)[rng.integers(changed.size)] = random_bytes(layout, rng).reshape(-1)[0]
        return changed
    frame = layout.shape[layout.axis] // layout.stack
    new = random_bytes(layout, rng)
    if kind == "reset":
        before = np.zeros_like(before)
    kept = [slice(None)] * before.ndim
    kept[layout.axis] = slice(frame, None)
    last = [slice(None)] * before.ndim
    last[layout.axis] = slice(layout.shape[layout.axis] - frame, None)
    return np.concatenate((before[tuple(kept)], new[tuple(last)]), axis=layout.axis)


# ---- writing and reading


def play(
    store: Any, layout: FrameLayout, n_cells: int, n_streams: int, n_columns: int, kinds: list[str], seed: int
) -> Iterator[np.ndarray]:
    """Write in arbitrary order; the model is a plain array per column. Yields it after every write."""
    rng = np.random.default_rng(seed)
    model = np.zeros((n_columns, n_cells, *layout.shape), layout.dtype)
    last = [np.zeros(layout.shape, layout.dtype) for _ in range(n_streams)]
    ring = 0
    for kind in kinds:
        column = int(rng.integers(n_columns))
        slot = ring % (n_cells // n_streams)
        if kind == "clear":
            store.clear()
            model[:] = 0
            continue
        if kind == "refused":  # a step that is not committed, as when SB3 refuses the rest of the transition
            steps = [np.stack([random_bytes(layout, rng) for _ in range(n_streams)]) for _ in range(n_columns)]
            store.prepare_step(slot, tuple(steps))
            yield model
            continue
        if kind == "between":  # something is written while a step is prepared, as a subclass may do
            steps = [np.stack([random_bytes(layout, rng) for _ in range(n_streams)]) for _ in range(n_columns)]
            store.prepare_step(slot, tuple(steps))
            cells = rng.integers(0, n_cells, 2)
            values = np.stack([random_bytes(layout, rng) for _ in range(2)])
            store.write(column, cells, values)
            store.commit_step()
            store.commit_step()  # nothing is left to be done
            model[column, cells[0]], model[column, cells[1]] = values
            model[:, slot * n_streams : (slot + 1) * n_streams] = steps
            last = list(steps[-1])
            ring += 1
            yield model
            continue
        how = rng.random()
        if how < 0.4:  # as a replay buffer does: the next step of all streams, what comes next is as `kind` says
            pair = [np.stack(last)]
            last = [next_observation(kind, before, layout, rng) for before in last]
            pair.append(np.stack(last))
            store.write_step(slot, tuple(pair[:n_columns]))
            model[:, slot * n_streams : (slot + 1) * n_streams] = pair[:n_columns]
            if rng.random() < 0.2:  # an episode ends: the next one begins elsewhere
                stream = int(rng.integers(n_streams))
                last[stream] = next_observation("reset", last[stream], layout, rng)
            ring += 1
            yield model
            continue
        if how < 0.7:
            cells = (np.arange(n_streams) + ring * n_streams) % n_cells
            ring += column == n_columns - 1
        else:  # anywhere, repetitions included
            cells = rng.integers(0, n_cells, int(rng.integers(1, 6)))
        written = []
        for cell in cells.tolist():
            last[cell % n_streams] = next_observation(kind, last[cell % n_streams], layout, rng)
            written.append(last[cell % n_streams])
        store.write(column, cells, np.stack(written))
        for cell, value in zip(cells.tolist(), written, strict=True):
            model[column, cell] = value
        yield model
    yield model


def as_array(values: Any) -> np.ndarray:
    """What a store has read: an array, or a tensor of a device store."""
    return values if isinstance(values, np.ndarray) else values.cpu().numpy()


def assert_reads_as(store: Any, model: np.ndarray, seed: int = 0) -> None:
    """Cells in any order, some of them twice; by cell and by slot and env; one column and all of them."""
    n_columns, n_cells = model.shape[:2]
    cells = np.random.default_rng(seed).permutation(np.concatenate((np.arange(n_cells), np.arange(n_cells)[::2])))
    for column in range(n_columns):
        assert as_array(store.read(column, cells)).tobytes() == model[column][cells].tobytes()
    every = tuple(range(n_columns))
    by_env = (cells // store.n_streams, cells % store.n_streams)
    for where in ((cells, None), by_env):
        for got, expected in zip(store.read_columns(every, *where), model, strict=True):
            assert as_array(got).dtype == model.dtype
            assert as_array(got).tobytes() == expected[cells].tobytes()
