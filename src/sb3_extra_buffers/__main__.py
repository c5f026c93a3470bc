"""`python -m sb3_extra_buffers`: the same as the command `sb3-extra-buffers`."""

from __future__ import annotations

import sys

from sb3_extra_buffers.cli import main

sys.exit(main())
