"""Runs NVRTC's PTX on the 32 lanes of a warp with NumPy, and counts what each source line asks of
memory: the second opinion on grader.kernels, with which it shares no code.

    kernel = Kernel(compile_ptx(text, "reduce.cu"), "reduce_atomic")
    run = kernel.launch(grid=4, block=256, args={"x": x, "out": out, "n": x.size})
    run.counts[line, "read", "global", "x", 4].sectors

A program's basic blocks are laid out so that each comes after all that lead to it and a loop's lie
together, and lanes with the smallest place run first: so a warp's lanes come together again where
the ways from a branch meet, and at each turn of a loop. Blocks and warps run in their order. What
is not known here raises PtxError by name: nothing is passed over.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from math import inf
from pathlib import PurePath
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Key = tuple[int, str, str, str, int]  # line, kind, space, array, bytes of a lane

LANES = 32
WINDOW = 0x7F10_0000_0000  # where generic addresses mean shared memory
GLOBAL = 0x7F20_0000_0000
GAP = 1 << 16
EVERY = 0xFFFFFFFF
MAX_STEPS = 500_000

TYPES: dict[str, Any] = {
    f"{kind}{bits}": np.dtype(f"{code}{bits // 8}")
    for kind, code in (("u", "u"), ("b", "u"), ("s", "i"))
    for bits in (8, 16, 32, 64)
}
TYPES |= {"f32": np.dtype("f4"), "f64": np.dtype("f8"), "pred": np.dtype("?")}
SPECIAL = [f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
SPECIAL += ["%laneid", "%warpid", "%lanemask_eq", "%lanemask_lt", "%lanemask_le"]


class PtxError(RuntimeError):
    """PTX that is not known here, or a kernel that does what it may not."""


# -- what is counted ------------------------------------------------------------------------------


@dataclass
class Count:
    """All requests of one line, kind, array and size."""

    requests: int = 0
    lanes: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    worst: int = 0
    worst_same: int = 0
    ways: Counter[int] = field(default_factory=Counter)

    def note(
        self, kind: str, space: str, lanes: list[int], addresses: list[int], size: int
    ) -> None:
        self.requests += 1
        self.lanes += len(lanes)
        if kind == "atomic":
            self.worst_same = max(self.worst_same, *Counter(addresses).values())
        if space == "global":
            touched = {at + byte for at in addresses for byte in range(size)}
            sectors = len({byte // 32 for byte in touched})
            self.sectors += sectors
            self.ideal_sectors += -(-len(touched) // 32)
            self.worst = max(self.worst, sectors)
            return
        most = _passes(lanes, addresses, size)
        self.wavefronts += sum(most)
        self.ideal_wavefronts += len(most)
        self.worst = max(self.worst, *most)
        self.ways[max(most)] += 1


def _passes(lanes: list[int], addresses: list[int], size: int) -> list[int]:
    """How many passes through shared memory each phase of a request takes. A phase moves 32 words
    of 4 bytes at most, so it is 16 lanes of 8 bytes or 8 lanes of 16; two different words of one
    bank take two passes."""
    lanes_at_once = min(LANES, 128 // size)
    phases: dict[int, set[int]] = {}
    for lane, at in zip(lanes, addresses, strict=True):
        words = phases.setdefault(lane // lanes_at_once, set())
        words.update(range(at // 4, (at + size - 1) // 4 + 1))
    return [max(Counter(word % 32 for word in words).values()) for words in phases.values()]


@dataclass
class Run:
    """What a launch did. `barriers`: of the block that passed most; `collectives`: exchanges of
    values in a warp."""

    counts: dict[Key, Count] = field(default_factory=dict)
    barriers: int = 0
    collectives: int = 0


# -- memory ---------------------------------------------------------------------------------------


class Memory:
    """Arrays in one address space, with gaps between them that nobody may touch."""

    def __init__(self, base: int, gap: int, fill: int) -> None:
        self.base, self.gap, self.fill = base, gap, fill
        self.arrays: list[tuple[int, int, str]] = []  # first address, one after the last, name
        self.end = base
        self.bytes = np.zeros(0, np.uint8)
        self.views: dict[int, Array] = {}

    def add(self, name: str, size: int, align: int = 256, at: int | None = None) -> int:
        place = -(-self.end // align) * align if at is None else at
        self.arrays.append((place, place + size, name))
        self.end = max(self.end, place + size + self.gap)
        return place

    def make(self) -> None:
        backend = -(-(self.end - self.base + 16) // 16) * 16
        self.bytes = np.full(backend, self.fill, np.uint8)
        self.views = {size: self.bytes.view(f"u{size}") for size in (1, 2, 4, 8)}

    def array_at(self, address: int, size: int) -> str:
        for first, end, name in self.arrays:
            if first <= address and address + size <= end:
                return name
        raise PtxError(f"{size} bytes at {address:#x} are of no array")

    def names(self, addresses: list[int], size: int) -> str:
        """The array of the first lane; raises PtxError unless all lie in one."""
        if any(address % size for address in addresses):
            raise PtxError(f"an address is no multiple of {size}")
        for address in (min(addresses), max(addresses)):
            self.array_at(address, size)
        first = self.array_at(addresses[0], size)
        if len(self.arrays) > 1:
            for address in addresses:
                self.array_at(address, size)
        return first

    def put(self, address: int, data: bytes) -> None:
        at = address - self.base
        self.bytes[at : at + len(data)] = np.frombuffer(data, np.uint8)

    def get(self, address: int, size: int) -> bytes:
        at = address - self.base
        return self.bytes[at : at + size].tobytes()


# -- a program ------------------------------------------------------------------------------------


@dataclass
class Instruction:
    """One line of PTX: its source line, its guard, and what it does to a warp's lanes."""

    line: int
    text: str
    op: list[str]
    operands: list[str]
    guard: str = ""
    negated: bool = False
    target: int = -1
    do: Callable[[Warp, int], None] | None = None
    members: Callable[[Warp], Array] | None = None


