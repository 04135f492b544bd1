"""The machine's own Chromium, and what a page does in it."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.site import screenshots


def missing() -> str:
    """Why pages cannot be looked at here; "" where they can."""
    if importlib.util.find_spec("axe_playwright_python") is None:
        return "no axe_playwright_python: pip install -e '.[dev]'"
    return screenshots.missing()


@dataclass
class Watched:
    """An open page, with everything that it said and asked for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(width))


@dataclass
class Browser:
    chromium: Any

    @contextlib.contextmanager
    def opened(self, path: Path, width: int = 1280, **options: Any) -> Iterator[Watched]:
        """A page in a window of that width; at the end it must have been silent."""
        context = self.chromium.new_context(viewport={"width": width, "height": 844}, **options)
        page = context.new_page()
        watched = Watched(page)
        page.on("console", lambda said: watched.complaints.append(said.text))
        page.on("pageerror", lambda error: watched.complaints.append(str(error)))
        page.on("dialog", lambda box: (watched.complaints.append(box.message), box.dismiss()))
        page.on("request", lambda request: watched.requests.append(request.url))
        try:
            page.goto(path.as_uri())
            yield watched
            assert watched.complaints == []
            assert watched.requests == [path.as_uri()]
        finally:
            context.close()


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    """One browser process."""
    with screenshots.started() as launched:
        yield Browser(launched)
