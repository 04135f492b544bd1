"""Every fault of a manifest is one sentence that names the file, the value and what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from grader.errors import LabError
from grader.lab.manifest import find_root, lab_ids, load_lab

from ..conftest import MiniKit

FAULTS: dict[str, tuple[str, str, str]] = {
    "toml": ('id = "lab90"', "id = lab90", "is not valid TOML"),
    "id": ('id = "lab90"', 'id = "lab91"', "id is 'lab91', the folder says 'lab90'"),
    "title": ('title = "A new lab"', 'title = " "', "title is ' '; write a sentence or a name"),
    "key": ('id = "lab90"', 'id = "lab90"\nauthor = 1', "has unknown keys ['author']; known are"),
    "no edit": ('edit = ["running_mean.py"]', "edit = []", "`edit` must list at least one file"),
    "edit kind": ('edit = ["running_mean.py"]', "edit = 3", "`edit` must be a list of file names"),
    "edit path": ('edit = ["running_mean.py"]', 'edit = ["../x.py"]', "give plain file names"),
    "edit dot": ('edit = ["running_mean.py"]', 'edit = [".x"]', "give plain file names"),
    "edit twice": (
        'edit = ["running_mean.py"]',
        'edit = ["running_mean.py", "running_mean.py"]',
        "lists 'running_mean.py' twice",
    ),
    "edit hides": ('edit = ["running_mean.py"]', 'edit = ["json.py"]', "hide the module `json`"),
    "edit torch": ('edit = ["running_mean.py"]', 'edit = ["torch.py"]', "hide the module `torch`"),
    "edit name": ('edit = ["running_mean.py"]', 'edit = ["my-file.py"]', "no file could import"),
    "both": (
        "given = []",
        'given = [{ file = "running_mean.py" }]',
        "stand in `edit` and in `given`",
    ),
    "mutates kind": (
        "needs = []",
        'mutates = "values"',
        "task `running_mean`: mutates is 'values'; list parameters, as in",
    ),
    "mutates name": (
        "needs = []",
        'mutates = ["a.b.c.d"]',
        "mutates is ['a.b.c.d']; list parameters, as in",
    ),
    "new kind": (
        "needs = []",
        "returns_new = 1",
        "returns_new is 1; write true for the task's own",
    ),
    "new name": ("needs = []", 'returns_new = ["a b"]', "returns_new is ['a b']; write true for"),
    "given name": (
        "given = []",
        'given = ["limits.py"]',
        'write each file of `given` as a table, as in { file = "limits.py" }',
    ),
    "given bracket": (
        "given = []",
        'given = { file = "limits.py" }',
        'write each file of `given` as a table, as in { file = "limits.py" }',
    ),
    "given no file": (
        "given = []",
        "given = [{ crosses = true }]",
        "a row of `given` has the file None; write the file's name",
    ),
    "given path": ("given = []", 'given = [{ file = "../x.py" }]', "`given` lists '../x.py'; give"),
    "given twice": (
        "given = []",
        'given = [{ file = "limits.py" }, { file = "limits.py" }]',
        "`given` lists 'limits.py' twice",
    ),
    "given key": (
        "given = []",
        'given = [{ file = "limits.py", cross = true }]',
        "given file `limits.py` has unknown keys ['cross']; known are",
    ),
    "given crosses": (
        "given = []",
        'given = [{ file = "limits.py", crosses = 1 }]',
        "given file `limits.py`: crosses is 1; write true, or leave it out",
    ),
    "given for": (
        "given = []",
        'given = [{ file = "limits.py", for = "drawing" }]',
        "given file `limits.py`: for is 'drawing'; write \"pictures\", or leave it out",
    ),
    "given kind": (
        "given = []",
        'given = [{ file = "limits.json", crosses = true }]',
        "given file `limits.json`: only a Python file has dataclasses or pictures",
    ),
    "given both": (
        "given = []",
        'given = [{ file = "limits.py", crosses = true, for = "pictures" }]',
        "given file `limits.py`: pictures stay on the trusted side; leave out `crosses`",
    ),
    "given pictures": (
        "given = []",
        'given = [{ file = "a.py", for = "pictures" }, { file = "b.py", for = "pictures" }]',
        "['a.py', 'b.py'] are all for pictures; a lab has one such file",
    ),
    "no task": (
        'edit = ["running_mean.py"]',
        'edit = ["running_mean.py", "b.py"]',
        "`b.py` is in `edit` but no task has it as its file",
    ),
    "seconds": ("call_seconds = 5", "call_seconds = 0", "call_seconds is 0; give a number above 0"),
    "seconds bool": ("call_seconds = 5", "call_seconds = true", "call_seconds is True"),
    "seconds inf": ("call_seconds = 5", "call_seconds = inf", "call_seconds is inf"),
    "seconds nan": ("call_seconds = 5", "call_seconds = nan", "call_seconds is nan"),
    "processor": (
        "call_seconds = 5",
        "call_seconds = 5\nprocessor_seconds = 0",
        "processor_seconds is 0; give a number above 0",
    ),
    "processor bool": (
        "call_seconds = 5",
        "call_seconds = 5\nprocessor_seconds = true",
        "processor_seconds is True",
    ),
    "processor beyond the call": (
        "call_seconds = 5",
        "call_seconds = 5\nprocessor_seconds = 6",
        "processor_seconds is 6; give a number above 0, and not above the 5 of call_seconds",
    ),
    "no seconds": ("call_seconds = 5", "", "call_seconds is None"),
    "one bracket": ("[[task]]", "[task]", "write each task under its own [[task]]"),
    "task id": ('id = "running_mean"', 'id = "running mean"', "it must be a plain Python name"),
    "task key": ("minutes = 10", "minutes = 10\nhint = 1", "task `running_mean` has unknown keys"),
    "tier": ('tier = "core"', 'tier = "easy"', "tier is 'easy', not one of ('core', 'hard'"),
    "points": ("points = 2", "points = -1", "points is -1; give a number above 0"),
    "points nan": ("points = 2", "points = nan", "points is nan"),
    "points text": ("points = 2", 'points = "2"', "points is '2'"),
    "minutes": ("minutes = 10", "minutes = 1.5", "minutes is 1.5; give a whole number"),
    "file": ('file = "running_mean.py"', 'file = "x.py"', "file is 'x.py', which `edit` does not"),
    "hints": ("needs = []", 'hints = ["a", "b", "c"]', "unknown keys ['hints']"),
    "needs": ("needs = []", 'needs = ["cuda"]', "needs is ['cuda']; it may hold triton, cxx"),
    "needs kind": ("needs = []", "needs = [[1]]", "needs is [[1]]"),
    "task title": (
        'title = "Mean of everything seen so far"',
        "title = 3",
        "task `running_mean`: title is 3",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_a_sentence(kit: MiniKit, name: str) -> None:
    old, new, said = FAULTS[name]
    kit.manifest(old, new)
    with pytest.raises(LabError) as caught:
        load_lab(kit.root, "lab90")
    text = str(caught.value)
    assert str(kit.exercise / "lab.toml") in text
    assert said in text
    assert "\n" not in text.strip()


def test_tasks_of_one_id(kit: MiniKit) -> None:
    path = kit.exercise / "lab.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text + text[text.index("[[task]]") :], encoding="utf-8")
    with pytest.raises(LabError, match=r"must be unique, but \['running_mean'\] stand twice"):
        load_lab(kit.root, "lab90")


def test_a_lab_is_what_its_manifest_says(kit: MiniKit) -> None:
    lab = load_lab(kit.root, "lab90")
    assert (lab.edit, lab.given, lab.call_seconds) == (("running_mean.py",), (), 5.0)
    assert lab.task("running_mean").name == "lab90.running_mean"
    assert lab.tasks_of("running_mean.py") == lab.tasks
    assert (lab.exercise, lab.solution, lab.suite) == (kit.exercise, kit.solution, kit.suite)
    assert lab.track("solutions") == kit.solution
    assert lab.processor_seconds is None
    kit.manifest("call_seconds = 5", "call_seconds = 5\nprocessor_seconds = 2")
    assert load_lab(kit.root, "lab90").processor_seconds == 2.0
    with pytest.raises(LabError, match="has no task `mean`; its tasks are: running_mean"):
        lab.task("mean")
    kit.manifest("points = 2", "points = 7")
    assert load_lab(kit.root, "lab90").task("running_mean").points == 7


GIVEN = """given = [
    { file = "points.py", crosses = true },
    { file = "limits.json" },
    { file = "drawn.py", for = "pictures" },
]"""


def test_given_files_are_marked_by_what_they_are_for(kit: MiniKit) -> None:
    kit.manifest("given = []", GIVEN)
    lab = load_lab(kit.root, "lab90")
    assert lab.given == ("points.py", "limits.json", "drawn.py")
    assert (lab.crossing, lab.pictures) == (("points.py",), "drawn.py")
    assert lab.given_source("points.py") == kit.exercise / "points.py"
    kit.manifest(GIVEN, "")
    lab = load_lab(kit.root, "lab90")
    assert (lab.given, lab.crossing, lab.pictures) == ((), (), "")


def test_labs_are_found_from_anywhere_in_a_kit(kit: MiniKit, tmp_path: Path) -> None:
    assert lab_ids(kit.root) == ["lab90"]
    assert find_root(kit.exercise) == kit.root
    with pytest.raises(LabError, match=r"No lab `lab91` here .* the labs are: lab90"):
        load_lab(kit.root, "lab91")
    shutil.copytree(kit.exercise, kit.root / "exercises" / "lab9")
    with pytest.raises(LabError, match="write `lab` and two digits"):
        load_lab(kit.root, "lab9")


def test_arguments_that_a_contract_lets_a_call_change_have_whole_names(tmp_path: Path) -> None:
    folder = tmp_path / "exercises" / "lab90"
    shutil.copytree(find_root() / "exercises" / "lab03", folder)
    text = (folder / "lab.toml").read_text().replace('"lab03"', '"lab90"')
    row = 'mutates = ["flat", "helper.values", "Pool.free.blocks"]\nreturns_new = true'
    (folder / "lab.toml").write_text(text.replace('mutates = ["flat"]', row))
    lab = load_lab(tmp_path, "lab90")
    assert lab.mutates == ("ring_all_reduce_.flat", "helper.values", "Pool.free.blocks")
    assert lab.new == ("ring_all_reduce_",)


@pytest.mark.parametrize("version", ["1", "1.0", "1.0.0-rc1", "01.0.0", "1.0.0\\n", ""])
def test_a_version_is_three_numbers(kit, version):
    kit.manifest('version = "0.1.0"', f'version = "{version}"')
    if version:
        with pytest.raises(LabError, match=r'write three numbers, as in "1\.0\.0"'):
            load_lab(kit.root, "lab90")
    else:
        assert load_lab(kit.root, "lab90").version == ""


def test_every_lab_here_says_its_version():
    root = find_root(Path(__file__))
    assert {lab: bool(load_lab(root, lab).version) for lab in lab_ids(root)} == dict.fromkeys(
        lab_ids(root), True
    )
