"""What a Triton launch does to memory: whose elements, how many, in which order. Without Triton.

The programs of a launch run one after another. `Launch.access` sees every load, store and atomic
before it happens, and raises `KernelFault` for a faulty one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from grader.errors import MeasurementDisturbed
from grader.kernels.findings import (
    AccessKind,
    Actor,
    Detail,
    Element,
    KernelFinding,
    Size,
    position,
)
from grader.kernels.report import Report, Visit
from grader.kernels.sentences import FindingKind
from grader.kernels.triton.arguments import SITES, Array, Index, Memory, TensorArgument
from grader.kernels.triton.requests import SECTOR, Asked, Site, values_of
from grader.meters.evidence import SignedLog

MAX_VISITS = 20_000


class KernelFault(BaseException):
    """Ends a launch, with its finding. A learner's `except Exception` does not catch it."""


@dataclass
class Race:
    """Two lines of two programs, or of two lanes, whose accesses nothing orders."""

    area: TensorArgument
    kind: AccessKind
    line: int
    program: int
    other_kind: AccessKind
    other_line: int
    other_program: int
    element: int
    pieces: list[Array] = field(default_factory=list)

    def finding(self, grid: Size) -> KernelFinding:
        each = max(1, self.area.size // self.area.memory.piece)
        many = -(-int(np.unique(np.concatenate(self.pieces)).size) // each)
        same = self.program == self.other_program
        return KernelFinding(
            FindingKind.RACE_OF_LANES if same else FindingKind.RACE_OF_PROGRAMS,
            Actor(self.line, self.kind, position(self.program, grid)),
            Actor(self.other_line, self.other_kind, position(self.other_program, grid)),
            Element(self.area.name, (self.element,)),
            {"count": many},
        )


class Launch:
    """One launch and what it has done so far."""

    def __init__(
        self,
        kernel: str,
        grid: Size,
        areas: Sequence[TensorArgument] = (),
        trace: bool = False,
        options: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self.kernel = kernel
        self.options = {
            name: value
            for name, value in options.items()
            if type(value) is int and 0 <= value < 1 << 31
        }
        self.grid = grid
        self.areas = list(areas)
        self.trace = trace
        self.alone = math.prod(grid) == 1
        self.program = 0
        self.programs = 0
        self.flops = 0
        self.again = False
        self.errors: list[KernelFinding] = []
        self.visits: list[Visit] = []
        self.sites: dict[tuple[int, AccessKind, str, int], Site] = {}
        self.by_number: list[Site] = []
        self.races: dict[tuple[int, int, bool], Race] = {}
        self.stopped = False
        self.journal = SignedLog()
        # An event is a run of one program's accesses; `ordered` marks the events that come before
        # what this program does now, by an atomic or in this program. Event 0 is none.
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
        """An atomic on one element: what other programs did before they released it happens
        before what this program does next."""
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

    def stop(
        self,
        kind: FindingKind,
        line: int = 0,
        access: AccessKind | None = None,
        element: Element = Element(),  # noqa: B008  # frozen
        /,
        **details: Detail,
    ) -> KernelFault:
        """The exception for a fault of the running program; also adds it to the errors."""
        self.stopped = True
        place = position(self.program, self.grid) if self.programs else ()
        by = Actor(line, access or "", place)
        finding = KernelFinding(kind, by, element=element, details=details)
        self.errors.insert(0, finding)
        return KernelFault(finding)

    # -- one access

    def access(
        self,
        kind: AccessKind,
        pointers: Array,
        mask: Array | None,
        size: int,
        line: int,
        area: TensorArgument | None,
        values: Array | None = None,
        again: bool = False,
    ) -> None:
        """`mask`: None if all lanes are on; `area`: None if the pointers' origin is unknown;
        `again`: these are the other lanes of the previous request."""
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
                values = values_of(values, lanes, on)
                self._piecewise(kind, flat, lanes - flat.size, size, line, values)
                return
        self._one(kind, flat, lanes, on, size, line, area, values)

    def _around(self, flat: Array, size: int) -> TensorArgument | None:
        """The argument that all these addresses lie in, or None."""
        if not flat.size:
            return TensorArgument("", 0, size, (0,), (1,), Memory(0, size))
        low, high = int(flat.min()), int(flat.max()) + size
        return next((area for area in self.areas if area.holds(low, high)), None)

    def _piecewise(
        self, kind: AccessKind, flat: Array, masked: int, size: int, line: int, values: Array | None
    ) -> None:
        """Lanes that point into several arguments, as one access to each of them; lanes that are
        off belong to the first."""
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
            raise self.stop(FindingKind.OUT_OF_ARGUMENTS, line, kind, wrong=lost, lanes=flat.size)
        for area, mine in found:
            own = None if values is None else values[mine]
            self._one(kind, flat[mine], int(mine.sum()) + masked, None, size, line, area, own)
            masked = 0

    def _one(
        self,
        kind: AccessKind,
        flat: Array,
        lanes: int,
        on: Array | None,
        size: int,
        line: int,
        area: TensorArgument,
        values: Array | None,
    ) -> None:
        many = flat.size
        if many == 0:
            site = self._counted(self._site(line, kind, area.name, size), 0, lanes, 0, 0)
            site.keep(flat.view(np.int64), lanes, on, self.again)
            if self.trace and kind != "atomic":
                self._visit(site, -1, -1, 0, lanes)
            return
        offsets = (flat - np.uint64(area.first)).view(np.int64)
        asked = Asked.of(offsets, size)
        if asked.low < 0 or asked.high + size > area.bytes or area.members is not None:
            self._check(kind, asked, line, area, lanes)
        if (asked.low + area.within) % size or (asked.high + area.within) % size:
            self._aligned(kind, asked, line, area)
        sectors = asked.sectors(area.within)
        ideal = -(-asked.distinct * size // SECTOR)
        site = self._site(line, kind, area.name, size)
        self._counted(site, many, lanes - many, sectors, ideal)
        site.keep(offsets, lanes, on, self.again)
        if kind == "atomic":
            same = 1 if asked.distinct == many else asked.most_equal()
            site.worst_same = max(site.worst_same, same)
        elif self.trace:
            first, last = int(offsets[0]) // area.size, int(offsets[-1]) // area.size
            self._visit(site, first, last, many, lanes - many)
        area.touch(kind, asked.elements(area.size))
        if values is not None and asked.distinct < many:
            self._within(site, flat, values_of(values, lanes, on), area)
        if not self.alone:
            self._shadow(site, asked, area)

    def _site(self, line: int, kind: AccessKind, array: str, size: int) -> Site:
        key = (line, kind, array, size)
        found = self.sites.get(key)
        if found is None:
            if len(self.by_number) >= SITES:
                raise self.stop(FindingKind.TOO_MANY_LINES, limit=SITES)
            found = self.sites[key] = Site(len(self.by_number), line, kind, array, size)
            self.by_number.append(found)
        return found

    def _counted(self, site: Site, lanes: int, masked: int, sectors: int, ideal: int) -> Site:
        requests = 1
        if self.again:  # the request is counted already, with these lanes as masked
            requests, masked = 0, -lanes
        site.requests += requests
        site.lanes += lanes
        site.masked += masked
        site.sectors += sectors
        site.ideal_sectors += ideal
        site.worst = max(site.worst, sectors)
        self.journal.append(site.number, requests, lanes, masked, sectors, ideal)
        return site

    def _visit(self, site: Site, first: int, last: int, lanes: int, masked: int) -> None:
        if len(self.visits) < MAX_VISITS:
            row = (self.program, site.line, site.kind, site.array, first, last, lanes, masked)
            self.visits.append(Visit(*row))

    def _check(
        self, kind: AccessKind, asked: Asked, line: int, area: TensorArgument, lanes: int
    ) -> None:
        """Raise unless every lane lies in the tensor."""
        offsets = asked.offsets
        outside = (offsets < 0) | (offsets + asked.size > area.bytes)
        if area.members is not None:
            inside = ~outside
            outside[inside] = ~area.members[offsets[inside] // area.size]
        if not outside.any():
            return
        at, wrong = int(offsets[outside][0]), int(outside.sum())
        between = area.members is not None and 0 <= at < area.bytes
        raise self.stop(
            FindingKind.BETWEEN_ELEMENTS if between else FindingKind.OUT_OF_ARGUMENT,
            line,
            kind,
            Element(area.name, (at // area.size,)),
            wrong=wrong,
            lanes=lanes,
            elements=area.count,
            **area.layout(),
        )

    def _aligned(self, kind: AccessKind, asked: Asked, line: int, area: TensorArgument) -> None:
        wrong = (asked.offsets + area.within) % asked.size != 0
        at = int(asked.offsets[wrong][0])
        array = Element(area.name)
        raise self.stop(FindingKind.MISALIGNED_BLOCK, line, kind, array, size=asked.size, byte=at)

    # -- races

    def _within(self, site: Site, flat: Array, values: Array | None, area: TensorArgument) -> None:
        """Find two lanes of one store that give one element different values."""
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

    def _shadow(self, site: Site, asked: Asked, area: TensorArgument) -> None:
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
        mark = self.event * SITES + site.number
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

    def _against(self, site: Site, shadow: Array, index: Index, area: TensorArgument) -> None:
        there = shadow[index]
        if not there.any():
            return
        racing = ~self.ordered[there // SITES]
        if not racing.any():
            return
        where = np.flatnonzero(racing)
        pieces = where + index.start if isinstance(index, slice) else index[where]
        marks = there[racing]
        for number in np.unique(marks % SITES):
            same = marks % SITES == number
            first = int(np.argmin(pieces[same]))
            program = int(self.program_of[int(marks[same][first]) // SITES])
            offset = int(pieces[same][first]) * area.memory.piece - area.within
            self._race(site, self.by_number[int(number)], program, pieces[same], offset, area)

    def _race(
        self,
        site: Site,
        other: Site,
        program: int,
        pieces: Array,
        offset: int,
        area: TensorArgument,
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
        """The report; raises MeasurementDisturbed if the counts differ from the signed log."""
        self._verify()
        order = {"read": 0, "write": 1, "atomic": 2}
        sites = sorted(self.sites.values(), key=lambda s: (s.line, order[s.kind], s.array))
        # Races of a read and a write first: a program that also writes has both kinds.
        races = sorted(self.races.values(), key=lambda race: race.kind != "read")
        return Report(
            self.kernel,
            self.grid,
            (1, 1, 1),
            accesses=[site.row() for site in sites],
            errors=[*self.errors, *(race.finding(self.grid) for race in races)],
            blocks=self.programs,
            races=len(self.races),
            kind="triton",
            flops=self.flops,
            touched={area.name: area.touched() for area in self.areas},
            visits=self.visits,
            options=self.options,
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
