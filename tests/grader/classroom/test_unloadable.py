"""A learner's file that does not import is told as that, whichever way a test reaches it."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.lab import capabilities
from grader.lab.manifest import load_lab
from grader.sandbox.backends import LocalBackend
from grader.suite.model import load_suite
from grader.suite.run import run_case, seed_of

ROOT = Path(__file__).resolve().parents[3]
BROKEN = "import a_module_that_nobody_has\n"
SENTENCE = "{} does not import: ModuleNotFoundError: No module named 'a_module_that_nobody_has'"


@pytest.mark.parametrize("lab_id", ["lab02", "lab03"])
def test_every_test_of_it_says_so_and_nothing_else(lab_id: str, tmp_path: Path) -> None:
    """Those that start ranks as well: no rank's number stands in front, and no rank is started."""
    lab = load_lab(ROOT, lab_id)
    if any(capabilities.first_missing(task.needs) for task in lab.tasks):
        pytest.skip("not all of the lab can run here")
    suite = load_suite(lab)
    folder = tmp_path / lab_id
    lab.copy_to(folder)
    (name,) = lab.edit
    text = (folder / name).read_text()
    (folder / name).write_text(text + BROKEN)
    where = f"{name}:{text.count(chr(10)) + 1}"
    backend = LocalBackend(suite.code_spec(folder), suite.limits())
    for case in suite.cases:
        if case.test.scored:
            outcome = run_case(suite, case, backend, folder, seed_of(case))
            said = (outcome.status, *outcome.lines, outcome.where)
            assert said == ("error", SENTENCE.format(name), where), case.id
