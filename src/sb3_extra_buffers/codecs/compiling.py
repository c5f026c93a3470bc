"""`jit`: numba's, where numba is installed and switched on. Imported with the kernels, never at `import sb3_extra_buffers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

try:
    import numba
except ImportError:
    numba = None

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

#: Whether kernels are compiled. NUMBA_DISABLE_JIT=1 gives the NumPy forms, as a missing numba does.
COMPILED = numba is not None and not numba.config.DISABLE_JIT


def jit(function: Kernel) -> Kernel:
    """Compile a kernel on its first call, or leave it as it is when there is no numba.

    Serial, and without the GIL: parallel kernels would abort in forked children.
    """
    if not COMPILED:
        return function
    compiled: Kernel
    try:
        compiled = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no folder that the compiled code could be kept in: compile anew in every process
        compiled = numba.njit(nogil=True)(function)
    return compiled
