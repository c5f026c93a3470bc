"""What compiled kernels need below NumPy: memcpy, memcmp, unaligned words, memory by address.

Imported by kernels.py when numba is there. Nothing here checks bounds; the kernels do, before they call. All of it takes
flat uint8 arrays and positions in them instead of slices: a slice, like a call of a jitted function with an array, counts
references, and in loops over a few bytes that was three quarters of the time. Intrinsics do not. Between jitted functions
arrays are handed on as memories, which are their addresses (see `memory_of`); the intrinsics take both.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from sb3_extra_buffers.codecs.compiling import jit

_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)


def _pointer_to(context: Any, builder: Any, signature: Any, args: Any, array: int) -> Any:
    """Pointer into argument number ``array``, an array or a memory, at the position that the argument behind it says."""
    kind = signature.args[array]
    if isinstance(kind, types.Integer):
        data = builder.inttoptr(args[array], _BYTE.as_pointer())
    else:
        data = context.make_array(kind)(context, builder, args[array]).data
    return builder.gep(data, [args[array + 1]])


@intrinsic  # type: ignore[untyped-decorator]
def copy_part(typing_context: Any, target: Any, at: Any, source: Any, start: Any, length: Any) -> Any:
    """Copy ``length`` bytes of ``source`` from ``start`` on to ``target`` from ``at`` on; they must not overlap."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        into, out_of = (_pointer_to(context, builder, signature, args, array) for array in (0, 2))
        cgutils.raw_memcpy(builder, into, out_of, args[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), codegen


@intrinsic  # type: ignore[untyped-decorator]
def same_part(typing_context: Any, a: Any, at: Any, b: Any, start: Any, length: Any) -> Any:
    """Whether ``length`` bytes of ``a`` from ``at`` on are those of ``b`` from ``start`` on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointers = [_pointer_to(context, builder, signature, args, array) for array in (0, 2)]
        kind = ir.FunctionType(ir.IntType(32), [_BYTE.as_pointer(), _BYTE.as_pointer(), _WORD])
        memcmp = cgutils.get_or_insert_function(builder.module, kind, "memcmp")
        return builder.icmp_signed("==", builder.call(memcmp, [*pointers, args[4]]), ir.Constant(ir.IntType(32), 0))

    return types.boolean(a, types.intp, b, types.intp, types.intp), codegen


@intrinsic  # type: ignore[untyped-decorator]
def blend_word(typing_context: Any, target: Any, at: Any, source: Any, start: Any, length: Any) -> Any:
    """Copy 1 to 8 bytes; reads and writes whole words, so both arrays must have 8 bytes from there on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        into, out_of = (
            builder.bitcast(_pointer_to(context, builder, signature, args, array), _WORD.as_pointer()) for array in (0, 2)
        )
        unused = builder.mul(builder.sub(ir.Constant(_WORD, 8), args[4]), ir.Constant(_WORD, 8))
        mask = builder.lshr(ir.Constant(_WORD, -1), unused)
        new = builder.and_(builder.load(out_of, align=1), mask)
        old = builder.and_(builder.load(into, align=1), builder.not_(mask))
        builder.store(builder.or_(old, new), into, align=1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), codegen


@intrinsic  # type: ignore[untyped-decorator]
def copy_word(typing_context: Any, target: Any, at: Any, source: Any, start: Any) -> Any:
    """Copy 8 bytes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        into, out_of = (
            builder.bitcast(_pointer_to(context, builder, signature, args, array), _WORD.as_pointer()) for array in (0, 2)
        )
        builder.store(builder.load(out_of, align=1), into, align=1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp), codegen


@intrinsic  # type: ignore[untyped-decorator]
def load_byte(typing_context: Any, array: Any, index: Any) -> Any:
    """One byte of an array as a signed integer. Indexing would do, but first look whether the index is negative."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.load(_pointer_to(context, builder, signature, args, 0)), _WORD)

    return types.int64(array, types.intp), codegen


@intrinsic  # type: ignore[untyped-decorator]
def store_byte(typing_context: Any, target: Any, at: Any, value: Any) -> Any:
    """Write one byte."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(builder.trunc(args[2], _BYTE), _pointer_to(context, builder, signature, args, 0))
        return context.get_dummy_value()

    return types.void(target, types.intp, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def fill_part(typing_context: Any, target: Any, at: Any, value: Any, length: Any) -> Any:
    """Set ``length`` bytes of ``target`` from ``at`` on to one value."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        into = _pointer_to(context, builder, signature, args, 0)
        cgutils.memset(builder, into, args[3], builder.trunc(args[2], _BYTE))
        return context.get_dummy_value()

    return types.void(target, types.intp, types.int64, types.intp), codegen


@intrinsic  # type: ignore[untyped-decorator]
def memory_of(typing_context: Any, array: Any, start: Any, length: Any) -> Any:
    """Part of an array as a memory: its address. The array must be used again later, or numba may free it before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(_pointer_to(context, builder, signature, args, 0), _WORD)

    return types.int64(array, types.intp, types.intp), codegen


@intrinsic  # type: ignore[untyped-decorator]
def differences_at(typing_context: Any, a: Any, b: Any) -> Any:
    """Which of the 32 bytes at two addresses differ: a bit each, the lowest for the first."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(_BYTE, 32)
        x, y = (builder.load(builder.inttoptr(address, vector.as_pointer()), align=1) for address in args)
        return builder.zext(builder.bitcast(builder.icmp_unsigned("!=", x, y), ir.IntType(32)), _WORD)

    return types.int64(types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def lowest_bit(typing_context: Any, number: Any) -> Any:
    """Index of the lowest bit of a number that is not zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def byte_at(typing_context: Any, address: Any) -> Any:
    """The byte at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _BYTE.as_pointer()))

    return types.uint8(types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(typing_context: Any, address: Any) -> Any:
    """Ask for the cache line at an address, and go on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        for_reading, keep, data = ir.Constant(number, 0), ir.Constant(number, 3), ir.Constant(number, 1)
        builder.call(function, [builder.inttoptr(args[0], _BYTE.as_pointer()), for_reading, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def split_pixels(typing_context: Any, source: Any, start: Any, target: Any, at: Any, stride: Any) -> Any:
    """16 pixels of 4 bytes, to four places that lie ``stride`` apart: the first bytes, the second bytes, and so on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pixels, plane = ir.VectorType(_BYTE, 64), ir.VectorType(_BYTE, 16)
        pointer = builder.bitcast(_pointer_to(context, builder, signature, args, 0), pixels.as_pointer())
        loaded = builder.load(pointer, align=1)
        into = _pointer_to(context, builder, signature, args, 2)
        for channel in range(4):
            picked = ir.Constant(ir.VectorType(ir.IntType(32), 16), [4 * i + channel for i in range(16)])
            part = builder.shuffle_vector(loaded, ir.Constant(pixels, ir.Undefined), picked)
            builder.store(part, builder.bitcast(into, plane.as_pointer()), align=1)
            into = builder.gep(into, [args[4]])
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp, types.intp), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(typing_context: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.uint8)(types.int64), codegen


@jit
def bytes_at(address: int, length: int) -> Any:
    """The memory at ``address``, which the caller keeps alive."""
    return numba.carray(_pointer(address), length)
