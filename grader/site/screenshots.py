"""Screenshots of pages, by Playwright and the Chromium that is found on the machine.

A picture is WebP of a part of a page, in light and in dark. Neither Playwright nor Chromium is
needed to build the site: without them it has no screenshots.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.errors import LabError

NAMES = ("chromium", "chromium-browser", "google-chrome")
SCHEMES = ("light", "dark")
WIDTH, HEIGHT, SCALE = 1000, 1400, 1.5  # of the window, in CSS pixels; and pixels a CSS pixel
_QUALITY = 75
_MARGIN = 16
_WAIT_MS = 180_000  # for the browser and a page: a build may share its machine
_EDGES = """([first, last, opened]) => {
  const folded = opened && document.querySelector(opened);
  if (folded) folded.open = true;
  const [upper, lower] = [first, last].map(name => document.querySelector(name));
  return upper && lower && [
    upper.getBoundingClientRect().top + scrollY, lower.getBoundingClientRect().bottom + scrollY];
}"""


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


@contextlib.contextmanager
def started() -> Iterator[Any]:
    """Playwright's browser, until the end of the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(),
            timeout=_WAIT_MS,
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        try:
            yield browser
        finally:
            browser.close()


def taken(shots: Sequence[Shot]) -> Iterator[Screenshot]:
    """Each shot in light and in dark. Raises LabError where a page lacks an element, and what
    Playwright raises where the browser does not start."""
    with started() as browser:
        for scheme in SCHEMES:
            for shot in shots:
                yield _taken(browser, shot, scheme)


def _taken(browser: Any, shot: Shot, scheme: str) -> Screenshot:
    context = browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT},
        device_scale_factor=SCALE, color_scheme=scheme, reduced_motion="reduce", locale="en",
    )  # fmt: skip
    try:
        page = context.new_page()
        page.goto(shot.page.as_uri(), timeout=_WAIT_MS)
        edges = page.evaluate(_EDGES, [shot.first, shot.last, shot.opened])
        if edges is None:
            raise LabError(f"{shot.page.name} has no `{shot.first}` or no `{shot.last}`.")
        start = max(int(edges[0]) - _MARGIN, 0)
        height = int(edges[1]) + _MARGIN - start
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
