"""The calculators' pages and files: forms made from the declarations, scripts, and the data."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from grader.site.calculators.declaration import (
    AnyInput,
    Calculator,
    ChoiceInput,
    NumberInput,
    SwitchInput,
    TextInput,
)
from grader.site.calculators.every_calculator import CALCULATORS
from grader.site.calculators.lab_sources import lab_sources
from grader.site.calculators.pyodide_files import PYTHON, VERSION, packed, runtime_script

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
# The kit's modules that run in the browser.
SENT = (
    "declaration",
    "model_input",
    "memory_ledgers",
    "zero_by_rank",
    "kv_blocks",
    "format_bits",
    "parallel_plan",
    "every_calculator",
)
# A choice with longer texts takes two columns.
WIDE = 26
LABS = ("lab01", "lab08", "lab10", "lab11", "lab12")


@dataclass(frozen=True)
class CalculatorPage:
    """A page without its frame. lab: whose page it belongs to. body: HTML."""

    name: str
    title: str
    purpose: str
    lab: str
    body: str


def write(
    folder: Path,
    pyodide: Path | None,
    *,
    files: str = "../assets/calculators/",
    lab_page: str = "../learn/{lab}.html#{section}",
    root: Path = ROOT,
) -> list[CalculatorPage]:
    """Write what the pages load into `folder`, and return the pages; none without Pyodide.

    files: where a page finds that folder. lab_page: where it finds a section of a lab's page.
    root: the folder that holds `exercises` and `solutions`.
    Raises LabError for files of another Pyodide, and for a lab's file that cannot be cut.
    """
    if pyodide is None:
        return []
    texts = assets(pyodide, root)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return pages(files, lab_page)


def assets(pyodide: Path, root: Path = ROOT) -> dict[str, str]:
    """The files that the pages load, by name; all are text."""
    own = {
        name: (HERE / name).read_text(encoding="utf-8")
        for name in ("calculators.js", "calculators.css")
    }
    return own | {
        "pyodide-runtime.js": runtime_script(pyodide),
        "calculators-data.js": data_script(root),
    }


def pages(files: str, lab_page: str) -> list[CalculatorPage]:
    """A page for each calculator, with its addresses as `write` takes them."""
    return [
        CalculatorPage(one.name, one.title, one.purpose, one.lab, body(one, files, lab_page))
        for one in CALCULATORS
    ]


def sources(root: Path = ROOT) -> dict[str, str]:
    """Everything that runs in the browser, by path: the labs' files and the declarations."""
    found = {"grader/__init__.py": "", "grader/site/__init__.py": ""}
    found["grader/site/calculators/__init__.py"] = ""
    for module in SENT:
        path = HERE / f"{module}.py"
        found[f"grader/site/calculators/{module}.py"] = path.read_text(encoding="utf-8")
    for lab in LABS:
        wanted: dict[str, tuple[str, ...]] = {}
        for one in CALCULATORS:
            for module, names in one.uses.items():
                wanted[module] = (*wanted.get(module, ()), *names)
        found |= {f"{name}.py": text for name, text in lab_sources(root, lab, wanted).items()}
    return found


def data_script(root: Path = ROOT) -> str:
    """A classic script with `sources`, out of plain reading."""
    data = packed(json.dumps(sources(root)).encode("utf-8"))
    return f'self.INFRALENS_CALCULATORS_DATA = "{data}";\n'


def body(one: Calculator, files: str, lab_page: str) -> str:
    """The page's HTML: a form that can be read and filled in before anything is loaded."""
    number = one.lab.removeprefix("lab")
    about = lab_page.format(lab=one.lab, section="").rstrip("#")
    template = lab_page.format(lab=one.lab, section="{section}")
    return f"""\
<link rel="stylesheet" href="{_said(files)}calculators.css">
<div class="calculator" data-calculator="{one.name}" data-lab="{one.lab}" \
data-files="{_said(files)}" data-lab-page="{_said(template)}">
<p class="calculator-purpose">{_said(one.purpose)} The figures come from \
<a href="{_said(about)}">lab {number}</a>'s own code, which runs in this page.</p>
<form class="calculator-form" aria-label="{_said(one.title)}" novalidate>
{"".join(_field(one.name, each) for each in one.inputs)}</form>
<p class="calculator-status" role="status">The calculator needs JavaScript.</p>
<p class="calculator-failure" role="alert" hidden></p>
<div class="calculator-result" hidden>
<p class="calculator-headlines"></p>
<button type="button" class="calculator-share">Copy a link to this result</button>
<div class="calculator-tables"></div>
<ul class="calculator-notes"></ul>
</div>
<p class="calculator-made">Python {PYTHON} by <a href="https://pyodide.org">Pyodide</a> {VERSION} \
(MPL 2.0), loaded with this site: about 7 MB, once. What you type stays in your browser.</p>
</div>
<script src="{_said(files)}calculators.js" defer></script>
"""


def _said(text: str) -> str:
    return html.escape(text, quote=True)


def _field(calculator: str, one: AnyInput) -> str:
    key = f"{calculator}-{one.name}"
    says = f'aria-describedby="{key}-hint {key}-error"'
    shown = ""
    if one.shown_if is not None:
        shown = (
            f' data-shown-if="{_said(one.shown_if[0])}" data-shown-value="{_said(one.shown_if[1])}"'
        )
    unit = f" ({_said(one.unit)})" if isinstance(one, NumberInput) and one.unit else ""
    label = f'<label for="{key}">{_said(one.label)}{unit}</label>'
    common = f'id="{key}" name="{_said(one.name)}" {says}'
    if isinstance(one, ChoiceInput):
        control = f"<select {common}>{_options(one.choices, one.default)}</select>"
    elif isinstance(one, SwitchInput):
        checked = " checked" if one.default == "true" else ""
        control = f'<input type="checkbox" {common}{checked}>'
    elif isinstance(one, TextInput):
        control = f'<textarea {common} rows="8" spellcheck="false"></textarea>'
    else:
        keys = "numeric" if isinstance(one, NumberInput) and one.whole else "decimal"
        control = (
            f'<input type="text" inputmode="{keys}" autocomplete="off" {common} '
            f'value="{_said(one.default)}">'
        )
    kind = type(one).__name__.removesuffix("Input").lower()
    if isinstance(one, ChoiceInput) and max(len(text) for _, text in one.choices) > WIDE:
        kind += " calculator-wide"
    order = f"{control}{label}" if kind == "switch" else f"{label}{control}"
    return (
        f'<div class="calculator-field calculator-{kind}"{shown}>{order}'
        f'<p class="calculator-hint" id="{key}-hint">{_said(one.hint)}</p>'
        f'<p class="calculator-error" id="{key}-error"></p></div>\n'
    )


def _options(choices: Iterable[tuple[str, str]], default: str) -> str:
    return "".join(
        f'<option value="{_said(value)}"{" selected" if value == default else ""}>'
        f"{_said(text)}</option>"
        for value, text in choices
    )
