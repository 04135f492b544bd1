"""Mutants of texts: each mistake on a small answer, and all of them on the references."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.author.mutants.candidates import block_spans
from grader.author.mutants.text_operators import edits
from grader.lab.manifest import lab_ids, load_lab

ROOT = Path(__file__).resolve().parents[3]
SUFFIXES = (".md", ".sh", ".yaml")
TASKS = [
    (lab.solution / task.file, task.id)
    for lab in (load_lab(ROOT, name) for name in lab_ids(ROOT))
    for task in lab.tasks
    if task.file.endswith(SUFFIXES)
]
MARKS = {
    "yaml": ("# text\n# BEGIN SOLUTION t\n", "# END SOLUTION\n"),
    "sh": ("#!/bin/sh\n# BEGIN SOLUTION t\n", "# END SOLUTION\n"),
    "md": ("<!-- BEGIN SOLUTION t -->\n", "<!-- END SOLUTION -->\n"),
}
TABLE = "| a | b |\n|---|---|\n| x | 1 GB |\n| y | 2 GB |\n"


def found(kind: str, body: str) -> list[tuple[str, str]]:
    """The operator and the resulting body of each mutant of a block."""
    head, foot = MARKS[kind]
    text = f"{head}{body}{foot}"
    rows = []
    for edit in edits(text, [(len(head), len(head) + len(body))]):
        changed = edit.applied(text)
        assert changed.startswith(head)
        assert changed.endswith(foot)
        rows.append((edit.operator, changed[len(head) : -len(foot)]))
    return rows


@pytest.mark.parametrize(
    ("operator", "body", "wrong"),
    [
        ("key-missing", "a: 1\nb: 2\n", "b: 2\n"),
        ("key-missing", "a:\n  b: 2\n  c: 3\nd: 4\n", "d: 4\n"),
        ("key-missing", "p: {a: 1, b: 2}\n", "p: {b: 2}\n"),
        ("key-missing", "p: {a: 1, b: 2}\n", "p: {a: 1}\n"),
        ("key-doubled", "a: 1\n", "a: 1\na: 1\n"),
        ("key-doubled", "a: 1\n", "a: 1\na: 2\n"),
        ("key-renamed", "max_len: 1\n", "max-len: 1\n"),
        ("key-renamed", "max-len: 1\n", "max_len: 1\n"),
        ("number-unit", "a: 5  # why\n", "a: 5000  # why\n"),
        ("number-unit", "a: 5000\n", "a: 5\n"),
        ("number-unit", "a: 5\n", "a: 4.65661\n"),
        ("number-scaled", "a: 512\n", "a: 1024\n"),
        ("number-scaled", "a: 512\n", "a: 256\n"),
        ("number-near", "a: 512\n", "a: 511\n"),
        ("number-near", "a: 0.50\n", "a: 0.55\n"),
        ("number-zero", "a: 512\n", "a: 0\n"),
        ("flipped", "a: true\n", "a: false\n"),
        ("quoted", "a: true\n", 'a: "true"\n'),
        ("quoted", "a: 3\n", 'a: "3"\n'),
        ("order", "- a\n- b\n", "- b\n- a\n"),
        ("order", "p: [x, y]\n", "p: [y, x]\n"),
        ("item-missing", "- a\n- b\n", "- b\n"),
        ("value-emptied", "a: word\n", "a: \n"),
        ("claim-missing", "a: 1\n# claim: n = 4\n", "a: 1\n"),
        ("claim-doubled", "# claim: n = 4\n", "# claim: n = 4\n# claim: n = 5\n"),
        ("number-near", "# claim: n = 4\n", "# claim: n = 5\n"),
        ("comment-dropped", "# why\n# it is so\na: 1\n", "a: 1\n"),
    ],
)
def test_a_mistake_of_each_kind_in_yaml(operator: str, body: str, wrong: str) -> None:
    """Oracle: the mistake, written by hand."""
    made = [text for name, text in found("yaml", body) if name == operator]
    assert wrong in made, made


@pytest.mark.parametrize(
    ("operator", "body", "wrong"),
    [
        ("row-missing", TABLE, "| a | b |\n|---|---|\n| y | 2 GB |\n"),
        ("row-doubled", TABLE, TABLE + "| y | 2 GB |\n"),
        ("row-renamed", TABLE, TABLE.replace("y", "x")),
        ("cells-exchanged", TABLE, "| a | b |\n|---|---|\n| x | 2 GB |\n| y | 1 GB |\n"),
        ("cell-emptied", TABLE, TABLE.replace("1 GB", "")),
        ("unit", TABLE, TABLE.replace("1 GB", "1 GiB")),
        ("unit", TABLE.replace("GB", "ms"), TABLE.replace("GB", "ms").replace("1 ms", "1 s")),
        ("number-near", TABLE, TABLE.replace("1 GB", "2 GB")),
        ("number-scaled", TABLE, TABLE.replace("2 GB", "20 GB")),
        ("column-renamed", TABLE, TABLE.replace("| a |", "| as |")),
        ("column-missing", TABLE, "| b |\n|---|\n| 1 GB |\n| 2 GB |\n"),
        ("columns-exchanged", TABLE, "| a | b |\n|---|---|\n| 1 GB | x |\n| 2 GB | y |\n"),
        (
            "word-exchanged",
            "|a|b|\n|-|-|\n|1|yes|\n|2|no|\n|3|no|\n",
            "|a|b|\n|-|-|\n|1|no|\n|2|no|\n|3|no|\n",
        ),
        ("item-missing", "|a|\n|-|\n|x, y|\n", "|a|\n|-|\n|x|\n"),
        ("opposite", "The first limit.\n", "The second limit.\n"),
        ("number-scaled", "It takes 5 blocks.\n", "It takes 10 blocks.\n"),
        ("key-missing", "```yaml\na: 1\nb: 2\n```\n", "```yaml\nb: 2\n```\n"),
        ("fence-word", "```yaml\na: 1\n```\n", "```\na: 1\n```\n"),
    ],
)
def test_a_mistake_of_each_kind_in_markdown(operator: str, body: str, wrong: str) -> None:
    """Oracle: the mistake, written by hand."""
    made = [text for name, text in found("md", body) if name == operator]
    assert wrong in made, made


@pytest.mark.parametrize(
    ("operator", "body", "wrong"),
    [
        ("command-dropped", "a b\nc d\n", "\nc d\n"),
        ("commands-exchanged", "a b\nc d\n", "c d\na b\n"),
        ("flag-dropped", "a --x=1 --y z\n", "a --y z\n"),
        ("flag-dropped", "a --x=1 --y z\n", "a --x=1 z\n"),
        ("flag-dropped", "a --x=1 --y z\n", "a --x=1\n"),
        ("flag-doubled", "a --xyz=stop\n", "a --xyz=stop --xyz=sto\n"),
        ("flag-renamed", "a --x-long=1\n", "a --x_long=1\n"),
        ("value-emptied", "a --x=stop\n", 'a --x=""\n'),
        ("number-near", "a --x=8\n", "a --x=9\n"),
        ("number-scaled", "a -n 8\n", "a -n 16\n"),
        ("flipped", "a --x=true\n", "a --x=false\n"),
        ("item-missing", "a -t cuda,nvtx\n", "a -t nvtx\n"),
        ("argument-dropped", "a \\\n  -t 1 b.py\n", "a \\\n  -t 1\n"),
        ("command-dropped", "X=a,b\nrun $X\n", "\nrun $X\n"),
        ("item-missing", "X=a,b\n", "X=a\n"),
        ("quotes-dropped", "a 'b|c'\n", "a b|c\n"),
        ("pattern-changed", "a 'b|c'\n", "a 'b'\n"),
        ("quotes-changed", "a '$X'\n", 'a "$X"\n'),
        ("flag-dropped", "bash -c '\n  a --x=1 b\n'\n", "bash -c '\n  a b\n'\n"),
        ("line-dropped", "python -c '\nf()\ng()\n'\n", "python -c '\ng()\n'\n"),
        ("argument-dropped", "python -c 'f(a=1, b=2)'\n", "python -c 'f(b=2)'\n"),
        ("item-emptied", "# [ ] a number\n# [ ] b\n", "# [ ] \n# [ ] b\n"),
        ("item-dropped", "# [ ] a number\n# [ ] b\n", "# [ ] b\n"),
        ("item-cut", "# [ ] a number\n# [ ] b\n", "# [ ] a\n# [ ] b\n"),
        ("items-exchanged", "# [ ] a number\n# [ ] b\n", "# [ ] b\n# [ ] a number\n"),
        ("comment-dropped", "# what it costs\na b\n", "a b\n"),
    ],
)
def test_a_mistake_of_each_kind_in_commands(operator: str, body: str, wrong: str) -> None:
    """Oracle: the mistake, written by hand."""
    made = [text for name, text in found("sh", body) if name == operator]
    assert wrong in made, made


@pytest.mark.parametrize(
    ("kind", "body", "operator"),
    [
        ("yaml", "why: >\n  a: 1 and b: 2\n", "number-near"),
        ("yaml", "name: word\n", "quoted"),
        ("sh", "set -euo pipefail\na b\n", "flag-dropped"),
        ("md", "| a | b |\n|---|---|\n| x | 1 |\n| y | 1 |\n", "cells-exchanged"),
    ],
)
def test_what_means_the_same_is_not_made(kind: str, body: str, operator: str) -> None:
    """Oracle: YAML, Markdown and bash; the text would say what it said."""
    assert operator not in {name for name, _ in found(kind, body)}


def test_all_five_text_answers_are_read() -> None:
    """Oracle: the manifests."""
    names = ["profile_commands.sh", "benchmark_config.yaml", "quantization_comparison_plan.md"]
    names += ["topology_design_worksheet.md", "memory_optimization.md"]
    assert [path.name for path, _ in TASKS] == names


@pytest.mark.parametrize(("path", "task"), TASKS, ids=[task for _, task in TASKS])
def test_a_reference_s_mutants_differ_in_the_blocks_only(path: Path, task: str) -> None:
    """Oracle: the text outside of the blocks."""
    text, spans = path.read_text(), block_spans(path, task)
    made = [*edits(text, spans)]
    assert len(made) > 100
    assert len({one.applied(text) for one in made}) == len(made)
    for one in made:
        end = one.start + len(one.old)
        assert any(first <= one.start and end <= last for first, last in spans)
