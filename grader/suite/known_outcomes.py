"""What a lab's misconceptions do in its cases with the public inputs: written once, by `infralens
replay`, so that a diagnosis runs only those again that fail where a submission failed.

`tests/labNN/misconceptions/outcomes.json` holds a number for each misconception and case: 0 where
it passed, the number of a row of `ends` where it failed, and `UNKNOWN` where that is not certain.
It names the state of the lab that it is of; of another state it says nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from grader.lab.manifest import Lab
from grader.status import TestStatus
from grader.suite.causes import Extra
from grader.suite.model import Case, Suite
from grader.suite.splice import Misconception
from grader.suite.suite_digest import add_files, files_of

UNKNOWN = -1
PASSED = 0


class End(msgspec.Struct, array_like=True, frozen=True, order=True):
    """How a case ended: the place in the suite, its file below the kit, where it failed."""

    file: str
    line: int
    extra: str


class _Task(msgspec.Struct):
    cases: list[str]
    numbers: dict[str, list[int]]


class _File(msgspec.Struct):
    state: str
    ends: list[End]
    tasks: dict[str, _Task]


@dataclass(frozen=True)
class KnownOutcome:
    """How a case went on a misconception: its status and the place where it failed; what that means
    where a submission passes."""

    status: TestStatus
    site: tuple[str, int]
    extra: Extra


_PASSED = KnownOutcome(TestStatus.PASSED, ("", 0), Extra.NONE)


class KnownOutcomes:
    """The outcomes of one lab's misconceptions, by misconception and case."""

    def __init__(self, root: Path, file: _File | None) -> None:
        self._rows: dict[tuple[str, str, str], int] = {}
        self._ends: list[KnownOutcome] = []
        if file is None:
            return
        self._ends = [
            KnownOutcome(TestStatus.FAILED, (str(root / end.file), end.line), Extra[end.extra])
            for end in file.ends
        ]
        for task, part in file.tasks.items():
            for wrong, numbers in part.numbers.items():
                for case, number in zip(part.cases, numbers, strict=True):
                    self._rows[task, wrong, case] = number

    def of(self, wrong: Misconception, case: Case) -> KnownOutcome | None:
        """How that case goes with that misconception; None where that is not known."""
        number = self._rows.get((wrong.task, wrong.name, case.name), UNKNOWN)
        if number == UNKNOWN:
            return None
        return _PASSED if number == PASSED else self._ends[number - 1]


def path_of(lab: Lab) -> Path:
    return lab.suite / "misconceptions" / "outcomes.json"


def state_of(lab: Lab) -> str:
    """The lab's files in one hash; the grader's own source is not in it, nor what is installed: it
    decides what is replayed, and the replays decide what is said."""
    digest = hashlib.sha256()
    files = sorted(files_of(lab) - {path_of(lab)})
    add_files(digest, {lab.shown(path): path for path in files})
    return digest.hexdigest()[:32]


def read(suite: Suite) -> KnownOutcomes:
    """What the file says of this state of the lab; nothing where it is of another one, is missing
    or cannot be read."""
    lab = suite.lab
    try:
        file = msgspec.json.decode(path_of(lab).read_bytes(), type=_File)
        return KnownOutcomes(lab.kit, file if file.state == state_of(lab) else None)
    except (OSError, ValueError, KeyError, msgspec.MsgspecError):
        return KnownOutcomes(lab.kit, None)


def fault(lab: Lab) -> str:
    """What is wrong with the lab's file, or an empty string; a lab need not have one."""
    path = path_of(lab)
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        return ""
    except (OSError, msgspec.MsgspecError) as error:
        what = f"cannot be read ({error})"
    else:
        if file.state == state_of(lab):
            return ""
        what = "is of another state of this lab"
    return f"{path.relative_to(lab.kit)} {what}: infralens replay {lab.id}"


def text(lab: Lab, found: Mapping[str, Mapping[str, Mapping[str, End | int]]]) -> str:
    """The file for outcomes by task, misconception and case: an end, `PASSED` or `UNKNOWN`. One
    line for each misconception."""
    rows_of_all = [row for wrongs in found.values() for row in wrongs.values()]
    ends = sorted({end for row in rows_of_all for end in row.values() if isinstance(end, End)})
    numbers: dict[End | int, int] = {end: index for index, end in enumerate(ends, start=1)}
    numbers |= {PASSED: PASSED, UNKNOWN: UNKNOWN}
    tasks = []
    for task, wrongs in found.items():
        cases = list(next(iter(wrongs.values())))
        rows = [
            f"   {json.dumps(name)}: {json.dumps([numbers[row[case]] for case in cases])}"
            for name, row in wrongs.items()
        ]
        shown = ",\n   ".join(map(json.dumps, cases))
        inside = ",\n".join(rows)
        tasks.append(
            f' {json.dumps(task)}: {{"cases": [\n   {shown}],\n  "numbers": {{\n{inside}}}}}'
        )
    lines = ",\n ".join(json.dumps([end.file, end.line, end.extra]) for end in ends)
    state = json.dumps(state_of(lab))
    return f'{{"state": {state},\n"ends": [\n {lines}],\n"tasks": {{\n' + ",\n".join(tasks) + "}}\n"
