"""What `infralens show lab05` draws: the bank of each element of the learner's tile, the elements
that the worst request asks for, what each line costs. One block turns a 32 x 32 matrix."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy

from grader.learner.pictures import (
    Bar,
    Bars,
    Cell,
    Drawing,
    Grid,
    Key,
    Panel,
    Picture,
    PictureFault,
    Stack,
    launched,
    shade,
)

SIDE = 32
BANKS = 32
TILED = {
    "transpose_tiled": "before",
    "transpose_padded": "after",
    "transpose_swizzled": "after",
}
Layout = numpy.ndarray[Any, Any]  # word of element (row, column), or -1 where it is not known


def pictures(student: Any) -> Iterator[Picture]:
    @cache
    def report(kernel: str) -> dict[str, Any]:
        return _report(student, kernel)

    yield Picture(
        "Where the tile's elements lie",
        "A cell is an element of the tile in shared memory, its number and its shade are the bank "
        "it lies in; ringed are the elements that one request asks for, a lane each, and every "
        "bank answers for one word at a time: equal numbers in rings wait for each other.",
        [
            Panel(name, lambda name=name: _banks(student, name, report(name)), f"{name}: {when}")
            for name, when in TILED.items()
        ],
        keys=[Key("", "asked for by the worst request", ring=True)],
    )
    yield Picture(
        "What each line costs",
        "A bar is the mean of one line's requests: for the matrices in global memory the sectors "
        "of 32 bytes that it touches, for the tile the wavefronts that it takes; blue could not "
        "be less, orange is given away.",
        [
            Panel(name, lambda name=name: _costs(name, report(name)), name)
            for name in ("transpose_naive", *TILED)
        ],
        keys=[Key("blue", "needed"), Key("orange", "given away")],
    )


def _report(student: Any, kernel: str) -> dict[str, Any]:
    """What one block did; a Fault where the kernel is wrong, for its counts then mean nothing."""
    student.read("transpose.cu")
    matrix = numpy.arange(SIDE * SIDE, dtype=numpy.float32).reshape(SIDE, SIDE)
    args = [matrix, numpy.full_like(matrix, numpy.nan), SIDE, SIDE]
    report, arrays = student.probe.launch(kernel, [1, 1], [SIDE, 8], args)
    launched(report)
    if not numpy.array_equal(arrays[1], matrix.T):
        y, x = numpy.argwhere(arrays[1] != matrix.T)[0]
        raise PictureFault(
            f"out[{y * SIDE + x}] is {arrays[1][y, x]:g} where the transpose has {matrix.T[y, x]:g}"
        )
    return dict(report)


# -- banks ----------------------------------------------------------------------------------------


def _banks(student: Any, kernel: str, report: dict[str, Any]) -> Drawing:
    requests = _requests(report)
    access, words = requests[0]
    size = report["shared_bytes"] // 4
    layout, rule = _layout(student, kernel, [words for _, words in requests], size)
    asked = set(words)
    cells = [
        [
            Cell()
            if word < 0
            else Cell(shade(word % BANKS, BANKS), str(word % BANKS), word in asked)
            for word in row
        ]
        for row in layout.tolist()
    ]
    counts = [0] * BANKS
    for word in asked:
        counts[word % BANKS] += 1
    verb = {"read": "reads", "write": "writes", "atomic": "changes"}[access["kind"]]
    used = sum(count > 0 for count in counts)
    said = (
        f"Line {access['line']} {verb} {_many(len(asked), 'word')} in {_many(used, 'bank')}: "
        f"{_many(access['worst'], 'wavefront')}."
    )
    labels = [str(number) for number in range(SIDE)]
    tile = Grid(
        cells,
        alt=f"{kernel}: {rule} {said}",
        cell=(11.75, 11.75),
        row_labels=labels,
        column_labels=labels,
        row_name="row",
        column_name="column of the tile",
        caption=rule,
    )
    load = Grid(
        [
            [
                Cell("blue" if n == 1 else "orange" if n else "off", str(n) if n else "")
                for n in counts
            ]
        ],
        alt="",
        cell=(11.75, 18),
        row_labels=["words"],
        column_labels=labels,
        column_name="bank, and the words it is asked for by the ringed request",
        caption=said,
    )
    return Stack([tile, load])


def _requests(report: dict[str, Any]) -> list[tuple[dict[str, Any], list[int]]]:
    """Each line's access to shared memory by a whole warp, with the words that its worst request
    asked for, lane by lane; first the one whose words lie furthest apart, which is the one that
    goes down the tile's columns."""
    found = []
    for access in report["accesses"]:
        words = [at // 4 for at in access["worst_offsets"] if at is not None]
        if access["space"] == "shared" and access["size"] == 4 and len(words) == SIDE:
            found.append((access, words))
    if not found:
        raise PictureFault("no line reads or writes shared memory with 32 lanes of 4 bytes each")
    return sorted(found, key=lambda row: min(row[1]) - max(row[1]))


def _layout(student: Any, kernel: str, requests: list[list[int]], size: int) -> tuple[Layout, str]:
    """The word of each element, and the rule in a sentence: as the learner's own swizzle(row,
    column) gives it, or rows that lie evenly apart in `size` words. The requests that were seen
    must agree; else only the words of the first one are known."""
    rows, columns = numpy.indices((SIDE, SIDE))
    words = requests[0]
    if kernel == "transpose_swizzled":
        place = numpy.full(SIDE * SIDE, -1, dtype=numpy.int32)
        report, arrays = student.probe.launch("swizzle_map", [1, 1], [SIDE, 8], [place])
        layout = SIDE * rows + arrays[0].reshape(SIDE, SIDE)
        if not report["errors"] and _agrees(layout, requests):
            return layout, "By swizzle(row, column), to which the ringed words conform."
    pitch = words[1] - words[0]
    layout = pitch * rows + columns
    if pitch >= SIDE and layout.max() < size and _agrees(layout, requests):
        return layout, f"Rows lie {pitch} words apart, as the ringed words do."
    known = numpy.full((SIDE, SIDE), -1)
    known[:, 0] = words
    return known, "The rule is not known: only the words of one request are drawn, lane by lane."


def _agrees(layout: Layout, requests: list[list[int]]) -> bool:
    """Whether every request is a column or a row of the layout, lane by lane."""
    lines = [*layout.tolist(), *layout.T.tolist()]
    return all(words in lines for words in requests)


# -- costs ----------------------------------------------------------------------------------------


def _costs(kernel: str, report: dict[str, Any]) -> Drawing:
    parts: list[Drawing] = []
    for space, counter, unit in (
        ("global", "sectors", "sectors a request"),
        ("shared", "wavefronts", "wavefronts a request"),
    ):
        bars, words = [], []
        for access in report["accesses"]:
            if access["space"] == space:
                mean = access[counter] / access["requests"]
                ideal = access[f"ideal_{counter}"] / access["requests"]
                verb = {"read": "reads", "write": "writes"}.get(access["kind"], "changes")
                label = f"line {access['line']} {verb} {access['array']}"
                bars.append(
                    Bar(label, (ideal, max(mean - ideal, 0.0)), f"{mean:g}, ideal {ideal:g}")
                )
                words.append(f"{label}: {mean:g} (ideal {ideal:g})")
        if bars:
            alt = f"{kernel}, {unit}: {'; '.join(words)}."
            parts.append(Bars(bars, alt, unit=unit, limit=32, width=105))
    if not parts:
        raise PictureFault("the kernel touched no memory")
    return Stack(parts)


def _many(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"
