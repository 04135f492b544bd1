"""The page on teaching: the class that a build grades, what stands there, and its pictures."""

from __future__ import annotations

import ast
import csv
import io
import re
import zipfile
from pathlib import Path

import pytest

from grader.classroom.intake import downloads
from grader.classroom.report import building, report_page
from grader.lab.manifest import find_root, load_lab
from grader.site import class_walk, screenshots, teach_page, text_parts
from grader.site.class_walk import ClassWalk
from grader.site.screenshots import Screenshot, Shot
from grader.site.site_pages import SiteFault
from grader.site.teach_page import ClassShown
from tests.grader.classroom.report import browser as browsers
from tests.grader.classroom.report import made_up_class

pytest.importorskip("mkdocs", reason="no mkdocs: pip install -e '.[dev]'")
needs_browser = pytest.mark.skipif(bool(browsers.missing()), reason=browsers.missing())

ROOT = find_root(Path(__file__).parent)
LAB = load_lab(ROOT, class_walk.LAB)
SECTION = text_parts.section(ROOT / class_walk.SOURCE, class_walk.SECTION)
GRADE = "```bash\ninfralens grade --course course --jobs 2\n```"
PICTURE = Screenshot("table", "light", b"RIFF", 1000, 700)


def lines(said: str) -> str:
    return re.sub(r"<[^>]+>", "", said)


# -- the page -------------------------------------------------------------------------------------


def test_without_a_class_the_page_is_the_text_alone() -> None:
    page = teach_page.teach_page(ROOT, ClassShown())
    assert page.files == {}
    assert "<img" not in page.rendered.html
    assert "picture:" not in page.rendered.html
    assert 'class="printed' not in page.rendered.html
    assert "infralens report --course course" in lines(page.rendered.html)


def test_what_was_printed_stands_below_its_command_and_pictures_at_their_places() -> None:
    dark = Screenshot("table", "dark", b"dark", 1000, 700)
    pictures = {("table", "light"): PICTURE, ("table", "dark"): dark}
    page = teach_page.teach_page(ROOT, ClassShown({GRADE: "12 <attempts>\n"}, pictures))
    text = page.rendered.html
    assert text.index("--jobs") < text.index("12 &lt;attempts&gt;") < text.index("Each submission")
    assert text.count('class="printed') == 1
    images = re.findall(r"<img [^>]*>", text)
    assert len(images) == 2
    for image in images:
        assert 'loading="lazy"' in image
        assert 'width="1000" height="700"' in image
        assert re.search(r'alt="[^"]{60,}"', image)
    assert text.index("sorts by any column") < text.index(images[0]) < text.index("has its marks")
    assert page.files == {
        "assets/class/table-light.webp": b"RIFF", "assets/class/table-dark.webp": b"dark",
    }  # fmt: skip


def test_every_picture_of_the_text_is_one_that_is_taken() -> None:
    marks = re.findall(r"<!-- picture: (\w+) -->", SECTION)
    assert marks == list(teach_page._PICTURES)


def test_a_picture_that_nobody_takes_is_a_fault(tmp_path: Path) -> None:
    text = (ROOT / "TEACHING.md").read_text(encoding="utf-8").replace("picture: task", "picture: x")
    (tmp_path / "TEACHING.md").write_text(text, encoding="utf-8")
    with pytest.raises(SiteFault, match=r"TEACHING\.md: there is no picture `x`"):
        teach_page.teach_page(tmp_path, ClassShown())


# -- the class ------------------------------------------------------------------------------------


def test_the_class_is_the_same_in_every_build_and_its_files_can_be_read() -> None:
    first, again = class_walk.submissions(LAB), class_walk.submissions(LAB)
    assert first == again
    assert len(first) == class_walk.STUDENTS
    texts = [files[name] for files in first for name in files]
    assert len(set(texts)) > class_walk.STUDENTS / 2
    assert {name for files in first for name in files} == set(LAB.edit)
    for text in texts:
        ast.parse(text)
        assert "solution" not in text.lower().partition("\n")[0]


def test_the_course_is_the_text_s_own_and_names_nobody(tmp_path: Path) -> None:
    (tmp_path / "course").mkdir()
    class_walk._write_course(ROOT, tmp_path, "name = 'x'\n")
    assert (tmp_path / "course/course.toml").read_text() == "name = 'x'\n"
    rows = list(csv.DictReader(io.StringIO((tmp_path / "course/roster.csv").read_text())))
    assert [row["name"] for row in rows] == [f"Student {n:02}" for n in range(1, len(rows) + 1)]
    with zipfile.ZipFile(tmp_path / "submissions.zip") as packed:
        packed.extractall(tmp_path / "unpacked")
    folder = downloads.inside(tmp_path / "unpacked")
    parts = downloads.parts(folder)
    assert downloads.system_of(folder) == "gradescope"
    assert [part.id for part in parts] == [row["id"] for row in rows]
    assert all(part.at is not None for part in parts)


