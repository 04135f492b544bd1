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
from grader.classroom.intake.found_files import Place, candidates, is_aside, place_of, stem
from grader.classroom.intake.submissions import MAX_PACKED, NOT_READ
from grader.lab.manifest import Lab

BY_OPTION = "--at"
TAKEN = "submissions"
EARLIER = "earlier"
NUMBERED = ("canvas", "moodle")
"""Systems in whose downloads every student has one number."""
MOST_RIVALS = MAX_PACKED + 1


@dataclass(frozen=True)
class TakenIn:
    """One student's attempt. by: what decided whose it is. files: what is copied, by its place
    below the student's folder. at, at_from: when it was handed in, and whose clock says so. place:
    the folder below the intake's that holds it."""

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
    for part, matched in _each_of_one(list(parts), matching):
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


def _each_of_one(parts: Sequence[Part], matching: Matching) -> Iterator[tuple[Part, Matched]]:
    """Whose each part is. Canvas and Moodle give everybody a number: where two numbers come to one
    student, those that come by a name are nobody's, because they are of several people."""
    found = [(part, matching.of(part)) for part in parts]
    numbers: dict[tuple[str, str], set[str]] = {}
    for part, matched in found:
        if matched.student is not None and part.system in NUMBERED:
            numbers.setdefault((part.system, matched.student.id), set()).add(part.number)
    for part, matched in found:
        row = matched.student
        if row and matched.by == "name" and len(numbers.get((part.system, row.id), ())) > 1:
            matched = Matched(None, nearest=(row,))
        yield part, matched


def _turn(one: TakenIn) -> tuple[float, int]:
    """By time, then by the system's number, which grows; then as they stand in the download."""
    number = one.part.number if one.part.system == "gradescope" else ""
    return one.at.timestamp() if one.at else float("-inf"), int(number or 0)


def chosen(part: Part, lab: Lab) -> dict[str, str]:
    """Of a part's files those that the lab takes, by the place below a student's folder where
    grading finds them: in the lab's folder where it is plain which file is meant (`found_files`),
    else every file that may be, where it lies. Without any, the archives; without these, what may
    be a file of the lab under another name, or is not read, so that its student hears of it."""
    paths = {given: tuple(given.split("/")) for given in part.files}
    found: dict[str, str] = {}
    for name in lab.edit:
        mine = candidates([path for path in paths.values() if path[-1] == name], lab.id)
        if mine and (len(mine) == 1 or place_of(mine[0], lab.id) is Place.CANONICAL):
            found[f"{lab.id}/{name}"] = part.files["/".join(mine[0])]
        else:
            found |= {given: part.files[given] for given in map("/".join, mine[:MOST_RIVALS])}
    if found:
        return found
    files = [given for given, path in paths.items() if not any(map(is_aside, path))]
    archives = [given for given in files if suffix_of(given)]
    others = [] if archives else [given for given in files if _is_clue(paths[given][-1], lab)]
    return {given: part.files[given] for given in (*archives, *others)[:MOST_RIVALS]}


def _is_clue(name: str, lab: Lab) -> bool:
    """Whether a file says why there is none of the lab."""
    return name.lower().endswith(NOT_READ) or stem(name) in map(stem, lab.edit)


def holds_some(files: Iterable[str], lab: Lab) -> bool:
    """Whether what was chosen has a file of the lab, or an archive that may."""
    return any(name.rpartition("/")[2] in lab.edit or suffix_of(name) for name in files)


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
