"""The application that the page talks to: Starlette routes over sources. It has no state but them, and writes nothing.

No path is ever taken from an address: sources have numbers, and the files of the page are listed when it starts.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from sb3_extra_buffers.errors import CorruptDataError, MissingBackendError
from sb3_extra_buffers.viewer import answers
from sb3_extra_buffers.viewer.export import FORMATS, Clip
from sb3_extra_buffers.viewer.guard import Guard
from sb3_extra_buffers.viewer.pictures import PALETTE, png, sheet
from sb3_extra_buffers.viewer.source import Source, State

PAGE = Path(__file__).parent / "page"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
#: A picture of a version of a source never changes: the version is part of its address.
_FOREVER = "private, max-age=31536000, immutable"
_MOST_ZOOM = 16

Answer = Callable[[Request], Any]


def make_app(sources: list[Source], *, token: str = "", hosts: frozenset[str] | None = None) -> Guard:
    """The application.

    :param token: the first part of all addresses, if there is one
    :param hosts: names that a request may give as its host; None for any
    """
    api: list[BaseRoute] = [
        Route("/sources", _json(lambda request: [about(i, source) for i, source in enumerate(sources)])),
        *(Route(f"/{{source:int}}{path}", _json(_of_source(sources, answer))) for path, answer in _ANSWERS.items()),
        Route("/{source:int}/frames/{env:int}/{step:int}.png", _guarded(_of_source(sources, _frame))),
        Route("/{source:int}/export/{episode:int}.{suffix}", _guarded(_of_source(sources, _export))),
    ]
    files = {path.name: path.read_bytes() for path in sorted(PAGE.iterdir()) if path.suffix in _TYPES}

    def page(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in files:
            return _error(404, f"There is no page {name!r}")
        return Response(files[name], media_type=_TYPES[Path(name).suffix], headers={"Cache-Control": "no-cache"})

    routes: list[BaseRoute] = [Route("/", page), Mount("/api", routes=api), Route("/page/{name}", page)]

    def close() -> None:
        for source in sources:
            source.close()

    return Guard(Starlette(routes=routes, exception_handlers={404: _not_found}), token, hosts, close)


def about(i: int, source: Source) -> dict[str, Any]:
    """What the page needs to know of a source before anything else; or what is wrong with it."""
    said: dict[str, Any] = {"id": i, "name": source.name, "path": str(source.path), "followed": source.is_followed}
    try:
        state = source.state()
        return {
            **said, "version": state.version, "class": state.experience.class_name, "steps": state.experience.n_steps,
            "envs": state.experience.n_envs, "first": state.experience.first, "episodes": len(state.episodes),
        }  # fmt: skip
    except Exception as error:
        return {**said, "error": reason(error)}


def reason(error: Exception) -> str:
    """What went wrong, in a sentence."""
    text = " ".join(str(error).split())
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return f"{error.filename} is not there any more"
    return (
        text
        if isinstance(error, (ValueError, LookupError, ImportError, OSError)) and text
        else f"{type(error).__name__}: {text}"
    )


_ANSWERS: dict[str, Callable[[State, Request], Any]] = {
    "/overview": lambda state, _: {"version": state.version, **state.overview},
    "/memory": lambda state, _: state.memory,
    "/findings": lambda state, _: [asdict(one) for one in state.findings],
    "/keys": lambda state, _: answers.keys(state),
    "/palette": lambda state, _: PALETTE,
    "/episodes": lambda state, request: answers.episodes(state, request.query_params),
    "/episodes/{episode:int}": lambda state, request: answers.episode(state, request.path_params["episode"]),
    "/containing/{env:int}/{step:int}": lambda state, request: answers.containing(
        state, request.path_params["env"], request.path_params["step"]
    ),
    "/steps/{env:int}": lambda state, request: answers.steps(state, request.path_params["env"], request.query_params),
    "/values/{env:int}": lambda state, request: answers.values(state, request.path_params["env"], request.query_params),
}


def _of_source(sources: list[Source], answer: Callable[[State, Request], Any]) -> Answer:
    def run(request: Request) -> Any:
        number = request.path_params["source"]
        if not 0 <= number < len(sources):
            raise LookupError(f"There is no source {number}; there are {len(sources)}")
        return answer(sources[number].state(), request)

    return run


def _json(answer: Answer) -> Callable[[Request], Response]:
    def respond(request: Request) -> Response:
        said = json.dumps(answers.finite(answer(request)), separators=(",", ":"), allow_nan=False)
        return Response(said, media_type="application/json", headers={"Cache-Control": "no-store"})

    return _guarded(respond)


def _guarded(respond: Answer) -> Callable[[Request], Response]:
    """Errors become answers that say what is wrong."""

    def run(request: Request) -> Response:
        try:
            response: Response = respond(request)
            return response
        except LookupError as error:
            return _error(404, str(error.args[0]) if error.args else "There is no such thing")
        except (CorruptDataError, OSError) as error:
            return _error(422, reason(error))
        except MissingBackendError as error:
            return _error(501, reason(error))
        except ValueError as error:
            return _error(400, reason(error))
        except Exception as error:
            return _error(422, f"This cannot be read: {type(error).__name__}: {error}")

    return run


def _error(status: int, text: str) -> Response:
    said = json.dumps({"error": text})
    return Response(said, status, media_type="application/json", headers={"Cache-Control": "no-store"})


def _not_found(request: Request, error: Exception) -> Response:
    return _error(404, "There is nothing at this address")


def _picture_key(state: State, request: Request) -> str:
    key = request.query_params.get("key") or next(iter(state.pictures), "")
    if key not in state.pictures:
        raise LookupError(f"There is no picture {key!r}; there are {', '.join(state.pictures) or 'none'}")
    return key


def _frame(state: State, request: Request) -> Response:
    env, position = request.path_params["env"], request.path_params["step"] - state.experience.first
    key = _picture_key(state, request)
    answers.check_env(state, env)
    if not 0 <= position < state.experience.n_steps:
        raise LookupError(f"There is no step {request.path_params['step']} any more")
    is_newest = request.query_params.get("newest") == "1"
    pixels = sheet(state.experience, key, state.pictures[key], env, position, newest=is_newest)
    is_current = request.query_params.get("v") == state.version
    data = png(pixels, labels=is_newest and key in state.labels)
    return Response(data, media_type="image/png", headers={"Cache-Control": _FOREVER if is_current else "no-store"})


def _export(state: State, request: Request) -> Response:
    suffix, query = request.path_params["suffix"], request.query_params
    if suffix not in FORMATS:
        raise ValueError(f"An episode is saved as {', '.join(FORMATS)}, not as {suffix!r}")
    row = answers.episode(state, request.path_params["episode"])
    begin = state.experience.first
    key = query.get("key") or next(iter(state.pictures), "")
    clip = Clip(
        state.experience, row["env"], row["first"] - begin, row["last"] - begin, key, state.pictures.get(key),
        min(max(answers.number(query, "fps", 15), 1), 120), min(max(answers.number(query, "zoom", 1), 1), _MOST_ZOOM),
    )  # fmt: skip
    with tempfile.NamedTemporaryFile(prefix="sb3x-", suffix=f".{suffix}", delete=False) as file:
        path = Path(file.name)
    try:
        clip.write(path, suffix)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return FileResponse(
        path, media_type=FORMATS[suffix], filename=f"episode-{row['episode']}.{suffix}", headers={"Cache-Control": "no-store"},
        background=BackgroundTask(path.unlink, missing_ok=True),
    )  # fmt: skip
