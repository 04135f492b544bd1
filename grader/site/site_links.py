"""Links between the kit's texts: to a page where there is one, else to the repository, else a path.

A page is rendered before all others are known; until then a link into the kit reads `kit:<path>`.
"""

from __future__ import annotations

import html
import os
import posixpath
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from grader.site import text_parts
from grader.site.site_pages import SitePage

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_OPEN = re.compile(r'<a href="kit:([^"#]*)(#[^"]*)?">(.*?)</a>', re.DOTALL)


def into_kit(source: str, target: str) -> str:
    """The target of a link in the kit's file `source`, as `kit:<path from the kit's folder>`."""
    if _SCHEME.match(target) or target.startswith(("#", "//")):
        return target
    path, _, anchor = unquote(target).partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    return f"kit:{path}" + (f"#{anchor}" if anchor else "")


def repository(root: Path) -> str:
    """The repository's URL of `pyproject.toml`, without a slash at its end; "" if it has none."""
    data = tomllib.loads(text_parts.read(root / "pyproject.toml"))
    urls = data.get("project", {}).get("urls", {})
    found = next((url for name, url in urls.items() if name.lower() in _NAMES), "")
    return str(found).rstrip("/")


_NAMES = ("repository", "source", "source code", "github")


class LinkMap:
    """Which page shows which of the kit's files."""

    def __init__(self, root: Path, pages: Iterable[SitePage], repository: str) -> None:
        self.root, self.repository = root, repository
        self.pages: dict[str, list[SitePage]] = {}
        for page in pages:
            for name in dict.fromkeys((page.path, page.source)):
                self.pages.setdefault(name, []).append(page)

    def linked(self, page: SitePage) -> tuple[str, list[str]]:
        """The page's HTML with its links, and a sentence for each that leads nowhere."""
        dead: list[str] = []

        def replaced(match: re.Match[str]) -> str:
            path, anchor, words = html.unescape(match[1]), match[2] or "", match[3]
            if target := self._page(path, anchor[1:]):
                folder = posixpath.dirname(page.url) or "."
                url = posixpath.relpath(target.url, folder)
                return f'<a href="{html.escape(url)}{anchor}">{words}</a>'
            if path.startswith("..") or not (self.root / path).exists():
                dead.append(
                    f"{page.source or page.path}: a link leads to `{path}`, which is not in the "
                    "kit; mend or remove it."
                )
                return words
            if self.repository:
                kind = "tree" if (self.root / path).is_dir() else "blob"
                url = f"{self.repository}/{kind}/HEAD/{path}{anchor}"
                return f'<a href="{html.escape(url)}">{words}</a>'
            if path in re.sub(r"<[^>]+>", "", words):
                return words
            return f'{words} (<code class="path">{html.escape(path)}</code>)'

        return _OPEN.sub(replaced, page.rendered.html), dead

    def _page(self, path: str, anchor: str) -> SitePage | None:
        found = self.pages.get(path) or self.pages.get(os.path.join(path, "README.md")) or []
        for page in found:
            if any(heading.anchor == anchor for heading in page.rendered.headings):
                return page
        return found[0] if found else None
