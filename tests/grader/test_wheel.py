"""What people install: the wheel and the source archive, built, installed and used from outside.

Nothing is downloaded: setuptools builds in this environment, and the new one sees its libraries.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import needs_sandbox

HERE = Path(__file__).resolve().parents[2]
MOST_BYTES = 6_000_000  # 3.3 MB when this was written, of which the suites are the larger part
CALLS = "from setuptools import build_meta; print(build_meta.build_{kind}({folder!r}))"


def build(kind: str, source: Path, folder: Path) -> Path:
    """A `wheel` or an `sdist` of a source tree, as pip and build make it."""
    folder.mkdir(exist_ok=True)
    call = CALLS.format(kind=kind, folder=str(folder))
    done = subprocess.run([sys.executable, "-c", call], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / done.stdout.splitlines()[-1]


@dataclass
class Installed:
    """A wheel in an environment of its own, and a workspace beside it."""

    python: Path
    package: Path
    mine: Path

    def run(self, *words: str, cwd: Path | None = None) -> tuple[int, str]:
        """Exit status and output of `python -m ...` in the workspace."""
        env = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [self.python, "-m", *words],
            cwd=cwd or self.mine,
            env=env | {"PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    def infralens(self, *words: str, cwd: Path | None = None) -> tuple[int, str]:
        return self.run("grader.cli", *words, cwd=cwd)


@dataclass
class Built:
    wheel: Path
    sdist: Path
    wheel_of_sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """From a copy of what is committed or would be: a build leaves folders in its tree."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=HERE, capture_output=True, check=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, names):
        if (HERE / name).is_file() and not name.startswith(("tests/grader/", "benchmarks/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(HERE / name, source / name)
    for name in (
        "tests/grader/test_x.py",
        "exercises/lab01/__pycache__/x.pyc",
        "tests/lab01/a.pyc",
    ):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("never shipped\n")
    sdist = build("sdist", source, folder / "sdist")
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    return Built(
        build("wheel", source, folder / "wheel"),
        sdist,
        build("wheel", unpacked, folder / "wheel-of-sdist"),
    )


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel unpacked as pip does it, behind which stand the libraries of this environment."""
    folder = tmp_path_factory.mktemp("installed")
    home = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    place = next(home.glob("lib/python*/site-packages"))
    libraries = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    libraries |= {path for path in sys.path if path.endswith("site-packages")}
    (place / "libraries.pth").write_text("\n".join(sorted(libraries)) + "\n")
    with zipfile.ZipFile(built.wheel) as archive:
        archive.extractall(place)
    found = Installed(home / "bin" / "python", place / "grader", folder / "my-labs")
    code, said = found.infralens("init", "my-labs", cwd=folder)
    assert code == 0, said
    return found


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def shipped_sources() -> Iterator[Path]:
    """Files of the repository that a wheel has inside the package, by what git knows."""
    tops = ("exercises", "solutions", "tests")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *tops]
    done = subprocess.run(command, cwd=HERE, capture_output=True, check=True, text=True)
    for name in filter(None, done.stdout.split("\0")):
        inside = Path(name)
        if (inside.parts[0] != "tests" or re.match(r"lab\d\d$", inside.parts[1])) and (
            HERE / inside
        ).is_file():
            yield inside


def test_the_wheel_has_every_file_of_the_labs_and_no_other(built: Built) -> None:
    """Oracle: git's list of files."""
    wheel = contents(built.wheel)
    labs = {name.removeprefix("grader/kit/") for name in wheel if name.startswith("grader/kit/")}
    wanted = {path.as_posix() for path in shipped_sources()}
    assert labs == wanted | {"pyproject.toml", "conftest.py"}
    assert (
        wheel["grader/kit/exercises/lab01/lab.toml"]
        == (HERE / "exercises/lab01/lab.toml").read_bytes()
    )


def test_the_wheel_has_no_tests_of_the_kit_and_no_caches(built: Built) -> None:
    names = list(contents(built.wheel))
    assert not [name for name in names if re.search(r"tests/grader|__pycache__|\.pyc$|\.whl", name)]
    assert {name.split("/")[0].split("-")[0] for name in names} == {"grader", "infralens_labs"}
    assert built.wheel.stat().st_size < MOST_BYTES


def test_the_source_archive_builds_the_same_wheel(built: Built) -> None:
    one, other = contents(built.wheel), contents(built.wheel_of_sdist)
    assert one.keys() == other.keys()
    assert [name for name in one if one[name] != other[name]] == []


def test_a_second_build_forgets_a_lab_that_was_removed(built: Built) -> None:
    """What a former build left in `build/` is not shipped."""
    source = built.wheel.parents[1] / "source"
    folder, aside = source / "exercises" / "lab13", source.parent / "aside"
    folder.rename(aside)
    try:
        again = build("wheel", source, source.parent / "again")
    finally:
        aside.rename(folder)
    assert not [name for name in contents(again) if name.startswith("grader/kit/exercises/lab13")]


def test_a_fresh_board(installed: Installed) -> None:
    code, said = installed.run("pytest", "exercises/lab01")
    assert code == 1
    assert "exercises/lab01: 0 of 37 points" in said
    assert "open   exercises/lab01/memory_accounting.py:" in said
    code, said = installed.infralens()
    assert code == 0
    assert "lab13" in said
    assert not (installed.mine / "solutions").exists()
    assert not (installed.mine / "tests").exists()


def test_a_task_is_solved_and_compared(installed: Installed) -> None:
    name = "exercises/lab01/memory_accounting.py"
    path = installed.mine / name
    skeleton = path.read_text()
    shutil.copy(installed.package / "kit" / name.replace("exercises", "solutions"), path)
    code, said = installed.run("pytest", f"{name}::kv_bytes_per_token", "-q")
    assert code == 0, said
    code, said = installed.infralens("compare", "lab01.kv_bytes_per_token")
    assert code == 0, said
    assert "the reference" in said
    code, said = installed.infralens("reset", "lab01")
    assert code == 0, said
    assert path.read_text() == skeleton


def test_the_version_says_where_the_labs_come_from(installed: Installed) -> None:
    code, said = installed.infralens("--version")
    assert code == 0
    assert f"{installed.package / 'kit'} (the package)" in said
    assert re.search(rf"workspace +{re.escape(str(installed.mine))}$", said, re.MULTILINE)


def test_an_update_after_edits(installed: Installed) -> None:
    """The package gets newer texts, as an upgrade brings them."""
    kit = installed.package / "kit"
    given, tasks = "exercises/lab01/types_lab01.py", "exercises/lab01/memory_accounting.py"
    page = "exercises/lab01/README.md"
    reference = tasks.replace("exercises", "solutions")
    before = {name: (kit / name).read_text() for name in (given, reference, page)}
    mine = {name: (installed.mine / name).read_text() + "\nMINE = 1\n" for name in (given, tasks)}
    for name, text in mine.items():
        (installed.mine / name).write_text(text)
    try:
        for name, text in before.items():
            (kit / name).write_text(text + "\n# A correction.\n")
        code, said = installed.infralens("update")
        assert code == 1
        assert "infralens update --yes" in said
        code, said = installed.infralens("update", "--yes")
        assert code == 0, said
        for name, text in mine.items():
            assert (installed.mine / name).read_text() == text
            assert "# A correction." in (installed.mine / f"{name}.new").read_text()
        assert "# A correction." in (installed.mine / page).read_text()
        code, said = installed.infralens("update")
        assert code == 0
        assert "Nothing to do" in said
    finally:
        for name, text in before.items():
            (kit / name).write_text(text)


def test_what_needs_a_clone_says_so(installed: Installed) -> None:
    for command in (["sync"], ["lint"], ["new-lab", "lab14"], ["release", "out"]):
        code, said = installed.infralens(*command)
        assert code == 2
        assert "needs a clone of the kit's repository" in said
    code, said = installed.run("pytest", "solutions/lab07")
    assert code == 4
    assert "references stay in the package" in said


@needs_sandbox
def test_a_package_grades_and_hides_its_labs_from_submissions(
    installed: Installed, tmp_path: Path
) -> None:
    """From a workspace whose given files were tampered with: the package's own decide."""
    kit = installed.package / "kit"
    reference = (kit / "solutions/lab01/memory_accounting.py").read_text()
    spy = f"""
import os
for folder in ({str(installed.package)!r}, {str(kit)!r}):
    print(sorted(os.listdir(folder)))
"""
    folder = tmp_path / "submissions" / "alice" / "lab01"
    folder.mkdir(parents=True)
    (folder / "memory_accounting.py").write_text(reference + spy)
    elsewhere = tmp_path / "workspace"
    installed.infralens("init", str(elsewhere), cwd=tmp_path)
    (elsewhere / "exercises/lab01/types_lab01.py").write_text("raise ValueError\n")
    words = ("grade", str(tmp_path / "submissions"), "--out", str(tmp_path / "run"))
    code, said = installed.infralens(*words, cwd=elsewhere)
    assert code == 0, said
    result = json.loads((tmp_path / "run/results/alice/lab01.json").read_text())
    assert result["score"] == 37
    package, labs = result["printed"][""].splitlines()
    assert "'kit'" in package
    assert labs == "[]"
