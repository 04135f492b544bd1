"""The calculators as pages of the site, where Pyodide is found."""

from __future__ import annotations

import html
from pathlib import Path

from grader.lab.manifest import lab_ids
from grader.site import calculators
from grader.site.calculators import calculator_pages
from grader.site.markup import Heading, Rendered
from grader.site.site_pages import SitePage

_FILES = "assets/calculators/"
_LAB_PAGE = "../exercises/{lab}/index.html#{section}"
_ABOUT = (
    "Each runs the code of a lab's reference in this page, so its figures are those that the lab "
    "is graded by. Pick a model or paste its <code>config.json</code>."
)


def calculator_site_pages(root: Path, pyodide: Path | None) -> list[SitePage]:
    """A page that lists them, and one for each; none without Pyodide, or in a kit that lacks one of
    their labs."""
    if pyodide is None or not set(calculator_pages.LABS) <= set(lab_ids(root)):
        return []
    loaded = {
        f"{_FILES}{name}": text for name, text in calculator_pages.assets(pyodide, root).items()
    }
    made = calculator_pages.pages(f"../{_FILES}", _LAB_PAGE)
    rows = "".join(
        f'<li><a href="kit:calculators/{one.name}.md">{html.escape(one.title)}</a>: '
        f"{html.escape(one.purpose)}</li>\n"
        for one in made
    )
    listed = f'<h1 id="calculators">Calculators</h1>\n<p>{_ABOUT}</p>\n<ul>\n{rows}</ul>\n'
    index = Rendered(listed, [Heading(1, "calculators", "Calculators")])
    source = Path(calculators.__file__).relative_to(Path(calculators.__file__).parents[3])
    return [
        SitePage("calculators/README.md", "Calculators", index, source.as_posix(), files=loaded),
        *(
            SitePage(
                f"calculators/{one.name}.md", one.title,
                Rendered(
                    f'<h1 id="{one.name}">{html.escape(one.title)}</h1>\n{one.body}',
                    [Heading(1, one.name, one.title)],
                ),
                source.as_posix(), wide=True,
            )
            for one in made
        ),
    ]  # fmt: skip
