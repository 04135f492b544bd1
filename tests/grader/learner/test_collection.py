"""`pytest exercises/labNN` from outside: what is collected, refused, said and counted."""

from __future__ import annotations

import os
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from ..conftest import LONGEST, TOGETHER, WRONG, MiniKit, turn_of, unit_of_work

TARGET = "exercises/lab90/running_mean.py"
GATE = f"{TARGET}::running_mean::test_every_prefix_has_its_mean"
STEP = f"{TARGET}::running_mean::test_no_value_gives_no_mean"


# -- targets --------------------------------------------------------------------------------------


def test_a_fresh_skeleton_says_where_to_start_and_exits_with_1(kit: MiniKit) -> None:
    run = kit.pytest("exercises/lab90")
    assert run.code == 1
    assert run.counts() == {"not started": 4}
    assert "Nothing is broken: this is where one starts" in run.out
    assert f"open   {TARGET}:11" in run.out
    assert "FAILURES" not in run.out
    assert "Traceback" not in run.out
    assert kit.main.read_text(encoding="utf-8").splitlines()[10].strip().startswith("# TODO(lab90")


def test_both_tracks_in_one_session_never_mix(kit: MiniKit) -> None:
    kit.write(
        "COUNT = []\n" + WRONG.replace("    total, means", "    COUNT.append(1)\n    total, means")
    )
    run = kit.pytest("exercises", "solutions")
    assert run.counts() == {"failed": 3, "passed": 5}
    assert "exercises/lab90: 0 of 2 points" in run.out
    assert "solutions/lab90: 2 of 2 points" in run.out
    assert run.out.count("sha256") == 2
    # The other order too: who is imported first must not matter.
    run = kit.pytest("solutions/lab90", "exercises/lab90")
    assert run.counts() == {"failed": 3, "passed": 5}


@pytest.mark.parametrize(
    ("target", "passed"),
    [
        (TARGET, 4),
        (f"{TARGET}::running_mean", 4),
        (GATE, 3),
        (f"{GATE}[7]", 1),
        (STEP, 1),
    ],
)
def test_file_task_property_and_case_are_targets(kit: MiniKit, target: str, passed: int) -> None:
    kit.solve()
    run = kit.pytest(target, "-q")
    assert (run.code, run.counts()) == (0, {"passed": passed})


def test_the_total_names_the_lab_inside_its_folder_too(kit: MiniKit) -> None:
    run = kit.pytest(".", cwd=kit.exercise)
    assert "   lab90: 0 of 2 points (self-check)" in run.out


def test_selection_options(kit: MiniKit) -> None:
    kit.write(WRONG)
    assert kit.pytest("exercises/lab90", "-k", "no_value").counts() == {
        "passed": 1,
        "deselected": 3,
    }
    assert kit.pytest("exercises/lab90", "-k", "core and running_mean", "-x").counts() == {
        "failed": 1
    }
    assert kit.pytest("exercises/lab90", cache=True).counts() == {"failed": 3, "passed": 1}
    assert kit.pytest("exercises/lab90", "--lf", cache=True).counts()["failed"] == 3
    first = kit.pytest("exercises/lab90", "--ff", "-v", cache=True).out
    assert first.index("[31] FAILED") < first.index("no_mean PASSED")


def test_ids_are_collected_once_and_can_be_copied_back(kit: MiniKit) -> None:
    kit.solve()
    everywhere = [
        (kit.root, "exercises/lab90"),
        (kit.root, TARGET),
        (kit.exercise, "."),
        (kit.exercise, "running_mean.py"),
        (Path("/"), str(kit.exercise)),
        (Path("/"), str(kit.main)),
    ]
    for cwd, target in everywhere:
        ids = kit.pytest(target, "--collect-only", "-q", cwd=cwd).ids()
        assert ids == [f"{GATE}[2]", f"{GATE}[7]", f"{GATE}[31]", STEP], (cwd, target)
    run = kit.pytest(*ids)
    assert run.counts() == {"passed": 4}


