"""Lab 11's reader of a plan: numbers with their units, as people write them, and what is told of
the rest."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from grader.lab.manifest import load_lab
from grader.suite.markdown_answers import AnswerFault, TableCell
from grader.suite.model import load_suite

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = (ROOT / "solutions/lab11/quantization_comparison_plan.md").read_text()
RULES = ("judge_bytes", "judge_bits", "judge_passes", "judge_choices", "judge_reasons")


@pytest.fixture(scope="module")
def plan_file() -> Any:
    suite = load_suite(load_lab(ROOT, "lab11"))
    return importlib.import_module(f"{suite.package}.plan_file")


@pytest.fixture(scope="module")
def problem() -> Any:
    suite = load_suite(load_lab(ROOT, "lab11"))
    return importlib.import_module(f"{suite.package}.test_plan").PROBLEM


def cell(text: str) -> TableCell:
    return TableCell(text, "plan.md", 7, 3)


SIZES = {
    "9.087 GB": 9.087e9,
    "9.087GB": 9.087e9,
    "9087000 KB": 9.087e9,
    "9,087,000 kB": 9.087e9,
    "6.03 gb": 6.03e9,
    "0.00603 TB": 6.03e9,
    "6030 mb": 6.03e9,
    "5.31 GiB": 5.31 * 2**30,
    "5.31 gib": 5.31 * 2**30,
    "5437 MiB": 5437 * 2**20,
    "5567488 kib": 5567488 * 2**10,
    "0.00519 TiB": 0.00519 * 2**40,
    "5,700,591,616 bytes": 5700591616,
    "5_700_591_616 B": 5700591616,
    "5 700 591 616 bytes": 5700591616,
    "5700591616 Byte": 5700591616,
    "5.70e9 bytes": 5.70e9,
    "~5.70 GB": 5.70e9,
}


@pytest.mark.parametrize("text", SIZES)
def test_a_size_with_its_unit(plan_file: Any, text: str) -> None:
    assert plan_file.size(cell(text)) == pytest.approx(SIZES[text], rel=1e-12)


REFUSED_SIZES = {
    "16.061": ("no unit", "without a unit"),
    "5,700,591,616": ("no unit", "without a unit"),
    "16.061 Gb": ("small b", "write GB"),
    "14.96 Gib": ("small b", "write GiB"),
    "16.061 b": ("small b", "write B"),
    "16.061 G": ("unknown unit", "KB, MB, GB and TB"),
    "16.061 gigs": ("unknown unit", "not known"),
    "16.061 PB": ("unknown unit", "not known"),
    "16,06 GB": ("decimal comma", "written with a point"),
    "16,0605 GB": ("decimal comma", "written with a point"),
    "16.060,5 MB": ("decimal comma", "written with a point"),
    "about 16 GB": ("no size", "like 5.70 GB"),
    "GB": ("no size", "like 5.70 GB"),
    "": ("no size", "like 5.70 GB"),
    "16.06.05 GB": ("no number", "not a number"),
    "16 GB": ("digits bytes", "three significant digits"),
    "1.6e10 bytes": ("digits bytes", "three significant digits"),
}


@pytest.mark.parametrize("text", REFUSED_SIZES)
def test_a_size_that_is_refused(plan_file: Any, text: str) -> None:
    key, said = REFUSED_SIZES[text]
    with pytest.raises(AnswerFault) as caught:
        plan_file.size(cell(text))
    assert (caught.value.key, said in caught.value.text) == (key, True), caught.value.text


NUMBERS = [
    ("MS", "1.49 ms", 1.49),
    ("MS", "1.49ms", 1.49),
    ("MS", "115.9 milliseconds", 115.9),
    ("MS", "1.49e0 ms", 1.49),
    ("MS", "1,159.0", 1159.0),
    ("MS", "\N{ALMOST EQUAL TO} 115.9", 115.9),
    ("BITS", "4.50 bits", 4.5),
    ("BITS", "4.50 Bits/weight", 4.5),
    ("BITS", "4.5 b", 4.5),
    ("BITS", "16 bit", 16.0),
    ("BITS", "4.5", 4.5),
    ("SPEED_UP", "3.23x", 3.23),
    ("SPEED_UP", "3.23 X", 3.23),
    ("SPEED_UP", "3.23\N{MULTIPLICATION SIGN}", 3.23),
    ("SPEED_UP", "3.23 times", 3.23),
    ("SPEED_UP", "2", 2.0),
]


@pytest.mark.parametrize(("column", "text", "value"), NUMBERS)
def test_a_number_with_the_columns_own_unit(
    plan_file: Any, column: str, text: str, value: float
) -> None:
    assert plan_file.number(cell(text), getattr(plan_file, column)) == pytest.approx(value)


REFUSED_NUMBERS = [
    ("MS", "0.00149 s", "other unit", "unit is ms"),
    ("MS", "1490 us", "other unit", "unit is ms"),
    ("MS", "1,49", "decimal comma", "written with a point"),
    ("MS", "115,9 ms", "decimal comma", "written with a point"),
    ("MS", "1.49 bits", "no number", "such as 4.48"),
    ("BITS", "4,5", "decimal comma", "written with a point"),
    ("BITS", "4,5 bits", "decimal comma", "as 6.5"),
    ("BITS", "4,1250", "decimal comma", "written with a point"),
    ("BITS", "0.5625 bytes", "other unit", "unit is bits"),
    ("BITS", "four", "no number", "such as 6.5"),
    ("BITS", "4.50 ms", "no number", "such as 6.5"),
    ("SPEED_UP", "3,23x", "decimal comma", "as 1.75"),
    ("SPEED_UP", "323 %", "other unit", "unit is x"),
    ("SPEED_UP", "", "no number", "such as 1.75"),
    ("SPEED_UP", "1" * 5000, "no number", "such as 1.75"),
]


@pytest.mark.parametrize(("column", "text", "key", "said"), REFUSED_NUMBERS)
def test_a_number_that_is_refused(
    plan_file: Any, column: str, text: str, key: str, said: str
) -> None:
    with pytest.raises(AnswerFault) as caught:
        plan_file.number(cell(text), getattr(plan_file, column))
    assert (caught.value.key, said in caught.value.text) == (key, True), caught.value.text


def judged(plan_file: Any, problem: Any, text: str) -> None:
    plan = plan_file.read(text, problem)
    for rule in RULES:
        getattr(plan_file, rule)(plan, problem)


def test_a_plan_with_units_in_its_cells(plan_file: Any, problem: Any) -> None:
    text = re.sub(r"(\d\.\d{3}) \|( compute)", r"\1 ms |\2", REFERENCE)
    text = re.sub(r"(4\.\d{3}) \| bf16", r"\1 bits | bfloat16", text)
    text = text.replace("9.087 GB", "9087000 KB").replace("6.028 GB", "6.03 gb")
    text = text.replace("| fp8  | memory", "| FP8 (e4m3) | bound by memory").replace(
        "3.23 |", "3.23x |"
    )
    assert text != REFERENCE
    judged(plan_file, problem, text)


def test_a_comma_before_three_digits_is_named(plan_file: Any, problem: Any) -> None:
    for old, new in (("4.480", "4,480"), ("16.061 GB", "16,061 GB"), ("4.125", "4,125")):
        with pytest.raises(AnswerFault, match="a comma stands between thousands"):
            judged(plan_file, problem, REFERENCE.replace(old, new))
    for old, new in (("4.480", "5.480"), ("4.125", "4125")):
        with pytest.raises(AnswerFault) as caught:
            judged(plan_file, problem, REFERENCE.replace(old, new))
        assert "comma" not in caught.value.text
