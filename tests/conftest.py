"""One thread for torch: the tests run side by side, and results must not depend on how sums are split."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch as th

th.set_num_threads(1)
