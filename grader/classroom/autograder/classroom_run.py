"""What `run_classroom` starts in a step of GitHub Classroom's workflow: it grades one lab of a
checkout and adds the result to the step's outputs, after the one that says that there is none."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from grader import readable
from grader.classroom.autograder import github_bundle, one_submission
from grader.classroom.autograder.one_submission import SubmissionPlaces
from grader.classroom.export import unit_formats
from grader.errors import CallError, Infrastructure, LabError
from grader.lab.manifest import load_lab


def main(arguments: Sequence[str], kit: Path | None = None) -> int:
    """Exit status 0: the lab has a result; 1: the output says why it has none."""
    parser = argparse.ArgumentParser()
    parser.add_argument("lab")
    parser.add_argument("submission", type=Path)
    parser.add_argument("--feedback", default="full")
    parser.add_argument("--course-key-file", type=Path)
    options = parser.parse_args(arguments)
    root = (kit or Path.cwd()).resolve()
    lab = load_lab(root, options.lab)
    outputs = Path(os.environ["GITHUB_OUTPUT"])
    try:
        key = options.course_key_file.read_bytes().strip() if options.course_key_file else None
        tier = one_submission.best_tier()
        places = SubmissionPlaces(root, options.submission.resolve(), [root.parent, outputs])
        (record,) = one_submission.grade(places, [lab], tier, options.feedback, key)
    except (CallError, LabError, Infrastructure, OSError) as error:
        said = readable.line(str(error), 1000)
        print(f"Not graded: {said}")
        result = github_bundle.failed_result(lab, f"{github_bundle.FAILED} ({said})")
        _put(outputs, github_bundle.encoded(result))
        return 1
    _put(outputs, unit_formats.github(record))
    print(f"{lab.id}: {record.score:g} of {record.max_score:g} points, at the tier {record.tier}.")
    return 0


def _put(outputs: Path, result: str) -> None:
    with outputs.open("a", encoding="ascii") as file:
        file.write(f"result={result}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
