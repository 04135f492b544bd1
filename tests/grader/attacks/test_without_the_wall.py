"""The attacks are real: without a wall, or with a lower one, they gain what they are after."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .catalogue import MEASURED, PATIENCE, SMALL, Attack
from .conftest import QUIET
from .everything import ATTACKS
from .stage import HERE, Canaries, Graded, Stage
from .test_attacks import DONE, points, said

pytestmark = pytest.mark.attack

ONE_PROCESS = [attack for attack in ATTACKS if set(attack.rows) & set(MEASURED)]
TESTS = """
import numpy as np
from submission import add

def test_small():
    assert add(2, 3) == 5

def test_large():
    assert add(1000, 234) == 1234

def test_mixed():
    assert add(700, 9) == 709
"""


class Plain:
    """A folder with hidden tests and a submission, graded by pytest in one process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.report = folder / "report.xml"

    def write(self, attack: str, code: str, tests: str) -> None:
        stage = Stage(self.folder)
        stage.known = {"kit": str(self.folder), "out": str(self.folder), "pid_namespace": ""}
        (self.folder / "submission.py").write_bytes(stage.armed("half", code, attack))
        types = (HERE / "kit" / "given" / "types_lab91.py").read_text(encoding="utf-8")
        (self.folder / "types_lab91.py").write_text(types, encoding="utf-8")
        (self.folder / "test_submission.py").write_text(tests, encoding="utf-8")

    def run(self) -> int:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-c", os.devnull, "--rootdir", ".", f"--junitxml={self.report}"]
        # A daemon would keep a pipe open.
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.run(command, cwd=self.folder, timeout=120, **quiet).returncode

    def failures(self) -> int | None:
        """Failed tests as the report has them, None without a report."""
        if not self.report.is_file():
            return None
        text = self.report.read_text(encoding="utf-8")
        return sum(int(n) for n in re.findall(r'(?:failures|errors)="(\d+)"', text))


def test_the_control_fails(tmp_path: Path) -> None:
    plain = Plain(tmp_path)
    plain.write("control", "", TESTS)
    assert plain.run() == 1
    assert plain.failures() == 3


@pytest.mark.parametrize("attack", ONE_PROCESS, ids=str)
def test_one_process_is_fooled(tmp_path: Path, attack: Attack) -> None:
    """pytest in the process of student code reports no failure for wrong answers."""
    plain = Plain(tmp_path)
    tests = TESTS
    if "1.assert" in attack.rows:
        tests = re.sub(r"assert (.*) == (.*)", r"np.testing.assert_allclose(\1, \2)", tests)
    plain.write(attack.id, attack.code, tests)
    code = plain.run()
    if "1.daemon" in attack.rows:
        assert code == 1
        for _ in range(100):
            if plain.failures() == 0:
                break
            time.sleep(0.1)
        code = 0
    # 5: nothing was collected, which is no failure either.
    assert code == (5 if "1.skip-module" in attack.rows else 0)
    assert not plain.failures()


# -- a process without a sandbox ------------------------------------------------------------------

SCORING = ("read-tests", "imports-the-reference")
GAINING = (*SCORING, "reads-everything", "network", "other-processes")


@dataclass
class Low:
    """Some attacks at the `process` tier, which does not promise to stop them."""

    graded: Graded
    received: list[str]


@pytest.fixture(scope="module")
def low(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Low]:
    stage = Stage(tmp_path_factory.mktemp("low"))
    stage.build()
    canaries = Canaries(stage)
    try:
        canaries.open()
        stage.hand_in(QUIET, "lab91", stage.armed("half", "", "control"))
        for attack in ATTACKS:
            if attack.id in GAINING:
                stage.attack(attack, attack.id)
        graded = stage.grade("process", PATIENCE[SMALL])
        yield Low(graded, canaries.received())
    finally:
        canaries.close()


@pytest.mark.parametrize("name", [name for name in GAINING if name not in SCORING])
def test_a_process_alone_does_not_stop_it(low: Low, name: str) -> None:
    assert DONE.search(said(low.graded.records[name]))


@pytest.mark.parametrize("name", SCORING)
def test_a_process_alone_gives_points_away(low: Low, name: str) -> None:
    gained, control = points(low.graded.records[name]), points(low.graded.records[QUIET])
    assert gained["passphrase"] > control["passphrase"]


def test_a_process_alone_lets_every_message_out(low: Low) -> None:
    assert {line.partition(":")[0] for line in low.received} == {"tcp", "udp", "unix", "abstract"}
