"""`infralens release`: what a learner gets of two labs, and what is refused."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grader.classroom import grade_command
from grader.classroom.release import destinations, release_command
from grader.cli import app
from grader.errors import LabError
from grader.lab.manifest import load_lab
from grader.suite.secret_lines import ALLOWED

ROOT = Path(__file__).resolve().parents[4]
LABS = ("lab01", "lab12")
_LEAVE = shutil.ignore_patterns("__pycache__", "variants", ".infralens")


def release(root: Path, out: Path, tests: str = "public", kind: str = "folder") -> list[str]:
    """What a release said; its status is the first word."""
    said: list[str] = []
    status = release_command.run(root, out, ",".join(LABS), tests, kind, said.append)
    return [str(status), *said]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kit of two real labs."""
    root = tmp_path_factory.mktemp("kit")
    for name in ("conftest.py", "pyproject.toml", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, root / name)
    shutil.copytree(ROOT / "grader", root / "grader", ignore=_LEAVE)
    (root / "exercises").mkdir()
    shutil.copy(ROOT / "exercises" / "README.md", root / "exercises")
    for lab in LABS:
        for track in ("exercises", "solutions", "tests"):
            shutil.copytree(ROOT / track / lab, root / track / lab, ignore=_LEAVE)
    allow_what_two_labs_alone_cannot_tell(root)
    return root


def allow_what_two_labs_alone_cannot_tell(root: Path) -> None:
    """Idioms are told from secrets by the suites of other labs, of which this kit has few."""
    for tests in ("public", "none"):
        said: list[str] = []
        release_command.MOST_SHOWN = 10_000
        release_command.run(root, root.parent / "probe", "", tests, "folder", said.append)
        shutil.rmtree(root.parent / "probe", ignore_errors=True)
        for line in said:
            match = re.match(r"  (\S+?):\d+: (.+) is a hidden test \(tests/(lab\d\d)", line)
            if match:
                text = match[2][1:-1]
                path = root / "tests" / match[3] / ALLOWED
                quotes = "'''" if "'" in text else "'"
                row = f'\n[[shown]]\nwhy = "An idiom."\nin = ["{match[1]}"]\n'
                with path.open("a") as out:
                    out.write(f"{row}lines = [{quotes}{text}{quotes}]\n")


@pytest.fixture
def root(base: Path, tmp_path: Path) -> Path:
    """That kit, for one test alone."""
    return Path(shutil.copytree(base, tmp_path / "kit"))


