"""The viewer's page in a real browser: Chromium without a window, driven by Playwright.

Skipped where there is no Chromium; `CHROMIUM` names one that is not in the path. Screenshots are kept in ``debug_obs/viewer``.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from sb3_extra_buffers.compressed import CompressedDictReplayBuffer
from sb3_extra_buffers.viewer import Viewer
from tests.viewer_game import ACTIONS, SIZE, Game, frame, length_of

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: the page is not tested")
CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="There is no Chromium: the page is not tested. Set CHROMIUM to one"),
]
SHOTS = Path(__file__).parent.parent / "debug_obs" / "viewer"
expect = playwright.expect
expect.set_options(timeout=30_000)  # others may be using the machine
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )  # as root it needs the first
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("viewer") / "game.sb3x"
    Game(400).play(300).buffer.save(path)
    return path


@pytest.fixture(scope="module")
def viewer(saved: Path) -> Iterator[Viewer]:
    with Viewer(saved, port=0) as running:
        yield running


@pytest.fixture
def visit(browser: Any) -> Iterator[Open]:
    """Opens pages; a word in the console, or an exception, fails the test."""
    complaints: list[str] = []
    contexts = []

    def run(running: Viewer, place: str = "", *, width: int = 1280, scheme: str = "light", quiet: bool = True) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, accept_downloads=True)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        if quiet:
            page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.extend(_elsewhere(request.url, running)))
        page.goto(running.url + place)
        return page

    yield run
    for context in contexts:
        context.close()
    # A page that is still open asks once more when its viewer has ended.
    assert [one for one in complaints if "ERR_CONNECTION_REFUSED" not in one] == []


def _elsewhere(url: str, running: Viewer) -> list[str]:
    return [] if url.startswith((running.url, "blob:", "data:")) else [f"asked elsewhere: {url}"]


def shoot(page: Any, name: str) -> None:
    """Keep a picture of the page, and see that it does not have to be scrolled sideways."""
    if os.environ.get("DISABLE_TEST_OBSERVATIONS_SAVE", "").lower() != "true":
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"{name}.png", full_page=True)
    wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wider <= 0, f"{name} is {wider} pixels too wide"


def at_step(page: Any, step: int) -> None:
    expect(page.locator(".player")).to_have_attribute("data-shown", str(step))


def canvas(page: Any, number: int = 0) -> np.ndarray:
    """The red values of a frame that is shown."""
    script = "(c) => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].filter((_, i) => i % 4 === 0)"
    found = page.locator(".stage canvas").nth(number).evaluate(script)
    return np.array(found, np.uint8).reshape(SIZE, -1)


def test_the_overview_shows_numbers_plots_and_memory(viewer: Viewer, visit: Open) -> None:
    for scheme in ("light", "dark"):
        page = visit(viewer, scheme=scheme)
        expect(page.locator(".tile", has_text="Transitions")).to_contain_text("600")
        expect(page.locator(".tile", has_text="Stored")).to_contain_text("instead of 2.76 MB")
        expect(page.locator(".fine")).to_contain_text("nothing unusual")
        titles = ["Episode return", "Episode length", "Rewards", "Actions", "Stored memory", "Stored, as a share of raw"]
        expect(page.locator("figcaption b")).to_have_text(titles)
        expect(page.locator("figure", has_text="Actions")).to_contain_text("LEFT")
        expect(page.locator("table")).to_contain_text("delta")
        shoot(page, f"overview-{scheme}")


def test_a_click_on_a_point_opens_the_episode(viewer: Viewer, visit: Open) -> None:
    page = visit(viewer)
    page.locator("figure", has_text="Episode return").locator("circle").nth(3).click()
    at_step(page, 0)
    assert "episode=" in page.url


def test_episodes_are_sorted_by_a_click_on_a_column(viewer: Viewer, visit: Open) -> None:
    page = visit(viewer, "#view=episodes")
    lengths = page.locator("tbody tr td:nth-child(5)")
    expect(lengths.first).to_have_text("20")
    page.get_by_role("button", name="Length", exact=True).click()
    expect(page.locator("th", has_text="Length")).to_have_attribute("aria-sort", "descending")
    found = [int(text) for text in lengths.all_inner_texts()]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) > 3
    page.get_by_role("button", name="Length", exact=True).click()
    expect(page.locator("th", has_text="Length")).to_have_attribute("aria-sort", "ascending")
    found = [int(text) for text in lengths.all_inner_texts()]
    assert found == sorted(found)
    script = "(all) => Promise.all(all.slice(0, 6).map(async (one) => { await one.decode(); return one.naturalWidth; }))"
    widths = page.locator(".thumb").evaluate_all(script)
    assert widths == [SIZE] * 6
    shoot(page, "episodes")


def test_episodes_are_filtered_by_conditions(viewer: Viewer, visit: Open) -> None:
    page = visit(viewer, "#view=episodes")
    page.locator("#where").fill("length < 30 and ended by timeout")
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_contain_text(" of ")
    assert set(page.locator(".badge").all_inner_texts()) == {"timeout"}
    assert all(int(text) < 30 for text in page.locator("tbody tr td:nth-child(5)").all_inner_texts())
    page.reload()  # what is shown is in the address
    expect(page.locator("#where")).to_have_value("length < 30 and ended by timeout")
    page.get_by_role("button", name="env = 0").click()
    expect(page.locator("#found")).to_contain_text(" of ")
    assert set(page.locator("tbody tr td:nth-child(3)").all_inner_texts()) == {"0"}


def test_a_filter_that_cannot_be_read_is_explained(viewer: Viewer, visit: Open) -> None:
    page = visit(viewer, "#view=episodes&where=rubbish", quiet=False)
    expect(page.get_by_role("alert")).to_contain_text("return > 10")


def test_the_player_shows_frames_as_they_are_stored(viewer: Viewer, visit: Open) -> None:
    page = visit(viewer, "#episode=1&step=9")
    at_step(page, 9)
    assert np.array_equal(canvas(page), frame(1, 9))
    assert page.locator(".stage canvas").evaluate("(c) => getComputedStyle(c).imageRendering") == "pixelated"
    page.get_by_label("next_obs").check()
    expect(page.locator(".stage canvas")).to_have_count(2)
    assert np.array_equal(canvas(page, 1), frame(1, 10))
    page.get_by_label("stack").select_option("beside")
    expect(page.locator(".stage canvas")).to_have_count(8)
    assert [int(canvas(page, i)[0, 0]) for i in range(8)] == [6, 7, 8, 9, 7, 8, 9, 10]
    page.get_by_label("Difference").check()
    expect(page.locator(".stage canvas")).to_have_count(9)
    expect(page.locator(".stage figcaption").last).to_contain_text("13 pixels")
    for _ in range(2):
        page.keyboard.press("+")
    expect(page.locator(".zoom output")).not_to_contain_text("fit")
    shoot(page, "player-everything")


def test_frames_of_a_stack_as_an_animation(viewer: Viewer, visit: Open) -> None:
    page = visit(viewer, "#episode=1&step=9")
    at_step(page, 9)
    page.get_by_label("stack").select_option("animate")
    caption = page.locator(".stage figcaption")
    for number in (1, 4):
        expect(caption).to_contain_text(f"frame {number} of 4")


def test_steps_by_keyboard_and_what_belongs_to_them(viewer: Viewer, visit: Open) -> None:
    page = visit(viewer, "#episode=0")
    at_step(page, 0)
    forward = (("ArrowRight", 1), ("Shift+ArrowRight", 11), ("ArrowLeft", 10), ("End", 19), ("Home", 0))
    for key, step in (*forward, ("j", 5), ("j", 10), ("k", 5)):
        page.keyboard.press(key)
        at_step(page, step)
    assert np.array_equal(canvas(page), frame(0, 5))
    facts = page.locator(".facts")
    expect(facts.locator("[data-fact=action]")).to_have_text("RIGHT (2)")
    expect(facts.locator("[data-fact=reward]")).to_have_text("1")
    expect(page).to_have_url(re.compile("#episode=0&step=5$"))
    page.keyboard.press("n")
    expect(page.locator("h1")).not_to_have_text("Episode 0")
    page.keyboard.press("p")
    expect(page.locator("h1")).to_have_text("Episode 0")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()


def test_play_and_pause(viewer: Viewer, visit: Open) -> None:
    page = visit(viewer, "#episode=2")
    at_step(page, 0)
    page.get_by_label("Steps per second").select_option("60")
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("Space")
    expect(page.locator(".player")).to_have_attribute("data-shown", re.compile(r"[89]|\d\d"))
    page.keyboard.press("Space")
    expect(page.locator(".play")).to_have_attribute("aria-pressed", "false")
    stopped = page.locator(".position").inner_text()
    page.wait_for_timeout(150)
    assert page.locator(".position").inner_text() == stopped
    page.locator(".play").click()  # to the end
    last = page.locator(".position").inner_text().split("/ ")[1]
    at_step(page, int(last))
    expect(page.locator(".play")).to_have_attribute("aria-pressed", "false")


def test_scrubbing_on_the_track(viewer: Viewer, visit: Open) -> None:
    page = visit(viewer, "#episode=0")
    at_step(page, 0)
    track = page.locator(".track")

    def point_at(share: float) -> None:  # once the page has its layout, which the first frame changes
        track.hover(position={"x": track.evaluate("(c) => c.clientWidth") * share, "y": 20})

    point_at(0.26)
    page.mouse.down()
    at_step(page, 5)
    point_at(0.76)
    at_step(page, 15)
    page.mouse.up()
    expect(page.locator(".track-box .tip")).to_contain_text("step 15 · reward 1")
    expect(page.locator(".track")).to_have_attribute("aria-valuenow", "15")
    shoot(page, "player")


def test_a_link_leads_to_a_step(viewer: Viewer, visit: Open) -> None:
    page = visit(viewer, "#episode=4&step=7")
    at_step(page, 7)
    expect(page.locator("h1")).to_have_text("Episode 4")
    page.evaluate("location.hash = '#episode=5&step=3'")
    expect(page.locator("h1")).to_have_text("Episode 5")
    at_step(page, 3)
    page.go_back()
    expect(page.locator("h1")).to_have_text("Episode 4")


def test_a_link_to_a_step_that_cannot_be_leads_to_one_that_can(viewer: Viewer, visit: Open) -> None:
    page = visit(viewer, "#episode=1&step=abc")
    at_step(page, 0)
    for said, step in (("2.5", 2), ("-5", 0), ("1e9", length_of(1, 0) - 1)):
        page.evaluate(f"location.hash = '#episode=1&step={said}'")
        at_step(page, step)
        expect(page).to_have_url(re.compile(f"#episode=1&step={step}$"))


def test_a_step_that_takes_long_to_load_is_said_in_the_address(viewer: Viewer, visit: Open) -> None:
    page = visit(viewer, "#episode=1&step=0")
    at_step(page, 0)
    page.route("**/frames/1/25.png*", lambda route: (time.sleep(0.6), route.continue_()))
    page.evaluate("location.hash = '#episode=1&step=25.5'")
    at_step(page, 25)
    expect(page).to_have_url(re.compile("#episode=1&step=25$"))
    page.unroute_all(behavior="wait")


def test_an_episode_is_saved(viewer: Viewer, visit: Open, tmp_path: Path) -> None:
    page = visit(viewer, "#episode=0")
    at_step(page, 0)
    for suffix in ("GIF", "NPZ"):
        with page.expect_download() as download:
            page.get_by_role("link", name=suffix).click()
        assert download.value.suggested_filename == f"episode-0.{suffix.lower()}"
        path = tmp_path / suffix
        download.value.save_as(path)
        if suffix == "NPZ":
            with np.load(path) as found:
                assert len(found["rewards"]) == length_of(0, 0)


def test_a_running_training_is_followed_without_losing_the_place(visit: Open, tmp_path: Path) -> None:
    game = Game(90)
    game.play(60).buffer.checkpoint(tmp_path / "run")
    with Viewer(tmp_path / "run", port=0) as running:
        page = visit(running, "#episode=3&step=11")
        at_step(page, 11)
        expect(page.locator("#live")).to_have_text("following")
        overview, table = visit(running), visit(running, "#view=episodes&sort=length&desc=1")
        expect(overview.locator(".tile", has_text="Transitions")).to_contain_text("120")
        expect(table.locator("#found")).to_have_text("6 episodes")
        before = canvas(page)
        table.locator("#where").type("length <")
        game.play(25).buffer.checkpoint(tmp_path / "run")
        expect(overview.locator(".tile", has_text="Transitions")).to_contain_text("170")
        expect(table.locator("#found")).to_have_text("7 episodes")
        expect(table.locator("#where")).to_have_value("length <")
        expect(table.locator("#where")).to_be_focused()
        expect(table.locator("th", has_text="Length")).to_have_attribute("aria-sort", "descending")
        expect(page.locator("#live")).to_have_text("new steps")
        at_step(page, 11)
        assert np.array_equal(canvas(page), before)
        expect(page).to_have_url(re.compile("#episode=3&step=11$"))
        game.play(40).buffer.checkpoint(tmp_path / "run")  # the first steps are overwritten
        expect(overview.locator(".tile", has_text="Transitions")).to_contain_text("180full")
        expect(page.locator(".facts")).to_contain_text("of all: ")
        expect(page.locator("h1")).to_have_text("Episode 3")
        shoot(page, "live")


def test_a_file_that_is_saved_again_is_shown_anew(visit: Open, tmp_path: Path) -> None:
    Game(90).play(60).buffer.save(tmp_path / "game.sb3x")
    other = Game(90)
    other.step = 500  # its episodes are as long, and its pictures are others
    other._done_at = [500 + length_of(env, 0) - 1 for env in range(2)]
    with Viewer(tmp_path / "game.sb3x", port=0) as running:
        page = visit(running, "#episode=0&step=11")
        at_step(page, 11)
        assert np.array_equal(canvas(page), frame(0, 11))
        other.play(60).buffer.save(tmp_path / "game.sb3x")
        expect(page.locator("#live")).to_have_text("new steps")
        at_step(page, 11)
        assert np.array_equal(canvas(page), frame(0, 511))
        expect(page).to_have_url(re.compile("#episode=0&step=11$"))


def named_actions(page: Any) -> list[str]:
    texts = page.locator("figure", has_text="Actions").locator("text")
    expect(texts.first).to_be_attached()
    return texts.all_text_contents()[-len(ACTIONS) :]


def test_two_buffers_side_by_side(saved: Path, visit: Open, tmp_path: Path) -> None:
    Game(400).play(120).buffer.save(tmp_path / "other.sb3x")
    with Viewer(saved, tmp_path / "other.sb3x", port=0) as running:
        page = visit(running)
        expect(page.locator(".card h2")).to_have_text(["game.sb3x", "other.sb3x", "Observations"])
        expect(page.locator("figure", has_text="Episode return").locator(".legend span")).to_have_text(
            ["game.sb3x", "other.sb3x"]
        )
        expect(page.locator("figure", has_text="Stored memory").locator("path.line")).to_have_count(2)
        assert named_actions(page) == list(ACTIONS)
        shoot(page, "two")
        page.keyboard.press("2")
        page.get_by_role("button", name="other.sb3x").click()
        expect(page.locator("h1 small")).to_have_text("other.sb3x")
        page.locator("tbody tr").nth(1).click()
        at_step(page, 0)
        expect(page).to_have_url(re.compile("buffer=1"))
        narrow = visit(running, width=390)
        expect(narrow.locator(".plot")).to_have_count(6)
        shoot(narrow, "two-phone")


def test_two_buffers_whose_actions_have_other_names_show_numbers(saved: Path, visit: Open, tmp_path: Path) -> None:
    game = Game(60)
    game.buffer.action_space.names = ("STAY", "UP", "DOWN")
    game.play(30).buffer.save(tmp_path / "other.sb3x")
    with Viewer(saved, tmp_path / "other.sb3x", port=0) as running:
        page = visit(running)
        assert named_actions(page) == ["0", "1", "2"]


def test_a_damaged_file_says_what_is_wrong(saved: Path, visit: Open, tmp_path: Path) -> None:
    data = bytearray(saved.read_bytes())
    (tmp_path / "cut.sb3x").write_bytes(data[:-5000])
    data[len(data) // 2] ^= 1
    (tmp_path / "flipped.sb3x").write_bytes(data)
    with Viewer(tmp_path / "cut.sb3x", port=0) as running:
        page = visit(running, quiet=False)
        expect(page.get_by_role("alert")).to_contain_text("cut off")
        expect(page.locator(".card")).to_contain_text("sb3-extra-buffers verify")
        shoot(page, "damaged")
        page.keyboard.press("2")
        expect(page.get_by_role("alert")).to_contain_text("cut off")
    with Viewer(tmp_path / "flipped.sb3x", port=0) as running:
        page = visit(running, quiet=False)
        expect(page.get_by_role("alert")).to_contain_text("checksum")
        expect(page.locator(".tile", has_text="Transitions")).to_contain_text("600")


def test_phone_width(viewer: Viewer, visit: Open) -> None:
    for place, ready in (("", ".fine"), ("#view=episodes", "#found"), ("#episode=1&step=4", ".stage canvas")):
        page = visit(viewer, place, width=390)
        expect(page.locator(ready).first).to_be_visible()
        page.wait_for_load_state("networkidle")
        shoot(page, f"phone-{ready.strip('.#').split()[0]}")
    page.keyboard.press("d")  # one more picture, and longer words below it
    expect(page.locator(".stage figcaption")).to_have_count(2)
    assert page.evaluate("[...document.querySelectorAll('.stage')].every((one) => one.scrollWidth <= one.clientWidth)")
    stage = page.locator(".stage").bounding_box()
    for words in page.locator(".stage figcaption").all():
        box = words.bounding_box()
        assert stage["x"] <= box["x"]
        assert box["x"] + box["width"] <= stage["x"] + stage["width"]


def test_keys_of_a_dict_vectors_as_lines_and_texts_that_are_no_markup(visit: Open, tmp_path: Path) -> None:
    image = spaces.Box(0, 255, (1, 20, 30), np.uint8)
    space = spaces.Dict({"labels": image, "speed": spaces.Box(-5, 5, (3,), np.float32), "<b>x</b>": spaces.Discrete(7)})
    buffer = CompressedDictReplayBuffer(100, space, spaces.Box(-1, 1, (2,), np.float32), "cpu", 1)

    def seen(t: int) -> dict[str, np.ndarray]:
        picture = np.zeros((1, 1, 20, 30), np.uint8)
        picture[..., 3:9, t % 20 : t % 20 + 5] = 3
        return {
            "labels": picture,
            "speed": np.array([[np.sin(t / 5), np.cos(t / 5), t / 20]]),
            "<b>x</b>": np.array([[t % 7]]),
        }

    for t in range(60):
        buffer.add(
            seen(t), seen(t + 1), np.array([[np.sin(t), 0.1 * np.cos(t)]]), np.array([t % 2]), np.array([t == 40]), [{}]
        )
    buffer.save(tmp_path / "<i>dict.sb3x")
    with Viewer(tmp_path / "<i>dict.sb3x", port=0) as running:
        page = visit(running, "#episode=0&step=6")
        at_step(page, 6)
        expect(page.get_by_label("paint")).to_have_value("labels")
        page.get_by_label("Key", exact=True).select_option("speed")
        expect(page.locator(".lines path.line")).to_have_count(3)
        expect(page.locator(".legend-entry b")).to_have_text(["0.932", "0.3624", "0.3"])
        expect(page).to_have_url(re.compile("key=speed"))
        page.keyboard.press("ArrowRight")
        expect(page.locator(".legend-entry b").last).to_have_text("0.35")
        page.locator(".legend-entry").first.click()
        expect(page.locator(".lines path.line")).to_have_count(2)
        shoot(page, "lines")
        page.get_by_label("Key", exact=True).select_option("<b>x</b>")
        expect(page.locator(".lines header b")).to_have_text("<b>x</b>")
        overview = visit(running)
        expect(overview.locator("h2").first).to_have_text("<i>dict.sb3x")
        expect(overview.locator("figure", has_text="Actions, value")).to_have_count(2)


def test_light_and_dark_are_switched_by_hand(viewer: Viewer, visit: Open) -> None:
    page = visit(viewer, scheme="light")
    colour = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(colour)
    page.get_by_role("button", name="Light or dark").click()
    assert page.evaluate(colour) != before
    page.reload()
    expect(page.locator(".fine")).to_be_visible()
    assert page.evaluate(colour) != before


def test_a_viewer_that_was_ended_is_noticed(saved: Path, visit: Open) -> None:
    running = Viewer(saved, port=0).start()
    page = visit(running, quiet=False)
    expect(page.locator(".fine")).to_be_visible()
    running.stop()
    expect(page.locator("#live")).to_have_text("viewer ended")
