"""The viewer's server: its answers, who it answers to, what it says of bad files, and that it stays small."""

from __future__ import annotations

import http.client
import io
import json
import socket
import subprocess
import sys
import tracemalloc
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from sb3_extra_buffers.cli import main
from sb3_extra_buffers.compressed import CompressedReplayBuffer
from sb3_extra_buffers.viewer import Viewer, answers
from sb3_extra_buffers.viewer.export import Clip
from sb3_extra_buffers.viewer.server import PAGE
from sb3_extra_buffers.viewer.source import Source
from tests.damage import sections, signed
from tests.viewer_game import SIZE, Game, frame, stacked


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("viewer") / "game.sb3x"
    Game(200).play(150).buffer.save(path)
    return path


@pytest.fixture(scope="module")
def viewer(saved: Path) -> Iterator[Viewer]:
    with Viewer(saved, port=0) as running:
        yield running


def ask(url: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def told(viewer: Viewer, path: str) -> Any:
    status, _, body = ask(f"{viewer.url}api/{path}")
    assert status == 200, body
    return json.loads(body)


def refused(viewer: Viewer, path: str, status: int) -> str:
    found, _, body = ask(f"{viewer.url}api/{path}")
    assert found == status
    text: str = json.loads(body)["error"]
    return text


def pixels(data: bytes) -> np.ndarray:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image)


def test_frames_are_png_with_the_bytes_that_are_stored(viewer: Viewer) -> None:
    version = told(viewer, "sources")[0]["version"]
    status, headers, body = ask(f"{viewer.url}api/0/frames/1/20.png?v={version}")
    assert (status, headers["content-type"]) == (200, "image/png")
    assert headers["cache-control"] == "private, max-age=31536000, immutable"
    assert np.array_equal(pixels(body), np.block([list(stacked(1, 20)), list(stacked(1, 21))]))
    _, headers, body = ask(f"{viewer.url}api/0/frames/0/7.png?newest=1&v=old")
    assert headers["cache-control"] == "no-store"
    assert np.array_equal(pixels(body), frame(0, 7))


def test_episodes_are_sorted_and_filtered(viewer: Viewer) -> None:
    found = told(viewer, "0/episodes?where=ended+by+timeout&sort=length&desc=1&limit=3")
    assert found["found"] < found["total"]
    assert {row["ended"] for row in found["rows"]} == {"timeout"}
    lengths = [row["length"] for row in found["rows"]]
    assert lengths == sorted(lengths, reverse=True)
    assert "return > 10" in refused(viewer, "0/episodes?where=nonsense", 400)
    assert "sorted by" in refused(viewer, "0/episodes?sort=nonsense", 400)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("nothing", 404), ("7/overview", 404), ("0/episodes/99999", 404), ("0/frames/9/1.png", 404),
        ("0/frames/0/99999.png", 404), ("0/frames/0/1.png?key=nothing", 404), ("0/steps/0?first=99999", 404),
        ("0/steps/0?first=-1", 400), ("0/values/0?key=x", 404),
        ("0/export/0.exe", 400), ("0/containing/0/99999", 404), ("0/episodes?offset=1e3", 400), ("-1/overview", 404),
    ],
)  # fmt: skip
def test_what_is_not_there_is_said(viewer: Viewer, path: str, status: int) -> None:
    assert len(refused(viewer, path, status)) > 10


def test_an_episode_as_npz_has_everything(viewer: Viewer) -> None:
    row = told(viewer, "0/episodes/3")
    status, headers, body = ask(f"{viewer.url}api/0/export/3.npz")
    assert status == 200
    assert "episode-3.npz" in headers["content-disposition"]
    with np.load(io.BytesIO(body)) as found:
        assert {*found} == {"observations", "next_observations", "actions", "rewards", "dones", "timeouts"}
        expected = np.stack([stacked(row["env"], t) for t in range(row["first"], row["last"])])
        assert np.array_equal(found["observations"], expected)
        assert found["rewards"].sum() == pytest.approx(row["return"])
        assert found["dones"][-1] == 1
    assert zipfile.ZipFile(io.BytesIO(body)).testzip() is None


