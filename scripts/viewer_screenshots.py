"""Pictures of the viewer for the documentation: `python scripts/viewer_screenshots.py ATARI.sb3x DICT.sb3x`.

ATARI is a buffer of stacked frames, DICT one of Dict observations with masks.
Needs Chromium, and the extras `viewer` and `test`.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from sb3_extra_buffers.viewer import Viewer

STATIC = Path(__file__).parent.parent / "docs" / "_static"


def shoot(page: Page, name: str) -> None:
    page.wait_for_load_state("networkidle")
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        picture.convert("RGB").save(STATIC / name, optimize=True)
    print(STATIC / name)


def main(atari: str, other: str) -> None:
    with sync_playwright() as driver, Viewer(atari, port=0) as first, Viewer(other, port=0) as second:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        light = browser.new_page(viewport={"width": 1280, "height": 880}, color_scheme="light", device_scale_factor=1)
        light.goto(f"{first.url}#view=overview")
        light.locator(".fine").wait_for()
        shoot(light, "viewer-overview.png")
        light.set_viewport_size({"width": 1280, "height": 675})
        light.goto(f"{first.url}#episode=7&step=60")
        light.locator(".stage canvas").first.wait_for()
        light.get_by_label("next_obs").check()
        light.get_by_label("Difference").check()
        shoot(light, "viewer.png")
        dark = browser.new_page(viewport={"width": 1280, "height": 675}, color_scheme="dark", device_scale_factor=1)
        dark.goto(f"{second.url}#episode=3&step=10&key=labels")
        dark.locator(".stage canvas").first.wait_for()
        dark.get_by_label("stack").select_option("beside")
        shoot(dark, "viewer-masks.png")
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:3])
