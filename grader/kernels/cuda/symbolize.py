"""Turns the program's output about a launch into a report: addresses become names and lines."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from grader.kernels.cuda.source import Array, Kernel, Source
from grader.kernels.findings import Actor, Element, KernelFinding, Size, position
from grader.kernels.report import Access, Report, Step
from grader.kernels.sentences import FindingKind

_FAR = 64 << 10  # bytes from a shared array; no static one is larger
_WHERE = ("pc", "thread", "block", "access")
_QUALIFIERS = ("const", "extern", "static", "volatile")
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


class Symbols:
    """Names of arrays, elements and lines in the learner's file, by a launch's addresses. `sizes`:
    bytes of the arrays whose size the file states."""

    def __init__(
        self, source: Source, kernel: Kernel, lines: dict[int, int], sizes: dict[str, int]
    ) -> None:
        self.source = source
        self.kernel = kernel
        self.lines = lines
        self.sizes = sizes

    def line(self, pc: int) -> int:
        return self.lines.get(pc, 0)

    def element(self, name: str, offset: int, element: int) -> Element:
        """The element at an offset in bytes."""
        short = array_name(name)
        declared = self.declared(name)
        index, rest = divmod(offset, self.element_bytes(name, element))
        shape = declared.shape if declared else None
        if shape == () and index == 0:
            return Element(short, (), rest)
        parts: list[int] = []
        for many in reversed(shape[1:] if shape else ()):
            index, inner = divmod(index, many)
            parts.append(inner)
        return Element(short, (index, *reversed(parts)), rest)

    def declared(self, name: str) -> Array | None:
        """The declaration of an array that is not an argument, by its name in the program."""
        before, _, short = name.rpartition("::")
        if not before and short in {parameter.name for parameter in self.kernel.parameters}:
            return None
        function = re.search(r"(\w+)(?:<[^()]*>)?(?:\(.*\))?(?: const)?$", before)
        return self.source.array(short, function[1] if function else "")

    def whole(self, name: str, many: int) -> str:
        """What an array of `many` bytes has: `8 floats`, `2 x 3 ints`, `4 elements of Pair`."""
        declared = self.declared(name)
        if declared is None or declared.shape is None:
            return f"{many:,} bytes"
        count = " x ".join(map(str, declared.shape)) or "1"
        words = [word for word in declared.type.split() if word not in _QUALIFIERS]
        kind, ending = " ".join(words), "" if math.prod(declared.shape) == 1 else "s"
        if words[-1:] and words[-1] in _SIZES:
            return f"{count} {kind}{ending}"
        return f"{count} element{ending} of {kind}"

    def named_on(self, line: int) -> set[str]:
        """The names on a line of the file."""
        rows = self.source.code.splitlines()
        return set(re.findall(r"\w+", rows[line - 1])) if 0 < line <= len(rows) else set()

    def element_bytes(self, name: str, element: int) -> int:
        """Bytes of an element: by its type, or by the array's size."""
        declared = self.declared(name)
        if declared is None:
            return element or 4
        words = re.findall(r"\w+", declared.type)
        if known := _bytes_of(words):
            return known
        if declared.shape is not None and name in self.sizes:
            return max(1, self.sizes[name] // max(1, math.prod(declared.shape)))
        return element or 4


def array_name(name: str) -> str:
    """`tile` of `reduce(float*, int)::tile`."""
    return name.rpartition("::")[2]


def report_of(
    data: dict[str, Any],
    source: Source,
    kernel: Kernel,
    lines: dict[int, int],
    sizes: tuple[Size, Size],
    printed: str,
) -> Report:
    """The report of the program's output; `sizes`: of the grid and of a block."""
    sites = {row["site"]: row for row in data["sites"]}
    totals = data["totals"]
    fixed = {row["name"]: row["bytes"] for row in data["arrays"] if not row["dynamic"]}
    symbols = Symbols(source, kernel, lines, fixed)
    used = [row for row in data["arrays"] if row["space"] == "shared" and row["used"]]
    ended = data["error"]
    if ended and ended["kind"] == "out_of_shared":
        ended = _outside_shared(ended, data["arrays"], symbols)
    errors = [_ending(ended, symbols, *sizes)] if ended else []
    races = sorted(data["races"], key=lambda row: row["kind"] != "read")
    errors += [_race(row, symbols, *sizes) for row in races]
    return Report(
        kernel.name,
        *sizes,
        accesses=_accesses(data["sites"], symbols),
        errors=errors,
        steps=_steps(data["steps"], sites, symbols),
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


_DETAILS = (
    *("bytes", "ended", "lane", "limit", "mask", "other_mask", "size", "text", "whole"),
    "width",
)


def _outside_shared(
    row: dict[str, Any], arrays: list[dict[str, Any]], symbols: Symbols
) -> dict[str, Any]:
    """An access outside of every shared array: past the end or before the beginning of the static
    one that its line names. Through a pointer it is charged to the nearest array, unless that is
    too far away to be known."""
    shared = {array["name"]: array for array in arrays if array["space"] == "shared"}
    named = symbols.named_on(symbols.line(row["pc"]))
    meant = [array for name, array in shared.items() if array_name(name) in named]
    array = shared[row["array"]]
    if len(meant) == 1:
        offset = row["offset"] + array["base"] - meant[0]["base"]
        array = meant[0]
        row = {**row, "array": array["name"], "offset": offset, "bytes": array["bytes"]}
    past = max(-row["offset"], row["offset"] - row["bytes"])
    if len(meant) != 1 and past > _FAR:
        return {key: row[key] for key in _WHERE} | {"kind": "no_array"}
    if array["dynamic"]:
        return row
    if 0 <= row["offset"] < row["bytes"]:  # several elements at once, the last ones beyond the end
        row = {**row, "offset": row["bytes"]}
    kind = "before_shared" if row["offset"] < 0 else "past_shared"
    return {**row, "kind": kind, "whole": symbols.whole(row["array"], row["bytes"])}


def _ending(row: dict[str, Any], symbols: Symbols, grid: Size, block: Size) -> KernelFinding:
    """What ended a launch."""
    kind = msgspec.convert(row["kind"], FindingKind)
    where = position(row["block"], grid)
    by = Actor(
        symbols.line(row["pc"]), row.get("access", ""), position(row["thread"], block), where
    )
    other = Actor()
    if "other_thread" in row:
        line = symbols.line(row.get("other_pc", 0))
        other = Actor(line, place=position(row["other_thread"], block), block=where)
    details = {name: row[name] for name in _DETAILS if name in row}
    if "array" not in row:
        return KernelFinding(kind, by, other, details=details)
    if "bytes" in row:
        each = symbols.element_bytes(row["array"], row["element"])
        details["elements"] = row["bytes"] // each
    element = symbols.element(row["array"], row["offset"], row["element"])
    return KernelFinding(kind, by, other, element, details)


def _race(row: dict[str, Any], symbols: Symbols, grid: Size, block: Size) -> KernelFinding:
    """One pair of unordered accesses."""
    if row["block"] != row["other_block"]:
        kind = FindingKind.RACE_OF_BLOCKS
    elif row["thread"] // 32 == row["other_thread"] // 32:
        kind = FindingKind.RACE_IN_WARP
    else:
        kind = FindingKind.RACE_IN_BLOCK
    by, other = (
        Actor(
            symbols.line(row[f"{which}pc"]),
            row[f"{which}kind"],
            position(row[f"{which}thread"], block),
            position(row[f"{which}block"], grid),
        )
        for which in ("", "other_")
    )
    element = symbols.element(row["array"], row["offset"], row["element"])
    return KernelFinding(kind, by, other, element, {"count": row["count"]})


def _accesses(rows: list[dict[str, Any]], symbols: Symbols) -> list[Access]:
    """One for each line, kind, array and size: a line may hold several such instructions."""
    merged: dict[tuple[int, str, str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        array = array_name(row["array"])
        key = (symbols.line(row["pc"]), row["kind"], row["space"], array, row["size"])
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
    rows: list[dict[str, Any]], sites: dict[int, dict[str, Any]], symbols: Symbols
) -> list[Step]:
    found = []
    for row in rows:
        site = sites[row["site"]]
        found.append(
            Step(
                row["epoch"],
                symbols.line(site["pc"]),
                site["kind"],
                site["space"],
                array_name(site["array"]),
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
