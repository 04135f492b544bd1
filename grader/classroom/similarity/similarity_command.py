"""`infralens similarity`: the call, what it prints, and its exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader import readable
from grader.classroom.grading.coordinator import DEFAULT_TIER
from grader.classroom.intake.archive_reader import ArchiveReader
from grader.classroom.intake.submissions import Submission, Submissions
from grader.classroom.similarity.comparison import ClassFiles, Comparison, compare
from grader.classroom.similarity.fingerprint_reader import FingerprintReader
from grader.classroom.similarity.fingerprints import Author
from grader.classroom.similarity.pair_table import pair_table
from grader.classroom.similarity.similarity_page import rank_sentence, similarity_page
from grader.durable import write_atomically
from grader.errors import CallError, Infrastructure, LabError
from grader.lab.manifest import Lab, load_lab
from grader.sandbox.fork_server import FORKED_TIERS

TIERS = (*FORKED_TIERS, "process")
MAX_NAMED = 5
Say = Callable[[str], None]
LeftOut = dict[Author, list[str]]


@dataclass(frozen=True)
class SimilarityRequest:
    """What is compared. submissions: a folder as `infralens grade` takes it; None takes the last
    attempt of each student in a course's gradebook. earlier: folders of earlier years. out, table:
    the page, and a CSV file of every pair."""

    lab: str
    out: Path
    submissions: Path | None = None
    course_folder: Path | None = None
    earlier: Sequence[Path] = ()
    table: Path | None = None
    tier: str = DEFAULT_TIER


def run(root: Path, request: SimilarityRequest, say: Say) -> int:
    """Exit status: 0 done, 2 the call was wrong, 3 the kit or the machine failed."""
    try:
        found = _compared(root, request)
        _write(request.out, similarity_page(found))
        if request.table is not None:
            _write(request.table, pair_table(found))
    except (CallError, LabError) as error:
        print(f"infralens similarity: {error}", file=sys.stderr)
        return 2
    except Infrastructure as error:
        more = " A machine without a sandbox has `--tier process`."
        instead = more if request.tier != "process" else ""
        print(f"infralens similarity: {readable.text(error.reason)}.{instead}", file=sys.stderr)
        return 3
    except OSError as error:
        print(f"infralens similarity: {error}. Nothing was written.", file=sys.stderr)
        return 3
    _tell(found, request.out, request.table, say)
    return 0


def _compared(root: Path, request: SimilarityRequest) -> Comparison:
    lab = load_lab(root, request.lab)
    if request.tier not in TIERS:
        raise CallError(f"--tier is {request.tier!r}; it may be {' or '.join(TIERS)}.")
    if (request.submissions is None) == (request.course_folder is None):
        raise CallError("Name a folder of submissions, or with --course a course: one of the two.")
    folders = [path for path in (request.submissions, *request.earlier) if path is not None]
    _check_places(folders, [path for path in (request.out, request.table) if path is not None])
    years = _year_names(request.earlier)
    hidden = [root, *folders, *([request.course_folder] if request.course_folder else [])]
    left_out: LeftOut = {}
    with (
        FingerprintReader(request.tier, hidden) as prints,
        ArchiveReader(request.tier, hidden) as archives,
    ):
        if request.submissions is not None:
            this_year = _handed_in(request.submissions, "", lab, archives, left_out)
        else:
            this_year = _of_gradebook(root, request, lab, left_out)
        before = {
            year: _handed_in(folder, year, lab, archives, left_out)
            for year, folder in zip(years, request.earlier, strict=True)
        }
        found = compare(lab, this_year, before, prints)
    for author, sentences in found.left_out.items():
        left_out.setdefault(author, []).extend(sentences)
    return found.with_left_out(dict(sorted(left_out.items())))


def _of_gradebook(
    root: Path, request: SimilarityRequest, lab: Lab, left_out: LeftOut
) -> ClassFiles:
    """The files of each student's last attempt."""
    from grader.classroom.course.open_course import open_course
    from grader.classroom.gradebook import attempts

    assert request.course_folder is not None
    with open_course(request.course_folder, root) as opened:
        opened.lab(lab.id)
        with opened.database.reading() as connection:
            every = attempts.of_lab(connection, [lab.id])
            rows = [row for row in every if not row.is_withdrawn]
            rows.sort(key=lambda row: (row.at.timestamp() if row.at else 0.0, row.number))
            last = {row.student: row for row in rows}
            taken = attempts.submissions(connection, list(last.values()))
    rows_of = ((student, taken[row.number]) for student, row in last.items())
    return _kept(rows_of, "", lab, left_out)


