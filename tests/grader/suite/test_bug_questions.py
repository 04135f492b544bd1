"""What is wrong with this code? Every misconception of every lab, and what is shown of it."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from grader.errors import LabError
from grader.lab.manifest import lab_ids, load_lab
from grader.suite import bug_questions
from grader.suite.bug_questions import (
    NOTHING,
    BugAsk,
    BugQuestions,
    _reads_alike,
    listed,
    shown_code,
)
from grader.suite.model import load_suite
from grader.suite.questions import Bank
from grader.suite.run import seed_of

ROOT = Path(__file__).resolve().parents[3]
LABS = lab_ids(ROOT)
WITH_CODE = [lab for lab in LABS if any(listed(load_lab(ROOT, lab)))]
EVERY = 211  # a sample of the questions is asked: each runs a few misconceptions
SAMPLE = [
    (lab, task, name)
    for at, (lab, task, name) in enumerate(
        (lab, task, name) for lab in WITH_CODE for task, name in listed(load_lab(ROOT, lab))
    )
    if at % EVERY == 0
]


@cache
def questions(lab: str) -> BugQuestions:
    return BugQuestions(load_suite(load_lab(ROOT, lab)))


def test_how_many_there_are() -> None:
    assert len(WITH_CODE) >= 11
    assert sum(1 for lab in WITH_CODE for _ in listed(load_lab(ROOT, lab))) >= 2000


@pytest.mark.parametrize("lab", WITH_CODE)
def test_what_is_listed_is_what_the_suite_has(lab: str) -> None:
    suite = questions(lab).suite
    found = list(listed(suite.lab))
    for task in {task for task, _ in found}:
        names = [wrong.name for wrong in suite.misconceptions_of(task)]
        assert [name for each, name in found if each == task] == names, task


@pytest.mark.parametrize("lab", WITH_CODE)
def test_the_code_shown_holds_the_mistake_and_no_comment(lab: str) -> None:
    suite = questions(lab).suite
    shown = 0
    for task in suite.lab.tasks:
        for wrong in suite.misconceptions_of(task.id)[::10]:
            if Path(wrong.file).suffix not in (".py", ".cu"):
                continue
            reference = (suite.lab.solution / wrong.file).read_text(encoding="utf-8")
            changed = wrong.text(reference)
            code = shown_code(task, reference, [changed], changed)
            right = shown_code(task, reference, [changed], reference)
            assert code.strip(), f"{task.name}/{wrong.name} shows nothing"
            assert code != right, f"{task.name}/{wrong.name} shows the reference"
            assert '"""' not in code
            assert "SOLUTION" not in code
            assert wrong.sentence not in code
            shown += 1
    assert shown


@cache
def asked_or_not(lab: str, task: str, name: str) -> BugAsk | None:
    try:
        return questions(lab).ask(task, name, seed=0)
    except LabError:
        return None


@pytest.mark.parametrize(("lab", "task", "name"), SAMPLE)
def test_a_question_has_one_right_sentence_and_others_that_are_absent(
    lab: str, task: str, name: str
) -> None:
    asked = questions(lab)
    ask = asked_or_not(lab, task, name)
    if ask is None:  # what fails every case makes every mistake: see the test below
        return
    (right,) = [wrong for wrong in asked.suite.misconceptions_of(task) if wrong.name == name]
    rows = {wrong.sentence: wrong for wrong in asked.suite.misconceptions_of(task)}
    assert ask.options[ask.right] == right.sentence
    assert ask.options[-1] == NOTHING
    assert len(set(ask.options)) == len(ask.options) >= 3
    for option in ask.options[:-1]:
        if option == right.sentence:
            continue
        assert not _reads_alike(option, right.sentence)
        assert any(
            asked.replays.outcome(right, case, seed_of(case)).status.is_pass
            and not asked.replays.outcome(rows[option], case, seed_of(case)).status.is_pass
            for case in asked.suite.cases_of(task)
            if case.test.scored
        ), option


def test_nearly_all_can_be_asked() -> None:
    assert sum(asked_or_not(*row) is not None for row in SAMPLE) >= 0.8 * len(SAMPLE)


def test_now_and_then_nothing_is_wrong() -> None:
    asked = questions("lab10")
    task, name = "block_hashes", "begins_at_zero"
    rows = [asked.ask(task, name, seed) for seed in range(40)]
    right = [row for row in rows if row.options[row.right] == NOTHING]
    assert 0 < len(right) < 20
    assert rows[0].options[rows[0].right] != NOTHING, "the first time there is something to find"
    assert right[0].code != rows[0].code


def test_options_come_in_any_place_and_the_same_seed_asks_the_same() -> None:
    asked = questions("lab10")
    rows = [asked.ask("metrics", name, 1) for _, name in _of("lab10", "metrics")[:20]]
    assert len({row.right for row in rows}) >= 3
    assert asked.ask("metrics", _of("lab10", "metrics")[0][1], 1) == rows[0]


def _of(lab: str, task: str) -> list[tuple[str, str]]:
    return [row for row in listed(load_lab(ROOT, lab)) if row[0] == task]


@pytest.mark.parametrize(("task", "name"), [("metrics", "nobody"), ("nothing", "nobody")])
def test_a_misconception_that_there_is_not(task: str, name: str) -> None:
    with pytest.raises(LabError, match=r"nobody|nothing"):
        questions("lab10").ask(task, name, 0)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("if False:\n    raise ValueError\nreturn 1", "return 1"),
        ("if True:\n    x = 1\nreturn x", "x = 1\nreturn x"),
        ("if a == 1:\n    pass\nelse:\n    b()\nreturn 1", "if a != 1:\n    b()\nreturn 1"),
        ("if a:\n    pass\nelse:\n    b()\nreturn 1", "if not a:\n    b()\nreturn 1"),
        ("for i in x:\n    pass\n    y(i)", "for i in x:\n    y(i)"),
        ("while x:\n    pass", "while x:\n    pass"),
        ("if a:\n    return 1\nreturn 2", "if a:\n    return 1\nreturn 2"),
    ],
)
def test_an_exchange_leaves_no_traces(written: str, shown: str) -> None:
    def indented(text: str) -> str:
        return "def f(a, x):\n" + "\n".join(f"    {row}" for row in text.split("\n"))

    (found,) = bug_questions._definitions(indented(written)).values()
    assert found == indented(shown)


def test_what_the_options_speak_of_is_shown_with_its_contract() -> None:
    for name in ("lab10/bug/load_mooncake", "lab04/bug/reduce_atomic/adds_up"):
        lab = name.split("/")[0]
        of = Bank(load_lab(ROOT, lab))
        card = next(card for card in of.cards if card.name.startswith(name))
        ask = of.bug(card, 0)
        assert ask.contract
        assert "if False" not in ask.code
    assert "Atomics: n." in ask.contract
    assert ask.contract.count("Lab 04: one sum") == 1


def test_a_bug_of_a_kernel_can_be_asked_after_a_figure() -> None:
    """In a process of its own: Triton is imported in one mode, and a figure's code imports it."""
    code = (
        "from pathlib import Path; from grader.lab.manifest import load_lab; "
        "from grader.suite.questions import Bank; "
        f"bank = Bank(load_lab(Path({str(ROOT)!r}), 'lab06')); "
        "card = bank.card('lab06/number/fused_bytes'); bank.answer(card, bank.ask(card, 0)); "
        "print(len(bank.bug(bank.card('lab06/bug/softmax/load_without_mask'), 0).options))"
    )
    settings = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT,
        env=settings,
    )  # fmt: skip
    assert done.stdout.strip() == "5", done.stderr
