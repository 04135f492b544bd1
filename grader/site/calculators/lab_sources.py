"""What is sent to a browser of the labs' own files: the definitions that a calculator reaches.

Some references import torch or NumPy for other functions than those that a calculator calls, and
neither can be had in a page that works without a network. So a file is cut, not imitated: the
statements that the wanted names reach stay, on their lines and to the letter, and the others become
empty lines. An import keeps the names that are used. What cannot be cut so is refused: a statement
of the module that runs for its effect on something that stays, or an import of anything but the
standard library and the lab's own files. Nothing stands in for torch, so a function that needs it
fails the build of the site, not a reader's page.

The references are answers, and the site is for learners: their text is not on a page and nothing
links to it. It travels in one file for all calculators, compressed and in base64, so nobody meets
it by reading or searching. That hides no more: a reader who decodes the file has those functions,
and so has everybody who clones the kit.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from grader.errors import LabError


def lab_sources(root: Path, lab: str, uses: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The cut files of one lab by module name; `uses` names what is called, by module.

    Raises LabError for a file that cannot be cut.
    """
    files = {path.stem: path for path in sorted((root / "exercises" / lab).glob("*.py"))}
    files |= {path.stem: path for path in sorted((root / "solutions" / lab).glob("*.py"))}
    wanted = {module: set(names) for module, names in uses.items() if module in files}
    texts: dict[str, str] = {}
    waiting = list(wanted)
    while waiting:
        module = waiting.pop()
        path = files[module]
        texts[module], siblings = _cut(
            path, path.read_text(encoding="utf-8"), wanted[module], files
        )
        for sibling, names in siblings.items():
            if not names <= wanted.setdefault(sibling, set()) or sibling not in texts:
                wanted[sibling] |= names
                waiting.append(sibling)
    return texts


def _cut(
    path: Path, text: str, wanted: set[str], files: Mapping[str, Path]
) -> tuple[str, dict[str, set[str]]]:
    """The file without what `wanted` does not reach, and what it asks of the lab's other files."""
    tree = ast.parse(text)
    kept, reached = _reached(path, tree, wanted)
    lines = text.splitlines()
    result = [""] * len(lines)
    siblings: dict[str, set[str]] = {}
    for node in kept:
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
        last = node.end_lineno or node.lineno
        if not isinstance(node, ast.Import | ast.ImportFrom):
            result[first - 1 : last] = lines[first - 1 : last]
            continue
        node.names = [alias for alias in node.names if _bound(alias) in reached]
        modules = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        for module in modules:
            if module in files and isinstance(node, ast.ImportFrom):
                siblings.setdefault(module, set()).update(alias.name for alias in node.names)
            elif module.partition(".")[0] not in sys.stdlib_module_names:
                names = ", ".join(sorted(wanted))
                raise LabError(
                    f"{path}, line {node.lineno}: a calculator uses {names}, which needs {module}. "
                    f"In a browser there are the standard library and the lab's own files."
                )
        result[first - 1] = ast.unparse(node)
    # Annotations are never evaluated with this import, so they need nothing.
    result[0] = f"from __future__ import annotations; {result[0]}".rstrip("; ")
    return "\n".join(result) + "\n", siblings


def _reached(path: Path, tree: ast.Module, wanted: set[str]) -> tuple[list[ast.stmt], set[str]]:
    """The module's statements that bind what `wanted` reaches, in order, and all those names."""
    binds = [(node, set(_binds(node))) for node in tree.body]
    kept: set[int] = set()
    reached, waiting = set(wanted), set(wanted)
    while waiting:
        name = waiting.pop()
        found = False
        for place, (node, names) in enumerate(binds):
            if name not in names:
                continue
            found = True
            if place not in kept:
                kept.add(place)
                new = set(_loads(node)) - reached
                reached |= new
                waiting |= new
        if not found and name in wanted:
            raise LabError(f"{path} has no {name}, which a calculator uses.")
    for place, (node, names) in enumerate(binds):
        if names or place in kept or _is_main(node) or _is_docstring(node):
            continue
        if set(_loads(node)) & reached:
            raise LabError(
                f"{path}, line {node.lineno}: this statement changes something that a calculator "
                f"uses when the file is imported; put it into a definition."
            )
    return [binds[place][0] for place in sorted(kept)], reached


def _binds(node: ast.stmt) -> Iterator[str]:
    """Names that a statement of a module binds or changes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        if not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            yield from map(_bound, node.names)
    elif not isinstance(node, ast.Expr) and not _is_main(node):
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _loads(node: ast.AST) -> Iterator[str]:
    """Names that a statement reads, those of annotations left out."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from _loads(part)
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
        yield node.id


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in set(_loads(node.test))


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
