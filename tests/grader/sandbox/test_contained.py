"""The tier `contained`: its cases are run in a container, with Landlock and without."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from grader.errors import WallFailed
from grader.sandbox.fork_server import ForkServer
from tests.grader.sandbox import made_container
from tests.grader.sandbox.made_container import TRUSTED, ContainerSettings

NO_CONTAINER = made_container.reason_against()
in_container = pytest.mark.skipif(bool(NO_CONTAINER), reason=f"no container: {NO_CONTAINER}")
# Without Landlock it may write where everybody may, until its end.
OPEN_WITHOUT = "not writes_into_its_folder"


@in_container
@pytest.mark.parametrize("landlock", [True, False], ids=["landlock", "without"])
def test_its_cases(tmp_path: Path, landlock: bool) -> None:
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-rs", f"{TRUSTED}/tests/grader/sandbox/contained_cases.py"]
    command += [] if landlock else ["-k", OPEN_WITHOUT]
    done = made_container.run(
        ContainerSettings(
            root=str(tmp_path),
            command=command,
            environment={"PATH": os.environ["PATH"], "HOME": "/autograder/home"},
            landlock=landlock,
        ),
        300,
    )
    last = done.stdout.strip().splitlines()[-1:] or [done.stderr]
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
    passed = re.match(r"(\d+) passed", last[0])
    assert passed, last
    assert int(passed[1]) >= 15


@in_container
def test_probe_names_it(tmp_path: Path) -> None:
    done = made_container.run(
        ContainerSettings(
            root=str(tmp_path),
            command=[sys.executable, "-m", "grader.cli", "probe"],
            environment={"PATH": os.environ["PATH"], "HOME": "/autograder/home", "COLUMNS": "200"},
        ),
        100,
    )
    assert "Tier reached: contained." in done.stdout, done.stdout + done.stderr
    assert "does not promise: a worker sees the names" in done.stdout
    assert re.search(r"Mechanisms: own uid, seccomp, .*landlock", done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's")
@pytest.mark.skipif(os.geteuid() == 0, reason="this is root")
def test_it_needs_root(tmp_path: Path) -> None:
    with (
        ForkServer(tmp_path, [], [], tier="contained") as zygote,
        pytest.raises(WallFailed, match="needs root"),
    ):
        zygote.wait()
