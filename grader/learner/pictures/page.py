"""`infralens show lab04`: pictures of what the learner's own code does, as one HTML file.

A lab's file for pictures is a given file: it runs here, on the trusted side, and reaches the
learner's code through `student` alone, as a suite does. What goes wrong on the way becomes a
sentence in the place of that drawing; the others are drawn all the same.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType

from grader import readable
from grader.errors import (
    LabError,
    LoadFailed,
    Missing,
    NotStarted,
    RemoteError,
    StudentError,
    SuiteFault,
    Timeout,
)
from grader.lab import capabilities
from grader.lab.manifest import Lab, lab_ids, load_lab
from grader.learner.pictures import combine
from grader.learner.pictures.drawing import Drawing, Legend, Note, Panel, Picture, PictureFault
from grader.learner.pictures.lines import Lines
from grader.learner.pictures.png import write_png
from grader.learner.pictures.sheet import Sheet, Text, paragraph, text_width
from grader.learner.pictures.svg import css, to_svg
from grader.sandbox.backends import LocalBackend
from grader.sandbox.client import Session, Student
from grader.sandbox.modules import FolderModules
from grader.suite.messages import sentence
from grader.suite.model import Suite, load_suite

# Of a whole file, whichever task asks; the text says all there is to say.
_FILE_FAULTS = ("CompileError", "Unsupported")
_CALL_FAULTS = ("LaunchError", "LookupError", "TritonUnsupported")
_GAP = 28.0
_WIDEST = 1424.0


@dataclass(frozen=True)
class RenderedPanel:
    """A panel as it came out: its drawing, or the sentence that stands in its place. `panels`: how
    many were drawn together."""

    panel: Panel
    drawing: Drawing
    panels: int = 1

    @property
    def failed(self) -> bool:
        return isinstance(self.drawing, Note)


@dataclass(frozen=True)
class RenderedPicture:
    """A picture with all of its panels."""

    picture: Picture
    panels: list[RenderedPanel]


@dataclass(frozen=True)
class ShowResult:
    """What `show` has to say: sentences, the files that it wrote, how many drawings were made."""

    sentences: list[str]
    files: list[Path]
    drawn: int


def show(lab: Lab, task: str, out: Path | None, png: bool, solution: bool) -> ShowResult:
    """Draw a lab's pictures, all or one task's, from the learner's code or the reference, and write
    the page: to `out`, or into the kit's own notes."""
    if png and importlib.util.find_spec("matplotlib") is None:
        raise LabError("--png needs matplotlib: pip install -e '.[plots]'")
    task = task.removeprefix(f"{lab.id}.")
    if task:
        lab.task(task)
    if solution and not lab.has_solution:
        raise LabError(f"{lab.id} has no reference here: {lab.solution} is missing.")
    folder = lab.solution if solution else lab.exercise
    results = draw(lab, folder, task)
    path = out or lab.root / ".infralens" / "pictures" / f"{lab.id}.html"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(lab, folder, results), encoding="utf-8")
        files = [path, *(_images(path, results) if png else [])]
    except OSError as error:
        raise LabError(f"{path} cannot be written: {error.strerror or error}.") from error
    panels = [shown for result in results for shown in result.panels]
    sentences = [shown.drawing.alt for shown in panels if shown.failed]
    drawn = sum(shown.panels for shown in panels if not shown.failed)
    total = drawn + len(sentences)
    sentences = list(dict.fromkeys(sentences))
    sentences.append(f"{drawn} of {total} drawings of {lab.id} were made.")
    return ShowResult(sentences, files, drawn)


def draw(lab: Lab, folder: Path, task: str = "") -> list[RenderedPicture]:
    """The pictures of a lab, drawn from the code in `folder`; with `task`, only that task's."""
    if not lab.pictures:
        raise LabError(f"{lab.id} has no pictures; labs with pictures: {_labs_with(lab.root)}.")
    source = lab.given_source(lab.pictures)
    if not source.is_file():
        restore = lab.how_to_restore_given(lab.pictures)
        raise LabError(f"{lab.id}: {source} is missing; {restore}.")
    if any("cxx" in row.needs for row in lab.tasks):
        # The first compilation on a machine takes seconds, which no call's deadline should pay.
        from grader import kernels

        kernels.preload()
    suite = load_suite(lab)
    backend = LocalBackend(suite.code_spec(folder), suite.limits())
    line = Session(backend, suite.records, {name: folder / name for name in lab.edit})
    given = FolderModules(map(lab.given_source, lab.given))
    given.codes = lambda path: [_kits(lab.root, path)]
    try:
        with given.visible():
            pictures = _pictures(lab, given, Student(line))
            chosen = list(_chosen(lab, pictures, task))
            return [
                RenderedPicture(one, _drawn(suite, line, one, panels)) for one, panels in chosen
            ]
    finally:
        backend.close()


