"""One result for one student and lab, as other graders write it: Gradescope, GitHub Classroom,
PrairieLearn, JUnit. A task is their test; its reasons are its output."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import msgspec

from grader.classroom.gradebook import records
from grader.classroom.gradebook.records import TestRow, UnitResult
from grader.status import TaskStatus, TestStatus, points_text

MOST_OUTPUT = 8_000  # characters of a task's reasons
MOST_GITHUB = 500
MOST_PRAIRIELEARN = 2**20  # bytes of the whole


def gradescope(result: UnitResult) -> str:
    """`results.json`. Its points are those of the lab: the assignment must have as many."""
    outputs = _outputs(result)
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
                "output": outputs[row.id],
                "visibility": "visible",
            }
            for number, row in enumerate(result.tasks, start=1)
        ],
        "extra_data": {"lab": result.lab, "key": result.key, **_version(result)},
    }
    return _json(data)


def github(result: UnitResult) -> str:
    """What a grader's step puts into `result` for GitHub Classroom's reporter: base64 of JSON. The
    reporter adds up the tests' scores, and a run without a test is not a number to it."""
    outputs, seconds = _outputs(result), _seconds(result)
    tests = [
        {
            "name": row.id,
            "status": "pass" if row.status is TaskStatus.DONE else "fail",
            "message": row.status.words,
            "output": outputs[row.id][:MOST_GITHUB],
            "test_code": "",
            "task_id": number,
            "filename": "",
            "line_no": 0,
            "duration": round(seconds.get(row.id, 0.0), 3),
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
    outputs = _outputs(result)
    tests = [
        {
            "name": row.id,
            "description": row.status.words,
            "points": row.points,
            "max_points": row.max_points,
            "output": outputs[row.id],
        }
        for row in result.tasks
    ]
    data: dict[str, Any] = {
        "gradable": True,
        "score": result.score / result.max_score if result.max_score else 0.0,
        "message": _head(result),
        "tests": tests,
    }
    text = _json(data)
    for test in sorted(tests, key=lambda test: -len(str(test["output"]))):
        if len(text.encode()) <= MOST_PRAIRIELEARN:
            break
        test["output"] = "(left out: the result would be too large)"
        text = _json(data)
    return text


def junit(result: UnitResult) -> str:
    """JUnit's XML: a suite a lab, a case a test of ours, points as properties."""
    head = {
        "name": result.lab,
        "time": f"{sum(row.seconds for row in result.tests):.3f}",
        "tests": str(len(result.tests)),
        "failures": str(sum(row.status in _FAILURES for row in result.tests)),
        "errors": str(sum(row.status is TestStatus.ERROR for row in result.tests)),
        "skipped": str(sum(row.status in _SKIPPED for row in result.tests)),
    }
    lines = [
        "<?xml version='1.0' encoding='utf-8'?>",
        f"<testsuites>{_tag('testsuite', head)}",
        "<properties>",
        *(
            f"{_tag('property', {'name': name, 'value': value})}</property>"
            for name, value in _properties(result)
        ),
        "</properties>",
        *map(_case, result.tests),
        "</testsuite></testsuites>",
    ]
    return "\n".join(lines) + "\n"


def _case(row: TestRow) -> str:
    return (
        f'<testcase {_named(row.id, row.task)} time="{row.seconds:.3f}">'
        f"{_what_came(row)}</testcase>"
    )


@lru_cache(maxsize=8192)  # everybody's results have the same tests
def _named(id: str, task: str) -> str:
    lab, _, name = id.rpartition("/")
    owner = f"{lab.partition('/')[0]}.{task}"
    return f"classname={quoteattr(owner)} name={quoteattr(name)}"


def _what_came(row: TestRow) -> str:
    """What stands in a case that did not pass."""
    if row.status is TestStatus.PASSED:
        return ""
    if row.status in _SKIPPED:
        return f"{_tag('skipped', {'message': row.status.words})}</skipped>"
    tag = "error" if row.status is TestStatus.ERROR else "failure"
    message = row.message.split("\n", 1)[0][:MOST_GITHUB]
    return f"{_tag(tag, {'message': message})}{escape(row.message[:MOST_OUTPUT])}</{tag}>"


def _tag(name: str, attributes: dict[str, str]) -> str:
    """A tag that opens. (Text that XML cannot hold does not reach a record: `records.plain`.)"""
    cells = "".join(f" {key}={quoteattr(value)}" for key, value in attributes.items())
    return f"<{name}{cells}>"


_FAILURES = (TestStatus.FAILED, TestStatus.TIMEOUT)
_SKIPPED = (TestStatus.NOT_STARTED, TestStatus.NOT_RUN, TestStatus.NOT_VERIFIED)


def _properties(result: UnitResult) -> Iterator[tuple[str, str]]:
    yield "score", points_text(result.score)
    yield "max_score", f"{result.max_score:g}"
    yield from _version(result).items()
    for row in result.tasks:
        yield f"points.{row.id}", points_text(row.points)
        yield f"max_points.{row.id}", f"{row.max_points:g}"


def _version(result: UnitResult) -> dict[str, str]:
    """The lab's version, where the result has one."""
    return {"lab_version": result.lab_version} if result.lab_version else {}


def _head(result: UnitResult) -> str:
    text = f"{result.lab}: {points_text(result.score)} of {result.max_score:g} points"
    if result.not_verified:
        text += f"; {result.not_verified:g} could not be verified on the grading machine"
    return text


def _outputs(result: UnitResult) -> dict[str, str]:
    """The reasons of each task, one below the other; what became of it where there are none."""
    reasons = records.reasons_by_task(result)
    found = {}
    for row in result.tasks:
        mine = reasons.get(row.id, [])
        if row.status is TaskStatus.NOT_VERIFIED:
            mine = ["This task could not be verified on the grading machine.", *mine]
        text = "\n\n".join(mine) or row.status.words
        found[row.id] = text if len(text) <= MOST_OUTPUT else f"{text[: MOST_OUTPUT - 3]}..."
    return found


def _seconds(result: UnitResult) -> dict[str, float]:
    """What the tests of each task took."""
    found: dict[str, float] = {}
    for row in result.tests:
        found[row.task] = found.get(row.task, 0.0) + row.seconds
    return found


def _json(data: dict[str, Any]) -> str:
    return msgspec.json.format(json.dumps(data), indent=1)
