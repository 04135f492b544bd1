"""Made-up Triton kernels, and what their launches do by a slow and plain account in Python.

A kernel is a text whose expressions are Python as well: the account evaluates the same expressions
with one lane's numbers at a time. Names in them: p, q (the program), t (the turn of the loop),
r, c (the lane's row and column), keep (a pattern of lanes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

Key = tuple[int, str, str, int]  # line, kind, array, bytes of an element
Place = tuple[int, int]  # storage, byte

BYTES = {"int8": 1, "bool": 1, "float16": 2, "float32": 4, "int32": 4, "int64": 8}


@dataclass
class Array:
    """A tensor argument: a view of a storage, sizes in elements."""

    name: str
    dtype: str
    storage: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        return BYTES[self.dtype]

    def elements(self) -> set[int]:
        """Where its elements lie, counted from its first one."""
        found = {0} if all(self.shape) else set()
        for many, step in zip(self.shape, self.strides, strict=True):
            found = {at + step * i for at in found for i in range(many)}
        return found

    def count(self) -> int:
        total = 1
        for many in self.shape:
            total *= many
        return total


@dataclass
class Statement:
    """A load, a store or an atomic: which element each lane asks for, and whether it does."""

    kind: str
    array: Array
    block: tuple[int, ...]
    index: str
    mask: str = "True"
    value: str = ""  # of a store, where the account knows it
    line: int = 0

    def lanes(self, names: dict[str, Any]) -> Iterator[tuple[int, bool, Any]]:
        codes = [_code(text or "None") for text in (self.index, self.mask, self.value)]
        rows, columns = ((1, 1, *self.block))[-2:]
        for r in range(rows):
            for c in range(columns):
                here = {**names, "r": r, "c": c}
                index, mask, value = (eval(code, {}, here) for code in codes)
                yield index, bool(mask), value


_codes: dict[str, CodeType] = {}


def _code(text: str) -> CodeType:
    if text not in _codes:
        _codes[text] = compile(text, "<an expression>", "eval")
    return _codes[text]


@dataclass
class Made:
    """A kernel: its text, the arguments in order, and the statements of a turn."""

    text: str
    arrays: list[Array]
    statements: list[Statement]
    grid: tuple[int, int]
    turns: int
    keep: list[bool]
    spaces: dict[int, tuple[str, int]]  # storage: type, elements

    def programs(self) -> list[tuple[int, int]]:
        return [(p, q) for q in range(self.grid[1]) for p in range(self.grid[0])]

    def program(self, number: int) -> str:
        p, q = self.programs()[number]
        return f"program ({p}, {q})" if self.grid[1] > 1 else f"program {p}"


@dataclass
class Row:
    requests: int = 0
    lanes: int = 0
    masked: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    worst: int = 0
    worst_same: int = 0
    most_masked: int = -1
    worst_offsets: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class Did:
    """What a program did to an element."""

    program: int
    kind: str
    line: int


@dataclass
class Account:
    rows: dict[Key, Row] = field(default_factory=dict)
    visits: list[tuple[int, int, str, str, int, int, int, int]] = field(default_factory=list)
    read: dict[str, set[int]] = field(default_factory=dict)
    written: dict[str, set[int]] = field(default_factory=dict)
    fault: str = ""
    programs: int = 0
    history: dict[Place, list[Did]] = field(default_factory=dict)
    clashes: set[tuple[int, int, str, int]] = field(default_factory=set)  # program, line, element

    def racing(self) -> dict[Place, list[tuple[Did, set[Did]]]]:
        """For each element that programs race for: an access and those of others before it that
        it races with, in order."""
        found: dict[Place, list[tuple[Did, set[Did]]]] = {}
        for place, done in self.history.items():
            for at, now in enumerate(done):
                others = {before for before in done[:at] if races(before, now)}
                if others:
                    found.setdefault(place, []).append((now, others))
        return found


def races(one: Did, other: Did) -> bool:
    kinds = {one.kind, other.kind}
    return one.program != other.program and kinds != {"read"} and kinds != {"atomic"}


DOES = {"read": "reads", "write": "writes", "atomic": "changes"}


def account(made: Made) -> Account:
    """What a launch does whose programs run in their order."""
    result = Account()
    for array in made.arrays:
        result.read[array.name], result.written[array.name] = set(), set()
    elements = {array.name: array.elements() for array in made.arrays}
    for number, (p, q) in enumerate(made.programs()):
        result.programs += 1
        for t in range(made.turns):
            for statement in made.statements:
                names = {"p": p, "q": q, "t": t, "keep": made.keep}
                lanes = list(statement.lanes(names))
                mine = elements[statement.array.name]
                out = [index for index, on, _ in lanes if on and index not in mine]
                if out:
                    result.fault = _fault(made, number, statement, out, len(lanes))
                    return result
                _add(result, number, statement, lanes)
    return result


def _fault(made: Made, number: int, statement: Statement, out: list[int], lanes: int) -> str:
    array = statement.array
    lie = "lies" if len(out) == 1 else "lie"
    many = f"{array.count():,} element{'' if array.count() == 1 else 's'}"
    return (
        f"out of bounds: {made.program(number)} {DOES[statement.kind]} {array.name}[{out[0]}] "
        f"(line {statement.line}; {len(out)} of {lanes} lane{'' if lanes == 1 else 's'} {lie} "
        f"outside): {array.name} has {many}"
    )


def _add(result: Account, number: int, statement: Statement, lanes: list[Any]) -> None:
    array, kind, size = statement.array, statement.kind, statement.array.size
    row = result.rows.setdefault((statement.line, kind, array.name, size), Row())
    on = [index for index, wanted, _ in lanes if wanted]
    row.requests += 1
    row.lanes += len(on)
    row.masked += len(lanes) - len(on)
    sectors = {(array.offset + index) * size // 32 for index in on}
    row.sectors += len(sectors)
    row.ideal_sectors += -(-len(set(on)) * size // 32)
    row.worst = max(row.worst, len(sectors))
    if kind == "atomic" and on:
        row.worst_same = max(row.worst_same, *(on.count(index) for index in set(on)), 0)
    if len(lanes) - len(on) > row.most_masked:
        row.most_masked = len(lanes) - len(on)
        row.worst_offsets = tuple(index * size if wanted else None for index, wanted, _ in lanes)
    if kind != "atomic":
        ends = (on[0], on[-1]) if on else (-1, -1)
        result.visits.append(
            (number, statement.line, kind, array.name, *ends, len(on), len(lanes) - len(on))
        )
    if kind != "write":
        result.read[array.name].update(on)
    if kind != "read":
        result.written[array.name].update(on)
    did = Did(number, kind, statement.line)
    for index in dict.fromkeys(on):
        done = result.history.setdefault((array.storage, (array.offset + index) * size), [])
        if did not in done[-1:]:
            done.append(did)
    if kind == "write" and statement.value:
        given: dict[int, Any] = {}
        for index, wanted, value in lanes:
            if wanted and given.setdefault(index, value) != value:
                result.clashes.add((number, statement.line, array.name, index))


# -- making kernels up ----------------------------------------------------------------------------

HEAD = """\
import triton
import triton.language as tl


