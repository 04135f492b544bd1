"""The `infralens` command as a learner and an author type it."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import make_kit


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    return make_kit(tmp_path).root


def run(kit: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grader.cli", *words]
    return subprocess.run(command, cwd=cwd or kit, capture_output=True, text=True, check=False)


def check(kit: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "exercises/lab90"]
    return subprocess.run(command, cwd=kit, capture_output=True, text=True, check=False)


def solve(kit: Path) -> None:
    shutil.copy(kit / "solutions/lab90/running_mean.py", kit / "exercises/lab90/running_mean.py")


def test_version_says_what_was_found_for_a_bug_report(tmp_path: Path) -> None:
    """Also where there are no labs.   Oracle: the interpreter and the packages themselves."""
    shown = run(tmp_path, "--version")
    assert shown.returncode == 0, shown.stderr
    first, *rows = shown.stdout.splitlines()
    assert first.split()[0] == "infralens-labs"
    found = {
        name.strip(): value
        for name, value in (re.split(r"\s{2,}", r.strip(), maxsplit=1) for r in rows)
    }
    assert found["Python"].startswith(platform.python_version())
    assert found["numpy"] == importlib.metadata.version("numpy")
    assert found["torch"] == importlib.metadata.version("torch")
    assert {"system", "triton", "pytest", "C++ compiler", "GPU"} < found.keys()
    assert all(found.values())


def test_the_board_before_and_after_a_task_is_done(kit: Path) -> None:
    fresh = run(kit)
    assert fresh.returncode == 0
    assert "lab90  A new lab" in fresh.stdout
    assert "0/2   not run yet: pytest exercises/lab90" in fresh.stdout
    assert "next   lab90.running_mean" in fresh.stdout
    assert check(kit).returncode == 1
    assert "not started" in run(kit).stdout
    solve(kit)
    assert "not started, edited since" in run(kit).stdout
    assert check(kit).returncode == 0
    done = run(kit).stdout
    assert re.search(r"running_mean +core +2/2  done\n", done)
    assert "Everything that can be verified here is done." in done


def test_next_names_a_line_that_exists_and_a_command_that_works(kit: Path) -> None:
    text = run(kit, "next").stdout
    opened = re.search(r"open   (.+):(\d+)", text)
    typed = re.search(r"test   pytest (\S+)", text)
    assert opened is not None
    assert typed is not None
    line = (kit / opened[1]).read_text().splitlines()[int(opened[2]) - 1]
    assert "TODO(lab90.running_mean)" in line
    again = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", typed[1]],
        cwd=kit,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "4 not started" in again.stdout


def test_hints_come_one_more_each_time(kit: Path) -> None:
    counts = [len(re.findall(r"^\d\. ", run(kit, "hint", "lab90.running_mean").stdout, re.M))]
    for _ in range(3):
        counts.append(len(re.findall(r"^\d\. ", run(kit, "hint", "running_mean").stdout, re.M)))
    assert counts == [1, 2, 3, 3]
    only = run(kit, "hint", "lab90.running_mean", "--level", "2").stdout
    assert len(re.findall(r"^\d\. ", only, re.M)) == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["hint", "nothing"], "No task is called `nothing`"),
        (["hint", "lab91.x"], "No lab `lab91` here"),
        (["hint", "lab90.x"], "lab90 has no task `x`; its tasks are: running_mean."),
        (["hint", "lab90.running_mean", "--level", "4"], "the level is 1, 2 or 3, not 4"),
        (["reset", "lab91"], "No lab `lab91` here"),
        (["new-lab", "lab90"], "exists already"),
        (["new-lab", "fourteen"], "is not a lab id"),
        (["new-lab", "lab91", "--title", "one\ntwo"], "is not a title: write one line of text."),
        (["lint", "--jobs", "0"], "--jobs is 0"),
    ],
)
def test_a_wrong_call_is_a_sentence_and_status_2(
    kit: Path, words: list[str], sentence: str
) -> None:
    done = run(kit, *words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"labs": []}',
        '{"labs": {"lab90": 3}}',
        '{"labs": {"lab90": {"tasks": []}}}',
        '{"labs": {"lab90": {"tasks": {"running_mean": 3}}}}',
        '{"hints": 3}',
        '{"hints": {"lab90.running_mean": "one"}}',
        '{"synced": 3}',
    ],
)
def test_spoiled_notes_count_as_none(kit: Path, text: str) -> None:
    notes = kit / ".infralens/progress.json"
    main = kit / "exercises/lab90/running_mean.py"
    for words in ([], ["hint", "lab90.running_mean"], ["sync"], ["reset", "lab90"]):
        notes.write_text(text)
        main.write_text(main.read_text() + "# mine\n")
        done = run(kit, *words)
        assert (done.returncode, done.stderr) == (0, "")
    notes.write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "exercises/lab90"]
    done = subprocess.run(command, cwd=kit, capture_output=True, text=True, check=False)
    assert "4 not started" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_reset_keeps_what_was_written(kit: Path) -> None:
    skeleton = (kit / "exercises/lab90/running_mean.py").read_text()
    mine = "# my work\n" + skeleton
    (kit / "exercises/lab90/running_mean.py").write_text(mine)
    said = run(kit, "reset", "lab90").stdout
    kept = re.search(r"kept in (\S+)\.\n", said)
    assert kept is not None
    assert (kit / kept[1] / "running_mean.py").read_text() == mine
    assert (kit / "exercises/lab90/running_mean.py").read_text() == skeleton
    assert "nothing was changed" in run(kit, "reset", "lab90").stdout


def test_reset_brings_a_deleted_file_back(kit: Path) -> None:
    path = kit / "exercises/lab90/running_mean.py"
    skeleton = path.read_text()
    path.unlink()
    assert run(kit, "reset", "lab90").returncode == 0
    assert path.read_text() == skeleton


def committed(kit: Path) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init"], ["add", "."], ["commit", "-m", "all"]):
        subprocess.run(["git", *identity, *words], cwd=kit, check=True, capture_output=True)


def test_a_reset_leaves_given_files_alone_and_says_what_restores_them(tmp_path: Path) -> None:
    kit = make_kit(tmp_path)
    kit.give("limits.py", "FIRST = 1\n")
    given = kit.exercise / "limits.py"
    committed(kit.root)
    assert "nothing was changed" in run(kit.root, "reset", "lab90").stdout
    kit.main.write_text("# my work\n", encoding="utf-8")
    given.write_text("FIRST = 2\n", encoding="utf-8")
    said = run(kit.root, "reset", "lab90").stdout
    alone = (
        "limits.py is {}, and a reset leaves given files alone: "
        "`git checkout -- exercises/lab90/limits.py` restores the kit's own.\n"
    )
    assert alone.format("edited") in said
    assert "Fresh again: running_mean.py." in said
    assert given.read_text(encoding="utf-8") == "FIRST = 2\n"
    assert run(kit.root, "reset", "lab90").stdout == alone.format("edited")
    given.unlink()
    assert run(kit.root, "reset", "lab90").stdout == alone.format("missing")
    subprocess.run(["git", "checkout", "--", "exercises/lab90/limits.py"], cwd=kit.root, check=True)
    assert given.read_text(encoding="utf-8") == "FIRST = 1\n"


def test_sync_refuses_a_given_file_in_the_wrong_place(tmp_path: Path) -> None:
    kit = make_kit(tmp_path)
    kit.give("limits.py", "FIRST = 1\n")
    assert run(kit.root, "sync", "--check").returncode == 0
    shutil.copy(kit.exercise / "limits.py", kit.solution)
    with (kit.solution / "running_mean.py").open("a", encoding="utf-8") as file:
        file.write("# newer\n")
    for words in (["sync", "--check"], ["sync"], ["sync", "--check"]):
        done = run(kit.root, *words)
        assert done.returncode == 1
        assert f"{kit.solution / 'limits.py'} is a second copy of a given file" in done.stdout
        assert "every skeleton" not in done.stdout
    assert "Type: infralens sync" not in done.stderr  # which cannot mend it
    made = kit.main.read_text(encoding="utf-8")
    assert "TODO(lab90.running_mean)" in made
    assert made.endswith("# newer\n")
    (kit.solution / "limits.py").unlink()
    assert run(kit.root, "sync", "--check").returncode == 0
    (kit.exercise / "limits.py").unlink()
    done = run(kit.root, "sync", "--check")
    assert done.returncode == 1
    assert f"{kit.exercise / 'limits.py'} is missing, but lab90's manifest lists" in done.stdout


def test_sync_check_reports_and_changes_nothing(kit: Path) -> None:
    path = kit / "exercises/lab90/running_mean.py"
    assert run(kit, "sync", "--check").returncode == 0
    path.write_text(path.read_text() + "# more\n")
    before = path.read_text()
    done = run(kit, "sync", "--check")
    assert done.returncode == 1
    assert "lab90/running_mean.py differs" in done.stdout
    assert path.read_text() == before


def test_sync_follows_the_reference_and_spares_a_learners_work(kit: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
            cwd=kit,
            check=True,
            capture_output=True,
        )

    git("init")
    git("add", "-A")
    git("commit", "-m", "start")
    shutil.rmtree(kit / ".infralens")  # as in a clone: only the commit vouches for the skeleton
    path = kit / "exercises/lab90/running_mean.py"
    reference = kit / "solutions/lab90/running_mean.py"
    for title in ("once", "twice"):  # the second time, what differs from the commit is sync's own
        reference.write_text(reference.read_text() + f"# {title}\n")
        assert run(kit, "sync").returncode == 0
        assert path.read_text().endswith(f"# {title}\n")
    path.write_text(path.read_text() + "# my own work\n")
    said = run(kit, "sync").stdout
    assert "left alone: lab90/running_mean.py" in said
    assert path.read_text().endswith("# my own work\n")
    forced = run(kit, "sync", "--force").stdout
    assert "the former files are in" in forced
    assert not path.read_text().endswith("# my own work\n")


def test_sync_spares_what_no_commit_has(kit: Path) -> None:
    path = kit / "exercises/lab90/running_mean.py"
    path.write_text(path.read_text() + "# my own work\n")
    said = run(kit, "sync").stdout
    assert "left alone: lab90/running_mean.py (no commit has this text" in said
    assert path.read_text().endswith("# my own work\n")
    assert "the former files are in" in run(kit, "sync", "--force").stdout
    (kept,) = (kit / ".infralens/backup").rglob("running_mean.py")
    assert kept.read_text().endswith("# my own work\n")


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("README.md", "| [lab90](exercises/lab90/README.md) | A new lab | `running_mean.py` | 2 |"),
        ("exercises/README.md", "| 2 | 10 | nothing |"),
    ],
)
def test_tables_of_labs_are_made_from_the_manifests(kit: Path, name: str, row: str) -> None:
    page = kit / name
    page.write_text("# Labs\n\n<!-- labs: written by infralens sync -->\n<!-- end of labs -->\n")
    said = run(kit, "sync", "--check")
    assert (said.returncode, said.stdout.split()[0]) == (1, name)
    assert run(kit, "sync").returncode == 0
    assert row in page.read_text()
    assert run(kit, "sync", "--check").returncode == 0


def test_commands_work_inside_a_labs_folder_and_outside_of_any_kit(kit: Path) -> None:
    inside = run(kit, "next", cwd=kit / "exercises/lab90")
    assert "open   running_mean.py:" in inside.stdout
    outside = run(kit, cwd=Path("/"))
    assert outside.returncode == 0, "falls back to the checkout that the package is installed from"


def test_a_new_lab_passes_on_its_reference_at_once(kit: Path) -> None:
    said = run(kit, "new-lab", "lab91", "--title", 'A "second" \\ one')
    assert said.returncode == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "solutions/lab91", "solutions/lab90"],
        cwd=kit,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "10 passed" in done.stdout
