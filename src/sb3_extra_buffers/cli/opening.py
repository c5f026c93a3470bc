"""A saved buffer of any kind: a file of segments, a checkpoint folder, or a pickle, which is asked about first."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from sb3_extra_buffers.cli.output import complain


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Declare --trust."""
    parser.add_argument("--trust", action="store_true", help="open a pickle without asking; it can run any code that is in it")


def check_path(path: Path) -> None:
    """ValueError unless there is a file, or a folder with a checkpoint."""
    from sb3_extra_buffers.segments.folders import LIST, is_checkpoint

    if not path.exists():
        raise ValueError(f"No file {path}")
    if path.is_dir() and not is_checkpoint(path):
        raise ValueError(f"{path} is a folder without a checkpoint: it has no {LIST}")


def is_pickle(path: Path) -> bool:
    """Whether a file is none of this library's, but begins like a pickle."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(1) == b"\x80"


def open_buffer(path: Path, *, trust: bool, **sizes: Any) -> Any:
    """The buffer at a path, or an error that says why there is none.

    :param trust: open a pickle without asking
    :param sizes: keywords of `load_buffer`
    """
    if not path.exists():
        raise ValueError(f"No file {path}")
    if not is_pickle(path):
        from sb3_extra_buffers.persistence import load_buffer

        return load_buffer(path, device="cpu", truncate_last_traj=False, **sizes)  # which says so if the file is anything else
    if not trust:
        _ask(path)
    return load_pickle(path)


def _ask(path: Path) -> None:
    question = f"{path} is a pickle, as model.save_replay_buffer writes it. Opening it can run any code that is in it"
    if not (sys.stdin is not None and sys.stdin.isatty()):
        raise ValueError(f"{question}: give --trust if you trust where it comes from")
    complain(f"{question}. Do you trust it? [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ValueError(f"{path} was not opened")


def load_pickle(path: Path) -> Any:
    """The buffer in a pickle."""
    from stable_baselines3.common.buffers import BaseBuffer
    from stable_baselines3.common.save_util import load_from_pkl

    try:
        with path.open("rb") as file:
            buffer = load_from_pkl(file)
    except Exception as error:  # unpickling damaged bytes raises anything at all
        raise ValueError(
            f"{path} cannot be opened as a saved replay buffer ({type(error).__name__}: {error}). "
            "Expected a file made by buffer.save or model.save_replay_buffer"
        ) from error
    if not isinstance(buffer, BaseBuffer):
        raise ValueError(f"{path} holds a {type(buffer).__name__}, not a buffer")
    return buffer


def write_buffer(buffer: Any, path: Path) -> None:
    """Save a buffer: to a file, or to a checkpoint folder if the path is a folder or has no suffix."""
    if path.is_dir() or not path.suffix:
        buffer.checkpoint(path)
    else:
        buffer.save(path)
