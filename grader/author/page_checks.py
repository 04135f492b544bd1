"""Is every figure on a lab's page what code computes, or what somebody published?

`tests/labNN/page.py` claims the figures and writes the tables (`page_claims`). It runs in the
author's process, when `infralens sync` or `infralens lint` is called, and nowhere else.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from grader.author import page_claims, printed_sums
from grader.author.page_claims import FigureClaim
from grader.author.page_figures import UNITS, PageFigure, figures_of, passages, tables
from grader.errors import LabError
from grader.lab import lab_page
from grader.lab.manifest import Lab, all_labs
from grader.sandbox.modules import FolderModules

FILE = "page.py"
R = TypeVar("R")
_NEAR = Fraction(1, 4)
_SCALES = {"KIB", "MIB", "GIB", "KB", "MB", "GB", "TB", "K", "M", "B", "T"}


class PageCode:
    """The names of a lab's reference and given files, as attributes; a file is run when a name of
    it is asked for."""

    def __init__(self, lab: Lab, modules: FolderModules) -> None:
        self._lab, self._modules = lab, modules
        self._names = [name for name in (*lab.edit, *lab.given) if name.endswith(".py")]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        for file in sorted(self._names, key=lambda file: not self._defines(file, name)):
            if hasattr(module := self._modules.load(file), name):
                return getattr(module, name)
        raise AttributeError(f"neither {' nor '.join(self._names)} has `{name}`")

    def _defines(self, file: str, name: str) -> bool:
        """Whether a file seems to define a name, so that no other need be run to find it."""
        own = rf"^(?:def|class)\s+{re.escape(name)}\b|^{re.escape(name)}\b\s*[:=]"
        return bool(re.search(own, self.path(file).read_text(encoding="utf-8"), re.MULTILINE))

    def path(self, name: str) -> Path:
        """Where a file of the reference is, or a given one."""
        edited = name in self._lab.edit
        return self._lab.solution / name if edited else self._lab.given_source(name)


@dataclass
class PageReport:
    """What was found about one page. `claims` is None for a lab without a page.py."""

    lab: str
    claims: list[FigureClaim] | None = None
    figures: int = 0
    faults: list[str] = field(default_factory=list)


def is_checked(lab: Lab) -> bool:
    """Whether somebody has claimed the figures of a lab's page."""
    return (lab.suite / FILE).is_file()


def which_are_checked(root: Path) -> str:
    """A sentence on the labs whose pages are checked, and on those that are not."""
    labs = all_labs(root)
    missing = [lab.id for lab in labs if not is_checked(lab)]
    said = f"The figures on {len(labs) - len(missing)} of {len(labs)} labs' pages are checked"
    return f"{said}; nobody has claimed those of {', '.join(missing)}." if missing else f"{said}."


def check_page(lab: Lab) -> PageReport:
    """Hold a page against its claims and tables."""
    report = PageReport(lab.id)
    page = lab_page.text(lab)
    report.faults += [f"{said}: infralens sync" for said in stale_tables(lab)]
    report.faults += [
        f"{_page_name(lab)}: line {line}: {said}"
        for line, text in passages(page)
        for said in printed_sums.faults(text)
    ]
    if not is_checked(lab):
        return report
    report.faults += _literals(lab)
    report.claims = []
    for function, name in _functions(lab):
        if not name:
            report.claims += _ran(lab, function, _claims_of)
    found = figures_of(page)
    report.figures = sum(not figure.bare for figure in found)
    report.faults += faults_of(lab, found, report.claims)
    return report


def faults_of(lab: Lab, found: list[PageFigure], claims: list[FigureClaim]) -> list[str]:
    """Figures that nobody claims and claims that stand nowhere, a sentence each."""
    unmatched = [c for c in claims if not any(holds(c, figure) for figure in found)]
    claimed = {id(f) for f in found for c in claims if holds(c, f)}
    stale, faults = list(unmatched), []
    for figure in found:
        if figure.bare or id(figure) in claimed:
            continue
        near = _nearest(figure, unmatched) or _nearest(figure, claims)
        if near:
            stale = [c for c in stale if c is not near]
            faults.append(
                f"{_page_name(lab)}: line {figure.line} says {figure.text}; the nearest claim is "
                f"{figure.like(near.size)} ({near.what}, {near.place}). Correct the page or the "
                "claim, or claim it as another figure."
            )
        else:
            faults.append(
                f"{_page_name(lab)}: line {figure.line} says {figure.text}, which nobody claims. "
                f"Claim it in tests/{lab.id}/{FILE}: computed (claim), a known fact (fact), "
                "published, measured, or an input of the text's own (assumed)."
            )
    return faults + [_of_stale(lab, claim, found) for claim in stale]


