"""What the kit's own tests share: a mini kit with one lab, and `pytest` run on it from outside."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from grader.author.new_lab import new_lab
from grader.sandbox.fork_server import ForkServer
from grader.sandbox.host_check import check_host

HERE = Path(__file__).resolve().parents[2]

WRONG = """
def running_mean(values):
    total, means = 0.0, []
    for index, value in enumerate(values):
        total += value
        means.append(total / max(index, 1))
    return means
"""


# With `-n 2 --dist loadfile` the files that take longest are begun first, in this order, so that no
# worker ends long before the other.
LONGEST = (
    "test_attacks.py",
    "test_references_graded.py",
    "test_lab_attacks.py",
    "test_known_mistakes.py",
    "kernels/test_grading.py",
    "test_grade.py",
    "test_dask_executor.py",
    "test_release_command.py",
    "test_whole_course.py",
    "test_similarity_command.py",
    "test_course_commands.py",
    "test_contained.py",
    "test_gradescope.py",
    "autograder/test_github.py",
    "test_downloads_as_they_come.py",
    "test_pictures.py",
    "triton/test_grading.py",
    "test_collection.py",
    "test_submissions.py",
    "test_intake.py",
    "test_planted_copies.py",
    "test_passages.py",
    "test_database.py",
    "test_marks.py",
    "test_kept_attempts.py",
    "test_report_page.py",
    "test_gradebook_exports.py",
    "test_meters.py",
    "test_container.py",
    "test_lint.py",
    "test_cli.py",
    "test_readme.py",
    "test_without_the_wall.py",
    "test_nvrtc.py",
    "test_build.py",
)
# Both are about the same grading runs, which a second worker would make again.
TOGETHER = {"test_odd.py": "test_attacks.py"}


def unit_of_work(nodeid: str) -> str:
    """The file of a test, or the one that it goes with: what one worker runs as a whole."""
    file = nodeid.split("::")[0]
    folder, _, name = file.rpartition("/")
    return f"{folder}/{TOGETHER.get(name, name)}"


def turn_of(nodeid: str) -> int:
    """The place of a test's file in `LONGEST`; all others come after."""
    file = f"/{unit_of_work(nodeid)}"
    places = [place for place, name in enumerate(LONGEST) if file.endswith(f"/{name}")]
    return places[0] if places else len(LONGEST)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: turn_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class LongestFirst(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of_work(nodeid)

    config.option.loadscopereorder = False  # that would be by number of tests
    return LongestFirst(config, log)


needs_sandbox = pytest.mark.skipif(
    sys.platform != "linux" or check_host().tier != "sandbox",
    reason="this machine keeps no sandbox: see `infralens probe`",
)


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """A zygote with NumPy, for backends of the sandbox tier."""
    with ForkServer(tmp_path_factory.mktemp("fork-server"), ["numpy"], [HERE]) as made:
        made.wait()
        yield made


@dataclass
class Run:
    """One finished pytest process."""

    code: int
    out: str

    def counts(self) -> dict[str, int]:
        """`4 not started, 1 passed in 0.2s` as a dictionary."""
        last = [line for line in self.out.splitlines() if re.search(r" in [\d.]+s", line)][-1]
        pairs = re.findall(r"(\d+) ([a-z ]+?)(?=,| in )", last)
        return {name: int(count) for count, name in pairs}

    def ids(self) -> list[str]:
        """What `--collect-only -q` printed."""
        return [line for line in self.out.splitlines() if "::" in line and " " not in line]


@dataclass
class MiniKit:
    """A kit of one lab (`lab90`) in a folder of its own."""

    root: Path

    @property
    def exercise(self) -> Path:
        return self.root / "exercises" / "lab90"

    @property
    def solution(self) -> Path:
        return self.root / "solutions" / "lab90"

    @property
    def suite(self) -> Path:
        return self.root / "tests" / "lab90"

    @property
    def main(self) -> Path:
        return self.exercise / "running_mean.py"

    def solve(self) -> None:
        shutil.copy(self.solution / "running_mean.py", self.main)

    def write(self, text: str) -> None:
        self.main.write_text(text, encoding="utf-8")

    def manifest(self, old: str, new: str) -> None:
        path = self.exercise / "lab.toml"
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    def give(self, name: str, text: str, use: str = "") -> None:
        """Add a given file; `use`: what the manifest says that it is for."""
        (self.exercise / name).write_text(text, encoding="utf-8")
        row = f'{{ file = "{name}"{f", {use}" if use else ""} }}'
        self.manifest("given = []", f"given = [{row}]")

    def pytest(self, *arguments: str, cwd: Path | None = None, cache: bool = False) -> Run:
        """`pytest` with these arguments in a fork of this process: a whole session of its own,
        without the second that a new interpreter takes."""
        output = self.root / ".output"
        with output.open("wb") as out:
            child = os.fork()
            if child == 0:
                _run_pytest(out.fileno(), cwd or self.root, _arguments(arguments, cache))
        for _ in range(6000):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return Run(os.waitstatus_to_exitcode(status), output.read_text(encoding="utf-8"))
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise TimeoutError(f"pytest {arguments} did not end:\n{output.read_text()}")

    def fresh_pytest(self, *arguments: str, cwd: Path | None = None, stdin: str = "") -> Run:
        """`pytest` as a new process, for what needs one: debuggers, workers, start-up."""
        done = subprocess.run(
            [sys.executable, "-B", "-m", "pytest", *_arguments(arguments, False)],
            cwd=cwd or self.root,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=_terminal(),
        )
        return Run(done.returncode, done.stdout + done.stderr)


def _terminal() -> dict[str, str]:
    """This environment as at a plain terminal: pytest prints summaries differently under CI."""
    kept = {name: value for name, value in os.environ.items() if not _is_pytests(name)}
    return {**kept, "COLUMNS": "100", "PY_COLORS": "0"}


def _is_pytests(name: str) -> bool:
    return name in ("CI", "BUILD_NUMBER") or name.startswith("PYTEST_")


def _arguments(given: tuple[str, ...], cache: bool) -> list[str]:
    return [*given] if cache else ["-p", "no:cacheprovider", *given]


def _run_pytest(out: int, cwd: Path, arguments: list[str]) -> NoReturn:
    code = 99
    try:
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        for name in [name for name in os.environ if _is_pytests(name)]:
            del os.environ[name]
        os.environ.update(_terminal())
        os.chdir(cwd)
        # Byte code of a file that a test rewrites within a second would be the old file's.
        sys.dont_write_bytecode = True
        sys.meta_path[:] = [
            finder for finder in sys.meta_path if type(finder).__name__ != "AssertionRewritingHook"
        ]
        code = int(pytest.main(arguments))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def make_kit(root: Path) -> MiniKit:
    """The lab that `infralens new-lab` writes, with one test file, one misconception and nothing
    given: a test adds what it is about."""
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(HERE / name, root / name)
    new_lab(root, "lab90")
    kit = MiniKit(root)
    kit.manifest('given = [{ file = "types_lab90.py", crosses = true }]', "given = []")
    (kit.exercise / "types_lab90.py").unlink()
    for name in ("test_one_call.py", "probes.py", "published.json"):
        (kit.suite / name).unlink()
    wrongs = kit.suite / "misconceptions" / "running_mean.py"
    rows = wrongs.read_text(encoding="utf-8").partition("\n\n\n@misconception()")[0]
    wrongs.write_text(f"{rows}\n", encoding="utf-8")
    return kit


@pytest.fixture
def kit(tmp_path: Path) -> MiniKit:
    return make_kit(tmp_path)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with `golden/<name>.txt`. `INFRALENS_REWRITE_GOLDEN=1 pytest tests/grader`
    writes the files anew: read the difference before it is committed."""

    def check(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden" / f"{name}.txt"
        if os.environ.get("INFRALENS_REWRITE_GOLDEN"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"differs from {path.name}"

    return check
