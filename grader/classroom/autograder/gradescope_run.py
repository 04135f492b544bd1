"""What `run_autograder` starts in Gradescope's container: it grades one submission and replaces
`results.json`, which says until then that there is no result.

Only what was handed in decides. Deadlines, earlier results and names in `submission_metadata.json`
do not: Gradescope itself applies lateness, and a group has one submission.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grader import readable
from grader.classroom.autograder import one_submission
from grader.classroom.autograder.gradescope_bundle import FAILED, failed_results
from grader.classroom.autograder.one_submission import SubmissionPlaces
from grader.classroom.export import unit_formats
from grader.classroom.gradebook.records import UnitResult
from grader.durable import write_atomically
from grader.errors import CallError, Infrastructure, LabError
from grader.lab.manifest import Lab, load_lab

AUTOGRADER = Path("/autograder")
MOST_METADATA = 2**22


def main(arguments: Sequence[str], autograder: Path = AUTOGRADER, kit: Path | None = None) -> int:
    """Exit status 0: the submission has a result; 1: `results.json` says why it has none."""
    parser = argparse.ArgumentParser()
    parser.add_argument("labs", nargs="+")
    parser.add_argument("--feedback", default="full")
    parser.add_argument("--course-key-file", type=Path)
    options = parser.parse_args(arguments)
    root = (kit or Path.cwd()).resolve()
    labs = [load_lab(root, name) for name in options.labs]
    results = autograder / "results" / "results.json"
    metadata = autograder / "submission_metadata.json"
    places = SubmissionPlaces(
        root,
        autograder / "submission",
        [path for path in (autograder / "source", results.parent, metadata) if path.exists()],
    )
    try:
        key = options.course_key_file.read_bytes().strip() if options.course_key_file else None
        tier = one_submission.best_tier()
        print(f"Tier: {tier}.")
        records = one_submission.grade(places, labs, tier, options.feedback, key)
    except (CallError, LabError, Infrastructure, OSError) as error:
        said = readable.line(str(error), 1000)
        print(f"Not graded: {said}")
        write_atomically(results, json.dumps(failed_results(labs, f"{FAILED} ({said})"), indent=1))
        return 1
    write_atomically(results, json.dumps(results_of(records), indent=1))
    for line in _remarks(records, labs, metadata):
        print(line)
    return 0


def results_of(records: Sequence[UnitResult]) -> dict[str, Any]:
    """`results.json` of one lab, or of several as one assignment."""
    parts = [json.loads(unit_formats.gradescope(record)) for record in records]
    if len(parts) > 1:
        for record, part in zip(records, parts, strict=True):
            for row in part["tests"]:
                row["name"] = f"{record.lab}.{row['name']}"
                row["number"] = f"{int(record.lab[3:])}.{row['number']}"
    first = parts[0]
    notes = [readable.text(note, 400) for record in records for note in record.notes]
    tier = f"Graded at the tier {records[0].tier}."
    return {
        **first,
        "score": sum(part["score"] for part in parts),
        "execution_time": round(sum(part["execution_time"] for part in parts), 3),
        "output": "\n".join([*(part["output"] for part in parts), tier, *notes[:20]]),
        "tests": [row for part in parts for row in part["tests"]],
        "extra_data": {
            "labs": [part["extra_data"] for part in parts],
            "tier": records[0].tier,
            "mechanisms": records[0].mechanisms,
        },
    }


def _remarks(records: Sequence[UnitResult], labs: Sequence[Lab], metadata: Path) -> list[str]:
    """For the instructor, who alone reads what is printed."""
    said = [f"{record.lab}: {record.score:g} of {record.max_score:g} points." for record in records]
    try:
        with metadata.open("rb") as file:
            data = json.loads(file.read(MOST_METADATA))
        total = float(data["assignment"]["total_points"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return said
    points = sum(lab.points for lab in labs)
    if total != points:
        said.append(
            f"The assignment has {total:g} points and the labs {points:g}: give it {points:g}, or "
            "Gradescope refuses the results."
        )
    return said


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
