"""Written questions: that there are enough, that they read well, and that faults are sentences."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from grader.errors import LabError
from grader.lab.manifest import Lab, all_labs, load_lab
from grader.suite import why_questions
from grader.suite.bug_questions import _reads_alike
from grader.suite.why_questions import Written, drawn, written

ROOT = Path(__file__).resolve().parents[3]
FEWEST = 6
ROWS = [(lab.id, row) for lab in all_labs(ROOT) for row in written(lab)]
each_row = pytest.mark.parametrize(
    ("lab", "row"), ROWS, ids=[f"{lab}-{row.id}" for lab, row in ROWS]
)


def test_every_lab_has_enough() -> None:
    counts = Counter(lab for lab, _ in ROWS)
    assert {lab.id for lab in all_labs(ROOT)} == set(counts)
    assert min(counts.values()) >= FEWEST


def test_most_ask_for_reasons() -> None:
    asks = Counter(row.asks for _, row in ROWS)
    assert asks["why"] + asks["change"] >= 0.6 * len(ROWS)
    assert asks["change"] >= 0.25 * len(ROWS)


def test_length_does_not_tell_the_right_one() -> None:
    places = Counter(sorted([*row.wrong, row.right], key=len).index(row.right) for _, row in ROWS)
    assert max(places.values()) <= 0.4 * len(ROWS), places


@each_row
def test_it_reads_well(lab: str, row: Written) -> None:
    page = (ROOT / "exercises" / lab / "README.md").read_text(encoding="utf-8")
    assert f"\n## {row.section}\n" in page
    assert row.question.endswith("?")
    options = [row.right, *row.wrong]
    assert len(set(options)) == 4
    for number, option in enumerate(options):
        assert option.endswith("."), option
        assert not any(_reads_alike(option, other) for other in options[number + 1 :]), option
    right, because = (
        set(re.findall(r"[a-z0-9]+", text.lower())) for text in (row.right, row.because)
    )
    assert len(right & because) >= 0.5 * len(right), "it is told in the place of the answer"


@each_row
def test_the_order_is_drawn_anew(lab: str, row: Written) -> None:
    places = {drawn(row, seed).right for seed in range(40)}
    assert places == {0, 1, 2, 3}
    ask = drawn(row, 3)
    assert ask.options[ask.right] == row.right
    assert drawn(row, 3) == ask


ONE = """
[[why]]
id = "one"
asks = "why"
question = "Why?"
right = "So."
wrong = ["A.", "B.", "C."]
because = "Because."
section = "Tasks"
"""


def small_lab(folder: Path, text: str) -> Lab:
    (folder / "exercises" / "lab01").mkdir(parents=True)
    (folder / "tests" / "lab01").mkdir(parents=True)
    for path in (ROOT / "exercises" / "lab01").glob("lab.toml"):
        (folder / "exercises" / "lab01" / path.name).symlink_to(path)
    (folder / "tests" / "lab01" / "why.toml").write_text(text, encoding="utf-8")
    return load_lab(folder, "lab01")


def test_a_file_that_is_right(tmp_path: Path) -> None:
    (row,) = written(small_lab(tmp_path, ONE))
    assert (row.id, row.wrong) == ("one", ("A.", "B.", "C."))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("[[why]]", "[[why]", "is not valid TOML"),
        ("[[why]]", "[why]", "write each question under its own"),
        ("[[why]]", "[[how]]", "write each question under its own"),
        ('id = "one"', 'id = "One more"', "an id is small letters"),
        ('asks = "why"', 'asks = "who"', "asks is 'who', not one of why, change, what"),
        ('"C."]', '"C.", "D."]', "write 3 options"),
        ('"C."]', '""]', "a text with something in it"),
        ('because = "Because."', "", "has the keys"),
        ("because", "reason", "has the keys"),
        ('right = "So."', "right = 1", "a text with something in it"),
    ],
)
def test_a_fault_is_a_sentence(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    lab = small_lab(tmp_path, ONE.replace(old, new))
    with pytest.raises(LabError, match=sentence) as caught:
        written(lab)
    assert "why.toml" in str(caught.value)


def test_two_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="stand twice"):
        written(small_lab(tmp_path, ONE + ONE))


def test_a_lab_without_a_file_has_none(tmp_path: Path) -> None:
    lab = small_lab(tmp_path, ONE)
    (lab.suite / "why.toml").unlink()
    assert why_questions.written(lab) == []
