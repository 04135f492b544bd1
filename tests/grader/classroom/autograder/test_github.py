"""The autograder for GitHub Classroom: its workflow, its runner, and the real reporter.

`INFRALENS_REPORTER` names a checkout of classroom-resources/autograding-grading-reporter in which
`npm install` was called; without it the reporter's part is skipped.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from grader.classroom.autograder import classroom_run, github_bundle
from grader.classroom.export import unit_formats
from grader.errors import LabError
from grader.lab.manifest import Lab, load_lab
from tests.grader.attacks.stage import Stage
from tests.grader.sandbox import made_container
from tests.grader.sandbox.made_container import ROOT, TRUSTED, ContainerSettings

REPORTER = Path(os.environ.get("INFRALENS_REPORTER", ""))
NO_CONTAINER = made_container.reason_against()
in_container = pytest.mark.skipif(bool(NO_CONTAINER), reason=f"no container: {NO_CONTAINER}")
with_reporter = pytest.mark.skipif(
    not (REPORTER / "node_modules").is_dir() or shutil.which("node") is None,
    reason="INFRALENS_REPORTER names no installed reporter, or there is no node",
)


def decoded(text: str) -> dict[str, Any]:
    return dict(json.loads(base64.b64decode(text, validate=True)))


# -- the workflow ---------------------------------------------------------------------------------


def test_the_workflow_keeps_the_reporter_s_contract(stage: Stage, lab: Lab) -> None:
    labs = [lab, load_lab(stage.kit, "lab07")]
    found = github_bundle.bundle(stage.kit, labs)
    workflow = yaml.safe_load(found[github_bundle.WORKFLOW])
    assert list(workflow["jobs"]) == ["run-autograding-tests"]
    assert workflow["permissions"]["checks"] == "write"
    steps = workflow["jobs"]["run-autograding-tests"]["steps"]
    (reporter,) = [step for step in steps if "grading-reporter" in step.get("uses", "")]
    assert reporter["with"]["runners"] == "lab91,lab07"
    # The reporter's own pattern of what it takes.
    assert re.fullmatch(r"([a-zA-Z0-9]+,)*[a-zA-Z0-9]+", reporter["with"]["runners"])
    ids = [step["id"] for step in steps if "id" in step]
    for name in reporter["with"]["runners"].split(","):
        assert name in ids
        assert (
            reporter["env"][f"{name.upper()}_RESULTS"] == f"${{{{ steps.{name}.outputs.result }}}}"
        )
    for step in steps:
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False
        assert "secrets." not in json.dumps(step) or "checkout" in step["uses"]


def test_the_assignment_holds_no_answer(stage: Stage, tmp_path: Path) -> None:
    said: list[str] = []
    assert github_bundle.run(stage.kit, "lab91", tmp_path / "out", said.append) == 0
    public = [path for path in (tmp_path / "out/assignment").rglob("*") if path.is_file()]
    assert [path.name for path in public] == ["classroom.yml"]
    assert (tmp_path / "out/grader/kit/tests/lab91/test_answers.py").is_file()
    runner = tmp_path / "out/grader/run_classroom"
    assert runner.stat().st_mode & 0o777 == 0o755
    subprocess.run(["bash", "-n", str(runner)], check=True)
    with pytest.raises(LabError, match="is there already"):
        github_bundle.run(stage.kit, "lab91", tmp_path / "out", said.append)
    again = github_bundle.bundle(stage.kit, [load_lab(stage.kit, "lab91")])
    assert again[github_bundle.RUNNER] == runner.read_bytes()


def test_a_result_that_is_none_is_one_that_the_reporter_takes(lab: Lab) -> None:
    result = github_bundle.failed_result(lab, "x" * 2000)
    assert (result["status"], result["max_score"]) == ("error", lab.points)
    assert sum(row["score"] for row in result["tests"]) == 0
    assert len(result["tests"][0]["output"]) == 500
    with pytest.raises(ValueError, match="JSON compliant"):
        github_bundle.encoded({**result, "max_score": math.nan})


# -- the runner, in a container -------------------------------------------------------------------


@pytest.fixture(scope="module")
def outputs(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The `result` lines of each case's step, in their order."""
    folder = tmp_path_factory.mktemp("github")
    for name in ("root", "work"):
        (folder / name).mkdir()
    github_bundle.run(stage.kit, "lab91", folder / "work" / "out", print)
    right = stage.right("lab91").encode()
    cases = {
        "right": right,
        "half": stage.armed("half", "", "control"),
        "nothing": b"",
        "raises": right + b"\nraise SystemError('at import')\n",
        "ours": right,
    }
    for name, data in cases.items():
        place = folder / "work" / name / "exercises" / "lab91"
        place.mkdir(parents=True)
        (folder / "work" / name / ".git").mkdir()
        if data:
            (place / "answers.py").write_bytes(data)
    script = ["set -e", "chmod 700 /runner", "/runner/out/grader/run_classroom --install"]
    for name in cases:
        python = "INFRALENS_PYTHON=/bin/false " if name == "ours" else ""
        script.append(
            f"{python}GITHUB_OUTPUT=/runner/{name}.out "
            f"/runner/out/grader/run_classroom lab91 /runner/{name}"
        )
    package = str(ROOT / "grader")
    done = made_container.run(
        ContainerSettings(
            root=str(folder / "root"),
            command=["/bin/bash", "-c", "\n".join(script)],
            environment={
                "PATH": os.environ["PATH"],
                "HOME": "/autograder/home",
                "INFRALENS_PYTHON": sys.executable,
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            shown={str(ROOT): TRUSTED, package: package},
            writable={str(folder / "work"): "/runner"},
        ),
        300,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return {
        name: [
            line.removeprefix("result=")
            for line in (folder / "work" / f"{name}.out").read_text().splitlines()
        ]
        for name in cases
    }


@in_container
def test_a_result_that_says_that_there_is_none_comes_first(
    outputs: dict[str, list[str]], lab: Lab
) -> None:
    none = github_bundle.failed_result(lab, github_bundle.FAILED)
    for name, lines in outputs.items():
        assert decoded(lines[0]) == none
        assert len(lines) == (1 if name == "ours" else 2)


@in_container
@pytest.mark.parametrize(
    ("name", "status", "least", "most"),
    [("right", "pass", 1.0, 1.0), ("half", "fail", 0.01, 0.99), ("nothing", "fail", 0.0, 0.0),
     ("raises", "fail", 0.0, 0.0), ("ours", "error", 0.0, 0.0)],
)  # fmt: skip
def test_points_are_the_sum_of_the_tests(
    outputs: dict[str, list[str]], lab: Lab, name: str, status: str, least: float, most: float
) -> None:
    result = decoded(outputs[name][-1])
    assert (result["version"], result["status"], result["max_score"]) == (3, status, lab.points)
    assert result["tests"]
    assert least <= sum(row["score"] for row in result["tests"]) / lab.points <= most
    for row in result["tests"]:
        assert len(row["output"]) <= 500
        assert row["status"] in ("pass", "fail", "error")
        assert math.isfinite(row["score"])
        assert math.isfinite(row["duration"])


# -- the real reporter ----------------------------------------------------------------------------


def reported(result: str) -> tuple[int, str]:
    """What the reporter's own script makes of a result: its status, and what it prints."""
    environment = {"PATH": os.environ["PATH"], "INPUT_RUNNERS": "lab91", "LAB91_RESULTS": result}
    done = subprocess.run(
        ["node", str(REPORTER / "src" / "main.js")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@with_reporter
@in_container
def test_the_reporter_finds_the_points(outputs: dict[str, list[str]], lab: Lab) -> None:
    for name, lines in outputs.items():
        points = sum(row["score"] for row in decoded(lines[-1])["tests"])
        code, said = reported(lines[-1])
        report = re.search(r"::notice title=Autograding report::(.*)", said)
        assert report, said
        assert json.loads(report[1]) == {"totalPoints": points, "maxPoints": lab.points}
        assert f"Points {points:g}/{lab.points:g}" in said
        assert code == (0 if name == "right" else 1)
        assert "NaN" not in said


@with_reporter
def test_the_reporter_s_traps_are_real(lab: Lab) -> None:
    """What the official graders send at a timeout, and a run without a test."""
    whole = github_bundle.failed_result(lab, "no")
    without = {key: value for key, value in whole.items() if key != "tests"}
    assert "Autograding report" not in reported(github_bundle.encoded(without))[1]
    text = reported(github_bundle.encoded({**whole, "status": "pass", "tests": []}))[1]
    assert '"totalPoints":0' in text


def test_the_output_of_the_run_is_the_exporter_s(
    stage: Stage, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grader.classroom.autograder import one_submission
    from tests.grader.classroom.export.test_exports import result

    record = msgspec.structs.replace(result(), lab="lab91", tier="sandbox")
    monkeypatch.setattr(one_submission, "best_tier", lambda: "sandbox")
    monkeypatch.setattr(one_submission, "grade", lambda *_: [record])
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    assert classroom_run.main(["lab91", str(tmp_path)], stage.kit) == 0
    assert (tmp_path / "output").read_text() == f"result={unit_formats.github(record)}\n"
