"""`infralens show`: what it draws, what it says where it cannot, and how drawings look."""

from __future__ import annotations

import ast
import functools
import importlib.util
import itertools
import math
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from grader.author import lint_sources
from grader.errors import LabError
from grader.lab import capabilities
from grader.lab.manifest import all_labs, load_lab
from grader.learner import pictures
from grader.learner.pictures import (
    Areas,
    Bar,
    Bars,
    Cell,
    Drawing,
    Grid,
    Key,
    Legend,
    Lines,
    Panel,
    Picture,
    Series,
    Span,
    Stack,
    Timeline,
    axes,
    combine,
    page,
    page_pictures,
    palette,
)
from grader.learner.pictures.drawing import Note
from grader.learner.pictures.lines import sign, touches
from grader.learner.pictures.png import write_png
from grader.learner.pictures.sheet import Boxes, Sheet, Stroke, Text, ring
from grader.learner.pictures.svg import to_svg

from ..conftest import MiniKit

ROOT = Path(__file__).resolve().parents[3]
needs_plots = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)
needs_triton = pytest.mark.skipif(bool(capabilities.missing("triton")), reason="no Triton")
needs_gloo = pytest.mark.skipif(bool(capabilities.missing("gloo")), reason="no gloo")
needs_compiler = pytest.mark.skipif(bool(capabilities.missing("cxx")), reason="no C++ compiler")

MEANS = '''
"""Two pictures of one function."""

from grader.learner.pictures import Bar, Bars, Key, Panel, Picture, PictureFault


def pictures(student):
    def bars(values):
        means = student.running_mean(values)
        if len(means) != len(values):
            raise PictureFault(f"{len(means)} means of {len(values)} values")
        rows = [Bar(str(index), (mean,)) for index, mean in enumerate(means)]
        return Bars(rows, f"The means are {means}.", label_name="i", unit="mean & more")

    yield Picture(
        "Means of prefixes",
        "A bar is the mean of what came before it.",
        [
            Panel("running_mean", lambda: bars([1.0, 2.0, 6.0]), "rising <values>"),
            Panel("running_mean", lambda: bars([8.0, 0.0]), "falling"),
        ],
        same_scale=True,
        keys=[Key("blue", "mean")],
    )
    yield Picture("One value", "One bar.", [Panel("running_mean", lambda: bars([5.0]))])
'''

KERNEL_MANIFEST = """
id = "lab91"
title = "Kernels"
edit = ["scale.cu"]
given = [{ file = "pictures.py", for = "pictures" }]
call_seconds = 20
"""

KERNEL_TASK = """
[[task]]
id = "{name}"
title = "{name}"
tier = "core"
points = 1
minutes = 5
file = "scale.cu"
needs = ["cxx"]
"""

KERNELS = """
extern "C" __global__ void scale(float *x, int n) {
    // BEGIN SOLUTION scale
    int i = threadIdx.x;
    if (i < n) x[i] = 2.0f * x[i];
    // END SOLUTION
}

extern "C" __global__ void shift(float *x, int n) {
    // BEGIN SOLUTION shift
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i] = x[i];
    __syncthreads();
    x[i] = tile[(i + 1) % n];
    // END SOLUTION
}
"""

KERNEL_PROBES = """
import numpy
from grader import kernels


def launch(student, name, block, values):
    module = kernels.compile(student.path("scale.cu"))
    values = numpy.array(values)
    report = module.launch(name, 1, block, [values, len(values)])
    return report.plain()
"""

KERNEL_TESTS = """
from grader.suite import expect
from grader.suite import task


@task("scale")
def test_scale(student):
    student.read("scale.cu")


@task("shift")
def test_shift(student):
    student.read("scale.cu")
"""

KERNEL_PICTURES = '''
"""Lanes of two kernels."""

import numpy
from grader.learner.pictures import Cell, Grid, Panel, Picture, launched


def pictures(student):
    def lanes(name, block=64):
        student.read("scale.cu")
        report = student.probe.launch(name, block, numpy.ones(64, numpy.float32))
        launched(report)
        cells = [[Cell("blue", str(row["lanes"])) for row in report["steps"]]]
        return Grid(cells, f"{name} has {len(cells[0])} accesses.")

    for name in ("scale", "shift"):
        panel = Panel(name, lambda name=name: lanes(name), name)
        yield Picture(name, "A cell is an access.", [panel])
    yield Picture("many", "A cell is an access.", [Panel("scale", lambda: lanes("scale", 4096))])
'''


@pytest.fixture
def means(kit: MiniKit) -> MiniKit:
    """The mini kit with pictures of its function."""
    kit.give("pictures.py", MEANS, 'for = "pictures"')
    return kit


@pytest.fixture
def kernels(kit: MiniKit) -> MiniKit:
    """The mini kit with a second lab, of two kernels, solved."""
    for track in ("exercises", "solutions", "tests"):
        (kit.root / track / "lab91").mkdir()
    tasks = "".join(KERNEL_TASK.format(name=name) for name in ("scale", "shift"))
    (kit.root / "exercises/lab91/lab.toml").write_text(KERNEL_MANIFEST + tasks)
    for track in ("exercises", "solutions"):
        (kit.root / track / "lab91" / "scale.cu").write_text(KERNELS)
    (kit.root / "exercises/lab91/pictures.py").write_text(KERNEL_PICTURES)
    (kit.root / "tests/lab91/probes.py").write_text(KERNEL_PROBES)
    (kit.root / "tests/lab91/test_kernels.py").write_text(KERNEL_TESTS)
    return kit


def show(kit: MiniKit, lab: str = "lab90", task: str = "", **options: Any) -> page.ShowResult:
    out = options.pop("out", None)
    settings = {"png": False, "solution": False, **options}
    return page.show(load_lab(kit.root, lab), task, out, **settings)


def page_of(told: page.ShowResult) -> str:
    return told.files[0].read_text(encoding="utf-8")


def typed(kit: MiniKit, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grader.cli", "show", *words]
    return subprocess.run(command, cwd=kit.root, capture_output=True, text=True, check=False)


def drawn(text: str) -> list[ElementTree.Element]:
    """Every <svg> of a page, parsed as the XML that it must be."""
    return [ElementTree.fromstring(found) for found in re.findall(r"<svg.*?</svg>", text, re.S)]


def words_of(image: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in image if element.tag.endswith("text")]


# -- pictures on a lab's page ---------------------------------------------------------------------


def ask_for(kit: MiniKit, *names: str) -> None:
    path = kit.exercise / "README.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(text + "".join(f"\n![a picture]({name})\n" for name in names), "utf-8")


def sync(kit: MiniKit, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grader.cli", "sync", *words]
    return subprocess.run(command, cwd=kit.root, capture_output=True, text=True, check=False)


def test_sync_draws_what_a_page_shows_from_the_reference(means: MiniKit) -> None:
    ask_for(means, "means-of-prefixes.svg")
    before = sync(means, "--check")
    assert before.returncode == 1
    assert "exercises/lab90/means-of-prefixes.svg is not what the reference draws" in before.stdout
    assert sync(means).returncode == 0
    path = means.exercise / "means-of-prefixes.svg"
    image = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    assert "The means are [1.0, 1.5, 3.0]." in image.attrib["aria-label"]
    assert {"Means of prefixes", "falling"} <= set(words_of(image))
    assert "prefers-color-scheme:dark" in path.read_text(encoding="utf-8")
    assert sync(means, "--check").returncode == 0
    assert "stray" not in "".join(lint_sources.static_faults(load_lab(means.root, "lab90")))
    path.write_text("<svg/>", encoding="utf-8")
    assert sync(means, "--check").returncode == 1


def test_a_page_may_show_one_tasks_panels_of_a_picture(kernels: MiniKit) -> None:
    path = kernels.root / "exercises/lab91/README.md"
    path.write_text("![launches](scale.scale.svg)\n", encoding="utf-8")
    (drawn,) = page_pictures.stale(load_lab(kernels.root, "lab91"))
    assert drawn.name == "scale.scale.svg"


def test_a_picture_that_a_page_shows_and_nobody_has_drawn_is_a_fault(means: MiniKit) -> None:
    ask_for(means, "one-value.svg")
    faults = "".join(lint_sources.static_faults(load_lab(means.root, "lab90")))
    assert "README.md shows one-value.svg, which is missing: infralens sync" in faults


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["medians.svg"], "the pictures of lab90 are means-of-prefixes.svg, means-of"),
        (["a.svg", "b.svg", "c.svg", "d.svg"], "shows 4 pictures; a page has at most 3."),
    ],
)
def test_a_page_that_asks_for_too_much_is_told(
    means: MiniKit, names: list[str], sentence: str
) -> None:
    ask_for(means, *names)
    done = sync(means)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


# -- the command ----------------------------------------------------------------------------------


def test_the_command_writes_one_page_and_prints_its_path(means: MiniKit) -> None:
    means.solve()
    done = typed(means, "lab90")
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert said == ["3 of 3 drawings of lab90 were made.", ".infralens/pictures/lab90.html"]
    assert (means.root / said[-1]).is_file()


