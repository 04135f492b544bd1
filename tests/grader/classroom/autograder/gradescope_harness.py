"""What Gradescope's harness does, in a made container: it sets up the autograder once, and for each
submission lays the files out, runs `run_autograder` and takes `results.json`.

As a program its arguments are CASES and PYTHON. A folder of CASES is a case: `submission/`,
`metadata.json`, `python` if another than PYTHON; the answer is `answer.json`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

AUTOGRADER = Path("/autograder")
RESULTS = AUTOGRADER / "results" / "results.json"


def main(cases: Path, python: str) -> None:
    cases.chmod(0o700)
    source = AUTOGRADER / "source"
    ready = {"PATH": os.environ["PATH"], "INFRALENS_PYTHON": python, "HOME": "/root"}
    subprocess.run(["/bin/bash", str(source / "setup.sh")], env=ready, check=True)
    shutil.copy(source / "run_autograder", AUTOGRADER / "run_autograder")
    for case in sorted(cases.iterdir()):
        for folder in (AUTOGRADER / "submission", AUTOGRADER / "results"):
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(
            case / "submission", AUTOGRADER / "submission", dirs_exist_ok=True, symlinks=True
        )
        shutil.copy(case / "metadata.json", AUTOGRADER / "submission_metadata.json")
        own = case / "python"
        done = subprocess.run(
            [str(AUTOGRADER / "run_autograder")],
            env={**ready, **({"INFRALENS_PYTHON": own.read_text()} if own.exists() else {})},
            capture_output=True,
            text=True,
            check=False,
        )
        answer = {
            "code": done.returncode,
            "printed": done.stdout + done.stderr,
            "results": json.loads(RESULTS.read_text()) if RESULTS.exists() else None,
            "files": sorted(path.name for path in RESULTS.parent.iterdir()),
        }
        (case / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
