"""One run of MkDocs with Material over pages whose HTML is already made."""

from __future__ import annotations

import importlib.util
import logging
import shutil
from pathlib import Path
from typing import Any

from grader.errors import LabError
from grader.site import inline_pictures
from grader.site.markup import Heading
from grader.site.site_pages import SitePage, SiteSection

HERE = Path(__file__).parent
_FEATURES = [
    "navigation.tabs",
    "navigation.sections",
    "navigation.prune",
    "navigation.indexes",
    "navigation.footer",
    "navigation.top",
    "toc.follow",
    "content.code.copy",
    "content.action.edit",
]
_AUTO, _LIGHT, _DARK = (
    "(prefers-color-scheme)",
    "(prefers-color-scheme: light)",
    "(prefers-color-scheme: dark)",
)
_PALETTE = [
    {"media": _AUTO, "toggle": {"icon": "material/brightness-auto", "name": "Light"}},
    {
        "media": _LIGHT,
        "scheme": "default",
        "primary": "custom",
        "accent": "custom",
        "toggle": {"icon": "material/brightness-7", "name": "Dark"},
    },
    {
        "media": _DARK,
        "scheme": "slate",
        "primary": "custom",
        "accent": "custom",
        "toggle": {"icon": "material/brightness-4", "name": "As the system"},
    },
]


def refuse_without_mkdocs() -> None:
    """LabError where the extra is not installed."""
    missing = [name for name in ("mkdocs", "material") if importlib.util.find_spec(name) is None]
    if missing:
        raise LabError(f"No {missing[0]} here: pip install 'infralens-labs[site]'")


def build(
    sections: list[SiteSection], bodies: dict[str, str], work: Path, repository: str, name: str
) -> Path:
    """The built site, in a folder of `work`. `bodies`: each page's HTML, by the page's path."""
    from mkdocs.commands.build import build as run
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort, MkDocsException

    docs, site = work / "docs", work / "site"
    for path in bodies:
        (docs / path).parent.mkdir(parents=True, exist_ok=True)
        (docs / path).write_text("", encoding="utf-8")
    for section in sections:
        for page in section.pages:
            for file, content in page.files.items():
                (docs / file).parent.mkdir(parents=True, exist_ok=True)
                data = content if isinstance(content, bytes) else content.encode()
                (docs / file).write_bytes(data)
    assets = docs / "assets"
    shutil.copytree(HERE / "assets", assets, dirs_exist_ok=True)
    style = assets / "site.css"
    style.write_text(f"{style.read_text(encoding='utf-8')}{inline_pictures.colours()}\n", "utf-8")
    settings = work / "mkdocs.yml"
    settings.write_text("", encoding="utf-8")
    logging.getLogger("mkdocs").setLevel(logging.ERROR)
    try:
        config = load_config(
            str(settings),
            site_name=name,
            docs_dir=str(docs),
            site_dir=str(site),
            use_directory_urls=False,
            nav=[_nav(section) for section in sections],
            theme={
                "name": "material",
                "custom_dir": str(HERE / "overrides"),
                "font": False,
                "language": "en",
                "features": _FEATURES,
                "palette": _PALETTE,
                "icon": {"logo": "material/magnify-scan"},
            },
            plugins=["search", "offline"],
            markdown_extensions=[{"toc": {"title": "On this page"}}],
            extra={"generator": False, "polyfills": ["assets/iframe-worker.js"]},
            extra_css=["assets/site.css"],
            extra_javascript=["assets/site.js"],
            validation={"links": {"not_found": "ignore", "anchors": "ignore"}},
        )
        config.plugins["infralens"] = _MadePages(sections, bodies, repository)
        run(config)
    except (Abort, MkDocsException) as error:
        raise LabError(f"MkDocs cannot build the site: {error}") from error
    return site


def _nav(section: SiteSection) -> dict[str, Any]:
    if len(section.pages) == 1:
        return {section.title: section.pages[0].path}
    return {section.title: [{page.title: page.path} for page in section.pages]}


class _MadePages:
    """What MkDocs takes for a plugin: it puts in each page's HTML and headings."""

    def __init__(
        self, sections: list[SiteSection], bodies: dict[str, str], repository: str
    ) -> None:
        self.pages = {page.path: page for section in sections for page in section.pages}
        self.bodies, self.repository = bodies, repository

    def on_page_markdown(self, markdown: str, page: Any, **rest: Any) -> str:
        made = self.pages[page.file.src_uri]
        page.meta["title"] = made.title
        if made.wide:
            page.meta["hide"] = ["navigation", "toc"]
        page.edit_url = None
        if self.repository and made.source:
            page.edit_url = f"{self.repository}/edit/HEAD/{made.source}"
        return markdown

    def on_page_content(self, html: str, page: Any, **rest: Any) -> str:
        from mkdocs.structure.toc import get_toc

        made = self.pages[page.file.src_uri]
        page.toc = get_toc(_toc(made))
        return self.bodies[made.path]


def _toc(page: SitePage) -> list[Any]:
    """The page's headings of level 2, below its title."""
    rows = page.rendered.headings
    below = [_toc_row(row) for row in rows if row.level == 2]
    first = next((row for row in rows if row.level == 1), None)
    return [{**_toc_row(first), "children": below}] if first else below


def _toc_row(heading: Heading) -> dict[str, Any]:
    return {"level": heading.level, "id": heading.anchor, "name": heading.text, "children": []}