def test_a_page_holds_titles_sentences_and_words_for_each_drawing(means: MiniKit) -> None:
    means.solve()
    text = page_of(show(means))
    assert "<h2>Means of prefixes</h2>\n<p>A bar is the mean of what came before it.</p>" in text
    assert "<h3>rising &lt;values&gt;</h3>" in text
    images = drawn(text)
    assert [image.get("aria-label") for image in images] == [
        "Legend: blue: mean",
        "The means are [1.0, 1.5, 3.0].",
        "The means are [8.0, 4.0].",
        "The means are [5.0].",
    ]
    assert all(image.get("role") == "img" for image in images)
    assert text.count("<summary>In words</summary><p>The means are") == 3


def test_a_page_needs_nothing_from_outside_and_no_script(means: MiniKit) -> None:
    means.solve()
    text = page_of(show(means))

    class Tags(HTMLParser):
        found: set[str] = set()  # noqa: RUF012
        sources: list[str] = []  # noqa: RUF012

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.found.add(tag)
            self.sources += [name for name, _ in attrs if name in ("src", "href", "onload")]

    parser = Tags()
    parser.feed(text)
    assert not parser.found & {"script", "link", "img", "iframe", "object", "image", "use"}
    assert parser.sources == []
    assert "url(" not in text
    assert "@import" not in text
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in text


def test_a_page_has_colours_for_light_and_for_dark_paper(means: MiniKit) -> None:
    means.solve()
    text = page_of(show(means))
    assert "@media (prefers-color-scheme:dark)" in text
    for name, (light, dark) in palette.COLOURS.items():
        assert text.count(f"--{name}:{light}") == 1
        assert text.count(f"--{name}:{dark}") == 1
    for image in drawn(text):
        for element in image:
            for kind in re.findall(r"\b[fs]-(\w+)", element.get("class") or ""):
                assert kind in palette.COLOURS


def test_panels_of_a_picture_share_a_scale_where_it_says_so(means: MiniKit) -> None:
    means.solve()
    lab = load_lab(means.root, "lab90")
    first, second = page.draw(lab, lab.exercise)
    assert [shown.drawing.limit for shown in first.panels] == [8.0, 8.0]
    assert [shown.drawing.limit for shown in second.panels] == [0.0]


def test_out_and_png_say_where_files_go(means: MiniKit, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    means.solve()
    told = show(means, out=tmp_path / "new" / "mine.html", png=True)
    assert [path.name for path in told.files] == ["mine.html", "mine-1.png", "mine-2.png"]
    for path in told.files[1:]:
        data = path.read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = (int.from_bytes(data[i : i + 4], "big") for i in (16, 20))
        assert width > 400
        assert height > 150


def test_without_matplotlib_png_is_a_sentence(
    means: MiniKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LabError, match=r"--png needs matplotlib: pip install -e '\.\[plots\]'"):
        show(means, png=True)


def test_solution_draws_the_reference(means: MiniKit) -> None:
    assert show(means).drawn == 0
    told = show(means, solution=True)
    assert told.drawn == 3
    assert "from the code in solutions/lab90" in page_of(told)


def test_an_edited_pictures_file_is_named_with_what_restores_it(means: MiniKit) -> None:
    means.solve()
    assert show(means).drawn == 3
    (means.exercise / "pictures.py").write_text("raise SystemExit('changed')\n")
    with pytest.raises(LabError) as caught:
        show(means)
    assert str(caught.value) == (
        f"{means.exercise / 'pictures.py'} is at fault, not your code: SystemExit: changed; "
        "`git checkout -- exercises/lab90/pictures.py` restores the kit's own."
    )


def test_a_release_without_the_reference_draws_from_the_given_file(means: MiniKit) -> None:
    means.solve()
    shutil.rmtree(means.solution)
    assert show(means).drawn == 3
    with pytest.raises(LabError, match="lab90 has no reference here"):
        show(means, solution=True)


def test_the_command_loads_nothing_of_this_at_start_up() -> None:
    code = (
        "import sys, grader.cli; "
        "print([m for m in ('numpy', 'matplotlib', 'grader.learner.pictures', 'grader.suite')"
        " if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_what_a_labs_pictures_import_loads_no_library() -> None:
    code = (
        "import sys, grader.learner.pictures; "
        "print([m for m in ('numpy', 'matplotlib', 'torch', 'grader.learner.pictures.page')"
        " if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


TOGETHER = '''
"""Lines of one function, drawn together."""

from grader.learner.pictures import Lines, Panel, Picture, PictureFault, Series


def pictures(student):
    def line(name, values):
        means = student.running_mean(values)
        if name == "wrong":
            raise PictureFault("the means are wrong")
        return Lines([Series(name, list(enumerate(means)))], f"{name}: {means}.")

    rows = {"first": [1.0, 2.0], "wrong": [3.0], "second": [5.0, 7.0]}
    panels = [
        Panel("running_mean", lambda n=name, v=values: line(n, v), name)
        for name, values in rows.items()
    ]
    yield Picture("Means of prefixes", "A point is a mean.", panels, together=True)
'''


def test_panels_that_are_drawn_together_are_one_and_the_faulty_one_is_a_sentence(
    means: MiniKit,
) -> None:
    means.solve()
    (means.exercise / "pictures.py").write_text(TOGETHER)
    told = show(means)
    assert told.drawn == 2
    assert told.sentences == [
        "lab90.running_mean: the means are wrong.",
        "2 of 3 drawings of lab90 were made.",
    ]
    text = page_of(told)
    (image,) = drawn(text)
    assert image.get("aria-label") == "first: [1.0, 1.5]. second: [5.0, 6.0]."
    assert re.findall("<h3>.*</h3>", text) == ["<h3>wrong</h3>"]


def test_panels_that_are_drawn_together_are_sentences_where_none_can_be_drawn(
    means: MiniKit,
) -> None:
    (means.exercise / "pictures.py").write_text(TOGETHER)
    told = show(means)
    assert (told.drawn, told.sentences[-1]) == (0, "0 of 3 drawings of lab90 were made.")
    assert re.findall("<h3>(.*)</h3>", page_of(told)) == ["first", "wrong", "second"]


# -- where there is nothing to draw ---------------------------------------------------------------


def test_a_task_that_is_not_started_is_a_sentence_with_its_line(means: MiniKit) -> None:
    done = typed(means, "lab90")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr + done.stdout
    line = next(
        number
        for number, row in enumerate(means.main.read_text().splitlines(), start=1)
        if "raise NotImplementedError" in row
    )
    told = "lab90.running_mean is not started: its placeholder still stands at "
    told += f"running_mean.py:{line}."
    assert done.stdout.splitlines()[:2] == [told, "0 of 3 drawings of lab90 were made."]
    text = (means.root / ".infralens/pictures/lab90.html").read_text()
    assert text.count(f'<p class="note">{told}</p>') == 3


def test_a_helper_that_is_not_started_is_named_and_not_the_panels_task(means: MiniKit) -> None:
    """The line is the helper's, so the name beside it is the helper's, too."""
    means.write(
        "def total(values):\n"
        '    raise NotImplementedError("lab90.total")\n\n\n'
        "def running_mean(values):\n"
        "    return total(values)\n"
    )
    told = "lab90.total is not started: its placeholder still stands at running_mean.py:2."
    assert typed(means, "lab90").stdout.splitlines()[0] == told


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("def running_mean(values):\n    return values[7]\n", "raised IndexError: list index out"),
        ("def running_mean(values):\n    return []\n", "0 means of 3 values."),
        ("def running_mean(values):\n    return ['a'] * len(values)\n", "could not be drawn"),
        ("def running_mean(values):\n    return 3\n", "could not be drawn"),
        ("def running_mean(values)\n", "running_mean.py does not import"),
        ("def other(values): pass\n", "has no `running_mean`"),
        ("def running_mean(values):\n    while True: pass\n", "no answer after 0.3 s"),
        ("def running_mean(values):\n    raise SystemExit(3)\n", "sys.exit(3) was called"),
    ],
)
def test_what_goes_wrong_is_a_sentence(means: MiniKit, code: str, sentence: str) -> None:
    means.manifest("call_seconds = 5", "call_seconds = 0.3")
    means.write(code)
    told = show(means)
    assert told.drawn == 0
    assert sentence in told.sentences[0]
    assert told.sentences[0].startswith("lab90.running_mean: ")
    assert "Traceback" not in page_of(told)


def test_one_drawing_that_fails_leaves_the_others(means: MiniKit) -> None:
    text = (means.solution / "running_mean.py").read_text()
    means.write(
        text.replace("    means, total", "    assert values != [8.0, 0.0]\n    means, total")
    )
    told = show(means)
    assert told.drawn == 2
    assert told.sentences[0].startswith("lab90.running_mean: raised AssertionError")
    assert len(drawn(page_of(told))) == 3


def test_a_lab_without_pictures_names_those_that_have_some(
    means: MiniKit, kernels: MiniKit
) -> None:
    manifest = kernels.root / "exercises/lab91/lab.toml"
    manifest.write_text(
        manifest.read_text().replace('{ file = "pictures.py", for = "pictures" }', "")
    )
    done = typed(kernels, "lab91")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "infralens: lab91 has no pictures; labs with pictures: lab90.\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["lab92"], "No lab `lab92` here"),
        (["lab90", "other"], "lab90 has no task `other`; its tasks are: running_mean."),
        (["lab90", "--out", "."], "cannot be written"),
    ],
)
def test_a_wrong_call_is_a_sentence_and_status_2(
    means: MiniKit, words: list[str], sentence: str
) -> None:
    done = typed(means, *words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import nothing_like_it\n", "is at fault, not your code: ModuleNotFoundError"),
        ("def pictures(student):\n    return [1 / 0]\n", "not your code: ZeroDivisionError"),
        ("", "not your code: AttributeError"),
    ],
)
def test_a_faulty_pictures_file_is_not_the_learners_fault(
    means: MiniKit, text: str, sentence: str
) -> None:
    (means.exercise / "pictures.py").write_text(text)
    with pytest.raises(LabError, match=sentence):
        show(means)


