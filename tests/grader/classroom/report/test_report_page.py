"""The report's page in a real browser: read, sorted and filtered by keyboard, and by axe."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grader import readable
from grader.classroom.report import building, report_page
from grader.classroom.report.class_report import (
    ClassReport,
    Flag,
    FlagKind,
    LabReport,
    Lesson,
    Person,
    TaskItem,
)
from grader.lab.manifest import load_lab
from grader.status import points_text
from tests.grader.classroom.report import browser as browsers
from tests.grader.classroom.report import made_up_class
from tests.grader.classroom.report.browser import Browser, Watched
from tests.grader.classroom.report.made_up_class import ROOT

MOST_BYTES = 5 * 1000 * 1000
PHONE, DESK = 390, 1280
HOSTILE = [
    "<script>window.ran=1</script>",
    "</script><script>window.ran=1</script>",
    '"><img src=x onerror="window.ran=1">',
    "' onfocus='window.ran=1' autofocus='",
    "<!--<script>",
    "{{ 7 * 7 }}{% raw %}",
    "\u202egnp.exe\u2066",
    "a\u200bb\ufeff\u00ad",
    "👩🏽‍🔬🧪",
    "x" * 500,
    "=cmd|' /C calc'!A0",
    "e" + "\u0301" * 400,
    "a;b:c,d",
    "__proto__",
    "\x00\x1b[2J\n\r",
    "\ud800",
]
needs_browser = pytest.mark.skipif(bool(browsers.missing()), reason=browsers.missing())


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.started() as started:
        yield started


@pytest.fixture(scope="module")
def report() -> ClassReport:
    """30 students, all labs."""
    return made_up_class.report()


@pytest.fixture(scope="module")
def page(report: ClassReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(report_page.page(report), tmp_path_factory)


@pytest.fixture(scope="module")
def one_lab() -> ClassReport:
    return made_up_class.report(labs=[load_lab(ROOT, "lab07")])


@pytest.fixture(scope="module")
def student(report: ClassReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(report_page.student_page(report, 3), tmp_path_factory)


def written(text: str, factory: pytest.TempPathFactory) -> Path:
    path = factory.mktemp("page") / "report.html"
    path.write_text(text, encoding="utf-8")
    return path


def open_all(watched: Watched) -> None:
    watched.page.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")


def names(watched: Watched) -> list[str]:
    """The first column of the table, from the top."""
    return watched.page.locator("table.cells tbody th bdi").all_inner_texts()


def focus_on(watched: Watched, name: str) -> None:
    """Walk to a header's button with the Tab key."""
    for _ in range(80):
        watched.page.keyboard.press("Tab")
        if watched.page.evaluate("document.activeElement.textContent").startswith(name):
            return
    raise AssertionError(f"{name} is never reached")


# -- everybody can read it -------------------------------------------------------------------------


def violations(watched: Watched) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(watched.page).response["violations"]
    return [f"{row['id']}: {[node['html'][:200] for node in row['nodes'][:3]]}" for row in found]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A page with some of everything, and a student's, small enough for axe to be quick."""
    report = made_up_class.report(14, [load_lab(ROOT, "lab03")])
    (lab,) = report.labs
    tasks = [replace(task, tests=task.tests[:2]) for task in lab.tasks]
    report = replace(report, labs=[replace(lab, tasks=tasks)])
    place = next(at for at, cells in enumerate(lab.cells) if cells)
    texts = report_page.page(report), report_page.student_page(report, place)
    return [written(text, tmp_path_factory) for text in texts]


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_axe_finds_nothing(browser: Browser, small: list[Path], width: int, scheme: str) -> None:
    """With everything open. Oracle: axe-core."""
    for path in small:
        with browser.opened(path, width, color_scheme=scheme) as watched:
            open_all(watched)
            assert violations(watched) == []
            assert watched.overflow() <= 0


@needs_browser
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_a_whole_course_has_no_horizontal_scroll(browser: Browser, page: Path, width: int) -> None:
    with browser.opened(page, width) as watched:
        open_all(watched)
        assert watched.overflow() <= 0


@needs_browser
def test_the_rest_is_there_without_the_script(browser: Browser, page: Path) -> None:
    with browser.opened(page, java_script_enabled=False) as watched:
        said = watched.page.inner_text("main")
        assert "This table needs the page's script" in said
        assert not watched.page.is_visible("#cells")
        for text in ("What to teach on Monday", "Quartiles", "What to look at", "1 to look at"):
            assert text in said


