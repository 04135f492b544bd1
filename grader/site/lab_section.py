"""The pages of *Learn*: one a lab, with its hints folded in three layers."""

from __future__ import annotations

import html
import re
from pathlib import Path

from grader.errors import LabError
from grader.lab import lab_page, task_hints
from grader.lab.manifest import Lab
from grader.site import inline_pictures, markup, site_links, text_parts
from grader.site.inline_pictures import Drawings
from grader.site.markup import Heading, Rendered, Treatment
from grader.site.site_pages import SitePage

SPOILER = "After you solved it"
HINTS = "Tasks"
_LAYERS = ("the concept", "the invariant", "the place")
_TASK_CELL = re.compile(r"<td><code>(\w+)</code></td>")


def treatment(root: Path, source: str, drawings: Drawings | None = None) -> Treatment:
    """How links and images of the kit's file `source` are shown."""
    drawn = drawings or Drawings()

    def picture(target: str, words: str) -> str:
        path = (root / source).parent / target
        if path.suffix != ".svg" or "://" in target:
            raise LabError(f"{root / source} shows {target}; pictures of the site are SVG files.")
        return inline_pictures.figure(path, words, drawn)

    return Treatment(picture, lambda target: site_links.into_kit(source, target))


def lab_site_page(root: Path, lab: Lab) -> SitePage:
    """A lab's page, as the site shows it."""
    source = f"exercises/{lab.id}/{lab_page.FILE}"
    text = text_parts.read(root / source)
    drawings = Drawings("../../")
    treated = treatment(root, source, drawings)
    treated.after = {HINTS: hints(lab)}
    treated.folded = {SPOILER: "Show how each task is solved"}
    shown = markup.render(text, treated)
    for needed in (HINTS, SPOILER):
        if needed not in [row.text for row in shown.headings]:
            raise LabError(f"{root / source} has no heading `## {needed}`, which the site needs.")
    ids = {task.id for task in lab.tasks}
    linked = _TASK_CELL.sub(
        lambda cell: (
            f'<td><a href="#{cell[1]}"><code>{cell[1]}</code></a></td>'
            if cell[1] in ids
            else cell[0]
        ),
        shown.html,
    )
    headings = [*shown.headings, *(Heading(3, task.id, task.id) for task in lab.tasks)]
    title = f"{lab.id.removeprefix('lab')} {lab.title}"
    return SitePage(source, title, Rendered(linked, headings), source, files=drawings.files)


def hints(lab: Lab) -> str:
    """Three hints of each task, each behind the one before."""
    known = task_hints.read(lab)
    parts = ['<h3 id="hints">Hints</h3>\n<p>Three a task, each behind the one before: ']
    parts.append(f"{', '.join(_LAYERS)}.</p>\n")
    for task in lab.tasks:
        name = f"<code>{task.id}</code>: {html.escape(task.title)}"
        parts.append(f'<div class="hints">\n<h4 id="{task.id}">{name}</h4>\n')
        parts.append(f"{markup.unsearched(_layers(known[task.id]))}</div>\n")
    return "".join(parts)


def _layers(rows: task_hints.Hints) -> str:
    shown = ""
    for number in range(len(rows), 0, -1):
        words = f"Hint {number}: {_LAYERS[number - 1]}"
        shown = markup.fold(words, f"<p>{markup.inline(rows[number - 1])}</p>\n{shown}", "hint")
    return shown