def test_workers_give_the_same_board_and_one_message(kit: MiniKit) -> None:
    add_second(kit, "second.py", "import no_such_module\n", "student.notes()")
    kit.write(WRONG)
    run = kit.fresh_pytest("exercises/lab90", "-n", "2")
    assert run.counts() == {"failed": 4, "passed": 1, "not run": 1}
    assert "exercises/lab90: 0 of 5 points" in run.out
    assert "Likely cause: After value i there are i + 1 values" in run.out


def test_bare_pytest_tests_the_kit(kit: MiniKit) -> None:
    own = kit.root / "tests" / "grader"
    own.mkdir()
    (own / "test_own.py").write_text("def test_own():\n    assert True\n", encoding="utf-8")
    assert kit.pytest().counts() == {"passed": 1}
    assert kit.pytest("tests").counts() == {"passed": 1}


def test_junit_xml_names_tests_and_carries_no_payload(kit: MiniKit) -> None:
    kit.write(WRONG)
    kit.pytest("exercises/lab90", "--junitxml=out.xml")
    cases = ElementTree.parse(kit.root / "out.xml").findall(".//testcase")
    names = {f"{case.get('classname')}.{case.get('name')}" for case in cases}
    assert len(cases) == len(names) == 4
    assert "exercises.lab90.running_mean.running_mean.test_no_value_gives_no_mean" in names
    text = (kit.root / "out.xml").read_text(encoding="utf-8")
    assert "entry i is the mean" in text
    assert str(kit.root) not in text.replace("hostname", "")


# -- refusals -------------------------------------------------------------------------------------


def test_the_hidden_suite_is_refused_with_the_command_to_type(kit: MiniKit) -> None:
    for target, cwd in [
        ("tests/lab90", kit.root),
        ("tests/lab90/test_running_mean.py", kit.root),
        ("tests/lab90/test_running_mean.py::test_no_value_gives_no_mean", kit.root),
        (".", kit.suite),
    ]:
        run = kit.pytest(target, cwd=cwd)
        assert run.code == 4
        assert "Type: pytest exercises/lab90" in run.out
        assert "Traceback" not in run.out


def test_files_that_are_not_graded_are_named(kit: MiniKit) -> None:
    kit.give("harness.py", "def test_x():\n    pass\n")
    for name in ("harness.py", "lab.toml", "README.md"):
        run = kit.pytest(f"exercises/lab90/{name}")
        assert run.code == 4
        assert f"{name} is not a file that lab90 grades" in run.out
        assert "Type: pytest exercises/lab90" in run.out
    assert kit.pytest("exercises/lab90").counts() == {"not started": 4}


@pytest.mark.parametrize("how", ["folder", "file", "hard link"])
def test_a_link_to_the_reference_is_refused(kit: MiniKit, how: str) -> None:
    reference = kit.solution / "running_mean.py"
    if how == "folder":
        manifest = (kit.exercise / "lab.toml").read_text(encoding="utf-8")
        shutil.rmtree(kit.exercise)
        (kit.solution / "lab.toml").write_text(manifest, encoding="utf-8")
        kit.exercise.symlink_to(kit.solution)
    else:
        kit.main.unlink()
        if how == "file":
            kit.main.symlink_to(reference)
        else:
            os.link(reference, kit.main)
    run = kit.pytest("exercises/lab90")
    assert run.code != 0
    assert "passed" not in run.counts()
    assert "is a link to" in run.out or "are one file: copy it instead" in run.out


def test_a_kit_behind_a_link_is_no_link_to_the_reference(kit: MiniKit, tmp_path: Path) -> None:
    kit.solve()
    other = tmp_path.parent / f"{tmp_path.name}-link"
    other.symlink_to(kit.root)
    assert kit.pytest("exercises/lab90", cwd=other).counts() == {"passed": 4}


