"""Are likely causes the right ones, and what do they cost?

    python benchmarks/causes.py [--labs lab01 ...] [--answers FOLDER] [--root KIT] [--jobs 1]
                                [--keep FOLDER] [--note TEXT] [--write]

Every wrong answer of `benchmarks/wrong_answers` (`given_answers.py` says how they are written down)
runs through its task, each with a seed of its own, as in a classroom. Then two rules name its
causes: the one of `grader/suite/causes.py`, and the one before it, kept here, which asked of each
failing case alone which misconception fails alike. What each says was judged by a person. An
answer's names are *right* if all are, *mixed* if some are, else *wrong*. Misconceptions under one
sentence are one name, the first.

`--keep` writes what was measured of each lab into a folder and takes over what is there; verdicts
are always read anew. `--write` puts the tables into `benchmarks/results/causes.md`. Exit status 1:
a right answer does not pass, a wrong one earns full points or cannot be verified here, or a name is
not judged yet: both sentences are then printed, with the lines for `judged.toml`.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import results_page

ROOT = Path(__file__).resolve().parent.parent
ANSWERS = ROOT / "benchmarks" / "wrong_answers"
RESULTS = ROOT / "benchmarks" / "results" / "causes.md"
RULES = ("before", "now")
KINDS = ("right", "mixed", "wrong", "not judged", "none")
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from given_answers import GivenAnswer, GivenLab, read  # noqa: E402

from grader.errors import LabError  # noqa: E402
from grader.sandbox.backends import LocalBackend  # noqa: E402
from grader.status import TaskStatus  # noqa: E402
from grader.suite.diagnose import Diagnoser  # noqa: E402
from grader.suite.model import Case, Suite, load_suite  # noqa: E402
from grader.suite.replays import Replays  # noqa: E402
from grader.suite.run import Outcome  # noqa: E402
from grader.suite.score import score_lab  # noqa: E402
from grader.suite.splice import Misconception  # noqa: E402
from grader.suite.suite_run import PUBLIC_SEED, SuiteRun  # noqa: E402


@dataclass
class Judged:
    """One wrong answer: how its task ended, and what each rule called its cause."""

    key: str
    mistake: str
    status: str
    seconds: float = 0.0
    names: dict[str, list[str]] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    weak: bool = False

    @property
    def accepted(self) -> bool:
        return self.status == TaskStatus.DONE

    def kind(self, rule: str) -> str:
        verdicts = [self.verdicts.get(name, "not judged") for name in self.names[rule]]
        if not verdicts:
            return "none"
        if "not judged" in verdicts:
            return "not judged"
        return verdicts[0] if len(set(verdicts)) == 1 else "mixed"


@dataclass
class LabFindings:
    """What was found about one lab. `sentences`: of the misconceptions that were named."""

    lab: str
    failing_base: list[str] = field(default_factory=list)
    rows: list[Judged] = field(default_factory=list)
    sentences: dict[str, str] = field(default_factory=dict)


# -- the rule before ------------------------------------------------------------------------------


def named_before(
    replays: Replays, outcomes: Sequence[Outcome], seed_of: Callable[[Case], bytes]
) -> list[Misconception]:
    """Of each failing case alone, the first misconception that fails alike; those that were named
    already are asked first."""
    found: list[Misconception] = []
    for outcome in outcomes:
        if not outcome.status.may_be_diagnosed:
            continue
        known = replays.suite.misconceptions_of(outcome.case.test.task)
        for wrong in sorted(known, key=lambda wrong: wrong not in found):
            if replays.fails_like(wrong, outcome, seed_of(outcome.case)):
                if wrong not in found:
                    found.append(wrong)
                break
    return found


def named_now(run: SuiteRun, task: str) -> list[Misconception]:
    if error := run.explain(task):
        raise error
    said = [cause for row in run.known(task) for cause in row.causes]
    known = run.suite.misconceptions_of(task)
    first = {wrong.sentence: wrong for wrong in reversed(known)}
    return [first[sentence] for sentence in dict.fromkeys(said)]


# -- one lab --------------------------------------------------------------------------------------


class LabMeasurement:
    """Runs a lab's wrong answers, and both rules on each. The rules take turns in being first; each
    has replays of its own."""

    def __init__(self, given: GivenLab) -> None:
        self.given = given
        self.suite: Suite = load_suite(given.lab)
        self.replays = {rule: Replays(self.suite) for rule in RULES}
        self.found = LabFindings(given.lab.id)

    def measure(self) -> LabFindings:
        asked = {answer.task for answer in self.given.answers}
        for task in (task for task in self.given.lab.tasks if task.id in asked):
            with self._run_of(self.given.base, task.id, PUBLIC_SEED) as run:
                status, _ = self._status(run, task.id)
            if status not in (TaskStatus.DONE, TaskStatus.NOT_VERIFIED, TaskStatus.NOT_STARTED):
                failing = [row for row in run.known(task.id) if not row.status.is_pass]
                lines = f"{failing[0].case.id}: {'; '.join(failing[0].lines)}" if failing else ""
                self.found.failing_base.append(f"`{task.id}` is {status}: {lines}")
        for number, answer in enumerate(self.given.answers):
            rules = RULES if number % 2 else tuple(reversed(RULES))
            self.found.rows.append(self._judged(answer, rules))
        return self.found

    @contextmanager
    def _run_of(self, files: dict[str, str], task: str, seed: str) -> Iterator[SuiteRun]:
        """These files after all scored cases of a task."""
        with tempfile.TemporaryDirectory(prefix="infralens-") as name:
            folder = Path(name).resolve() / self.given.lab.id
            self.given.lab.copy_to(folder)
            for file, text in files.items():
                (folder / file).write_text(text, encoding="utf-8")
            diagnoser = Diagnoser(self.replays["now"], math.inf)
            run = SuiteRun(self.suite, folder, seed, diagnoser, ())
            spec, limits = self.suite.code_spec(folder), self.suite.limits()
            with closing(LocalBackend(spec, limits)) as backend:
                for case in run.scored(task):
                    run.note(run.unrun(case) or run.run(case, backend, _new_folder(name)))
            yield run

    def _status(self, run: SuiteRun, task: str) -> tuple[TaskStatus, float]:
        rows = score_lab(self.suite, run.known(task)).tasks
        seconds = sum(outcome.seconds for outcome in run.known(task))
        return next(row.status for row in rows if row.task.id == task), seconds

    def _judged(self, answer: GivenAnswer, rules: Sequence[str]) -> Judged:
        files = {**self.given.base, answer.file: answer.text}
        with self._run_of(files, answer.task, answer.key) as run:
            status, seconds = self._status(run, answer.task)
            row = Judged(answer.key, answer.mistake, status.value, seconds)
            for rule in rules:
                started = time.perf_counter()
                if rule == "now":
                    names = named_now(run, answer.task)
                else:
                    outcomes = run.known(answer.task)
                    names = named_before(self.replays[rule], outcomes, run.seed_of)
                row.spent[rule] = time.perf_counter() - started
                row.names[rule] = [wrong.name for wrong in names]
                for wrong in names:
                    self.found.sentences[f"{answer.task}.{wrong.name}"] = wrong.sentence
        return row


def _new_folder(name: str) -> Callable[[], Path]:
    return lambda: Path(tempfile.mkdtemp(dir=name))


def measured(root: Path, folder: Path, keep: Path | None) -> LabFindings:
    """One lab, in a process of its own; or what was kept of it."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    given = read(root, folder)
    path = keep / f"{folder.name}.json" if keep else None
    if path is not None and path.is_file():
        data = json.loads(path.read_text(encoding="utf-8"))
        found = LabFindings(**{**data, "rows": [Judged(**row) for row in data["rows"]]})
    else:
        found = LabMeasurement(given).measure()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(asdict(found)), encoding="utf-8")
    weak = {answer.key: answer.weak for answer in given.answers}
    found.lab = folder.name
    for row in found.rows:
        row.weak = weak[row.key]
        named = {name for names in row.names.values() for name in names}
        row.verdicts = {name: v for (key, name), v in given.judged.items() if key == row.key}
        row.verdicts = {name: v for name, v in row.verdicts.items() if name in named}
    return found