def test_an_episode_as_gif_and_mp4(viewer: Viewer, tmp_path: Path) -> None:
    from PIL import Image

    row = told(viewer, "0/episodes/3")
    _, _, body = ask(f"{viewer.url}api/0/export/3.gif?zoom=2")
    with Image.open(io.BytesIO(body)) as gif:
        assert gif.size == (2 * SIZE, 2 * SIZE)
        assert gif.n_frames == row["length"]
        assert np.array_equal(np.asarray(gif.convert("L"))[::2, ::2], frame(row["env"], row["first"]))
    _, headers, body = ask(f"{viewer.url}api/0/export/3.mp4?zoom=3&fps=10")
    assert headers["content-type"] == "video/mp4"
    assert body[4:8] == b"ftyp"


def test_a_gif_that_would_take_too_much_memory_is_refused(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_extra_buffers.viewer.export._GIF_BYTES", 1000)
    assert "MP4" in refused(viewer, "0/export/3.gif", 400)


# ---- who is answered to


def test_no_answer_takes_memory_for_all_of_an_episode(tmp_path: Path) -> None:
    shape, n = (300, 400, 3), 300  # 108 MB
    buffer = CompressedReplayBuffer(n, spaces.Box(0, 255, shape, np.uint8), spaces.Discrete(2), "cpu")
    for t in range(n):
        buffer.add(
            *(np.full((1, *shape), (t + k) % 256, np.uint8) for k in (0, 1)), np.zeros((1, 1)), np.ones(1), np.zeros(1), [{}]
        )
    buffer.save(tmp_path / "large.sb3x")
    state = Source(tmp_path / "large.sb3x", "large").state()
    tracemalloc.start()
    try:
        said = answers.values(state, 0, {"key": "observation"})
        Clip(state.experience, 0, 0, n).write(tmp_path / "episode.npz", "npz")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30e6
    assert (said["dimensions"], len(said["values"]), said["values"][7]) == (360_000, n, [7] * 64)
    with np.load(tmp_path / "episode.npz") as file:
        assert file["next_observations"].shape == (n, *shape)
        assert np.array_equal(file["next_observations"][:, 0, 0, 0], (np.arange(n) + 1) % 256)


def test_pictures_of_a_video_that_would_take_too_much_memory_are_refused(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sb3_extra_buffers.viewer.export._PICTURE_BYTES", SIZE * SIZE * 16)
    assert "smaller zoom" in refused(viewer, "0/export/0.mp4?zoom=5", 400)
    assert "smaller zoom" in refused(viewer, "0/export/0.gif?zoom=5", 400)


@pytest.mark.parametrize("path", ["{}/overview", "0/episodes/{}", "0/frames/0/{}.png", "0/containing/{}/0"])
def test_addresses_that_are_too_long_are_refused(viewer: Viewer, path: str) -> None:
    assert "1000 characters" in refused(viewer, path.format("9" * 5000), 414)


def test_a_websocket_is_no_way_in(viewer: Viewer) -> None:
    """It is answered as any other request: hosts are checked, and no error is logged."""
    asked = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "a" * 22 + "==",
        "Sec-WebSocket-Version": "13",
    }
    connection = http.client.HTTPConnection(viewer.url.split("/")[2], timeout=30)
    connection.request("GET", "/api/sources", headers={**asked, "Host": "example.org"})
    assert connection.getresponse().status == 403
    connection.close()


def test_other_hosts_are_refused(viewer: Viewer) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        assert ask(viewer.url, Host=host)[0] in (400, 403)
    for host in ("localhost:1", "127.0.0.1", "[::1]:80"):
        assert ask(viewer.url, Host=host)[0] == 200


def test_pages_are_kept_to_themselves(viewer: Viewer) -> None:
    for path in ("", "page/main.js", "api/sources", "api/nothing"):
        headers = {name.lower(): value for name, value in ask(viewer.url + path)[1].items()}
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "path", ["page/../server.py", "page/%2e%2e/server.py", "page/..%2fserver.py", "../../etc/passwd", "page/"]
)
def test_no_path_leads_out_of_the_page(viewer: Viewer, path: str) -> None:
    host, port = viewer.url.removeprefix("http://").rstrip("/").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 404")
    assert b"root:" not in answer
    assert b"Starlette" not in answer


