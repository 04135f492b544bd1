"""Of a table of marks, the labs that differ from an earlier export: what a large class uploads."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from grader.classroom.course import text_file
from grader.classroom.export.mark_sheet import MarkSheet
from grader.errors import LabError

MOST_BYTES = 64 * 2**20
_KEYS = ("id", "SIS User ID", "ID number")
"""The column of each kind of table that names its student alone."""
Columns = dict[str, dict[str, str]]


def since(path: Path, sheet: MarkSheet, made: Callable[[MarkSheet], str]) -> MarkSheet:
    """The sheet with those labs alone whose columns differ from the table in that file, which
    `made` wrote earlier. Raises LabError for a file that is not such a table."""
    before = _columns(text_file.read(path, MOST_BYTES), str(path))
    fixed = set(_columns(made(replace(sheet, labs=())), "the table"))
    fixed -= {"percent"}
    if not fixed <= set(before):
        raise LabError(f"{path} is not an export of the same kind: it has other columns.")
    labs = []
    for lab in sheet.labs:
        now = _columns(made(replace(sheet, labs=(lab,))), "the table")
        mine = {name: cells for name, cells in now.items() if name not in {*fixed, "percent"}}
        if any(before.get(name) != cells for name, cells in mine.items()):
            labs.append(lab)
    return replace(sheet, labs=tuple(labs), is_part=True)


def _columns(text: str, where: str) -> Columns:
    """Each column's cells by the student's id."""
    try:
        rows = list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise LabError(f"{where} is not CSV: {error}.") from None
    header = rows[0] if rows else []
    key = next((header.index(name) for name in _KEYS if name in header), None)
    if key is None or any(len(row) != len(header) for row in rows):
        raise LabError(f"{where} is not a table of marks as `infralens export` writes it.")
    return {name: {row[key]: row[place] for row in rows[1:]} for place, name in enumerate(header)}
