"""The report as one HTML file that needs no other: the whole class, or one student's own.

The templates hold no text of a student that did not go through `readable`: the environment does it
for every value. Nothing but the style and the script in the page may act (a policy by their
hashes); without the script all but the table of students and tasks is there.
"""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import jinja2
from markupsafe import Markup

from grader import readable
from grader.classroom.report import building, mark_summary, number_words, packed_class
from grader.classroom.report.class_report import (
    ClassReport,
    Flag,
    FlagKind,
    LabReport,
    Lesson,
    Person,
    TaskItem,
    TestItem,
)  # fmt: skip
from grader.classroom.report.mark_summary import MarkSummary
from grader.classroom.report.number_words import ItemVerdict, NumberInWords
from grader.status import TaskStatus, points_text

MOST_SENTENCE = 1000
MOST_NAMED = 20  # students whom a lesson names at once; the others when asked
MOST_LESSONS = 10  # that stand open
MOST_NOTES = 100
WHY = {
    FlagKind.NOBODY_PASSES: "A test that nobody passes may be wrong, or ask for what was not said.",
    FlagKind.NEGATIVE: "Here the worst do better than the best: the test may refuse right answers.",
    FlagKind.NO_DISCRIMINATION: "These hardly tell the best students from the worst.",
    FlagKind.DECIDES_ALL: "Without this one nobody gets half of the lab's points.",
    FlagKind.ONE_GATE: "One gate takes all points from students who have everything else.",
    FlagKind.NEVER_DISAGREES: "Two tests that always agree are one test, graded twice.",
    FlagKind.TIMES_OUT: "The limit may be too short, or the answers have a loop in common.",
}


def page(report: ClassReport) -> str:
    """The whole class. The same report gives the same text."""
    anchors = _Anchors(report)
    lessons, more = _lessons(report, anchors)
    labs = [_lab(report, anchors, place) for place in range(len(report.labs))]
    return _drawn(
        "class_page.html.j2",
        script=_text("class_table.js"),
        report=report,
        top=lessons[:MOST_LESSONS],
        by_lab=_by_lab(report, lessons) if len(lessons) > MOST_LESSONS else [],
        lesson_count=len(lessons),
        labs=labs,
        sections=len({person.section for person in report.people if person.section}),
        legend=packed_class.statuses(report),
        data=packed_class.packed(report, more),
        flags=_flags(report, anchors),
        notes=report.notes[:MOST_NOTES],
        notes_left=max(len(report.notes) - MOST_NOTES, 0),
        has_shared=any(lesson.shared for lesson in report.lessons),
    )


def student_page(report: ClassReport, place: int) -> str:
    """One student's own page, from a class's report: it names no other student, and of a class that
    is too small nothing is said (`building.only`)."""
    own = building.only(report, report.people[place].id)
    lessons: dict[str, list[Lesson]] = defaultdict(list)
    for lesson in own.lessons:
        lessons[lesson.lab].append(lesson)
    return _drawn(
        "student_page.html.j2",
        script="",
        report=own,
        person=own.people[0],
        labs=[(lab, lessons[lab.id]) for lab in own.labs],
        has_class=any(lab.median is not None for lab in own.labs),
    )


# -- what the class page shows --------------------------------------------------------------------


@dataclass(frozen=True)
class LessonShown:
    """A lesson with its first people. more: the number of a list in the packed data, or None.
    others: sentences that fit the same people no less."""

    lesson: Lesson
    others: Sequence[str]
    lab_title: str
    anchor: str
    first: Sequence[tuple[Person, bool]]
    rest: int
    more: int | None


@dataclass(frozen=True)
class TestShown:
    """A row of a task's tests."""

    __test__ = False  # not pytest's to collect

    name: str
    gate: bool
    facility: str
    correlation: str
    d27: str
    verdict: ItemVerdict
    remarks: Sequence[str]


@dataclass(frozen=True)
class TaskShown:
    """A task with its numbers in words."""

    task: TaskItem
    anchor: str
    verdict: ItemVerdict
    numbers: Sequence[NumberInWords]
    shares: Sequence[str]
    flags: Sequence[Flag]
    tests: Sequence[TestShown]


@dataclass(frozen=True)
class LabShown:
    """A lab with its marks and tasks."""

    lab: LabReport
    summary: MarkSummary
    histogram: Markup
    tasks: Sequence[TaskShown]
    to_look_at: int


@dataclass(frozen=True)
class FlagGroup:
    """The flags of one kind, each with the anchor of its task."""

    kind: FlagKind
    why: str
    rows: Sequence[tuple[Flag, str, str]]


