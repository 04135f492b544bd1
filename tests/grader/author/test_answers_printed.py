"""What counts as a line of the answer that a learner reads before solving the task."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from grader.author import answers_printed, lint_sources
from grader.author.answers_printed import AFTERWARDS, TaskShare, shares
from grader.lab import task_hints
from grader.lab.manifest import load_lab

from ..conftest import MiniKit

LINE = "means.append(total / (index + 1))"


def share(kit: MiniKit) -> TaskShare:
    (found,) = shares(load_lab(kit.root, "lab90"))
    return found


def page(kit: MiniKit, text: str, cut: bool = True) -> None:
    """Put a text on the page. `cut`: whether the page has a place for what comes afterwards."""
    path = kit.exercise / "README.md"
    before, _, after = path.read_text(encoding="utf-8").partition(AFTERWARDS)
    path.write_text(f"{before}{text}" + f"\n{AFTERWARDS}{after}" * cut, encoding="utf-8")


@pytest.mark.parametrize(
    "text",
    [
        "`means.append(total / (index + 1))`",
        "```python\nout.append(s / (i + 1))\n```",
        "| it is | `self.out.append(self.sum / (k + 1))` |",
        "so that result.append(running / (place + 1)) follows",
    ],
)
def test_a_line_counts_whatever_its_variables_are_called(kit: MiniKit, text: str) -> None:
    assert share(kit).page == frozenset()
    page(kit, f"\n{text}\n")
    assert share(kit).page == {LINE}


@pytest.mark.parametrize(
    "text",
    [
        "`out.append(s / (i + 2))`",  # another number
        "`out.insert(s / (i + 1))`",  # another function
        "`out.append(s * (i + 1))`",  # another operation
        "`out.append(s /`\n\n`(i + 1))`",  # two passages
        "append the total by index plus 1",
        f"\n{AFTERWARDS}\n\n`means.append(total / (index + 1))`",
    ],
)
def test_what_is_not_the_line_does_not_count(kit: MiniKit, text: str) -> None:
    page(kit, f"\n{text}\n")
    assert share(kit).printed == frozenset()


def test_hints_and_docstrings_count(kit: MiniKit) -> None:
    path = kit.exercise / task_hints.FILE
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("Look at", "m.append(t / (i + 1)). Look at"), encoding="utf-8")
    assert share(kit).hints == {LINE}
    source = kit.solution / "running_mean.py"
    text = source.read_text(encoding="utf-8")
    source.write_text(text.replace("gives `[]`.", "gives `[]`: o.append(t / (i + 1))."), "utf-8")
    found = share(kit)
    assert (found.docstring, found.page) == ({LINE}, frozenset())
    assert found.where(LINE) == "docstring, hints"


def test_given_code_is_not_the_answer(kit: MiniKit) -> None:
    kit.manifest('tier = "core"', 'tier = "hard"')
    assert LINE in share(kit).lines
    kit.give("given.py", f"def shown(means, total, index):\n    {LINE}\n")
    assert LINE not in share(kit).lines


def test_short_lines_signatures_and_comments_are_not_lines(kit: MiniKit) -> None:
    assert share(kit).lines == (LINE,)


def test_limits_hold_for_a_page_that_has_been_cut(kit: MiniKit) -> None:
    kit.manifest('tier = "core"', 'tier = "hard"')
    page(kit, f"\n`{LINE}`\n", cut=False)
    lab = load_lab(kit.root, "lab90")
    assert list(answers_printed.faults(lab)) == []
    page(kit, "")
    (fault,) = answers_printed.faults(lab)
    assert "lab90.running_mean: 1 of 1 lines of its answer are printed" in fault
    assert f"(hard: at most 10%), such as `{LINE}`" in fault
    assert fault in list(lint_sources.static_faults(lab))


def test_a_small_first_core_task_may_be_the_worked_example(kit: MiniKit) -> None:
    page(kit, f"\n`{LINE}`\n")
    assert share(kit).is_worked_example
    assert list(answers_printed.faults(load_lab(kit.root, "lab90"))) == []
    kit.manifest("points = 2", "points = 3")
    assert not share(kit).is_worked_example


def test_words_before_the_tasks(kit: MiniKit) -> None:
    path = kit.exercise / "README.md"
    before = answers_printed.Page(load_lab(kit.root, "lab90")).words_before_tasks
    text = path.read_text(encoding="utf-8")
    more = "one two | three |\n\n```\nnot counted at all\n```\n\n"
    path.write_text(text.replace("## Tasks", f"{more}## Tasks") + "after them\n", encoding="utf-8")
    lab = load_lab(kit.root, "lab90")
    assert answers_printed.Page(lab).words_before_tasks == before + 3
    long = f"{'word ' * answers_printed.WORDS_BEFORE_TASKS}\n\n## Tasks"
    path.write_text(text.replace("## Tasks", long), encoding="utf-8")
    (fault,) = answers_printed.faults(lab)
    assert "words before its tasks; what one needs before the first is at most 1,500" in fault


def test_the_command_prints_the_lines_and_writes_the_table(kit: MiniKit) -> None:
    def lint(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "grader.cli", "lint", "--printed", *options]
        return subprocess.run(command, cwd=kit.root, capture_output=True, text=True, check=False)

    page(kit, f"\n`{LINE}`\n")
    done = lint()
    assert f"1 of 1 lines printed (worked example)\n    {LINE}  [page]\n" in done.stdout
    assert done.returncode == 0, done.stderr
    kit.manifest('tier = "core"', 'tier = "hard"')
    assert lint("lab90").returncode == 1
    assert lint("--write").returncode == 0
    table = Path(kit.root, "benchmarks/results/pages.md").read_text(encoding="utf-8")
    assert "| lab90.running_mean | hard | 1 | 100% | 0% | 0% | 100% | over |" in table