def test_another_host_needs_the_token_of_the_address(saved: Path) -> None:
    with Viewer(saved, host="0.0.0.0", port=0) as running:
        _, _, address = running.url.partition("//")
        authority, token = address.split("/")[:2]
        base = f"http://127.0.0.1:{authority.rpartition(':')[2]}"
        assert len(token) >= 30
        other = token[:-1] + ("y" if token[-1] == "x" else "x")
        assert ask(f"{base}/")[0] == ask(f"{base}/api/sources")[0] == ask(f"{base}/{other}/")[0] == 403
        assert "token" in json.loads(ask(f"{base}/api/sources")[2])["error"]
        assert ask(f"{base}/{token}/")[0] == ask(f"{base}/{token}/api/0/frames/0/3.png")[0] == 200
        assert ask(f"{base}/{token}/page/main.js", Host="any.example")[0] == 200
        with urllib.request.urlopen(f"{base}/{token}") as answer:  # a forgotten slash leads to the page
            assert answer.url == f"{base}/{token}/"


def test_only_reading_is_allowed(viewer: Viewer) -> None:
    request = urllib.request.Request(f"{viewer.url}api/sources", b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError, match="405") as raised:
        urllib.request.urlopen(request, timeout=10)
    raised.value.close()


def test_the_page_loads_nothing_from_elsewhere_and_makes_no_markup_of_texts() -> None:
    for path in PAGE.iterdir():
        text = path.read_text()
        hosts = {part.split('"')[0].split("'")[0] for part in text.split("http")[1:] if part.startswith(("://", "s://"))}
        assert hosts <= {"://www.w3.org/2000/svg"}, path.name
        assert not any(word in text for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("))


# ---- bad files


def test_a_damaged_file_is_explained_and_others_still_work(saved: Path, tmp_path: Path) -> None:
    data = bytearray(saved.read_bytes())
    (tmp_path / "cut.sb3x").write_bytes(data[: len(data) // 2])
    data[len(data) // 2] ^= 1  # within the frames: found when they are read
    (tmp_path / "flipped.sb3x").write_bytes(data)
    (tmp_path / "other.sb3x").write_text("something else" * 20)
    with Viewer(tmp_path / "cut.sb3x", tmp_path / "other.sb3x", tmp_path / "flipped.sb3x", saved, port=0) as running:
        cut, other, flipped, good = told(running, "sources")
        assert "cut off" in cut["error"]
        assert "no file of sb3-extra-buffers" in other["error"]
        assert "error" not in good
        assert "cut off" in refused(running, "0/overview", 422)
        assert "error" not in flipped
        assert "checksum" in refused(running, "2/frames/0/3.png", 422)
        assert "checksum" in refused(running, "2/findings", 422)
        assert told(running, "2/overview")["transitions"] == 300


def test_very_many_envs_that_a_file_is_said_to_have_are_refused(saved: Path, tmp_path: Path) -> None:
    _, header, _ = sections(saved.read_bytes())
    many = 2**39
    header.update(count=0, leaves={})
    header["buffer"]["n_envs"] = many
    header["sections"] = [one for one in header["sections"] if one["name"].startswith("array/")]
    for one in header["sections"]:
        one.pop("filter", None)
        one["shape"][:2] = 0, many
    (tmp_path / "many.sb3x").write_bytes(signed(header, [b""] * len(header["sections"])))
    with Viewer(tmp_path / "many.sb3x", port=0) as running:
        assert f"{many:,} envs" in told(running, "sources")[0]["error"]


def test_a_file_that_goes_away_and_comes_back(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "game.sb3x"
    path.write_bytes(saved.read_bytes())
    with Viewer(path, port=0) as running:
        assert told(running, "0/overview")["steps"] == 150
        path.unlink()
        assert "not there" in told(running, "sources")[0]["error"]
        path.write_bytes(saved.read_bytes())
        assert "error" not in told(running, "sources")[0]


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    game = Game(60)
    game.buffer.action_space.names = ["<img src=x onerror=alert(1)>", "b", "c"]  # type: ignore[attr-defined]
    game.play(40).buffer.save(tmp_path / "game.sb3x")
    with Viewer(tmp_path / "game.sb3x", port=0) as running:
        status, headers, body = ask(f"{running.url}api/0/steps/0")
        assert (status, headers["content-type"]) == (200, "application/json")
        assert json.loads(body)["names"][0].startswith("<img")


# ---- the command


def test_the_command_prints_the_address_and_ends_by_ctrl_c(saved: Path) -> None:
    import signal

    command = [sys.executable, "-m", "sb3_extra_buffers", "view", str(saved), "--port", "0", "--no-browser", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = "".join(iter(process.stdout.readline, "}\n")) + "}"
        url = json.loads(said)["url"]
        assert json.loads(ask(f"{url}api/sources")[2])[0]["steps"] == 150
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=20)
        assert (process.returncode, complaints) == (0, "")


def test_the_command_refuses_what_cannot_be_viewed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "pickle.pkl").write_bytes(b"\x80\x04N.")
    for arguments, text in (
        (["nothing.sb3x"], "No file"), ([tmp_path / "empty"], "without a checkpoint"), ([tmp_path / "pickle.pkl"], "--trust"),
    ):  # fmt: skip
        assert main(["view", *map(str, arguments), "--no-browser"]) == 2
        assert text in capsys.readouterr().err


def test_a_port_that_cannot_be_is_refused(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for said in ("99999", "-1", "1e3", "http"):
        with pytest.raises(SystemExit, match="2"):
            main(["view", str(saved), "--no-browser", "--port", said])
        assert "--port: must be between 0 and 65535" in capsys.readouterr().err


def test_a_port_that_is_taken_is_said(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["view", str(saved), "--no-browser", "--port", str(taken.getsockname()[1])]) == 2
        assert "Cannot listen" in capsys.readouterr().err


def test_pickles_of_sb3_are_viewed_if_they_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stable_baselines3.common.save_util import save_to_pkl

    from tests.saved_buffers import replay

    ours, theirs = replay("replay", 45)
    monkeypatch.setattr(Viewer, "run", lambda viewer: viewer.stop())
    shown: list[Path] = []
    original = Viewer.__init__
    monkeypatch.setattr(
        Viewer, "__init__", lambda self, *paths, **options: (shown.extend(paths), original(self, *paths, **options))[1]
    )
    for i, buffer in enumerate((ours, theirs)):
        save_to_pkl(tmp_path / f"{i}.pkl", buffer)
        assert main(["view", str(tmp_path / f"{i}.pkl"), "--trust", "--no-browser", "--port", "0"]) == 0
    assert [path.suffix for path in shown] == [".sb3x"] * 2
    assert not any(path.exists() for path in shown), "copies are removed"


def test_names_of_actions_can_be_given(saved: Path) -> None:
    with Viewer(saved, port=0, action_names=["a", "b", "c"]) as running:
        assert told(running, "0/steps/0")["names"] == ["a", "b", "c"]
    with Viewer(saved, port=0, action_names=["a"]) as running:
        assert "3 actions" in told(running, "sources")[0]["error"]