@dataclass(frozen=True)
class _Anchors:
    """Where a task stands on the page, by lab and id. Ids themselves may be any text."""

    report: ClassReport
    places: dict[tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, lab in enumerate(self.report.labs):
            for place, task in enumerate(lab.tasks):
                self.places[lab.id, task.id] = f"task-{number}-{place}"

    def of(self, lab: str, task: str) -> str:
        return self.places.get((lab, task), "")


def _lessons(
    report: ClassReport, anchors: _Anchors
) -> tuple[list[LessonShown], list[Sequence[int]]]:
    titles = {lab.id: lab.title for lab in report.labs}
    shown: list[LessonShown] = []
    more: list[Sequence[int]] = []
    for lesson, *twins in _twins(sorted(report.lessons, key=lambda row: -len(row.people))):
        rest = lesson.people[MOST_NAMED:]
        shared = set(lesson.shared)
        first = [(report.people[at], at in shared) for at in lesson.people[:MOST_NAMED]]
        title, anchor = titles.get(lesson.lab, ""), anchors.of(lesson.lab, lesson.task)
        number = len(more) if rest else None
        others = [twin.sentence for twin in twins]
        shown.append(LessonShown(lesson, others, title, anchor, first, len(rest), number))
        if rest:
            more.append(rest)
    return shown, more


def _twins(lessons: Sequence[Lesson]) -> list[list[Lesson]]:
    """The lessons, those together that are one of two for everybody, and for the same people: what
    is taught to them is one thing, though nobody knows which."""
    found: dict[tuple[object, ...], list[Lesson]] = defaultdict(list)
    for place, lesson in enumerate(lessons):
        alone = lesson.people != lesson.shared
        found[lesson.lab, lesson.task, lesson.people, place if alone else None].append(lesson)
    return list(found.values())


def _by_lab(
    report: ClassReport, lessons: Sequence[LessonShown]
) -> list[tuple[LabReport, list[LessonShown]]]:
    """The lessons of each lab that has some, the last lab first."""
    found: dict[str, list[LessonShown]] = defaultdict(list)
    for row in lessons:
        found[row.lesson.lab].append(row)
    return [(lab, found[lab.id]) for lab in reversed(report.labs) if found[lab.id]]


def _lab(report: ClassReport, anchors: _Anchors, place: int) -> LabShown:
    lab = report.labs[place]
    flags: dict[str, list[Flag]] = defaultdict(list)
    for flag in report.flags:
        if flag.lab == lab.id:
            flags[flag.task].append(flag)
    tasks = [_task(lab, task, anchors.of(lab.id, task.id), flags[task.id]) for task in lab.tasks]
    summary = mark_summary.summarize(lab)
    picture = mark_summary.histogram(summary, lab.id)
    doubtful = [task for task in tasks if any(flag.kind.is_doubt for flag in task.flags)]
    return LabShown(lab, summary, picture, tasks, len(doubtful))


def _task(lab: LabReport, task: TaskItem, anchor: str, flags: Sequence[Flag]) -> TaskShown:
    flagged = {flag.test for flag in flags if flag.kind.is_doubt}
    head = f"{lab.id}/{task.id}/"
    found = task.statistics
    return TaskShown(
        task,
        anchor,
        number_words.verdict(found, any(flag.kind.is_doubt for flag in flags)),
        number_words.numbers(found),
        number_words.shares(found),
        flags,
        [_test(test, head, test.id in flagged) for test in task.tests],
    )


def _test(test: TestItem, head: str, flagged: bool) -> TestShown:
    found = test.statistics
    facility, correlation, d27, _ = (row.value for row in number_words.numbers(found))
    remarks = []
    if found.timed_out:
        remarks.append(f"{number_words.percent(found.timed_out)} ran into its time limit")
    if found.not_verified:
        remarks.append(f"{number_words.percent(found.not_verified)} not verified")
    if test.same_as:
        others = len(test.same_as)
        remarks.append(f"never disagrees with {others} other{'s' if others > 1 else ''}")
    verdict = number_words.verdict(found, flagged)
    name = test.id.removeprefix(head)
    return TestShown(name, test.gate, facility, correlation, d27, verdict, remarks)


def _flags(report: ClassReport, anchors: _Anchors) -> list[FlagGroup]:
    groups: dict[FlagKind, list[tuple[Flag, str, str]]] = {kind: [] for kind in FlagKind}
    for flag in report.flags:
        test = flag.test.removeprefix(f"{flag.lab}/{flag.task}/")
        groups[flag.kind].append((flag, anchors.of(flag.lab, flag.task), test))
    return [FlagGroup(kind, WHY[kind], rows) for kind, rows in groups.items() if rows]


# -- templates ------------------------------------------------------------------------------------


def _drawn(template: str, script: str, **values: Any) -> str:
    style = _text("report_style.css")
    return (
        _environment()
        .get_template(template)
        .render(
            style=Markup(style),
            script=Markup(script),
            policy=_policy(style, script),
            **values,
        )
    )


def _policy(style: str, script: str) -> str:
    allowed = f"script-src {_hash(script)}; " if script else ""
    return (
        f"default-src 'none'; style-src {_hash(style)}; {allowed}base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _text(name: str) -> str:
    source, _, _ = _loader().get_source(_environment(), name)
    return source.strip()


@lru_cache
def _loader() -> jinja2.PackageLoader:
    return jinja2.PackageLoader("grader.classroom.report")


@lru_cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        loader=_loader(),
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    made.filters |= _FILTERS
    made.globals["MARKS"] = TaskStatus
    return made


def _finalize(value: Any) -> Any:
    """What a template is given, as a person may read it; jinja2 then escapes it."""
    if isinstance(value, Markup | jinja2.Undefined):
        return value
    return readable.text(str(value), MOST_SENTENCE)


def _named(person: Person) -> Markup:
    """A name that does not turn the text around it, or the id of somebody without one."""
    shown = readable.html(readable.line(person.name or person.id, packed_class.MOST_NAME))
    return Markup(f"<bdi>{shown}</bdi>")


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def _moment(graded: str) -> str:
    """An ISO moment in UTC as people write it; another text as it is."""
    try:
        return f"{datetime.fromisoformat(graded).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return graded


def _listed(parts: Iterable[str]) -> str:
    return "; ".join(parts)


_FILTERS: dict[str, Callable[..., Any]] = {
    "named": _named,
    "counted": _counted,
    "points": points_text,
    "percent": number_words.percent,
    "listed": _listed,
    "moment": _moment,
}