def test_a_missing_pictures_file_is_named(means: MiniKit) -> None:
    (means.exercise / "pictures.py").unlink()
    with pytest.raises(LabError, match=r"pictures\.py is missing"):
        show(means)


# -- kernels --------------------------------------------------------------------------------------


@needs_compiler
def test_kernels_are_drawn_and_a_launch_that_no_gpu_takes_is_a_sentence(kernels: MiniKit) -> None:
    told = show(kernels, "lab91")
    assert told.drawn == 2
    assert told.sentences[0] == (
        "lab91.scale: a block of (4096, 1, 1) threads is larger than 1024."
    ) or told.sentences[0].startswith("lab91.scale: block.x is 4096")
    first, second = drawn(page_of(told))
    assert words_of(first) == ["64", "64"]
    assert words_of(second) == ["64", "64", "64", "64"]


@needs_compiler
def test_one_tasks_pictures_only(kernels: MiniKit) -> None:
    for name in ("shift", "lab91.shift"):
        told = show(kernels, "lab91", name)
        assert told.sentences == ["1 of 1 drawings of lab91 were made."]
        assert [image.get("aria-label") for image in drawn(page_of(told))] == [
            "shift has 4 accesses."
        ]


def test_a_task_without_a_picture_names_those_that_have_one(kernels: MiniKit) -> None:
    file = kernels.root / "exercises/lab91/pictures.py"
    file.write_text(file.read_text().replace('("scale", "shift")', '("scale",)'))
    with pytest.raises(LabError, match=r"No picture shows `shift`; .* picture: scale"):
        show(kernels, "lab91", "shift")


@needs_compiler
@pytest.mark.parametrize(
    ("old", "new", "sentence", "failed"),
    [
        ("2.0f * x[i];", "2.0f * x[i]", "scale.cu:5: error: expected", 3),
        ("2.0f * x[i];", "std::sin(x[i]);", "scale.cu:5: `std::`", 3),
        ("if (i < n) x[i]", "x[i + 1]", "lab91.scale: out of bounds: thread 63 of block 0", 1),
        ("    __syncthreads();\n", "", "lab91.shift: race: thread", 1),
    ],
)
def test_a_wrong_kernel_is_its_error_in_the_place_of_the_drawing(
    kernels: MiniKit, old: str, new: str, sentence: str, failed: int
) -> None:
    assert old in KERNELS
    (kernels.root / "exercises/lab91/scale.cu").write_text(KERNELS.replace(old, new))
    told = show(kernels, "lab91")
    assert [text for text in told.sentences if text.startswith(sentence)] == told.sentences[:1]
    assert "Traceback" not in page_of(told)
    assert page_of(told).count(f'<p class="note">{sentence}') == failed


def test_a_kernel_that_is_not_started_is_no_fault_of_the_others(kernels: MiniKit) -> None:
    from grader.lab import skeleton

    skeleton.write(load_lab(kernels.root, "lab91"), ["scale.cu"])
    file = kernels.root / "exercises/lab91/scale.cu"
    start, _, rest = file.read_text().partition('extern "C" __global__ void shift')
    solved = KERNELS.partition('extern "C" __global__ void shift')[2]
    assert "NOT STARTED lab91.shift" in rest
    file.write_text(start + 'extern "C" __global__ void shift' + solved)
    told = show(kernels, "lab91")
    assert told.drawn == (0 if capabilities.missing("cxx") else 1)
    if not capabilities.missing("cxx"):
        assert re.fullmatch(
            r"lab91\.scale is not started: its placeholder still stands at scale\.cu:\d+\.",
            told.sentences[0],
        )


def test_without_a_compiler_pictures_of_kernels_say_so(
    kernels: MiniKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        capabilities, "first_missing", lambda needs: "no C++ compiler here" if needs else ""
    )
    told = show(kernels, "lab91")
    assert told.drawn == 0
    assert told.sentences[0] == "lab91.scale cannot be shown here: no C++ compiler here."


# -- the labs' own --------------------------------------------------------------------------------

WITH_PICTURES = [lab for lab in all_labs(ROOT) if lab.pictures]


@functools.cache
def of_reference(lab_id: str) -> list[page.RenderedPicture]:
    lab = load_lab(ROOT, lab_id)
    return page.draw(lab, lab.solution)


