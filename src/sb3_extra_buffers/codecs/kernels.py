"""Loops over bytes, written once: compiled by numba where it is installed, run by Python and NumPy where not.

Imported when the first codec or store needs a kernel, never at `import sb3_extra_buffers`. Only the few functions that
touch many bytes have a NumPy form beside the compiled one; all that is built from them is the same source for both, so
both read and write the same bytes. Kernels are serial and release the GIL; parallel ones would abort in forked children.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from sb3_extra_buffers.codecs.base import Bytes

F = TypeVar("F", bound=Callable[..., Any])

try:
    import numba
except ImportError:
    numba = None

#: Whether kernels are compiled. NUMBA_DISABLE_JIT=1 gives the NumPy forms, as a missing numba does.
COMPILED = numba is not None and not numba.config.DISABLE_JIT

#: Equal bytes that a patch may run across before it is worth ending it: a new patch costs at least two bytes.
PATCH_GAP = 2


def jit(function: F) -> F:
    """Compile a kernel on its first call, or leave it as it is when there is no numba."""
    if not COMPILED:
        return function
    compiled: F = numba.njit(nogil=True, cache=True)(function)
    return compiled


if COMPILED:
    from numba import types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def _pointer(typing_context: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(types.uint8)(types.int64), codegen

    @jit
    def bytes_at(address: int, length: int) -> Bytes:
        """The memory at ``address``, which the caller keeps alive."""
        return numba.carray(_pointer(address), length)  # type: ignore

    @jit
    def same_bytes(a: Bytes, b: Bytes) -> bool:
        """Whether two arrays of one length hold the same bytes."""
        n = a.size
        i = 0
        while i + 256 <= n:  # no early exit inside the piece: LLVM vectorises it
            differing = np.uint8(0)
            for j in range(i, i + 256):
                differing |= a[j] ^ b[j]
            if differing:
                return False
            i += 256
        while i < n and a[i] == b[i]:
            i += 1
        return bool(i == n)

    @jit
    def copy_bytes(target: Bytes, source: Bytes) -> None:
        """Copy ``source`` over ``target``, which is as long and does not overlap it."""
        for i in range(source.size):
            target[i] = source[i]

    @jit
    def next_difference(a: Bytes, b: Bytes, start: int) -> int:
        """First index from ``start`` on at which two arrays differ; their length if they do not."""
        n = a.size
        i = start
        while i + 32 <= n:
            differing = np.uint8(0)
            for j in range(i, i + 32):
                differing |= a[j] ^ b[j]
            if differing:
                break
            i += 32
        while i < n and a[i] == b[i]:
            i += 1
        return i

else:

    def bytes_at(address: int, length: int) -> Bytes:
        """The memory at ``address``, which the caller keeps alive."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * length).from_address(address))

    def same_bytes(a: Bytes, b: Bytes) -> bool:
        """Whether two arrays of one length hold the same bytes."""
        return bool((a == b).all())

    def copy_bytes(target: Bytes, source: Bytes) -> None:
        """Copy ``source`` over ``target``, which is as long and does not overlap it."""
        target[:] = source

    def next_difference(a: Bytes, b: Bytes, start: int) -> int:
        """First index from ``start`` on at which two arrays differ; their length if they do not."""
        differing = a[start:] != b[start:]
        first = int(differing.argmax()) if differing.size else 0
        return start + first if differing.size and differing[first] else a.size


# Patches: how one frame differs from another. A list of `length, skip, bytes`, closed by a length of 0; `skip` bytes are
# left as they are, then `length` bytes are replaced. Lengths and skips are LEB128 numbers: 7 bits a byte, low bits first.


@jit
def _put_number(out: Bytes, position: int, number: int) -> int:
    while number >= 128:
        out[position] = (number & 127) | 128
        position += 1
        number >>= 7
    out[position] = number
    return position + 1


@jit
def write_patches(before: Bytes, after: Bytes, out: Bytes, position: int) -> int:
    """Write the patches that turn ``before`` into ``after``; the position behind them, or -1 if ``out`` is too short."""
    n = after.size
    reached = 0
    start = next_difference(before, after, 0)
    while start < n:
        end = start + 1
        i = end
        while i < n and i - end <= PATCH_GAP:
            if before[i] != after[i]:
                end = i + 1
            i += 1
        if position + (end - start) + 11 > out.size:  # two numbers of at most 5 bytes, and the closing 0
            return -1
        position = _put_number(out, position, end - start)
        position = _put_number(out, position, start - reached)
        for j in range(start, end):
            out[position] = after[j]
            position += 1
        reached = end
        start = next_difference(before, after, end)
    if position >= out.size:
        return -1
    out[position] = 0
    return position + 1


@jit
def apply_patches(data: Bytes, position: int, frame: Bytes) -> int:
    """Patch ``frame`` in place; the position behind its patches, or -1 if they cannot be right. Never writes outside."""
    n = data.size
    reached = 0
    while True:
        length = 0
        skip = 0
        shift = 0
        while True:
            if position >= n or shift > 28:
                return -1
            byte = int(data[position])
            position += 1
            length |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        if length == 0:
            return position
        shift = 0
        while True:
            if position >= n or shift > 28:
                return -1
            byte = int(data[position])
            position += 1
            skip |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        reached += skip
        if reached + length > frame.size or position + length > n:
            return -1
        for i in range(length):
            frame[reached + i] = data[position + i]
        reached += length
        position += length


@jit
def encode_delta(frames: Bytes, base: Bytes, out: Bytes) -> int:
    """Each frame as patches on the one before it, the first on ``base``; bytes written, or -1 if ``out`` is too short."""
    position = write_patches(base, frames[0], out, 0)
    for i in range(1, frames.shape[0]):
        if position < 0:
            return -1
        position = write_patches(frames[i - 1], frames[i], out, position)
    return position


@jit
def decode_delta(data: Bytes, base: Bytes, out: Bytes) -> bool:
    """Fill ``out`` (frames, frame_bytes) from the beginning of ``data``; False if the patches cannot be right."""
    position = 0
    for i in range(out.shape[0]):
        copy_bytes(out[i], base if i == 0 else out[i - 1])
        position = apply_patches(data, position, out[i])
        if position < 0:
            return False
    return True


@jit
def encode_runs(items: Any, longest: int, values: Any, lengths: Any) -> int:
    """Runs of equal items, split where one is longer than ``longest``; how many, or -1 if there is no room for them."""
    n = items.size
    count = 0
    i = 0
    while i < n:
        if count == values.size:
            return -1
        value = items[i]
        end = min(n, i + longest)
        j = i + 1
        while j < end and items[j] == value:
            j += 1
        values[count] = value
        lengths[count] = j - i
        count += 1
        i = j
    return count


@jit
def decode_runs(values: Any, lengths: Any, out: Any) -> int:
    """Write runs until ``out`` is full; how many items were written."""
    filled = 0
    n = out.size
    for i in range(values.size):
        end = min(n, filled + int(lengths[i]))
        for j in range(filled, end):
            out[j] = values[i]
        filled = end
        if filled == n:
            break
    return filled
