"""Which tasks a save touches, and in which order their tests run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from grader.lab.manifest import Lab, load_lab
from grader.learner.watch import save_order
from grader.suite.model import load_suite
from tests.grader.conftest import HERE

FILE = "flashattention_mental_model.py"


@pytest.fixture(scope="module")
def lab() -> Lab:
    return load_lab(HERE, "lab07")


@pytest.fixture(scope="module")
def text(lab: Lab) -> str:
    return (lab.solution / FILE).read_text(encoding="utf-8")


def touched(lab: Lab, before: str, after: str) -> list[str]:
    return save_order.touched(lab, FILE, before, after)


def every(lab: Lab) -> list[str]:
    return [task.id for task in lab.tasks_of(FILE)]


def inside(text: str, name: str, line: str) -> str:
    """The text with a line at the start of a function's body (after its docstring)."""
    head, _, rest = text.partition(f"\ndef {name}(")
    signature, quotes, body = rest.partition('"""')
    doc, closing, body = body.partition('"""')
    return f"{head}\ndef {name}({signature}{quotes}{doc}{closing}\n    {line}{body}"


@pytest.mark.parametrize("task", ["merge", "naive_attention", "flash_backward", "io_model"])
def test_a_change_in_a_function_touches_its_task(lab: Lab, text: str, task: str) -> None:
    changed = inside(text, task, "wrong = 1")
    assert changed != text
    assert touched(lab, text, changed) == [task]
    assert touched(lab, changed, text) == [task]


def test_a_change_of_two_functions_touches_both(lab: Lab, text: str) -> None:
    changed = inside(inside(text, "merge", "x = 1"), "io_model", "x = 1")
    assert touched(lab, text, changed) == ["merge", "io_model"]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("import torch\n", "import torch\nimport math as m\n", 1),
        lambda text: text + "\n\ndef helper():\n    return 1\n",
        lambda text: text + "\nSCALE = 2\n",
        lambda text: text + "\ndef broken(:\n",
        lambda text: "",
        lambda text: "\x00",
        lambda text: "(" * 5_000,
    ],
)
def test_what_no_task_holds_touches_all(lab: Lab, text: str, change: Callable[[str], str]) -> None:
    changed = change(text)
    assert touched(lab, text, changed) == every(lab)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: text + "\n# a comment\n",
        lambda text: text.replace("\n\n\ndef", "\n\n\n\ndef"),
    ],
)
def test_what_means_nothing_touches_none(lab: Lab, text: str, change: Callable[[str], str]) -> None:
    assert touched(lab, text, change(text)) == []


def test_outside_of_python_the_name_above_counts() -> None:
    lab = load_lab(HERE, "lab04")
    name = next(name for name in lab.edit if name.endswith(".cu"))
    text = (lab.solution / name).read_text(encoding="utf-8")
    ids = [task.id for task in lab.tasks_of(name)]
    rows = text.split("\n")
    places = {each: next(at for at, row in enumerate(rows) if each in row) for each in ids}
    for each in ids:
        behind = [*rows]
        behind.insert(places[each] + 1, "// one more line")
        assert save_order.touched(lab, name, text, "\n".join(behind)) == [each]
    assert save_order.touched(lab, name, text, "// a line at the top\n" + text) == ids


def test_the_order_is_touched_first_and_what_failed_before_the_rest(lab: Lab) -> None:
    suite = load_suite(lab)
    cases = suite.cases_of("merge")
    last = {case.id: "passed" for case in suite.cases} | {cases[2].id: "failed"}
    found = save_order.ordered(suite, ["merge"], last)
    assert found[0] == cases[2]
    assert {case.id for case in found[: len(cases)]} == {case.id for case in cases}
    assert sorted(case.id for case in found) == sorted(case.id for case in suite.cases)
    only = save_order.ordered(suite, ["merge"], last, only=["io_model"])
    assert {case.test.task for case in only} == {"io_model"}


def test_of_a_task_the_slow_cases_come_last(lab: Lab) -> None:
    suite = load_suite(lab)
    cases = suite.cases_of("merge")
    last = {case.id: "passed" for case in suite.cases} | {
        cases[0].id: "failed",
        cases[2].id: "failed",
    }
    took = dict.fromkeys((case.id for case in suite.cases), 0.001)
    took |= {cases[0].id: 0.4, cases[1].id: 0.5}
    found = save_order.ordered(suite, ["merge"], last, took=took)[: len(cases)]
    assert found[0] == cases[2], "failed before, and quick"
    assert found[-2:] == [cases[0], cases[1]], "slow ones: what failed before the other"
    took[cases[0].id] = 4.0
    again = save_order.ordered(suite, ["merge"], last, took=took)[: len(cases)]
    assert again[-2:] == [cases[1], cases[0]], "much slower: last, though it failed"


@pytest.mark.parametrize("text", ["", "nothing of any task\n", "\n\n"])
def test_a_file_in_which_no_task_is_named_any_more(text: str) -> None:
    lab = load_lab(HERE, "lab11")
    name = "quantization_comparison_plan.md"
    before = (lab.solution / name).read_text(encoding="utf-8")
    tasks = [task.id for task in lab.tasks_of(name)]
    assert save_order.touched(lab, name, before, text) == tasks
    assert save_order.touched(lab, name, text, before) == tasks
