"""Fingerprints from the trusted side, which never tokenizes: a process for each author does it.

The process is a worker of the tier at which submissions are graded. It gives up what it does not
need, gets one file after another, and answers with arrays. If a file makes it crash, take too much
or answer with anything else, that costs this file; a fresh process reads the author's next one. If
no process can be started, that is the kit's fault (`Infrastructure`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from grader import classroom
from grader.classroom.intake import archives
from grader.classroom.intake.reading_processes import TRIES, ReadingProcesses
from grader.classroom.similarity import fingerprints, source_text, tokens
from grader.classroom.similarity.fingerprints import FilePrint
from grader.classroom.similarity.source_text import NotCompared
from grader.errors import (
    CallError,
    Crashed,
    Infrastructure,
    OverLimit,
    RemoteError,
    StudentError,
    Timeout,
    WallFailed,
)
from grader.sandbox.backends import Backend
from grader.sandbox.server import CodeSpec

SECONDS = 20.0
MEMORY_BYTES = 512 * 2**20
_INSIDE = """
from grader.classroom.intake import archives
from grader.classroom.similarity import tokens

def confine(_, *arguments):
    archives.confine(*arguments)

def answer(_, data, lexer):
    return tokens.answer(data, lexer)
"""
_KIT = CodeSpec(Path(__file__).parent, (), (), probes=_INSIDE, probes_name="fingerprints")

Prints = dict[str, FilePrint | NotCompared]


class FingerprintReader:
    """Makes fingerprints at a tier, `sandbox` or `process`. `hidden`: paths that a reading process
    must not see. A context manager."""

    def __init__(self, tier: str, hidden: Iterable[Path] = ()) -> None:
        if find_spec("copydetect") is None:
            raise CallError(
                "copydetect, which makes the fingerprints, is not installed: "
                "type pip install -e '.[classroom]'."
            )
        self._processes = ReadingProcesses(
            tier,
            "makes fingerprints",
            SECONDS,
            MEMORY_BYTES,
            preload=[archives.__name__, f"{tokens.__name__}:preload"],
            shown=[
                Path(classroom.__file__),
                Path(archives.__file__).parent,
                Path(__file__).parent,
            ],
            hidden=hidden,
        )

    def read(self, files: Mapping[str, bytes]) -> Prints:
        """The fingerprints of one author's files, or why a file has none. Raises `Infrastructure`
        where no process can be had."""
        backend: Backend | None = None
        found: Prints = {}
        try:
            for name, data in sorted(files.items()):
                lexer = source_text.lexer_of(name)
                try:
                    source_text.text_of(data)
                    backend = backend or self._confined(len(files))
                    answer = self._processes.answer(backend, data, lexer)
                    found[name] = fingerprints.checked(name, lexer, data, answer)
                except NotCompared as error:
                    found[name] = error
                except (RemoteError, fingerprints.Malformed) as error:
                    found[name] = NotCompared(_fault(error))
                    if backend is not None:
                        backend.close()
                    backend = None
        finally:
            if backend is not None:
                backend.close()
        return found

    def close(self) -> None:
        self._processes.close()

    def __enter__(self) -> FingerprintReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _confined(self, files: int) -> Backend:
        """A process that holds nothing of any submission yet: a failure is the kit's."""
        for left in reversed(range(TRIES)):
            try:
                return self._processes.started(_KIT, files * SECONDS)
            except WallFailed as error:
                self.close()
                if not left:
                    raise Infrastructure(str(error)) from error
        raise AssertionError


def _fault(error: Exception) -> str:
    """How the process that read a file failed, as the file's fault."""
    if isinstance(error, Timeout):
        return "takes too long to tokenize"
    if isinstance(error, OverLimit) or (
        isinstance(error, StudentError) and "MemoryError" in error.bases
    ):
        return f"needs more memory than {MEMORY_BYTES // 2**20} MiB to tokenize"
    if isinstance(error, StudentError) and "RecursionError" in error.bases:
        return "is nested too deeply to tokenize"
    if isinstance(error, Crashed):
        return "ended the process that tokenized it"
    return "could not be tokenized"