def test_faults_of_a_lab_are_sentences(kit: MiniKit) -> None:
    suite = kit.suite / "test_running_mean.py"
    text = suite.read_text(encoding="utf-8")
    suite.write_text(text + "\n\ndef test_unmarked(student):\n    pass\n", encoding="utf-8")
    run = kit.pytest("exercises/lab90")
    assert "test_unmarked has no @task(...) and would never be counted" in run.out
    suite.write_text(text.replace('@task("running_mean", ', '@task("running_meen", '))
    run = kit.pytest("exercises/lab90")
    assert "lab90 has no task `running_meen`; its tasks are: running_mean" in run.out
    suite.write_text(text.replace('n", holds=("e', 'n", gate=False, holds=("e'))
    assert "`running_mean` has no scored gate" in kit.pytest("exercises/lab90").out
    suite.write_text(text.replace("student, rng, n", "student, nrg, n"), encoding="utf-8")
    assert "asks for ['nrg']" in kit.pytest("exercises/lab90").out
    shutil.rmtree(kit.suite)
    assert "lab90 has no suite" in kit.pytest("exercises/lab90").out
    kit.manifest('edit = ["running_mean.py"]', 'edit = ["running_mean.py", "second.py"]')
    for target in ("exercises/lab90", TARGET):
        run = kit.pytest(target)
        assert run.code != 0
        assert "`second.py` is in `edit` but no task has it as its file" in run.out
        assert "Traceback" not in run.out
        assert "INTERNALERROR" not in run.out


def test_one_function_is_a_test_of_each_task_that_it_names(kit: MiniKit) -> None:
    """Each under its own task, with an id and a seed of its own, told which by `task`."""
    kit.manifest('edit = ["running_mean.py"]', 'edit = ["running_mean.py", "notes.md"]')
    manifest = kit.exercise / "lab.toml"
    manifest.write_text(manifest.read_text() + SECOND.format(file="notes.md"), encoding="utf-8")
    (kit.solution / "notes.md").write_text("The spread.\n", encoding="utf-8")
    text = """
import pytest

from grader.suite import expect
from grader.suite import task


@task("notes", "running_mean")
@pytest.mark.parametrize("n", [1, 2])
def test_of_both(student, task, rng, n):
    expect.equal((task, n, float(rng.random())), ("running_mean", 1, 0.0), "that is the one")
"""
    path = kit.suite / "test_both.py"
    path.write_text(text, encoding="utf-8")
    run = kit.pytest("solutions/lab90", "--collect-only", "-q")
    want = [f"{task}::test_of_both[{n}]" for task in ("notes", "running_mean") for n in (1, 2)]
    assert sorted(id.partition("::")[2] for id in run.ids() if "of_both" in id) == want
    said = kit.pytest("solutions/lab90", "-k", "of_both").out
    drawn = set(re.findall(r"\('(\w+)', (\d), (0\.\d+)\)", said))
    assert {(task, n) for task, n, _ in drawn} == {
        (task, n) for task in ("notes", "running_mean") for n in "12"
    }
    assert len({number for *_, number in drawn}) == 4
    path.write_text(text.replace('"notes", "running_mean"', '"notes", "notes"'), encoding="utf-8")
    assert "a second test of `notes` is called test_of_both" in kit.pytest("solutions/lab90").out


# -- two files, other kinds of files --------------------------------------------------------------

SECOND = """
[[task]]
id = "notes"
title = "What a mean hides"
tier = "core"
points = 3
minutes = 5
file = "{file}"
needs = []
"""
NOTES_TEST = '''
from grader.suite import expect
from grader.suite import task


@task("notes")
def test_names_the_spread(student):
    """Names the spread.   Oracle: the text."""
    expect.true("spread" in {call}, "a mean hides the spread")


@task("notes")
def test_is_short(student):
    """Is short.   Oracle: the text."""
    expect.at_most(len({call}), 500, "it is a note", unit="characters")
'''


