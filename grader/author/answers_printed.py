"""How much of each task's answer a learner reads before solving it: on the page, in the docstring,
in the hints.

A line of a reference's block counts as printed if its expression stands there with other variables:
names, quotes and what an assignment or a `return` puts around it do not matter, called functions
and numbers do. Not counted are short lines, which say nothing alone, signatures, imports, comments,
what the learner is given as code or as the worked example, and what a page shows after its heading
*After you solved it*.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from grader.lab import lab_page, skeleton, task_hints
from grader.lab.manifest import Lab, Task, all_labs, lab_ids, load_lab

AFTERWARDS = "## After you solved it"
TASKS = "## Tasks"
WORDS_BEFORE_TASKS = 1500
LIMITS = {"core": 0.25, "hard": 0.10, "stretch": 0.10}
WORKED_EXAMPLE_POINTS = 2

_FEWEST_TOKENS = 5
_FEWEST_OPERANDS = 2
_TOKEN = re.compile(
    r"""[A-Za-z_]\w*(?:(?:\.|->|::)[A-Za-z_]\w*)*   # a name, with what it belongs to
    |0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?|"[^"\n]*"|'[^'\n]*'
    |\*\*|//|<<|>>|<=|>=|==|!=|&&|\|\||[^\s\w`]""",
    re.VERBOSE,
)
_WORDS = {"and", "or", "not", "in", "is", "if", "else", "for", "lambda", "None", "True", "False"}
_TIMES = re.compile(r"(?<=[\w)\]]) x (?=[\w(])")  # as pages write products
_NOT_AN_ANSWER = (
    *("#", "//", "<!--", "import ", "from ", "def ", "async def ", "class ", "@"),
    *("template", "extern", "__global__", "__device__", "__shared__"),
)
_COMMENT = re.compile(r"\s+(#|//) .*$")
_LEADING = re.compile(
    r"^(return|yield|elif|if|while|raise|const|int|float|unsigned|auto|size_t|for .*? in)\s+"
)
_TARGET = re.compile(r"^[\w.\[\], *:]+?\s*(?:[-+*/|&^]|//|\*\*|<<|>>)?=(?!=)\s*")


@dataclass(frozen=True)
class TaskShare:
    """A task's lines, and which of them are printed where."""

    task: Task
    lines: tuple[str, ...]
    page: frozenset[str]
    docstring: frozenset[str]
    hints: frozenset[str]
    is_worked_example: bool = False

    @property
    def printed(self) -> frozenset[str]:
        return self.page | self.docstring | self.hints

    def share(self, lines: frozenset[str]) -> float:
        return sum(line in lines for line in self.lines) / len(self.lines) if self.lines else 0.0

    def where(self, line: str) -> str:
        places = {"page": self.page, "docstring": self.docstring, "hints": self.hints}
        return ", ".join(name for name, lines in places.items() if line in lines)

    @property
    def limit(self) -> float:
        return 1.0 if self.is_worked_example else LIMITS[self.task.tier]

    @property
    def is_over(self) -> bool:
        return self.share(self.printed) > self.limit


@dataclass(frozen=True)
class Page:
    """A lab's page, as far as a learner has read it when a task is solved."""

    lab: Lab

    @cached_property
    def _whole(self) -> str:
        return lab_page.text(self.lab)

    @property
    def text(self) -> str:
        return self._whole.partition(f"\n{AFTERWARDS}")[0]

    @property
    def is_cut(self) -> bool:
        """Whether it keeps what the tasks ask for to its end."""
        return f"\n{AFTERWARDS}" in self._whole

    @property
    def words_before_tasks(self) -> int:
        """Code in fences and the marks of tables apart."""
        before = self.text.partition(f"\n{TASKS}")[0]
        prose = re.sub(r"^```.*?^```", "", before, flags=re.DOTALL | re.MULTILINE)
        return sum(any(map(str.isalnum, word)) for word in prose.split())


