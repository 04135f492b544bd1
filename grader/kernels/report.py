"""What a launch did: counts by source line as a profiler gives them, and faults as sentences."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from grader.kernels.cuda.source import Array, Kernel, Source


@dataclass(frozen=True)
class Access:
    """All requests of one kind by one line to one array. A request is what one warp asks for with
    one instruction: up to 32 lanes, `size` bytes each.

    kind: read, write or atomic; space: global or shared. sectors: pieces of 32 bytes of global
    memory; ideal_sectors: how many would hold the same bytes. wavefronts: passes through shared
    memory; ideal_wavefronts: without any bank conflict. worst: most sectors or ways of conflict of
    one request. operations: lanes of atomics; worst_same: most lanes of a request on one address.
    ways: requests by their way of bank conflict (1 is none). worst_offsets: for one of the worst
    requests, each lane's offset in bytes into the array, or None for a lane that took no part.

    Of a Triton kernel a request is one executed tl.load, tl.store or tl.atomic_* with its whole
    block; its lanes are those that the mask left on, `masked` those that it switched off, and
    `worst_offsets` (up to 4,096 lanes) are of the request with most lanes switched off.
    """

    line: int
    kind: str
    space: str
    array: str
    size: int
    requests: int
    lanes: int
    sectors: int = 0
    ideal_sectors: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    worst: int = 0
    operations: int = 0
    worst_same: int = 0
    ways: dict[int, int] = field(default_factory=dict)
    worst_offsets: tuple[int | None, ...] = ()
    masked: int = 0

    @property
    def lanes_per_request(self) -> float:
        return self.lanes / self.requests if self.requests else 0.0

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def wavefronts_per_request(self) -> float:
        return self.wavefronts / self.requests if self.requests else 0.0


@dataclass(frozen=True)
class Step:
    """What one line of block 0 did between two barriers; `epoch` counts the barriers before.
    `masks`: for each warp, the lanes that took part at least once, lane 0 in the lowest bit."""

    epoch: int
    line: int
    kind: str
    space: str
    array: str
    requests: int
    lanes: int
    sectors: int
    wavefronts: int
    worst: int
    most_lanes: int
    masks: tuple[int, ...]


@dataclass(frozen=True)
class Visit:
    """One executed tl.load or tl.store of a program. `first`, `last`: the offsets in elements from
    the array's beginning of the first and the last lane that the mask left on, -1 without any."""

    program: int
    line: int
    kind: str
    array: str
    first: int
    last: int
    lanes: int
    masked: int


@dataclass(frozen=True)
class Report:
    """One launch. `errors`: sentences, empty where nothing went wrong; after any that stops a
    launch the counts end where it stopped. `barriers`: most that a block passed; `collectives`:
    warp-level functions that exchange values; `shared_bytes`: of the arrays that were used, a
    block; `flow_requests`, `flow_lanes`: basic blocks that warps ran, and lanes in them.

    `kind` is "cuda" or "triton". Of a Triton kernel `grid` and `blocks` count programs; `flops` are
    2 * M * N * K of every tl.dot; `touched` says of each array how many elements were read and
    written at least once; `visits` are there where they were asked for."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    accesses: list[Access] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    blocks: int = 0
    threads: int = 0
    barriers: int = 0
    collectives: int = 0
    shared_bytes: int = 0
    flow_requests: int = 0
    flow_lanes: int = 0
    races: int = 0
    printed: str = ""
    kind: str = "cuda"
    flops: int = 0
    touched: dict[str, tuple[int, int]] = field(default_factory=dict)
    visits: list[Visit] = field(default_factory=list)

    def bytes(self, kind: str = "", array: str = "") -> int:
        """Bytes of global memory that the kernel asked for: lanes times the size of an element."""
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
        """Mean share of a warp's 32 lanes that take part in a basic block, in lanes."""
        return self.flow_lanes / self.flow_requests if self.flow_requests else 0.0

    def plain(self) -> dict[str, Any]:
        """As numbers, strings, lists and dicts, for the way across the wall."""
        data = _plain_row(self)
        for name in ("accesses", "steps", "visits"):
            data[name] = [_plain_row(row) for row in data[name]]
        return data

    @staticmethod
    def from_plain(data: Any) -> Report:
        """The report that `plain` gave; raises ValueError for anything else."""
        try:
            return _report_of_plain(data)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ValueError("no report of a launch") from error

    def __str__(self) -> str:
        return "\n".join(_table(self))