def add_second(kit: MiniKit, name: str, solution: str, call: str) -> None:
    kit.manifest('edit = ["running_mean.py"]', f'edit = ["running_mean.py", "{name}"]')
    manifest = kit.exercise / "lab.toml"
    manifest.write_text(
        manifest.read_text(encoding="utf-8") + SECOND.format(file=name), encoding="utf-8"
    )
    (kit.suite / "test_second.py").write_text(NOTES_TEST.format(call=call), encoding="utf-8")
    for folder in (kit.solution, kit.exercise):
        (folder / name).write_text(solution, encoding="utf-8")


@pytest.mark.parametrize("name", ["notes.md", "kernel.cu"])
def test_other_kinds_of_files_are_collected_once(kit: MiniKit, name: str) -> None:
    add_second(kit, name, "the spread\n", f'student.read("{name}")')
    ids = kit.pytest("exercises", "--collect-only", "-q").ids()
    assert len(ids) == len(set(ids)) == 6
    for target in (f"exercises/lab90/{name}", f"exercises/lab90/{name}::notes"):
        assert kit.pytest(target).counts() == {"passed": 2}
    run = kit.pytest("exercises/lab90")
    assert run.counts() == {"not started": 4, "passed": 2}
    assert "3 of 5 points" in run.out


IMPORT_FAULTS = {
    "syntax": ("def f(:\n", "SyntaxError: invalid syntax: def f(:", "second.py:1"),
    "module": ("import no_such_module\n", "No module named 'no_such_module'", "second.py:1"),
    "exit": ("x = 1\nimport sys\nsys.exit(0)\n", "sys.exit(0) was called", "second.py:3"),
    "hard exit": ("x = 1\nimport os\nos._exit(0)\n", "os._exit(0) was called", "second.py:3"),
    "raise": ("x = 1\n1 / 0\n", "ZeroDivisionError: division by zero", "second.py:2"),
    "own": ("import helper\n", "so helper.py is missing)", "second.py:1"),
    "skip": ("import pytest\npytest.skip('no', allow_module_level=True)\n", "Skipped", "second.py"),
}


def test_a_print_in_a_loop_does_not_bury_the_message(kit: MiniKit) -> None:
    kit.write(f"{WRONG}\nmine = running_mean\n\ndef running_mean(values):\n"
              "    print('here\\n' * 20_000)\n    return mine(values)\n")  # fmt: skip
    run = kit.pytest("exercises/lab90")
    assert "characters more; pytest -s shows them all" in run.out
    assert "Likely cause" in run.out
    assert 2000 < len(run.out) < 40_000
    short = kit.pytest("exercises/lab90", "-s")
    assert short.out.count("here\n") >= 20_000


def test_an_object_where_values_are_wanted_is_called_by_its_type(kit: MiniKit) -> None:
    (file,) = kit.suite.glob("test_*.py")
    call = "student.running_mean(values)"
    file.write_text(file.read_text().replace(f"means = {call}", f"means = [*{call}]"))
    kit.write("def running_mean(values):\n    return map(float, values)\n")
    run = kit.pytest("exercises/lab90")
    assert "needs plain values, such as a list, and got an object of type map" in run.out
    assert "Handle" not in run.out


@pytest.mark.parametrize("fault", IMPORT_FAULTS)
def test_a_file_that_does_not_import_is_one_message(kit: MiniKit, fault: str) -> None:
    source, said, where = IMPORT_FAULTS[fault]
    add_second(kit, "second.py", "def notes():\n    return 'spread'\n", "student.notes()")
    (kit.exercise / "helper.py").write_text("x = 1\n", encoding="utf-8")
    kit.solve()
    (kit.exercise / "second.py").write_text(source, encoding="utf-8")
    run = kit.pytest("exercises/lab90")
    assert run.code == 1
    assert run.counts() == {"failed": 1, "not run": 1, "passed": 4}
    board = run.out[run.out.index("lab90 A new lab") :]
    assert run.out[: run.out.index("lab90 A new lab")].count("second.py does not import") == 1
    assert board.splitlines()[1].startswith("second.py does not import")
    assert said in board
    assert f"at {where}" in run.out
    assert "Traceback" not in run.out