def shares(lab: Lab) -> list[TaskShare]:
    """Every task of a lab with what is printed of it."""
    worked = worked_example(lab)
    known, texts = set(_known(lab, worked)), task_hints.read(lab)
    page = _sequences(_new_paragraphs(Page(lab).text, known))
    whole = _sequences(Page(lab).text.split("\n\n"))
    found = []
    for task in lab.tasks:
        lines = {
            line: tokens
            for line, tokens in _lines(lab, task)
            if task is worked or tokens not in known
        }
        docstring, hinted = _sequences(_contract(lab, task)), _sequences(texts[task.id])
        found.append(
            TaskShare(
                task,
                tuple(lines),
                _those_in(whole if task is worked else page, lines),
                _those_in(docstring, lines),
                _those_in(hinted, lines),
                is_worked_example=task is worked,
            )
        )
    return found


def _new_paragraphs(page: str, known: Set[str]) -> list[str]:
    """The paragraphs of a page without the lines of code that the learner has anyway: a part of
    such a line is not part of another answer."""
    lines = page.split("\n")
    return "\n".join(line for line in lines if _expression(line) not in known).split("\n\n")


def _those_in(text: str, lines: Mapping[str, str]) -> frozenset[str]:
    return frozenset(line for line, tokens in lines.items() if tokens in text)


def worked_example(lab: Lab) -> Task | None:
    """The task whose answer a page may print whole: the first core task, if it is small."""
    first = next((task for task in lab.tasks if task.tier == "core"), None)
    return first if first and first.points <= WORKED_EXAMPLE_POINTS else None


def faults(lab: Lab) -> Iterator[str]:
    """What is over its limit, a sentence each; nothing where a page has no *After you solved it*,
    so that nobody has cut it yet."""
    page = Page(lab)
    if not page.is_cut:
        return
    words = page.words_before_tasks
    if words > WORDS_BEFORE_TASKS:
        yield (
            f"exercises/{lab.id}/README.md has {words:,} words before its tasks; what one needs "
            f"before the first is at most {WORDS_BEFORE_TASKS:,}."
        )
    for found in shares(lab):
        if found.is_over:
            of = f"{sum(line in found.printed for line in found.lines)} of {len(found.lines)}"
            shown = "; ".join(f"`{line}`" for line in sorted(found.printed)[:3])
            yield (
                f"{found.task.name}: {of} lines of its answer are printed before one solves it "
                f"({found.task.tier}: at most {found.limit:.0%}), such as {shown}."
            )


def run(root: Path, wanted: Sequence[str], write: bool) -> int:
    """Print the shares of each task of some labs, or put those of all into the table."""
    if write:
        path = root / "benchmarks" / "results" / "pages.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(table(all_labs(root)), encoding="utf-8")
        print(f"table: {path.relative_to(root)}")
        return 0
    over = 0
    for lab in (load_lab(root, lab_id) for lab_id in wanted or lab_ids(root)):
        print(f"{lab.id}: {Page(lab).words_before_tasks:,} words before its tasks")
        for found in shares(lab):
            over += found.is_over
            print(_line(found))
            for line in found.lines:
                if line in found.printed:
                    print(f"    {line}  [{found.where(line)}]")
    return 1 if over else 0


def _line(found: TaskShare) -> str:
    printed = sum(line in found.printed for line in found.lines)
    limit = "worked example" if found.is_worked_example else f"at most {found.limit:.0%}"
    return (
        f"{found.task.name} ({found.task.tier}): {printed} of {len(found.lines)} lines printed "
        f"({limit}){': over' if found.is_over else ''}"
    )