# -- the page -------------------------------------------------------------------------------------


def page(found: Sequence[LabFindings], note: str) -> list[str]:
    rows = [row for lab in found for row in lab.rows]
    failing = [row for row in rows if row.status != TaskStatus.DONE]
    lines = [
        "# Likely causes of wrong answers",
        "",
        results_page.made("python benchmarks/causes.py"),
        "",
        f"{len(rows)} wrong answers, {len(rows) - len(failing)} of them accepted. Before: each "
        "failing case alone has the first misconception that fails alike. Now: a misconception is "
        "named if it explains the whole task (`grader/suite/causes.py`).",
        *(["", note] if note else []),
        "",
        "| lab | answers | accepted | rule | named | " + " | ".join(KINDS) + " |",
        "|---|---|---|---|---|" + "---|" * len(KINDS),
    ]
    everything = LabFindings("all", rows=rows)
    for lab in (*found, everything):
        own = [row for row in lab.rows if row.status != TaskStatus.DONE]
        for rule in RULES:
            kinds = Counter(row.kind(rule) for row in own)
            counts = " | ".join(str(kinds[kind]) for kind in KINDS)
            lines.append(
                f"| {lab.lab} | {len(lab.rows)} | {len(lab.rows) - len(own)} | {rule} | "
                f"{len(own) - kinds['none']} | {counts} |"
            )
    return [*lines, *_kept(failing), *_cost(failing), *_accepted(found), *_changed(found)]


