"""What an import did, in words. It is logged by ``sb3_extra_buffers.datasets`` at the end of every import."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

logger = logging.getLogger("sb3_extra_buffers.datasets")


@dataclass
class Report:
    """Counts of an import. They are logged as a warning if there is something that a user should know, otherwise as info.

    :param source: name of the data
    """

    source: str
    n_steps: int = 0
    n_terminated: int = 0
    n_truncated: int = 0
    n_cut: int = 0
    n_stand_ins: int = 0
    n_left_out: int = 0
    n_skipped: int = 0
    keeps_timeouts: bool = True
    notes: list[str] = field(default_factory=list)
    _unused: dict[str, None] = field(default_factory=dict)

    def unused(self, names: Iterable[str]) -> None:
        """Note fields that a buffer does not keep."""
        self._unused.update(dict.fromkeys(names))

    def note(self, sentence: str) -> None:
        """Note something else, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def sentences(self) -> list[str]:
        """What happened to truncations, missing next observations and unknown fields, then the other notes."""
        said = []
        if self.n_truncated:
            how = "kept as timeouts: values are bootstrapped there"
            if not self.keeps_timeouts:
                how = "treated as terminations, because the buffer has handle_timeout_termination=False"
            said.append(f"Truncations ({self.n_truncated}) are {how}.")
        if self.n_cut:
            how = "end with a timeout" if self.keeps_timeouts else "are not marked"
            said.append(f"Episodes that the data do not hold to their end ({self.n_cut}) {how}.")
        if self.n_stand_ins:
            said.append(f"Terminal steps without a next observation ({self.n_stand_ins}) repeat their own; it has no effect.")
        if self.n_left_out:
            said.append(f"Other steps without a next observation ({self.n_left_out}) are left out.")
        if self.n_skipped:
            said.append(f"The first steps ({self.n_skipped}) are left out, because the buffer has no room for them.")
        if self._unused:
            said.append(f"Not used: {', '.join(self._unused)}.")
        return [*said, *self.notes]

    def log(self) -> None:
        """Log all of it."""
        said = self.sentences()
        summary = f"{self.source}: {self.n_steps} steps, {self.n_terminated} terminations."
        logger.log(logging.WARNING if said else logging.INFO, "%s", " ".join([summary, *said]))
