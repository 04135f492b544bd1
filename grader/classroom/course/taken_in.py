"""What each student of the roster handed in, attempt by attempt, and which of them is taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from grader import readable
from grader.classroom.course.matching import Matched, Matching
from grader.classroom.course.roster import RosterRow
from grader.classroom.intake.archives import suffix_of
from grader.classroom.intake.downloads import Part
from grader.lab.manifest import Lab

BY_OPTION = "--at"
TAKEN = "submissions"
EARLIER = "earlier"


@dataclass(frozen=True)
class TakenIn:
    """One student's attempt. by: what decided whose it is. files: what is copied, by its name in
    the lab (an archive by the name that it gets). at, at_from: when it was handed in, and whose
    clock says so. place: the folder below the intake's that holds it."""

    student: RosterRow
    by: str
    part: Part
    files: Mapping[str, str]
    at: datetime | None
    at_from: str
    place: str = TAKEN

    @property
    def is_taken(self) -> bool:
        return self.place == TAKEN


def sorted_out(
    parts: Iterable[Part], matching: Matching, lab: Lab, at: datetime | None = None
) -> tuple[list[TakenIn], list[tuple[Part, Matched]]]:
    """Every attempt, by student and in the order of time, the last of each student's to be taken;
    and what could not be matched. at: for those of which the download has no time."""
    found: dict[str, list[TakenIn]] = {}
    left: list[tuple[Part, Matched]] = []
    for part in parts:
        matched = matching.of(part)
        if matched.student is None:
            left.append((part, matched))
            continue
        moment, source = (part.at, part.at_from) if part.at or not at else (at, BY_OPTION)
        one = TakenIn(matched.student, matched.by, part, chosen(part, lab), moment, source)
        mine = found.setdefault(one.student.id, [])
        if all(
            before.part != part for before in mine
        ):  # listed twice as one submission's submitter
            mine.append(one)
    rows = []
    for _, mine in sorted(found.items()):
        *before, last = sorted(mine, key=_turn)
        rows += [replace(one, place=f"{EARLIER}/{n}") for n, one in enumerate(before, 1)]
        rows.append(last)
    return rows, left


def _turn(one: TakenIn) -> tuple[float, int]:
    """By time, then by the system's number, which grows; then as they stand in the download."""
    number = one.part.number if one.part.system == "gradescope" else ""
    return one.at.timestamp() if one.at else float("-inf"), int(number or 0)


def chosen(part: Part, lab: Lab) -> dict[str, str]:
    """Of a part's files those that the lab takes: in a folder of the lab's name before others, then
    the one nearest to the top. Without any, an archive, if there is one alone."""
    found: dict[str, str] = {}
    for name in lab.edit:
        places = [given for given in part.files if given.rpartition("/")[2] == name]
        places.sort(key=lambda given: (f"{lab.id}/" not in f"/{given}", given.count("/"), given))
        if places:
            found[name] = part.files[places[0]]
    archives = [given for given in part.files if suffix_of(given)]
    if not found and len(archives) == 1:
        return {archives[0]: part.files[archives[0]]}
    return found


def several(rows: Sequence[TakenIn]) -> Iterator[str]:
    """A sentence on each student with more than one attempt."""
    by_student: dict[str, list[TakenIn]] = {}
    for one in rows:
        by_student.setdefault(one.student.id, []).append(one)
    for student, mine in by_student.items():
        if len(mine) == 1:
            continue
        *before, last = mine
        others = ", ".join(f"{label(one.part)} in {one.place}" for one in before[:3])
        more = f" and {len(before) - 3} more" if len(before) > 3 else ""
        yield (
            f"{student} stands {_times(len(mine))}: {label(last.part)} is taken"
            f"{_why(before[-1], last)}; {others}{more}."
        )


def _why(before: TakenIn, last: TakenIn) -> str:
    if last.at is None:
        return ", and no time says that it is the last"
    if before.at == last.at:
        same = "has the same time as" if last.at_from != BY_OPTION else "has no time either, as"
        return f", though it {same} {label(before.part)}: look at both"
    return ""


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def odd_ones(rows: Sequence[TakenIn], left: Iterable[Part], now: datetime) -> Iterator[str]:
    """A sentence on each attempt with something that a person should know."""
    for part in (*(one.part for one in rows), *left):
        if part.note:
            yield f"{label(part)} {part.note}."
    for one in rows:
        if one.at is not None and one.at > now:
            yield (
                f"{label(one.part)} of {one.student.id} was handed in at "
                f"{one.at.isoformat(timespec='minutes')}, which is still to come: a clock is "
                "wrong, and its lateness counts as it stands."
            )


def label(part: Part) -> str:
    return readable.line(part.label, 80)
