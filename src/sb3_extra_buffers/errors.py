"""Every error and warning of this library. At the bottom of the import order: nothing here imports anything of ours.

SB3ExtraBuffersError
├── CodecError            (also a ValueError)   a codec name, level or option that does not exist
├── MissingBackendError   (also an ImportError) a package that is needed and not installed
├── NativeLibraryError    (also an ImportError) the compiled library is missing, or not made for this package or machine
├── CorruptDataError      (also a ValueError)   bytes that are not what was written
│   └── SegmentVersionError                     a file of a later version of this library
├── ObservationError      (also a ValueError)   an observation that does not fit its space
├── EmptyShardsError      (also a ValueError)   a batch that was asked of shards without transitions
└── HeapFullError         (also a MemoryError)  observations that need more bytes than a GPU buffer may take

LossyStorageWarning       (a UserWarning)       a storage dtype that cannot hold all values of the space
FallbackWarning           (a UserWarning)       a slower stand-in is used for a codec that is not installed
UncompressedBufferWarning (a UserWarning)       a file has replaced a compressed buffer by one of SB3's own
ShardLostWarning          (a UserWarning)       a shard's process has died; it begins anew, or from its checkpoint
CollectorLostWarning      (a UserWarning)       a collector's process has died or hung, and was started anew
WaitingForResourcesWarning (a UserWarning)      collectors that do not start because Ray has too few free CPUs
"""

from __future__ import annotations


class SB3ExtraBuffersError(Exception):
    """Base of all errors of this library."""


class CodecError(SB3ExtraBuffersError, ValueError):
    """A codec name, level or option that does not exist."""


class MissingBackendError(SB3ExtraBuffersError, ImportError):
    """A package that is needed, by a codec or a helper, is not installed."""


class NativeLibraryError(SB3ExtraBuffersError, ImportError):
    """The compiled library is missing, does not fit this machine, or is of another version than the package."""


class CorruptDataError(SB3ExtraBuffersError, ValueError):
    """Bytes that are not what was written: damaged, truncated, or of another codec."""


class SegmentVersionError(CorruptDataError):
    """A file that a later version of this library has written."""


class ObservationError(SB3ExtraBuffersError, ValueError):
    """An observation that does not fit the space of the buffer."""


class EmptyShardsError(SB3ExtraBuffersError, ValueError):
    """A batch was asked of shards that hold no transitions."""


class HeapFullError(SB3ExtraBuffersError, MemoryError):
    """The observations of a GPU buffer need more bytes than they may take. What was stored before is unchanged.

    :param needed_bytes: bytes that they need
    """

    def __init__(self, message: str, needed_bytes: int) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes

    def __reduce__(self) -> tuple[type[HeapFullError], tuple[str, int]]:
        return type(self), (str(self), self.needed_bytes)


class LossyStorageWarning(UserWarning):
    """The storage dtype that was asked for cannot hold all values of the observation space."""


class FallbackWarning(UserWarning):
    """A slower stand-in is used, because a package is not installed."""


class UncompressedBufferWarning(UserWarning):
    """A model that was made with a compressed buffer has loaded a file with one of SB3's own."""


class ShardLostWarning(UserWarning):
    """The process of a shard has died; it was started anew, empty or with what its last checkpoint held."""


class CollectorLostWarning(UserWarning):
    """The process of a collector has died, or did not answer in time; it was started anew."""


class WaitingForResourcesWarning(UserWarning):
    """Collectors have not started, because Ray has too few free CPUs."""