@needs_browser
def test_print_shows_what_is_closed(browser: Browser, page: Path) -> None:
    """On A4, which is 794 pixels wide, with the lab of most tasks."""
    with browser.opened(page, 794 - 2 * 38) as watched:
        watched.page.select_option("#lab", "0")
        tests = watched.page.locator(".item details table").first
        assert not tests.is_visible()
        watched.page.emulate_media(media="print")
        assert tests.is_visible()
        assert not watched.page.is_visible("nav")
        assert watched.overflow() <= 0


# -- the table -------------------------------------------------------------------------------------


@needs_browser
def test_the_table_holds_what_the_report_holds(browser: Browser, page: Path, report: ClassReport):
    """Each cell of two labs. Oracle: the report itself."""
    with browser.opened(page) as watched:
        for place in (0, 12):
            watched.page.select_option("#lab", str(place))
            lab = report.labs[place]
            rows = watched.page.evaluate(
                "[...document.querySelectorAll('table.cells tbody tr')].map((row) => "
                "[...row.cells].map((cell) => [cell.textContent, cell.className]))"
            )
            shown = {row[0][0]: row[1:] for row in rows}
            assert len(shown) == len(report.people)
            for at, person in enumerate(report.people):
                row = shown[person.name + person.id]
                mark = lab.marks[at]
                assert row[0][0] == ("–" if mark is None else points_text(mark))
                assert row[-1][0] == person.section
                cells = lab.cells[at]
                for task, (text, style) in enumerate(row[2:-1]):
                    if not cells:
                        assert (text, style) == ("", "")
                        continue
                    cell, most = cells[task], lab.tasks[task].max_points
                    words = f"{cell.status.words}, {points_text(cell.points)} of {most:g}"
                    assert text.startswith(cell.status.mark)
                    assert text.endswith(words)
                    assert style == f"s s-{cell.status.value}"


@needs_browser
def test_sorted_by_keyboard(browser: Browser, page: Path, report: ClassReport) -> None:
    lab = report.labs[-1]
    marks = {person.name: mark for person, mark in zip(report.people, lab.marks, strict=True)}
    graded = [mark for mark in marks.values() if mark is not None]
    with browser.opened(page) as watched:
        keyboard = watched.page.keyboard
        focus_on(watched, "Mark of")
        for key, way, order in (
            ("Enter", "ascending", sorted(graded)),
            ("Space", "descending", sorted(graded, reverse=True)),
        ):
            keyboard.press(key)
            head = watched.page.locator("th[aria-sort]")
            assert head.count() == 1
            assert head.get_attribute("aria-sort") == way
            assert head.inner_text().startswith("Mark of")
            seen = [marks[name] for name in names(watched)]
            assert seen == [*order, *[None] * (len(marks) - len(graded))]
            assert watched.page.inner_text("#said").endswith(f"by Mark of 27, {way}.")
        task = lab.tasks[2].id
        focus_on(watched, task)
        keyboard.press("Enter")
        keyboard.press("Enter")
        points = {
            person.name: cells[2].points if cells else -1
            for person, cells in zip(report.people, lab.cells, strict=True)
        }
        seen = [points[name] for name in names(watched)]
        assert seen == sorted(seen, reverse=True)
        focus_on(watched, "Section")
        keyboard.press("Enter")
        sections = watched.page.locator("table.cells td.section").all_inner_texts()
        assert sections == sorted(sections)
        assert watched.page.evaluate("document.activeElement.textContent") == "Section"


@needs_browser
def test_filtered_and_another_lab_by_keyboard(
    browser: Browser, page: Path, report: ClassReport
) -> None:
    wanted = {person.name for person in report.people if person.section == "Section 2"}
    with browser.opened(page) as watched:
        watched.page.focus("#lab")
        watched.page.keyboard.press("Home")
        assert watched.page.inner_text("#said").startswith("lab01 ")
        assert watched.page.locator("table.cells thead th.task").count() == 15
        watched.page.keyboard.press("Tab")
        watched.page.keyboard.press("ArrowDown")
        watched.page.keyboard.press("ArrowDown")
        assert set(names(watched)) == wanted
        assert f"{len(wanted)} of 30 students" in watched.page.inner_text("#said")


@needs_browser
def test_the_first_column_and_the_heads_stay(browser: Browser, page: Path) -> None:
    with browser.opened(page, PHONE) as watched:
        where = "document.querySelector('table.cells {}').getBoundingClientRect()"
        before = [
            watched.page.evaluate(where.format("tbody th") + ".x"),
            watched.page.evaluate(where.format("thead th.task") + ".y"),
        ]
        watched.page.evaluate("document.getElementById('frame').scrollTo(200, 300)")
        after = [
            watched.page.evaluate(where.format("tbody th") + ".x"),
            watched.page.evaluate(where.format("thead th.task") + ".y"),
        ]
        assert after == before