@triton.jit
def fetch(at, mask):
    return tl.load(at, mask=mask, other=0)


@triton.jit
def put(at, value, mask):
    tl.store(at, value, mask=mask)


@triton.jit
def inner(at, mask):
    return fetch(at, mask)


@triton.jit
def k({parameters}):
    p = tl.program_id(0)
    q = tl.program_id(1)
"""
FETCH = HEAD.splitlines().index("    return tl.load(at, mask=mask, other=0)") + 1
PUT = HEAD.splitlines().index("    tl.store(at, value, mask=mask)") + 1

Draw = Callable[[Any], Any]


class Maker:
    """Draws one kernel: statements first, then arrays that hold, or almost hold, what they ask."""

    def __init__(self, choose: Callable[[Any], Any]) -> None:
        self.choose = choose  # one of a sequence
        self.grid = (choose((1, 2, 3, 4)), choose((1, 1, 1, 2)))
        self.turns = choose((1, 1, 2))
        self.block: tuple[int, ...] = choose(((4,), (8,), (16,), (32,), (2, 4), (4, 8), (8, 4)))
        self.arrays: list[Array] = []
        self.spaces: dict[int, tuple[str, int]] = {}
        self.statements: list[Statement] = []
        self.lines: list[str] = []
        self.uses_keep = False
        many = 1
        for size in self.block:
            many *= size
        pattern = choose((0.0, 0.2, 0.8))
        self.keep = [choose(range(10)) >= 10 * pattern for _ in range(many)]
        self.loaded: list[str] = []

    def made(self) -> Made:
        for _ in range(self.choose((1, 2, 2, 3))):
            self.statement()
        names = [array.name for array in self.arrays] + ["keep_at"] * self.uses_keep
        head = HEAD.format(parameters=", ".join(names)).splitlines()
        if len(self.block) == 1:
            head.append(f"    c = tl.arange(0, {self.block[0]})")
        else:
            head.append(f"    r = tl.arange(0, {self.block[0]})[:, None]")
            head.append(f"    c = tl.arange(0, {self.block[1]})[None, :]")
        head.append(f"    for t in range({self.turns}):")
        for statement in self.statements:
            if statement.line >= 0:
                statement.line += len(head)
            else:
                statement.line = -statement.line
        arrays = list(self.arrays)
        if self.uses_keep:
            arrays.append(self._keep)
        text = "\n".join([*head, *(f"        {line}" for line in self.lines)]) + "\n"
        return Made(
            text, arrays, self.statements, self.grid, self.turns, self.keep, dict(self.spaces)
        )

    # -- one statement

    def statement(self) -> None:
        way = self.choose(("plain",) * 5 + ("function", "pointer", "scalar", "descriptor"))
        kind = self.choose(("read", "read", "write", "write", "atomic"))
        if way in ("pointer", "descriptor"):
            self.tile(way, "write" if kind == "write" else "read")
            return
        flat = way == "scalar" or self.choose((True, True, False))
        index, mask, array = self.linear(kind, way) if flat else self.rows(kind)
        if way == "function" and kind == "atomic":
            way = "plain"
        self.put(kind, array, () if way == "scalar" else self.block, index, mask, way)

    def put(
        self,
        kind: str,
        array: Array,
        block: tuple[int, ...],
        index: str,
        mask: str,
        way: str,
    ) -> None:
        spread = f" + {self.axes('0', '0')}" if block else ""
        shown = mask
        if "keep[" in mask:
            at = mask.split("keep[")[1].split("]")[0]
            self.lines.append(f"pattern = tl.load(keep_at + {at}) != 0")
            self.statements.append(Statement("read", self._keep, block, at, line=len(self.lines)))
            shown = mask.replace(f"keep[{at}]", "pattern")
        statement = Statement(kind, array, block, index, mask)
        where = f"{array.name} + ({index})"
        off = "" if mask == "True" else f", mask={shown}"
        if kind == "read":
            name = f"x{len(self.loaded)}"
            helper = self.choose(("fetch", "inner"))
            full = "c >= 0" if len(self.block) == 1 else "(r >= 0) & (c >= 0)"
            text = {
                "function": f"{name} = {helper}({where}, {full if mask == 'True' else shown})",
            }.get(way, f"{name} = tl.load({where}{off}{', other=0' if off else ''})")
            if block:
                self.loaded.append(name)
        elif kind == "write":
            value = self.value(statement, block, spread)
            full = "c >= 0" if len(self.block) == 1 else "(r >= 0) & (c >= 0)"
            text = (
                f"put({where}, {value}, {full if mask == 'True' else shown})"
                if way == "function"
                else f"tl.store({where}, {value}{off})"
            )
        else:
            sem = ', sem="relaxed"' if not block or self.choose((True, False)) else ""
            whole = array.dtype != "float32"
            operation = self.choose(("add", "max", "min") if whole else ("add",))
            text = f"tl.atomic_{operation}({where}, {self.choose((1, 3))}{spread}{off}{sem})"
        self.lines.append(text)
        statement.line = len(self.lines)
        if way == "function":
            statement.line = -(FETCH if kind == "read" else PUT)
        self.statements.append(statement)

    def value(self, statement: Statement, block: tuple[int, ...], spread: str) -> str:
        """What is stored. A loaded block is, only where no two lanes meet."""
        array = statement.array
        if block and self.loaded and self.choose((True, False)) and self.apart(statement):
            name = self.choose(self.loaded)
            return f"{name} != 0" if array.dtype == "bool" else name
        lanes = "c" if len(block) == 1 else "2 * r + c" if block else "t"
        value = self.choose(("7", "p + 2", f"{lanes} + p", f"({lanes}) % 3"))
        if array.dtype == "bool":
            given, statement.value = value, f"({value}) % 2 == 0"
            return f"(({given}{spread}) % 2) == 0"
        statement.value = value
        return f"{value}{spread}"

    def apart(self, statement: Statement) -> bool:
        for names in self.everywhere():
            on = [index for index, wanted, _ in statement.lanes(names) if wanted]
            if len(set(on)) < len(on):
                return False
        return True

    def everywhere(self) -> Iterator[dict[str, Any]]:
        for p in range(self.grid[0]):
            for q in range(self.grid[1]):
                for t in range(self.turns):
                    yield {"p": p, "q": q, "t": t, "keep": self.keep}

    def axes(self, row: str, column: str) -> str:
        return f"{column} * c" if len(self.block) == 1 else f"{row} * r + {column} * c"

    # -- where it goes

    def linear(self, kind: str, way: str) -> tuple[str, str, Array]:
        """Any sum of multiples, in an array of one dimension."""
        choose = self.choose
        many = len(self.keep)
        step = choose((1, 1, 1, 2, 3, 0, -1))
        first = f"{choose((many, many, many // 2, 0, 1, 40)) * (step or 1)} * p"
        parts = [first, f"{choose((0, 1, many * self.grid[0]))} * q", f"{choose((0, 0, 5))} * t"]
        if way != "scalar":
            parts.append(self.axes(str(choose((self.block[-1], 1, 0)) * step), str(step)))
        index = " + ".join(part for part in parts if part not in ("0 * p", "0 * q", "0 * t")) or "0"
        block = () if way == "scalar" else self.block
        stride = choose((1, 1, 1, 1, 2, 3))
        mask = self.mask(index, way)
        probe = Statement(kind, Array("", "int8", 0, 0, (), ()), block, index, mask)
        asked = [index for names in self.everywhere() for index, on, _ in probe.lanes(names) if on]
        low, high = (min(asked), max(asked)) if asked else (0, choose((0, 5)))
        base = -low + choose((0, 0, 0, 3, -1))
        size = max(1, high + base + 1 + choose((0, 0, 0, 0, 4, -1, -3)))
        index = f"{stride} * ({index} + {base})" if stride > 1 else f"{index} + {base}"
        return index, mask, self.array(kind, (size,), (stride,), way)

    def mask(self, index: str, way: str) -> str:
        choose = self.choose
        if way == "scalar":
            return str(choose(("True", "True", "p < 2", "p + t > 0")))
        full = f"({self.axes('0', '0')})"
        lanes = self.axes(str(self.block[-1]), "1")
        plain = ["True", "True", f"{full} + p < 2", f"{lanes} < {choose((1, 3, 7, 100))}"]
        plain += [f"({index}) < {choose((1, 10, 37, 64))}", f"{full} > 0"]
        plain += [f"({index}) % 3 == 1" if "-" not in index else "True"]
        if len(self.block) == 2:
            plain.append(f"(r < {choose((1, 2, 3))}) & (c + {full} < {choose((1, 3, 4))})")
        mask = str(choose([*plain, "keep"]))
        if mask == "keep":
            if not self.uses_keep:
                self.uses_keep = True
                self.spaces[100] = ("int8", len(self.keep))
                self._keep = Array("keep_at", "int8", 100, 0, (len(self.keep),), (1,))
            return f"keep[{lanes}]"
        return mask

    def rows(self, kind: str) -> tuple[str, str, Array]:
        """A tile of an array of two dimensions, whose rows may lie apart."""
        choose = self.choose
        high, wide = (1, self.block[0]) if len(self.block) == 1 else self.block
        height = max(1, high * self.grid[0] - choose((0, 0, 1, 3)))
        width = max(1, wide * self.grid[1] - choose((0, 0, 1, 3)))
        gap = choose((0, 0, 1, 5))
        row = f"{high} * p" + (" + r" if len(self.block) == 2 else "")
        column = f"{wide} * q + c"
        flipped, flat = choose((False, False, True)), choose((False, False, False, True))
        shape, strides = (height, width), (width + gap, 1)
        if flat:
            strides = (0, 1)
        elif flipped:
            strides = (1, height + gap)
        wrong = choose((0, 0, 0, 0, 0, 1))
        index = f"({row}) * {strides[0] + wrong} + ({column}) * {strides[1]}"
        both = f"({row} < {height}) & ({column} < {width})"
        mask = choose((both, both, both, f"{column} < {width}", f"{both} & ({column} > 1)", "True"))
        if mask == "True" and len(self.block) == 2:
            mask = f"(r >= 0) & ({column} < {width})"
        return index, mask, self.array(kind, shape, strides, "rows")

    def tile(self, way: str, kind: str) -> None:
        """By a block pointer, with or without its check, or by a tensor descriptor."""
        choose = self.choose
        block = (4, 4) if way == "descriptor" else (choose((2, 4)), choose((2, 8)))
        height = max(1, block[0] * self.grid[0] - choose((0, 1, 2)))
        width = max(1, block[1] * self.grid[1] * self.turns - choose((0, 1, 2)))
        if way == "descriptor":
            stride, gap = -(-width // 4) * 4 + choose((0, 4)), 0
        else:
            gap = choose((0, 3))
            stride = width + gap
        dtype = "float32" if way == "descriptor" else choose(("float32", "int8", "int64"))
        array = self.array(kind, (height, width), (stride, 1), way, dtype)
        row, column = f"{block[0]} * p", f"{block[1]} * (q * {self.turns} + t)"
        checks = choose(((0, 1), (0, 1), (0, 1), (0,), (1,), ()))
        inside = [f"({row} + r < {height})", f"({column} + c < {width})"]
        if way == "descriptor":
            checks = (0, 1)
            at = f"[{row}, {column}]"
            pointer = (
                f"tl.make_tensor_descriptor({array.name}, shape=[{height}, {width}], "
                f"strides=[{stride}, 1], block_shape=[{block[0]}, {block[1]}])"
            )
            load, store = f"{{}}.load({at})", f"{{}}.store({at}, {{}})"
        else:
            pointer = (
                f"tl.make_block_ptr({array.name}, ({height}, {width}), ({stride}, 1), "
                f"({row}, {column}), {block}, (1, 0))"
            )
            if choose((True, False)):
                pointer = pointer.replace(f"({row}, {column})", f"({row}, 0)")
                pointer = f"tl.advance({pointer}, (0, {column}))"
            check = f", boundary_check={checks}" if checks else ""
            load, store = f"tl.load({{}}{check})", f"tl.store({{}}, {{}}{check})"
        self.lines.append(f"tile = {pointer}")
        index = f"({row} + r) * {stride} + ({column} + c)"
        mask = " & ".join(inside[axis] for axis in checks) or "True"
        statement = Statement(kind, array, block, index, mask)
        if kind == "read":
            self.lines.append(f"{load.format('tile')}")
        else:
            filled = f"tl.full({block}, 2, tl.{array.dtype}) + p.to(tl.{array.dtype})"
            self.lines.append(store.format("tile", filled))
            statement.value = "2 + p"
        statement.line = len(self.lines)
        self.statements.append(statement)

    def array(
        self,
        kind: str,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        way: str,
        dtype: str = "",
    ) -> Array:
        """A view for a statement: of a storage of its own, or of one that is there already."""
        choose = self.choose
        kinds = ("int32", "float32", "int64") if kind == "atomic" else tuple(BYTES)
        dtype = dtype or choose(kinds)
        extent = 1 + sum((many - 1) * step for many, step in zip(shape, strides, strict=True))
        offset = choose((0, 0, 0, 4, 8)) if way == "descriptor" else choose((0, 0, 1, 3, 9))
        alike = [array for array in self.arrays if array.dtype in kinds]
        if way not in ("pointer", "descriptor") and alike and choose((True, False, False)):
            other = choose(alike)
            dtype, storage = other.dtype, other.storage
            if (shape, strides) == (other.shape, other.strides) and choose((True, False)):
                return other
            if choose((True, False)):
                offset = other.offset
        else:
            storage = len(self.spaces)
            self.spaces[storage] = (dtype, 0)
        held = self.spaces[storage][1]
        self.spaces[storage] = (dtype, max(held, offset + extent + choose((0, 6))))
        found = Array("abdefghm"[len(self.arrays)], dtype, storage, offset, shape, strides)
        self.arrays.append(found)
        return found
