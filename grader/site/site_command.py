"""`infralens site OUT`: the kit's web site, from the kit's own texts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from grader.errors import LabError
from grader.site import mkdocs_build, teach_page, text_parts
from grader.site.site_links import LinkMap, repository
from grader.site.site_pages import SiteFault, SiteSection
from grader.site.teach_page import ClassShown

MARK = ".infralens-site"
"""A file that says: this folder holds a site, and nothing else; the next build may replace it."""


def run(root: Path, out: Path, say: Callable[[str], None], with_class: bool = True) -> int:
    """Build the site into `out`; the exit status: 1 where a page is at fault. with_class: grade the
    class that the page on teaching shows."""
    mkdocs_build.refuse_without_mkdocs()
    refuse_foreign(out)
    try:
        lines = build(root, out, with_class)
    except SiteFault as fault:
        for sentence in fault.sentences:
            say(sentence)
        count = len(fault.sentences)
        say(f"Not built: {count} fault{'s' if count > 1 else ''}; {out} is as it was.")
        return 1
    for line in lines:
        say(line)
    return 0


def refuse_foreign(out: Path) -> None:
    """LabError where OUT holds what this command did not make."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise LabError(f"{out} is not a folder; name a new one, or an earlier site's.")
    if out.is_dir() and any(out.iterdir()) and not (out / MARK).is_file():
        raise LabError(
            f"{out} holds files that `infralens site` did not make; name a new folder, or empty it."
        )


def build(root: Path, out: Path, with_class: bool = True) -> list[str]:
    """Build and check, then put the site in place; the lines of its table. Raises SiteFault."""
    from grader.site import calculator_section, calculators, kit_section, site_check, used_styles

    shown = _class(root) if with_class else ClassShown(missing=(_NOT_ASKED,))
    sections = kit_section.sections(root, shown)
    pyodide = calculators.find_pyodide()
    if live := calculator_section.calculator_site_pages(root, pyodide):
        sections.append(SiteSection("Calculators", live))
    pages = [page for section in sections for page in section.pages]
    source = repository(root)
    links = LinkMap(root, pages, source)
    bodies, dead = {}, list[str]()
    for page in pages:
        bodies[page.path], faults = links.linked(page)
        dead += faults
    if dead:
        raise SiteFault(dead)
    with tempfile.TemporaryDirectory(prefix="infralens-site-") as folder:
        site = mkdocs_build.build(sections, bodies, Path(folder), source, _name(root))
        used_styles.reduce(site)
        for unused in ("404.html", "sitemap.xml", "sitemap.xml.gz"):
            (site / unused).unlink(missing_ok=True)  # for a server, which there is none of
        count = site_check.check(site)
        if count.faults:
            raise SiteFault(count.faults)
        (site / MARK).write_text("Made by `infralens site`, which may replace it.\n", "utf-8")
        _put(site, out)
    return [
        f"pages                   {count.pages:>9,}",
        f"internal links checked  {count.links:>9,}",
        f"pictures                {count.pictures:>9,}",
        f"heaviest first load     {count.bytes:>9,} bytes ({count.heaviest})",
        *shown.missing,
        *([] if pyodide else [calculators.HOW_TO_GET]),
        f"Open {out / 'index.html'}",
    ]


def _class(root: Path) -> ClassShown:
    with tempfile.TemporaryDirectory(prefix="infralens-class-") as folder:
        return teach_page.shown(root, Path(folder).resolve())


_NOT_ASKED = "The page on teaching shows its commands alone, without what they print."


def _put(site: Path, out: Path) -> None:
    try:
        if out.is_dir():
            shutil.rmtree(out)
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(site, out)
    except OSError as error:
        raise LabError(f"{out} cannot be written: {error.strerror or error}.") from error


def _name(root: Path) -> str:
    first = text_parts.read(root / "README.md").splitlines()[0]
    return first.removeprefix("# ")