def _report_of_plain(data: Any) -> Report:
    accesses = [
        _row(
            Access,
            row,
            ways=_ways(row["ways"]),
            worst_offsets=tuple(None if at is None else _int(at) for at in row["worst_offsets"]),
        )
        for row in _list(data["accesses"])
    ]
    if not all(access.requests > 0 for access in accesses):
        raise ValueError
    report: Report = _row(
        Report,
        data,
        accesses=accesses,
        steps=[
            _row(Step, row, masks=tuple(_count(mask) for mask in _list(row["masks"])))
            for row in _list(data["steps"])
        ],
        errors=[_text(text) for text in _list(data["errors"])],
        grid=_three(data["grid"]),
        block=_three(data["block"]),
        touched=_touched(data["touched"]),
        visits=[
            _row(Visit, row, first=_int(row["first"]), last=_int(row["last"]))
            for row in _list(data["visits"])
        ],
    )
    return report


def _plain_row(row: Any) -> dict[str, Any]:
    """Fields by name; lists and dicts are copied, their members are not."""
    found = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    return {n: v.copy() if isinstance(v, list | dict) else v for n, v in found.items()}


def _row(kind: Any, data: Any, **made: Any) -> Any:
    """An object of a dataclass whose other fields are texts and counts."""
    names = {field.name: str(field.type) for field in dataclasses.fields(kind)}
    if not isinstance(data, dict) or set(data) != set(names):
        raise ValueError
    checks: dict[str, Callable[[Any], Any]] = {"int": _count, "str": _text}
    return kind(
        **{name: made[name] if name in made else checks[names[name]](data[name]) for name in names}
    )


def _list(data: Any) -> list[Any]:
    if not isinstance(data, list | tuple):
        raise TypeError
    return list(data)


def _text(data: Any) -> str:
    if not isinstance(data, str):
        raise TypeError
    return data


def _int(data: Any) -> int:
    if type(data) is not int:
        raise TypeError
    return data


def _count(data: Any) -> int:
    if _int(data) < 0:
        raise ValueError
    return _int(data)


def _three(data: Any) -> tuple[int, int, int]:
    x, y, z = _list(data)
    return _count(x), _count(y), _count(z)


def _ways(data: Any) -> dict[int, int]:
    if not isinstance(data, dict):
        raise TypeError
    return {_count(way): _count(many) for way, many in data.items()}


def _touched(data: Any) -> dict[str, tuple[int, int]]:
    if not isinstance(data, dict):
        raise TypeError
    found = {}
    for name, pair in data.items():
        read, written = _list(pair)
        found[_text(name)] = (_count(read), _count(written))
    return found


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


def _short(size: tuple[int, int, int]) -> tuple[int, ...]:
    return size if size[2] > 1 else size[:2] if size[1] > 1 else size[:1]


# -- from the program's figures to names, lines and sentences -------------------------------------


_SIZES = {"char": 1, "bool": 1, "short": 2, "int": 4, "float": 4, "long": 8, "double": 8}


def _bytes_of(words: list[str]) -> int:
    """Bytes of a type's words, 0 for one that is unknown: `unsigned long`, `float4`."""
    for word in words:
        found = re.fullmatch(r"u?(char|short|int|long(?:long)?|float|double)([234]?)", word)
        if found and (found[2] or found[1] in ("long", "double")):
            return _SIZES[found[1][:4] if found[1] == "longlong" else found[1]] * int(found[2] or 1)
    plain = [word.removeprefix("u") for word in words]
    if "short" in plain or "char" in plain:
        return 2 if "short" in plain else 1
    found_sizes = [_SIZES[word] for word in plain if word in _SIZES]
    return found_sizes[0] if found_sizes else 4 if "unsigned" in words else 0


