"""Kinds of observations that `estimate` knows: which recordings stand for them, and which observations are of them.

A new kind is an entry of `KINDS`, and figures, which `bench --sizes` measures. This module imports nothing, for `--help`.
"""

from __future__ import annotations

from dataclasses import dataclass

MAIN_GAME = "MsPacman"
OTHER_GAMES = ("Pong", "Seaquest", "Breakout", "Qbert", "SpaceInvaders", "BeamRider")
SCENARIOS = ("basic", "deadly_corridor", "defend_the_center", "health_gathering", "my_way_home")
_NUMBERS = ("no", "one", "two", "three", "four")


@dataclass(frozen=True)
class Kind:
    """A kind of observation.

    :param workloads: recordings that stand for it
    :param description: what the recordings are, for people
    :param shows: what is seen, in a few words
    :param axes: numbers of axes that an observation may have
    :param dtypes: dtypes that it may have; all if none is named
    :param channels: channels of a frame
    :param is_guessed: whether an observation may be taken for one of this kind without a word of the user
    """

    workloads: tuple[str, ...]
    description: str
    shows: str
    axes: tuple[int, ...]
    dtypes: tuple[str, ...] = ()
    channels: int = 1
    is_guessed: bool = True

    def fits(self, shape: tuple[int, ...], dtype: str) -> bool:
        """Whether the figures of this kind can be about such observations."""
        return len(shape) in self.axes and dtype in (self.dtypes or (dtype,)) and channels_of(shape) % self.channels == 0

    @property
    def needs(self) -> str:
        """What observations must be to fit, in words."""
        dtypes = " or ".join(self.dtypes)
        axes = f"{' or '.join(_NUMBERS[n] for n in self.axes)} axes"
        channels = f" and channels in {_NUMBERS[self.channels]}s on the first or last axis" if self.channels > 1 else ""
        return f"{dtypes} with {axes}{channels}" if dtypes else f"{axes}{channels}"

    def frames_in(self, shape: tuple[int, ...]) -> int:
        """Frames that are probably stacked in an observation: all channels where it is a picture, one where it is not."""
        return channels_of(shape) // self.channels if max(self.axes) == 3 else 1


def channels_of(shape: tuple[int, ...]) -> int:
    """Channels of a picture, on its first or last axis."""
    return min(shape[0], shape[-1]) if len(shape) == 3 else 1


PICTURE = (2, 3)
KINDS = {
    "atari": Kind(
        (MAIN_GAME, *OTHER_GAMES), "Atari games, 84x84 gray, stacks of 4",
        "gray frames, a camera that stands still", PICTURE, ("uint8",),
    ),
    "masks": Kind(
        tuple(f"{scenario}-labels" for scenario in SCENARIOS), "label masks of ViZDoom scenarios, 160x120, stacks of 4",
        "segmentation", PICTURE, ("uint8",), is_guessed=False,
    ),
    "rgb": Kind(
        tuple(f"{scenario}-rgb" for scenario in SCENARIOS), "RGB of ViZDoom scenarios, 160x120, stacks of 4",
        "colour, a camera that moves", PICTURE, ("uint8",), channels=3,
    ),
    "vector": Kind(
        ("vectors-4", "vectors-17", "vectors-64", "vectors-376"), "random walks of float32", "numbers", (1, 2),
    ),
}  # fmt: skip


def guess_kind(shape: tuple[int, ...], dtype: str) -> str | None:
    """The kind that an observation most likely is: of those that fit, the one that asks most. None if nothing fits."""
    fitting = [name for name, kind in KINDS.items() if kind.is_guessed and kind.fits(shape, dtype)]
    return max(fitting, key=lambda name: (bool(KINDS[name].dtypes), KINDS[name].channels), default=None)