@pytest.fixture(scope="module")
def released(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A release of that kit, made once for each choice of tests."""
    made: dict[str, Path] = {}
    folder = tmp_path_factory.mktemp("released")

    def of(tests: str) -> Path:
        if tests not in made:
            made[tests] = folder / tests
            said = release(base, made[tests], tests)
            assert said[0] == "0", "\n".join(said)
        return made[tests]

    return of


def test_the_whole_kit_can_be_handed_out(tmp_path: Path) -> None:
    """Each lab's secrets are looked for in each page of the others, too, which two labs do not
    show."""
    said: list[str] = []
    status = release_command.run(ROOT, tmp_path / "out", "", "public", "folder", said.append)
    assert status == 0, "\n".join(said)


def names(folder: Path) -> set[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix() for path in files}


def digest(path: Path) -> str:
    whole = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        whole.update(f"{file.relative_to(path)} {file.stat().st_mode}".encode())
        whole.update(file.read_bytes() if file.is_file() else b"")
    return whole.hexdigest()


# -- what it holds --------------------------------------------------------------------------------


def test_no_form_holds_solutions_or_what_makes_them(released: Callable[[str], Path]) -> None:
    for tests in ("none", "public", "all"):
        found = names(released(tests))
        assert {"README.md", "LICENSE", "conftest.py", "pyproject.toml"} <= found
        assert {"grader/cli.py", "exercises/lab01/memory_accounting.py"} <= found
        assert not [name for name in found if name.startswith("solutions")]
        suites = [name for name in found if name.startswith("tests/")]
        for word in ("misconceptions", "variants", "questions.py", "why.toml", ALLOWED):
            assert not [name for name in suites if word in name], (tests, word)


def test_each_choice_has_its_tests(released: Callable[[str], Path]) -> None:
    assert not [name for name in names(released("none")) if name.startswith("tests/")]
    public = (released("public") / "tests/lab01/test_simple.py").read_text()
    assert "def test_llama_2_7b_by_hand" in public
    assert "def test_any_shape_by_hand" not in public
    whole = (released("all") / "tests/lab01/test_simple.py").read_bytes()
    assert whole == (ROOT / "tests/lab01/test_simple.py").read_bytes()
    mistakes = (released("all") / "tests/lab01/known-mistakes.md").read_text()
    assert "with query heads, grouped-query attention saves nothing" in mistakes


def test_left_out_labs_are_on_no_list(released: Callable[[str], Path]) -> None:
    folder = released("public")
    assert not (folder / "exercises" / "lab02").exists()
    assert "lab02/README.md" not in (folder / "exercises" / "README.md").read_text()
    assert "lab12/README.md" in (folder / "exercises" / "README.md").read_text()


# -- the same bytes -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["zip", "git"])
def test_the_same_release_twice_is_the_same_bytes(
    base: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    assert release(base, first, kind=kind)[0] == "0"
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody Else")
    before = os.umask(0o077)
    try:
        assert release(base, second, kind=kind)[0] == "0"
    finally:
        os.umask(before)
    assert digest(first) == digest(second)


def test_a_zip_unpacks_to_the_folder(
    base: Path, released: Callable[[str], Path], tmp_path: Path
) -> None:
    release(base, tmp_path / "labs.zip", kind="zip")
    with zipfile.ZipFile(tmp_path / "labs.zip") as archive:
        archive.extractall(tmp_path / "unpacked")
    folder = tmp_path / "unpacked" / destinations.TOP
    assert names(folder) == names(released("public"))


def test_a_repository_has_one_commit_and_nothing_to_commit(base: Path, tmp_path: Path) -> None:
    release(base, tmp_path / "repository", kind="git")

    def git(*words: str) -> str:
        run = ["git", "-C", str(tmp_path / "repository"), *words]
        return subprocess.run(run, capture_output=True, text=True, check=True).stdout

    assert git("rev-list", "--count", "--all") == "1\n"
    assert git("status", "--porcelain") == ""


# -- leaks ----------------------------------------------------------------------------------------


def test_planted_lines_end_the_release(root: Path, tmp_path: Path) -> None:
    secret = "exposed_s = max(0.0, behind + last - backward_s)"
    assert secret in (ROOT / "solutions/lab12/parallelism.py").read_text()
    places = {}
    for place in (
        "exercises/lab01/README.md",
        "exercises/lab12/cases_lab12.py",
        "grader/readable.py",
        "LICENSE",
    ):
        path = root / place
        path.write_text(f"{path.read_text()}\n#     {secret}  # here\n")
        places[place] = path.read_text().rstrip("\n").count("\n") + 1
    said = release(root, tmp_path / "out")
    assert said[0] == "1"
    for place, line in places.items():
        assert any(f"{place}:{line}: '{secret}' is the reference's line" in text for text in said)
    assert list(tmp_path.iterdir()) == [root]


def test_a_hidden_test_in_a_page_ends_the_release(root: Path, tmp_path: Path) -> None:
    line = "per_rank = oracles.states(config, recipe, world)  # a line that no other suite has"
    hidden = root / "tests/lab01/test_simple.py"
    hidden.write_text(
        f"{hidden.read_text()}\n\ndef _hidden(oracles, config, recipe, world):\n    {line}\n"
    )
    page = root / "exercises/lab01/README.md"
    page.write_text(f"{page.read_text()}\n{line}\n")
    said = "\n".join(release(root, tmp_path / "out"))
    assert "is a hidden test (tests/lab01/test_simple.py:" in said


# -- what is refused ------------------------------------------------------------------------------


def refused(root: Path, out: Path, **call: str) -> str:
    before = set(out.parent.iterdir()) if out.parent.is_dir() else set()
    with pytest.raises(LabError) as caught:
        release(root, out, **call)
    after = set(out.parent.iterdir()) if out.parent.is_dir() else set()
    assert before == after
    return str(caught.value)


def test_a_place_that_is_not_free_is_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("kept")
    assert "is there already" in refused(base, tmp_path / "full")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert "is there already" in refused(base, tmp_path / "link")
    assert "lies in the kit" in refused(base, base / "out")
    assert "lies in the kit" in refused(base, base / "exercises" / "lab01" / "out")
    assert "make it first" in refused(base, tmp_path / "no" / "out")
    (tmp_path / "empty").mkdir()
    assert "give the name of the zip" in refused(base, tmp_path / "empty", kind="zip")


def test_a_wrong_call_is_refused(base: Path, tmp_path: Path) -> None:
    assert "write one of: public, all, none" in refused(base, tmp_path / "out", tests="some")
    with pytest.raises(LabError, match="No lab `lab99` here"):
        release_command.run(base, tmp_path / "out", "lab99", "none", "folder", print)
    with pytest.raises(LabError, match="write ids with commas"):
        release_command.run(base, tmp_path / "out", " , ", "none", "folder", print)
    both = CliRunner().invoke(app, ["release", str(tmp_path / "out"), "--zip", "--git"])
    assert "give one of them" in str(both.exception)


def test_a_kit_that_is_not_clean_is_refused(root: Path, tmp_path: Path) -> None:
    skeleton = root / "exercises/lab01/memory_accounting.py"
    skeleton.write_text(f"{skeleton.read_text()}# mine\n")
    assert "type `infralens sync`" in refused(root, tmp_path / "out")


def test_a_link_and_a_file_of_other_letters_are_refused(root: Path, tmp_path: Path) -> None:
    page = root / "exercises/lab01/README.md"
    page.write_bytes(page.read_bytes() + b"\xff")
    assert "is not UTF-8 (byte" in refused(root, tmp_path / "out")
    page.rename(root / "page")
    page.symlink_to(root / "page")
    assert "is a link" in refused(root, tmp_path / "out")


def test_a_full_disk_leaves_nothing(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, count = Path.write_bytes, iter(range(1000))

    def fills_up(self: Path, data: bytes) -> int:
        if next(count) == 40:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", fills_up)
    assert "No space left on device; nothing is left" in refused(base, tmp_path / "out")


def test_a_release_makes_no_release(released: Callable[[str], Path], tmp_path: Path) -> None:
    assert "is itself a release" in refused(released("public"), tmp_path / "out")


# -- a learner's session --------------------------------------------------------------------------


@pytest.fixture
def session(released: Callable[[str], Path], tmp_path: Path) -> Callable[..., str]:
    """Runs a command in a copy of a release, as its learner does."""
    copies: dict[str, Path] = {}

    def run(tests: str, *words: str, solve: bool = False) -> str:
        if tests not in copies:
            copies[tests] = Path(shutil.copytree(released(tests), tmp_path / tests))
        folder = copies[tests]
        if solve:
            lab = load_lab(ROOT, "lab01")
            shutil.copy(lab.solution / "memory_accounting.py", folder / "exercises/lab01")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "CI"))}
        done = subprocess.run(
            [sys.executable, "-B", "-m", *words],
            cwd=folder,
            env={**kept, "PYTHONPATH": str(folder), "COLUMNS": "100"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "Traceback" not in done.stdout + done.stderr
        return f"{done.stdout}{done.stderr}\nstatus {done.returncode}"

    return run


def test_a_learner_begins_and_passes_the_public_tests(session: Callable[..., str]) -> None:
    begun = session("public", "pytest", "exercises/lab01")
    assert "this is where one starts" in begun
    assert begun.count("the hidden ones decide the points") == 1
    done = session("public", "pytest", "exercises/lab01", solve=True)
    assert "15 of 15 tasks pass the public tests" in done
    assert "-/2  passes the public tests" in done
    assert "37" not in re.findall(r"(\d+) of \d+ points", done)
    assert "status 0" in done


def test_commands_work_without_a_reference(session: Callable[..., str]) -> None:
    assert "lab01.simple_ledger" in session("public", "grader.cli", "list", "lab01", "--plain")
    assert "hidden ones decide" in session("public", "grader.cli")
    assert "the next one" in session("public", "grader.cli", "hint", "lab01.audit")
    assert "holds no reference" in session("public", "grader.cli", "compare", "lab01.audit")
    session("public", "grader.cli", "reset", "lab01", solve=True)
    assert "not started" in session("public", "pytest", "exercises/lab01", "-q")
    for words in (
        ["lint", "lab01"],
        ["site", "out"],
        ["sync"],
        ["wrong-answers", "out", "lab01"],
        ["grade", "exercises", "--out", "run"],
    ):
        assert "status 2" in session("public", "grader.cli", *words)


@pytest.mark.parametrize(
    "words",
    [
        ("pytest",),
        ("pytest", "exercises/lab01"),
        ("pytest", "exercises/lab01/memory_accounting.py::audit"),
        ("grader.cli", "watch", "lab01", "--plain"),
        ("grader.cli", "check", "lab01"),
    ],
)
def test_without_tests_a_sentence_says_so(session: Callable[..., str], words: list[str]) -> None:
    assert "This release holds no tests, so lab01 cannot be run here." in session("none", *words)


def test_whole_suites_give_points(session: Callable[..., str]) -> None:
    done = session("all", "pytest", "exercises/lab01", "-q", solve=True)
    assert "37 of 37 points (self-check)" in done


def test_a_release_is_graded_0_and_its_reference_full(
    released: Callable[[str], Path], tmp_path: Path
) -> None:
    for who, source in (
        ("as-shipped", released("public") / "exercises"),
        ("right", ROOT / "solutions"),
    ):
        folder = tmp_path / "submissions" / who / "lab01"
        folder.mkdir(parents=True)
        for name in load_lab(ROOT, "lab01").edit:
            shutil.copy(source / "lab01" / name, folder)
    grade_command.run(
        submissions=tmp_path / "submissions", out=tmp_path / "run", labs="lab01", jobs=1,
        tier="process", course_key_file=None, feedback="names",
    )  # fmt: skip
    scores = {
        path.relative_to(tmp_path / "run/results").with_suffix("").as_posix(): _score(path)
        for path in (tmp_path / "run" / "results").glob("*/*.json")
    }
    assert scores == {
        "as-shipped/lab01": 0.0,
        "right/lab01": 37.0,
    }


def _score(path: Path) -> float:
    return float(json.loads(path.read_text())["score"])
