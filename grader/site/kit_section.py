"""The other sections of the site: what the kit's own texts say of it."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

from grader.errors import LabError
from grader.lab.manifest import all_labs
from grader.site import inline_pictures, markup, text_parts
from grader.site.inline_pictures import Drawings
from grader.site.lab_section import lab_site_page, treatment
from grader.site.markup import Heading, Rendered
from grader.site.question_openings import interview_pages
from grader.site.site_pages import SitePage, SiteSection
from grader.site.teach_page import ClassShown, teach_page

DIAGRAMS = Path(__file__).parent / "diagrams"
_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z])")
_TERM = re.compile(r"^ {4}(\S.*?) {2,}(.*(?:\n {16,}.*)*)", re.MULTILINE)
_HOME_PICTURE = (
    "exercises/lab07/which-tiles-are-computed-and-in-which-order.flash_kernel.svg",
    "Lab 07: which tiles of causal attention its kernel computes, masks and skips",
)
_READERS = (
    ("The learner", "exercises/README.md",
     "Labs that run on a laptop. For a wrong answer a sentence says what was misunderstood."),
    ("The candidate", "INTERVIEW.md",
     "Figures, bugs, reasons and code from a blank file, for your role and against the clock."),
    ("The instructor", "TEACHING.md",
     "From the release to the report: sandboxed grading, a gradebook, and what to teach next."),
)  # fmt: skip


def sections(root: Path, shown: ClassShown) -> list[SiteSection]:
    """Every page of the site but the calculators', in order. shown: what the page on teaching shows
    of a class."""
    labs = [lab_site_page(root, lab) for lab in all_labs(root)]
    if not labs:
        raise LabError(f"{root / 'exercises'} holds no lab.")
    return [
        SiteSection("Home", [_home(root)]),
        SiteSection(
            "Learn", [_whole(root, "exercises/README.md", "The labs"), _tools(root), *labs]
        ),
        SiteSection("Interview", [_whole(root, "INTERVIEW.md"), *interview_pages(root)]),
        SiteSection("Teach", [teach_page(root, shown), _whole(root, "CLUSTER.md")]),
        SiteSection("Write a lab", [_whole(root, "CONTRIBUTING.md")]),
        SiteSection(
            "How it works",
            [_wall(root), _emulator(root), _meters(root), _whole(root, "SECURITY.md")],
        ),
        SiteSection("Results", _results(root)),
    ]


def _whole(root: Path, source: str, title: str = "") -> SitePage:
    """A Markdown file as one page."""
    shown = markup.render(text_parts.read(root / source), treatment(root, source))
    heading = next((row.text for row in shown.headings if row.level == 1), "")
    if not heading:
        raise LabError(f"{root / source} has no heading of level 1; a page of the site needs one.")
    return SitePage(source, title or html.unescape(heading), shown, source)


def _of_readme(root: Path, path: str, title: str, body: str) -> SitePage:
    shown = markup.render(f"# {title}\n\n{body}", treatment(root, "README.md"))
    return SitePage(path, title, shown, "README.md")


def _home(root: Path) -> SitePage:
    text = text_parts.read(root / "README.md")
    title = text.splitlines()[0].removeprefix("# ")
    about = " ".join(text.split("\n\n")[1].split())
    lead = " ".join(_SENTENCE.split(about)[:2])
    begin, *_ = text_parts.code_blocks(text_parts.section(root / "README.md", "## Two commands"))
    treated = treatment(root, "README.md")
    picture, words = _HOME_PICTURE
    cards = "".join(
        f'<li><a href="kit:{path}">{name}</a><p>{about}</p></li>\n'
        for name, path, about in _READERS
    )
    body = (
        f'<div class="home">\n<div class="lead"><h1 id="home">{html.escape(title)}</h1>\n'
        f"<p>{markup.inline(lead)}</p></div>\n"
        f'<ul class="readers">\n{cards}</ul>\n'
        f'<h2 id="begin">Begin</h2>\n{markup.render(begin, treated).html}'
        f"{inline_pictures.figure(root / picture, words, Drawings())}</div>\n"
    )
    headings = [Heading(1, "home", title), Heading(2, "begin", "Begin")]
    return SitePage("index.md", title, Rendered(body, headings), "README.md", wide=True)


def _tools(root: Path) -> SitePage:
    readme = root / "README.md"
    body = text_parts.section(readme, "## The learner")
    return _of_readme(root, "learn/tools.md", "The learner's commands", body)


def _wall(root: Path) -> SitePage:
    text = text_parts.docstring(root / "grader/sandbox/__init__.py")
    rows = "".join(
        f"<dt>{html.escape(term)}</dt><dd>{_inline(' '.join(said.split()))}</dd>\n"
        for term, said in _TERM.findall(text)
    )
    body = f"<p>{_inline(text.split(chr(10))[0])}</p>\n{_diagram('wall')}"
    return _how(
        root, "wall", "The wall", body, f'<h2 id="glossary">Glossary</h2>\n<dl>\n{rows}</dl>\n',
        [Heading(2, "glossary", "Glossary")], "grader/sandbox",
    )  # fmt: skip


def _emulator(root: Path) -> SitePage:
    treated = treatment(root, "grader/kernels/cuda/compile.py")
    first = text_parts.docstring(root / "grader/kernels/cuda/compile.py")
    body = _diagram("emulator") + markup.render(first, treated).html
    more = '<h2 id="triton">Triton</h2>\n'
    for name in ("guard", "ledger"):
        said = text_parts.docstring(root / f"grader/kernels/triton/{name}.py")
        more += markup.render(said, treated).html
    return _how(
        root, "emulator", "The emulator", body, more, [Heading(2, "triton", "Triton")],
        "grader/kernels/cuda", "grader/kernels/cuda/runtime", "grader/kernels/triton",
    )  # fmt: skip


def _meters(root: Path) -> SitePage:
    source = "grader/meters/__init__.py"
    text = text_parts.docstring(root / source)
    first, _, rest = text.partition("\n\n")
    said, _, limits = rest.partition("\nKnown limits\n")
    shown = markup.render(said, treatment(root, source)).html
    body = f"<p>{_inline(first)}</p>\n{_diagram('meters')}{shown}"
    more = '<h2 id="known-limits">Known limits</h2>\n'
    more += markup.render(limits, treatment(root, source)).html
    heading = [Heading(2, "known-limits", "Known limits")]
    return _how(root, "meters", "The meters", body, more, heading, "grader/meters")


def _how(
    root: Path, name: str, title: str, body: str, more: str, headings: list[Heading], *folders: str
) -> SitePage:
    """A page on a part of the kit: its diagram and words, and what each of its files is for."""
    rows = []
    for folder in folders:
        for path in sorted((root / folder).iterdir()):
            if path.suffix in (".py", ".h") and path.name != "__init__.py":
                file = path.relative_to(root).as_posix()
                link = f'<a href="kit:{file}"><code>{file.removeprefix("grader/")}</code></a>'
                rows.append(
                    f"<tr><td>{link}</td><td>{_inline(text_parts.opening(path))}</td></tr>\n"
                )
    table = (
        '<h2 id="its-files">Its files</h2>\n<div class="wide"><table class="rows"><thead><tr>'
        f"<th>file</th><th>what it does</th></tr></thead><tbody>\n{''.join(rows)}"
        "</tbody></table></div>\n"
    )
    shown = f'<h1 id="{name}">{title}</h1>\n{body}{more}{table}'
    every = [Heading(1, name, title), *headings, Heading(2, "its-files", "Its files")]
    source = f"{folders[0]}/__init__.py"
    return SitePage(f"how/{name}.md", title, Rendered(shown, every), source)


def _diagram(name: str) -> str:
    return inline_pictures.figure(DIAGRAMS / f"{name}.svg", "", Drawings())


def _inline(text: str) -> str:
    return markup.inline(text)


def _results(root: Path) -> list[SitePage]:
    """Every table that a benchmark wrote."""
    paths = sorted((root / "benchmarks/results").glob("*.md"))
    if not paths:
        raise LabError(f"{root / 'benchmarks/results'} holds no result.")
    pages = [_whole(root, path.relative_to(root).as_posix()) for path in paths]
    titles = [page.title for page in pages]
    split: list[SitePage] = []
    for page in pages:
        stem = Path(page.path).stem
        title = page.title if titles.count(page.title) == 1 else f"{page.title}: {stem}"
        split += _in_parts(root, replace(page, title=title))
    rows = "".join(
        f'<li><a href="kit:{page.path}">{html.escape(page.title)}</a></li>\n' for page in split
    )
    shown = f'<h1 id="results">Results</h1>\n<p>{_RESULTS}</p>\n<ul>\n{rows}</ul>\n'
    index = Rendered(shown, [Heading(1, "results", "Results")])
    return [SitePage("benchmarks/results/README.md", "Results", index), *split]


_LONGEST = 45_000  # characters of a text that one page holds


def _in_parts(root: Path, page: SitePage) -> list[SitePage]:
    """A result as one page, or a long table on several, each with the table's head."""
    parts: list[list[str]] = [[]]
    size, head = 0, list[str]()
    for line in text_parts.read(root / page.source).splitlines():
        row = line.startswith("|")
        head = [*head, line][:2] if row else []
        if row and size > _LONGEST and line not in head:
            parts.append([f"# {page.title}, part {len(parts) + 1}", "", *head])
            size = 0
        parts[-1].append(line)
        size += len(line)
    if len(parts) == 1:
        return [page]
    made = []
    for number, lines in enumerate(parts, start=1):
        shown = markup.render("\n".join(lines), treatment(root, page.source))
        stem = page.path.removesuffix(".md")
        path, title = (f"{stem}-{number}.md", f"{page.title}, part {number}")
        if number == 1:
            path, title = page.path, page.title
        made.append(SitePage(path, title, shown, page.source))
    return made


_RESULTS = (
    "What was measured, each by a program of <code>benchmarks/</code> that wrote its own table."
)
