"""What was read lately, within a limit of bytes. Above: experience."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any


class ByteCache:
    """The last values that were asked for. Whoever uses it holds its lock: several states of a folder share it.

    :param limit: bytes of all values together; the newest one is kept even if it is larger
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._n_bytes = limit, 0
        self.lock = threading.RLock()
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], tuple[Any, int]]) -> Any:
        """The value of a key.

        :param make: gives the value and its bytes, if it is not there
        """
        if key in self._values:
            self._values.move_to_end(key)
            return self._values[key][0]
        value, n_bytes = make()
        self._values[key] = value, n_bytes
        self._n_bytes += n_bytes
        while self._n_bytes > self._limit and len(self._values) > 1:
            self._n_bytes -= self._values.popitem(last=False)[1][1]
        return value
