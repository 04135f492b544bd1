"""Whether every clause of a task's contract has its test.

`tests/labNN/clauses.toml` lists the clauses of each task: an id, and the words of the contract that
it quotes. A test says which it holds: `@task("running_mean", holds=("empty",))`.

    [running_mean]
    empty = "`[]` gives `[]`"
    _explains = ["Source: the definition of the mean."]

The contract of a task is the docstring of its function, or of its class and the class's public
methods; in a `.cu` file the comment above its kernel; in other files every comment of the skeleton.
Each of its sentences is quoted by a clause, or stands under `_explains`: it promises nothing that
a test could hold. A clause may also quote the page, a signature or a given file.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.errors import LabError
from grader.lab import skeleton
from grader.lab.manifest import Lab, Task
from grader.suite import splice
from grader.suite.model import Suite, Test

EXPLAINS = "_explains"
_NAME = "clauses.toml"
_MARKS = re.compile(r"^[ \t]*(?:#+|//+|\*|>|<!--)?[ \t]?(.*?)[ \t]*(?:-->)?$")
_ENDS = re.compile(
    r"""(?<=[.?!])\s+(?=[A-Z`"'(*_-])"""  # a sentence
    r"""|\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)"""  # a paragraph, an item
    # "name: what it is", each in a line of its own
    r"""|(?<=[.:;)])\n(?=\s*[`"']?[\w.]+[`"']?(?:, [`"']?\w+[`"']?)*(?::|  )\s*\S)"""
)
_KERNEL = r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?{name}\s*\("


@dataclass(frozen=True)
class Clauses:
    """The clauses of one task: words by id; and sentences that promise nothing."""

    task: str
    words: dict[str, str]
    explains: tuple[str, ...]


@dataclass(frozen=True)
class ClausesFound:
    """What was found about a lab's clauses. `number`: how many there are, None if nobody has
    listed them."""

    number: int | None
    faults: list[str]


def check_clauses(suite: Suite) -> ClausesFound:
    """Every clause without a scored test, every sentence without a clause, and every quote that
    stands nowhere. LabError for a file that cannot be read."""
    known = read_clauses(suite.lab)
    tests = list({(case.test.task, case.test.name): case.test for case in suite.cases}.values())
    if known is None:
        where = f"tests/{suite.lab.id}/{_NAME}"
        text = f"holds clauses, but {where} is missing."
        claims = [f"{test.name} {text}" for test in tests if test.holds]
        return ClausesFound(None, claims)
    faults = list(_of_tests(known, tests))
    for task in suite.lab.tasks:
        faults += _of_task(suite.lab, task, known.get(task.id, Clauses(task.id, {}, ())), tests)
    return ClausesFound(sum(len(row.words) for row in known.values()), faults)


def read_clauses(lab: Lab) -> dict[str, Clauses] | None:
    """The clauses of a lab by task; None without a file."""
    path = lab.suite / _NAME
    if not path.is_file():
        return None
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LabError(f"{path}: {error}.") from None
    found = {}
    for name, rows in data.items():
        try:
            lab.task(name)
        except LabError as error:
            raise LabError(f"{path}: {error}") from None
        explains = rows.pop(EXPLAINS, []) if isinstance(rows, dict) else None
        texts = [*rows.values(), *explains] if isinstance(explains, list) else [None]
        if not all(isinstance(text, str) and text.strip() for text in texts):
            raise LabError(
                f'{path}: under [{name}] stand lines `id = "words of the contract"`, and '
                f"`{EXPLAINS}` is a list of sentences."
            )
        found[name] = Clauses(name, rows, tuple(explains or ()))
    return found


def _of_tests(known: dict[str, Clauses], tests: Sequence[Test]) -> Iterator[str]:
    """A test holds clauses of its tasks; one of several tasks, a clause of any of them."""
    for name in sorted({test.name for test in tests}):
        same = [test for test in tests if test.name == name]
        there = {word for test in same for word in getattr(known.get(test.task), "words", {})}
        for clause in dict.fromkeys(clause for test in same for clause in test.holds):
            if clause not in there:
                tasks = ", ".join(f"`{test.task}`" for test in same)
                yield f"{name} holds {clause!r}, which is not a clause of {tasks}."


def _of_task(lab: Lab, task: Task, clauses: Clauses, tests: Sequence[Test]) -> Iterator[str]:
    where = f"task `{task.id}`"
    held = {name for test in tests if test.task == task.id and test.scored for name in test.holds}
    for name, words in clauses.words.items():
        if name not in held:
            yield f'{where}: no scored test holds the clause {name!r} ("{_plain(words)}").'
    texts = contract(lab, task)
    everywhere = "\n".join([*texts, *_beside(lab, task)])
    plain = _plain(everywhere)
    for name, words in clauses.words.items():
        if _plain(words) not in plain:
            yield (
                f'{where}: the clause {name!r} quotes "{_plain(words)}", which stands neither in '
                f"{task.file} nor in a given file nor on the page."
            )
    own = [_plain(text) for text in texts]
    for sentence in clauses.explains:
        if not any(_plain(sentence) in text for text in own):
            said = _plain(sentence)
            yield f'{where}: `{EXPLAINS}` quotes "{said}", which the contract does not say.'
    quotes = [_plain(words) for words in (*clauses.words.values(), *clauses.explains)]
    for text in texts:
        for sentence in unquoted(text, quotes):
            yield f'{where}: no clause quotes "{sentence.lstrip("- ")}" of its contract.'


def contract(lab: Lab, task: Task) -> list[str]:
    """The texts that say what a task's answer must do, without marks of comments."""
    text = skeleton.skeleton(lab, task.file)
    suffix = Path(task.file).suffix
    if suffix == ".py":
        node = splice.definition(text, task.id)
        if node is None:
            return []
        nodes = [node]
        if isinstance(node, ast.ClassDef):
            nodes += [part for part in node.body if isinstance(part, splice.Definition)]
        shown = [part for part in nodes if not part.name.startswith("_") or part.name == "__init__"]
        return [ast.get_docstring(part) or "" for part in shown]
    if suffix == ".cu":
        return [_comment_above(text, task.id)]
    lines = text.split("\n")
    if suffix != ".md":
        lines = [line for line in lines if line.lstrip().startswith("#") and line[:2] != "#!"]
    return [_unmarked("\n".join(line for line in lines if task.name not in line))]


def _comment_above(text: str, name: str) -> str:
    """The comment above a kernel, without its marks."""
    found = re.search(_KERNEL.format(name=re.escape(name)), text)
    above = text[: found.start()].split("\n")[:-1] if found else []
    rows: list[str] = []
    while above and above[-1].lstrip().startswith("//"):
        rows.insert(0, above.pop())
    return _unmarked("\n".join(rows))


def _beside(lab: Lab, task: Task) -> Iterator[str]:
    """What else a clause may quote: the whole skeleton, given files, the page."""
    yield _unmarked(skeleton.skeleton(lab, task.file))
    for path in (*map(lab.given_source, lab.given), lab.exercise / "README.md"):
        if path.is_file():
            yield _unmarked(path.read_text(encoding="utf-8", errors="replace"))


def _unmarked(text: str) -> str:
    return "\n".join(_MARKS.sub(r"\1", line) for line in text.split("\n"))


def _plain(text: str) -> str:
    return " ".join(text.split())


def unquoted(text: str, quotes: Sequence[str]) -> Iterator[str]:
    """The sentences of a text that share no word with what is quoted of it. A sentence of fewer
    than two words is not one."""
    plain = _plain(text)
    ranges = []
    for quote in quotes:
        ranges += [(m.start(), m.end()) for m in re.finditer(re.escape(quote), plain)]
    position = 0
    for sentence in map(_plain, _ENDS.split(text)):
        begin = plain.find(sentence, position)
        position = begin + len(sentence)
        if len(re.findall(r"\w+", sentence)) < 2 or sentence.startswith(">>>"):
            continue
        if not any(start < position and begin < end for start, end in ranges):
            yield sentence
