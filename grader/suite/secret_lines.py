"""What of a lab may not be handed out: the lines of its reference's blocks, of its misconceptions,
and of the tests that are not public.

Lines are compared as words and signs, so that neither indentation nor a comment behind them hides
one. `tests/labNN/not_secret.toml` lists the lines that may stand in a file all the same, each group
with its reason.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.errors import LabError
from grader.lab import skeleton, toml_file
from grader.lab.handed_out import Tests
from grader.lab.manifest import Lab
from grader.suite.line_index import LineIndex, Words, words_of
from grader.suite.reachable import PUBLISHED, Closure

SHORTEST = 20  # characters of a line, without what stands around it
ALLOWED = "not_secret.toml"
REFERENCE, MISCONCEPTION, TEST, VALUE = (
    "reference",
    "misconception",
    "hidden test",
    "expected value",
)
_RULE = re.compile(r"(#|//) *[-=]{2,}")
_TRAILING = {"#": re.compile(r"\s+#\s.*$"), "//": re.compile(r"\s+//\s.*$")}
_FEWEST_DIGITS = 7  # of a published figure: a shorter one stands in pages by chance


@dataclass(frozen=True)
class SecretLine:
    """A line that may not be handed out, and where it stands in the kit."""

    lab: str
    kind: str
    text: str
    place: str
    words: Words


def of_reference(lab: Lab) -> Iterator[SecretLine]:
    """The lines of the marked blocks."""
    for name in lab.edit:
        path = lab.solution / name
        rows = path.read_text(encoding="utf-8").split("\n")
        for block in skeleton.blocks(path):
            numbers = range(block.first + 1, block.last)
            yield from _secrets(lab, REFERENCE, path, rows, numbers)


def of_misconceptions(lab: Lab, sentences_too: bool) -> Iterator[SecretLine]:
    """The lines of wrong answers; with their sentences, unless these are handed out."""
    for path in sorted((lab.suite / "misconceptions").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        rows = text.split("\n")
        said = set() if sentences_too else set(_lines_of_sentences(ast.parse(text)))
        numbers = [n for n in range(1, len(rows) + 1) if n not in said]
        yield from _secrets(lab, MISCONCEPTION, path, rows, numbers)


def _lines_of_sentences(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        first: ast.AST | None = None
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and node.body:
            body = node.body[0]
            first = body.value if isinstance(body, ast.Expr) else None
        elif isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Name):
            first = node.args[0] if node.func.id in ("lines", "block") else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def of_hidden_tests(lab: Lab, handed_out: Closure) -> Iterator[SecretLine]:
    """The lines of a suite that are not handed out, and the figures that hidden tests expect."""
    for name, module in handed_out.modules.items():
        reached = handed_out.lines_of(name)
        imports = _lines_of_imports(ast.parse(module.text))
        rows = module.lines
        numbers = [
            n
            for n in range(1, len(rows) + 1)
            if n not in reached | imports and not _RULE.match(rows[n - 1].strip())
        ]
        yield from _secrets(lab, TEST, module.path, rows, numbers)
    yield from _hidden_values(lab, handed_out)


def not_shown(secrets: Sequence[SecretLine], texts: Iterable[str]) -> list[SecretLine]:
    """The secrets without those lines of tests and misconceptions that stand in the parts of suites
    that are handed out: the manifests say that these are public."""
    index = LineIndex((each.words, each) for each in secrets if each.kind in (TEST, MISCONCEPTION))
    shown = {secret.words for text in texts for secret, _ in index.found_in(text)}
    return [each for each in secrets if each.words not in shown or each.kind == REFERENCE]


def _lines_of_imports(tree: ast.Module) -> set[int]:
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def _hidden_values(lab: Lab, handed_out: Closure) -> Iterator[SecretLine]:
    path = lab.suite / PUBLISHED
    if not path.is_file():
        return
    shown = {row["id"] for row in json.loads(handed_out.published())}
    for row in json.loads(path.read_text(encoding="utf-8")):
        for value in _numbers(row["expected"]) if row["id"] not in shown else ():
            place = f"tests/{lab.id}/{PUBLISHED} ({row['id']})"
            yield SecretLine(lab.id, VALUE, value, place, (value,))


def _numbers(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _numbers(each)
    elif isinstance(value, int) and len(str(abs(value)).rstrip("0")) >= _FEWEST_DIGITS:
        yield str(abs(value))


def _secrets(
    lab: Lab, kind: str, path: Path, rows: list[str], numbers: range | list[int]
) -> Iterator[SecretLine]:
    for number in numbers:
        text = rows[number - 1].strip()
        place = f"{lab.shown(path)}:{number}"
        for form in dict.fromkeys([text, _without_comment(text, path.suffix)]):
            if len(form) >= SHORTEST and (words := words_of(form)):
                yield SecretLine(lab.id, kind, text, place, words)


def _without_comment(text: str, suffix: str) -> str:
    if suffix == ".py":
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        except (tokenize.TokenError, SyntaxError):
            return _TRAILING["#"].sub("", text) if text.count('"') % 2 == 0 else text
        at = next((token.start[1] for token in tokens if token.type == tokenize.COMMENT), None)
        return text if not at else text[:at].rstrip()
    sign = "//" if suffix == ".cu" else "#"
    return _TRAILING[sign].sub("", text) if suffix in (".cu", ".sh", ".yaml") else text


def not_common(root: Path, labs: Sequence[Lab], secrets: Sequence[SecretLine]) -> list[SecretLine]:
    """The secrets without those lines of tests and misconceptions that were also written elsewhere
    for another end: in another lab's suite, in a file that learners get, in the package `grader`.
    They give nothing away; a line of a reference still may."""
    index = LineIndex((each.words, each) for each in secrets if each.kind in (TEST, MISCONCEPTION))
    common: set[tuple[str, Words]] = set()
    for lab in labs:
        others = [each.id for each in labs if each.id != lab.id]
        common |= _found(index, sorted(lab.suite.rglob("*.py")), others)
    for paths in _written_for_learners(root, labs):
        common |= _found(index, paths, [each.id for each in labs])
    return [
        each for each in secrets if each.kind == REFERENCE or (each.lab, each.words) not in common
    ]


def _written_for_learners(root: Path, labs: Sequence[Lab]) -> Iterator[list[Path]]:
    yield sorted((root / "grader").rglob("*.py"))
    for lab in labs:
        code = [name for name in (*lab.edit, *lab.given) if name.endswith((".py", ".cu"))]
        yield [lab.exercise / name for name in code]


def _found(
    index: LineIndex[SecretLine], paths: Iterable[Path], of_labs: Iterable[str]
) -> set[tuple[str, Words]]:
    """The lines that stand in some files, for each of the labs that they are common for."""
    words: set[Words] = set()
    for path in paths:
        text = path.read_text(encoding="utf-8", errors="replace")
        words.update(secret.words for secret, _ in index.found_in(text))
    return {(lab, each) for lab in of_labs for each in words}


# -- what may stand in a file all the same ---------------------------------------------------------


class NotSecret:
    """The lines of `not_secret.toml`: each with the files that it may stand in. A group with
    `tests = "all"` counts only where whole suites are handed out."""

    def __init__(self, lab: Lab, tests: Tests) -> None:
        self.path = lab.suite / ALLOWED
        self.places: dict[Words, set[str]] = defaultdict(set)
        rows = toml_file.read(self.path).get("shown", []) if self.path.is_file() else []
        for row in rows:
            if row.get("tests", tests) == tests:
                self._add(row)

    def _add(self, row: dict[str, Any]) -> None:
        for key in ("why", "in", "lines"):
            if not row.get(key):
                raise LabError(f"{self.path}: a [[shown]] has no `{key}`; write it.")
        if unknown := sorted(set(row) - {"why", "in", "lines", "tests"}):
            raise LabError(f"{self.path}: a [[shown]] has unknown keys {unknown}.")
        for line in row["lines"]:
            for form in (line, *(sign.sub("", line) for sign in _TRAILING.values())):
                self.places[words_of(form)].update(row["in"])

    def allows(self, words: Words, file: str) -> bool:
        return any(
            file == place or (place.endswith("/") and file.startswith(place))
            for place in self.places.get(words, ())
        )