class Warp:
    """32 lanes of a block: registers, and which lanes are at which place in the program."""

    def __init__(self, block: Block, number: int, threads: int) -> None:
        self.block = block
        self.number = number
        self.here = EVERY if threads >= LANES else (1 << threads) - 1
        self.registers: dict[str, Array] = block.kernel.new_registers()
        self.places: dict[int, int] = {0: self.here}
        self.at_barrier: dict[int, int] = {}
        self.parked: dict[int, int] = {}  # at warp-level instructions, until the others come

    @property
    def alive(self) -> int:
        found = 0
        for mask in (
            *self.places.values(),
            *self.at_barrier.values(),
            *self.parked.values(),
        ):
            found |= mask
        return found


@dataclass
class Block:
    """What the warps of a block share."""

    kernel: Kernel
    run: Run
    shared: Memory
    memory: Memory
    parameters: dict[str, bytes]
    line: int = 0
    steps: int = 0

    def count(self, kind: str, space: str, mask: int, at: Array, size: int) -> tuple[Array, Memory]:
        """Note one request; gives the active lanes' places in its memory."""
        lanes = lanes_of(mask)
        addresses = at[lanes].tolist()
        if space == "generic":
            inside = [WINDOW <= address < WINDOW + (1 << 24) for address in addresses]
            if any(inside) != all(inside):
                raise PtxError("a request to shared and global memory at once")
            space = "shared" if inside[0] else "global"
            if inside[0]:
                addresses = [address - WINDOW for address in addresses]
        memory = self.shared if space == "shared" else self.memory
        key = self.line, kind, space, memory.names(addresses, size), size
        self.run.counts.setdefault(key, Count()).note(kind, space, lanes, addresses, size)
        return np.array(addresses, np.int64) - memory.base, memory