def _of_stale(lab: Lab, claim: FigureClaim, found: list[PageFigure]) -> str:
    start = f"tests/{lab.id}/{claim.place} claims {claim.shown} ({claim.what})"
    words = " ... ".join(claim.where)
    beside = [figure for figure in found if _is_beside(claim, figure)]
    if not beside:
        return (
            f"{start}, and no passage of {_page_name(lab)} with a number holds the words "
            f'"{words}": correct where=, or remove the claim.'
        )
    there = sorted(
        (f for f in beside if f.measures in ("", claim.measures)),
        key=lambda figure: _distance(figure, claim),
    )
    same = [f for f in there if f.measures == claim.measures]
    hint = same[0] if same else there[0] if there else beside[0]
    return (
        f'{start}, which does not stand beside "{words}" in {_page_name(lab)}; nearest there is '
        f"{hint.text} in line {hint.line}: correct one of the two, or remove the claim."
    )


def holds(claim: FigureClaim, figure: PageFigure) -> bool:
    """Whether a figure stands beside the claim's words and is what it claims."""
    if not _is_beside(claim, figure):
        return False
    if figure.measures:
        return figure.measures == claim.measures and figure.shows(claim.size)
    if not claim.measures or not figure.bare:
        return figure.shows(claim.size)
    measures, factor = UNITS[figure.former] if figure.former else ("", Fraction(1))
    return measures == claim.measures and figure.shows(claim.size / factor)


def _is_beside(claim: FigureClaim, figure: PageFigure) -> bool:
    return all(words in figure.block for words in claim.where)


def _nearest(figure: PageFigure, claims: list[FigureClaim]) -> FigureClaim | None:
    """The claim that a figure probably means: one that is near in value, and rather beside it."""
    rows = [
        c
        for c in claims
        if (c.measures == figure.measures or (not figure.measures and _is_beside(c, figure)))
        and _distance(figure, c) <= _NEAR
        and (_is_beside(c, figure) or _distance(figure, c) <= _NEAR / 25)
        and not figure.shows(c.size)
    ]
    return min(rows, key=lambda c: (not _is_beside(c, figure), _distance(figure, c)), default=None)


def _distance(figure: PageFigure, claim: FigureClaim) -> Fraction:
    most = max(abs(figure.size), abs(claim.size))
    return abs(abs(figure.size) - abs(claim.size)) / most if most else Fraction(0)


# -- tables ----------------------------------------------------------------------------------------


def stale_tables(lab: Lab) -> list[str]:
    """The tables of a page that are not what page.py makes, a sentence each."""
    page = lab_page.text(lab)
    made = _made_tables(lab) if is_checked(lab) else {}
    said = [
        f"{_page_name(lab)}: the table `{name}` is not what tests/{lab.id}/{FILE} makes"
        for name, begin, end in tables(page)
        if name in made and page[begin:end] != made[name]
    ]
    there = [name for name, *_ in tables(page)]
    said += [
        f"{_page_name(lab)}: no @table({name!r}) in tests/{lab.id}/{FILE} makes its table"
        for name in there
        if name not in made
    ]
    return said + [
        f"tests/{lab.id}/{FILE}: the table `{name}` stands {there.count(name)} times in "
        f"{_page_name(lab)}; write <!-- table: {name} --> and <!-- end --> once, in lines of their "
        "own"
        for name in made
        if there.count(name) != 1
    ]


def with_tables(lab: Lab) -> str:
    """The page with its tables as page.py makes them."""
    page = lab_page.text(lab)
    made = _made_tables(lab) if is_checked(lab) else {}
    for name, begin, end in reversed(list(tables(page))):
        page = page[:begin] + made.get(name, page[begin:end]) + page[end:]
    return page


def stale(root: Path) -> list[str]:
    """The tables of all pages that are not up to date, a sentence each."""
    return [said for lab in all_labs(root) if lab.has_solution for said in stale_tables(lab)]


def write(root: Path) -> list[Path]:
    """Bring the tables of all pages up to date; the pages that this changed."""
    changed = []
    for lab in all_labs(root):
        path = lab.exercise / lab_page.FILE
        if not (lab.has_solution and is_checked(lab) and path.is_file()):
            continue
        if (text := with_tables(lab)) != lab_page.text(lab):
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def _made_tables(lab: Lab) -> dict[str, str]:
    made: dict[str, str] = {}
    for function, name in _functions(lab):
        if not name:
            continue
        if name in made:
            raise LabError(f"tests/{lab.id}/{FILE}: two functions make the table `{name}`.")
        made[name] = _ran(lab, function, _markdown)
    return made


def _markdown(rows: page_claims.Rows) -> str:
    if isinstance(rows, str):
        return rows.strip("\n") + "\n"
    cells = [[str(cell) for cell in row] for row in rows]
    if len({len(row) for row in cells}) != 1:
        raise ValueError("a table needs a head, and as many cells in each row as in its head")
    head, *rest = [f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in row)}|" for row in cells]
    return "\n".join([head, "|" + "---|" * len(cells[0]), *rest]) + "\n"


