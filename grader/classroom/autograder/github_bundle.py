"""`infralens autograder github`: a workflow for GitHub Classroom, and the private repository that
it grades with."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from grader.classroom.autograder import grader_kit
from grader.classroom.export.unit_formats import MOST_GITHUB
from grader.lab.manifest import Lab

WORKFLOW = "assignment/.github/workflows/classroom.yml"
RUNNER, KEY = "grader/run_classroom", "grader/course.key"
PROGRAMS = (RUNNER,)
JOB = "run-autograding-tests"  # the name by which GitHub Classroom finds the points
FAILED = (
    "The submission was not graded: the grader ended before it had a result. This is not a grade: "
    "run the workflow again, or tell your instructor."
)

_WORKFLOW = """\
# Written by `infralens autograder github`. It belongs into the assignment's template repository.
#
# The grader is a private repository, which holds references and hidden tests: its name is the
# organization's variable INFRALENS_GRADER, and a token that may read it the organization's secret
# INFRALENS_GRADER_TOKEN. Protect this file in the assignment (GitHub Classroom: protected file
# paths): who can edit it decides about the points of the own repository.
name: Autograding Tests
on: [push, workflow_dispatch, repository_dispatch]
permissions:
  checks: write
  actions: read
  contents: read
jobs:
  {job}:
    runs-on: ubuntu-24.04
    timeout-minutes: 45
    if: github.actor != 'github-classroom[bot]'
    steps:
      - name: The submission
        uses: actions/checkout@v4
        with:
          path: submission
          persist-credentials: false
      - name: The grader
        uses: actions/checkout@v4
        with:
          repository: ${{{{ vars.INFRALENS_GRADER }}}}
          token: ${{{{ secrets.INFRALENS_GRADER_TOKEN }}}}
          path: private/grader
          persist-credentials: false
      - name: Python
        uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - name: What grading needs
        run: bash private/grader/run_classroom --install
{grading}
      - name: The points
        if: ${{{{ !cancelled() }}}}
        uses: classroom-resources/autograding-grading-reporter@v1
        env:
{results}
        with:
          runners: {runners}
"""
_GRADING = """\
      - name: Grade {lab}
        id: {lab}
        run: bash private/grader/run_classroom {lab} "$GITHUB_WORKSPACE/submission"
"""
_RUNNER = """\
#!/usr/bin/env bash
# Written by `infralens autograder github`. `run_classroom --install`, then
# `run_classroom LAB SUBMISSION` in a step whose output `result` the reporter reads.
# INFRALENS_PYTHON names a Python that has all that grading needs; then nothing is installed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
python=${{INFRALENS_PYTHON:-/opt/infralens/bin/python}}
root=
[ "$(id -u)" = 0 ] || root='sudo --preserve-env=GITHUB_OUTPUT'
if [ "${{1:-}}" = --install ]; then
    set -e
    chmod 700 "$here" "$here/.."
    [ -z "${{INFRALENS_PYTHON:-}}" ] || exit 0
    $root "$(command -v python3)" -m venv /opt/infralens
{torch}    $root /opt/infralens/bin/pip install --quiet {extra}
    exit 0
fi
# First of all a result that says that there is none; a later line of the same name counts.
case "${{1:-}}" in
{first}
    *) echo "run_classroom: no such lab: ${{1:-}}" >&2; exit 2 ;;
esac
chmod 700 "$2"
cd "$here/{kit}" || exit 0
# The step succeeds whatever comes of it: the reporter says what failed.
$root "$python" -I -m grader.classroom.autograder.classroom_run "$1" "$2" {options}
exit 0
"""


def run(
    root: Path,
    labs: str,
    out: Path,
    say: Callable[[str], None],
    *,
    key_file: Path | None = None,
    torch_index: str = "",
    feedback: str = "full",
) -> int:
    """Write the folder. Raises LabError."""
    found = grader_kit.chosen(root, labs)
    files = bundle(root, found, key_file=key_file, torch_index=torch_index, feedback=feedback)
    grader_kit.write_folder(out, files, PROGRAMS)
    points = sum(lab.points for lab in found)
    say(f"{out / 'assignment'}: put this into the assignment's template repository.")
    say(f"{out / 'grader'}: make this a private repository; it holds references and hidden tests.")
    say(f"The organization's variable INFRALENS_GRADER names it. The labs have {points:g} points.")
    return 0


def bundle(
    root: Path,
    labs: Sequence[Lab],
    *,
    key_file: Path | None = None,
    torch_index: str = "",
    feedback: str = "full",
) -> grader_kit.Files:
    """The files, by their path."""
    kit = grader_kit.files(root, labs)
    found = {f"grader/{grader_kit.KIT}/{name}": data for name, data in kit.items()}
    options = ["--feedback", feedback]
    if key_file is not None:
        found[KEY] = grader_kit.key_bytes(key_file)
        options += ["--course-key-file", '"$here/course.key"']
    found[WORKFLOW] = _WORKFLOW.format(
        job=JOB,
        grading="".join(_GRADING.format(lab=lab.id) for lab in labs).rstrip(),
        results="\n".join(
            f"          {lab.id.upper()}_RESULTS: ${{{{ steps.{lab.id}.outputs.result }}}}"
            for lab in labs
        ),
        runners=",".join(lab.id for lab in labs),
    ).encode()
    found[RUNNER] = _RUNNER.format(
        kit=grader_kit.KIT,
        torch=grader_kit.torch_line(kit, torch_index, indent=4, root="$root "),
        extra=grader_kit.requirement(labs, '"$here/{}"'),
        options=" ".join(options),
        first="\n".join(
            f"    {lab.id}) printf 'result=%s\\n' {encoded(failed_result(lab, FAILED))}"
            ' >> "$GITHUB_OUTPUT" ;;'
            for lab in labs
        ),
    ).encode()
    return dict(sorted(found.items()))


def failed_result(lab: Lab, reason: str) -> dict[str, Any]:
    """What the reporter reads of a submission without a result. Without a test it would add up
    nothing, and without `tests` it ends with an error of its own."""
    return {
        "version": 3,
        "status": "error",
        "message": reason,
        "max_score": float(lab.points),
        "tests": [
            {
                "name": f"{lab.id}: not graded",
                "status": "error",
                "message": reason,
                "output": reason[:MOST_GITHUB],
                "test_code": "",
                "task_id": 1,
                "filename": "",
                "line_no": 0,
                "duration": 0.0,
                "score": 0.0,
            }
        ],
    }


def encoded(result: dict[str, Any]) -> str:
    """As the reporter takes it."""
    return base64.b64encode(json.dumps(result, allow_nan=False).encode()).decode("ascii")
