"""Requests of made-up programs against an interpreter that runs each lane by itself: accesses are
one request where lanes reached the same line by the same calls in the same turns of all loops."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from grader import kernels
from grader.lab import capabilities

pytestmark = pytest.mark.skipif(
    bool(capabilities.missing("cxx")), reason=capabilities.missing("cxx")
)

KERNELS = 20
Node = tuple[Any, ...]


@dataclass
class Writer:
    """Makes up functions: text for the compiler and nodes for the interpreter, in one go."""

    random: random.Random
    lines: list[str] = field(default_factory=list)
    functions: dict[str, list[Node]] = field(default_factory=dict)
    recent: list[str] = field(default_factory=list)  # those that are called from now on
    used: int = 0

    def put(self, depth: int, text: str) -> int:
        self.lines.append("    " * depth + text)
        return len(self.lines)

    def value(self, names: list[str]) -> tuple[str, dict[str, int], int]:
        """A sum of multiples of variables, modulo a small number."""
        weights = {name: self.random.randint(0, 5) for name in names}
        modulus = self.random.randint(2, 6)
        text = " + ".join(f"{weight} * {name}" for name, weight in weights.items())
        return f"(({text}) % {modulus})", weights, modulus

    def condition(self, names: list[str]) -> tuple[str, Any]:
        text, weights, modulus = self.value(names)
        limit = self.random.randint(0, modulus - 1)
        return f"{text} <= {limit}", (weights, modulus, limit)

    def name(self) -> str:
        self.used += 1
        return f"v{self.used}"

    def block(
        self, depth: int, names: list[str], loop: bool, backend: int, kernel: bool
    ) -> list[Node]:
        made = []
        for _ in range(self.random.randint(1, 3)):
            made.append(self.statement(depth, names, loop, backend, kernel))
        return made

    def statement(
        self, depth: int, names: list[str], loop: bool, backend: int, kernel: bool
    ) -> Node:
        kinds = ["touch", "touch"]
        if backend:
            kinds += ["if", "if", "else", "for", "while", "do", "switch"]
        if loop:
            kinds += ["break", "continue"]
        if self.recent:
            kinds += ["call", "call"]
        kinds += [] if kernel else ["return"]
        kind = self.random.choice(kinds)
        if kind == "touch":
            return "touch", self.put(depth, "cell[32 * (t % 32)] = 1;")
        if kind == "call":
            name = self.random.choice(self.recent)
            text, weights, modulus = self.value(names)
            line = self.put(depth, f"{name}(cell, t, {text});")
            return "call", line, name, (weights, modulus)
        if kind in ("break", "continue", "return"):
            text, test = self.condition(names)
            self.put(depth, f"if ({text}) {kind};")
            return kind, test
        if kind in ("if", "else"):
            text, test = self.condition(names)
            self.put(depth, f"if ({text}) {{")
            then = self.block(depth + 1, names, loop, backend - 1, kernel)
            other: list[Node] = []
            if kind == "else":
                self.put(depth, "} else {")
                other = self.block(depth + 1, names, loop, backend - 1, kernel)
            self.put(depth, "}")
            return "if", test, then, other
        if kind == "switch":
            text, weights, modulus = self.value(names)
            self.put(depth, f"switch ({text}) {{")
            cases = []
            for case in range(modulus):
                self.put(depth, f"case {case}: {{")
                # A break would leave the switch, and a continue the loop: neither is here.
                cases.append(self.block(depth + 1, names, False, backend - 1, kernel))
                self.put(depth + 1, "break; }")
            self.put(depth, "}")
            return "switch", (weights, modulus), cases
        text, weights, modulus = self.value(names)
        turn = self.name()
        inner = [*names, turn]
        if kind == "for":
            self.put(depth, f"for (int {turn} = 0; {turn} < {text}; ++{turn}) {{")
        else:
            self.put(depth, f"int {turn} = -1;")
            end = f"{self.name()}"
            self.put(depth, f"int {end} = {text};")
            self.put(depth, f"while (++{turn} < {end}) {{" if kind == "while" else "do {")
            if kind == "do":
                self.put(depth + 1, f"++{turn};")
        body = self.block(depth + 1, inner, True, backend - 1, kernel)
        self.put(depth, f"}} while ({turn} + 1 < {end});" if kind == "do" else "}")
        return "loop", turn, (weights, modulus), body, kind == "do"

    def helper(self, name: str) -> None:
        self.put(0, f"__device__ int {name}(int *cell, int t, int x) {{")
        body = self.block(1, ["t", "x"], False, 2, False)
        # The value's return statement comes after all others.
        self.lines = [line.replace(" return;", " return 1;") for line in self.lines]
        self.put(1, "return 0;")
        self.put(0, "}")
        self.functions[name] = body
        self.recent = [*self.recent, name][-3:]

    def kernel(self, name: str) -> list[Node]:
        self.put(0, f'extern "C" __global__ void {name}() {{')
        self.put(1, "__shared__ int cell[1024];")
        self.put(1, "int t = threadIdx.x;")
        body: list[Node] = []
        for _ in range(self.random.randint(1, 3)):
            body += self.block(1, ["t"], False, 3, True)
            wait = self.random.choice(
                ["__syncthreads();", "__syncwarp();", "__shfl_sync(0xffffffff, t, 3);"]
            )
            self.put(1, wait)
        turn = self.name()
        self.put(1, f"for (int {turn} = 0; {turn} < 3; ++{turn}) {{")
        inside = self.block(2, ["t", turn], False, 2, True)
        self.put(2, "__syncthreads();")
        self.put(1, "}")
        body.append(("loop", turn, ({}, 1, 3), inside, False))
        self.put(0, "}")
        return body


class Left(Exception):
    """A break, a continue or a return on its way."""


def evaluate(value: Any, variables: dict[str, int]) -> int:
    weights, modulus, *fixed = value
    if not weights:
        return int(fixed[0])
    return int(sum(weight * variables[name] for name, weight in weights.items()) % modulus)


def lane(
    functions: dict[str, list[Node]],
    nodes: list[Node],
    variables: dict[str, int],
    path: tuple[Any, ...],
) -> Iterator[tuple[Any, ...]]:
    """The accesses of one lane, each as its line and the way to it; ends by raising Left."""
    for node in nodes:
        kind = node[0]
        if kind == "touch":
            yield node[1], path
        elif kind == "call":
            try:
                given = {"t": variables["t"], "x": evaluate(node[3], variables)}
                yield from lane(functions, functions[node[2]], given, (*path, node[1]))
            except Left:
                pass
        elif kind in ("break", "continue", "return"):
            weights, modulus, limit = node[1]
            if evaluate((weights, modulus), variables) <= limit:
                raise Left(kind)
        elif kind == "if":
            weights, modulus, limit = node[1]
            taken = evaluate((weights, modulus), variables) <= limit
            yield from lane(functions, node[2] if taken else node[3], variables, path)
        elif kind == "switch":
            case = node[2][evaluate(node[1], variables)]
            yield from lane(functions, case, variables, path)
        else:
            _, name, value, body, at_least_once = node
            turns = max(evaluate(value, variables), int(at_least_once))
            for turn in range(turns):
                try:
                    inner = {**variables, name: turn}
                    yield from lane(functions, body, inner, (*path, (name, turn)))
                except Left as left:
                    if str(left) == "break":
                        break
                    if str(left) == "return":
                        raise


def expected(functions: dict[str, list[Node]], body: list[Node]) -> dict[int, dict[int, int]]:
    """By line, how many requests there are of how many lanes."""
    together: Counter[tuple[Any, ...]] = Counter()
    for t in range(32):
        together.update(lane(functions, body, {"t": t}, ()))
    found: dict[int, Counter[int]] = {}
    for (line, _), lanes in together.items():
        found.setdefault(line, Counter())[lanes] += 1
    return {line: dict(sorted(ways.items())) for line, ways in found.items()}


def made_up(seed: int) -> tuple[Writer, dict[str, list[Node]]]:
    writer = Writer(random.Random(seed))
    bodies = {}
    for number in range(KERNELS):
        if number % 4 == 0:
            writer.helper(f"helper{number}")
        bodies[f"k{number}"] = writer.kernel(f"k{number}")
    return writer, bodies


@pytest.fixture(scope="module")
def made(cu: Callable[[str], kernels.Module]) -> tuple[kernels.Module, dict[str, Any]]:
    writer, bodies = made_up(5)
    text = "\n".join(writer.lines) + "\n"
    functions = writer.functions
    return cu(text), {name: expected(functions, body) for name, body in bodies.items()}


@pytest.mark.parametrize("number", range(KERNELS))
def test_a_made_up_program(made: tuple[kernels.Module, dict[str, Any]], number: int) -> None:
    module, answers = made
    report = module.launch(f"k{number}", 2, 32, [])
    assert report.errors == []
    found = {access.line: access.ways for access in report.accesses}
    twice = {
        line: {lanes: 2 * many for lanes, many in ways.items()}
        for line, ways in answers[f"k{number}"].items()
    }
    assert found == twice


def test_the_programs_are_not_all_simple(made: tuple[kernels.Module, dict[str, Any]]) -> None:
    _, answers = made
    lanes = Counter(n for lines in answers.values() for ways in lines.values() for n in ways)
    assert len(lanes) > 15
    assert sum(len(lines) for lines in answers.values()) > 100
