"""References become skeletons, in every language, and a marker out of place is named."""

from __future__ import annotations

import difflib
import shutil

import pytest

from grader.errors import LabError
from grader.lab import skeleton
from grader.lab.manifest import Lab, load_lab
from grader.sandbox.backends import LocalBackend
from grader.suite.attempt import Attempt
from grader.suite.model import load_suite
from grader.suite.run import run_case, seed_of

from ..conftest import MiniKit
from ..learner.test_collection import add_second


@pytest.fixture
def lab(kit: MiniKit) -> Lab:
    return load_lab(kit.root, "lab90")


def not_started(kit: MiniKit, lab: Lab) -> int | None:
    attempt = Attempt(lab, kit.exercise, "running_mean.py")
    return attempt.not_started(lab.task("running_mean"))


def reference(kit: MiniKit, text: str) -> None:
    (kit.solution / "running_mean.py").write_text(text, encoding="utf-8")


def test_a_block_becomes_a_todo(kit: MiniKit, lab: Lab) -> None:
    text = skeleton.skeleton(lab, "running_mean.py")
    assert "    # TODO(lab90.running_mean): Mean of everything seen so far\n    raise Not" in text
    assert 'raise NotImplementedError("lab90.running_mean")\n' in text
    assert "SOLUTION" not in text
    assert "total" not in text
    assert skeleton.stale(lab) == []


def test_solving_only_adds_lines(kit: MiniKit, lab: Lab) -> None:
    given = skeleton.skeleton(lab, "running_mean.py").split("\n")
    solved = (kit.solution / "running_mean.py").read_text(encoding="utf-8").split("\n")
    lost = [line[2:] for line in difflib.ndiff(given, solved) if line.startswith("- ")]
    assert len(lost) == 2
    assert all("lab90.running_mean" in line for line in lost)


def test_several_blocks_and_no_final_newline(kit: MiniKit, lab: Lab) -> None:
    reference(
        kit,
        "# BEGIN SOLUTION running_mean\nimport math\n# END SOLUTION\n\n\n"
        "def a():\n    # BEGIN SOLUTION running_mean\n    x = 1\n    # END SOLUTION\n\n\n"
        "def b():\n\tif 1:\n\t\t#BEGIN SOLUTION running_mean  (short)\n\t\ty = 2\n"
        "\t\t# END SOLUTION running_mean",
    )
    text = skeleton.skeleton(lab, "running_mean.py")
    todo = "# TODO(lab90.running_mean): Mean of everything seen so far"
    stop = 'raise NotImplementedError("lab90.running_mean")'
    assert text == (
        f"{todo}\n\n\ndef a():\n    {todo}\n    {stop}\n\n\n"
        f"def b():\n\tif 1:\n\t\t{todo}\n\t\t{stop}\n"
    )
    compile(text, "skeleton", "exec")


def test_a_form_feed_is_no_line_end(kit: MiniKit, lab: Lab) -> None:
    reference(kit, "x = 'a\x0cb\u2028c'\n")
    assert skeleton.skeleton(lab, "running_mean.py") == "x = 'a\x0cb\u2028c'\n"


