"""What the kit itself ships for a lab: nobody's own work, wherever it stands in a submission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from grader.classroom.similarity import source_text
from grader.classroom.similarity.fingerprint_reader import FingerprintReader
from grader.classroom.similarity.fingerprints import FilePrint, Hashes
from grader.errors import Infrastructure
from grader.lab.manifest import Lab


def kit_files(lab: Lab) -> list[Path]:
    """The lab's skeleton and given files, its reference, and every variant of it, as far as this
    checkout has them."""
    folders = [lab.solution, *sorted((lab.suite / "variants").glob("*"))]
    found = [lab.exercise / name for name in (*lab.edit, *lab.given)]
    found += [folder / name for folder in folders for name in lab.edit]
    return [path for path in found if path.is_file()]


def boilerplate(files: Sequence[Path], reader: FingerprintReader) -> Mapping[str, Hashes]:
    """The fingerprints of the kit's files, by lexer, sorted. A file that is larger than a
    submission's may be is left out."""
    found: dict[str, list[Hashes]] = {}
    for path in files:
        (printed,) = reader.read({path.name: path.read_bytes()}).values()
        if isinstance(printed, FilePrint):
            found.setdefault(printed.lexer, []).append(printed.hashes)
        elif path.stat().st_size <= source_text.MAX_TEXT_BYTES and path.read_bytes().strip():
            raise Infrastructure(f"{path} of the kit {printed.reason}")
    return {lexer: np.unique(np.concatenate(hashes)) for lexer, hashes in found.items()}
