"""`infralens autograder gradescope`: the zip that Gradescope builds an autograder from."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from grader.classroom.autograder import grader_kit
from grader.lab.manifest import Lab

SETUP, RUN, KEY = "setup.sh", "run_autograder", "course.key"
PROGRAMS = (SETUP, RUN)
FAILED = (
    "Your submission was not graded, because the autograder ended before it had a result. "
    "This is not a grade: hand in again, or tell your instructor."
)

_SETUP = """\
#!/usr/bin/env bash
# Written by `infralens autograder gradescope`. Installs what grading needs into /opt/infralens.
# INFRALENS_PYTHON names a Python that has all of it; then nothing is installed.
set -euo pipefail
cd "$(dirname "$0")"
chmod 700 .
[ -z "${{INFRALENS_PYTHON:-}}" ] || exit 0
export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1
apt-get update -q
apt-get install -q -y --no-install-recommends g++ libc6-dev python3 python3-venv
python=
for each in python3.13 python3.12 python3.11; do
    if [ -z "$python" ] && "$each" -c 'import venv, ensurepip' 2>/dev/null; then python=$each; fi
done
if [ -z "$python" ]; then
    apt-get install -q -y --no-install-recommends python3.11 python3.11-venv
    python=python3.11
fi
umask 022  # student code, which is another user, must read it
"$python" -m venv /opt/infralens
{torch}/opt/infralens/bin/pip install --quiet --no-cache-dir {extra}
chmod -R go-rwx .
"""

_RUN = """\
#!/usr/bin/env bash
# Written by `infralens autograder gradescope`. Grades one submission of {labs}.
set -u
umask 077
results=/autograder/results/results.json
mkdir -p /autograder/results
# First of all a result that says that there is none, whatever happens after it.
cat > "$results.first" <<'END'
{failed}
END
mv -f "$results.first" "$results"
chmod 700 /autograder/source /autograder/submission /autograder/results
chmod 600 /autograder/submission_metadata.json 2>/dev/null
cd /autograder/source/{kit} || exit 1
"${{INFRALENS_PYTHON:-/opt/infralens/bin/python}}" -I -m \\
    grader.classroom.autograder.gradescope_run {labs} {options}
status=$?
chmod 755 /autograder/results
chmod 644 "$results"
exit $status
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
    """Write the zip. Raises LabError."""
    found = grader_kit.chosen(root, labs)
    files = bundle(root, found, key_file=key_file, torch_index=torch_index, feedback=feedback)
    grader_kit.write_zip(out, files, PROGRAMS)
    points = sum(lab.points for lab in found)
    names = ", ".join(lab.id for lab in found)
    say(f"{out}: the autograder of {names}, {len(files)} files.")
    say(f"Give the assignment {points:g} points: Gradescope refuses results that add up to others.")
    say("The zip holds the references and the hidden tests: upload it, and hand it to nobody.")
    return 0


def bundle(
    root: Path,
    labs: Sequence[Lab],
    *,
    key_file: Path | None = None,
    torch_index: str = "",
    feedback: str = "full",
) -> grader_kit.Files:
    """The files of the zip. torch_index: where pip finds the build of PyTorch for CPUs."""
    kit = grader_kit.files(root, labs)
    found = {f"{grader_kit.KIT}/{name}": data for name, data in kit.items()}
    options = ["--feedback", feedback]
    if key_file is not None:
        found[KEY] = grader_kit.key_bytes(key_file)
        options += ["--course-key-file", f"/autograder/source/{KEY}"]
    found[SETUP] = _SETUP.format(
        torch=grader_kit.torch_line(kit, torch_index), extra=grader_kit.requirement(labs, "'./{}'")
    ).encode()
    ids = [lab.id for lab in labs]
    failed = json.dumps(failed_results(labs, FAILED), indent=1)
    found[RUN] = _RUN.format(
        labs=" ".join(ids), failed=failed, kit=grader_kit.KIT, options=" ".join(options)
    ).encode()
    return dict(sorted(found.items()))


def failed_results(labs: Sequence[Lab], reason: str) -> dict[str, object]:
    """`results.json` of a submission that has no result. Its points add up to the assignment's:
    with others Gradescope shows an error of its own, and not the reason."""
    return {
        "score": 0.0,
        "output": reason,
        "output_format": "text",
        "test_output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [
            {
                "name": f"{lab.id}: not graded",
                "score": 0.0,
                "max_score": float(lab.points),
                "status": "failed",
                "output": reason,
                "visibility": "visible",
            }
            for lab in labs
        ],
    }