def test_where_it_cannot_be_had_a_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert class_walk.cannot(ROOT) == ""
    (tmp_path / "exercises").mkdir()
    said = "This kit has no lab01, so the class of TEACHING.md was not graded."
    assert teach_page.shown(tmp_path, tmp_path) == ClassShown(missing=(said,))
    monkeypatch.setattr(class_walk.importlib.util, "find_spec", lambda name: None)
    assert "pip install 'infralens-labs[classroom]'" in class_walk.cannot(ROOT)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("infralens course check nowhere", "nowhere"),
        ("infralens no-such-command", "no-such-command"),
        ("rm -r course", "it is not a command of the kit"),
    ],
)
def test_a_command_that_fails_is_a_fault(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(SiteFault) as caught:
        class_walk._run(ROOT, tmp_path, line, "sandbox")
    (sentence,) = caught.value.sentences
    assert sentence.startswith(f"TEACHING.md: `{line}`, run for the page on teaching, failed: ")
    assert why in sentence


def test_a_tier_below_the_sandbox_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the kit prints its arguments."""
    (tmp_path / "grader").mkdir()
    (tmp_path / "grader/__init__.py").write_text("")
    (tmp_path / "grader/cli.py").write_text("import sys\nprint(*sys.argv[1:], 'word ' * 30)\n")
    said = class_walk._run(tmp_path, tmp_path, "infralens grade --course course", "process")
    first, second, *rest = said.splitlines()
    assert first == "(with --tier process, the highest that this machine reaches)"
    assert second.startswith("grade --course course --tier process word")
    assert max(map(len, (second, *rest))) <= class_walk.COLUMNS
    said = class_walk._run(tmp_path, tmp_path, "infralens grade --course course", "sandbox")
    assert said.startswith("grade --course course word")


# -- the pictures ---------------------------------------------------------------------------------


def test_without_a_browser_there_is_the_text_that_was_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_walk, "walk", lambda root, folder: ClassWalk(folder, {GRADE: "12"}))
    monkeypatch.setattr(screenshots.shutil, "which", lambda name: None)
    monkeypatch.delenv("INFRALENS_CHROMIUM", raising=False)
    found = teach_page.shown(ROOT, tmp_path)
    assert (found.printed, found.pictures) == ({GRADE: "12"}, {})
    assert found.missing[0].startswith("The page on teaching has no pictures: no")


@pytest.fixture
def reported(tmp_path: Path) -> Path:
    """A folder of a course with the two pages of a made-up class."""
    report = building.build(made_up_class.outcomes(12, [LAB]))
    course = tmp_path / "course"
    course.mkdir()
    (course / "report.html").write_text(report_page.page(report), encoding="utf-8")
    (course / "report-s07.html").write_text(report_page.student_page(report, 6), encoding="utf-8")
    return tmp_path


@needs_browser
def test_pictures_are_the_same_twice_small_and_of_both_papers(reported: Path) -> None:
    """The time of grading is not in them: the same report of another day gives the same bytes."""
    shots = teach_page._shots(ClassWalk(reported))
    first = {(one.name, one.scheme): one for one in screenshots.taken(shots)}
    for path in (reported / "course").glob("report*.html"):
        text = path.read_text(encoding="utf-8")
        assert "2027-03-14 08:30 UTC" in text
        path.write_text(text.replace("2027-03-14 08:30", "2028-11-01 23:59"), encoding="utf-8")
    again = screenshots.taken(teach_page._shots(ClassWalk(reported)))
    assert {(one.name, one.scheme): one for one in again} == first
    assert len(first) == 2 * len(teach_page._PICTURES)
    for (name, scheme), one in first.items():
        assert one.data[:4] == b"RIFF"
        assert one.data[8:12] == b"WEBP"
        assert 5_000 < len(one.data) < 150_000, (name, scheme)
        assert 200 < one.height < 2000
        assert one.data != first[name, "light" if scheme == "dark" else "dark"].data


@needs_browser
def test_a_page_without_the_element_is_a_fault(
    reported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_walk, "walk", lambda root, folder: ClassWalk(reported))
    page = reported / "course/report.html"
    monkeypatch.setattr(teach_page, "_shots", lambda walk: [Shot("x", page, "#gone", "main")])
    with pytest.raises(
        SiteFault,
        match=r"TEACHING\.md: no pictures could be taken for it: report\.html has no `#gone`",
    ):
        teach_page.shown(ROOT, reported)