def _kits(root: Path, path: Path) -> CodeType:
    """The code of a given file, under its name in the kit: meters refuse callers from the folder of
    the learner's code, where it lies, and here it is the kit's own."""
    name = path.relative_to(root) if path.is_relative_to(root) else path.name
    return compile(path.read_bytes(), str(name), "exec", dont_inherit=True)


def _labs_with(root: Path) -> str:
    found = [name for name in lab_ids(root) if load_lab(root, name).pictures]
    return ", ".join(found) or "none"


def _pictures(lab: Lab, given: FolderModules, student: Student) -> list[Picture]:
    try:
        return list(given.load(lab.pictures).pictures(student))
    except (Exception, SystemExit) as error:
        raise LabError(
            f"{lab.given_source(lab.pictures)} is at fault, not your code: "
            f"{type(error).__name__}: {error}; {lab.how_to_restore_given(lab.pictures)}."
        ) from error


def _chosen(lab: Lab, pictures: list[Picture], task: str) -> Iterator[tuple[Picture, list[Panel]]]:
    """Each picture with the panels of the task, or all."""
    known = [panel.task for picture in pictures for panel in picture.panels]
    if task and task not in known:
        names = ", ".join(dict.fromkeys(known)) or "none"
        raise LabError(f"No picture shows `{task}`; tasks of {lab.id} with a picture: {names}.")
    for picture in pictures:
        panels = [panel for panel in picture.panels if task in ("", panel.task)]
        if panels:
            yield picture, panels


def _drawn(
    suite: Suite, line: Session, picture: Picture, panels: list[Panel]
) -> list[RenderedPanel]:
    drawings = [_one(suite, line, panel) for panel in panels]
    if picture.same_scale:
        drawings = combine.same_scale(drawings)
    shown = [RenderedPanel(panel, made) for panel, made in zip(panels, drawings, strict=True)]
    return _together(shown) if picture.together else shown


def _together(shown: list[RenderedPanel]) -> list[RenderedPanel]:
    """The lines of all panels as one drawing, then the panels that have none."""
    lines = [one.drawing for one in shown if isinstance(one.drawing, Lines)]
    others = [one for one in shown if not isinstance(one.drawing, Lines)]
    if not lines:
        return others
    first = next(one.panel for one in shown if isinstance(one.drawing, Lines))
    return [RenderedPanel(replace(first, title=""), combine.together(lines), len(lines)), *others]


def _one(suite: Suite, line: Session, panel: Panel) -> Drawing:
    """A panel's drawing, or the reason why there is none."""
    task = suite.lab.task(panel.task)
    if reason := capabilities.first_missing(task.needs):
        return Note(f"{task.name} cannot be shown here: {reason}.")
    line.task = task.name
    try:
        made = panel.draw()
        made.lay()
        return made
    except NotStarted as error:
        where = f": its placeholder still stands at {error.where}" if error.where else ""
        return Note(f"{error.task} is not started{where}.")
    except RemoteError as error:
        if isinstance(error, StudentError) and error.type_name in _FILE_FAULTS:
            return Note(error.text)
        return Note(f"{task.name}: {_told(error)}")
    except PictureFault as error:
        return Note(f"{task.name}: {sentence(str(error))}")
    except SuiteFault as error:
        return Note(f"{task.name}: the picture is at fault, not your code: {error}")
    except Exception as error:
        return Note(
            f"{task.name}: what came back from your code could not be drawn "
            f"({type(error).__name__}: {error})."
        )
    finally:
        line.backend.forget()


