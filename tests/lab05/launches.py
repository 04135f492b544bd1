"""Launches of a learner's kernels as tests see them: the report, the values, and what went
wrong."""

from __future__ import annotations

import numpy as np

from grader.kernels import Report
from grader.suite import expect

BLOCK = [32, 8]
_WHY = {
    "race": "until they meet at a barrier, the threads of a block run in any order",
    "out of bounds of shared memory": "a shared array has the elements of its declaration, no more",
    "out of bounds": "a matrix has w * h elements, and tiles hang over its edge where w or h is no "
    "multiple of 32",
    "uninitialized": "an element of the tile must be written before it is read",
}
# Zeros, infinities, NaNs (quiet and signalling, with and without a payload), the smallest and the
# largest floats, and -1/3, as bits: a conversion on the way would change some of them.
_KINDS = np.array(
    [
        *(0x00000000, 0x80000000),
        *(0x7F800000, 0xFF800000),
        *(0x7FC00000, 0xFFC01234, 0x7F800001, 0xFFA00001),
        *(0x00000001, 0x807FFFFF, 0x00800000),
        *(0x7F7FFFFF, 0xFF7FFFFF, 0xBEAAAAAB),
    ],
    dtype=np.uint32,
)


def grid(h, w):
    return [-(-w // 32), -(-h // 32)]


def transposed(student, name, h, w, rng, seed=0, text=None):
    """Launch on a matrix of h x w different numbers, none of them whole; the report, what was
    written and the matrix's transpose. Elements that are not written stay NaN."""
    matrix = (rng.permutation(h * w) + 0.5).astype(np.float32).reshape(h, w)
    return launched_on(student, name, matrix, seed, text)


def every_kind(rng, h, w):
    """A matrix of h x w floats of every kind, drawn by their bits."""
    return rng.choice(_KINDS, size=(h, w)).view(np.float32)


def launched_on(student, name, matrix, seed=0, text=None):
    """The same with a matrix of the caller's. `text`: of a file in place of the learner's."""
    student.read("transpose.cu")
    h, w = matrix.shape
    out = np.full((w, h), np.nan, dtype=np.float32)
    args = [matrix, out, w, h]
    launch = [name, grid(h, w), BLOCK, args, seed]
    if text is None:
        data, arrays = student.probe.launch(*launch)
    else:
        data, arrays = student.probe.launch_text(text, *launch)
    report = Report.from_plain(data)
    launched(report)
    return report, arrays[1], matrix.T.copy()


def launched(report):
    """No error and no race: else the first of them is the message."""
    expect.launched(report.errors, _WHY)


def global_counters(report):
    """Requests to global memory, and sectors for each, as one line."""
    return ", ".join(
        _of(report, kind, "global", word, "sectors", "sector")
        for kind, word in (("read", "loads"), ("write", "stores"))
    )


def moved(report):
    """How often global memory was read and written by single lanes, and by how many bytes each."""
    parts = []
    for kind, word in (("read", "reads"), ("write", "writes")):
        lanes: dict[int, int] = {}
        for row in report.of(kind, "global"):
            lanes[row.size] = lanes.get(row.size, 0) + row.lanes
        each = [f"{count:,} {word} of {size} bytes" for size, count in sorted(lanes.items())]
        parts.append(" and ".join(each) or f"0 {word}")
    return ", ".join(parts)


def shared_counters(report, rows=False):
    """The same for shared memory and wavefronts, with the memory that was used. `rows`: also in how
    many rows of the tile the lanes of a request lie."""
    parts = []
    for kind in ("write", "read"):
        text = _of(report, kind, "shared", f"{kind}s", "wavefronts", "wavefront")
        parts.append(text + (f" in {_count(_rows(report, kind), 'row')}" if rows else ""))
    return ", ".join([*parts, f"{report.shared_bytes:,} bytes"])


def sides(report):
    """How far apart the words of neighbouring lanes lie in the tile, for writes and for reads."""
    parts = []
    for kind in ("write", "read"):
        steps = set()
        for words in requests(report, kind):
            steps |= set(np.diff(words).tolist())
        apart = f"{abs(steps.pop())} apart" if len(steps) == 1 else "at uneven distances"
        parts.append(f"{kind}s of words {apart}")
    return ", ".join(parts)


def requests(report, kind=""):
    """The words of the tile that a request of each line asked for: of one of its worst."""
    rows = report.of(kind, "shared")
    found = [[at // 4 for at in row.worst_offsets if at is not None] for row in rows]
    return [words for words in found if len(words) == 32]


def wavefronts(report, kind):
    """Wavefronts of a request to shared memory, on average."""
    return report.total("wavefronts", kind, "shared") / max(
        report.total("requests", kind, "shared"), 1
    )


def _of(report, kind, space, word, field, unit):
    requests = report.total("requests", kind, space)
    mean = round(report.total(field, kind, space) / max(requests, 1), 2)
    return f"{requests} {word}" + (f" of {_count(mean, unit)}" if requests else "")


def _count(number, noun):
    return f"{number:g} {noun}" + ("" if number == 1 else "s")


def _rows(report, kind):
    """Rows of the tile in which the lanes of one request lie, for one of the worst requests."""
    offsets = [a for row in report.of(kind, "shared") for a in row.worst_offsets if a is not None]
    return len({offset // 128 for offset in offsets})
