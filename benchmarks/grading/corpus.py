"""Submissions with realistic mistakes, made from a lab's reference and its known misconceptions.

Each one is the reference with some tasks still to do and 0 to 5 tasks solved in a known wrong way;
some print, and one in fifty does not parse. The same seed gives the same files.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import random
import re
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path

from grader import skeleton
from grader.labs import Lab, load_lab
from grader.suite.model import Misconception, load_suite

SEED = 20260
MISTAKES = (0, 1, 1, 2, 2, 3, 3, 4, 5)
NOT_STARTED = (0, 0, 0, 0, 1, 1, 2, 3)
BROKEN_EVERY = 50
PRINTS = 0.25
_MARKER = re.compile(r"^\s*# (BEGIN|END) SOLUTION\b.*\n", re.MULTILINE)
_COLON = re.compile(r"^def \w+\(.*:$", re.MULTILINE)


class CorpusError(Exception):
    """The corpus is not what it should be; the text says in which respect."""


@dataclass
class Plan:
    """What was done to one submission."""

    student: str
    mistakes: list[str]
    not_started: list[str]
    prints: bool
    broken: bool


@dataclass
class Corpus:
    """A folder of submissions of one lab (`students/<student>/<lab>/<files>`)."""

    lab: str
    students: Path
    plans: list[Plan]

    def files(self) -> list[Path]:
        return sorted(path for path in self.students.glob(f"*/{self.lab}/*") if path.is_file())


def make(root: Path, lab_id: str, folder: Path, count: int) -> Corpus:
    """Write `count` submissions of a lab of one edited Python file, and check them."""
    lab = load_lab(root, lab_id)
    if len(lab.edit) != 1 or not lab.edit[0].endswith(".py"):
        raise CorpusError(f"{lab_id} edits {lab.edit}; a corpus is made of one Python file.")
    wrongs = _misconceptions(lab)
    students = folder / "students"
    plans = []
    for number in range(count):
        plan, text = _submission(lab, wrongs, number)
        place = students / plan.student / lab_id
        place.mkdir(parents=True)
        (place / lab.edit[0]).write_text(text, encoding="utf-8")
        plans.append(plan)
    rows = [asdict(plan) for plan in plans]
    (folder / "plan.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    made = Corpus(lab_id, students, plans)
    check(made, count)
    return made


def check(corpus: Corpus, count: int) -> None:
    """CorpusError unless there are `count` files, all distinct, of which exactly those parse that
    should."""
    files = corpus.files()
    if len(files) != count:
        raise CorpusError(f"{corpus.students} holds {len(files)} files, not {count}.")
    digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    if len(digests) != count:
        raise CorpusError(f"only {len(digests)} of {count} files are distinct.")
    for plan, path in zip(corpus.plans, files, strict=True):
        if plan.student != path.parts[-3] or plan.broken == _parses(path):
            raise CorpusError(f"{path} is not what was planned: {plan}.")


def contents(corpus: Corpus) -> int:
    """How many files differ in more than the first line, which names the student."""
    return len({path.read_text("utf-8").partition("\n")[2] for path in corpus.files()})


def _parses(path: Path) -> bool:
    try:
        compile(path.read_text("utf-8"), path.name, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _misconceptions(lab: Lab) -> dict[str, list[Misconception]]:
    suite = load_suite(lab)
    found = {task.id: suite.misconceptions_of(task.id) for task in lab.tasks}
    return {task: [w for w in rows if w.file is None] for task, rows in found.items() if rows}


def _submission(lab: Lab, wrongs: dict[str, list[Misconception]], number: int) -> tuple[Plan, str]:
    rng = random.Random(f"{SEED}/{lab.id}/{number}")
    tasks = [task.id for task in lab.tasks]
    # Learners work from the top, so what is left undone is near the end.
    undone = rng.choice(NOT_STARTED) if len(tasks) > 3 else rng.choice((0, 0, 0, 0, 0, 1))
    not_started = sorted(rng.sample(tasks[len(tasks) // 2 :], min(undone, len(tasks) // 2 or 1)))
    chosen = _chosen(rng, {t: w for t, w in wrongs.items() if t not in not_started})
    prints, broken = rng.random() < PRINTS, number % BROKEN_EVERY == BROKEN_EVERY // 2
    student = f"s{number:04d}"
    parts = [f"# Handed in by {student}\n", _solved_but(lab, not_started)]
    parts += [spliced(wrong, prints and not index) for index, wrong in enumerate(chosen)]
    if prints:
        parts.append(f'\n\nprint("{student}: loaded", sorted(globals())[:3])\n')
    text = "".join(parts)
    if broken:
        text = _without_colon(text, rng)
    names = [wrong.name for wrong in chosen]
    return Plan(student, names, not_started, prints, broken), text


def _chosen(rng: random.Random, wrongs: dict[str, list[Misconception]]) -> list[Misconception]:
    """Misconceptions of different tasks, no two of which replace the same name."""
    chosen: list[Misconception] = []
    for task in rng.sample(sorted(wrongs), min(rng.choice(MISTAKES), len(wrongs))):
        wrong = rng.choice(wrongs[task])
        if wrong.replaces not in [other.replaces for other in chosen]:
            chosen.append(wrong)
    return chosen


def _solved_but(lab: Lab, not_started: list[str]) -> str:
    """The reference with the placeholders of those tasks, without the other blocks' markers."""
    name = lab.edit[0]
    text = (lab.solution / name).read_text(encoding="utf-8")
    return _MARKER.sub("", skeleton.undone(lab, name, text, not_started))


def spliced(wrong: Misconception, prints: bool = False) -> str:
    """Source that, at the end of a module, puts the misconception in its target's place. Its
    docstring, which gives the diagnosis away, is left out."""
    owner, _, name = wrong.replaces.rpartition(".")
    lines, _ = inspect.getsourcelines(inspect.unwrap(wrong.source))
    text = textwrap.dedent("".join(lines))
    rows, node = text.split("\n"), ast.parse(text).body[0]
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        raise CorpusError(f"misconception {wrong.name} is neither a function nor a class.")
    kept = [f"@{ast.unparse(d)}" for d in node.decorator_list if "misconception" not in _call(d)]
    first = node.body[0]
    said = [f'{" " * first.col_offset}print("in {name}")'] if prints and not owner else []
    if ast.get_docstring(node) is not None and len(node.body) > 1:
        rows[first.lineno - 1 : first.end_lineno] = said
    body = rows[node.lineno - 1 :]
    body[0] = re.sub(rf"\b{node.name}\b", name, body[0], count=1)
    source = "\n".join([*kept, *body]).rstrip() + "\n"
    if not owner:
        return f"\n\n{source}"
    # In a method, `super()` looks for `__class__` around it.
    inner = textwrap.indent(f"{source}\nreturn {name}\n", "    ")
    return f"\n\ndef _corrected(__class__):\n{inner}\n\n{owner}.{name} = _corrected({owner})\n"


def _call(decorator: ast.expr) -> str:
    return ast.unparse(decorator).partition("(")[0]


def _without_colon(text: str, rng: random.Random) -> str:
    """The text with one function's colon forgotten."""
    found = list(_COLON.finditer(text))
    if not found:
        raise CorpusError("there is no one-line `def` whose colon could be forgotten.")
    end = rng.choice(found).end()
    return text[: end - 1] + text[end:]