class Kernel:
    """One `.entry` of a PTX text, read once and launched often."""

    def __init__(self, ptx: str, name: str) -> None:
        self.name = name
        self.parameters: list[tuple[str, str]] = []  # name and type
        self.registers: dict[str, Any] = {}  # name to type
        self.shared: list[tuple[str, int, int]] = []  # name, bytes (-1: dynamic), alignment
        self.program: list[Instruction] = []
        self._read(ptx)
        used = " ".join(row.text for row in self.program)
        self.shared = [row for row in self.shared if re.search(rf"(?<!\w){row[0]}(?!\w)", used)]
        self.symbols = self._layout(0).symbols
        for row in self.program:
            row.do = compiled(self, row)
            if row.do is not None and "sync" in row.op:
                row.members = value_of(self, row.operands[-1], "u32")

    # reading

    def _read(self, ptx: str) -> None:
        found = re.search(rf"\.entry {re.escape(self.name)}\(", ptx)
        if not found:
            raise PtxError(f"the PTX has no kernel {self.name}")
        files = dict(re.findall(r'^\s*\.file\s+(\d+) "([^"]*)"', ptx, re.MULTILINE))
        own = next((n for n, path in files.items() if PurePath(path).suffix == ".cu"), "1")
        for line in ptx[: ptx.index(".entry")].splitlines():
            self._variable(line)
        head, _, rest = ptx[found.end() :].partition(")")
        for kind, name in re.findall(r"\.param \.(\w+) (\w+)", head):
            self.parameters.append((name, kind))
        if head.count(".param") != len(self.parameters):
            raise PtxError(f"a parameter that is no number: {head}")
        body = rest[rest.index("{") + 1 : rest.index("\n}")]
        self._body(body, own)

    def _variable(self, line: str) -> bool:
        found = re.match(
            r"\s*(?:\.\w+ )*\.shared \.align (\d+) \.(\w+) ([\w$]+)(?:\[(\d*)\])?;", line
        )
        if found:
            each = TYPES[found[2]].itemsize
            size = each if found[4] is None else -1 if found[4] == "" else int(found[4]) * each
            self.shared.append((found[3], size, int(found[1])))
        return bool(found)

    def _body(self, body: str, own: str) -> None:
        labels: dict[str, int] = {}
        line = 0
        for raw in body.splitlines():
            text = raw.partition("//")[0].strip()
            if not text or text in "{}" or self._variable(text):
                continue
            if found := re.match(r"\.reg \.(\w+)\s+(%\w+)<(\d+)>;", text):
                for number in range(int(found[3])):
                    self.registers[f"{found[2]}{number}"] = TYPES[found[1]]
            elif text.startswith(".loc"):
                line = _line(text, own)
            elif text.startswith(".pragma"):
                continue
            elif found := re.match(r"(\$\w+):$", text):
                labels[found[1]] = len(self.program)
            elif text.endswith(";") and not text.startswith("."):
                self.program.append(_instruction(text[:-1], line))
            else:
                raise PtxError(f"a line that is not known here: {text}")
        for row in self.program:
            if row.op[0] == "bra":
                row.target = labels[row.operands[0]]
        self.program = laid_out(self.program)

    def new_registers(self) -> dict[str, Array]:
        return {name: np.zeros(LANES, _plain(kind)) for name, kind in self.registers.items()}

    # running

    def _layout(self, dynamic_bytes: int) -> _Shared:
        memory = Memory(0, 0, 0xFF)
        symbols: dict[str, int] = {}
        for name, size, align in self.shared:
            if size >= 0:
                symbols[name] = memory.add(_short(name), size, align)
        start = -(-memory.end // 16) * 16
        for name, size, align in self.shared:
            if size < 0:
                symbols[name] = memory.add(_short(name), dynamic_bytes, align, start)
        return _Shared(memory, symbols)

    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: dict[str, Any],
        shared_bytes: int = 0,
    ) -> Run:
        """Launch with arguments in the order of the parameters, by the names that the counts give
        to the arrays; arrays are changed in place."""
        sizes = _three(grid), _three(block)
        memory = Memory(GLOBAL, GAP, 0)
        places = {
            name: memory.add(name, given.nbytes)
            for name, given in args.items()
            if isinstance(given, np.ndarray)
        }
        memory.make()
        for name, place in places.items():
            memory.put(place, args[name].tobytes())
        given = {
            parameter: _bytes(places.get(name, value), kind)
            for (parameter, kind), (name, value) in zip(self.parameters, args.items(), strict=True)
        }
        run = Run()
        with np.errstate(all="ignore"):
            for number in range(sizes[0][0] * sizes[0][1] * sizes[0][2]):
                shared = self._layout(shared_bytes).memory
                shared.make()
                self._block(Block(self, run, shared, memory, given), number, *sizes)
        for name, place in places.items():
            data = np.frombuffer(memory.get(place, args[name].nbytes), args[name].dtype)
            args[name][...] = data.reshape(args[name].shape)
        return run

    def _block(
        self, block: Block, number: int, grid: tuple[int, ...], size: tuple[int, ...]
    ) -> None:
        threads = size[0] * size[1] * size[2]
        warps = [Warp(block, w, threads - LANES * w) for w in range(-(-threads // LANES))]
        for warp in warps:
            _place(warp, number, grid, size)
        barriers = 0
        while True:
            for warp in warps:
                self._run(block, warp)
            waiting = [warp for warp in warps if warp.at_barrier]
            if not waiting:
                break
            if any(warp.places for warp in warps):
                raise PtxError("lanes wait for others that are at a barrier")
            if len({place for warp in waiting for place in warp.at_barrier}) > 1:
                raise PtxError("threads of a block wait at two barriers")
            if len(waiting) < len([warp for warp in warps if warp.alive]):
                raise PtxError("a warp does not come to the barrier")
            for warp in waiting:
                warp.places, warp.at_barrier = warp.at_barrier, {}
            barriers += 1
        block.run.barriers = max(block.run.barriers, barriers)

    def _run(self, block: Block, warp: Warp) -> None:
        """Run a warp until each of its lanes waits at a barrier or has ended."""
        tried: dict[int, int] = {}
        while True:
            while warp.places:
                self._advance(block, warp, min(warp.places))
            if not warp.parked:
                return
            if warp.parked == tried:
                raise PtxError("lanes wait at a warp-level instruction for lanes that never come")
            tried = dict(warp.parked)
            warp.places, warp.parked = warp.parked, {}

    def _advance(self, block: Block, warp: Warp, at: int) -> None:
        """Run the lanes at a place until they branch, wait or end; those that they meet join."""
        mask = 0
        while mask := mask | warp.places.pop(at, 0) | warp.parked.pop(at, 0):
            block.steps += 1
            if block.steps > MAX_STEPS:
                raise PtxError("a block does not end")
            row = self.program[at]
            block.line = row.line
            running = mask
            if row.guard:
                bits = mask_of(warp.registers[row.guard])
                running = mask & (~bits if row.negated else bits)
            if row.op[0] == "bra":
                _join(warp.places, row.target, running)
                _join(warp.places, at + 1, mask & ~running)
                return
            if row.op[0] in ("ret", "exit"):
                mask &= ~running
            elif row.do is None:
                if running != mask:
                    raise PtxError(f"a guarded barrier: {row.text}")
                _join(warp.at_barrier, at + 1, mask)
                return
            elif running:
                if row.members is not None and _missing(warp, row, running, mask):
                    warp.parked[at] = mask
                    return
                row.do(warp, running)
            at += 1


@dataclass
class _Shared:
    memory: Memory
    symbols: dict[str, int]


def _join(places: dict[int, int], at: int, mask: int) -> None:
    if mask:
        places[at] = places.get(at, 0) | mask


def _missing(warp: Warp, row: Instruction, running: int, here: int) -> int:
    """The lanes that a warp-level instruction still waits for."""
    assert row.members is not None
    masks = {int(mask) for mask in row.members(warp)[lanes_of(running)]}
    if len(masks) > 1 or running & ~max(masks):
        raise PtxError(f"lanes disagree on the mask of {row.text}")
    return masks.pop() & ~running & (warp.alive | here)


def laid_out(program: list[Instruction]) -> list[Instruction]:
    """The program with its basic blocks in an order of `_arranged`: what a compiler moved to the
    end of a kernel stands before the place where its lanes meet the others. A loop ends with a jump
    to its head, by which all lanes go that take another turn."""
    starts = {0, *(row.target for row in program if row.op[0] == "bra")}
    starts |= {at + 1 for at, row in enumerate(program) if row.op[0] in ("bra", "ret", "exit")}
    bounds = sorted(start for start in starts if start < len(program))
    ends = dict(zip(bounds, [*bounds[1:], len(program)], strict=True))
    leads: dict[int, list[int]] = {}
    for start, end in ends.items():
        last = program[end - 1]
        goes_on = end < len(program) and (last.guard or last.op[0] not in ("bra", "ret", "exit"))
        leads[start] = [last.target] * (last.op[0] == "bra") + [end] * bool(goes_on)
    again: dict[tuple[int, int], int] = {}
    order = _arranged(set(bounds), leads, None, again)
    made: list[Instruction] = []
    places: dict[int, int] = {}  # of a block; of a loop's last jump under -1 - its head
    for item, following in zip(order, [*order[1:], None], strict=True):
        places[item] = len(made)
        if item < 0:
            made.append(Instruction(0, "bra", ["bra"], [], target=-1 - item))
            continue
        rows = [replace(row) for row in program[item : ends[item]]]
        jumps = rows[-1:] if rows[-1].op[0] == "bra" else []
        goes_on = leads[item][len(jumps) :]
        if goes_on and again.get((item, goes_on[0]), goes_on[0]) != following:
            jumps = [*jumps, Instruction(0, "bra", ["bra"], [], target=goes_on[0])]
            rows.append(jumps[-1])
        for row in jumps:
            row.target = again.get((item, row.target), row.target)
        made += rows
    for row in made:
        if row.op[0] == "bra":
            row.target = places[row.target]
    return made


def _arranged(
    blocks: set[int],
    leads: dict[int, list[int]],
    head: int | None,
    again: dict[tuple[int, int], int],
) -> list[int]:
    """Blocks in an order in which each follows all that lead to it, but for ways back to a loop's
    head; a loop's blocks lie together and end with -1 - its head. `again`: the ways back."""

    def reached(start: int) -> set[int]:
        found: set[int] = set()
        ahead = [start]
        while ahead:
            new = {to for to in leads[ahead.pop()] if to in blocks and to != head} - found
            found |= new
            ahead += new
        return found

    ways = {block: reached(block) for block in blocks}
    loops = {
        block: frozenset(other for other in ways[block] if block in ways[other]) | {block}
        for block in blocks
    }
    order: list[int] = []
    left = set(blocks)
    while left:
        # Of the loops and blocks that nothing else leads to, the first in the text.
        free = [b for b in left if all(b not in ways[o] for o in left - loops[b])]
        loop = loops[min(free)]
        left -= loop
        if len(loop) == 1 and not loop & ways[min(loop)]:
            order += loop
            continue
        entries = {to for block in leads if block not in loop for to in leads[block] if to in loop}
        first = min(entries or loop)
        again.update({(b, first): -1 - first for b in loop if first in leads[b]})
        order += [*_arranged(set(loop), leads, first, again), -1 - first]
    return order


def _bytes(value: Any, kind: str) -> bytes:
    if kind.startswith("f"):
        return np.array(value, TYPES[kind]).tobytes()
    size = TYPES[kind].itemsize
    return (int(value) % (1 << 8 * size)).to_bytes(size, "little")


def _three(given: int | Sequence[int]) -> tuple[int, int, int]:
    numbers = (given,) if isinstance(given, int) else tuple(given)
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def _place(warp: Warp, block: int, grid: tuple[int, ...], size: tuple[int, ...]) -> None:
    """The special registers of a warp's lanes."""
    lane = np.arange(LANES, dtype=np.uint32)
    thread = lane + LANES * warp.number
    values: dict[str, Any] = {"%laneid": lane, "%warpid": warp.number}
    for axis, name in enumerate("xyz"):
        values[f"%ntid.{name}"], values[f"%nctaid.{name}"] = size[axis], grid[axis]
    values["%tid.x"], values["%ctaid.x"] = thread % size[0], block % grid[0]
    values["%tid.y"] = thread // size[0] % size[1]
    values["%ctaid.y"] = block // grid[0] % grid[1]
    values["%tid.z"] = thread // (size[0] * size[1])
    values["%ctaid.z"] = block // (grid[0] * grid[1])
    values["%lanemask_eq"] = np.left_shift(np.uint32(1), lane)
    values["%lanemask_lt"] = values["%lanemask_eq"] - np.uint32(1)
    values["%lanemask_le"] = values["%lanemask_eq"] | values["%lanemask_lt"]
    for name in SPECIAL:
        warp.registers[name] = np.broadcast_to(np.asarray(values[name], np.uint32), LANES)


@lru_cache(maxsize=4096)
def lanes_of(mask: int) -> list[int]:
    return [lane for lane in range(LANES) if mask >> lane & 1]


@lru_cache(maxsize=4096)
def chosen(mask: int) -> Array:
    return np.array([mask >> lane & 1 for lane in range(LANES)], bool)


def mask_of(predicate: Array) -> int:
    return int(np.packbits(predicate, bitorder="little").view("<u4")[0])


def _plain(kind: Any) -> Any:
    return kind if kind == np.dtype("?") else np.dtype(f"u{kind.itemsize}")


def _short(name: str) -> str:
    """`tile` of `_ZZ15transpose_tiledE4tile`."""
    for found in re.finditer(r"(?<=E)(\d+)", name):
        rest = name[found.end() :]
        if name.startswith("_ZZ") and len(rest) == int(found[1]):
            return rest
    return name


def _line(text: str, own: str) -> int:
    """The line of the file itself: of what was put in from another file, where it was put."""
    places = re.findall(r"(?:\.loc|inlined_at)\s+(\d+) (\d+)", text)
    return next((int(line) for file, line in places if file == own), 0)


def _instruction(text: str, line: int) -> Instruction:
    found = re.match(r"(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)\s*(.*)$", text, re.DOTALL)
    if not found:
        raise PtxError(f"an instruction that is not known here: {text}")
    operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^\s,{}\[\]]+", found[4])
    return Instruction(line, text, found[3].split("."), operands, found[2] or "", found[1] == "!")


# -- operands -------------------------------------------------------------------------------------

Value = Callable[[Warp], Array]
Sink = Callable[[Warp, int, Array], None]


def value_of(kernel: Kernel, operand: str, kind: str) -> Value:
    """How an operand is read as that type: of a wider register the lower bits count."""
    dtype = TYPES[kind]
    if operand in kernel.registers or operand in SPECIAL:
        wide = kernel.registers.get(operand, np.dtype("u4"))
        if wide.itemsize == dtype.itemsize:
            return lambda warp: warp.registers[operand].view(dtype)
        if wide.itemsize < dtype.itemsize or dtype.kind == "f":
            raise PtxError(f"{operand} is too narrow for {kind}")
        narrow = np.dtype(f"u{dtype.itemsize}")
        return lambda warp: warp.registers[operand].astype(narrow).view(dtype)
    constant = np.full(LANES, _constant(kernel, operand, dtype), _plain(dtype)).view(dtype)
    return lambda warp: constant


def _constant(kernel: Kernel, operand: str, dtype: Any) -> int:
    if operand in kernel.symbols:
        return kernel.symbols[operand]
    if found := re.fullmatch(r"0[fFdD]([0-9A-Fa-f]{8,16})", operand):
        return int(found[1], 16)
    if operand == "WARP_SZ":
        return LANES
    if not re.fullmatch(r"-?\d+U?|-?0[xX][0-9A-Fa-f]+U?", operand):
        raise PtxError(f"an operand that is not known here: {operand}")
    return int(operand.rstrip("U"), 0) % (1 << 8 * dtype.itemsize)


def sink_of(kernel: Kernel, operand: str, kind: str) -> Sink:
    """How a value of that type is written: to a wider register it is extended by its sign."""
    if operand == "_":
        return lambda warp, mask, value: None
    if operand not in kernel.registers:
        raise PtxError(f"{operand} is no register")
    wide = _plain(kernel.registers[operand])
    if wide == np.dtype("?") or wide.itemsize == TYPES[kind].itemsize:
        dtype = TYPES[kind]
        return lambda warp, mask, value: np.copyto(
            warp.registers[operand].view(dtype), value, where=chosen(mask)
        )
    longer = np.dtype(f"{TYPES[kind].kind}{wide.itemsize}")
    if TYPES[kind].kind not in "iu" or longer.itemsize < TYPES[kind].itemsize:
        raise PtxError(f"{operand} cannot hold {kind}")
    return lambda warp, mask, value: np.copyto(
        warp.registers[operand], value.astype(longer).view(wide), where=chosen(mask)
    )


def place_of(kernel: Kernel, operand: str, space: str) -> Value:
    """Addresses of `[%rd1+8]`, `[%r1]`, `[tile+4]`."""
    found = re.fullmatch(r"\[\s*([%\w$]+)\s*(?:\+\s*(-?\d+))?\s*\]", operand)
    if not found:
        raise PtxError(f"an address that is not known here: {operand}")
    offset = int(found[2] or 0)
    narrow = kernel.registers.get(found[1], np.dtype("u4")).itemsize == 4
    if narrow and space == "global":
        raise PtxError(f"a global address of 32 bits: {operand}")
    read = value_of(kernel, found[1], "u32" if narrow else "u64")
    return lambda warp: read(warp).astype(np.int64) + offset


# -- instructions ---------------------------------------------------------------------------------


def compiled(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None] | None:
    """What an instruction does; None for those that only steer."""
    name = row.op[0]
    if name in ("bra", "ret", "exit") or (name in ("bar", "barrier") and "warp" not in row.op):
        return None
    if "ftz" in row.op or "sat" in row.op or "approx" in row.op or "full" in row.op:
        raise PtxError(f"a modifier that is not known here: {row.text}")
    if name in ("membar", "fence") or (name == "bar" and "warp" in row.op):
        return lambda warp, mask: None
    make = _MAKERS.get(name)
    if make is None:
        if name not in _PLAIN:
            raise PtxError(f"an instruction that is not known here: {row.text}")
        make = _plain_operation
    return make(kernel, row)


def _kind(row: Instruction) -> str:
    if row.op[-1] not in TYPES:
        raise PtxError(f"a type that is not known here: {row.text}")
    return row.op[-1]


def _plain_operation(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    kind = _kind(row)
    operation = _PLAIN[row.op[0]]
    sink = sink_of(kernel, row.operands[0], kind)
    values = [value_of(kernel, operand, kind) for operand in row.operands[1:]]
    if len(values) == 1:
        (one,) = values
        return lambda warp, mask: sink(warp, mask, operation(one(warp)))
    first, second = values
    return lambda warp, mask: sink(warp, mask, operation(first(warp), second(warp)))


def _minimum(a: Array, b: Array) -> Array:
    return np.fmin(a, b) if a.dtype.kind == "f" else np.minimum(a, b)


def _maximum(a: Array, b: Array) -> Array:
    return np.fmax(a, b) if a.dtype.kind == "f" else np.maximum(a, b)


def _not(a: Array) -> Array:
    return np.logical_not(a) if a.dtype == bool else np.invert(a)


def _magnitude(a: Array) -> Array:
    plain = a.view(_plain(a.dtype))
    return np.where(a < 0, (0 - plain).astype(plain.dtype), plain) if a.dtype.kind == "i" else plain


def _divide(a: Array, b: Array) -> Array:
    """Towards zero, as C does; division of integers by zero gives all ones."""
    if a.dtype.kind == "f":
        return a / b
    above, below = _magnitude(a), _magnitude(b)
    found = above // np.where(below == 0, below.dtype.type(1), below)
    negative = (a < 0) != (b < 0)
    found = np.where(negative, 0 - found, found).astype(below.dtype)
    return np.where(below == 0, ~np.zeros_like(found), found).view(a.dtype)


def _remainder(a: Array, b: Array) -> Array:
    return a - _divide(a, b) * b


_PLAIN: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "min": _minimum,
    "max": _maximum,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": _not,
    "neg": np.negative,
    "abs": np.abs,
    "div": _divide,
    "rem": _remainder,
    "sqrt": np.sqrt,
    "rcp": np.reciprocal,
}


def _twice(kind: str) -> str:
    return f"{kind[0]}{2 * int(kind[1:])}"


def _products(row: Instruction, kind: str) -> tuple[str, Callable[[Array, Array], Array]]:
    """The type that a product has, and how it is made."""
    if kind.startswith("f"):
        return kind, np.multiply
    if "wide" in row.op:
        dtype = TYPES[_twice(kind)]
        return _twice(kind), lambda a, b: a.astype(dtype) * b.astype(dtype)
    if "lo" in row.op:
        return kind, np.multiply
    if "hi" in row.op:
        bits, dtype = 8 * TYPES[kind].itemsize, TYPES[kind]
        return kind, lambda a, b: np.array(
            [(x * y >> bits) % (1 << bits) for x, y in zip(a.tolist(), b.tolist(), strict=True)],
            _plain(dtype),
        ).view(dtype)
    raise PtxError(f"a product that is not known here: {row.text}")


def _multiply(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    """mul and mad."""
    kind = _kind(row)
    result, product = _products(row, kind)
    a, b = (value_of(kernel, operand, kind) for operand in row.operands[1:3])
    sink = sink_of(kernel, row.operands[0], result)
    if row.op[0] == "mul":
        return lambda warp, mask: sink(warp, mask, product(a(warp), b(warp)))
    c = value_of(kernel, row.operands[3], result)
    return lambda warp, mask: sink(warp, mask, product(a(warp), b(warp)) + c(warp))


def fused(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded once."""
    if a.dtype == np.float64:
        return np.array(
            [_fused(*row) for row in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
        )
    # The product is exact in 53 bits; a sum that is not is made odd, so that it rounds once.
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + addend
    other = total - product
    lost = (product - (total - other)) + (addend - other)
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    inexact = np.isfinite(total) & (lost != 0) & even
    towards = np.where(lost > 0, inf, -inf)
    return np.where(inexact, np.nextafter(total, towards), total).astype(np.float32)


def _fused(a: float, b: float, c: float) -> float:
    if all(np.isfinite([a, b, c])) and (a and b) and c:
        return float(Fraction(a) * Fraction(b) + Fraction(c))
    return a * b + c


def _fma(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    kind = _kind(row)
    if "rn" not in row.op:
        raise PtxError(f"a rounding that is not known here: {row.text}")
    sink = sink_of(kernel, row.operands[0], kind)
    a, b, c = (value_of(kernel, operand, kind) for operand in row.operands[1:])
    return lambda warp, mask: sink(warp, mask, fused(a(warp), b(warp), c(warp)))


def _shift(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    """shl and shr: by the width of the type and more, nothing or the sign is left."""
    kind = _kind(row)
    bits = 8 * TYPES[kind].itemsize
    sink = sink_of(kernel, row.operands[0], kind)
    a, by = value_of(kernel, row.operands[1], kind), value_of(kernel, row.operands[2], "u32")
    left = row.op[0] == "shl"

    def do(warp: Warp, mask: int) -> None:
        value, count = a(warp), by(warp)
        inside = np.minimum(count, bits - 1).astype(value.dtype)
        moved = np.left_shift(value, inside) if left else np.right_shift(value, inside)
        if value.dtype.kind == "u":
            moved = np.where(count >= bits, value.dtype.type(0), moved)
        sink(warp, mask, moved)

    return do


def _bit_field(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    """bfe: `length` bits from `start` on, extended by their sign for a signed type."""
    kind = _kind(row)
    bits, dtype = 8 * TYPES[kind].itemsize, TYPES[kind]
    sink = sink_of(kernel, row.operands[0], kind)
    a = value_of(kernel, row.operands[1], kind.replace("s", "u"))
    start, length = (value_of(kernel, operand, "u32") for operand in row.operands[2:])

    def one(value: int, first: int, many: int) -> int:
        first, many = first & 255, many & 255
        found = value >> first & ((1 << many) - 1)
        sign = value >> min(first + many - 1, bits - 1) & 1 if many else 0
        if dtype.kind == "i" and sign:
            found |= -1 << min(many, bits - first if first < bits else 0)
        return found % (1 << bits)

    def do(warp: Warp, mask: int) -> None:
        rows = zip(a(warp).tolist(), start(warp).tolist(), length(warp).tolist(), strict=True)
        sink(warp, mask, np.array([one(*given) for given in rows], _plain(dtype)).view(dtype))

    return do


def _insert(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    """bfi: the lowest `length` bits of a take the place of b's from `start` on."""
    kind = _kind(row)
    bits = 8 * TYPES[kind].itemsize
    sink = sink_of(kernel, row.operands[0], kind)
    a, b = (value_of(kernel, operand, kind) for operand in row.operands[1:3])
    start, length = (value_of(kernel, operand, "u32") for operand in row.operands[3:])

    def one(value: int, into: int, first: int, many: int) -> int:
        first, many = first & 255, many & 255
        field = ((1 << many) - 1) << first
        return ((into & ~field) | (value << first & field)) % (1 << bits)

    def do(warp: Warp, mask: int) -> None:
        given = (read(warp).tolist() for read in (a, b, start, length))
        found = [one(*parts) for parts in zip(*given, strict=True)]
        sink(warp, mask, np.array(found, TYPES[kind]))

    return do


def _bits(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    """popc, clz and brev."""
    kind = _kind(row)
    bits = 8 * TYPES[kind].itemsize
    result = kind if row.op[0] == "brev" else "u32"
    sink = sink_of(kernel, row.operands[0], result)
    a = value_of(kernel, row.operands[1], kind)
    one: Callable[[int], int] = {
        "popc": lambda value: value.bit_count(),
        "clz": lambda value: bits - value.bit_length(),
        "brev": lambda value: int(f"{value:0{bits}b}"[::-1], 2),
    }[row.op[0]]
    return lambda warp, mask: sink(
        warp, mask, np.array([one(value) for value in a(warp).tolist()], TYPES[result])
    )


def _move(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    kind = _kind(row)
    if any(operand.startswith("{") for operand in row.operands):
        raise PtxError(f"a move of parts: {row.text}")
    sink = sink_of(kernel, row.operands[0], kind)
    a = value_of(kernel, row.operands[1], kind)
    return lambda warp, mask: sink(warp, mask, a(warp))


def _address_space(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    """cvta: global addresses are generic ones as they are, shared ones lie in a window."""
    kind = _kind(row)
    space = "shared" if "shared" in row.op else "global"
    if space not in row.op:
        raise PtxError(f"an address space that is not known here: {row.text}")
    move = 0 if space == "global" else -WINDOW if "to" in row.op else WINDOW
    sink, a = sink_of(kernel, row.operands[0], "s64"), value_of(kernel, row.operands[1], kind)
    return lambda warp, mask: sink(warp, mask, a(warp).astype(np.int64) + move)


def _convert(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    to, given = row.op[-2], row.op[-1]
    if to not in TYPES or given not in TYPES:
        raise PtxError(f"a conversion that is not known here: {row.text}")
    dtype, source = TYPES[to], TYPES[given]
    sink, a = sink_of(kernel, row.operands[0], to), value_of(kernel, row.operands[1], given)
    rounds: dict[str, Callable[[Array], Array]] = {
        "rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil
    }  # fmt: skip
    how = next((rounds[word] for word in row.op if word in rounds), None)

    def do(warp: Warp, mask: int) -> None:
        value = a(warp)
        if how is not None:
            value = how(value.astype(np.float64))
        if source.kind == "f" and dtype.kind in "iu":
            value = _whole(value, dtype)
        sink(warp, mask, value.astype(dtype))

    if source.kind == "f" and dtype.kind in "iu" and how is None:
        raise PtxError(f"a rounding that is not known here: {row.text}")
    if any(word in ("rz", "rm", "rp") for word in row.op):
        raise PtxError(f"a rounding that is not known here: {row.text}")
    return do


def _whole(value: Array, dtype: Any) -> Array:
    """Whole numbers as an integer type holds them: too large ones at its end, NaN as zero."""
    limits = np.iinfo(dtype)
    inside = [
        0 if one != one else int(max(min(one, float(2**64)), -float(2**64)))
        for one in value.tolist()
    ]
    return np.array([max(limits.min, min(limits.max, one)) for one in inside], dtype)


_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}


def _compare(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    """setp: with `u` a NaN makes it true, without one false; a second word joins a predicate."""
    kind, word = _kind(row), row.op[1]
    is_float = kind.startswith("f")
    if is_float and word in ("nan", "num"):
        return _nan(kernel, row, kind)
    unordered = is_float and word not in _COMPARE and word.endswith("u")
    plain = word[:-1] if unordered else word
    if plain not in _COMPARE or "|" in row.operands[0]:
        raise PtxError(f"a comparison that is not known here: {row.text}")
    compare = _COMPARE[plain]
    sink = sink_of(kernel, row.operands[0], "pred")
    a, b = (value_of(kernel, operand, kind) for operand in row.operands[1:3])
    joins = [_PLAIN[name] for name in row.op[2:-1] if name in ("and", "or", "xor")]
    with_ = value_of(kernel, row.operands[3], "pred") if joins else None

    def do(warp: Warp, mask: int) -> None:
        x, y = a(warp), b(warp)
        found = compare(x, y)
        if is_float:
            nan = np.isnan(x) | np.isnan(y)
            found = found | nan if unordered else found & ~nan
        if with_ is not None:
            found = joins[0](found, with_(warp))
        sink(warp, mask, found)

    return do


def _nan(kernel: Kernel, row: Instruction, kind: str) -> Callable[[Warp, int], None]:
    """Whether one of both is a NaN, or neither."""
    if len(row.operands) != 3:
        raise PtxError(f"a comparison that is not known here: {row.text}")
    sink = sink_of(kernel, row.operands[0], "pred")
    a, b = (value_of(kernel, operand, kind) for operand in row.operands[1:])
    wanted = row.op[1] == "nan"
    return lambda warp, mask: sink(warp, mask, (np.isnan(a(warp)) | np.isnan(b(warp))) == wanted)


def _select(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    kind = _kind(row)
    sink = sink_of(kernel, row.operands[0], kind)
    a, b = (value_of(kernel, operand, kind) for operand in row.operands[1:3])
    which = value_of(kernel, row.operands[3], "pred")
    return lambda warp, mask: sink(warp, mask, np.where(which(warp), a(warp), b(warp)))


# memory


def _space(row: Instruction) -> str:
    for word in row.op[1:]:
        if word.startswith("shared"):
            return "shared"
        if word in ("global", "param"):
            return word
        if word in ("local", "const"):
            raise PtxError(f"a memory that is not known here: {row.text}")
    return "generic"


def _parts(row: Instruction, operand: str) -> list[str]:
    """The registers of `%f1` or of `{%f1, %f2}`."""
    many = next((int(word[1:]) for word in row.op if word in ("v2", "v4", "v8")), 1)
    found = [part.strip() for part in operand.strip("{}").split(",")]
    if len(found) != many:
        raise PtxError(f"{row.text} moves {many} parts into {len(found)}")
    return found


def _load(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    kind, space = _kind(row), _space(row)
    dtype = TYPES[kind]
    sinks = [sink_of(kernel, part, kind) for part in _parts(row, row.operands[0])]
    if space == "param":
        return _parameter(kernel, row, kind, sinks)
    size = dtype.itemsize * len(sinks)
    address = place_of(kernel, row.operands[1], space)

    def do(warp: Warp, mask: int) -> None:
        at, memory = warp.block.count("read", space, mask, address(warp), size)
        where, lanes = at // dtype.itemsize, lanes_of(mask)
        for part, sink in enumerate(sinks):
            found = np.zeros(LANES, _plain(dtype))
            found[lanes] = memory.views[dtype.itemsize][where + part]
            sink(warp, mask, found.view(dtype))

    return do


def _parameter(
    kernel: Kernel, row: Instruction, kind: str, sinks: list[Sink]
) -> Callable[[Warp, int], None]:
    found = re.fullmatch(r"\[\s*(\w+)\s*(?:\+\s*(\d+))?\s*\]", row.operands[1])
    if not found or found[1] not in dict(kernel.parameters):
        raise PtxError(f"a parameter that is not known here: {row.text}")
    name, start = found[1], int(found[2] or 0)
    dtype = TYPES[kind]

    def do(warp: Warp, mask: int) -> None:
        data = warp.block.parameters[name]
        for part, sink in enumerate(sinks):
            at = start + part * dtype.itemsize
            value = np.frombuffer(data[at : at + dtype.itemsize], dtype)
            sink(warp, mask, np.broadcast_to(value, LANES))

    return do


def _store(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    kind, space = _kind(row), _space(row)
    dtype = TYPES[kind]
    address = place_of(kernel, row.operands[0], space)
    values = [value_of(kernel, part, kind) for part in _parts(row, row.operands[1])]
    size = dtype.itemsize * len(values)

    def do(warp: Warp, mask: int) -> None:
        at, memory = warp.block.count("write", space, mask, address(warp), size)
        where, lanes = at // dtype.itemsize, lanes_of(mask)
        for part, value in enumerate(values):
            memory.views[dtype.itemsize][where + part] = value(warp).view(_plain(dtype))[lanes]

    return do


_ATOMIC: dict[str, Callable[..., Any]] = {
    "add": lambda old, a: old + a,
    "min": lambda old, a: min(old, a),
    "max": lambda old, a: max(old, a),
    "and": lambda old, a: old & a,
    "or": lambda old, a: old | a,
    "xor": lambda old, a: old ^ a,
    "exch": lambda old, a: a,
    "inc": lambda old, a: type(old)(0) if old >= a else type(old)(old + 1),
    "dec": lambda old, a: a if old == 0 or old > a else type(old)(old - 1),
    "cas": lambda old, a, b: b if old == a else old,
}


def _atomic(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    """atom, and red, which gives nothing back: lane after lane."""
    kind, space = _kind(row), _space(row)
    name = next((word for word in row.op[1:-1] if word in _ATOMIC), None)
    if name is None or "v2" in row.op or "v4" in row.op:
        raise PtxError(f"an atomic that is not known here: {row.text}")
    change, dtype = _ATOMIC[name], TYPES[kind]
    operands = row.operands if row.op[0] == "red" else row.operands[1:]
    sink = None if row.op[0] == "red" else sink_of(kernel, row.operands[0], kind)
    address = place_of(kernel, operands[0], space)
    values = [value_of(kernel, operand, kind) for operand in operands[1:]]

    def do(warp: Warp, mask: int) -> None:
        at, memory = warp.block.count("atomic", space, mask, address(warp), dtype.itemsize)
        given = [value(warp) for value in values]
        view = memory.views[dtype.itemsize].view(dtype)
        before = np.zeros(LANES, dtype)
        for lane, where in zip(lanes_of(mask), (at // dtype.itemsize).tolist(), strict=True):
            before[lane] = view[where]
            view[where] = change(view[where], *(value[lane] for value in given))
        if sink is not None:
            sink(warp, mask, before)

    return do


# warp-level


def _shuffle(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    """shfl.sync: c holds the last lane of a segment in its lower five bits, and which bits of a
    lane's number name its segment in bits 8 to 12. Outside of it a lane keeps its own value."""
    how = row.op[2]
    to, _, flag = row.operands[0].partition("|")
    sink = sink_of(kernel, to, "b32")
    found = sink_of(kernel, flag, "pred") if flag else None
    a, b, c = (value_of(kernel, operand, "u32") for operand in row.operands[1:4])

    def source(lane: int, by: int, control: int) -> tuple[int, bool]:
        by, last, segment = by & 31, control & 31, control >> 8 & 31
        end = (lane & segment) | (last & ~segment)
        start = lane & segment
        if how == "up":
            return lane - by, lane - by >= end
        if how == "down":
            return lane + by, lane + by <= end
        if how == "bfly":
            return lane ^ by, lane ^ by <= end
        if how == "idx":
            return start | (by & ~segment), start | (by & ~segment) <= end
        raise PtxError(f"a shuffle that is not known here: {row.text}")

    def do(warp: Warp, mask: int) -> None:
        warp.block.run.collectives += 1
        value, by, control = a(warp), b(warp).tolist(), c(warp).tolist()
        out, inside = value.copy(), np.zeros(LANES, bool)
        for lane in lanes_of(mask):
            of, ok = source(lane, by[lane], control[lane])
            if ok and not mask >> of & 1:
                raise PtxError(f"lane {lane} asks for lane {of}, which is not there: {row.text}")
            out[lane], inside[lane] = value[of if ok else lane], ok
        sink(warp, mask, out)
        if found is not None:
            found(warp, mask, inside)

    return do


def _vote(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    how = row.op[2]
    if how not in ("any", "all", "ballot"):
        raise PtxError(f"a vote that is not known here: {row.text}")
    sink = sink_of(kernel, row.operands[0], "b32" if how == "ballot" else "pred")
    negated = row.operands[1].startswith("!")
    read = value_of(kernel, row.operands[1].lstrip("!"), "pred")

    def do(warp: Warp, mask: int) -> None:
        warp.block.run.collectives += 1
        given = read(warp)
        bits = mask_of(~given if negated else given) & mask
        if how == "ballot":
            sink(warp, mask, np.full(LANES, bits, np.uint32))
        else:
            sink(warp, mask, np.full(LANES, bits == mask if how == "all" else bits != 0))

    return do


def _reduce(kernel: Kernel, row: Instruction) -> Callable[[Warp, int], None]:
    """redux.sync"""
    kind = _kind(row)
    operations: dict[str, Callable[..., Any]] = {
        "add": np.add, "min": np.minimum, "max": np.maximum,
        "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    }  # fmt: skip
    operation: Any = operations[row.op[2]]
    sink = sink_of(kernel, row.operands[0], kind)
    read = value_of(kernel, row.operands[1], kind)

    def do(warp: Warp, mask: int) -> None:
        warp.block.run.collectives += 1
        found = operation.reduce(read(warp)[lanes_of(mask)], dtype=TYPES[kind])
        sink(warp, mask, np.full(LANES, found, TYPES[kind]))

    return do


_MAKERS: dict[str, Callable[[Kernel, Instruction], Callable[[Warp, int], None]]] = {
    "ld": _load,
    "st": _store,
    "atom": _atomic,
    "red": _atomic,
    "mov": _move,
    "cvta": _address_space,
    "cvt": _convert,
    "mul": _multiply,
    "mad": _multiply,
    "fma": _fma,
    "shl": _shift,
    "shr": _shift,
    "bfe": _bit_field,
    "bfi": _insert,
    "popc": _bits,
    "clz": _bits,
    "brev": _bits,
    "setp": _compare,
    "selp": _select,
    "shfl": _shuffle,
    "vote": _vote,
    "redux": _reduce,
}