class Words:
    """Names of arrays, elements and lines as the learner wrote them."""

    def __init__(self, source: Source, kernel: Kernel, lines: dict[int, int]) -> None:
        self.source = source
        self.kernel = kernel
        self.lines = lines
        self.bytes: dict[str, int] = {}  # of the arrays whose size the file states

    def line(self, pc: int) -> int:
        return self.lines.get(pc, 0)

    def at(self, pc: int) -> str:
        line = self.line(pc)
        return f"line {line}" if line else "an unknown line"

    def array(self, name: str) -> str:
        return name.rpartition("::")[2]

    def element(self, name: str, offset: int, element: int) -> str:
        """`tile[3][0]`, `in[1000]` or `total`: what lies at an offset in bytes."""
        short = self.array(name)
        declared = self.declared(name)
        size = self.element_bytes(name, element)
        index, rest = divmod(offset, size)
        shape = declared.shape if declared else None
        within = f" (its byte {rest})" if rest else ""
        if shape == () and index == 0:
            return short + within
        parts: list[int] = []
        for many in reversed(shape[1:] if shape and index >= 0 else ()):
            index, inner = divmod(index, many)
            parts.append(inner)
        return short + "".join(f"[{part}]" for part in (index, *reversed(parts))) + within

    def declared(self, name: str) -> Array | None:
        """The declaration of an array that is no argument; a name as the program has it."""
        before, _, short = name.rpartition("::")
        if not before and short in {parameter.name for parameter in self.kernel.parameters}:
            return None
        function = re.search(r"(\w+)(?:<[^()]*>)?(?:\(.*\))?(?: const)?$", before)
        return self.source.array(short, function[1] if function else "")

    def element_bytes(self, name: str, element: int) -> int:
        """Bytes of an element: by its type, or of what the whole array has."""
        declared = self.declared(name)
        if declared is None:
            return element or 4
        words = re.findall(r"\w+", declared.type)
        if known := _bytes_of(words):
            return known
        if declared.shape is not None and name in self.bytes:
            return max(1, self.bytes[name] // max(1, math.prod(declared.shape)))
        return element or 4

    def thread(self, number: int, block: tuple[int, int, int]) -> str:
        """A thread as its block's shape numbers it."""
        return f"thread {place(number, block)}"

    def block(self, number: int, grid: tuple[int, int, int]) -> str:
        return f"block {place(number, grid)}"


def place(number: int, sizes: tuple[int, int, int]) -> str:
    """`7`, `(7, 0)` or `(7, 0, 0)`: a running number by as many axes as are in use."""
    x, rest = number % sizes[0], number // sizes[0]
    if sizes[2] > 1:
        return f"({x}, {rest % sizes[1]}, {rest // sizes[1]})"
    return f"({x}, {rest})" if sizes[1] > 1 else f"{number}"


def report_of(
    data: dict[str, Any],
    words: Words,
    sizes: tuple[tuple[int, int, int], tuple[int, int, int]],
    printed: str,
) -> Report:
    """The report of what the program wrote."""
    sites = {row["site"]: row for row in data["sites"]}
    totals = data["totals"]
    words.bytes = {row["name"]: row["bytes"] for row in data["arrays"] if not row["dynamic"]}
    used = [row for row in data["arrays"] if row["space"] == "shared" and row["used"]]
    errors = [_sentence(data["error"], words, *sizes)] if data["error"] else []
    races = sorted(data["races"], key=lambda row: row["kind"] != "read")
    errors += [_race(row, words, *sizes) for row in races]
    return Report(
        words.kernel.name,
        *sizes,
        accesses=_accesses(data["sites"], words),
        errors=errors,
        steps=_steps(data["steps"], sites, words),
        blocks=totals["blocks"],
        threads=totals["threads"],
        barriers=totals["most_barriers"],
        collectives=totals["shuffles"],
        shared_bytes=sum(row["bytes"] for row in used),
        flow_requests=totals["flow_requests"],
        flow_lanes=totals["flow_lanes"],
        races=data["races_seen"],
        printed=printed,
    )


def _accesses(rows: list[dict[str, Any]], words: Words) -> list[Access]:
    """One a line, kind, array and size: a line may hold several such instructions."""
    merged: dict[tuple[int, str, str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        array = words.array(row["array"])
        key = (words.line(row["pc"]), row["kind"], row["space"], array, row["size"])
        merged.setdefault(key, []).append(row)
    found = []
    order = {"read": 0, "write": 1, "atomic": 2}
    for key, same in sorted(merged.items(), key=lambda item: (item[0][0], order[item[0][1]])):
        summed = {
            name: sum(row[name] for row in same)
            for name in (
                *("requests", "lanes", "sectors", "ideal_sectors"),
                *("wavefronts", "ideal_wavefronts", "operations"),
            )
        }
        ways: dict[int, int] = {}
        for row in same:
            for way, many in row["ways"].items():
                ways[int(way)] = ways.get(int(way), 0) + many
        worst = max(same, key=lambda row: row["worst"])
        offsets = tuple(worst["sample"]["offsets"]) if worst["sample"] else ()
        found.append(
            Access(
                *key,
                **summed,
                worst=worst["worst"],
                worst_same=max(row["worst_same"] for row in same),
                ways=dict(sorted(ways.items())),
                worst_offsets=offsets,
            )
        )
    return found


def _steps(
    rows: list[dict[str, Any]], sites: dict[int, dict[str, Any]], words: Words
) -> list[Step]:
    found = []
    for row in rows:
        site = sites[row["site"]]
        found.append(
            Step(
                row["epoch"],
                words.line(site["pc"]),
                site["kind"],
                site["space"],
                words.array(site["array"]),
                row["requests"],
                row["lanes"],
                row["sectors"],
                row["wavefronts"],
                row["worst"],
                row["most"],
                tuple(row["masks"]),
            )
        )
    return found


Size = tuple[int, int, int]


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _sentence(row: dict[str, Any], words: Words, grid: Size, block: Size) -> str:
    """What ended a launch, for people."""
    kind = row["kind"]
    thread = words.thread(row["thread"], block)
    where = words.block(row["block"], grid)
    at = words.at(row["pc"])
    does = {"read": "reads", "write": "writes", "atomic": "changes"}.get(row.get("access", ""), "")
    if kind == "out_of_bounds":
        if row.get("null"):
            return f"out of bounds: {thread} of {where} {does} through a null pointer ({at})"
        if row.get("local"):
            return (
                f"out of bounds: {thread} of {where} {does} local memory that is not its own "
                f"({at}): beyond the end of a local array, or another thread's"
            )
        if "array" not in row:
            return f"out of bounds: {thread} of {where} {does} memory that is no array ({at})"
        name = words.array(row["array"])
        element = words.element(row["array"], row["offset"], row["element"])
        size = words.element_bytes(row["array"], row["element"])
        if row["space"] == "shared":
            has = (
                f"{name} has {row['bytes']} bytes"
                if row["bytes"]
                else (f"{name} has 0 bytes: the launch gives no dynamic shared memory")
            )
        else:
            has = f"{name} has {_many(row['bytes'] // size, 'element')}"
        return f"out of bounds: {thread} of {where} {does} {element} ({at}), but {has}"
    if kind == "misaligned":
        element = words.element(row["array"], row["offset"], row["element"])
        return (
            f"misaligned: {thread} of {where} {does} {row['size']} bytes at once at {element} "
            f"({at}), whose address is no multiple of {row['size']}"
        )
    if kind == "read_only":
        element = words.element(row["array"], row["offset"], row["element"])
        return f"{thread} of {where} writes {element} ({at}), which is constant"
    if kind == "uninitialized":
        element = words.element(row["array"], row["offset"], row["element"])
        return (
            f"uninitialized: {thread} of {where} reads {element} ({at}), which no thread of the "
            "block has written"
        )
    if kind == "endless":
        return (
            f"endless: {thread} of {where} took more than {row['limit']:,} steps and is in a loop "
            f"at {at}"
        )
    if kind in ("too_many_requests", "too_many_steps"):
        what = "requests to memory" if kind == "too_many_requests" else "different steps"
        return (
            f"too long between two barriers: the warps of {where} made more than "
            f"{row['limit']:,} {what} ({at}): if no loop there is endless, launch more threads or "
            "a smaller input"
        )
    if kind == "too_long":
        return (
            f"too long: the threads of this launch take more than {row['limit']:,} steps together; "
            "launch fewer threads or a smaller input"
        )
    if kind == "too_large":
        return f"this launch is too large to be watched ({at}): launch fewer threads"
    if kind == "too_deep":
        return f"{thread} of {where} is more than 64 calls or loops deep ({at})"
    if kind == "divergent_barrier":
        other = row["other"]
        return (
            f"divergent barrier: {thread} waits at __syncthreads() on {at} while "
            f"{words.thread(other['thread'], block)} waits at the one on {words.at(other['pc'])} "
            f"({where}): every thread of a block must reach the same one"
        )
    if kind == "ended_before_barrier":
        gone = words.thread(row["gone"], block)
        return (
            f"divergent barrier: {_many(row['ended'], 'thread')} (such as {gone}) had already "
            f"returned when "
            f"{thread} reached __syncthreads() on {at} ({where}): every thread of a block must "
            "reach it"
        )
    if kind == "stuck_collective":
        return _stuck(row, words, thread, where, at, block)
    if kind == "not_in_mask":
        return (
            f"warp-level function on {at}: {thread} of {where} is lane {row['lane']} and not in "
            f"its own mask {row['mask']:#010x}"
        )
    if kind == "shuffle_width":
        return f"shuffle on {at}: width is {row['width']}, it must be a power of two up to 32"
    if kind == "assertion":
        return f"assertion failed: {row['text']} ({thread} of {where}, {at})"
    if kind == "trap":
        return f"{thread} of {where} called __trap() ({at})"
    if kind == "division":
        return f"{thread} of {where} divides an integer by zero (or the least one by -1) near {at}"
    if kind == "stack":
        return f"{thread} of {where} uses more than 128 KiB of local memory near {at}"
    if kind == "local_array":
        return f"{thread} of {where} wrote beyond the end of a local array, before {at}"
    return f"{thread} of {where} touched memory that it may not, near {at}"


def _stuck(row: dict[str, Any], words: Words, thread: str, where: str, at: str, block: Size) -> str:
    missing = row.get("missing")
    head = f"warp-level function on {at}: {thread} of {where} waits for "
    if not missing:
        return f"{head}lanes of its mask {row['mask']:#010x} that never get there"
    other = words.thread(missing["thread"], block)
    if missing["at"] == "barrier":
        stays = f"it waits at __syncthreads() on {words.at(missing['pc'])}"
    elif "missing_mask" in row and row["missing_mask"] != row["mask"]:
        stays = (
            f"it waits on {words.at(missing['pc'])} with another mask, {row['missing_mask']:#010x} "
            f"instead of {row['mask']:#010x}"
        )
    else:
        stays = f"it waits at another function on {words.at(missing['pc'])}"
    return f"{head}{other}, which is in the mask but never gets there ({stays})"


def _race(row: dict[str, Any], words: Words, grid: Size, block: Size) -> str:
    """One pair of accesses that nothing orders."""
    does = {"read": "reads", "write": "writes", "atomic": "changes by an atomic"}
    did = {"read": "read", "write": "wrote", "atomic": "changed by an atomic"}
    element = words.element(row["array"], row["offset"], row["element"])
    mine, other = words.thread(row["thread"], block), words.thread(row["other_thread"], block)
    line, other_line = words.at(row["pc"]), words.at(row["other_pc"])
    many = f"{row['count']:,} such accesses" if row["count"] > 1 else "1 such access"
    head = f"race: {mine} {does[row['kind']]} {element} ({line}) which {other}"
    tail = f"{did[row['other_kind']]} at {other_line}"
    if row["block"] != row["other_block"]:
        return (
            f"{head} of {words.block(row['other_block'], grid)} {tail}: nothing orders two blocks "
            f"of a launch ({words.block(row['block'], grid)}; {many})"
        )
    if row["thread"] // 32 == row["other_thread"] // 32:
        missing = "__syncwarp() or __syncthreads()"
        why = ": lanes of a warp need not run in step"
    else:
        missing, why = "__syncthreads()", ""
    return (
        f"{head} {tail} with no {missing} between{why} ({words.block(row['block'], grid)}; {many})"
    )