@needs_browser
def test_all_whom_a_lesson_names(browser: Browser, one_lab: ClassReport, tmp_path: Path) -> None:
    everybody = tuple(range(len(one_lab.people)))
    lesson = Lesson("lab07", one_lab.labs[0].tasks[0].id, "A cause.", everybody)
    path = tmp_path / "report.html"
    path.write_text(report_page.page(replace(one_lab, lessons=[lesson])), encoding="utf-8")
    with browser.opened(path) as watched:
        assert watched.page.locator(".who bdi").count() == report_page.MOST_NAMED
        watched.page.focus(".who button")
        watched.page.keyboard.press("Enter")
        shown = watched.page.locator(".who bdi").all_inner_texts()
        assert shown == [person.name for person in one_lab.people]


# -- hostile text ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile() -> ClassReport:
    """Every hostile text as the name, id and section of a student, as a lab's id and title, as a
    task, a test, a cause, a flag's sentence and a note; all of them as the title."""
    report = made_up_class.report(len(HOSTILE), [load_lab(ROOT, "lab03")])
    (lab,) = report.labs
    ids = [f"{text}{place}" for place, text in enumerate(HOSTILE)]
    people = [Person(id, text, text) for id, text in zip(ids, HOSTILE, strict=True)]
    labs = [replace(lab, id=id, title=text, tasks=tasks_called(lab, text))
            for id, text in zip(ids, HOSTILE, strict=True)]  # fmt: skip
    tasks = [lab.tasks[0].id for lab in labs]
    everybody = tuple(range(len(HOSTILE)))
    lessons = [
        Lesson(id, task, text, everybody, (1,))
        for id, task, text in zip(ids, tasks, HOSTILE, strict=True)
    ]
    flags = [
        Flag(kind, id, task, text, text)
        for id, task, text in zip(ids, tasks, HOSTILE, strict=True)
        for kind in FlagKind
    ]
    title = " ".join(sorted(HOSTILE, key=len))
    return ClassReport(title, title, people, labs, lessons, flags, HOSTILE)


def test_causes_that_fit_the_same_people_are_one_lesson(one_lab: ClassReport) -> None:
    """Two that are one of two for everybody stand together; one that is certain for somebody, or
    fits others too, or is of another task, stands alone."""
    task, other = (row.id for row in one_lab.labs[0].tasks[:2])
    lessons = [
        Lesson("lab07", task, "one of these", (0, 1), (0, 1)),
        Lesson("lab07", task, "or of those", (0, 1), (0, 1)),
        Lesson("lab07", task, "fits a third", (0, 1, 2), (0, 1, 2)),
        Lesson("lab07", task, "certain for one", (0, 1), (0,)),
        Lesson("lab07", other, "elsewhere", (0, 1), (0, 1)),
    ]
    text = report_page.page(replace(one_lab, lessons=lessons))
    assert text.count('<li class="lesson">') == 4
    assert re.findall(r'class="or">or</span> ([^<]*)', text) == ["or of those"]


def test_tests_that_always_agree_are_a_remark_and_not_a_doubt(one_lab: ClassReport) -> None:
    task = one_lab.labs[0].tasks[0].id
    flags = [Flag(FlagKind.NEVER_DISAGREES, "lab07", task, "", "They agree.")]
    assert "to look at</span>" not in report_page.page(replace(one_lab, flags=flags))
    flags.append(Flag(FlagKind.NOBODY_PASSES, "lab07", task, "", "Nobody passes."))
    text = report_page.page(replace(one_lab, flags=flags))
    assert '<span class="out">1 to look at</span>' in text
    assert "They agree." in text


def tasks_called(lab: LabReport, text: str) -> list[TaskItem]:
    return [
        replace(
            task,
            id=f"{text}{place}",
            tests=[replace(test, id=text, same_as=(text,)) for test in task.tests[:2]],
        )
        for place, task in enumerate(lab.tasks)
    ]


@needs_browser
def test_hostile_text_is_text(browser: Browser, hostile: ClassReport, tmp_path: Path) -> None:
    """No script runs, and no lab's table makes the page wider than a phone."""
    path = tmp_path / "report.html"
    path.write_text(report_page.page(hostile), encoding="utf-8")
    with browser.opened(path, PHONE) as watched:
        open_all(watched)
        assert watched.page.locator("h1").text_content() == readable.text(hostile.title, 1000)
        assert watched.page.locator("script").count() == 2
        for place, text in enumerate(HOSTILE):
            watched.page.select_option("#lab", str(place))
            watched.page.select_option("#section", index=place)
            assert watched.overflow() <= 0, text
            head = watched.page.locator("table.cells thead .task").first.text_content()
            assert head == readable.line(f"{text}0", 40)
        assert watched.page.evaluate("window.ran") is None
        assert watched.page.locator("img").count() == 0


