"""A Kineto trace as the SQLite file that `nsys export --type=sqlite` writes; such files by hand.

As in an export, a table exists only if it has rows, times are nanoseconds from the session's
start, names are ids into StringIds, an NVTX range has its text either in `text` or, registered, in
`textId` (then `text` is NULL), and a thread is one number, `globalTid`.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

PUSH_POP, START_END, MARK, DOMAIN = 59, 60, 34, 75
COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "PtoP": 10}
MEMORY_KINDS = {"Pageable": 0, "Pinned": 1, "Device": 2}
NCCL_DOMAIN = 1

_COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
        "contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, "
        "globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, "
        "registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, "
        "gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, "
        "blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, graphNodeId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
        "contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, "
        "globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, "
        "dstKind INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
        "contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, "
        "globalPid INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, "
        "globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, "
        "returnValue INTEGER NOT NULL"
    ),
    "NVTX_EVENTS": (
        "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, "
        "category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, "
        "textId INTEGER, domainId INTEGER"
    ),
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "ThreadNames": "nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER",
    "ENUM_CUDA_MEMCPY_OPER": "id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT",
    "ENUM_CUDA_MEM_KIND": "id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT",
}
# An export names the calls with the version of their interface.
_VERSIONS = {
    "cudaLaunchKernel": "_v7000",
    "cudaLaunchKernelExC": "_v11060",
    "cudaMemcpyAsync": "_v3020",
    "cudaMemsetAsync": "_v3020",
    "cudaStreamSynchronize": "_v3020",
    "cudaDeviceSynchronize": "_v3020",
    "cudaEventRecord": "_v3020",
    "cudaStreamWaitEvent": "_v3020",
}


def global_tid(pid: int, tid: int) -> int:
    """One number for a thread: machine, process and thread, 24 bits for each of the last two."""
    return (1 << 48) + (pid << 24) + tid


class Database:
    """Rows by table; `write` makes a table for each that has rows."""

    def __init__(self) -> None:
        self.tables: dict[str, list[tuple[Any, ...]]] = {}
        self.strings: dict[str, int] = {}

    def string(self, text: str) -> int:
        """The id of a text; ids begin far above 0, as in an export."""
        return self.strings.setdefault(text, 40 + len(self.strings))

    def add(self, table: str, *row: Any) -> None:
        self.tables.setdefault(table, []).append(row)

    def write(self, path: Path) -> Path:
        path.unlink(missing_ok=True)
        tables = dict(self.tables)
        if self.strings:
            tables["StringIds"] = [(number, text) for text, number in self.strings.items()]
        with closing(sqlite3.connect(path)) as connection, connection:
            for table, rows in tables.items():
                connection.execute(f"CREATE TABLE {table} ({_COLUMNS[table]})")
                marks = ", ".join("?" * len(rows[0]))
                connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        return path


def write(trace: dict[str, Any] | Path, path: Path, textless: bool = True) -> Path:
    """The trace as an export in `path`. With `textless`, ranges have their text in StringIds."""
    if isinstance(trace, Path):
        raw = trace.read_bytes()
        trace = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X" and "dur" in event]
    made = Database()
    begin = min((event["ts"] for event in events if isinstance(event["pid"], int)), default=0)
    host = {event["pid"] for event in events if event.get("cat") == "cuda_runtime"}
    pid = min(host, default=0)

    def span(event: dict[str, Any]) -> tuple[int, int]:
        start = round((event["ts"] - begin) * 1000)
        return start, start + round(event["dur"] * 1000)

    for event in events:
        _ROWS.get(event.get("cat", ""), _nothing)(made, event, span(event), pid, textless)
    if "NVTX_EVENTS" in made.tables:
        thread = global_tid(pid, pid)
        made.add(
            "NVTX_EVENTS", 0, None, DOMAIN, None, None, None, "NCCL", thread, None, None,
            NCCL_DOMAIN,
        )  # fmt: skip
    if "CUPTI_ACTIVITY_KIND_MEMCPY" in made.tables:
        _enums(made)
    return made.write(path)


_Row = Callable[[Database, dict[str, Any], tuple[int, int], int, bool], None]


def _nothing(
    made: Database, event: dict[str, Any], span: tuple[int, int], pid: int, textless: bool
) -> None:
    """What an export has no row for."""


def _where(args: dict[str, Any], pid: int) -> tuple[Any, ...]:
    number = args.get("correlation")
    return args["device"], args["context"], args["stream"], number, (1 << 48) + (pid << 24)


def _kernel(
    made: Database, event: dict[str, Any], span: tuple[int, int], pid: int, textless: bool
) -> None:
    args, name = event["args"], event["name"]
    grid, block = args.get("grid", [1, 1, 1]), args.get("block", [1, 1, 1])
    short = made.string(short_name(name))
    made.add(
        "CUPTI_ACTIVITY_KIND_KERNEL", *span, *_where(args, pid), made.string(name), short,
        args.get("registers per thread", 0), *grid, *block, args.get("shared memory", 0), None,
    )  # fmt: skip


def _memcpy(
    made: Database, event: dict[str, Any], span: tuple[int, int], pid: int, textless: bool
) -> None:
    args, words = event["args"], event["name"].replace("(", "").replace(")", "").split()
    source, target = words[2], words[4]  # Memcpy HtoD (Pageable -> Device)
    made.add(
        "CUPTI_ACTIVITY_KIND_MEMCPY", *span, *_where(args, pid), args["bytes"],
        COPY_KINDS[words[1]], MEMORY_KINDS[source], MEMORY_KINDS[target],
    )  # fmt: skip


def _memset(
    made: Database, event: dict[str, Any], span: tuple[int, int], pid: int, textless: bool
) -> None:
    where = _where(event["args"], pid)
    device = MEMORY_KINDS["Device"]
    size = event["args"]["bytes"]
    made.add("CUPTI_ACTIVITY_KIND_MEMSET", *span, *where, 0, size, device)


def _runtime(
    made: Database, event: dict[str, Any], span: tuple[int, int], pid: int, textless: bool
) -> None:
    name = made.string(event["name"] + _VERSIONS.get(event["name"], "_v3020"))
    thread = global_tid(event["pid"], event["tid"])
    number = event["args"]["correlation"]
    made.add("CUPTI_ACTIVITY_KIND_RUNTIME", *span, 0, thread, number, name, 0)


def _range(
    made: Database, event: dict[str, Any], span: tuple[int, int], pid: int, textless: bool
) -> None:
    name, thread = event["name"], global_tid(event["pid"], event["tid"])
    text, number = (None, made.string(name)) if textless else (name, None)
    domain = NCCL_DOMAIN if name.startswith("nccl:") else 0
    made.add("NVTX_EVENTS", *span, PUSH_POP, None, None, None, text, thread, None, number, domain)


_ROWS: dict[str, _Row] = {
    "kernel": _kernel,
    "gpu_memcpy": _memcpy,
    "gpu_memset": _memset,
    "cuda_runtime": _runtime,
    "user_annotation": _range,
}


def short_name(name: str) -> str:
    """The function's own name: no return type, namespaces, template arguments or parameters."""
    kept, depth = [], 0
    for letter in name.replace("(anonymous namespace)", "anonymous"):
        if letter == "(" and depth == 0:
            break
        depth += (letter == "<") - (letter == ">")
        if depth == 0 and letter != ">":
            kept.append(letter)
    return "".join(kept).strip().rpartition("::")[2].rpartition(" ")[2] or name


