"""How a frame is cut into pieces, and how pieces form blocks. Above: tiles, which stores them.

    (1, 84, 84) uint8:  252 pieces of 28 bytes, 3 a line    level 0: rows of 7 words, named by int32 numbers
                        7 names, one below the other        level 1: 36 rows a frame, blocks of 7 lines
                        4 of those, one below the other     level 2: 9 rows, blocks of 28 lines, whose names the slot keeps

Moving objects are small, so fewer square blocks than lines change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch as th

#: Words in a piece, best first. Short pieces need more names; long pieces repeat less often.
_PIECE_WORDS = (7, 8, 6, 5, 9, 10, 4)
#: Rows of one level that form a row of the next, best first.
_BRANCHES = (7, 4, 6, 5, 3, 2)
#: Levels that form blocks of rows below each other.
_DOWN = 2
#: Names of the last level that a slot may keep.
_TOP_NAMES = 12


@dataclass(frozen=True)
class Tree:
    """How a frame is cut into pieces, and how pieces form rows of the next levels.

    :param piece: words of a piece
    :param across: pieces in a line
    :param lines: lines of a frame, padded
    :param block: lines of a block
    :param branches: rows of each level that form a row of the next
    """

    piece: int
    across: int
    lines: int
    block: int
    branches: tuple[int, ...]

    @property
    def n_pieces(self) -> int:
        return self.across * self.lines

    @property
    def n_words(self) -> int:
        return self.piece * self.n_pieces

    @property
    def n_top(self) -> int:
        """Names that a slot keeps."""
        return self.n_pieces // math.prod(self.branches)

    def by_block(self, names: th.Tensor) -> th.Tensor:
        """Reorder names of pieces from lines to blocks: column by column of each row of blocks."""
        return names.view(-1, self.block, self.across).transpose(1, 2).reshape(-1)

    def by_line(self, names: th.Tensor) -> th.Tensor:
        """The inverse of `by_block`."""
        return th.stack(names.view(-1, self.across, self.block).unbind(1), 2).view(-1)  # faster than to transpose


def plan_tree(frame_bytes: int, line_bytes: int = 0) -> Tree:
    """The tree for a frame. Without lines, or if a line cannot be divided into pieces, a line is one piece.

    :param frame_bytes: bytes of a frame
    :param line_bytes: bytes of a line, or 0
    """
    words, odd = divmod(line_bytes, 4)
    piece = next((width for width in _PIECE_WORDS if words and not odd and words % width == 0), 0)
    across = words // piece if piece else 1
    n_words = -(-frame_bytes // 4)
    piece = piece or next((width for width in _PIECE_WORDS if n_words % width == 0), _PIECE_WORDS[0])
    lines = -(-n_words // (piece * across))
    branches: list[int] = []
    side, rest, block = across, lines, 1
    while side * rest > _TOP_NAMES:
        is_down = side == 1 or (len(branches) < _DOWN and rest > 1)
        branch = next((n for n in _BRANCHES if (rest if is_down else side) % n == 0), _BRANCHES[0] if is_down else side)
        if is_down:
            rest = -(-rest // branch)
            block *= branch if side == across else 1
        else:
            side //= branch
        branches.append(branch)
    return Tree(piece, across, side * rest * math.prod(branches) // across, block, tuple(branches))