@needs_browser
def test_hostile_text_in_a_students_page(
    browser: Browser, hostile: ClassReport, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    for place in (1, 9):
        path.write_text(report_page.student_page(hostile, place), encoding="utf-8")
        with browser.opened(path, PHONE) as watched:
            assert watched.overflow() <= 0
            assert watched.page.evaluate("window.ran") is None
            assert watched.page.locator("script, img").count() == 0
            name = readable.line(HOSTILE[place], 80)
            assert watched.page.locator("h1").text_content() == name


def test_nothing_unseen_is_in_a_page(hostile: ClassReport) -> None:
    for text in (report_page.page(hostile), report_page.student_page(hostile, 11)):
        assert not [char for char in set(text) if readable.unseen(char) and char != "\n"]


# -- what the text holds ---------------------------------------------------------------------------


def test_a_students_page_names_nobody_else(report: ClassReport, student: Path) -> None:
    text = student.read_text(encoding="utf-8")
    own = report.people[3]
    assert own.name in text
    for person in report.people:
        if person is not own:
            assert person.name not in text
            assert not re.search(rf"\b{person.id}\b", text)
    assert "What to look at again" in text


def test_a_students_page_of_a_small_class_says_nothing_of_it() -> None:
    """Of three people one could work out another's mark."""
    report = made_up_class.report(3, [load_lab(ROOT, "lab07")])
    place = next(at for at, cells in enumerate(report.labs[0].cells) if cells)
    text = report_page.student_page(report, place)
    assert "Class" not in text


def test_an_anonymous_page_holds_no_name() -> None:
    outcomes = made_up_class.outcomes(labs=[load_lab(ROOT, "lab07")])
    text = report_page.page(building.build(outcomes, anonymous=True))
    assert "student 7" in text
    for person in outcomes.people:
        assert person.name not in text
        assert not re.search(rf"\b{person.id}\b", text)
    assert "Section 1" not in text
    assert "left out: eve" not in text


def test_the_same_report_gives_the_same_bytes(one_lab: ClassReport) -> None:
    again = made_up_class.report(labs=[load_lab(ROOT, "lab07")])
    assert report_page.page(again) == report_page.page(one_lab)


def test_nothing_but_the_style_and_the_script_may_act(page: Path, student: Path) -> None:
    for path, sources in ((page, 2), (student, 1)):
        text = path.read_text(encoding="utf-8")
        (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
        assert policy.startswith("default-src &#39;none&#39;; style-src &#39;sha256-")
        assert policy.count("sha256-") == sources
        assert "unsafe" not in policy
        assert not re.search(r"\b(https?:)?//\w", re.sub(r"<script.*?</script>", "", text))
        assert " style=" not in text


@needs_browser
def test_a_large_class(browser: Browser, report: ClassReport, tmp_path: Path) -> None:
    """1,020 students x 142 tasks: small enough to send, and the browser draws and sorts it."""
    large = made_up_class.repeated(report, 34)
    assert sum(len(lab.tasks) for lab in large.labs) == 142
    text = report_page.page(large)
    assert len(text.encode()) < MOST_BYTES
    path = tmp_path / "report.html"
    path.write_text(text, encoding="utf-8")
    with browser.opened(path, PHONE) as watched:
        assert watched.page.locator("table.cells tbody tr").count() == 1020
        watched.page.locator("table.cells thead th.num button").first.click()
        assert watched.page.locator("th[aria-sort=ascending]").count() == 1
        assert watched.overflow() <= 0


def data_of(text: str) -> Any:
    (packed,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    return json.loads(packed)


def test_a_lab_that_nobody_handed_in(one_lab: ClassReport) -> None:
    lab = one_lab.labs[0]
    empty: LabReport = replace(
        lab,
        marks=[None] * 30,
        late_days=[0] * 30,
        cells=[()] * 30,
        tasks=[replace(task, statistics=building.NOTHING_KNOWN) for task in lab.tasks],
        handed_in=0,
        median=None,
    )
    text = report_page.page(replace(one_lab, labs=[empty], lessons=[], flags=[], notes=[]))
    assert "Nobody has a mark yet." in text
    assert "No wrong answer was recognised" in text
    assert "No task and no test stands out." in text
    assert set(data_of(text)["labs"][0]["rows"]) == {""}


def test_a_report_without_labs() -> None:
    text = report_page.page(ClassReport("c", "", [], [], [], []))
    assert "0 students, 0 labs." in text
