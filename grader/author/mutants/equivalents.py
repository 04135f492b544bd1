"""`tests/labNN/equivalent.toml`: survivors that a person has judged, each with the reason.

An entry names the line as it stands in the reference and what mutants make of it, both stripped of
their indent, so that it holds wherever the line moves to:

    [[fits_where]]
    line = "first = max(1, ceil_div(sharded, gpu_bytes - whole))"
    mutants = ["first = max(0, ceil_div(sharded, gpu_bytes - whole))"]
    reason = "..."
    kind = "equivalent"

A change of several lines is written as a text of several lines.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.author.mutants.candidates import Mutant
from grader.errors import LabError
from grader.lab import toml_file
from grader.lab.manifest import Lab

FILE = "equivalent.toml"
KINDS = ("equivalent", "arguable")
_KEYS = {"line", "mutants", "reason", "kind"}


@dataclass(frozen=True)
class Judged:
    """One mutant that may survive. `kind`: "equivalent" if no caller can tell it from the
    reference, "arguable" if one can, but no clause of the contract decides."""

    task: str
    line: str
    new: str
    reason: str
    kind: str

    @property
    def key(self) -> str:
        """That of the mutant."""
        return f"{self.line}\0{self.new}"


def path_of(lab: Lab) -> Path:
    return lab.suite / FILE


def judged(lab: Lab) -> list[Judged]:
    """What a lab's file lists; nothing if it has none. LabError for what cannot be read so."""
    path = path_of(lab)
    if not path.is_file():
        return []
    found: dict[tuple[str, str], Judged] = {}
    for task, rows in toml_file.read(path).items():
        try:
            lab.task(task)
        except LabError as error:
            raise LabError(f"{path}: {error}") from None
        for number, row in enumerate(rows if isinstance(rows, list) else [rows], start=1):
            for entry in _entries(f"{path}: `{task}`, entry {number}", task, row):
                if (entry.task, entry.key) in found:
                    raise LabError(f"{path}: `{task}`, entry {number}: it stands there twice.")
                found[entry.task, entry.key] = entry
    return list(found.values())


def _entries(where: str, task: str, row: Any) -> Iterator[Judged]:
    if not isinstance(row, dict) or set(row) != _KEYS:
        raise LabError(f"{where}: write {', '.join(sorted(_KEYS))} under [[{task}]], and no more.")
    line, mutants, reason, kind = row["line"], row["mutants"], row["reason"], row["kind"]
    if not isinstance(line, str) or not isinstance(reason, str):
        raise LabError(f"{where}: write the line and the reason as texts.")
    if len(reason.split()) < 3:
        raise LabError(f"{where}: the reason is {reason!r}; say why no test refuses this.")
    if kind not in KINDS:
        raise LabError(f"{where}: kind is {kind!r}; write one of {', '.join(KINDS)}.")
    if not isinstance(mutants, list) or not mutants:
        raise LabError(f"{where}: mutants is {mutants!r}; list at least one.")
    for new in mutants:
        if not isinstance(new, str):
            raise LabError(f"{where}: a mutant is {new!r}; write the changed line as a text.")
        yield Judged(task, stripped(line), stripped(new), reason, kind)


def stripped(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip("\n").split("\n"))


def stubs(mutants: Sequence[Mutant]) -> str:
    """Entries for survivors, ready but for the reason and the kind."""
    rows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for mutant in mutants:
        known = rows[mutant.task, mutant.line]
        if mutant.new not in known:
            known.append(mutant.new)
    return "\n".join(_stub(task, line, new) for (task, line), new in rows.items())


def _stub(task: str, line: str, mutants: list[str]) -> str:
    listed = "".join(f"    {_toml(new)},\n" for new in mutants)
    return (
        f"[[{task}]]\nline = {_toml(line)}\nmutants = [\n{listed}]\n"
        'reason = ""\nkind = "equivalent"\n'
    )


def _toml(text: str) -> str:
    if "\n" in text and "'''" not in text:
        return f"'''\n{text}'''"
    if '"' in text and "'" not in text and "\n" not in text:
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False)
