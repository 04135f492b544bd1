"""A page of the site, and the tree of pages: which there are, in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from grader.errors import LabError
from grader.site.markup import Rendered


@dataclass(frozen=True)
class SitePage:
    """One page. `path`: in the site's tree, which is the kit's own, so that links between its texts
    stay as they are; `source`: the file to edit, from the kit's folder; `wide`: without a table of
    contents beside it; `files`: what goes along with it, by its path in the site."""

    path: str
    title: str
    rendered: Rendered
    source: str = ""
    wide: bool = False
    files: Mapping[str, str | bytes] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Where it is in the site that was built."""
        folder, slash, name = self.path.rpartition("/")
        stem = name.removesuffix(".md")
        return f"{folder}{slash}{'index' if stem == 'README' else stem}.html"


@dataclass(frozen=True)
class SiteSection:
    """A tab of the site with its pages, in order."""

    title: str
    pages: list[SitePage] = field(default_factory=list)


class SiteFault(LabError):
    """The site cannot be built from what there is; one sentence a fault."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = sentences
