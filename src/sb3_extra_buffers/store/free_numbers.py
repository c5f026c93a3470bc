"""Free row numbers, taken and given back in batches. Used by host/rows and device/rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class FreeNumbers:
    """A stack: the number that was given back last is taken first."""

    def __init__(self) -> None:
        self._numbers = np.zeros(0, np.int32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return self._numbers.nbytes

    def take(self, n: int) -> NDArray[np.int64]:
        """Take ``n`` numbers, or as many as there are."""
        n = min(n, self._count)
        self._count -= n
        return self._numbers[self._count : self._count + n].astype(np.int64)

    def give_back(self, numbers: NDArray[Any]) -> None:
        """Add free numbers."""
        end = self._count + len(numbers)
        missing = end - len(self._numbers)
        if missing > 0:
            self._numbers = np.concatenate((self._numbers, np.zeros(max(missing, len(self._numbers) // 4), np.int32)))
        self._numbers[self._count : end] = numbers
        self._count = end

    def snapshot(self) -> NDArray[np.int32]:
        """All free numbers."""
        return self._numbers[: self._count].copy()

    def clear(self) -> None:
        """Remove all numbers."""
        self._numbers, self._count = np.zeros(0, np.int32), 0