def _kept(
    taken: Iterable[tuple[str, Submission]], year: str, lab: Lab, left_out: LeftOut
) -> dict[str, dict[str, bytes]]:
    """The files of everyone who has some; who lacks any of them stands in `left_out`."""
    found: dict[str, dict[str, bytes]] = {}
    for student, submission in taken:
        if sentences := _missing(submission, lab):
            left_out[Author(year, student)] = sentences
        if submission.files:
            found[student] = submission.files
    return found


def _handed_in(
    folder: Path, year: str, lab: Lab, archives: ArchiveReader, left_out: LeftOut
) -> ClassFiles:
    """The files of one lab of everyone in a folder; who has none stands in `left_out`."""
    submissions = Submissions(folder, archives, [lab])
    taken = ((student.id, submissions.take(student, lab)) for student in submissions.students)
    found = _kept(taken, year, lab, left_out)
    said = {sentence for sentences in left_out.values() for sentence in sentences}
    if rest := [one for one in submissions.skipped if not any(one in each for each in said)]:
        left_out[Author(year, "")] = rest
    return found


def _missing(taken: Submission, lab: Lab) -> list[str]:
    if taken.missing == frozenset(lab.edit):
        return [f"Nothing was handed in for {lab.id}."]
    return list(dict.fromkeys(taken.refused.values()))


def _year_names(earlier: Sequence[Path]) -> list[str]:
    """A name for each earlier folder: its last part, with what is above it where two are equal."""
    names = [path.resolve().name for path in earlier]
    return [
        name if names.count(name) == 1 else "/".join(path.resolve().parts[-2:])
        for name, path in zip(names, earlier, strict=True)
    ]


def _check_places(folders: Sequence[Path], outputs: Sequence[Path]) -> None:
    places = [folder.resolve() for folder in folders]
    for given, place in zip(folders, places, strict=True):
        if places.count(place) > 1:
            raise CallError(f"{given} is given twice: name each folder once.")
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise CallError(f"--out and --csv are both {outputs[0]}: give two files.")
    for path in outputs:
        if path.is_dir():
            raise CallError(f"{path} is a folder: give the name of a file.")
        if not path.resolve().parent.is_dir():
            raise CallError(f"{path} cannot be written: there is no folder {path.parent}.")
        if any(path.resolve().is_relative_to(place) for place in places):
            raise CallError(f"{path} lies in the submissions: write it elsewhere.")


def _write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text)
    except OSError as error:
        raise CallError(f"{path} cannot be written: {error.strerror or error}.") from error


def _tell(found: Comparison, out: Path, table: Path | None, say: Say) -> None:
    outstanding = [pair for pair in found.pairs if pair.stands_out]
    for pair in outstanding[:MAX_NAMED]:
        one, other = (readable.line(author.name, 60) for author in found.ends(pair))
        say(f"{one} and {other}: {rank_sentence(pair.whole.as_alike, len(found.pairs))}")
    if len(outstanding) > MAX_NAMED:
        say(f"And {len(outstanding) - MAX_NAMED} more pairs stand out.")
    left_out = [
        f"{readable.line(author.name, 60)}: {readable.text(sentence)}".removeprefix(": ")
        for author, sentences in found.left_out.items()
        for sentence in sentences
    ]
    for sentence in left_out[:MAX_NAMED]:
        say(f"Not compared: {sentence}")
    if len(left_out) > MAX_NAMED:
        say(f"Not compared: {len(left_out) - MAX_NAMED} more, which the report lists.")
    csv = f" Every pair: {table}." if table else ""
    say(
        f"{len(found.authors)} submissions, {len(found.pairs):,} pairs, {len(outstanding)} stand "
        f"out. A report for a person, never a mark: {out}.{csv}"
    )
