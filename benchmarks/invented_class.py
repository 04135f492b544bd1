"""An invented class, for `similarity.py`: how its honest submissions and its copies are made.

No real submissions are here, so this is what stands in for them. A student has a way of writing:
how often a loop is a `while`, an intermediate result has a name, a new function gives a value, and
so on. Each task comes from one of the lab's variants, which are right answers of other designs.
Every statement is rewritten after the student's way, and some tasks are left open. One student in
ten follows the reference, with known mistakes in it. The files parse; they were never run.

Two honest students may have taken a task from the same variant: of five or six there are, sixty
students share each. So honest pairs are more alike here than those of independent authors.

A copy is another student's file, changed as copies are: names, order, comments, or one half of it.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.lab.manifest import Lab
from grader.suite import splice

Class = dict[str, dict[str, bytes]]
Taken = dict[str, tuple[int, int]]
"""By task: which of the sources it is from, and how many lines it has there."""
Designs = dict[str, Taken]
_NAMES = ["part", "total", "piece", "width", "left", "count", "inner", "outer", "rows", "cols"]
_HABITS = [
    *("augmented", "loops", "listed", "named", "returned", "inverted"),
    *("swapped", "methods", "ternary", "asserts", "helpers", "order"),
]


@dataclass(frozen=True)
class Copy:
    """A planted pair: who copied from whom, and how."""

    original: str
    copy: str
    how: str


def invented_class(
    lab: Lab, students: int, seed: int, designs: Designs | None = None
) -> tuple[Class, list[Copy]]:
    """`students` submissions of a lab, six of them copies of six others. Into `designs` goes where
    each student took the tasks from."""
    rng = random.Random(f"{lab.id} {seed}")
    sources = _sources(lab)
    designs = {} if designs is None else designs
    found: Class = {}
    for number in range(1, students + 1):
        name = f"student{number:02}"
        taken = designs[name] = {}
        found[name] = _submission(lab, sources, random.Random(rng.random()), taken)
    names = rng.sample(sorted(found), 12)
    ways: list[tuple[str, Callable[..., bytes]]] = [
        ("names changed", renamed),
        ("names and comments changed", renamed),
        ("functions in another order", reordered),
        ("functions and statements in another order", reordered),
        ("half of the functions", half),
        ("half of the functions, names changed", half),
    ]
    planted = []
    for number, (how, change) in enumerate(ways):
        original, copy = names[2 * number : 2 * number + 2]
        thorough = number % 2 == 1
        found[copy] = {
            name: change(data, found[copy][name], thorough, random.Random(rng.random()))
            for name, data in found[original].items()
        }
        planted.append(Copy(original, copy, how))
    return found, planted


# -- honest work ----------------------------------------------------------------------------------


def _sources(lab: Lab) -> dict[str, list[ast.Module]]:
    """For each Python file the texts that students take their designs from."""
    folders = sorted((lab.suite / "variants").iterdir())
    return {
        name: [
            ast.parse(path.read_text()) for folder in folders if (path := folder / name).is_file()
        ]
        for name in lab.edit
        if name.endswith(".py")
    }


def _submission(
    lab: Lab, sources: dict[str, list[ast.Module]], rng: random.Random, taken: Taken
) -> dict[str, bytes]:
    way = Way(rng)
    mistaken = rng.random() < 0.1
    return {
        name: way.written(
            _mistaken(lab, name, rng) if mistaken else _mixed(lab, name, trees, rng, taken)
        )
        for name, trees in sources.items()
    }


def _mistaken(lab: Lab, name: str, rng: random.Random) -> ast.Module:
    """The reference with known mistakes in some of its tasks."""
    text = (lab.solution / name).read_text()
    for task in lab.tasks_of(name):
        path = lab.suite / "misconceptions" / f"{task.id}.py"
        if rng.random() < 0.5 or not path.is_file():
            continue
        spec = importlib.util.spec_from_file_location(f"{lab.id}_{task.id}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        changes = [one for one in vars(module).values() if isinstance(one, splice.LineChange)]
        if changes:
            text = rng.choice(changes).change(text, task.id)
    return ast.parse(text)


def _mixed(
    lab: Lab, name: str, trees: list[ast.Module], rng: random.Random, taken: Taken
) -> ast.Module:
    """The skeleton with each task from one of the sources, and what that task needs of it."""
    skeleton = ast.parse((lab.exercise / name).read_text())
    tasks = {task.id for task in lab.tasks_of(name)}
    body: list[ast.stmt] = []
    written: set[str] = set()
    for node in skeleton.body:
        defined = getattr(node, "name", "")
        if defined not in tasks or rng.random() < 0.12:
            if not defined or defined not in written:
                body.append(node)
            written.add(defined)
            continue
        tree = rng.choice([one for one in trees if defined in _defined(one)] or [skeleton])
        if tree in trees:
            lines = len(ast.unparse(_defined(tree)[defined]).splitlines())
            taken[defined] = trees.index(tree), lines
        for needed in _needed(tree, defined, tasks):
            if needed not in written:
                body.append(_defined(tree)[needed])
                written.add(needed)
    return ast.parse(ast.unparse(ast.Module(body, [])))


def _defined(tree: ast.Module) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node
    return found


def _needed(tree: ast.Module, name: str, tasks: set[str]) -> list[str]:
    """A definition and what it uses, before it, without other tasks."""
    defined = _defined(tree)
    found: list[str] = []

    def visit(one: str) -> None:
        if one in found or one not in defined or (one in tasks and one != name):
            return
        used = [node.id for node in ast.walk(defined[one]) if isinstance(node, ast.Name)]
        for other in used:
            if other != one:
                visit(other)
        if one not in found:
            found.append(one)

    visit(name)
    return found


class Way(ast.NodeTransformer):
    """How one student writes: each habit is on for some share of the places where it applies."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.habits = {habit: rng.choice((0.15, 0.4, 0.8)) for habit in _HABITS}
        self.names = rng.sample(_NAMES, len(_NAMES))
        self.new: list[ast.stmt] = []
        self.made = 0

    def written(self, tree: ast.Module) -> bytes:
        body: list[ast.stmt] = []
        for node in tree.body:
            self.new = []
            shown = self.visit(node) if isinstance(node, ast.FunctionDef | ast.ClassDef) else node
            body += [*self.new, shown]
        tree = ast.fix_missing_locations(ast.Module(body, []))
        text = ast.unparse(_Renamed(self.rng, 0.5).visit(tree))
        return _commented(text, self.rng).encode()

    def does(self, habit: str) -> bool:
        return self.rng.random() < self.habits[habit]

    def fresh(self) -> str:
        self.made += 1
        return f"{self.names[self.made % len(self.names)]}{self.made}"

    # -- statements

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.body = self.block(node.body)
        arguments = [one.arg for one in node.args.args if one.arg != "self"]
        if arguments and self.does("asserts"):
            check = ast.parse(f"assert {self.rng.choice(arguments)} is not None, 'missing'").body
            docstring = ast.get_docstring(node) is not None
            node.body[docstring:docstring] = check
        return node

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for node in body:
            found += self.statement(node)
        if self.does("order"):
            for at in range(len(found) - 1):
                if _independent(found[at], found[at + 1]) and self.rng.random() < 0.6:
                    found[at], found[at + 1] = found[at + 1], found[at]
        return found

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(node, field, None)
            if isinstance(inner, list) and not isinstance(node, ast.FunctionDef | ast.ClassDef):
                setattr(node, field, self.block(inner))
        before: list[ast.stmt] = []
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            return [self.visit(node)]
        if isinstance(node, ast.Assign | ast.Return | ast.Expr | ast.AugAssign) and node.value:
            node.value = self.visit(node.value)
            before = self.steps(node)
        return [*before, *self.rewritten(node)]

    def rewritten(self, node: ast.stmt) -> list[ast.stmt]:
        match node:
            case ast.AugAssign(ast.Name(name), op, value) if self.does("augmented"):
                sum_ = ast.BinOp(ast.Name(name, ast.Load()), op, value)
                return [ast.Assign([ast.Name(name, ast.Store())], sum_)]
            case ast.Return(value) if (
                value and not isinstance(value, ast.Name) and self.does("returned")
            ):
                name = self.fresh()
                kept = ast.Assign([ast.Name(name, ast.Store())], value)
                return [kept, ast.Return(ast.Name(name, ast.Load()))]
            case ast.If(test, body, orelse) if orelse and self.does("inverted"):
                return [ast.If(ast.UnaryOp(ast.Not(), test), orelse, body)]
            case ast.Assign([ast.Name() as target], ast.IfExp(test, body, orelse)) if self.does(
                "ternary"
            ):
                one, other = (ast.Assign([target], value) for value in (body, orelse))
                return [ast.If(test, [one], [other])]
            case ast.Assign([ast.Name() as target], ast.ListComp(elt, [one])) if self.does(
                "listed"
            ):
                add = ast.Call(ast.Attribute(ast.Name(target.id, ast.Load()), "append"), [elt], [])
                inner: list[ast.stmt] = [ast.Expr(add)]
                for test in one.ifs:
                    inner = [ast.If(test, inner, [])]
                loop = ast.For(one.target, one.iter, inner, [])
                return [ast.Assign([target], ast.List([], ast.Load())), loop]
            case ast.For(ast.Name(name), ast.Call(ast.Name("range"), arguments, []), body, []):
                steps = not any(isinstance(part, ast.Continue) for part in ast.walk(node))
                if len(arguments) < 3 and steps and self.does("loops"):
                    first = ast.Constant(0) if len(arguments) == 1 else arguments[0]
                    index = ast.Name(name, ast.Load())
                    more = ast.AugAssign(ast.Name(name, ast.Store()), ast.Add(), ast.Constant(1))
                    test = ast.Compare(index, [ast.Lt()], [arguments[-1]])
                    begin = ast.Assign([ast.Name(name, ast.Store())], first)
                    return [begin, ast.While(test, [*body, more], [])]
        return [node]

    def steps(self, node: Any) -> list[ast.stmt]:
        """Intermediate results with names of their own, in front of a statement."""
        found: list[ast.stmt] = []
        way = self

        class Outer(ast.NodeTransformer):
            def visit_Lambda(self, inner: ast.Lambda) -> ast.Lambda:
                return inner

            visit_ListComp = visit_GeneratorExp = visit_DictComp = visit_SetComp = visit_Lambda
            visit_IfExp = visit_BoolOp = visit_Lambda

            def visit_Call(self, inner: ast.Call) -> ast.Call:
                inner.args = [self.named(self.visit(one)) for one in inner.args]
                return inner

            def named(self, inner: ast.expr) -> ast.expr:
                if not isinstance(inner, ast.BinOp | ast.Call | ast.Subscript) or not way.does(
                    "named"
                ):
                    return inner
                name = way.fresh()
                value = (
                    way.helper(inner) if way.rng.random() < 0.4 and way.does("helpers") else inner
                )
                found.append(ast.Assign([ast.Name(name, ast.Store())], value))
                return ast.Name(name, ast.Load())

        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            node.value = Outer().visit(node.value)
        return found

    def helper(self, value: ast.expr) -> ast.expr:
        """A call of a new function that gives this value."""
        free = sorted(
            {
                node.id
                for node in ast.walk(value)
                if isinstance(node, ast.Name) and node.id not in ("torch", "math", "tl", "np")
                if node.id not in vars(builtins)
            }
        )
        name = f"_{self.fresh()}"
        source = f"def {name}({', '.join(free)}):\n    return {ast.unparse(value)}\n"
        self.new += ast.parse(source).body
        loads: list[ast.expr] = [ast.Name(one, ast.Load()) for one in free]
        return ast.Call(ast.Name(name, ast.Load()), loads, [])

    # -- expressions

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.MatMult) and self.does("methods"):
            function = ast.Attribute(ast.Name("torch", ast.Load()), "matmul")
            return ast.Call(function, [node.left, node.right], [])
        if isinstance(node.op, ast.Add | ast.Mult) and self.does("swapped"):
            return ast.BinOp(node.right, node.op, node.left)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        turned = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
        if len(node.ops) == 1 and type(node.ops[0]) in turned and self.does("swapped"):
            return ast.Compare(node.comparators[0], [turned[type(node.ops[0])]()], [node.left])
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        methods = ("sum", "exp", "max", "amax", "unsqueeze", "reshape", "where", "masked_fill")
        match node.func:
            case ast.Attribute(ast.Name("torch"), name) if name in methods and node.args:
                if self.does("methods"):
                    return ast.Call(ast.Attribute(node.args[0], name), node.args[1:], node.keywords)
            case ast.Attribute(value, name) if name in methods and not isinstance(value, ast.Name):
                if self.does("methods"):
                    function = ast.Attribute(ast.Name("torch", ast.Load()), name)
                    return ast.Call(function, [value, *node.args], node.keywords)
        return node