def test_files_import_each_other_and_keep_their_state_apart(kit: MiniKit) -> None:
    add_second(
        kit,
        "aaa.py",
        "STATE = ['spread']\n\ndef notes():\n    return STATE[0]\n",
        "student.notes()",
    )
    solution = (kit.solution / "running_mean.py").read_text(encoding="utf-8")
    first = (
        "import aaa\nassert aaa.STATE == ['spread'], 'the other tree'\n"
        "aaa.STATE.insert(0, 'spread!')\n"
    )
    for folder in (kit.solution, kit.exercise):
        (folder / "running_mean.py").write_text(
            solution.replace(
                "from __future__ import annotations\n",
                f"from __future__ import annotations\n{first}",
            )
        )
    run = kit.pytest("exercises", "solutions")
    assert run.counts() == {"passed": 12}
    assert not list(kit.root.glob("exercises/**/__pycache__"))


# -- what student code may do ---------------------------------------------------------------------


def test_a_deleted_function_is_named(kit: MiniKit) -> None:
    kit.write("def runing_mean(values):\n    return values\n")
    run = kit.pytest("exercises/lab90")
    assert run.out.count("has no `running_mean`; was it renamed or deleted?") == 2  # and the board
    assert run.counts() == {"failed": 1, "not run": 3}
    kit.main.unlink()
    run = kit.pytest("exercises/lab90")
    assert run.code != 0
    assert "exercises/lab90/running_mean.py is missing; `infralens reset lab90` puts" in run.out
    assert "Traceback" not in run.out


def test_given_files_are_those_beside_the_exercises_for_both_trees(kit: MiniKit) -> None:
    kit.give("limits.py", "FIRST = 1\n", "crosses = true")
    for file in (kit.solution / "running_mean.py", kit.main):
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("import annotations", "import annotations\nimport limits"))
    kit.solve()
    run = kit.pytest("exercises", "solutions")
    assert run.counts() == {"passed": 8}
    (kit.exercise / "limits.py").write_text("FIRST = = 1\n", encoding="utf-8")
    restore = "`git checkout -- exercises/lab90/limits.py` restores the kit's own"
    for track in ("exercises", "solutions"):
        run = kit.pytest(track)
        assert run.code != 0
        assert "limits.py does not import: SyntaxError: invalid syntax" in run.out
        assert restore in run.out
        assert "Traceback" not in run.out
    (kit.exercise / "limits.py").unlink()
    for track in ("exercises", "solutions"):
        run = kit.pytest(track)
        assert run.code == 4
        assert f"exercises/lab90/limits.py is missing; {restore}" in run.out


@pytest.mark.parametrize(
    "body",
    [
        "while True:\n        pass",
        "while True:\n        try:\n            sum(values)\n        except:\n            pass",
    ],
)
def test_an_endless_loop_times_out_and_after_two_the_task_is_left(kit: MiniKit, body: str) -> None:
    kit.manifest("call_seconds = 5", "call_seconds = 0.2")
    kit.write(f"def running_mean(values):\n    {body}\n")
    run = kit.pytest("exercises/lab90")
    assert run.counts() == {"failed": 2, "not run": 2}
    assert "no answer after 0.2 s: a loop that does not end" in run.out
    assert "timed out" in run.out


def test_a_lab_may_give_a_call_less_of_the_processor(kit: MiniKit) -> None:
    kit.manifest("call_seconds = 5", "call_seconds = 5\nprocessor_seconds = 0.2")
    kit.write("def running_mean(values):\n    while True:\n        pass\n")
    assert "no answer after 0.2 s of processor time: a loop" in kit.pytest("exercises/lab90").out


