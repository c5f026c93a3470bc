"""Who may ask: the token in the address, the host that a request names, and headers that keep the page to itself.

A page of another site can point a name of its own to 127.0.0.1 and then ask as if it were ours (DNS rebinding). So without a
token only names of this machine are answered.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Characters of an address; the page needs some dozens. Longer numbers are more than Python reads.
_LONGEST = 1000
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Guard:
    """An ASGI application around another one.

    :param token: what all addresses must begin with; nothing if it is empty
    :param hosts: names that are answered to; None for all
    :param close: is called at the end
    """

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str] | None, close: Callable[[], None]) -> None:
        self._app, self._token, self._hosts, self._close = app, token, hosts, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or say why not."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            return
        if self._hosts is not None and _host(scope) not in self._hosts:
            await _refuse(send, 403, "This page answers to its own address only")
            return
        if scope["method"] not in ("GET", "HEAD"):
            await _refuse(send, 405, "This page is only read")
            return
        if len(scope["path"]) > _LONGEST:
            await _refuse(send, 414, f"An address has at most {_LONGEST} characters")
            return
        if self._token:
            first, slash, rest = scope["path"][1:].partition("/")
            if not secrets.compare_digest(first.encode(), self._token.encode()):
                await _refuse(send, 403, "The address lacks the token that was printed when the viewer was started")
                return
            if not slash:  # the page's own addresses are relative to it
                await send({"type": "http.response.start", "status": 307, "headers": [(b"location", f"/{first}/".encode())]})
                await send({"type": "http.response.body", "body": b""})
                return
            scope = {**{name: value for name, value in scope.items() if name != "raw_path"}, "path": f"/{rest}"}
        await self._app(scope, receive, _with_headers(send))

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                self._close()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return


def _host(scope: Scope) -> str:
    """The host that a request names, without the port."""
    named = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    if len(named) != 1:
        return ""
    host: str = named[0].lower()
    return host[: host.rfind(":")] if ":" in host.rpartition("]")[2] else host


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            extra = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", ()), *extra]}
        await send(message)

    return sent


async def _refuse(send: Send, status: int, text: str) -> None:
    body = json.dumps({"error": text}).encode()
    headers: list[Any] = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    sent = _with_headers(send)
    await sent({"type": "http.response.start", "status": status, "headers": headers})
    await sent({"type": "http.response.body", "body": body})