def _enums(made: Database) -> None:
    labels = {"HtoD": "Host-to-Device", "DtoH": "Device-to-Host", "DtoD": "Device-to-Device"}
    for kind, number in COPY_KINDS.items():
        name = f"CUDA_MEMCPY_KIND_{kind.upper()}"
        made.add("ENUM_CUDA_MEMCPY_OPER", number, name, labels.get(kind, "Peer-to-Peer"))
    for kind, number in MEMORY_KINDS.items():
        made.add("ENUM_CUDA_MEM_KIND", number, f"CUDA_MEMOPR_MEMORY_KIND_{kind.upper()}", kind)


# -- by hand --------------------------------------------------------------------------------------


def _kernel_row(made: Database, start: int, end: int, name: str, number: int | None) -> None:
    names = (made.string(f"void {name}<float>(int)"), made.string(name))
    grid = (8, 1, 1, 128, 1, 1)
    where = (0, 1, 7, number, (1 << 48) + (500 << 24))
    made.add("CUPTI_ACTIVITY_KIND_KERNEL", start, end, *where, *names, 32, *grid, 0, None)


def _call_row(made: Database, start: int, end: int, name: str, number: int) -> None:
    thread = global_tid(500, 501)
    made.add("CUPTI_ACTIVITY_KIND_RUNTIME", start, end, 0, thread, number, made.string(name), 0)


def _copy_row(made: Database, start: int, end: int, size: int, kind: int) -> None:
    where = (0, 1, 7, 900 + start % 90, (1 << 48) + (500 << 24))
    made.add("CUPTI_ACTIVITY_KIND_MEMCPY", start, end, *where, size, kind, 0, 2)


def _nvtx_row(
    made: Database, start: int, end: int | None, kind: int, text: str | None, number: int | None
) -> None:
    thread = global_tid(500, 501)
    row = (start, end, kind, None, None, None, text, thread, None, number, 0)
    made.add("NVTX_EVENTS", *row)