def _told(error: RemoteError) -> str:
    """What went wrong in the learner's code."""
    where = f" (at {error.where})" if error.where else ""
    if isinstance(error, StudentError):
        if error.type_name in _CALL_FAULTS:
            return sentence(error.text)
        return sentence(f"raised {error.type_name}: {error.text}{where}")
    if isinstance(error, Timeout):
        return f"{error.text}: a loop that does not end, or work that grows too fast."
    if isinstance(error, LoadFailed | Missing):
        return sentence(f"{error.text}{where}")
    return sentence(error.text)


# -- the page -------------------------------------------------------------------------------------

_STYLE = """
body{margin:0 auto;max-width:92rem;padding:1.5rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;margin:0}h2{font-size:1.2rem;margin:2.5rem 0 .25rem}
h3{font-size:1rem;margin:.5rem 0}p{margin:.25rem 0;max-width:48rem}
.from,summary{color:var(--soft);font-size:.9rem}
.panels{display:flex;flex-wrap:wrap;gap:1.75rem;align-items:flex-start}
figure{margin:0;max-width:100%}svg{display:block;max-width:100%;height:auto;margin:.5rem 0;
font-family:system-ui,sans-serif}
.note{border-left:4px solid var(--red);padding:.25rem .75rem;white-space:pre-wrap;
font-family:ui-monospace,monospace;font-size:.9rem;overflow-x:auto}
details p{font-size:.9rem}
"""


def page(lab: Lab, folder: Path, results: list[RenderedPicture]) -> str:
    """The pictures as one file that needs no other and no script."""
    sections = "\n".join(_section(result) for result in results)
    source = readable.html(lab.shown(folder))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{lab.id}: pictures</title>
<style>
{css()}
{_STYLE.strip()}
</style>
</head>
<body>
<h1>{readable.html(lab.title)}</h1>
<p class="from">Drawn by <code>infralens show {lab.id}</code> from the code in {source}.</p>
{sections}
</body>
</html>
"""


def _section(result: RenderedPicture) -> str:
    picture = result.picture
    figures = "\n".join(_figure(shown) for shown in result.panels)
    keys = f"\n{to_svg(Legend(picture.keys))}" if picture.keys else ""
    return f"""<section>
<h2>{readable.html(picture.title)}</h2>
<p>{readable.html(picture.how)}</p>{keys}
<div class="panels">
{figures}
</div>
</section>"""


def _figure(shown: RenderedPanel) -> str:
    title = f"<h3>{readable.html(shown.panel.title)}</h3>\n" if shown.panel.title else ""
    if shown.failed:
        body = f'<p class="note">{readable.html(shown.drawing.alt)}</p>'
    else:
        words = f"<summary>In words</summary><p>{readable.html(shown.drawing.alt)}</p>"
        body = f"{to_svg(shown.drawing)}\n<details>{words}</details>"
    return f"<figure>\n{title}{body}\n</figure>"


# -- images ---------------------------------------------------------------------------------------


def _images(path: Path, results: list[RenderedPicture]) -> list[Path]:
    """Each picture as a PNG beside the page."""
    found = []
    for number, result in enumerate(results, start=1):
        found.append(path.with_name(f"{path.stem}-{number}.png"))
        write_png(poster(result), found[-1])
    return found


def poster(result: RenderedPicture, widest: float = _WIDEST) -> Sheet:
    """A picture with its words on one sheet, as the page shows it. `widest`: of a row of panels."""
    sheet = Sheet()
    x = y = lowest = 0.0
    panels = Sheet()
    for shown in result.panels:
        one = Sheet()
        if shown.panel.title:
            one.put(Text(0, 9, shown.panel.title, 13, bold=True))
            one.width, one.height = text_width(shown.panel.title, 13) * 1.08, 24
        one.paste(shown.drawing.lay(), 0, one.height)
        if x and x + one.width > widest:
            x, y = 0.0, lowest + _GAP
        panels.paste(one, x, y)
        x, lowest = x + one.width + _GAP, max(lowest, y + one.height)
    words = paragraph(result.picture.how, max(panels.width, 480), 13)
    sheet.put(Text(0, 10, result.picture.title, 17, bold=True))
    sheet.width = text_width(result.picture.title, 17) * 1.08
    sheet.paste(words, 0, 28)
    if result.picture.keys:
        sheet.paste(Legend(result.picture.keys).lay(), 0, sheet.height + 10)
    sheet.paste(panels, 0, sheet.height + 18)
    return sheet
