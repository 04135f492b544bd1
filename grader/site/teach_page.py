"""The page on teaching: TEACHING.md, and in its class of one lab what each command prints and what
an instructor then sees."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from grader.site import class_walk, lab_section, markup, screenshots, text_parts
from grader.site.class_walk import COURSE, SECTION, SOURCE, ClassWalk
from grader.site.markup import Treatment
from grader.site.screenshots import Screenshot, Shot
from grader.site.site_pages import SiteFault, SitePage

FOLDER = "assets/class/"
_MARK = re.compile(r"<!-- picture: (\w+) -->")
_IMAGE, _PRINTED = "class:", "printed:"  # what stands for a picture, and for what was printed
_GRADED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
_MOMENT = "2026-03-13 21:40 UTC"
"""When the class was graded, as its pictures have it: a build's own clock would make each build
another one."""


@dataclass(frozen=True)
class _Picture:
    """One picture of the section. of: the HTML file in the course's folder; the others as in
    `Shot`. alt: what a reader hears who does not see it. caption: what it is."""

    of: str
    first: str
    last: str
    alt: str
    caption: str
    opened: str = ""


_PICTURES = {
    "lessons": _Picture(
        "report.html", "header", ".lessons > li:nth-child(4)",
        "The first part of the class's report: its title, links to its five sections, and under "
        "What to teach on Monday a list of known mistakes. Each has the number of students who "
        "made it, a sentence on what was misunderstood, the task, and the students' names.",
        "What to teach on Monday: the mistakes that most students made come first.",
    ),
    "table": _Picture(
        "report.html", "#table", "#table",
        "A table with a row a student and a column a task. A cell is a green plus for done, a red "
        "x for wrong or a grey o for not started. Beside each name stand the mark and the days "
        "late, and above the table one chooses a lab and a section of the class.",
        "Tasks and students of one lab.",
    ),
    "task": _Picture(
        "report.html", "#marks", "#tasks article.item",
        "A histogram of the lab's marks with its median and quartiles. Below it one task with "
        "four numbers, each with a sentence that says what it means: facility, correlation, D and "
        "efficiency. A table of the task's tests has the same numbers for each test.",
        "The marks of the lab, and what its first task and that task's tests show of themselves.",
        "#tasks article.item details",
    ),
    "student": _Picture(
        "report-s07.html", "body", "main",
        "One student's page: the mark beside the class's median, and 1 day late. Under What to "
        "look at again stands a sentence on each likely mistake. A table has the result and the "
        "points of every task beside the class's mean.",
        "One student's page, which names no other student.",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class ClassShown:
    """What the page shows of the class. missing: sentences on what it cannot show here."""

    printed: dict[str, str] = field(default_factory=dict)
    pictures: dict[tuple[str, str], Screenshot] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def shown(root: Path, folder: Path) -> ClassShown:
    """Grade the class in `folder` and take its pictures. Raises SiteFault where a command or a
    picture fails."""
    walk = class_walk.walk(root, folder)
    if walk.folder is None:
        return ClassShown(missing=(walk.missing,))
    if why := screenshots.missing():
        return ClassShown(walk.printed, missing=(f"The page on teaching has no pictures: {why}.",))
    try:
        taken = list(screenshots.taken(_shots(walk)))
    except Exception as error:  # Playwright's own, of which it has several
        said = " ".join(str(error).split())
        raise SiteFault([f"{SOURCE}: no pictures could be taken for it: {said}"]) from error
    return ClassShown(walk.printed, {(one.name, one.scheme): one for one in taken})


def _shots(walk: ClassWalk) -> list[Shot]:
    assert walk.folder is not None
    course = walk.folder / COURSE
    for name in {row.of for row in _PICTURES.values()}:
        text = (course / name).read_text(encoding="utf-8")
        (course / f"shown-{name}").write_text(_GRADED.sub(_MOMENT, text), encoding="utf-8")
    return [
        Shot(name, course / f"shown-{row.of}", row.first, row.last, row.opened)
        for name, row in _PICTURES.items()
    ]


def teach_page(root: Path, found: ClassShown) -> SitePage:
    """The page. A command has below it what it printed, a marker is its picture; where there is
    neither, the page is TEACHING.md as it is."""
    text = text_parts.read(root / SOURCE)
    section = text_parts.section(root / SOURCE, SECTION)
    more = section
    for number, block in enumerate(found.printed):
        more = more.replace(block, f"{block}\n\n![]({_PRINTED}{number})", 1)
    names = {name for name, _ in found.pictures}
    for name in _MARK.findall(section):
        if name not in _PICTURES:
            raise SiteFault([f"{SOURCE}: there is no picture `{name}`; write one of its page's."])
        more = more.replace(
            f"<!-- picture: {name} -->", f"![{name}]({_IMAGE}{name})" if name in names else ""
        )
    treated = _treatment(root, found)
    rendered = markup.render(text.replace(section.strip(), more.strip(), 1), treated)
    title = html.unescape(next(row.text for row in rendered.headings if row.level == 1))
    files = {_file(one): one.data for one in found.pictures.values()}
    return SitePage(SOURCE, title, rendered, SOURCE, files=files)


def _treatment(root: Path, found: ClassShown) -> Treatment:
    plain = lab_section.treatment(root, SOURCE)
    printed = list(found.printed.values())

    def picture(target: str, words: str) -> str:
        if target.startswith(_IMAGE):
            return _figure(target.removeprefix(_IMAGE), found)
        if target.startswith(_PRINTED):
            said = printed[int(target.removeprefix(_PRINTED))]
            return f'<div class="printed no-copy">{markup.code_block(said, "text")}</div>'
        return plain.picture(target, words)

    return replace(plain, picture=picture)


def _figure(name: str, found: ClassShown) -> str:
    row = _PICTURES[name]
    shown = "".join(
        f'<img src="{_file(one)}#only-{scheme}" alt="{html.escape(row.alt)}" '
        f'width="{one.width}" height="{one.height}" loading="lazy">'
        for scheme in screenshots.SCHEMES
        for one in (found.pictures[name, scheme],)
    )
    caption = f"<figcaption>{html.escape(row.caption)}</figcaption>"
    return f'<figure class="picture seen"><div class="wide">{shown}</div>{caption}</figure>\n'


def _file(one: Screenshot) -> str:
    return f"{FOLDER}{one.name}-{one.scheme}.webp"
