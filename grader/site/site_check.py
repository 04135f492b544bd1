"""What the build refuses: dead links, pictures without words, a first load that is too heavy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

MOST_BYTES = 300_000
"""Of everything that a browser loads for a page, before anything is asked for."""

_LOADING = ("script", "img", "iframe", "source", "video", "audio")


@dataclass
class SiteCount:
    """What a built site holds."""

    pages: int = 0
    links: int = 0
    pictures: int = 0
    heaviest: str = ""
    bytes: int = 0
    faults: list[str] = field(default_factory=list)


class ReadPage(HTMLParser):
    """The anchors, links, pictures and loads of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.twice: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.pictures: list[tuple[str, bool]] = []
        self._svg = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if name := found.get("id"):
            if name in self.anchors and not name.startswith("__"):
                self.twice.append(name)
            self.anchors.add(name)
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(found["href"])
        elif tag in _LOADING and "src" in found and found.get("loading") != "lazy":
            self.loads.append(found["src"])
        if tag == "img":
            self.pictures.append((found.get("src", "an image"), bool(found.get("alt", "").strip())))
        if tag == "svg":
            if self._svg == 0 and found.get("aria-hidden") != "true" and found.get("role") == "img":
                self.pictures.append(("a drawing", bool(found.get("aria-label", "").strip())))
            self._svg += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "svg":
            self._svg -= 1


def check(site: Path) -> SiteCount:
    """Read every page of a built site."""
    read = {
        path.relative_to(site).as_posix(): ReadPage(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
    }
    count = SiteCount(pages=len(read))
    for url, page in read.items():
        count.faults += [
            f"{url}: two places are called #{name}; rename one." for name in page.twice
        ]
        for target in page.links:
            if (fault := _dead(site, read, url, target)) is None:
                continue
            count.links += 1
            if fault:
                count.faults.append(fault)
        for name, has_words in page.pictures:
            count.pictures += not name.endswith("#only-dark")  # the same one on other paper
            if not has_words:
                count.faults.append(
                    f"{url}: {name} has no text alternative; say in words what it shows."
                )
        size, faults = first_load(site, url, page)
        count.faults += faults
        if size > count.bytes:
            count.bytes, count.heaviest = size, url
    if count.bytes > MOST_BYTES:
        count.faults.append(
            f"{count.heaviest}: its first load is {count.bytes:,} bytes, and {MOST_BYTES:,} are "
            "the most; shorten the page or its pictures."
        )
    return count


def first_load(site: Path, url: str, page: ReadPage) -> tuple[int, list[str]]:
    """The bytes of a page and of the files that it loads, and what it loads from elsewhere."""
    total = (site / url).stat().st_size
    faults = []
    for target in dict.fromkeys(page.loads):
        parts = urlsplit(target)
        if parts.scheme == "data":
            continue
        if parts.scheme or parts.netloc:
            faults.append(f"{url}: it loads {target}, and the site must work without a network.")
            continue
        path = (site / url).parent / unquote(parts.path)
        if not path.is_file():
            faults.append(f"{url}: it loads {target}, which is missing.")
            continue
        total += path.stat().st_size
    return total, faults


def _dead(site: Path, read: dict[str, ReadPage], url: str, target: str) -> str | None:
    """None for a link that leaves the site, "" for a good one, else the fault."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return None
    path = ((site / url).parent / unquote(parts.path)).resolve() if parts.path else site / url
    if path.is_dir():
        path = path / "index.html"
    if not path.is_relative_to(site.resolve()) or not path.is_file():
        return f"{url}: a link leads to {target}, which is missing; mend or remove it."
    found = read.get(path.relative_to(site.resolve()).as_posix()) if parts.path else read[url]
    anchor = unquote(parts.fragment)
    if anchor and found is not None and anchor not in found.anchors:
        return f"{url}: a link leads to {target}, and no such place is on that page; mend it."
    return ""


def inner_pages(site: Path) -> Iterator[str]:
    """The pages of a built site, by their paths in it."""
    for path in sorted(site.rglob("*.html")):
        if path.name != "404.html":
            yield path.relative_to(site).as_posix()
