"""What a lab's misconceptions do in its cases with the public inputs: written once, by `infralens
replay`, so that a diagnosis runs only those again that fail where a submission failed.

`tests/labNN/misconceptions/outcomes.json` holds a number for each misconception and case: 0 where
it passed, the number of a row of `ends` where it failed, and `UNKNOWN` where that is not certain.
Where that does not rule the misconception out and the case draws its inputs, it was run with other
inputs as well, and is noted under `varies` if they changed what it means.
It names the state of the lab that it is of; of another state it says nothing. Values that were
observed hold for the libraries that computed them; with other ones only the places are believed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from grader.lab.manifest import Lab
from grader.status import TestStatus
from grader.suite.causes import Extra
from grader.suite.model import Case, Suite
from grader.suite.replayed import Replayed
from grader.suite.splice import Misconception
from grader.suite.suite_digest import add_files, files_of, version

UNKNOWN = -1
PASSED = 0
VALUE_BYTES = 1024


class End(msgspec.Struct, array_like=True, frozen=True, order=True):
    """How a case ended: the place in the suite, its file below the kit, where it failed; what that
    means where a submission passes; and the value that was observed, if it is small, plain data and
    the same each time."""

    file: str
    line: int
    extra: str
    value: bytes = b""


class Found(NamedTuple):
    """How a case ended with a misconception: an end, `PASSED` or `UNKNOWN`; `varies`: with other
    inputs it would mean something else."""

    end: End | int
    varies: bool = False


class _Task(msgspec.Struct):
    cases: list[str]
    numbers: dict[str, list[int]]
    varies: dict[str, list[str]]


class _File(msgspec.Struct):
    state: str
    libraries: dict[str, str]
    ends: list[End]
    tasks: dict[str, _Task]


_PASSED = Replayed(TestStatus.PASSED, ("", 0), None, 0.0, 0.0, Extra.NONE)


class KnownOutcomes:
    """The outcomes of one lab's misconceptions, by misconception and case."""

    def __init__(self, root: Path, file: _File | None, records: Mapping[str, type]) -> None:
        self._root = root
        self._records = records
        self._rows: dict[tuple[str, str, str], int] = {}
        self._varies: set[tuple[str, str, str]] = set()
        self._ends: list[End] = []
        if file is None:
            return
        if unknown := {end.extra for end in file.ends} - Extra.__members__.keys():
            raise ValueError(f"not an extra: {unknown}")
        self._ends = file.ends
        self._values_hold = file.libraries == libraries()
        for task, part in file.tasks.items():
            self._varies |= {(task, w, case) for w, found in part.varies.items() for case in found}
            for wrong, numbers in part.numbers.items():
                for case, number in zip(part.cases, numbers, strict=True):
                    if not UNKNOWN <= number <= len(file.ends):
                        raise ValueError(f"{number} is not the number of an end")
                    self._rows[task, wrong, case] = number

    def of(self, wrong: Misconception, case: Case) -> Replayed | None:
        """How that case goes with that misconception; None where that is not known."""
        number = self._rows.get((wrong.task, wrong.name, case.name), UNKNOWN)
        if number == UNKNOWN:
            return None
        return _PASSED if number == PASSED else self._replayed(self._ends[number - 1])

    def extra_of_any(self, wrong: Misconception, case: Case) -> Extra | None:
        """What it means that the misconception ends so in that case where a submission passes; None
        where that is not known, or depends on the inputs."""
        known = self.of(wrong, case)
        varies = (wrong.task, wrong.name, case.name) in self._varies
        return None if known is None or varies else known.extra

    def _replayed(self, end: End) -> Replayed:
        site = (str(self._root / end.file), end.line)
        seen = Replayed.without_value(TestStatus.FAILED, site, Extra[end.extra])
        if self._values_hold:
            with contextlib.suppress(ValueError):  # a damaged value costs a replay
                return seen.with_value(end.value, self._records)
        return seen


def libraries() -> dict[str, str]:
    """Versions of what computes the values; which build of it does not matter."""
    return {name: version(name).partition("+")[0] for name in ("numpy", "torch", "triton")}


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
        known = file if file.state == state_of(lab) else None
        return KnownOutcomes(lab.kit, known, suite.records)
    except (OSError, ValueError, msgspec.MsgspecError):
        return KnownOutcomes(lab.kit, None, {})


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


def text(lab: Lab, found: Mapping[str, Mapping[str, Mapping[str, Found]]]) -> str:
    """The file for what was found by task, misconception and case. One line for each
    misconception."""
    every = [one for wrongs in found.values() for row in wrongs.values() for one in row.values()]
    ends = sorted({one.end for one in every if isinstance(one.end, End)})
    numbers: dict[End | int, int] = {end: index for index, end in enumerate(ends, start=1)}
    numbers |= {PASSED: PASSED, UNKNOWN: UNKNOWN}
    tasks = []
    for task, wrongs in found.items():
        cases = list(next(iter(wrongs.values())))
        rows = [
            f"   {json.dumps(name)}: {json.dumps([numbers[row[case].end] for case in cases])}"
            for name, row in wrongs.items()
        ]
        shown = ",\n   ".join(map(json.dumps, cases))
        inside = ",\n".join(rows)
        vary = {name: [case for case in cases if row[case].varies] for name, row in wrongs.items()}
        varies = {name: those for name, those in vary.items() if those}
        tasks.append(
            f' {json.dumps(task)}: {{"cases": [\n   {shown}],\n  "numbers": {{\n{inside}}},\n'
            f'  "varies": {json.dumps(varies)}}}'
        )
    lines = ",\n ".join(msgspec.json.encode(end).decode() for end in ends)
    head = f'{{"state": {json.dumps(state_of(lab))},\n"libraries": {json.dumps(libraries())},\n'
    return f'{head}"ends": [\n {lines}],\n"tasks": {{\n' + ",\n".join(tasks) + "}}\n"
