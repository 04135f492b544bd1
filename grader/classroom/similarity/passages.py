"""Which lines of two authors match: greedy string tiling over their common fingerprints.

The longest run of fingerprints that stand in a row in both is a passage; then the longest of what
is left, and so on (Wise 1993, "String similarity via greedy string tiling"). Runs that a line or
two separates on both sides are one passage, because a changed constant should not cut it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from grader.classroom.similarity.pair_scores import Ids, Language, OwnFile

MAX_PLACES = 8
"""How many places of one fingerprint are tried on the other side: code may repeat itself."""
MAX_RUNS = 2000
MAX_GAP_LINES = 2
_Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LineRange:
    """Lines `first` to `last` of a file, from 0, both included."""

    file: str
    first: int
    last: int

    @property
    def lines(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True)
class Passage:
    """Lines of one author that match lines of another. `holders`: how many authors have the
    fingerprints in it, in the middle (median); `score`: of its fingerprints, as a pair's."""

    left: LineRange
    right: LineRange
    score: float
    holders: int

    @property
    def lines(self) -> int:
        return min(self.left.lines, self.right.lines)


@dataclass(frozen=True, eq=False)
class _Side:
    """One author's files in one row: fingerprints of a file are consecutive, and between two files
    one number is left out, so that no run goes from one into the next."""

    files: Sequence[OwnFile]
    ids: Ids
    at: _Positions
    length: int

    def place(self, start: int) -> tuple[OwnFile, int]:
        for own in self.files:
            if start < len(own.ids):
                return own, start
            start -= len(own.ids) + 1
        raise AssertionError

    def span(self, start: int, count: int) -> LineRange:
        own, first = self.place(start)
        lines = own.printed.lines
        last = first + count - 1 + own.printed.k - 1
        return LineRange(own.printed.name, int(lines[first]), int(lines[last]))


def passages(language: Language, left: int, right: int) -> list[Passage]:
    """The matching passages of two authors, by their places in the first one's files."""
    one, other = (_side(language.files[author]) for author in (left, right))
    tiles = sorted(_tiles(one, other))
    found: list[tuple[LineRange, LineRange, list[Ids]]] = []
    for a, b, count in tiles:
        ids = one.ids[np.searchsorted(one.at, a) : np.searchsorted(one.at, a + count)]
        here, there = one.span(a, count), other.span(b, count)
        if found and _adjoin(found[-1][0], here) and _adjoin(found[-1][1], there):
            before = found[-1]
            found[-1] = (_joined(before[0], here), _joined(before[1], there), [*before[2], ids])
        else:
            found.append((here, there, [ids]))
    return [_passage(language, here, there, ids) for here, there, ids in found]


def _passage(language: Language, left: LineRange, right: LineRange, ids: Sequence[Ids]) -> Passage:
    known = np.unique(np.concatenate(ids))
    return Passage(left, right, language.score(known), int(np.median(language.holders[known])))


def _adjoin(before: LineRange, after: LineRange) -> bool:
    reach = before.last + MAX_GAP_LINES + 1
    return before.file == after.file and before.first <= after.first <= reach


def _joined(before: LineRange, after: LineRange) -> LineRange:
    return LineRange(before.file, before.first, max(before.last, after.last))


def _side(files: Sequence[OwnFile]) -> _Side:
    ids, at, start = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)], 0
    for own in files:
        here = np.flatnonzero(own.ids >= 0)
        ids.append(own.ids[here])
        at.append(here + start)
        start += len(own.ids) + 1
    return _Side(files, np.concatenate(ids), np.concatenate(at), start)


def _tiles(one: _Side, other: _Side) -> Iterator[tuple[int, int, int]]:
    """Runs that do not overlap, as (start in one, start in the other, how many fingerprints)."""
    starts, opposite, counts = _runs(*_matches(one, other))
    used_here, used_there = (np.zeros(side.length, np.bool_) for side in (one, other))
    for run in np.lexsort((opposite, starts, -counts))[:MAX_RUNS]:
        a, b, count = int(starts[run]), int(opposite[run]), int(counts[run])
        here, there = used_here[a : a + count], used_there[b : b + count]
        for offset, length in _stretches(~(here | there)):
            yield a + offset, b + offset, length
        here[:] = there[:] = True


def _stretches(free: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The stretches of true flags, as (offset, length)."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], free, [False])).astype(np.int8)))
    return [(int(first), int(end - first)) for first, end in edges.reshape(-1, 2)]


def _matches(one: _Side, other: _Side) -> tuple[_Positions, _Positions]:
    """Every place of a fingerprint in one with every place of it in the other, up to a number."""
    order = np.argsort(other.ids, kind="stable")
    first = np.searchsorted(other.ids[order], one.ids, "left")
    count = np.minimum(np.searchsorted(other.ids[order], one.ids, "right") - first, MAX_PLACES)
    here = np.repeat(one.at, count)
    nth = np.arange(len(here)) - np.repeat(np.cumsum(count) - count, count)
    there = other.at[order[np.repeat(first, count) + nth]] if len(here) else here
    return here, there


def _runs(here: _Positions, there: _Positions) -> tuple[_Positions, _Positions, _Positions]:
    """Matches that follow one another on both sides, as starts in both and counts."""
    order = np.lexsort((here, here - there))
    here, there = here[order], there[order]
    fresh = np.ones(len(here), np.bool_)
    fresh[1:] = (np.diff(here) != 1) | (np.diff(there) != 1)
    starts = np.flatnonzero(fresh)
    return here[starts], there[starts], np.diff(np.append(starts, len(here)))