@pytest.mark.parametrize("lab", WITH_PICTURES, ids=lambda lab: lab.id)
def test_pictures_of_a_lab_import_only_what_they_may(lab: Any) -> None:
    tree = ast.parse(lab.given_source(lab.pictures).read_text(encoding="utf-8"))
    allowed = {*sys.stdlib_module_names, "numpy", *(name[:-3] for name in lab.given)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if node.module == "grader.learner.pictures":
                assert {alias.name for alias in node.names} <= set(pictures.__all__)
            else:
                assert node.module.split(".")[0] in allowed
        elif isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= allowed


@pytest.mark.parametrize("lab", WITH_PICTURES, ids=lambda lab: lab.id)
def test_pictures_of_a_lab_come_out_of_its_reference_and_no_text_covers_another(lab: Any) -> None:
    needs = {need for task in lab.tasks for need in task.needs}
    if reason := capabilities.first_missing(tuple(sorted(needs & {"cxx", "triton", "gloo"}))):
        pytest.skip(reason)
    results = of_reference(lab.id)
    assert results
    for shown in (shown for result in results for shown in result.panels):
        assert not shown.failed, shown.drawing.alt
        assert len(shown.drawing.alt) > 20
        assert overlaps(shown.drawing) == []
    for result in results:
        assert result.picture.how.endswith(".")
        assert len(result.picture.title) > 8


# -- lab by lab -----------------------------------------------------------------------------------


def drawings(lab_id: str, picture: int) -> list[Any]:
    return [shown.drawing for shown in of_reference(lab_id)[picture].panels]


def changed(tmp_path: Path, lab_id: str, *edits: tuple[str, str, str]) -> Path:
    """A copy of the reference in which each file's first text is another one, once."""
    lab = load_lab(ROOT, lab_id)
    lab.copy_to(tmp_path)
    for name, old, new in edits:
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert old in text
        (tmp_path / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    return tmp_path


def told(lab_id: str, folder: Path, task: str) -> list[str]:
    """What stands in the places of a task's drawings, "" for one that was made."""
    results = page.draw(load_lab(ROOT, lab_id), folder, task)
    panels = [shown for result in results for shown in result.panels]
    return [shown.drawing.alt if shown.failed else "" for shown in panels]


def of_task(lab_id: str, folder: Path, task: str) -> list[Any]:
    results = page.draw(load_lab(ROOT, lab_id), folder, task)
    return [shown.drawing for result in results for shown in result.panels]


def colours(made: Grid) -> list[list[str]]:
    return [[cell.colour for cell in row] for row in made.cells]


@needs_triton
def test_each_program_of_a_softmax_owns_its_row_and_masks_the_next() -> None:
    staircase, walk = drawings("lab06", 0)
    for number, row in enumerate(colours(staircase)):
        start = 100 * (number // 2)
        moved = "green" if number % 2 else "blue"
        assert row == [
            moved if start <= at < start + 100 else "pale" if 0 <= at - start - 100 < 28 else "off"
            for at in range(328)
        ]
    assert staircase.row_notes == ["100 of 128 lanes"] * 6
    # a row of 100 in blocks of 32: read twice, written once
    for row, kind in enumerate(("blue", "green")):
        many = [sum(cells[at] == kind for cells in colours(walk)) for at in range(200)]
        assert many == [2 - row] * 200


@needs_triton
def test_a_block_of_1024_lanes_holds_a_row_of_781() -> None:
    (block,) = drawings("lab06", 1)
    lanes = [colour for row in colours(block) for colour in row]
    assert lanes == ["blue"] * 781 + ["pale"] * (1024 - 781)
    assert "781 are on and load x[0] to x[780], 243 are off" in block.alt


@needs_triton
def test_passes_over_memory_are_those_of_the_closed_forms() -> None:
    a_row = 1 / 2048  # a number a row, as a share of the matrix
    want = {
        "naive_softmax": (5 + 2 * a_row, 3 + 2 * a_row),
        "softmax": (1, 1),
        "softmax_scaled_masked": (1 + 1 / 4, 1),
        "softmax_backward": (2, 1),
        "online_softmax": (2, 1),
        # an int64 label, and the label's logit once more; loss and lse
        "log_softmax_cross_entropy": (1 + 3 * a_row, 2 * a_row),
    }
    for shown in of_reference("lab06")[2].panels:
        parts = [bar.parts for bar in shown.drawing.bars]
        sums = tuple(sum(part) for part in zip(*parts, strict=True))
        assert sums == pytest.approx(want[shown.panel.task]), shown.panel.task
        assert f"{sum(sums):.2f} passes in all" in shown.drawing.alt


@needs_triton
def test_a_roofline_has_the_intensities_of_the_closed_forms() -> None:
    (roof,) = drawings("lab06", 3)
    memory, arithmetic, *points = roof.series
    assert memory.points[-1] == arithmetic.points[0] == (20.0, 67e12)
    passes = {"naive_softmax": 8 + 4 / 2048, "online_softmax": 3, "softmax": 2}
    assert [series.name for series in points] == list(passes)
    for series, count in zip(points, passes.values(), strict=True):
        ((intensity, speed),) = series.points
        assert intensity == pytest.approx(5 / (4 * count))
        assert speed == pytest.approx(3.35e12 * intensity)
        microseconds = 65_536 * 2_048 * 4 * count / 3.35e12 * 1e6
        assert f"{microseconds:,.0f} µs at least" in series.label


@needs_triton
@pytest.mark.parametrize(
    ("task", "edits", "sentence"),
    [
        ("softmax", [("mask=inside, other=-float", "mask=cols < N + 1, other=-float")],
         "lab06.softmax: out of bounds: program 2 reads x"),
        ("softmax", [('mask=inside, other=-float("inf"))', "mask=inside, other=0.0)")],
         "lab06.softmax: out[0, 0] is 0.0"),
        ("naive_softmax", [("x - maxima", "x")], ""),
        ("naive_softmax", [("x.amax(dim=1, keepdim=True)", "x.amax(dim=0, keepdim=True)")],
         "lab06.naive_softmax: out[0, 0] is "),
        ("online_softmax", [("d = d * tl.exp(m - shift) + tl", "d = d + tl")],
         "lab06.online_softmax: out[0, 0] is 0.0"),
        ("softmax_backward", [("    return dx\n    # END", "    return dx[:-1]\n    # END")],
         "lab06.softmax_backward: the result has shape (3, 2048) instead of (4, 2048)."),
    ],
)  # fmt: skip
def test_a_wrong_softmax_is_its_sentence(
    tmp_path: Path, task: str, edits: list[tuple[str, str]], sentence: str
) -> None:
    folder = changed(tmp_path, "lab06", *(("triton_softmax.py", *edit) for edit in edits))
    found = told("lab06", folder, task)
    assert found[0].startswith(sentence)
    assert bool(sentence) or not any(found)


@pytest.mark.parametrize("lab_id", ["lab02", "lab03", "lab06", "lab07"])
def test_placeholders_are_not_started_in_every_place(lab_id: str) -> None:
    lab = load_lab(ROOT, lab_id)
    results = page.draw(lab, lab.exercise)
    assert [len(result.panels) for result in results] == [
        sum(shown.panels for shown in result.panels) for result in of_reference(lab_id)
    ]
    for shown in (shown for result in results for shown in result.panels):
        assert shown.drawing.alt.startswith(f"{lab_id}.{shown.panel.task} ")
        needs = lab.task(shown.panel.task).needs
        assert "is not started" in shown.drawing.alt or capabilities.first_missing(needs)


def test_without_triton_its_panels_say_so_and_the_others_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = capabilities.missing
    monkeypatch.setattr(
        capabilities,
        "missing",
        lambda need: "Triton is not installed" if need == "triton" else real(need),
    )
    lab = load_lab(ROOT, "lab07")
    (kernel,) = page.draw(lab, lab.solution, "flash_kernel")[0].panels
    assert kernel.drawing.alt == "lab07.flash_kernel cannot be shown here: Triton is not installed."
    (model,) = page.draw(lab, lab.solution, "io_model")[0].panels
    assert not model.failed


@needs_triton
def test_memory_of_attention_grows_as_its_closed_forms_say() -> None:
    (memory,) = drawings("lab07", 0)
    naive, matrix, flash, output = (dict(series.points) for series in memory.series)
    D = 32
    for S in (64, 128, 256, 512, 1024):
        # three matrices of float32 and one of booleans; k and v once for each query head
        assert naive[S] == 13 * S * S + 8 * S * D
        assert (matrix[S], output[S]) == (4 * S * S, 4 * S * D)
    for S in (256, 512, 1024):
        # beside o and lse, tiles of one size
        assert flash[S] - flash[S // 2] == S // 2 * 4 * (D + 1)


def tiles(queries: int, keys: int) -> list[list[str]]:
    """Colours of the tiles, pair by pair."""
    found: list[list[str]] = []
    for i in range(0, queries, 32):
        found.append([])
        for j in range(0, keys, 16):
            pairs = itertools.product(range(i, min(i + 32, queries)), range(j, min(j + 16, keys)))
            seen = [key <= row + keys - queries for row, key in pairs]
            found[-1].append("blue" if all(seen) else "orange" if any(seen) else "off")
    return found


@needs_triton
def test_tiles_below_the_diagonal_are_walked_row_by_row() -> None:
    forward, skips, kernel = drawings("lab07", 1)
    for made, queries, keys in ((forward, 152, 152), (skips, 56, 152), (kernel, 152, 152)):
        assert colours(made) == tiles(queries, keys)
    for made in (forward, skips):
        labels = [cell.label for row in made.cells for cell in row if cell.label]
        assert labels == [str(number) for number in range(1, len(labels) + 1)]
    for row in kernel.cells:
        labels = [cell.label for cell in row if cell.label]
        assert labels == [str(number) for number in range(1, len(labels) + 1)]
    assert "30 of 50 tiles are computed: 20 wholly visible, 10 cut" in kernel.alt


@needs_triton
def test_traffic_is_that_of_the_model_and_of_the_loads() -> None:
    model, kernel = drawings("lab07", 2)
    S, D = 1024, 64
    standard = 4 * S * S + 4 * S * D
    flash = 2 * S * D + 3 * (3 * S * D + 4 * S)
    assert [bar.parts[0] for bar in model.bars] == pytest.approx(
        [2 * standard / 1e6, 2 * flash / 1e6]
    )
    once = 2 * S * D
    want = {"q": once, "k": 8 * once, "v": 8 * once, "o": once, "lse": 4 * S}
    found = {bar.label: round(sum(bar.parts) * 1e6) for bar in kernel.bars}
    assert found == {**want, "all": sum(want.values())}
    assert list(found) == [*want, "all"]
    assert "q is read once, k is read 8 times, v is read 8 times, o is written once." in (
        kernel.caption
    )
    assert model.limit == kernel.limit


@needs_triton
def test_running_statistics_are_those_of_each_prefix() -> None:
    (made,) = drawings("lab07", 3)
    sums, m = (list(series.points) for series in made.series)
    assert [at for at, _ in sums] == list(range(1, 9))
    assert [value for _, value in m] == sorted(value for _, value in m)
    for (_, before), (_, after), (at, low), (_, high) in zip(
        sums, sums[1:], m, m[1:], strict=False
    ):
        kept = before * math.exp(low - high)
        # what a block of 8 adds lies between 0 and 8
        assert kept < after <= kept + 8, at
    assert any(after < before for (_, before), (_, after) in itertools.pairwise(sums))


MODEL = "flashattention_mental_model.py"
KERNEL = "flash_kernel.py"


@needs_triton
@pytest.mark.parametrize(
    ("task", "file", "old", "new", "sentence"),
    [
        ("io_model", MODEL, "rounds * (3", "rounds * (2",
         "lab07.io_model: io_model(1024, 64, 98304) gives 4,456,448 and 536,576 elements instead "
         "of 4,456,448 and 733,184."),
        ("online_softmax", MODEL, "l = l * torch.exp(m - shift) + ", "l = l + ",
         "lab07.online_softmax: l[] is "),
        ("flash_forward_skips", MODEL, "return k_start > (q_stop - 1) + (S_kv - S)",
         "return k_start > (q_stop - 1)",
         "lab07.flash_forward_skips: it skips rows 0 to 31 with keys 32 to 47, of which a pair is "
         "visible."),
        ("naive_attention", MODEL, "p = torch.softmax(s, dim=-1)", "p = torch.softmax(s, dim=-2)",
         "lab07.naive_attention: o[0, 0, 0, 0] is "),
        ("flash_kernel", KERNEL, "exists = rows < S\n", "exists = rows < S + 1\n",
         "lab07.flash_kernel: out of bounds: program "),
        ("flash_kernel", KERNEL, "decay = tl.exp2(m - shift)\n", "decay = tl.exp2(m - m)\n",
         "lab07.flash_kernel: o[0, 0, "),
    ],
)  # fmt: skip
def test_a_wrong_attention_is_its_sentence(
    tmp_path: Path, task: str, file: str, old: str, new: str, sentence: str
) -> None:
    found = told("lab07", changed(tmp_path, "lab07", (file, old, new)), task)
    assert found[0].startswith(sentence), found[0]


@needs_triton
def test_hidden_tiles_that_are_computed_are_red(tmp_path: Path) -> None:
    skip = (
        "if causal and flash_forward_skips(i, i_stop, j, j_stop, S, S_kv):\n                break"
    )
    folder = changed(tmp_path, "lab07", (MODEL, skip, "pass"))
    results = page.draw(load_lab(ROOT, "lab07"), folder, "flash_forward_skips")
    (made,) = (shown.drawing for shown in results[0].panels)
    hidden = [["red" if name == "off" else name for name in row] for row in tiles(56, 152)]
    assert colours(made) == hidden
    assert "20 of 20 tiles are computed" in made.alt
    assert "2 wholly hidden" in made.alt


@needs_triton
@pytest.mark.parametrize("name", ["keys_outside", "loops_over_heads"])
def test_tiles_of_other_right_answers_are_the_same(name: str) -> None:
    folder = ROOT / "tests/lab07/variants" / name
    results = page.draw(load_lab(ROOT, "lab07"), folder, "flash_forward_skips")
    (made,) = (shown.drawing for shown in results[0].panels)
    assert colours(made) == tiles(56, 152)


@needs_triton
def test_a_block_of_several_rows_shows_no_lanes_that_are_not_known() -> None:
    folder = ROOT / "tests/lab06/variants/several_rows_a_program"
    first, block, *_ = page.draw(load_lab(ROOT, "lab06"), folder, "softmax")
    made = first.panels[0].drawing
    assert colours(made) == [["blue"] * 300, ["green"] * 300]
    assert made.caption == "Where lanes of a block of several rows are off is not shown."
    lanes = [colour for row in colours(block.panels[0].drawing) for colour in row]
    assert (lanes.count("blue"), lanes.count("orange"), lanes.count("pale")) == (781, 781, 2534)


# -- lab 02 ---------------------------------------------------------------------------------------

LOOP = "train_single_gpu.py"
# Four blocks 64 -> 256 -> 64 and a tied embedding of 64 x 64, in float32; 256 tokens.
PARAMS = 4 * (4 * 2 * 64 * 256 + 64 * 64)
NARROW, WIDE = 4 * 256 * 64, 4 * 256 * 256
# Of each block its input, and what is before and behind the GELU; the head's input, and the loss's
# probabilities.
ACTIVATIONS = 4 * (NARROW + 2 * WIDE) + 2 * NARROW


def by_kind(made: Areas) -> list[dict[str, int]]:
    return [
        {name: round(1000 * value) for name, value in zip(made.names, row, strict=True)}
        for row in made.course
    ]


def most(made: Areas, kind: str) -> int:
    return max(row[kind] for row in by_kind(made))


def test_state_is_made_in_the_first_step_and_stands_there_in_the_second() -> None:
    first, second = drawings("lab02", 0)
    names = ["zero", "forward", "backward", "clip", "optimizer"]
    for made in (first, second):
        assert [name for _, name in made.phases] == names
        rows = by_kind(made)
        assert all(row["parameter"] == PARAMS for row in rows)
        assert rows[-1]["optimizer"] == 2 * PARAMS
        assert rows[-1]["gradient"] == PARAMS
        assert 0 <= most(made, "activation") - ACTIVATIONS <= 16
        # all that the forward kept is there when the backward begins
        begins = rows[made.phases[2][0]]
        assert 0 <= begins["activation"] - ACTIVATIONS <= 16
        assert begins["gradient"] == 0
        peak = max(sum(row.values()) for row in rows)
        assert made.peak == f"peak: {peak:,} bytes"
        assert made.alt.startswith(f"{peak:,} bytes at the peak, in backward: parameter {PARAMS:,}")
    for index, row in enumerate(by_kind(first)):
        if index <= first.phases[4][0]:
            assert row["optimizer"] == 0
    assert all(row["optimizer"] == 2 * PARAMS for row in by_kind(second))
    assert [by_kind(made)[0]["gradient"] for made in (first, second)] == [0, PARAMS]
    assert "0 bytes when the step begins, 1,081,344 when it ends, which is 2 times" in first.alt
    assert all("your train_step ran with your AdamW" in made.caption for made in (first, second))
    assert first.limit == second.limit == second.highest


def test_checkpointing_and_micro_batches_shrink_activations_alone() -> None:
    whole, checkpointed, accumulated = drawings("lab02", 1)
    assert whole.course == drawings("lab02", 0)[1].course
    for made in (checkpointed, accumulated):
        assert made.limit == whole.highest
        for kind, size in (("parameter", 1), ("optimizer", 2), ("gradient", 1)):
            assert most(made, kind) == size * PARAMS
        assert f"{1 - made.highest / whole.highest:.0%} below that of the plain step" in made.alt
        assert made.highest < 0.75 * whole.highest
    # the inputs of four blocks, and one block's inside at a time
    assert 0 <= most(checkpointed, "activation") - (4 * NARROW + 2 * WIDE) <= 16
    assert 0 <= most(accumulated, "activation") - ACTIVATIONS // 4 <= 16
    names = [name for _, name in accumulated.phases]
    assert names == ["zero", *(f"batch {n}" for n in (1, 2, 3, 4)), "clip", "optimizer"]


def test_the_loss_scale_goes_by_its_rule() -> None:
    (made,) = drawings("lab02", 2)
    scales, skipped = (list(series.points) for series in made.series)
    assert [step for step, _ in scales] == list(range(1, 25))
    assert skipped == [(6, 2048), (15, 4096), (16, 2048)]
    doubled = {step for (_, low), (step, high) in itertools.pairwise(scales) if high == 2 * low}
    assert doubled == {5, 11, 15, 21}
    halved = {step for (_, high), (step, low) in itertools.pairwise(scales) if high == 2 * low}
    assert halved == {7, 16, 17}
    assert not made.series[1].joined


def test_the_ledger_and_the_meter_agree() -> None:
    (made,) = drawings("lab02", 3)
    bars = [bar.parts for bar in made.bars]
    assert bars[::2] == bars[1::2]
    assert "20 of 20 figures are equal" in made.alt
    # one matrix of 300 x 32 for embedding and head, and a frozen vector
    assert {parts[0] for parts in bars} == {4 * (300 * 32 + 32) / 1000}
    assert {parts[1] for parts in bars[:6]} == {4 * (2 * 300 * 32) / 1000 + 0.004}


@pytest.mark.parametrize(
    ("task", "old", "new", "sentences"),
    [
        ("train_step", "opt.zero_grad(set_to_none=True)\n    loss = loss_fn", "loss = loss_fn",
         ["", "lab02.train_step: after step 2 element "]),
        ("train_step", "return StepStats(loss.item()", "return StepStats(2 * loss.item()",
         [f"lab02.train_step: the loss of step {n} is " for n in (1, 2)]),
        ("AdamW", "value=-lr / (1 - b1**t)", "value=-lr",
         ["lab02.AdamW: after step 1 of AdamW element "]),
        ("AdamW", "p.mul_(1 - lr * group", "p.mul_(1 + lr * group",
         ["lab02.AdamW: after step 1 of AdamW element "]),
        ("CheckpointFunction", "None, None, *(t.grad for", "None, None, *(2 * t.grad for",
         ["lab02.CheckpointFunction: after step 2 element "]),
        ("CheckpointFunction", "outputs = ctx.fn(*inputs)", "outputs = ctx.fn(inputs)",
         ["lab02.CheckpointFunction: raised "]),
        ("accumulate", 'reduction="sum") / total', 'reduction="sum") / len(micro)',
         ["lab02.accumulate: the loss of step 2 is "]),
        ("LossScaler", "self.current *= self.backoff", "pass",
         ["lab02.LossScaler: after step 6, which met an infinity, the scale is 2048 instead of "
          "1024."]),
        ("LossScaler", "if self.found_inf[id(opt)]:", "if False:",
         ["lab02.LossScaler: after step 6, which met an infinity, the parameter is "]),
    ],
)  # fmt: skip
def test_a_wrong_step_is_its_sentence(
    tmp_path: Path, task: str, old: str, new: str, sentences: list[str]
) -> None:
    found = told("lab02", changed(tmp_path, "lab02", (LOOP, old, new)), task)
    assert len(found) == len(sentences)
    for text, start in zip(found, sentences, strict=True):
        assert text.startswith(start)
        assert bool(start) or not text


def test_a_ledger_that_misses_a_kind_is_drawn_beside_the_meter(tmp_path: Path) -> None:
    folder = changed(
        tmp_path, "lab02", (LOOP, 'yield from (("opt", leaf)', 'yield from (("temp", leaf)')
    )
    (made,) = of_task("lab02", folder, "MemoryLedger")
    assert "16 of 20" in made.alt or "12 of 20" in made.alt
    assert "optimizer in forward: 0 and 76,80" in made.alt


def test_a_step_is_drawn_with_what_is_written_already(tmp_path: Path) -> None:
    folder = changed(
        tmp_path,
        "lab02",
        (LOOP, "        for group in self.param_groups:\n            lr, (b1",
         '        raise NotImplementedError("lab02.AdamW")\n'
         "        for group in self.param_groups:\n            lr, (b1"),
    )  # fmt: skip
    results = page.draw(load_lab(ROOT, "lab02"), folder)
    (first, second), (whole, checkpointed, _), *_ = (result.panels for result in results)
    assert "your train_step ran with PyTorch's AdamW (yours is not right" in first.drawing.alt
    assert second.drawing.alt.startswith("lab02.AdamW is not started")
    assert not whole.failed
    # PyTorch's has a counter of 4 bytes for each of nine parameters
    assert most(checkpointed.drawing, "optimizer") == 2 * PARAMS + 9 * 4


def test_a_wrong_task_spoils_no_picture_of_another(tmp_path: Path) -> None:
    file, *edit = LOOP, "value=-lr / (1 - b1**t)", "value=-lr"
    folder = changed(
        tmp_path, "lab02", (file, *edit), (file, "opt.zero_grad(set_to_none=True)", "")
    )
    results = page.draw(load_lab(ROOT, "lab02"), folder)
    failed = [shown.panel.title for result in results for shown in result.panels if shown.failed]
    assert failed == ["the second step", "train_step: a batch of 8 sequences"]


# -- lab 03 ---------------------------------------------------------------------------------------

DDP = "train_ddp.py"


def bars_of(made: Timeline) -> list[tuple[str, float, float, float]]:
    """Of each all-reduce its name, where it starts, the last gradient's end, where it ends."""
    found = []
    for name, spans in made.rows[2:]:
        green = [span for span in spans if span.colour == "green"]
        middle = green[-1].end if green else spans[0].start
        found.append((name, spans[0].start, middle, spans[-1].end))
    return found


@needs_gloo
def test_buckets_leave_as_soon_as_their_gradients_are_there() -> None:
    # Six layers with 4,224 bytes of gradients: the first bucket is full at 4,096, others at 8,192.
    for made in drawings("lab03", 0)[:2]:
        rows = dict(made.rows)
        assert [(span.start, span.end) for span in rows["backward"]] == [(0, 22)]
        gradients = [1, 2, 4, 5, 6, 7, 9, 10, 11, 12, 14, 15]
        assert [(span.start, span.end) for span in rows["gradients"]] == [
            (at, at + 1) for at in gradients
        ]
        assert bars_of(made) == [
            ("bucket 0: 4,224 B", 3, 16, 18),
            ("bucket 1: 8,448 B", 8, 16, 19),
            ("bucket 2: 8,448 B", 13, 16, 20),
            ("bucket 3: 4,224 B", 16, 16, 21),
        ]
        assert made.alt.startswith("21,120 of 25,344 bytes (83%) were on their way while")
        assert made.alt.endswith("bucket 0 with 2, bucket 1 with 6, bucket 2 with 10, bucket 3 "
                                 "with 12.")  # fmt: skip
        assert made.limit == 22


@needs_gloo
def test_one_all_reduce_after_backward_hides_nothing() -> None:
    blocking = drawings("lab03", 0)[2]
    assert bars_of(blocking) == [("all of them: 25,344 B", 14, 14, 16)]
    assert blocking.rows[0][1] == [Span(0, 14, "backward", "purple")]
    assert blocking.alt.startswith("0 of 25,344 bytes (0%)")
    assert blocking.limit == 22


@needs_gloo
def test_a_ring_sends_twice_the_payload_but_for_its_own_share() -> None:
    (made,) = drawings("lab03", 1)
    payload = 4 * 120_000
    counts = [size for size in (2, 3, 4) for _ in range(size)]
    assert len(made.bars) == len(counts)
    for bar, size in zip(made.bars, counts, strict=True):
        least, more = bar.parts
        assert least == 2 * (size - 1) / size * payload / 1000
        assert 0 <= more <= 1
    assert "The function returns these products" in made.alt


def test_every_row_is_read_by_one_rank_and_two_by_another_one_too() -> None:
    (stack,) = drawings("lab03", 2)
    orders = []
    for made in stack.drawings:
        cells = made.cells
        for column in range(22):
            ranks = [line[column] for line in cells if line[column].colour == "blue"]
            assert sum(not cell.ring for cell in ranks) == 1
        assert sum(cell.ring for line in cells for cell in line) == 2
        for line in cells:
            assert sorted(cell.label for cell in line if cell.label) == list("123456")
        orders.append([[cell.label for cell in line] for line in cells])
    assert orders[0] != orders[1]


@pytest.mark.parametrize(
    ("task", "old", "new", "sentence"),
    [
        ("shard_indices", "manual_seed(seed + epoch)", "manual_seed(seed)",
         "lab03.shard_indices: epoch 1 has the order of epoch 0."),
        ("shard_indices", "if drop_last else -(-n // world_size)", "if True else n",
         "lab03.shard_indices: a rank has 5 rows of 22 instead of 6."),
        ("shard_indices", "order[rank::world_size]", "order[rank * each : (rank + 1) * each]",
         "lab03.shard_indices: the ranks' rows of epoch 0, one of each in turn, are not one order"),
        ("shard_indices", "order[i % n] for", "order[min(i, n - 2)] for",
         "lab03.shard_indices: row "),
    ],
)  # fmt: skip
def test_a_wrong_shard_is_its_sentence(
    tmp_path: Path, task: str, old: str, new: str, sentence: str
) -> None:
    (found,) = told("lab03", changed(tmp_path, "lab03", (DDP, old, new)), task)
    assert found.startswith(sentence), found


@needs_gloo
@pytest.mark.parametrize(
    ("task", "old", "new", "sentence"),
    [
        ("BucketedDDP", "flat.mul_(1 / dist.get_world_size())", "pass",
         "lab03.BucketedDDP: on rank 0 element "),
        ("BucketedDDP", "self.fresh.add(param)", "raise ArithmeticError('seven')",
         "lab03.BucketedDDP: Rank "),
        ("ring_all_reduce_", "mine += incoming", "mine.copy_(incoming)",
         "lab03.ring_all_reduce_: with 2 ranks the result on rank 0 is not the sum."),
    ],
)  # fmt: skip
def test_a_wrong_rank_is_its_sentence(
    tmp_path: Path, task: str, old: str, new: str, sentence: str
) -> None:
    found = told("lab03", changed(tmp_path, "lab03", (DDP, old, new)), task)
    assert all(text.startswith(sentence) for text in found), found


@needs_gloo
def test_buckets_that_are_waited_for_at_once_hide_nothing(tmp_path: Path) -> None:
    issue = "self.running.append((flat, dist.all_reduce(flat, async_op=True)))"
    folder = changed(tmp_path, "lab03", (DDP, issue, f"{issue}; self.running[-1][1].wait()"))
    made = of_task("lab03", folder, "BucketedDDP")[0]
    assert made.alt.startswith("0 of 25,344 bytes (0%)")
    assert [end - start for _, start, _, end in bars_of(made)] == [2, 2, 2, 2]
    assert {span.colour for _, spans in made.rows[2:] for span in spans} == {"orange"}


@needs_gloo
def test_a_ring_that_counts_wrong_is_drawn_with_what_it_says(tmp_path: Path) -> None:
    folder = changed(tmp_path, "lab03", (DDP, "return sent\n    # END", "return 1\n    # END"))
    (made,) = of_task("lab03", folder, "ring_all_reduce_")
    assert "What the function returns differs: rank 0 of 2 says 1; rank 1 of 2 says 1;" in made.alt


@needs_gloo
@pytest.mark.parametrize(
    ("lab_id", "name", "file"),
    [("lab02", "by_hand", LOOP), ("lab03", "as_the_reducer", DDP)],
)
def test_other_right_answers_are_drawn(tmp_path: Path, lab_id: str, name: str, file: str) -> None:
    folder = changed(tmp_path, lab_id)
    shutil.copy(ROOT / "tests" / lab_id / "variants" / name / file, folder)
    results = page.draw(load_lab(ROOT, lab_id), folder)
    for result, reference in zip(results, of_reference(lab_id), strict=True):
        for shown, other in zip(result.panels, reference.panels, strict=True):
            assert not shown.failed, shown.drawing.alt
            assert type(shown.drawing) is type(other.drawing)


# -- drawings -------------------------------------------------------------------------------------


def grid(**options: Any) -> Grid:
    cells = [[Cell(palette.shade(c, 32), str(c), ring=r == c) for c in range(32)] for r in range(8)]
    return Grid(cells, "a grid", **options)


MANY = [f"a rather long name {index}" for index in range(8)]
DRAWINGS: dict[str, Drawing] = {
    "plain grid": grid(),
    "grid with names": grid(
        row_labels=MANY,
        row_notes=MANY,
        row_name="rows have a name that is longer than their labels are",
        column_labels=[str(column) for column in range(32)],
        column_name="columns",
        note_name="notes",
        keys=[Key("blue", "x" * 60), Key("red", "y" * 60), Key("", "ring", ring=True)],
        caption="word " * 80,
    ),
    "small grid": grid(
        cell=(3, 4),
        row_labels=MANY,
        row_notes=MANY,
        column_labels=[str(column * 1000) for column in range(32)],
        column_name="a name that is longer than all of these columns are together",
        note_name="dropped, for there is no room",
        group=8,
        group_labels=["one", "a group with a long name", "three", "four"],
    ),
    "bars": Bars(
        [
            Bar(name, (index, 0.5 * index), "" if index % 2 else "a note")
            for index, name in enumerate(MANY)
        ],
        "bars",
        names=("first part", "second part"),
        label_name="labels",
        unit="unit " * 30,
    ),
    "small numbers": Bars([Bar("a", (0.00031,)), Bar("b", (0.0,))], "bars", unit="s"),
    "large numbers": Bars([Bar("a", (123456789.0,))], "bars", width=90),
    "log-log": Lines(
        [
            Series("a roof", [(0.1, 3.35e11), (295, 9.89e14), (4000, 9.89e14)], marks=False),
            Series("a point", [(0.5, 1.2e12)]),
            Series("another" * 8, [(1365, 6.6e14)], dashed=True),
        ],
        "lines",
        x_name="FLOP a byte",
        y_name="FLOP/s",
        x_log=True,
        y_log=True,
    ),
    "lines": Lines(
        [Series(str(n), [(x * 1e6, math.sin(x + n) * 1e7) for x in range(9)]) for n in range(5)],
        "lines",
        x_name="a name of the x axis that is much longer than the axis itself " * 2,
        y_name="y",
        size=(120, 60),
    ),
    "labelled lines": Lines(
        [
            Series("falls", [(64, 9e6), (1024, 2e4)], label="20 kB at the end of a line"),
            Series("rises", [(64, 1e4), (1024, 1.9e4)], label="19 kB at the end of a line"),
            Series("stays", [(64, 2e4), (1024, 2e4)], dashed=True, marks=False, label="flat"),
            Series("far too long", [(256, 4e5)], label="no place on this paper for it " * 4),
        ],
        "lines",
        x_log=True,
        y_log=True,
        x_base=2,
    ),
    "grid with a part of a group": Grid(
        [[Cell("blue")] * 70],
        "a grid",
        cell=(2, 12),
        group=50,
        group_labels=["one", "does not fit in 40"],
    ),
    "areas": Areas(
        ["low", "a name that is longer than its layer", "high"],
        [(40, at % 7, 5 * (at // 40)) for at in range(200)],
        "areas",
        phases=[(0, "zero"), (3, "too long to fit"), (9, "forward"), (150, "backward")],
        peak="peak: 66 bytes",
        x_name="events",
        y_name="bytes",
        keys=[Key("blue", "low"), Key("green", "high")],
        caption="A caption.",
    ),
    "more moments than pixels": Areas(
        ["one"],
        [(at * 1e6,) for at in range(999)],
        "areas",
        peak="a peak at the right end",
        size=(90, 60),
    ),
    "timeline": Timeline(
        [
            ("gpu", [Span(0, 3, "matmul"), Span(3, 3.1, "too long to fit"), Span(5, 5)]),
            ("a second row", [Span(1, 2, "launch", "purple")]),
        ],
        "a timeline",
        unit="ms",
        keys=[Key("blue", "work")],
        caption="A caption.",
    ),
    "stack": Stack(
        [grid(row_labels=MANY), Bars([Bar("a", (1.0,))], "bars"), Note("a $5 note " * 30)]
    ),
    "legend": Legend([Key("blue", "x" * 70), Key("red", "y" * 70), Key("green", "z" * 70)], 300),
}


def texts(made: Drawing) -> list[Text]:
    return [mark for mark in made.lay().marks if isinstance(mark, Text) and mark.text]


def overlaps(made: Drawing) -> list[tuple[str, str]]:
    """Pairs of texts whose places meet."""
    placed = [(text.text, text.box()) for text in texts(made)]
    return [
        (one, other)
        for (one, (x, y, w, h)), (other, (a, b, v, g)) in itertools.combinations(placed, 2)
        if x < a + v and a < x + w and y < b + g and b < y + h
    ]


@pytest.mark.parametrize("name", DRAWINGS)
def test_no_text_covers_another_or_leaves_the_sheet(name: str) -> None:
    made = DRAWINGS[name]
    assert overlaps(made) == []
    sheet = made.lay()
    for text in texts(made):
        x, y, width, height = text.box()
        assert x >= -8, text
        assert y >= -1, text
        assert x + width <= sheet.width + 2, text
        assert y + height <= sheet.height + 3, text


def test_the_check_for_overlaps_finds_one() -> None:
    class Bad:
        alt = "bad"

        def lay(self) -> Sheet:
            return Sheet(100, 20, [Text(0, 9, "one text"), Text(20, 12, "another")])

    assert overlaps(Bad()) == [("one text", "another")]


@needs_plots
def test_no_text_is_wider_than_the_room_that_was_kept_for_it() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(dpi=72)
    renderer = FigureCanvasAgg(figure).get_renderer()
    seen = {(text.text, text.size, text.bold) for made in DRAWINGS.values() for text in texts(made)}
    for words, size, bold in sorted(seen):
        weight = "bold" if bold else "normal"
        plain = words.replace("$", r"\$")
        shown = figure.text(0, 0, plain, fontsize=size, weight=weight)
        width = shown.get_window_extent(renderer).width
        assert width <= Text(0, 0, words, size, bold=bold).box()[2] + 1, words


@pytest.mark.parametrize("name", DRAWINGS)
def test_svg_says_what_the_marks_say(name: str) -> None:
    made = DRAWINGS[name]
    image = ElementTree.fromstring(to_svg(made))
    assert words_of(image) == [m.text for m in made.lay().marks if isinstance(m, Text)]
    assert image.get("aria-label") == made.alt
    assert len(image) == len(made.lay().marks)


@needs_plots
@pytest.mark.parametrize("name", DRAWINGS)
def test_a_png_is_the_same_sheet_in_twice_its_pixels(name: str, tmp_path: Path) -> None:
    sheet = DRAWINGS[name].lay()
    path = tmp_path / "one.png"
    write_png(sheet, path, margin=10)
    data = path.read_bytes()
    width, height = (int.from_bytes(data[i : i + 4], "big") for i in (16, 20))
    assert abs(width - 2 * (sheet.width + 20)) <= 2
    assert abs(height - 2 * (sheet.height + 20)) <= 2


def test_bars_are_as_long_as_their_parts() -> None:
    made = Bars([Bar("a", (10.0, 30.0)), Bar("b", (20.0,))], "bars", limit=80, width=160)
    boxes = {}
    for mark in made.lay().marks:
        if isinstance(mark, Boxes) and mark.colour != "paper":
            boxes.setdefault(mark.colour, []).extend(mark.boxes)
    # One pixel of each part is left free, so that parts stay apart.
    assert [round(box[2] + 1) for box in boxes["blue"]] == [20, 40]
    assert [round(box[2] + 1) for box in boxes["orange"]] == [60]
    assert boxes["orange"][0][0] == pytest.approx(boxes["blue"][0][0] + 20)


def test_cells_stand_where_row_column_and_group_say() -> None:
    cells = [[Cell("blue" if (r, c) == (1, 5) else "off") for c in range(8)] for r in range(3)]
    sheet = Grid(cells, "x", cell=(10, 12), gap=0, group=4).lay()
    (box,) = (m.boxes for m in sheet.marks if isinstance(m, Boxes) and m.colour == "blue")
    assert box == ((5 * 10 + 6, 12, 10, 11),)
    off = next(m.boxes for m in sheet.marks if isinstance(m, Boxes) and m.colour == "off")
    assert sum(width for _, _, width, _ in off) == 23 * 10


def test_points_stand_where_the_axes_say() -> None:
    made = Lines([Series("a", [(1, 1), (10, 100), (100, 10000)])], "x", x_log=True, y_log=True)
    line = next(m for m in made.lay().marks if isinstance(m, Stroke) and m.line == 2.0)
    (x0, y0), (x1, y1), (x2, y2) = line.points
    assert x2 - x1 == pytest.approx(x1 - x0) == pytest.approx(210)
    assert y1 - y2 == pytest.approx(y0 - y1) == pytest.approx(130)
    labels = [text.text for text in texts(made)]
    assert {"1", "10", "100", "1,000", "10,000"} <= set(labels)


def test_axes_in_powers_of_two_have_their_ticks() -> None:
    made = Lines([Series("a", [(64, 1), (1024, 4)])], "x", x_log=True, x_base=2)
    labels = [text.text for text in texts(made)]
    assert labels[-6:-1] == ["64", "128", "256", "512", "1,024"]
    line = next(m for m in made.lay().marks if isinstance(m, Stroke) and m.line == 2.0)
    assert line.points[1][0] - line.points[0][0] == pytest.approx(420)


def test_a_label_stands_beside_its_last_point_and_on_no_line() -> None:
    names = ["210 kB at the end of a line", "15 kB at the end of a line"]
    falls = Series("falls", [(64, 9e6), (1024, 2.1e5)], label=names[0])
    rises = Series("rises", [(64, 1.1e4), (1024, 1.5e4)], label=names[1])
    long = Series("long", [(256, 4e5)], label="no place on this paper for it " * 4)
    sheet = Lines([falls, rises, long], "x", x_log=True, y_log=True, x_base=2).lay()
    lines = [m for m in sheet.marks if isinstance(m, Stroke) and m.line == 2.0][:3]
    placed = {m.text: m for m in sheet.marks if isinstance(m, Text)}
    assert not any("no place" in text for text in placed)
    for index, name in enumerate(names):
        x, y, width, height = placed[name].box()
        end = lines[index].points[-1]
        assert abs(x + width - end[0]) <= 15
        assert abs(y + height / 2 - end[1]) <= 30
        for line in lines:
            assert not touches((x, y, width, height), line.points)
    assert touches((0, 0, 10, 10), [(-20, -20), (30, 30)])
    assert not touches((0, 0, 10, 10), [(-20, 20), (30, 20)])


def test_a_group_that_is_cut_off_is_labelled_only_where_its_part_has_room() -> None:
    assert [text.text for text in texts(DRAWINGS["grid with a part of a group"])] == ["one"]


def test_lines_that_are_drawn_together_share_axes_and_what_they_have_in_common() -> None:
    roof = Series("roof", [(1, 1), (10, 10)])
    one = Lines([roof, Series("a", [(2, 2)])], "a is 2.", caption="Both.", x_name="x")
    other = Lines([roof, Series("b", [(90, 3)])], "b is 3.", caption="Both.", y_name="y")
    made = combine.together([one, other])
    assert [series.name for series in made.series] == ["roof", "a", "b"]
    assert (made.alt, made.caption, made.x_name, made.y_name) == (
        "a is 2. b is 3.",
        "Both.",
        "x",
        "",
    )


def areas(made: Areas) -> dict[str, list[Stroke]]:
    found: dict[str, list[Stroke]] = {}
    for mark in made.lay().marks:
        if isinstance(mark, Stroke) and mark.closed:
            found.setdefault(mark.colour, []).append(mark)
    return found


def inside(stroke: Stroke) -> float:
    """The area of an outline, by the shoelace formula."""
    pairs = itertools.pairwise((*stroke.points, stroke.points[0]))
    return abs(sum(a * d - b * c for (a, b), (c, d) in pairs)) / 2


def test_layers_are_as_thick_as_their_values_and_stand_on_each_other() -> None:
    # heights: 200 pixels, 28 of them above the peak of 86: 2 pixels each
    course = [(40, 0), (40, 46), (40, 46), (20, 0)]
    made = Areas(["a", "b"], course, "x", size=(80, 200), peak="peak: 86")
    found = areas(made)
    (low,), (high,) = found["blue"], found["orange"]
    assert inside(low) == pytest.approx(2 * 20 * (40 + 40 + 40 + 20))
    assert inside(high) == pytest.approx(2 * 20 * (46 + 46))
    assert max(y for _, y in high.points) == pytest.approx(min(y for _, y in low.points))
    assert max(x for x, _ in high.points) - min(x for x, _ in high.points) == pytest.approx(40)
    (tip,) = found["ink"]
    assert tip.points[0][1] == pytest.approx(min(y for _, y in high.points))
    taller = areas(combine.same_scale([made, Areas(["c"], [(172,)], "y")])[0])
    assert inside(taller["blue"][0]) == pytest.approx(inside(low) / 2)


def test_a_layer_that_is_empty_in_between_is_drawn_in_pieces() -> None:
    made = Areas(["a", "b"], [(5, 1), (5, 0), (5, 3), (5, 3)], "x")
    assert [len(strokes) for strokes in areas(made).values()] == [1, 2]


def test_of_moments_that_share_a_pixel_the_highest_is_drawn() -> None:
    course = [(1.0,)] * 1000
    course[777] = (50.0,)
    made = Areas(["a"], course, "x", size=(100, 128))
    (low,) = areas(made)["blue"]
    assert inside(low) == pytest.approx(99 * 1 * 2 + 100)
    assert len(low.points) <= 8


def test_points_that_are_not_joined_have_no_line() -> None:
    rows = [Series("a", [(1, 1), (2, 2)]), Series("b", [(1, 2), (2, 1)], joined=False)]
    marks = Lines(rows, "x").lay().marks
    lines = {mark.colour for mark in marks if isinstance(mark, Stroke) and not mark.closed}
    assert "blue" in lines
    assert "orange" not in lines
    assert sum(isinstance(m, Stroke) and m.closed and m.colour == "orange" for m in marks) == 3


def test_spans_last_as_long_as_they_are() -> None:
    half = Timeline([("a", [Span(0, 5)])], "x", width=200, limit=10)
    (box,) = (m.boxes[0] for m in half.lay().marks if isinstance(m, Boxes))
    assert box[2] == 99
    made = Timeline([("a", [Span(0, 5), Span(5, 10, colour="red")])], "x", width=200)
    boxes = {m.colour: m.boxes[0] for m in made.lay().marks if isinstance(m, Boxes)}
    assert boxes["blue"][2] == boxes["red"][2] == 99
    assert boxes["red"][0] - boxes["blue"][0] == 100


def test_one_scale_for_bars_leaves_other_drawings() -> None:
    note = Note("nothing here")
    layers = Areas(["a"], [(2.0,), (9.0,)], "x")
    assert combine.same_scale([layers, note])[0].limit == 9.0
    bars = [Bars([Bar("a", (value,))], "x") for value in (3.0, 7.0)]
    made = combine.same_scale([bars[0], note, bars[1]])
    assert made[1] is note
    assert [one.limit for one in made if isinstance(one, Bars)] == [7.0, 7.0]


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0, 24), (0, 32), (0, 7e9), (-3, 4), (0, 0.0004), (0, 10), (2, 2.5)]
)
def test_ticks_are_round_in_order_and_few(low: float, high: float) -> None:
    found = axes.ticks(low, high)
    assert 2 <= len(found) <= 6
    assert found == sorted(found)
    assert low - 1e-12 <= found[0]
    assert found[-1] <= high * (1 + 1e-12)
    step = found[1] - found[0]
    assert round(step / 10 ** math.floor(math.log10(step) + 1e-9), 9) in (1, 2, 5)


@pytest.mark.parametrize(
    ("value", "label"),
    [(1e-5, "10⁻⁵"), (0.001, "0.001"), (1, "1"), (1e5, "100,000"), (1e12, "10¹²")],
)
def test_powers_of_ten_stay_short(value: float, label: str) -> None:
    assert axes.power(value) == label


@pytest.mark.parametrize(
    "make",
    [
        lambda: Grid([], "x"),
        lambda: Grid([[]], "x"),
        lambda: Grid([[Cell()]], "x", row_labels=["a", "b"]),
        lambda: Bars([], "x"),
        lambda: Bars([Bar("a", (-1.0,))], "x"),
        lambda: Lines([], "x"),
        lambda: Lines([Series("a", [])], "x"),
        lambda: Lines([Series(str(n), [(1, 1)]) for n in range(6)], "x"),
        lambda: Lines([Series("a", [(0, 1)])], "x", x_log=True),
        lambda: Areas(["a"], [], "x"),
        lambda: Areas(["a", "b"], [(1,)], "x"),
        lambda: Areas(["a"], [(-1,)], "x"),
        lambda: Areas(["a"], [(1,)], "x", phases=[(1, "later")]),
        lambda: Areas(["a"], [(1,), (2,)], "x", phases=[(1, "b"), (0, "a")]),
        lambda: Areas(list("abcdef"), [range(6)], "x"),
        lambda: Timeline([("a", [])], "x"),
        lambda: Timeline([("a", [Span(2, 1)])], "x"),
        lambda: palette.shade(32, 32),
    ],
)
def test_what_cannot_be_drawn_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        make()


# -- colours --------------------------------------------------------------------------------------


def contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_colours_stand_out_from_the_paper(dark: bool) -> None:
    paper = palette.luminance("paper", dark)
    for name in ("ink", "soft", "red"):
        assert contrast(palette.luminance(name, dark), paper) >= 4.5, name
    for name in palette.SERIES:
        # Bars carry text in the paper's colour.
        assert contrast(palette.luminance(name, dark), paper) >= 4.5, name


def test_lightness_of_shades_grows_and_their_text_is_readable() -> None:
    shades = [palette.luminance(palette.shade(index, 32)) for index in range(32)]
    assert all(a < b for a, b in itertools.pairwise(shades))
    for index in range(32):
        shade = palette.shade(index, 32)
        upon = palette.luminance(palette.text_colour(shade))
        assert contrast(upon, shades[index]) >= 4.5


def seen_by(name: str, dark: bool, kind: str) -> tuple[float, float, float]:
    """A colour in CIE Lab as somebody sees it who lacks one kind of cone. Matrices on linear RGB:
    Machado, Oliveira and Fernandes (2009), severity 1."""
    matrices = {
        "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
        "protan": (
            (0.152286, 1.052583, -0.204868),
            (0.114503, 0.786281, 0.099216),
            (-0.003882, -0.048116, 1.051998),
        ),
        "deutan": (
            (0.367322, 0.860646, -0.227968),
            (0.280085, 0.672501, 0.047413),
            (-0.011820, 0.042940, 0.968881),
        ),
    }
    value = palette.COLOURS[name][dark]
    parts = [int(value[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    r, g, b = (
        min(1.0, max(0.0, sum(f * p for f, p in zip(row, linear, strict=True))))
        for row in matrices[kind]
    )
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("kind", ["full", "protan", "deutan"])
def test_colours_that_meet_in_a_picture_differ_for_every_eye(dark: bool, kind: str) -> None:
    # Working, lost and idle cells; needed and wasted parts; the first series of lines; layers of
    # memory, of which the last lies on three others.
    for group in (
        ("blue", "pale", "off"),
        ("blue", "orange"),
        ("blue", "orange", "off"),
        ("blue", "green", "red", "orange"),
        *(("purple", below) for below in ("green", "red", "orange")),
    ):
        for one, other in itertools.combinations(group, 2):
            assert math.dist(seen_by(one, dark, kind), seen_by(other, dark, kind)) >= 15


def test_a_drawing_never_leans_on_colour_alone() -> None:
    """Series of lines differ in their signs, and a ring is two frames, dark and light."""
    signs = [sign(index, 0, 0).points for index in range(len(palette.SERIES))]
    assert len(set(signs)) == len(signs)
    assert [mark.colour for mark in ring((0, 0, 9, 9))] == ["paper", "ink"]


def test_a_panel_is_drawn_only_when_it_is_asked_for(means: MiniKit) -> None:
    called = []
    picture = Picture("x", "y", [Panel("running_mean", lambda: called.append(1) or grid())])
    assert called == []
    assert picture.panels[0].draw().alt == "a grid"
    assert called == [1]