def test_what_a_function_does_costs_its_own_test(kit: MiniKit) -> None:
    kit.solve()
    kit.main.write_text(
        kit.main.read_text(encoding="utf-8").replace(
            "    means, total",
            "    print('here are', len(values))\n"
            "    if len(values) == 2:\n        import sys; sys.exit(0)\n"
            "    if len(values) == 31:\n        import os; os._exit(0)\n"
            "    if len(values) == 7:\n        return running_mean(values)\n"
            "    if not values:\n        import pytest; pytest.skip('not for me')\n"
            "    means, total",
        )
    )
    run = kit.pytest("exercises/lab90")
    assert run.code == 1
    assert run.counts() == {"failed": 4}
    assert "raised SystemExit: sys.exit(0) was called" in run.out
    assert "raised SystemExit: os._exit(0) was called" in run.out
    assert "raised RecursionError" in run.out
    assert "raised Skipped: not for me" in run.out
    assert "here are 2" in run.out


def test_what_cannot_be_verified_is_counted_apart(kit: MiniKit) -> None:
    kit.solve()
    (kit.suite / "test_extra.py").write_text(
        "from grader.suite import task\n\n\n"
        '@task("running_mean", extra=("no_such_library",))\n'
        "def test_agrees_with_a_library(student):\n    raise AssertionError\n",
        encoding="utf-8",
    )
    run = kit.pytest("exercises/lab90", "-rs")
    assert run.code == 0
    assert run.counts() == {"passed": 4, "not verified here": 1}
    assert "2 of 2 points" in run.out
    assert "1 unscored check" in run.out
    kit.manifest("needs = []", 'needs = ["gpu"]')
    run = kit.pytest("exercises/lab90")
    if "passed" not in run.counts():
        assert run.counts() == {"not verified here": 5}
        assert "0 of 2 points" in run.out
        assert "not verified here: 2 points" in run.out
        assert "done" not in run.out


def test_the_seed_changes_inputs_and_is_printed(kit: MiniKit) -> None:
    kit.write(WRONG)
    runs = [kit.pytest(f"{GATE}[2]", f"--seed={seed}").out for seed in ("a", "a", "b")]
    calls = [
        next(line for line in out.splitlines() if line.startswith("running_mean([")) for out in runs
    ]
    assert calls[0] == calls[1] != calls[2]
    assert "seed b" in runs[2]


# -- debuggers ------------------------------------------------------------------------------------


def test_pdb_opens_in_the_learners_frame(kit: MiniKit) -> None:
    kit.write("def running_mean(values):\n    mine = len(values)\n    return mine / 0\n")
    run = kit.fresh_pytest(f"{GATE}[7]", "--pdb", stdin="p ('mine is', mine)\nq\n")
    assert "('mine is', 7)" in run.out
    assert "raised ZeroDivisionError: division by zero" in run.out


def test_pdb_opens_at_the_suites_line_for_a_wrong_value(kit: MiniKit) -> None:
    kit.write(WRONG)
    run = kit.fresh_pytest(f"{GATE}[7]", "--pdb", stdin="p ('want is', len(want), 'n is', n)\nq\n")
    assert "('want is', 7, 'n is', 7)" in run.out


def test_a_breakpoint_is_not_interrupted_by_the_deadline(kit: MiniKit) -> None:
    kit.manifest("call_seconds = 5", "call_seconds = 0.3")
    source = (kit.solution / "running_mean.py").read_text(encoding="utf-8")
    kit.write(source.replace("    means, total", "    breakpoint()\n    means, total"))
    script = "import time; time.sleep(0.8)\np ('values', len(values))\nc\n"
    run = kit.fresh_pytest(f"{GATE}[7]", stdin=script)
    assert "('values', 7)" in run.out
    assert run.counts() == {"passed": 1}
    run = kit.fresh_pytest(f"{GATE}[7]", stdin="q\n")
    assert run.code == 2
    assert "Traceback" not in run.out


# -- editors --------------------------------------------------------------------------------------


