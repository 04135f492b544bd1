"""What a few tests of a suite reach in its modules, as source text: the part of a suite that can be
handed out with them.

Names are followed through the modules' top level: a test reaches the functions, classes and values
that it names, in its own module and in those it imports, and the probes that it calls.
"""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from grader.errors import LabError
from grader.lab.manifest import Lab

PROBES = "probes"
PUBLISHED = "published.json"
NOT_OF_A_RUN = ("questions.py", "page.py", "why.toml")  # of a suite, for pages and interviews
_DATA = (".json", ".gz", ".safetensors", ".csv", ".txt")
Place = tuple[str, int]  # a module's name, the index of a statement at its top level
TestName = tuple[str, str]  # a task's id, a test's name; no id where its decorator names none


def public_tests(lab: Lab) -> list[TestName]:
    """The tests that the manifest calls public."""
    return [(task.id, name) for task in lab.tasks for name in task.public]


def all_tests(lab: Lab) -> list[TestName]:
    """Every test of a lab's suite."""
    return [test for module in modules(lab).values() for _, test in module.tests]


def modules(lab: Lab) -> dict[str, SuiteModule]:
    """The modules that a run of a lab's suite loads, by name."""
    paths = sorted(path for path in lab.suite.glob("*.py") if path.name not in NOT_OF_A_RUN)
    return {path.stem: SuiteModule(path, path.read_text(encoding="utf-8")) for path in paths}


@dataclass
class SuiteModule:
    """A module of a suite, as statements with their text."""

    path: Path
    text: str
    lines: list[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.lines = self.text.split("\n")

    @cached_property
    def body(self) -> list[ast.stmt]:
        try:
            return ast.parse(self.text).body
        except SyntaxError as error:
            raise LabError(f"{self.path} is not Python: {error}.") from error

    def span(self, index: int) -> tuple[int, int]:
        """First and last line of a statement, with its decorators and the comments above it."""
        node = self.body[index]
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        floor = (self.body[index - 1].end_lineno or 0) if index else 0
        while first - 1 > floor and self.lines[first - 2].lstrip().startswith("#"):
            first -= 1
        return first, node.end_lineno or node.lineno

    @cached_property
    def binding(self) -> dict[str, list[int]]:
        """The statements that give a name of the top level its value, and those that change it."""
        found: dict[str, list[int]] = defaultdict(list)
        for index, node in enumerate(self.body):
            for name in _bound(node):
                found[name].append(index)
        return found

    @property
    def tests(self) -> Iterator[tuple[int, TestName]]:
        """The statement of each test, with each of its names."""
        for index, node in enumerate(self.body):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for task_id in _task_ids(node) or [""]:
                    yield index, (task_id, node.name)

    @property
    def always(self) -> list[int]:
        """What holds for a whole module: its docstring, and how its annotations are read."""
        found = [i for i, node in enumerate(self.body) if _is_future(node)]
        if self.body and ast.get_docstring(ast.Module(self.body[:1], [])) is not None:
            found.append(0)
        return found


def _task_ids(node: ast.FunctionDef) -> list[str]:
    """The tasks in a test's `@task("merge", ...)`; none where they are not written out."""
    calls = [each for each in node.decorator_list if isinstance(each, ast.Call)]
    for call in calls:
        if isinstance(call.func, ast.Name) and call.func.id == "task":
            ids = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
            return [each for each in ids if isinstance(each, str)]
    return []


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement of the top level binds, or whose value it changes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    if isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0]
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield from _root(node.value.func)  # TABLE.update(...)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id
        elif isinstance(inner, ast.Attribute | ast.Subscript) and isinstance(inner.ctx, ast.Store):
            yield from _root(inner)
        elif isinstance(inner, ast.FunctionDef | ast.ClassDef):
            yield inner.name
        elif isinstance(inner, ast.Import | ast.ImportFrom):
            yield from _bound(inner)


def _root(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Name):
        yield node.id


