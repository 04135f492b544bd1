"""One result for one student and lab, as other graders write it: Gradescope, GitHub Classroom,
PrairieLearn, JUnit. A task is their test; its reasons are its output."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from grader.classroom.gradebook import records
from grader.classroom.gradebook.records import TaskRow, UnitResult
from grader.status import TaskStatus, TestStatus, points_text

MOST_OUTPUT = 8_000  # characters of a task's reasons
MOST_GITHUB = 500
MOST_PRAIRIELEARN = 2**20  # bytes of the whole


def gradescope(result: UnitResult) -> str:
    """`results.json`. Its points are those of the lab: the assignment must have as many."""
    data = {
        "score": result.score,
        "execution_time": round(sum(row.seconds for row in result.tests), 3),
        "output": _head(result),
        "output_format": "text",
        "test_output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [
            {
                "name": row.id,
                "number": str(number),
                "score": row.points,
                "max_score": row.max_points,
                "status": "passed" if row.status is TaskStatus.DONE else "failed",
                "output": _output(result, row),
                "visibility": "visible",
            }
            for number, row in enumerate(result.tasks, start=1)
        ],
        "extra_data": {"lab": result.lab, "key": result.key},
    }
    return json.dumps(data, indent=1)


def github(result: UnitResult) -> str:
    """What a grader's step puts into `result` for GitHub Classroom's reporter: base64 of JSON. The
    reporter adds up the tests' scores, and a run without a test is not a number to it."""
    tests = [
        {
            "name": row.id,
            "status": "pass" if row.status is TaskStatus.DONE else "fail",
            "message": row.status.words,
            "output": _output(result, row)[:MOST_GITHUB],
            "test_code": "",
            "task_id": number,
            "filename": "",
            "line_no": 0,
            "duration": round(sum(t.seconds for t in result.tests if t.task == row.id), 3),
            "score": row.points,
        }
        for number, row in enumerate(result.tasks, start=1)
    ]
    data = {
        "version": 3,
        "status": "pass" if all(test["status"] == "pass" for test in tests) else "fail",
        "message": _head(result),
        "max_score": result.max_score,
        "tests": tests,
    }
    return base64.b64encode(json.dumps(data).encode()).decode("ascii")


def prairielearn(result: UnitResult) -> str:
    """`results.json` of an external grader: the score is a part of 1, the whole at most 1 MiB."""
    tests = [
        {
            "name": row.id,
            "description": row.status.words,
            "points": row.points,
            "max_points": row.max_points,
            "output": _output(result, row),
        }
        for row in result.tasks
    ]
    data: dict[str, Any] = {
        "gradable": True,
        "score": result.score / result.max_score if result.max_score else 0.0,
        "message": _head(result),
        "tests": tests,
    }
    text = json.dumps(data, indent=1)
    for test in sorted(tests, key=lambda test: -len(str(test["output"]))):
        if len(text.encode()) <= MOST_PRAIRIELEARN:
            break
        test["output"] = "(left out: the result would be too large)"
        text = json.dumps(data, indent=1)
    return text


def junit(result: UnitResult) -> str:
    """JUnit's XML: a suite a lab, a case a test of ours, points as properties."""
    root = ElementTree.Element("testsuites")
    counts = {
        "tests": len(result.tests),
        "failures": sum(row.status in _FAILURES for row in result.tests),
        "errors": sum(row.status is TestStatus.ERROR for row in result.tests),
        "skipped": sum(row.status in _SKIPPED for row in result.tests),
    }
    seconds = f"{sum(row.seconds for row in result.tests):.3f}"
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        {"name": result.lab, "time": seconds, **{key: str(n) for key, n in counts.items()}},
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(result):
        ElementTree.SubElement(properties, "property", {"name": name, "value": value})
    for row in result.tests:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {
                "classname": f"{result.lab}.{row.task}",
                "name": row.id.rpartition("/")[2],
                "time": f"{row.seconds:.3f}",
            },
        )
        if row.status is TestStatus.ERROR or row.status in _FAILURES:
            tag = "error" if row.status is TestStatus.ERROR else "failure"
            first = row.message.split("\n", 1)[0]
            found = ElementTree.SubElement(case, tag, {"message": first[:MOST_GITHUB]})
            found.text = row.message[:MOST_OUTPUT]
        elif row.status in _SKIPPED:
            ElementTree.SubElement(case, "skipped", {"message": row.status.words})
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


_FAILURES = (TestStatus.FAILED, TestStatus.TIMEOUT)
_SKIPPED = (TestStatus.NOT_STARTED, TestStatus.NOT_RUN, TestStatus.NOT_VERIFIED)


def _properties(result: UnitResult) -> Iterator[tuple[str, str]]:
    yield "score", points_text(result.score)
    yield "max_score", f"{result.max_score:g}"
    for row in result.tasks:
        yield f"points.{row.id}", points_text(row.points)
        yield f"max_points.{row.id}", f"{row.max_points:g}"


def _head(result: UnitResult) -> str:
    text = f"{result.lab}: {points_text(result.score)} of {result.max_score:g} points"
    if result.not_verified:
        text += f"; {result.not_verified:g} could not be verified on the grading machine"
    return text


def _output(result: UnitResult, row: TaskRow) -> str:
    """A task's reasons, one below the other."""
    found = [message for task, message in records.reasons(result) if task == row.id]
    if row.status is TaskStatus.NOT_VERIFIED:
        found.insert(0, "This task could not be verified on the grading machine.")
    text = "\n\n".join(found) or row.status.words
    return text if len(text) <= MOST_OUTPUT else f"{text[: MOST_OUTPUT - 3]}..."