def _kept(failing: Sequence[Judged]) -> list[str]:
    """What became of the answers that were named rightly."""
    before = [row for row in failing if row.kind("before") == "right"]
    if not before:
        return []
    kept = sum(row.kind("now") == "right" for row in before)
    text = f"Of {len(before)} answers that were named rightly before, {kept} are now"
    return ["", f"{text} ({100 * kept / len(before):.0f} %)."]


def _cost(failing: Sequence[Judged]) -> list[str]:
    """What diagnosing adds to the seconds of a task that fails."""
    if not failing:
        return []
    own = sum(row.seconds for row in failing)
    spent = {rule: sum(row.spent[rule] for row in failing) for rule in RULES}
    each = {rule: spent[rule] / len(failing) for rule in RULES}
    ratio = (own + spent["now"]) / (own + spent["before"])
    return [
        "",
        f"A failing task takes {own / len(failing):.3f} s to run, and to diagnose "
        f"{each['before']:.3f} s before and {each['now']:.3f} s now; {ratio:.2f} times as long in "
        "all, first replays included.",
    ]


def _accepted(found: Sequence[LabFindings]) -> list[str]:
    rows = [(lab.lab, row) for lab in found for row in lab.rows if row.accepted]
    head = ["", "## Accepted", "", "| answer | mistake | |", "|---|---|---|"]
    lines = [
        f"| {lab} {row.key} | {row.mistake} | {'the contract may admit it' if row.weak else ''} |"
        for lab, row in rows
    ]
    return [*head, *lines] if rows else []


def _changed(found: Sequence[LabFindings]) -> list[str]:
    """What fails, with its names under both rules."""
    head = ["", "## Named", "", "| answer | mistake | before | now |", "|---|---|---|---|"]
    lines = []
    for lab in found:
        for row in lab.rows:
            if row.status == TaskStatus.DONE or not any(row.names.values()):
                continue
            said = []
            for rule in RULES:
                names = [f"{n} ({row.verdicts.get(n, 'not judged')})" for n in row.names[rule]]
                said.append(", ".join(names) or "-")
            lines.append(f"| {lab.lab} {row.key} | {row.mistake} | {said[0]} | {said[1]} |")
    return [*head, *lines] if lines else []


def faults(found: Sequence[LabFindings]) -> Iterator[str]:
    for lab in found:
        for text in lab.failing_base:
            yield f"{lab.lab}: the right answer does not pass: {text}"
        for row in lab.rows:
            if row.accepted and not row.weak:
                yield f"{lab.lab} {row.key} earns full points: {row.mistake}"
            elif row.status == TaskStatus.NOT_VERIFIED:
                yield f"{lab.lab} {row.key} cannot be verified here"
    for lab in found:
        for row in lab.rows:
            for name in dict.fromkeys(name for names in row.names.values() for name in names):
                if name not in row.verdicts and not row.accepted:
                    sentence = lab.sentences[f"{row.key.partition('.')[0]}.{name}"]
                    yield (
                        f"{lab.lab}: not judged\n"
                        f"    mistake:  {row.mistake}\n"
                        f"    sentence: {sentence}\n"
                        f"    [{row.key}]\n    {json.dumps(name)} = "
                    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--labs", nargs="*", help="default: all that have wrong answers")
    parser.add_argument("--answers", type=Path, default=ANSWERS)
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--note", default="", help="what a reader of the page must know besides")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    folders = sorted(path.parent for path in args.answers.glob("*/answers.toml"))
    folders = [path for path in folders if not args.labs or path.name[:5] in args.labs]
    if not folders:
        parser.error(f"{args.answers} holds no labNN/answers.toml")
    context = multiprocessing.get_context("spawn")
    try:
        with concurrent.futures.ProcessPoolExecutor(
            args.jobs, mp_context=context, max_tasks_per_child=1
        ) as pool:
            number = len(folders)
            found = list(pool.map(measured, [args.root] * number, folders, [args.keep] * number))
    except LabError as error:
        parser.error(str(error))
    return results_page.told(
        page(found, args.note), list(faults(found)), RESULTS if args.write else None
    )


if __name__ == "__main__":
    sys.exit(main())