def _of(rows: Iterable[tuple[int, int, str, int | None]], made: Database | None = None) -> Database:
    made = made or Database()
    for start, end, name, number in rows:
        _kernel_row(made, start, end, name, number)
    return made


def only_kernels(path: Path) -> tuple[Path, dict[str, Any]]:
    """Recorded with `-t cuda` on a process that launched from a graph: kernels, and nothing else.
    Two of them run at the same time."""
    made = _of([(1000, 6000, "gemm", 1), (4000, 9000, "gemm", 2), (19_000, 20_000, "add", 3)])
    facts = {
        "kernels": {"gemm": (2, 10.0), "add": (1, 1.0)}, "launch_us": [], "h2d_bytes": 0,
        "gaps_us": [10.0], "busy_us": 9.0, "ranges": {},
    }  # fmt: skip
    return made.write(path), facts


def no_kernels(path: Path) -> tuple[Path, dict[str, Any]]:
    """A process that only copied."""
    made = Database()
    _copy_row(made, 2000, 5000, 4096, COPY_KINDS["HtoD"])
    _copy_row(made, 7000, 8000, 100, COPY_KINDS["DtoH"])
    _copy_row(made, 8000, 9000, 50, COPY_KINDS["HtoD"])
    facts = {
        "kernels": {}, "launch_us": [], "h2d_bytes": 4146, "gaps_us": [2.0], "busy_us": 5.0,
        "ranges": {},
    }  # fmt: skip
    return made.write(path), facts


def null_text(path: Path) -> tuple[Path, dict[str, Any]]:
    """Ranges with a text of their own, with a registered one, with none at all; a mark without an
    end and a domain among them."""
    made = _of([(5000, 7000, "gemm", 1), (8000, 9000, "gemm", 2)])
    _call_row(made, 1000, 1500, "cudaLaunchKernel_v7000", 1)
    _call_row(made, 3000, 3500, "cudaLaunchKernel_v7000", 2)
    _nvtx_row(made, 900, 2000, PUSH_POP, "forward", None)
    _nvtx_row(made, 2500, 4000, PUSH_POP, None, made.string("backward"))
    _nvtx_row(made, 4100, 4200, PUSH_POP, None, None)
    _nvtx_row(made, 4300, None, MARK, "here", None)
    _nvtx_row(made, 0, None, DOMAIN, "NCCL", None)
    facts = {
        "kernels": {"gemm": (2, 3.0)}, "launch_us": [4.0, 5.0], "h2d_bytes": 0, "gaps_us": [1.0],
        "busy_us": 3.0, "ranges": {"forward": 2.0, "backward": 1.0},
    }  # fmt: skip
    return made.write(path), facts


def graph_launch(path: Path) -> tuple[Path, dict[str, Any]]:
    """One launch of a graph and three kernels with its correlation id; and a call without work."""
    made = _of([(5000, 6000, "a", 9), (6000, 7000, "b", 9), (7500, 8000, "c", 9)])
    _call_row(made, 1000, 2000, "cudaGraphLaunch_v10000", 9)
    _call_row(made, 2500, 2600, "cudaEventRecord_v3020", 10)
    facts = {
        "kernels": {"a": (1, 1.0), "b": (1, 1.0), "c": (1, 0.5)}, "launch_us": [4.0, 5.0, 6.5],
        "h2d_bytes": 0, "gaps_us": [0.5], "busy_us": 2.5, "ranges": {},
    }  # fmt: skip
    return made.write(path), facts


def unmatched(path: Path) -> tuple[Path, dict[str, Any]]:
    """A kernel whose launch was not recorded, one without a correlation id, and one of each."""
    made = _of([(5000, 6000, "a", 9), (6000, 7000, "b", None), (9000, 9500, "a", 77)])
    _call_row(made, 4000, 4500, "cudaLaunchKernel_v7000", 9)
    facts = {
        "kernels": {"a": (2, 1.5), "b": (1, 1.0)}, "launch_us": [1.0], "h2d_bytes": 0,
        "gaps_us": [2.0], "busy_us": 2.5, "ranges": {},
    }  # fmt: skip
    return made.write(path), facts


def empty(path: Path) -> tuple[Path, dict[str, Any]]:
    """Nothing was recorded: a database without a single table."""
    facts: dict[str, Any] = {
        "kernels": {}, "launch_us": [], "h2d_bytes": 0, "gaps_us": [], "busy_us": 0.0,
        "ranges": {},
    }  # fmt: skip
    return Database().write(path), facts


# Facts in microseconds. `kernels` by short name: (count, sum of durations); `launch_us`: from the
# start of the call to the start of each kernel; `ranges`: sum of the kernels launched in each.
EDGES: dict[str, Callable[[Path], tuple[Path, dict[str, Any]]]] = {
    function.__name__: function
    for function in (only_kernels, no_kernels, null_text, graph_launch, unmatched, empty)
}