FAULTS = {
    "nested": (
        "# BEGIN SOLUTION running_mean\n# BEGIN SOLUTION running_mean\n",
        "running_mean.py:2: a block opens inside `running_mean`'s",
    ),
    "unclosed": ("x = 1\n# BEGIN SOLUTION running_mean\n", "running_mean.py:2: .* never closed"),
    "unopened": ("# END SOLUTION\n", "running_mean.py:1: END SOLUTION without a BEGIN"),
    "nameless": ("# BEGIN SOLUTION\n# END SOLUTION\n", "running_mean.py:1: write `BEGIN SOLUTION"),
    "behind code": ("x = 1  # BEGIN SOLUTION running_mean\n# END SOLUTION\n", ":1: .*of its own"),
    "crossed": (
        "# BEGIN SOLUTION running_mean\n# END SOLUTION other\n",
        "running_mean.py:2: END of `other` in `running_mean`'s block",
    ),
    "unknown": (
        "# BEGIN SOLUTION mean\n# END SOLUTION\n",
        "running_mean.py:1: lab90 has no task `mean`; its tasks are: running_mean",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_marker_out_of_place_is_named(kit: MiniKit, lab: Lab, name: str) -> None:
    text, said = FAULTS[name]
    reference(kit, text)
    with pytest.raises(LabError, match=said):
        skeleton.skeleton(lab, "running_mean.py")


@pytest.mark.parametrize(
    ("file", "opening", "closing"),
    [
        ("notes.md", "<!-- ", " -->"),
        ("kernel.cu", "// ", ""),
        ("plan.yaml", "# ", ""),
        ("run.sh", "# ", ""),
    ],
)
def test_other_languages(kit: MiniKit, file: str, opening: str, closing: str) -> None:
    text = (
        f"before\n  {opening}BEGIN SOLUTION notes{closing}\n  answer\n"
        f"  {opening}END SOLUTION{closing}\nafter\n"
    )
    add_second(kit, file, text, f'student.read("{file}")')
    lab = load_lab(kit.root, "lab90")
    assert skeleton.stale(lab) == [file]
    skeleton.write(lab, [file])
    assert skeleton.stale(lab) == []
    assert (kit.exercise / file).read_text(encoding="utf-8") == (
        f"before\n  {opening}TODO(lab90.notes): What a mean hides{closing}\n"
        f"  {opening}NOT STARTED lab90.notes{closing}\nafter\n"
    )
    run = kit.pytest(f"exercises/lab90/{file}")
    assert run.counts() == {"not started": 2}
    assert f"open   exercises/lab90/{file}:2" in run.out


def test_stale_names_what_differs_or_is_missing(kit: MiniKit) -> None:
    lab = load_lab(kit.root, "lab90")
    assert skeleton.stale(lab) == []
    kit.main.unlink()
    assert skeleton.stale(lab) == ["running_mean.py"]
    skeleton.write(lab, ["running_mean.py"])
    assert skeleton.stale(lab) == []
    kit.main.write_bytes(b"\xff not utf-8")
    assert skeleton.stale(lab) == ["running_mean.py"]
    (kit.solution / "running_mean.py").unlink()
    with pytest.raises(LabError, match=r"running_mean.py is missing, but lab90's manifest lists"):
        skeleton.wanted(lab)


def test_a_given_file_is_beside_the_exercises_and_nowhere_else(kit: MiniKit) -> None:
    kit.give("types_lab90.py", "x = 1\n", "crosses = true")
    lab = load_lab(kit.root, "lab90")
    assert list(skeleton.misplaced(lab)) == []
    assert skeleton.stale(lab) == []  # it is made from nothing
    shutil.copy(kit.exercise / "types_lab90.py", kit.solution)
    (kit.exercise / "types_lab90.py").unlink()
    assert list(skeleton.misplaced(lab)) == [
        f"{kit.exercise / 'types_lab90.py'} is missing, but lab90's manifest lists it; "
        "`git checkout -- exercises/lab90/types_lab90.py` restores the kit's own.",
        f"{kit.solution / 'types_lab90.py'} is a second copy of a given file, and nothing reads "
        "it: remove it.",
    ]


def test_a_placeholder_is_found_while_it_stands(kit: MiniKit, lab: Lab) -> None:
    task = lab.task("running_mean")
    assert skeleton.placeholder_line(task, kit.main.read_text(encoding="utf-8")) == 11
    kit.solve()
    assert skeleton.placeholder_line(task, kit.main.read_text(encoding="utf-8")) is None


REFERENCE = """\
a = b
# BEGIN SOLUTION one
a = b
# END SOLUTION
# BEGIN SOLUTION two
c = a
# END SOLUTION
    # BEGIN SOLUTION one
    d = a
    # END SOLUTION
"""


def test_changes_stay_in_the_blocks_of_one_task() -> None:
    wanted = REFERENCE.replace("one\na = b", "one\na = 1").replace("d = a", "d = 2")
    assert skeleton.changed_in(REFERENCE, "one", ("a = b", "a = 1"), ("d = a", "d = 2")) == wanted
    assert skeleton.changed(REFERENCE, ("c = a", "c = 3")) == REFERENCE.replace("c = a", "c = 3")


@pytest.mark.parametrize(("old", "count"), [("a = b", 2), ("e = f", 0)])
def test_what_is_changed_stands_there_exactly_once(old: str, count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} places"):
        skeleton.changed(REFERENCE, (old, ""))
    with pytest.raises(ValueError, match="0 places"):
        skeleton.changed_in(REFERENCE, "two", (old, ""))


def test_a_task_is_unbegun_while_its_placeholders_stand_as_shipped(kit: MiniKit, lab: Lab) -> None:
    shipped = kit.main.read_text(encoding="utf-8")
    todo = "    # TODO(lab90.running_mean)"
    stop = '    raise NotImplementedError("lab90.running_mean")\n'
    assert todo in shipped
    assert stop in shipped
    assert not_started(kit, lab) == 11
    kit.write("import math\n" + shipped.replace("\n", "\r\n"))
    assert not_started(kit, lab) == 12
    kit.write(shipped + "\n\ndef helper():\n    return 1\n")
    assert not_started(kit, lab) == 11
    for begun in (
        shipped.replace(todo, "    means = []\n" + todo),  # code in front of it
        shipped.replace(stop, "    means = []\n" + stop),
        shipped.replace(stop, "    return []\n"),
        shipped.replace("TODO", "done"),
        shipped + "\n\ndef running_mean(values):\n    return []\n",  # it takes the place
        shipped + "\n\nrunning_mean = list\n",
        shipped + "\n\nsetattr(__import__(__name__), 'running_mean', list)\n",
        shipped + "\n\ndef half(\n",
    ):
        kit.write(begun)
        assert not_started(kit, lab) is None
    kit.main.unlink()
    assert not_started(kit, lab) is None


def test_each_of_several_placeholders_has_to_stand(kit: MiniKit, lab: Lab) -> None:
    part = "    # BEGIN SOLUTION running_mean\n    x = 1\n    # END SOLUTION\n"
    reference(kit, f"def a():\n{part}\n\ndef b():\n{part}")
    shipped = skeleton.skeleton(lab, "running_mean.py")
    kit.write(shipped)
    assert not_started(kit, lab) == 2
    head, stop, tail = shipped.rpartition('    raise NotImplementedError("lab90.running_mean")')
    kit.write(f"{head}    return 1{tail}")
    assert stop
    assert not_started(kit, lab) is None


ELSEWHERE = """
from grader.suite import expect
from grader.suite import task


@task("running_mean")
def test_what_another_task_does(student):
    expect.equal(student.other(), 4, because="it is four")
"""


def test_a_task_that_is_not_begun_is_not_wrong(kit: MiniKit) -> None:
    (kit.suite / "test_running_mean.py").write_text(ELSEWHERE)
    suite = load_suite(load_lab(kit.root, "lab90"))
    (case,) = suite.cases
    shipped = kit.main.read_text(encoding="utf-8") + "\n\ndef other():\n    return 3\n"
    begun = shipped.replace("    raise NotImpl", "    means = []\n    raise NotImpl")
    for text, status in ((shipped, "not_started"), (begun, "failed")):
        kit.write(text)
        backend = LocalBackend(suite.code_spec(kit.exercise), suite.limits())
        outcome = run_case(suite, case, backend, kit.exercise, seed_of(case))
        assert outcome.status == status
        assert ("running_mean.py:11" in outcome.where) == (status == "not_started")
