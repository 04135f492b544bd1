"""Nothing that decides a mark is in what is handed out: looks at the files as they were written, in
archives and in byte code, for every line that must not be there."""

from __future__ import annotations

import base64
import contextlib
import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.classroom.release import nested_files
from grader.classroom.release.byte_code import KnownCode, is_byte_code
from grader.classroom.release.nested_files import CannotLookInside
from grader.lab import handed_out
from grader.suite.line_index import LineIndex, Words
from grader.suite.secret_lines import VALUE, NotSecret, SecretLine

_FIGURE = re.compile(r"\d[\d,_]*")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{40,}\s*)+[A-Za-z0-9+/]*={0,2}")
_ESCAPED = re.compile(r"\\[\"'nrt\\]")
_ESCAPES = {"n": "\n", "r": "\n", "t": "\t"}


@dataclass(frozen=True)
class Leak:
    """A place in a release where something stands that must not."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.what}"


class LeakCheck:
    """Secret lines, ready to be looked for in many files."""

    def __init__(
        self, secrets: Sequence[SecretLine], allowed: Mapping[str, NotSecret], codes: KnownCode
    ) -> None:
        self.number = len(secrets)
        self._lines = LineIndex((each.words, each) for each in secrets if each.kind != VALUE)
        self._figures = {each.text: each for each in secrets if each.kind == VALUE}
        self._allowed = allowed
        self._codes = codes

    def leaks(self, files: Iterable[tuple[str, bytes]]) -> Iterator[Leak]:
        """Every leak in these files, in their order."""
        for name, data in files:
            try:
                for inner, content in nested_files.parts(name, data):
                    yield from self._in_file(inner, content)
            except CannotLookInside as error:
                yield Leak(name, 0, f"{error}; leave it out of what is handed out")

    def _in_file(self, name: str, data: bytes) -> Iterator[Leak]:
        inner = Path(name.rpartition("!")[2])
        if is_byte_code(data) or inner.suffix in (".pyc", ".pyo") or "__pycache__" in inner.parts:
            at = self._codes.found_in(data)
            of = f", with the code of the function at {at}" if at else ""
            yield Leak(name, 0, f"is Python's byte code{of}; a release holds none")
        elif at := self._codes.found_in(data):
            yield Leak(name, 0, f"holds the byte code of the function at {at}")
        seen: set[Words] = set()
        for text in _texts(data):
            for secret, line in self._in_text(text):
                if secret.words not in seen and not self._is_allowed(secret, name):
                    seen.add(secret.words)
                    yield Leak(name, line, f"{secret.text!r} is {_of(secret)}")

    def _is_allowed(self, secret: SecretLine, name: str) -> bool:
        head, _, rest = name.partition("/")
        file = f"exercises/{rest}" if head == handed_out.SKELETONS else name
        known = self._allowed.get(secret.lab)
        return known is not None and known.allows(secret.words, file)

    def _in_text(self, text: str) -> Iterator[tuple[SecretLine, int]]:
        for secret, at in self._lines.found_in(text):
            yield secret, text.count("\n", 0, at) + 1
        if self._figures:
            yield from self._figures_in(text)

    def _figures_in(self, text: str) -> Iterator[tuple[SecretLine, int]]:
        for match in _FIGURE.finditer(text):
            secret = self._figures.get(match[0].replace(",", "").replace("_", ""))
            if secret:
                yield secret, text.count("\n", 0, match.start()) + 1


def _of(secret: SecretLine) -> str:
    article = "an" if secret.kind == VALUE else "a" if secret.kind != "reference" else "the"
    noun = secret.kind if secret.kind in (VALUE, "hidden test") else f"{secret.kind}'s line"
    return f"{article} {noun} ({secret.place})"


def _texts(data: bytes) -> Iterator[str]:
    """A file's text, and what it says where it escapes signs (HTML, a notebook) or is in base64."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", "replace")
    elif data[:4000].count(b"\0") > len(data[:4000]) // 4:
        text = data.replace(b"\0", b"").decode("latin-1")
    else:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = data.decode("latin-1")
    yield text
    if "&" in text and (plain := html.unescape(text)) != text:
        yield plain
    for match in _BASE64.finditer(text):
        with contextlib.suppress(ValueError):
            yield base64.b64decode("".join(match[0].split())).decode("latin-1")
    if _ESCAPED.search(text):
        yield _ESCAPED.sub(lambda match: _ESCAPES.get(match[0][1], match[0][1]), text)
