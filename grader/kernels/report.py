"""What a launch did: counts by source line, as in a profiler, and what went wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from grader.kernels.findings import Count, KernelFinding, Size

AtLeastOne = Annotated[int, msgspec.Meta(gt=0)]


class Access(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All requests of one kind by one line to one array. A request is one instruction of one
    warp: up to 32 lanes, `size` bytes each.

    kind: read, write or atomic; space: global or shared. sectors: pieces of 32 bytes of global
    memory; ideal_sectors: how many would hold the same bytes. wavefronts: passes through shared
    memory; ideal_wavefronts: without any bank conflict. worst: most sectors or ways of conflict of
    one request. operations: lanes of atomics; worst_same: most lanes of a request on one address.
    ways: number of requests by ways of bank conflict (1 is none). worst_offsets: for one of the
    worst requests, each lane's offset in bytes into the array, None for an inactive lane.

    For a Triton kernel a request is one executed tl.load, tl.store or tl.atomic_* with its whole
    block; its lanes are those that the mask left on, `masked` those that it switched off, and
    `worst_offsets` (up to 4,096 lanes) are of the request with most lanes switched off.
    """

    line: Count
    kind: str
    space: str
    array: str
    size: Count
    requests: AtLeastOne
    lanes: Count
    sectors: Count = 0
    ideal_sectors: Count = 0
    wavefronts: Count = 0
    ideal_wavefronts: Count = 0
    worst: Count = 0
    operations: Count = 0
    worst_same: Count = 0
    ways: dict[Count, Count] = {}  # copied by msgspec
    worst_offsets: tuple[int | None, ...] = ()
    masked: Count = 0

    @property
    def lanes_per_request(self) -> float:
        return self.lanes / self.requests if self.requests else 0.0

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def wavefronts_per_request(self) -> float:
        return self.wavefronts / self.requests if self.requests else 0.0


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one line of block 0 did between two barriers; `epoch` counts the barriers before.
    `masks`: for each warp, the lanes that were active at least once, lane 0 in the lowest bit."""

    epoch: Count
    line: Count
    kind: str
    space: str
    array: str
    requests: Count
    lanes: Count
    sectors: Count
    wavefronts: Count
    worst: Count
    most_lanes: Count
    masks: tuple[Count, ...]


class Visit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One executed tl.load or tl.store of a program. `first`, `last`: the offsets in elements from
    the array's beginning of the first and the last lane that the mask left on, -1 without any."""

    program: Count
    line: Count
    kind: str
    array: str
    first: int
    last: int
    lanes: Count
    masked: Count


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One launch. `errors`: empty if nothing went wrong; one that stops a launch ends the counts
    there. `barriers`: most that a block passed; `collectives`: calls of warp-level functions that
    exchange values; `shared_bytes`: of the arrays that a block used; `flow_requests`,
    `flow_lanes`: basic blocks that warps ran, and lanes in them; `promotions`: lines, run or not,
    that compute in double, as `1.0 * x` does, in the kernel and in what it may call.

    `kind` is "cuda" or "triton". For a Triton kernel `grid` and `blocks` count programs; `flops`
    are 2 * M * N * K of every tl.dot; `touched` has for each array how many elements were read
    and written at least once; `visits` are there if the launch was traced; `options` are those of
    the launch that are whole numbers and not parameters of the kernel, such as num_warps."""

    kernel: str
    grid: Size
    block: Size
    accesses: list[Access] = []
    errors: list[KernelFinding] = []
    steps: list[Step] = []
    blocks: Count = 0
    threads: Count = 0
    barriers: Count = 0
    collectives: Count = 0
    shared_bytes: Count = 0
    flow_requests: Count = 0
    flow_lanes: Count = 0
    races: Count = 0
    promotions: list[Count] = []
    printed: str = ""
    kind: str = "cuda"
    flops: Count = 0
    touched: dict[str, tuple[Count, Count]] = {}
    visits: list[Visit] = []
    options: dict[str, Count] = {}  # copied by msgspec

    def bytes(self, kind: str = "", array: str = "") -> int:
        """Bytes of global memory that the kernel requested: lanes times the size of an element."""
        return sum(row.lanes * row.size for row in self.of(kind, "global", array))

    def total(self, name: str, kind: str = "", space: str = "", array: str = "") -> int:
        """The sum of a count over the lines of that kind, space and array; "" is any."""
        return sum(getattr(access, name) for access in self.of(kind, space, array))

    def of(self, kind: str = "", space: str = "", array: str = "") -> list[Access]:
        return [
            access
            for access in self.accesses
            if kind in ("", access.kind)
            and space in ("", access.space)
            and array in ("", access.array)
        ]

    @property
    def active_lanes(self) -> float:
        """Mean number of a warp's 32 lanes that are active in a basic block."""
        return self.flow_lanes / self.flow_requests if self.flow_requests else 0.0

    @property
    def sentences(self) -> list[str]:
        """The errors for people."""
        return [str(error) for error in self.errors]

    def plain(self) -> dict[str, Any]:
        """As numbers, strings, lists and dicts, to cross the wall."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    @staticmethod
    def from_plain(data: Any) -> Report:
        """The report of `plain` data; raises ValueError for anything else."""
        try:  # through bytes, since `msgspec.convert` accepts a learner's subclass of int
            report = msgspec.msgpack.decode(msgspec.msgpack.encode(data), type=Report)
            if _is_complete(data):
                return report
        except (msgspec.MsgspecError, TypeError, ArithmeticError, RecursionError) as error:
            raise ValueError("no report of a launch") from error
        raise ValueError("no report of a launch")

    def __str__(self) -> str:
        return "\n".join(_table(self))


def _is_complete(data: dict[str, Any]) -> bool:
    """Whether no field is left out, here or in a row."""
    rows = ((Access, "accesses"), (Step, "steps"), (Visit, "visits"))
    return len(data) == len(Report.__struct_fields__) and all(
        len(row) == len(kind.__struct_fields__) for kind, name in rows for row in data[name]
    )


def _triton_table(report: Report) -> Iterable[str]:
    sizes = " x ".join(map(str, _short(report.grid)))
    some = "" if report.blocks == math.prod(report.grid) else f", of which {report.blocks:,} ran"
    yield f"{report.kernel}: {sizes} program{'' if report.grid == (1, 1, 1) else 's'}{some}"
    yield from (f"  {error}" for error in report.errors)
    if not report.accesses:
        return
    yield (
        f"{'line':>6} {'access':<7} {'array':<12} {'requests':>9} {'bytes':>13} "
        f"{'masked lanes':>20} {'sectors':>20}"
    )
    for row in report.accesses:
        share = row.masked / (row.lanes + row.masked)
        masked = f"{row.masked:,} ({share:.0%})" if row.masked else "0"
        sectors = f"{row.sectors_per_request:.1f} (ideal {row.ideal_sectors / row.requests:.1f})"
        yield (
            f"{row.line:>6} {row.kind:<7} {row.array:<12} {row.requests:>9,} "
            f"{row.lanes * row.size:>13,} {masked:>20} {sectors:>20}"
        )
    yield (
        "A request is one tl.load, tl.store or tl.atomic of a program. Bytes and masked lanes are"
    )
    yield "of all requests; sectors (32 bytes of memory) are a mean of a request."
    total = f"Read {report.bytes('read'):,} bytes, wrote {report.bytes('write'):,}"
    atomic = report.bytes("atomic")
    total += f", changed {atomic:,} by atomics" if atomic else ""
    yield total + (f"; {report.flops:,} FLOPs in tl.dot." if report.flops else ".")
    different = [
        f"{many:,} of {name} {did}"
        for name, (read, written) in report.touched.items()
        for many, did in ((read, "read"), (written, "written"))
        if many
    ]
    yield f"Different elements: {', '.join(different)}."


def _table(report: Report) -> Iterable[str]:
    if report.kind == "triton":
        yield from _triton_table(report)
        return
    sizes = [" x ".join(map(str, _short(size))) for size in (report.grid, report.block)]
    yield f"{report.kernel}: {sizes[0]} blocks of {sizes[1]} threads"
    yield from (f"  {error}" for error in report.errors)
    if not report.accesses:
        return
    yield (
        f"{'line':>6} {'access':<14} {'array':<12} {'requests':>9} {'lanes':>6} "
        f"{'sectors':>18} {'wavefronts':>18} {'worst':>9}"
    )
    for row in report.accesses:
        sectors = wavefronts = worst = ""
        if row.space == "global":
            sectors = (
                f"{row.sectors_per_request:.2f} (ideal {row.ideal_sectors / row.requests:.2f})"
            )
        else:
            ideal = row.ideal_wavefronts / row.requests
            wavefronts = f"{row.wavefronts_per_request:.2f} (ideal {ideal:.2f})"
            worst = f"{row.worst}-way"
        if row.kind == "atomic":
            worst = f"{row.worst_same} on one"
        yield (
            f"{row.line:>6} {row.space + ' ' + row.kind:<14} {row.array:<12} {row.requests:>9,} "
            f"{row.lanes_per_request:>6.1f} {sectors:>18} {wavefronts:>18} {worst:>9}"
        )
    yield (
        "Requests are counted for each warp; lanes, sectors (32 bytes) and wavefronts are means of "
        "a request."
    )
    yield (
        f"A block: {report.barriers} barriers, {report.shared_bytes:,} bytes of shared memory. "
        f"{report.active_lanes:.1f} of 32 lanes active on average."
    )


def _short(size: Size) -> tuple[int, ...]:
    return size if size[2] > 1 else size[:2] if size[1] > 1 else size[:1]