def _independent(one: ast.stmt, other: ast.stmt) -> bool:
    """Whether two assignments to names can change places."""
    if not all(
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        for node in (one, other)
    ):
        return False
    names = [
        {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} for node in (one, other)
    ]
    targets = [one.targets[0].id, other.targets[0].id]  # type: ignore[attr-defined]
    return targets[0] not in names[1] and targets[1] not in names[0]


class _Renamed(ast.NodeTransformer):
    """Other names for a share of the local names."""

    def __init__(self, rng: random.Random, share: float) -> None:
        self.rng = rng
        self.share = share
        self.new: dict[str, str] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        local = sorted(
            {
                part.id
                for part in ast.walk(node)
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
            }
        )
        self.new = {
            name: f"{self.rng.choice(_NAMES)}_{name}"
            for name in local
            if self.rng.random() < self.share
        }
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.new.get(node.id, node.id), node.ctx)


def _commented(text: str, rng: random.Random) -> str:
    lines: list[str] = []
    for line in text.split("\n"):
        if line.startswith("    ") and rng.random() < 0.08:
            blank = line[: len(line) - len(line.lstrip())]
            lines.append(f"{blank}# {' '.join(rng.sample(_NAMES, 3))}")
        lines.append(line)
    return "\n".join(lines) + "\n"


