"""The codecs of this library. Each is imported when it is first used."""

from __future__ import annotations

from sb3_extra_buffers.codecs.registry import register_codec

_HERE = "sb3_extra_buffers.codecs"

register_codec("none", f"{_HERE}.plain:NoCodec")
register_codec("rle", f"{_HERE}.rle:Rle")
register_codec("rle-jit", f"{_HERE}.rle_jit:RleJit", backend="numba", install="sb3-extra-buffers[numba]", stand_in="rle")
register_codec("gzip", f"{_HERE}.plain:Gzip")
register_codec("igzip", f"{_HERE}.isal:Igzip", backend="isal.isal_zlib", install="sb3-extra-buffers[isal]", stand_in="gzip")
register_codec("zstd", f"{_HERE}.zstd:Zstd", backend="zstandard", install="sb3-extra-buffers[zstd]")
register_codec("lz4-frame", f"{_HERE}.lz4:Lz4Frame", backend="lz4.frame", install="sb3-extra-buffers[lz4]")
register_codec("lz4-block", f"{_HERE}.lz4:Lz4Block", backend="lz4.block", install="sb3-extra-buffers[lz4]")
register_codec("delta", f"{_HERE}.delta:Delta")
