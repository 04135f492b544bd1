"""What a Triton launch does to memory: whose elements, how many, in which order. No Triton here.

The programs of a launch run one after another; `Launch.access` is told of every load, store and
atomic before it happens, and raises `Stop` for one that must not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grader.boundary.errors import MeasurementDisturbed
from grader.kernels.report import Access, Report, Size, Visit, place
from grader.meters.evidence import SignedLog

Array = np.ndarray[Any, Any]
Index = slice | Array  # which of a row of elements: contiguous ones, or one by one

SECTOR = 32
MAX_VISITS = 20_000
MAX_OFFSETS = 4096
MAX_KEPT = 8  # unordered programs that are remembered of each piece of memory, a role
MAX_ASIDE = 1 << 23  # pieces of memory whose readers are noted only if somebody writes
_SITES = 4096  # a mark in a shadow is event * _SITES + site

DOES = {"read": "reads", "write": "writes", "atomic": "changes"}
DID = {"read": "read", "write": "wrote", "atomic": "changed by an atomic"}


class Stop(BaseException):
    """A launch ends here, with its sentence. No `except Exception` of a learner's takes it."""


class Memory:
    """The storage that one or several arguments lie in, and who touched its pieces last.

    A shadow holds a mark for each piece, 0 for nobody. Kept are some readers, and some atomics, of
    programs that nothing orders, and the last of those who write. Who only reads is put aside until
    somebody writes.
    """

    def __init__(self, first: int, size: int) -> None:
        self.first = first
        self.size = size
        self.piece = 0  # bytes
        self.shadows: dict[str, Array] = {}
        self.aside: list[tuple[int, Index]] | None = []
        self.aside_pieces = 0

    def fit(self, first: int, size: int) -> None:
        """Make the pieces small enough for these elements to be whole ones."""
        self.piece = math.gcd(self.piece, size, first - self.first) or 1

    def shadow(self, role: str) -> Array:
        found = self.shadows.get(role)
        if found is None:
            found = self.shadows[role] = np.zeros(-(-self.size // self.piece), np.int64)
        return found

    def refine(self, size: int, program_of: Array) -> None:
        """Smaller pieces, for an access through a pointer to a smaller type."""
        self.settle(program_of)
        many = self.piece // math.gcd(self.piece, size)
        self.piece //= many
        pieces = -(-self.size // self.piece)
        self.shadows = {r: np.repeat(a, many)[:pieces] for r, a in self.shadows.items()}

    def readers(self, mark: int, index: Index, program_of: Array, ordered: Array) -> None:
        if self.aside is None:
            self.leave("read", mark, index, program_of, ordered)
            return
        self.aside.append((mark, index))
        self.aside_pieces += (
            index.stop - index.start if isinstance(index, slice) else int(index.size)
        )
        if self.aside_pieces > MAX_ASIDE:
            self.settle(program_of)

    def settle(self, program_of: Array) -> None:
        """Note the readers that were put aside: from now on it matters who they were."""
        aside, self.aside = self.aside, None
        for mark, index in aside or ():
            self.leave("read", mark, index, program_of)

    def leave(
        self, role: str, mark: int, index: Index, program_of: Array, ordered: Array | None = None
    ) -> None:
        """Put the mark in the place of one of this program's, or of one that is `ordered` before
        it: who races with that one races with this one, too. `program_of`: of each event."""
        me = program_of[mark // _SITES]
        left: Array | None = None
        for number in range(MAX_KEPT):
            shadow = self.shadow(f"{role} {number}")
            there = shadow[index]
            if left is None and not there.any():
                shadow[index] = mark
                return
            events = there // _SITES
            free = (there == 0) | (program_of[events] == me)
            if ordered is not None:
                free |= ordered[events]
            if left is not None:
                free &= left
            shadow[index] = np.where(free, mark, there)
            left = ~free if left is None else left & ~free
            if not left.any():
                return


class Area:
    """A tensor argument: the parameter's name, where its elements lie, which were touched."""

    def __init__(
        self,
        name: str,
        first: int,
        size: int,
        shape: Sequence[int],
        strides: Sequence[int],
        memory: Memory,
    ) -> None:
        self.name = name
        self.first = first
        self.size = size
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.count = math.prod(self.shape)
        steps = zip(self.shape, self.strides, strict=True)
        self.extent = 1 + sum((n - 1) * step for n, step in steps) if self.count else 0
        self.bytes = self.extent * size
        self.memory = memory
        self.within = first - memory.first if self.count else 0  # bytes
        if self.count:
            memory.fit(first, size)
        self.contiguous = _is_contiguous(self.shape, self.strides)
        self.members: Array | None = None if self.contiguous else self._members()
        self.read: Array | None = None
        self.written: Array | None = None

    def _members(self) -> Array | None:
        """Which elements from the first to the last belong to the tensor; None where all do."""
        found = np.zeros(self.extent, bool)
        np.lib.stride_tricks.as_strided(found, self.shape, self.strides)[...] = True
        return None if found.all() else found

    def holds(self, low: int, high: int) -> bool:
        """Whether the bytes from one address up to another lie in it."""
        return self.first <= low and high <= self.first + self.bytes

    def touch(self, kind: str, index: Index) -> None:
        if kind != "write":
            if self.read is None:
                self.read = np.zeros(self.extent, bool)
            self.read[index] = True
        if kind != "read":
            if self.written is None:
                self.written = np.zeros(self.extent, bool)
            self.written[index] = True

    def touched(self) -> tuple[int, int]:
        read, written = (
            0 if seen is None else int(np.count_nonzero(seen)) for seen in (self.read, self.written)
        )
        return read, written

    def has(self) -> str:
        """`x has 1,600 elements`, and its shape where that is not the same."""
        many = f"{self.name} has {_many(self.count)}"
        if self.contiguous and len(self.shape) == 1:
            return many
        shape = f"shape {list(self.shape)}"
        if self.contiguous:
            return f"{many} ({shape})"
        return f"{many} ({shape}, strides {list(self.strides)})"


def _is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    step = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and stride != step:
            return math.prod(shape) == 0
        step *= n
    return True


def _many(count: int) -> str:
    return f"{count:,} element{'' if count == 1 else 's'}"


@dataclass
class Site:
    """All requests of one kind by one line to one array, as they add up."""

    number: int
    line: int
    kind: str
    array: str
    size: int
    requests: int = 0
    lanes: int = 0
    masked: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    worst: int = 0
    worst_same: int = 0
    most_masked: int = -1
    offsets: tuple[int | None, ...] = ()
    kept: int = 0
    before: tuple[int, tuple[int | None, ...]] = (-1, ())

    def row(self) -> Access:
        return Access(
            self.line, self.kind, "global", self.array, self.size, self.requests, self.lanes,
            sectors=self.sectors, ideal_sectors=self.ideal_sectors, worst=self.worst,
            operations=self.lanes if self.kind == "atomic" else 0, worst_same=self.worst_same,
            worst_offsets=self.offsets, masked=self.masked,
        )  # fmt: skip


@dataclass
class Race:
    """A pair of lines of two programs, or of two lanes, whose accesses nothing orders."""

    area: Area
    kind: str
    line: int
    program: int
    other_kind: str
    other_line: int
    other_program: int
    element: int
    pieces: list[Array] = field(default_factory=list)

    def many(self) -> int:
        each = max(1, self.area.size // self.area.memory.piece)
        return -(-int(np.unique(np.concatenate(self.pieces)).size) // each)


@dataclass
class Asked:
    """One access: the lanes that are on, as offsets in bytes from the tensor's beginning.

    `row`: they are neighbours in order. `once`: the offsets with none twice where `distinct` was
    found by sorting, otherwise as they came.
    """

    offsets: Array
    size: int
    row: bool
    low: int
    high: int
    distinct: int = 0
    once: Array = field(default_factory=lambda: np.zeros(0, np.int64))


class Launch:
    """One launch and what it has done so far."""

    def __init__(
        self, kernel: str, grid: Size, areas: Sequence[Area] = (), trace: bool = False
    ) -> None:
        self.kernel = kernel
        self.grid = grid
        self.areas = list(areas)
        self.trace = trace
        self.alone = math.prod(grid) == 1
        self.program = 0
        self.programs = 0
        self.flops = 0
        self.again = False
        self.errors: list[str] = []
        self.visits: list[Visit] = []
        self.sites: dict[tuple[int, str, str, int], Site] = {}
        self.by_number: list[Site] = []
        self.races: dict[tuple[int, int, bool], Race] = {}
        self.stopped = False
        self.journal = SignedLog()
        # An event is a stretch of one program's accesses; `ordered` says which of them, of other
        # programs, an atomic has put before what this program does now. Event 0 is nobody.
        self.event = 0
        self.program_of = np.full(64, -1)
        self.ordered = np.zeros(64, bool)
        self.ordered[0] = True
        self.gates: dict[int, Array] = {}

    # -- the course of a launch

    def begin(self, program: int) -> None:
        self.program = program
        self.programs += 1
        self.ordered[1:] = False
        self._event()

    def _event(self) -> None:
        self.event += 1
        if self.event >= self.ordered.size:
            self.ordered = np.concatenate([self.ordered, np.zeros_like(self.ordered)])
            self.program_of = np.concatenate([self.program_of, self.program_of])
        self.program_of[self.event] = self.program
        self.ordered[self.event] = True

    def synchronize(self, address: int, acquires: bool, releases: bool) -> None:
        """An atomic on one element: what other programs did before they released it comes before
        what follows here."""
        gate = self.gates.get(address)
        if acquires and gate is not None:
            self.ordered[: gate.size] |= gate
        if releases:
            known = self.ordered[: self.event + 1].copy()
            if gate is not None:
                known[: gate.size] |= gate
            self.gates[address] = known
            self._event()

    def multiply(self, flops: int) -> None:
        self.flops += flops
        self.journal.append("flops", flops)

    def stop(self, sentence: str) -> Stop:
        self.stopped = True
        self.errors.insert(0, sentence)
        return Stop(sentence)

    def where(self, program: int | None = None) -> str:
        return f"program {place(self.program if program is None else program, self.grid)}"

    # -- one access

    def access(
        self,
        kind: str,
        pointers: Array,
        mask: Array | None,
        size: int,
        line: int,
        area: Area | None,
        values: Array | None = None,
        again: bool = False,
    ) -> None:
        """`mask`: None where no lane is off; `area`: None where the pointers' origin is lost;
        `again`: the other part of the lanes of the request before."""
        flat = pointers.reshape(-1)
        lanes = flat.size
        on: Array | None = None
        if mask is not None:
            bits = mask.astype(bool, copy=False)  # one that joins a scalar condition holds int32
            if b"\0" in bits.tobytes():
                on = np.broadcast_to(bits, pointers.shape).reshape(-1)
                flat = flat[on]
        self.again = again
        if area is None:
            area = self._around(flat, size)
            if area is None:
                values = _values_of(values, lanes, on)
                self._piecewise(kind, flat, lanes - flat.size, size, line, values)
                return
        self._one(kind, flat, lanes, on, size, line, area, values)

    def _around(self, flat: Array, size: int) -> Area | None:
        """The argument that all these addresses lie in; None where there is none."""
        if not flat.size:
            return Area("", 0, size, (0,), (1,), Memory(0, size))
        low, high = int(flat.min()), int(flat.max()) + size
        return next((area for area in self.areas if area.holds(low, high)), None)

    def _piecewise(
        self, kind: str, flat: Array, masked: int, size: int, line: int, values: Array | None
    ) -> None:
        """Lanes that point into several arguments, each told of its own; those that are off go to
        the first."""
        found = []
        rest = np.ones(flat.size, bool)
        for area in self.areas:
            first, end = np.uint64(area.first), np.uint64(area.first + area.bytes)
            mine = rest & (flat >= first) & (flat + np.uint64(size) <= end)
            if mine.any():
                rest &= ~mine
                found.append((area, mine))
        if rest.any():
            lost = int(rest.sum())
            raise self.stop(
                f"out of bounds: {self.where()} {DOES[kind]} memory that no argument of the launch "
                f"has (line {line}; {lost:,} of {flat.size:,} lanes)"
            )
        for area, mine in found:
            own = None if values is None else values[mine]
            self._one(kind, flat[mine], int(mine.sum()) + masked, None, size, line, area, own)
            masked = 0

    def _one(
        self,
        kind: str,
        flat: Array,
        lanes: int,
        on: Array | None,
        size: int,
        line: int,
        area: Area,
        values: Array | None,
    ) -> None:
        many = flat.size
        if many == 0:
            site = self._counted(self._site(line, kind, area.name, size), 0, lanes, 0, 0)
            self._keep(site, flat.view(np.int64), lanes, on)
            if self.trace and kind != "atomic":
                self._visit(site, -1, -1, 0, lanes)
            return
        offsets = (flat - np.uint64(area.first)).view(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        if last - first == (many - 1) * size and _is_row(offsets, first, size):
            asked = Asked(offsets, size, True, first, last)
        else:
            asked = Asked(offsets, size, False, int(offsets.min()), int(offsets.max()))
        if asked.low < 0 or asked.high + size > area.bytes or area.members is not None:
            self._check(kind, asked, line, area, lanes)
        if (asked.low + area.within) % size or (asked.high + area.within) % size:
            self._aligned(kind, asked, line, area)
        sectors = _sectors(asked, area.within)
        ideal = -(-asked.distinct * size // SECTOR)
        site = self._site(line, kind, area.name, size)
        self._counted(site, many, lanes - many, sectors, ideal)
        self._keep(site, offsets, lanes, on)
        if kind == "atomic":
            same = 1 if asked.distinct == many else _most_equal(offsets)
            site.worst_same = max(site.worst_same, same)
        elif self.trace:
            self._visit(site, first // area.size, last // area.size, many, lanes - many)
        area.touch(kind, _elements(asked, area.size))
        if values is not None and asked.distinct < many:
            self._within(site, flat, _values_of(values, lanes, on), area)
        if not self.alone:
            self._shadow(site, asked, area)

    def _site(self, line: int, kind: str, array: str, size: int) -> Site:
        key = (line, kind, array, size)
        found = self.sites.get(key)
        if found is None:
            if len(self.by_number) >= _SITES:
                raise self.stop(f"the kernel accesses memory on more than {_SITES:,} lines")
            found = self.sites[key] = Site(len(self.by_number), line, kind, array, size)
            self.by_number.append(found)
        return found

    def _counted(self, site: Site, lanes: int, masked: int, sectors: int, ideal: int) -> Site:
        requests = 1
        if self.again:  # the request was counted, and these lanes as switched off
            requests, masked = 0, -lanes
        site.requests += requests
        site.lanes += lanes
        site.masked += masked
        site.sectors += sectors
        site.ideal_sectors += ideal
        site.worst = max(site.worst, sectors)
        self.journal.append(site.number, requests, lanes, masked, sectors, ideal)
        return site

    def _keep(self, site: Site, offsets: Array, lanes: int, on: Array | None) -> None:
        """This request's offsets, if no other has had as many lanes switched off."""
        masked = lanes - offsets.size
        if self.again and site.kept == site.requests:
            both = zip(site.offsets, _spread(offsets, on), strict=False)
            merged = tuple(other if one is None else one for one, other in both)
            now = site.most_masked - offsets.size, merged
            site.most_masked, site.offsets = max(site.before, now, key=lambda pair: pair[0])
        elif not self.again and masked > site.most_masked:
            site.before = site.most_masked, site.offsets
            site.kept = site.requests
            site.most_masked, site.offsets = masked, _spread(offsets, on)

    def _visit(self, site: Site, first: int, last: int, lanes: int, masked: int) -> None:
        if len(self.visits) < MAX_VISITS:
            row = (self.program, site.line, site.kind, site.array, first, last, lanes, masked)
            self.visits.append(Visit(*row))

    def _check(self, kind: str, asked: Asked, line: int, area: Area, lanes: int) -> None:
        """Every lane lies in the tensor, or the launch ends with a sentence."""
        offsets = asked.offsets
        outside = (offsets < 0) | (offsets + asked.size > area.bytes)
        if area.members is not None:
            inside = ~outside
            outside[inside] = ~area.members[offsets[inside] // area.size]
        if not outside.any():
            return
        at, wrong = int(offsets[outside][0]), int(outside.sum())
        between = ""
        if area.members is not None and 0 <= at < area.bytes:
            between = ", and this one lies between them"
        lie = f"{wrong:,} of {_lanes(lanes)} lie{'s' if wrong == 1 else ''} outside"
        raise self.stop(
            f"out of bounds: {self.where()} {DOES[kind]} {area.name}[{at // area.size}] "
            f"(line {line}; {lie}): {area.has()}{between}"
        )

    def _aligned(self, kind: str, asked: Asked, line: int, area: Area) -> None:
        wrong = (asked.offsets + area.within) % asked.size != 0
        at = int(asked.offsets[wrong][0])
        raise self.stop(
            f"misaligned: {self.where()} {DOES[kind]} {asked.size} bytes at byte {at} of "
            f"{area.name} (line {line}), whose address is no multiple of {asked.size}"
        )

    # -- races

    def _within(self, site: Site, flat: Array, values: Array | None, area: Area) -> None:
        """Two lanes of one store that give one element different values."""
        assert values is not None
        bits = np.ascontiguousarray(values)
        bits = bits.view(np.dtype(f"u{bits.itemsize}"))
        order = np.argsort(flat, kind="stable")
        at, bits = flat[order], bits[order]
        clash = (at[1:] == at[:-1]) & (bits[1:] != bits[:-1])
        if clash.any():
            offsets = (at[1:][clash] - np.uint64(area.first)).view(np.int64)
            pieces = (offsets + area.within) // area.memory.piece
            self._race(site, site, self.program, pieces, int(offsets[0]), area)

    def _shadow(self, site: Site, asked: Asked, area: Area) -> None:
        """Compare with what other programs did to these elements, and leave a mark."""
        memory, size = area.memory, asked.size
        if size % memory.piece:
            memory.refine(size, self.program_of)
        piece, base = memory.piece, area.within
        wide = size // piece
        index: Index
        if asked.row:
            index = slice((base + asked.low) // piece, (base + asked.high) // piece + wide)
        else:
            index = (asked.once + base) // piece
            if wide > 1:
                index = (index[:, None] + np.arange(wide)).reshape(-1)
        mark = self.event * _SITES + site.number
        if site.kind != "read" and memory.aside is not None:
            memory.settle(self.program_of)
        for role in memory.shadows:
            if role.split()[0] != site.kind or site.kind == "write":
                self._against(site, memory.shadows[role], index, area)
        if site.kind == "read":
            memory.readers(mark, index, self.program_of, self.ordered)
        elif site.kind == "write":
            memory.shadow("write")[index] = mark
        else:
            memory.leave("atomic", mark, index, self.program_of, self.ordered)

    def _against(self, site: Site, shadow: Array, index: Index, area: Area) -> None:
        there = shadow[index]
        if not there.any():
            return
        racing = ~self.ordered[there // _SITES]
        if not racing.any():
            return
        where = np.flatnonzero(racing)
        pieces = where + index.start if isinstance(index, slice) else index[where]
        marks = there[racing]
        for number in np.unique(marks % _SITES):
            same = marks % _SITES == number
            first = int(np.argmin(pieces[same]))
            program = int(self.program_of[int(marks[same][first]) // _SITES])
            offset = int(pieces[same][first]) * area.memory.piece - area.within
            self._race(site, self.by_number[int(number)], program, pieces[same], offset, area)

    def _race(
        self, site: Site, other: Site, program: int, pieces: Array, offset: int, area: Area
    ) -> None:
        key = (site.number, other.number, program == self.program)
        found = self.races.get(key)
        if found is None:
            found = self.races[key] = Race(
                area, site.kind, site.line, self.program, other.kind, other.line, program,
                offset // area.size,
            )  # fmt: skip
        found.pieces.append(np.asarray(pieces))

    # -- the end

    def report(self) -> Report:
        """Raises MeasurementDisturbed where the counts are not those that were written down."""
        self._verify()
        order = {"read": 0, "write": 1, "atomic": 2}
        sites = sorted(self.sites.values(), key=lambda s: (s.line, order[s.kind], s.array))
        return Report(
            self.kernel,
            self.grid,
            (1, 1, 1),
            accesses=[site.row() for site in sites],
            errors=[*self.errors, *self._sentences()],
            blocks=self.programs,
            races=len(self.races),
            kind="triton",
            flops=self.flops,
            touched={area.name: area.touched() for area in self.areas},
            visits=self.visits,
        )

    def _verify(self) -> None:
        sums = [[0] * 5 for _ in self.by_number]
        flops = 0
        for record in self.journal:
            if record[0] == "flops":
                flops += record[1]
            else:
                row = sums[record[0]]
                for at, value in enumerate(record[1:]):
                    row[at] += value
        found = [
            [site.requests, site.lanes, site.masked, site.sectors, site.ideal_sectors]
            for site in self.by_number
        ]
        if (found, self.flops) != (sums, flops):
            raise MeasurementDisturbed(
                "Measurement disturbed: the counts of a launch were changed after they were made."
            )

    def _sentences(self) -> list[str]:
        """Races between a read and a write first, as one that also writes has both."""
        races = sorted(self.races.values(), key=lambda race: race.kind != "read")
        return [self._sentence(race) for race in races]

    def _sentence(self, race: Race) -> str:
        element = f"{race.area.name}[{race.element}]"
        count = _many(race.many())
        if race.program == race.other_program:
            return (
                f"race: lanes of {self.where(race.program)} write different values to {element} "
                f"(line {race.line}): which of them stays is open ({count})"
            )
        return (
            f"race: {self.where(race.program)} {DOES[race.kind]} {element} (line {race.line}) "
            f"which {self.where(race.other_program)} {DID[race.other_kind]} (line "
            f"{race.other_line}): nothing orders two programs of a launch ({count})"
        )


def _values_of(values: Array | None, lanes: int, on: Array | None) -> Array | None:
    """The values of the lanes that are on, one after another."""
    if values is None:
        return None
    every = np.broadcast_to(values.reshape(-1), (lanes,))
    return every if on is None else every[on]


def _spread(offsets: Array, on: Array | None) -> tuple[int | None, ...]:
    """The offset of each lane, None for one that is off."""
    if on is None:
        return tuple(offsets[:MAX_OFFSETS].tolist())
    rest = iter(offsets.tolist())
    return tuple(next(rest) if lane else None for lane in on[:MAX_OFFSETS].tolist())


def _lanes(count: int) -> str:
    return f"{count:,} lane{'' if count == 1 else 's'}"


_ROWS: dict[tuple[int, int], bytes] = {}


def _is_row(offsets: Array, first: int, size: int) -> bool:
    """Whether each offset is the one before and `size` more; compared as bytes, which is fast."""
    key = (offsets.size, size)
    row = _ROWS.get(key)
    if row is None:
        if len(_ROWS) > 256:
            _ROWS.clear()
        row = _ROWS[key] = (np.arange(offsets.size, dtype=np.int64) * size).tobytes()
    return (offsets - first).tobytes() == row


def _sectors(asked: Asked, within: int) -> int:
    """How many sectors an access touches; fills in `distinct` and `once`."""
    offsets, size, low, high = asked.offsets, asked.size, asked.low, asked.high
    if asked.row:
        asked.distinct, asked.once = offsets.size, offsets
        return (within + high + size - 1) // SECTOR - (within + low) // SECTOR + 1
    steps = offsets[1:] - offsets[:-1]
    if bool((steps >= 0).all()):
        asked.distinct, asked.once = int(np.count_nonzero(steps)) + 1, offsets
    else:
        span = (high - low) // size + 1
        if span <= 64 * offsets.size + 4096:
            seen = np.zeros(span, bool)
            seen[(offsets - low) // size] = True
            asked.once = np.flatnonzero(seen) * size + low
        else:
            asked.once = np.unique(offsets)
        asked.distinct = asked.once.size
    pieces = (asked.once + within) // SECTOR
    return int(np.count_nonzero(pieces[1:] - pieces[:-1])) + 1


def _elements(asked: Asked, item: int) -> Index:
    """The elements of a tensor that an access touches."""
    if asked.row:
        return slice(asked.low // item, (asked.high + asked.size - 1) // item + 1)
    found: Array = asked.once // item
    if asked.size > item:
        found = (found[:, None] + np.arange(asked.size // item)).reshape(-1)
    return found


def _most_equal(offsets: Array) -> int:
    """How often the most frequent offset is there."""
    _, counts = np.unique(offsets, return_counts=True)
    return int(counts.max())