def test_an_editors_adapter_finds_a_tree_with_runnable_ids(kit: MiniKit) -> None:
    """Walks the nodes as microsoft/vscode-python's adapter does: `path`, `location`, parents that
    are a `pytest.Class` become a branch, anything with `callspec` must have `originalname`."""
    (kit.root / "walker.py").write_text(
        "import pytest\n\n\n"
        "def pytest_collection_finish(session):\n"
        "    for item in session.items:\n"
        "        assert not hasattr(item, 'callspec') or item.originalname\n"
        "        assert isinstance(item.location[1], int)\n"
        "        assert item.own_markers is not None\n"
        "        chain, node = [], item.parent\n"
        "        while isinstance(node, pytest.Class):\n"
        "            assert node.path == item.path and node.obj and node.own_markers is not None\n"
        "            chain.append(node.name)\n"
        "            node = node.parent\n"
        "        assert isinstance(node, pytest.File) and node.path.is_file()\n"
        "        run = '::'.join([str(item.path), *item.nodeid.split('::')[1:]])\n"
        "        print('WALK', item.location[1] + 1, chain, run)\n",
        encoding="utf-8",
    )
    run = kit.fresh_pytest("-p", "walker", "--collect-only", "-s", "-q", "exercises/lab90")
    lines = [line.split(" ", 3) for line in run.out.splitlines() if line.startswith("WALK")]
    assert len(lines) == 4
    assert {(line[1], line[2]) for line in lines} == {("11", "['running_mean']")}
    kit.solve()
    assert kit.pytest(*[line[3] for line in lines]).counts() == {"passed": 4}


# -- notes ----------------------------------------------------------------------------------------


def test_a_run_is_remembered_only_for_whole_tasks_of_the_exercises(kit: MiniKit) -> None:
    notes = kit.root / ".infralens" / "progress.json"
    notes.unlink()  # new-lab's, on the skeleton that it wrote
    kit.pytest("solutions/lab90")
    assert not notes.exists()
    kit.solve()
    kit.pytest(STEP)
    assert "running_mean" not in (notes.read_text(encoding="utf-8") if notes.exists() else "")
    kit.pytest("exercises/lab90")
    assert '"status": "done"' in notes.read_text(encoding="utf-8")


# -- the kit's own tests on several workers -------------------------------------------------------


def test_the_files_that_are_begun_first_are_there() -> None:
    here = Path(__file__).parents[1]
    files = [path.relative_to(here.parents[1]).as_posix() for path in here.rglob("test_*.py")]
    units = {unit_of_work(f"{file}::test_x[a::b]") for file in files}
    assert units == {file for file in files if Path(file).name not in TOGETHER}
    found = sorted(turn_of(file) for file in units)
    assert found[: len(LONGEST)] == list(range(len(LONGEST)))
    assert turn_of("tests/grader/attacks/test_odd.py::test_x") == 0
    assert turn_of("tests/grader/test_score.py") == len(LONGEST)


def test_grading_runs_of_attacks_are_made_on_one_worker(tmp_path: Path) -> None:
    """Files of one unit run in one process, first, though others lie before them."""
    here = Path(__file__).parents[1]
    folder = tmp_path / "tests" / "grader"
    folder.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    text = (here / "conftest.py").read_text(encoding="utf-8")
    (folder / "conftest.py").write_text(text, encoding="utf-8")
    body = "import os\n\n\ndef test_a():\n    print('process', __name__, os.getpid())\n"
    names = ("a", "attacks", "b", "c", "odd")
    for name in names:
        (folder / f"test_{name}.py").write_text(body, encoding="utf-8")
    run = MiniKit(tmp_path).fresh_pytest(
        *("-n", "2", "--dist", "loadfile", "-rP", "--import-mode=importlib"), str(folder)
    )
    rows = [line.split() for line in run.out.splitlines() if line.startswith("process ")]
    process = {name.rpartition("_")[2]: pid for _, name, pid in rows}
    assert sorted(process) == list(names), run.out
    assert process["attacks"] == process["odd"]
    assert process["attacks"] != process["a"]