# -- copies ---------------------------------------------------------------------------------------


def renamed(data: bytes, own: bytes, thorough: bool, rng: random.Random) -> bytes:
    """Every local name is another; with `thorough`, comments too."""
    text = ast.unparse(_Renamed(rng, 1.0).visit(ast.parse(data)))
    return (_commented(text, rng) if thorough else text + "\n").encode()


def reordered(data: bytes, own: bytes, thorough: bool, rng: random.Random) -> bytes:
    """Functions in another order; with `thorough`, independent statements too."""
    tree = ast.parse(data)
    movable = [at for at, node in enumerate(tree.body) if isinstance(node, ast.FunctionDef)]
    nodes = [tree.body[at] for at in movable]
    rng.shuffle(nodes)
    for at, node in zip(movable, nodes, strict=True):
        tree.body[at] = node
    for node in ast.walk(tree) if thorough else ():
        body = getattr(node, "body", None)
        for at in range(len(body) - 1) if isinstance(body, list) else ():
            if _independent(body[at], body[at + 1]):
                body[at], body[at + 1] = body[at + 1], body[at]
    return (ast.unparse(tree) + "\n").encode()


def half(data: bytes, own: bytes, thorough: bool, rng: random.Random) -> bytes:
    """The student's own file in which definitions of the other one stand for about half of the
    lines, with what they use."""
    theirs, mine = ast.parse(data), ast.parse(own)
    shared = [name for name in _bodies(mine) if name in _bodies(theirs) and name[0] != "_"]
    rng.shuffle(shared)
    lines = {name: len(ast.unparse(_bodies(theirs)[name]).splitlines()) for name in shared}
    taken: list[str] = []
    while sum(lines[name] for name in taken) < sum(lines.values()) / 2:
        taken.append(shared[len(taken)])
    body: list[ast.stmt] = []
    written: set[str] = set()
    for node in mine.body:
        name = getattr(node, "name", "")
        needed = _needed(theirs, name, set(shared)) if name in taken else [name]
        for one in needed:
            if not one or one not in written:
                body.append(_defined(theirs)[one] if name in taken else node)
            written.add(one)
    tree = ast.parse(ast.unparse(ast.Module(body, [])))
    return (ast.unparse(_Renamed(rng, 1.0).visit(tree) if thorough else tree) + "\n").encode()


def _bodies(tree: ast.Module) -> dict[str, ast.stmt]:
    return {name: node for name, node in _defined(tree).items() if not isinstance(node, ast.Assign)}


def write(found: Class, folder: Path, lab: str) -> None:
    """A class as a folder of submissions."""
    for student, files in found.items():
        place = folder / student / lab
        place.mkdir(parents=True)
        for name, data in files.items():
            (place / name).write_bytes(data)
