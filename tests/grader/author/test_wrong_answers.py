"""`infralens wrong-answers`: each known mistake as a submission that makes it and no other."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from grader.author import wrong_answers
from grader.errors import LabError
from grader.lab.manifest import lab_ids, load_lab
from grader.sandbox.backends import LocalBackend
from grader.suite.model import Suite, load_suite
from grader.suite.replays import Replays
from grader.suite.run import run_case, seed_of

from ..conftest import MiniKit
from ..suite.test_misconceptions import MISCONCEPTIONS, REFERENCE, TESTS

ROOT = Path(__file__).resolve().parents[3]
BLOCK = '''
def helper(n):
    """Adds the scale."""
    # BEGIN SOLUTION running_mean
    return n + SCALE
    # END SOLUTION
'''


@pytest.fixture
def classes(kit: MiniKit) -> Suite:
    """A suite whose misconceptions replace functions, methods, a property and a whole file."""
    reference = REFERENCE.replace("\ndef helper(n):\n    return n + SCALE\n", BLOCK)
    assert "BEGIN SOLUTION" in reference
    (kit.solution / "running_mean.py").write_text(reference)
    (kit.suite / "test_running_mean.py").write_text(TESTS)
    (kit.suite / "misconceptions/running_mean.py").write_text(MISCONCEPTIONS)
    return load_suite(load_lab(kit.root, "lab90"))


def test_a_written_answer_fails_as_the_spliced_one_does(classes: Suite, tmp_path: Path) -> None:
    """The text that is handed in and the code that is put into a running module are one mistake."""
    lab = classes.lab
    found = wrong_answers.write(lab.root, tmp_path / "out", [lab.id])
    wrongs = classes.misconceptions_of("running_mean")
    assert [answer.name for answer in found] == [wrong.name for wrong in wrongs]
    assert len(wrongs) >= 4
    replays = Replays(classes)
    for wrong in wrongs:
        folder = tmp_path / "out" / wrong.name / lab.id
        assert sorted(path.name for path in folder.iterdir()) == sorted(lab.edit)
        backend = LocalBackend(classes.code_spec(folder), classes.limits())
        for case in classes.cases:
            mine = run_case(classes, case, backend, folder, seed_of(case))
            other = replays.run(wrong, case, seed_of(case))
            assert (mine.status, mine.site) == (other.status, other.site)
            assert mine.lines == other.lines


def test_a_submission_has_no_marks_of_the_reference(classes: Suite) -> None:
    for wrong in classes.misconceptions_of("running_mean"):
        (text,) = wrong_answers.files(classes.lab, wrong).values()
        assert "SOLUTION" not in text
        assert "misconception" not in text


def test_a_method_that_a_class_inherits_is_put_behind_its_others(kit: MiniKit) -> None:
    (kit.solution / "running_mean.py").write_text(REFERENCE)
    (kit.suite / "misconceptions/running_mean.py").write_text(
        "from grader.suite import misconception\n\n\n"
        '@misconception(replaces="Counter.__repr__")\n'
        "def tells_the_total(self):\n"
        '    """Tells the total."""\n'
        "    return super().__repr__() + str(self.total)\n"
    )
    suite = load_suite(load_lab(kit.root, "lab90"))
    (wrong,) = suite.misconceptions_of("running_mean")
    (text,) = wrong_answers.files(suite.lab, wrong).values()
    module: dict[str, object] = {"__name__": "answer"}
    exec(compile(text, "answer", "exec"), module)
    counter = module["Counter"](3)  # type: ignore[operator]
    assert repr(counter).endswith(">3")
    assert counter.doubled == 6


@pytest.mark.parametrize("lab_id", lab_ids(ROOT))
def test_every_known_wrong_answer_can_be_written(lab_id: str) -> None:
    """Each is another text than the reference, and Python's are Python; a task has none twice."""
    lab = load_lab(ROOT, lab_id)
    suite = load_suite(lab)
    right = {name: (lab.solution / name).read_text() for name in lab.edit}
    plain = {name: wrong_answers._without_marks(text) for name, text in right.items()}
    seen = []
    for task in lab.tasks:
        for wrong in suite.misconceptions_of(task.id):
            texts = wrong_answers.files(lab, wrong)
            changed = [name for name in lab.edit if texts[name] != plain[name]]
            assert len(changed) == 1, wrong.name
            if wrong.file.endswith(".py"):
                ast.parse(texts[changed[0]])
            seen.append((task.id, texts[changed[0]]))
    assert seen
    assert len(set(seen)) == len(seen)


# -- the call -------------------------------------------------------------------------------------


def _told(*arguments: str, cwd: Path) -> tuple[int, str]:
    """Exit status and output of the command."""
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "grader.cli", "wrong-answers", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return done.returncode, done.stdout + done.stderr


def test_the_command_says_what_each_loses_and_what_to_type(kit: MiniKit) -> None:
    code, said = _told("fakes", "lab90.running_mean", cwd=kit.root)
    assert code == 0
    assert said.splitlines() == [
        "divides_by_the_index loses lab90.running_mean: After value i there are i + 1 values, not "
        "i: the count starts at one.",
        "1 submission. Next: infralens grade fakes --out RUN",
    ]
    assert (kit.root / "fakes/divides_by_the_index/lab90/running_mean.py").is_file()
    code, said = _told("fakes", "lab90", cwd=kit.root)
    assert (code, said) == (
        2,
        "infralens: fakes is not empty: give a new folder, so that nothing is lost.\n",
    )


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ("lab77", "No lab `lab77` here"),
        ("lab90.median", "lab90 has no task `median`; its tasks are: running_mean."),
        ("lab90.running_mean.off", "those of lab90.running_mean: divides_by_the_index."),
        ("lab90.a.b.c", "is not a lab, task or misconception"),
        ("", "No lab `` here"),
    ],
)
def test_what_is_not_there_is_named(
    kit: MiniKit, tmp_path: Path, wanted: str, sentence: str
) -> None:
    with pytest.raises(LabError) as caught:
        wrong_answers.write(kit.root, tmp_path / "out", [wanted])
    assert sentence in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_task_without_a_known_mistake_says_so(kit: MiniKit, tmp_path: Path) -> None:
    (kit.suite / "misconceptions/running_mean.py").unlink()
    with pytest.raises(LabError, match=r"those of lab90\.running_mean: none\."):
        wrong_answers.write(kit.root, tmp_path / "out", ["lab90.running_mean"])


def test_without_a_reference_there_is_nothing_to_spoil(kit: MiniKit, tmp_path: Path) -> None:
    kit.solution.rename(kit.root / "elsewhere")
    with pytest.raises(LabError, match="has no reference here"):
        wrong_answers.write(kit.root, tmp_path / "out", ["lab90"])


def test_a_file_is_no_folder(kit: MiniKit, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    for place in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with pytest.raises(LabError, match="cannot be written"):
            wrong_answers.write(kit.root, place, ["lab90"])
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_mistake_that_brings_its_own_of_what_is_not_begun_does_not_go_with_it(
    classes: Suite,
) -> None:
    """Who has not begun a task cannot have another one's wrong version of it."""
    (wrong, *_) = [w for w in classes.misconceptions_of("running_mean") if w.replaces == "helper"]
    assert wrong_answers.combined(classes.lab, [wrong], [])
    with pytest.raises(ValueError, match="brings its own running_mean"):
        wrong_answers.combined(classes.lab, [wrong], ["running_mean"])
