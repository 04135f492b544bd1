"""One build of the site for all tests, and its pages in Chromium as a reader opens them."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.site import site_check
from tests.grader.classroom.report.browser import Browser, Watched

EVERY = os.environ.get("INFRALENS_EVERY_PAGE") == "1"


@dataclass
class BuiltSite:
    """A site that was built, and the browser that looks at it."""

    folder: Path
    table: list[str]
    browser: Browser

    @property
    def pages(self) -> list[str]:
        return list(site_check.inner_pages(self.folder))

    def some(self, number: int) -> list[str]:
        """So many pages, others after each change of any page; all with INFRALENS_EVERY_PAGE=1."""
        pages = self.pages
        if EVERY:
            return pages
        texts = b"".join((self.folder / url).read_bytes() for url in pages)
        turn = zlib.crc32(texts) % len(pages)
        step = max(len(pages) // number, 1)
        return (pages[turn:] + pages[:turn])[::step][:number]

    @contextlib.contextmanager
    def opened(self, url: str, width: int = 1280, scheme: str = "light") -> Iterator[Watched]:
        """A page of the site; at the end nothing was said, and nothing asked for elsewhere."""
        path, _, anchor = url.partition("#")
        uri = (self.folder / path).as_uri() + (f"#{anchor}" if anchor else "")
        size = {"width": width, "height": 844}
        context = self.browser.chromium.new_context(viewport=size, color_scheme=scheme)
        page = context.new_page()
        watched = Watched(page)
        page.on("console", lambda said: watched.complaints.append(said.text))
        page.on("pageerror", lambda error: watched.complaints.append(str(error)))
        page.on("request", lambda request: watched.requests.append(request.url))
        try:
            page.goto(uri)
            yield watched
            assert watched.complaints == [], url
            here = self.folder.as_uri()
            own = (here, "data:", "blob:")
            assert [one for one in watched.requests if not one.startswith(own)] == []
        finally:
            context.close()
