"""The viewer as a server that runs: in a thread, for notebooks and tests, or in the foreground, for the command."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sb3_extra_buffers._optional import require

if TYPE_CHECKING:
    from typing_extensions import Self

#: Where the page is, unless another program is there.
PORT = 8733
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MOST_SOURCES = 8
_SECONDS_TO_START = 20.0


class Viewer:
    """Shows saved buffers, checkpoint folders and records in the browser. It reads them, and never writes.

    :param paths: what to show; several are shown side by side
    :param host: address to listen at. For any other than this machine's own, all addresses need a token, which `url` has
    :param port: port to listen at; 0 for any that is free, None for the usual one or, if that is taken, a free one
    :param action_names: names of discrete actions, for spaces that have none
    """

    def __init__(
        self,
        *paths: str | os.PathLike[str],
        host: str = "127.0.0.1",
        port: int | None = None,
        action_names: Sequence[str] | None = None,
    ) -> None:
        require("starlette", extra="viewer", what="The viewer")
        self._uvicorn: Any = require("uvicorn", extra="viewer", what="The viewer")
        from sb3_extra_buffers.viewer.guard import LOOPBACK
        from sb3_extra_buffers.viewer.server import make_app
        from sb3_extra_buffers.viewer.source import Source, names_of

        if not 1 <= len(paths) <= _MOST_SOURCES:
            raise ValueError(f"The viewer shows one to {_MOST_SOURCES} buffers, got {len(paths)}")
        given = [Path(path) for path in paths]
        for path in given:
            if not path.exists():
                raise FileNotFoundError(f"No file {path}")
        names = list(action_names) if action_names is not None else None
        sources = [Source(path, name, names) for path, name in zip(given, names_of(given), strict=True)]
        is_local = host in _LOOPBACK
        token = "" if is_local else secrets.token_urlsafe(24)
        self._socket = _listening(host, port)
        bound = self._socket.getsockname()[1]
        shown = socket.gethostname() if host in ("0.0.0.0", "::") else host
        shown = f"[{shown}]" if ":" in shown else shown
        #: The address of the page.
        self.url = f"http://{shown}:{bound}/{token}{'/' if token else ''}"
        app = make_app(sources, token=token, hosts=LOOPBACK if is_local else None)
        config = self._uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="on", ws="none", timeout_graceful_shutdown=1
        )
        self._server = self._uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Answer until Ctrl-C."""
        try:
            self._server.run(sockets=[self._socket])
        except KeyboardInterrupt:  # which uvicorn raises again when all is closed
            pass
        finally:
            self._socket.close()

    def start(self) -> Self:
        """Answer in a thread, until `stop`."""
        if self._thread is not None:
            return self
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="viewer", daemon=True
        )
        self._thread.start()
        until = time.monotonic() + _SECONDS_TO_START
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                raise RuntimeError("The viewer did not start")
            time.sleep(0.01)
        return self

    def stop(self) -> None:
        """End it."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._socket.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Viewer {self.url}>"


def _listening(host: str, port: int | None) -> socket.socket:
    """A socket at this address, or an error that says why there is none."""
    try:
        return _bound(host, PORT if port is None else port)
    except (OSError, OverflowError, UnicodeError) as error:
        if port is None:
            return _listening(host, 0)
        raise OSError(f"Cannot listen at {host}, port {port}: {error}. Port 0 takes one that is free") from error


def _bound(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it would let two programs listen at one port
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
    except BaseException:
        made.close()
        raise
    return made