# -- running page.py -------------------------------------------------------------------------------


def _claims_of(rows: Any) -> list[FigureClaim]:
    found = list(rows)
    for row in found:
        if not isinstance(row, FigureClaim):
            raise TypeError(f"it yields {row!r}, which is not a claim")
    return found


def _sources(lab: Lab) -> list[Path]:
    """The files that claims compute with: the reference and what is given."""
    return [*(lab.solution / name for name in lab.edit), *map(lab.given_source, lab.given)]


_LOADED: dict[Path, tuple[bytes, ModuleType, FolderModules]] = {}


def _loaded(lab: Lab) -> tuple[ModuleType, FolderModules]:
    """page.py as a module, and what it computes with."""
    path = lab.suite / FILE
    sources = _sources(lab)
    beside = sorted(lab.suite.glob("*.py"))
    stamp = b"\0".join(p.read_bytes() for p in (*beside, *sources) if p.is_file())
    known = _LOADED.get(path)
    if known and known[0] == stamp:
        return known[1], known[2]
    modules = FolderModules(sources)
    package = f"labpage_{lab.id}"
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]
    holder = ModuleType(package)
    holder.__path__ = [str(lab.suite)]
    sys.modules[package] = holder
    try:
        with modules.visible():
            module = importlib.import_module(f"{package}.{path.stem}")
    except LabError:
        raise
    except (Exception, SystemExit) as error:
        raise LabError(f"{_where(lab, error)}: {type(error).__name__}: {error}.") from error
    _LOADED[path] = stamp, module, modules
    return module, modules


@contextmanager
def reference(lab: Lab) -> Iterator[PageCode]:
    """What `page.py` computes with, for a script that keeps what takes too long for it."""
    modules = FolderModules(_sources(lab))
    with modules.visible():
        yield PageCode(lab, modules)


def _functions(lab: Lab) -> Iterator[tuple[Callable[[PageCode], Any], str]]:
    module, _ = _loaded(lab)
    for function in list(vars(module).values()):
        name = page_claims.marked(function)
        if name is not None and callable(function):
            yield function, name


def _ran(lab: Lab, function: Callable[[PageCode], Any], read: Callable[[Any], R]) -> R:
    _, modules = _loaded(lab)
    try:
        with modules.visible():
            return read(function(PageCode(lab, modules)))
    except LabError as error:
        own = str(error).startswith(FILE)
        raise LabError(f"tests/{lab.id}/{error}" if own else str(error)) from None
    except (Exception, SystemExit) as error:
        name = getattr(function, "__name__", "?")
        where = _where(lab, error)
        raise LabError(f"{where}: `{name}` fails: {type(error).__name__}: {error}.") from error


def _where(lab: Lab, error: BaseException) -> str:
    """The line of the lab's own files that an error comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(lab.suite)]
    line = own[-1].lineno if own else getattr(error, "lineno", None)
    file = Path(own[-1].filename).name if own else FILE
    return f"tests/{lab.id}/{file}" + (f":{line}" if line else "")


def _literals(lab: Lab) -> Iterator[str]:
    """`claim` is for what code computes: its value is more than a number that is typed in."""
    path = lab.suite / FILE
    try:
        tree = ast.parse(path.read_bytes(), FILE)
    except (SyntaxError, ValueError) as error:
        raise LabError(f"tests/{lab.id}/{FILE} is not Python: {error}.") from error
    constants = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and is_literal(node.value, set())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "claim" and node.args:
            value = node.args[0]
            if is_literal(value, constants):
                yield (
                    f"tests/{lab.id}/{FILE}:{node.lineno}: claim({ast.unparse(value)}, ...) types "
                    "a value in; compute it, or say where it comes from: published, measured, "
                    "fact, or assumed."
                )


def is_literal(node: ast.expr, constants: set[str]) -> bool:
    """Whether an expression is one number, with nothing but a scale (1e9, 2**30, GIB)."""
    numbers, names = 0, 0
    powers = {1e3, 1e6, 1e9, 1e12, 1024, 1024**2, 1024**3, 10, 2}
    for part in ast.walk(node):
        if isinstance(part, ast.Constant):
            numbers += isinstance(part.value, int | float) and part.value not in powers
        elif isinstance(part, ast.Name):
            names += part.id.upper() not in _SCALES and part.id not in constants
        elif isinstance(part, ast.Call | ast.Attribute | ast.Subscript):
            return False
    exponents = sum(
        isinstance(part, ast.BinOp) and isinstance(part.op, ast.Pow) for part in ast.walk(node)
    )
    return not names and numbers - exponents <= 1


def _page_name(lab: Lab) -> str:
    return f"exercises/{lab.id}/{lab_page.FILE}"
