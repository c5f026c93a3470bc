"""The viewer: what a saved buffer holds, in the browser. `sb3-extra-buffers view PATH` starts it.

    file, folder -> segments -> Experience -> episodes, overview, findings, pictures -> server -> page

It reads segments, a few steps at a time, and needs neither torch nor SB3: it starts at once and stays small, however large the
buffer is.
"""

from __future__ import annotations

from sb3_extra_buffers._lazy import lazy_attributes

_WHERE = {"Viewer": "running"}
__all__ = [*_WHERE]
__getattr__, __dir__ = lazy_attributes(__name__, _WHERE)
