"""Screenshots of pages, by Playwright and the Chromium that is found on the machine.

A picture is WebP of a part of a page, in light and in dark. Neither Playwright nor Chromium is
needed to build the site: without them it has no screenshots.
"""

from __future__ import annotations

import base64
import importlib.util
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
SCHEMES = ("light", "dark")
WIDTH, HEIGHT, SCALE = 1000, 1400, 1.5  # of the window, in CSS pixels; and pixels a CSS pixel
_QUALITY = 75
_MARGIN = 16
WAIT_MS = 10_000  # for an element


@dataclass(frozen=True)
class Shot:
    """What is to be seen. page: an HTML file. first, last: CSS selectors of the elements between
    whose upper and lower edge the picture is. opened: of `details` to open before."""

    name: str
    page: Path
    first: str
    last: str
    opened: str = ""


@dataclass(frozen=True)
class Screenshot:
    """A picture as WebP, with its size in CSS pixels."""

    name: str
    scheme: str
    data: bytes
    width: int
    height: int


def chromium() -> str | None:
    """The path of a Chromium: $INFRALENS_CHROMIUM, or one on PATH."""
    given = os.environ.get("INFRALENS_CHROMIUM")
    found = [given] if given else [shutil.which(name) for name in NAMES]
    return next(filter(None, found), None)


def missing() -> str:
    """What no picture can be taken without, as a clause; "" where one can."""
    if importlib.util.find_spec("playwright") is None:
        return "no playwright: pip install -e '.[dev]'"
    return "" if chromium() else f"none of {', '.join(NAMES)} is on PATH, nor $INFRALENS_CHROMIUM"


def taken(shots: Sequence[Shot]) -> Iterator[Screenshot]:
    """Each shot in light and in dark. Raises what Playwright raises where a page lacks an element
    or the browser does not start."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            for scheme in SCHEMES:
                for shot in shots:
                    yield _taken(browser, shot, scheme)
        finally:
            browser.close()


def _taken(browser: Any, shot: Shot, scheme: str) -> Screenshot:
    context = browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT},
        device_scale_factor=SCALE, color_scheme=scheme, reduced_motion="reduce", locale="en",
    )  # fmt: skip
    try:
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        page.goto(shot.page.as_uri())
        if shot.opened:
            page.locator(shot.opened).first.evaluate("one => one.open = true")
        top = page.locator(shot.first).first.bounding_box()["y"]
        end = page.locator(shot.last).first.bounding_box()
        start = max(int(top) - _MARGIN, 0)
        height = int(end["y"] + end["height"]) + _MARGIN - start
        seen = context.new_cdp_session(page).send(
            "Page.captureScreenshot",
            {
                "format": "webp", "quality": _QUALITY, "captureBeyondViewport": True,
                "clip": {"x": 0, "y": start, "width": WIDTH, "height": height, "scale": 1},
            },
        )  # fmt: skip
        return Screenshot(shot.name, scheme, base64.b64decode(seen["data"]), WIDTH, height)
    finally:
        context.close()