class Closure:
    """What some tests of a lab reach in its suite."""

    def __init__(self, lab: Lab, tests: Collection[TestName]) -> None:
        self.lab = lab
        self.modules = modules(lab)
        self.kept: dict[str, set[int]] = defaultdict(set)
        self.names: dict[str, set[str]] = defaultdict(set)  # of imports: those that are used
        self.whole: set[str] = set()
        self._todo: list[Place] = []
        for name, module in self.modules.items():
            for index, test in module.tests if name.startswith("test_") else ():
                if test in tests or (not test[0] and test[1] in {each for _, each in tests}):
                    self._keep(name, index)
        if tests and lab.pictures:
            self._keep_probes_of(lab.given_source(lab.pictures))
        self._follow()

    def _keep_probes_of(self, pictures: Path) -> None:
        """`infralens show` draws what probes measure."""
        for node in ast.walk(ast.parse(pictures.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
                self._follow_attribute(node, {})

    def _keep(self, module: str, index: int) -> None:
        if index in self.kept[module]:
            return
        if not self.kept[module]:
            self.kept[module].update(self.modules[module].always)
        self.kept[module].add(index)
        self._todo.append((module, index))

    def _keep_name(self, module: str, name: str) -> None:
        if module not in self.modules:
            return
        self.names[module].add(name)
        for index in self.modules[module].binding.get(name, ()):
            node = self.modules[module].body[index]
            if isinstance(node, ast.Import | ast.ImportFrom):
                self.kept[module].update({index, *self.modules[module].always})
                for source, original in self._sources(node, name):
                    if original:
                        self._keep_name(source, original)
            else:
                self._keep(module, index)

    def _keep_all(self, module: str) -> None:
        if module in self.whole or module not in self.modules:
            return
        self.whole.add(module)
        for name in list(self.modules[module].binding):
            self._keep_name(module, name)
        for index in range(len(self.modules[module].body)):
            self._keep(module, index)

    def _follow(self) -> None:
        while self._todo:
            module, index = self._todo.pop()
            self._follow_statement(module, self.modules[module].body[index])

    def _follow_statement(self, module: str, node: ast.stmt) -> None:
        beside = self._modules_named(module, node)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                self._keep_name(module, inner.id)
            elif isinstance(inner, ast.Import | ast.ImportFrom):
                for alias in inner.names:
                    for source, original in self._sources(inner, alias.asname or alias.name):
                        if original:
                            self._keep_name(source, original)
            if isinstance(inner, ast.Attribute):
                self._follow_attribute(inner, beside)
        for name, source in beside.items():
            if self._stands_alone(node, name):
                self._keep_all(source)

    def _follow_attribute(self, node: ast.Attribute, beside: dict[str, str]) -> None:
        value = node.value
        if isinstance(value, ast.Name) and value.id in beside:
            self._keep_name(beside[value.id], node.attr)
        elif isinstance(value, ast.Attribute) and value.attr == "probe":
            self._keep_name(PROBES, node.attr)

    def _stands_alone(self, node: ast.stmt, name: str) -> bool:
        """Whether a module is handed on as a value, so that any of its names may be meant."""
        inside = [each.value for each in ast.walk(node) if isinstance(each, ast.Attribute)]
        return any(
            isinstance(each, ast.Name) and each.id == name and each not in inside
            for each in ast.walk(node)
        )

    def _modules_named(self, module: str, node: ast.stmt) -> dict[str, str]:
        """Modules of the suite by the names under which a statement can reach them."""
        found = {}
        imports = [each for each in self.modules[module].body if _is_import(each)]
        for each in (*imports, *filter(_is_import, ast.walk(node))):
            assert isinstance(each, ast.Import | ast.ImportFrom)
            for alias in each.names:
                name = alias.asname or alias.name
                for source, original in self._sources(each, name):
                    if not original:
                        found[name] = source
        return found

    def _sources(self, node: ast.Import | ast.ImportFrom, name: str) -> Iterator[tuple[str, str]]:
        """The module of the suite, and the name in it, that an import binds to `name`; the name is
        empty where it is the module itself."""
        for alias in node.names:
            if (alias.asname or alias.name) != name:
                continue
            if isinstance(node, ast.Import):
                if alias.name in self.modules:
                    yield alias.name, ""
            elif node.level and not node.module:
                yield alias.name, ""
            elif (node.module or "") in self.modules and (node.level or node.module == "models"):
                yield node.module or "", alias.name

    # -- what is made of it ------------------------------------------------------------------------

    def texts(self) -> dict[str, str]:
        """The files that hold it: name to text."""
        return {f"{name}.py": self._text(name) for name in sorted(self.kept) if self.kept[name]}

    def _text(self, name: str) -> str:
        module = self.modules[name]
        out: list[str] = []
        previous = 0
        for index in sorted(self.kept[name]):
            text = self._statement(name, index)
            if not text:
                continue
            first, last = module.span(index)
            between = module.lines[previous : first - 1]
            gap = 0
            while gap < len(between) and not between[len(between) - 1 - gap].strip():
                gap += 1
            out += [""] * (max(gap, 2) if out and _is_definition(module.body[index]) else gap)
            out += text
            previous = last
        return "\n".join(out).strip("\n") + "\n"

    def _statement(self, name: str, index: int) -> list[str]:
        module = self.modules[name]
        node = module.body[index]
        first, last = module.span(index)
        if not _is_import(node) or _is_future(node) or name in self.whole:
            return module.lines[first - 1 : last]
        assert isinstance(node, ast.Import | ast.ImportFrom)
        used = [a for a in node.names if _binds(a) in self.names[name]]
        if len(used) == len(node.names):
            return module.lines[first - 1 : last]
        if not used:
            return []
        node = ast.parse(ast.unparse(node)).body[0]
        assert isinstance(node, ast.Import | ast.ImportFrom)
        node.names = used
        return [ast.unparse(node)]

    def lines_of(self, name: str) -> set[int]:
        """The numbers of the lines of a module that are reached."""
        module = self.modules[name]
        found: set[int] = set()
        for index in self.kept.get(name, ()):
            first, last = module.span(index)
            found.update(range(first, last + 1))
        return found

    def data_files(self) -> list[str]:
        """The files of data that what is reached names."""
        there = {
            path.relative_to(self.lab.suite).as_posix(): path
            for path in self.lab.suite.rglob("*")
            if path.is_file() and path.suffix in _DATA
        }
        named = {text.rpartition("/")[2] for text in self._strings()}
        return sorted(name for name, path in there.items() if path.name in named)

    def published(self) -> str:
        """The rows of `published.json` whose ids what is reached names, as JSON."""
        rows = json.loads((self.lab.suite / PUBLISHED).read_text(encoding="utf-8"))
        named = self._strings()
        made = [re.compile(pattern) for pattern in self._made_strings()]
        kept = [
            row
            for row in rows
            if row["id"] in named or any(_fits(each.fullmatch(row["id"]), named) for each in made)
        ]
        return json.dumps(kept, indent=2, ensure_ascii=False) + "\n"

    def _made_strings(self) -> Iterator[str]:
        """A pattern for each f"p_{name}" in what is reached."""
        for text in self.texts().values():
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.JoinedStr):
                    fixed = [v.value for v in node.values if isinstance(v, ast.Constant)]
                    if any(str(each).strip() for each in fixed):
                        yield "".join(
                            re.escape(str(part.value)) if isinstance(part, ast.Constant) else "(.+)"
                            for part in node.values
                        )

    def _strings(self) -> set[str]:
        """The texts that stand in what is reached, apart from docstrings."""
        found: set[str] = set()
        for text in self.texts().values():
            tree = ast.parse(text)
            docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.update({node.value} if id(node) not in docs else ())
        return found


def _fits(match: re.Match[str] | None, named: set[str]) -> bool:
    """Whether what an f-string was filled with is among the texts that are named, or a number."""
    return match is not None and all(g in named or g.isdigit() for g in match.groups())


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _is_definition(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def _binds(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]