def table(labs: Sequence[Lab]) -> str:
    """`benchmarks/results/pages.md`."""
    rows = [
        "# What pages print of their tasks' answers",
        "",
        "`infralens lint --printed`: of each task's lines in the reference, names of variables "
        "apart, the share that stands on the page (before *After you solved it*), in the docstring "
        "and in the hints. Short lines, signatures and given code are not counted. Limits: core "
        f"{LIMITS['core']:.0%}, hard and stretch {LIMITS['hard']:.0%}; a lab's first core task may "
        f"be its worked example if it is worth at most {WORKED_EXAMPLE_POINTS} points.",
        "",
        f"| lab | words before the tasks (at most {WORDS_BEFORE_TASKS:,}) | tasks over their limit "
        "| lines | printed |",
        "|---|---|---|---|---|",
    ]
    details = [
        "",
        "| task | tier | lines | page | docstring | hints | printed | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for lab in labs:
        found = shares(lab)
        lines = sum(len(task.lines) for task in found)
        printed = sum(line in task.printed for task in found for line in task.lines)
        over = sum(task.is_over for task in found)
        share = f"{printed / lines:.0%}" if lines else "-"
        rows.append(
            f"| {lab.id} | {Page(lab).words_before_tasks:,} | {over} of {len(found)} | {lines} "
            f"| {share} |"
        )
        details += map(_row, found)
    return "\n".join([*rows, *details, ""])


def _row(found: TaskShare) -> str:
    parts = (found.page, found.docstring, found.hints, found.printed)
    cells = [f"{found.share(part):.0%}" for part in parts] if found.lines else ["-"] * 4
    remark = "over" if found.is_over else "worked example" if found.is_worked_example else ""
    return (
        f"| {found.task.name} | {found.task.tier} | {len(found.lines)} | {' | '.join(cells)} "
        f"| {remark} |"
    )


# -- lines ----------------------------------------------------------------------------------------


def _lines(lab: Lab, task: Task) -> Iterator[tuple[str, str]]:
    """A task's lines that say something alone, and each as normalised tokens."""
    path = lab.solution / task.file
    text = path.read_text(encoding="utf-8").split("\n")
    for block in skeleton.blocks(path):
        if block.task == task.id:
            for line in text[block.first : block.last - 1]:
                if tokens := _expression(line):
                    yield line.strip(), tokens


def _known(lab: Lab, worked: Task | None) -> Iterator[str]:
    """The expressions of the code that a learner is given, and of the worked example."""
    given = filter(Path.is_file, map(lab.given_source, lab.given))
    texts = [path.read_text(encoding="utf-8") for path in given]
    texts += [skeleton.skeleton(lab, name) for name in lab.edit]
    for text in texts:
        yield from filter(None, map(_expression, text.split("\n")))
    if worked:
        yield from (tokens for _, tokens in _lines(lab, worked))


def _expression(line: str) -> str:
    """The expression of a line, normalised; empty for one that says nothing alone."""
    bare = line.strip()
    if not bare or bare.startswith(_NOT_AN_ANSWER):
        return ""
    bare = _COMMENT.sub("", bare).rstrip(" ,;:{\\")
    for _ in range(3):  # `else if (...)`, `const float x = ...`
        bare = _LEADING.sub("", bare)
    if bare.endswith(("(", "[")):  # the beginning of a call
        return ""
    bare = _TARGET.sub("", bare)
    if bare.startswith("(") and bare.endswith(")") and bare.count("(") == 1:  # `if (...) {`
        bare = bare[1:-1]
    tokens = _tokens(bare)
    operands = sum(token[0].isalnum() or token[0] in "_$" for token in tokens)
    only_names = {"$", "$s", ","}.issuperset(tokens)
    if len(tokens) < _FEWEST_TOKENS or operands < _FEWEST_OPERANDS or only_names:
        return ""
    return _joined(tokens)


def _tokens(text: str) -> list[str]:
    """Variables as `$`, texts as `$s`; called functions, numbers and operators as they stand."""
    text = _TIMES.sub(" * ", text.replace("×", " * ").replace("^", "**"))
    found: list[str] = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token[0] in "\"'":
            found.append("$s")
        elif not (token[0].isalpha() or token[0] == "_") or token in _WORDS:
            found.append(token)
        elif text[match.end() : match.end() + 1] == "(":
            found.append(re.split(r"\.|->|::", token)[-1])
        else:
            found.append("$")
    return found


def _joined(tokens: Sequence[str]) -> str:
    return f" {' '.join(tokens)} "


def _sequences(texts: Sequence[str]) -> str:
    """Texts in which `tokens in ...` finds an expression, never across two of them."""
    return "\n".join(_joined(_tokens(text)) for text in texts)


def _contract(lab: Lab, task: Task) -> list[str]:
    """The docstrings above a task's blocks; in other languages the file's comments."""
    path = lab.solution / task.file
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return [line for line in source.split("\n") if line.lstrip().startswith(("#", "//"))]
    mine = [block for block in skeleton.blocks(path) if block.task == task.id]
    return [
        ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and any(node.lineno <= block.first <= (node.end_lineno or 0) for block in mine)
    ]
