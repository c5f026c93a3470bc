"""Each memory by itself, with an interrupt before every bytecode: what it keeps for other tokens is as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch as th

from sb3_extra_buffers.store.device import heap
from sb3_extra_buffers.store.device.heap import SharedRawHeap
from sb3_extra_buffers.store.device.payloads import RawBuffer
from tests.fault_injection import FAULTS
from tests.gpu_memories import METHODS, make_memory, pictures
from tests.interrupts import Interrupts


def interrupted_at(number: int, call: Callable[[], Any]) -> bool:
    """Call, with an interrupt before a bytecode of this package. Whether the call was that long."""
    interrupts = Interrupts()
    with contextlib.suppress(KeyboardInterrupt):
        interrupts.at_bytecode(number, call)
    return interrupts.has_fired


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_a_memory_survives_an_interrupt_before_every_bytecode(
    method: str, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heap, "_CHUNK_WORDS", 64)  # several moves
    memory, rng = make_memory(method, 203, waits=waits), np.random.default_rng(0)
    kept: dict[int, th.Tensor] = {}

    def new_frames(n: int) -> th.Tensor:
        return th.cat((pictures(n - 1, 203, int(rng.integers(100))), th.from_numpy(rng.integers(0, 256, (1, 203), np.uint8))))

    def put(tokens: np.ndarray, frames: th.Tensor) -> None:
        memory.put(tokens, frames)
        kept.update(zip(tokens.tolist(), frames, strict=True))

    def free(tokens: np.ndarray) -> None:
        memory.free(tokens)
        for token in tokens.tolist():
            kept.pop(token, None)

    for name in ("put", "free", "compact", "flush", "clear"):
        number = 0
        while True:
            number += 1 if number < 20 or FAULTS >= 10_000 else int(rng.integers(1, 60))
            if len(kept) < 60:
                free_tokens = np.array([token for token in range(100) if token not in kept])
                put(free_tokens[:40], new_frames(40))
            tokens = rng.permutation(100)[:12]
            frames = new_frames(12)
            calls: dict[str, Callable[[], Any]] = {
                "put": partial(memory.put, tokens, frames),
                "free": partial(memory.free, tokens),
                "compact": memory.compact,
                "flush": memory.flush,
                "clear": memory.clear,
            }
            if name in ("compact", "flush"):
                free(tokens)
            lasted = interrupted_at(number, calls[name])
            if rng.random() < 0.3:
                memory.check()
            untouched = np.array([token for token in kept if name not in ("put", "free") or token not in tokens])
            if name != "clear":
                assert th.equal(memory.gather(untouched), th.stack([kept[token] for token in untouched.tolist()]))
            if name == "put":
                put(tokens, frames)
            elif name == "free":
                free(tokens)
            elif name == "clear":
                memory.clear()
                kept.clear()
            put(rng.permutation(100)[:5], new_frames(5))
            memory.check()
            held = np.array(sorted(kept))
            assert memory.tokens().tolist() == held.tolist()
            assert th.equal(memory.gather(held), th.stack([kept[token] for token in held.tolist()]))
            if not lasted:
                break


def test_a_heap_that_several_share_survives_an_interrupt_before_every_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_CHUNK_WORDS", 25)
    shared = SharedRawHeap(64)
    buffers, rng = [RawBuffer(2, shared), RawBuffer(9, shared)], np.random.default_rng(0)
    kept: list[dict[int, bytes]] = [{}, {}]

    def read(which: int, cell: int) -> bytes:
        words, _ = buffers[which].read(np.array([cell]))
        return words.numpy().tobytes()[: int(buffers[which].lengths[cell])]

    for name in ("write", "free", "compact"):
        number = 0
        while True:
            number += int(rng.integers(1, 4 if FAULTS >= 10_000 else 12))
            which, cells = int(rng.integers(2)), rng.permutation(14)[:4]
            lengths = rng.integers(1, 40, 4)
            data = [rng.bytes(int(length)) for length in lengths]
            words = th.frombuffer(bytearray(b"".join(one.ljust(-(-len(one) // 8) * 8, b"\0") for one in data)), dtype=th.int64)
            buffers[1 - which].free(rng.permutation(14)[:1])
            kept[1 - which] = {cell: one for cell, one in kept[1 - which].items() if buffers[1 - which].start_idx[cell] >= 0}
            calls: dict[str, Callable[[], Any]] = {
                "write": partial(buffers[which].write, cells, words, lengths),
                "free": partial(buffers[which].free, cells),
                "compact": shared.compact,
            }
            lasted = interrupted_at(number, calls[name])
            shared.check()
            for i, held in enumerate(kept):
                for cell, payload in held.items():
                    if name == "compact" or i != which or cell not in cells:
                        assert read(i, cell) == payload
            buffers[which].write(cells, words, lengths)
            kept[which].update(zip(cells.tolist(), data, strict=True))
            shared.check()
            for i, held in enumerate(kept):
                assert {cell: read(i, cell) for cell in held} == held
            if not lasted:
                break
