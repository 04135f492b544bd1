"""What `infralens lint` runs: a suite against what it must accept and what it must refuse."""

from __future__ import annotations

import ast
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grader.author.lint_report import LintReport, Thoroughness
from grader.author.lint_sources import variants
from grader.author.trivial_answers import fakes, put_in
from grader.lab import capabilities, skeleton
from grader.lab.manifest import Lab, Task
from grader.sandbox.backends import Backend, LocalBackend
from grader.status import TaskStatus, TestStatus
from grader.suite.causes import Extra, extra_of, is_failing
from grader.suite.diagnose import Diagnoser
from grader.suite.model import Case, Suite
from grader.suite.replays import WholeReplays
from grader.suite.run import Outcome, run_case, seed_of
from grader.suite.score import score_lab
from grader.suite.splice import Misconception
from grader.suite.suite_run import PUBLIC_SEED, SuiteRun

LIGHT_SECONDS = 0.005  # of the reference
_SHOWN = 12
VARIANT = "variant "
DEBUG = "TORCH_DISTRIBUTED_DEBUG"


class SuiteCheck:
    """Runs one lab's suite against everything that it must accept or refuse."""

    def __init__(
        self, suite: Suite, plan: Thoroughness, report: LintReport, cost: dict[str, float]
    ) -> None:
        """`cost`: seconds that each case took the last right answer."""
        self.suite = suite
        self.lab = suite.lab
        self.plan = plan
        self.report = report
        self.cost = cost
        self.replays = WholeReplays(suite)

    def fault(self, text: str) -> None:
        self.report.faults.append(text)

    def begin(self) -> bool:
        """Whether the other checks say anything: they do not if the reference fails its suite."""
        self._oracles()
        self._skeleton()
        before = len(self.report.faults)
        self._reference()
        return len(self.report.faults) == before

    def _oracles(self) -> None:
        for task in self.lab.tasks:
            docs = [case.test.doc for case in self.suite.cases_of(task.id) if case.test.scored]
            if not any("Oracle:" in doc for doc in docs):
                self.fault(f"task `{task.id}`: no scored test names its oracle (`Oracle: ...`).")

    def run(self, case: Case, backend: Backend, folder: Path, key: bytes = b"public") -> Outcome:
        with _scratch() as scratch:
            return run_case(self.suite, case, backend, folder, seed_of(case, key), lambda: scratch)

    def _can_run(self, task_id: str) -> bool:
        return not capabilities.first_missing(self.lab.task(task_id).needs)

    def cases(self, task_id: str | None = None) -> list[Case]:
        """The cases that this machine can run."""
        rows = self.suite.cases if task_id is None else self.suite.cases_of(task_id)
        return [case for case in rows if self._can_run(case.test.task)]

    def _skeleton(self) -> None:
        """A skeleton imports, and every task of it is not started."""
        with _scratch() as folder:
            for name, text in skeleton.wanted(self.lab).items():
                (folder / name).write_text(text, encoding="utf-8")
            backend = LocalBackend(self.suite.code_spec(folder), self.suite.limits())
            outcomes = [self.run(case, backend, folder) for case in self.cases()]
            for outcome in outcomes:
                if not outcome.status.may_be_of_a_skeleton:
                    text = "; ".join(outcome.lines) or "it passes"
                    self.fault(f"skeleton: {outcome.case.id} is {outcome.status}: {text}")
            for row in score_lab(self.suite, outcomes).tasks:
                if row.status not in (TaskStatus.NOT_STARTED, TaskStatus.NOT_VERIFIED):
                    self.fault(f"skeleton: task `{row.task.id}` is {row.status}, not not_started.")

    def _reference(self) -> None:
        for number, (threads, seed) in enumerate(self.plan.runs()):
            started = time.perf_counter()
            self._must_pass("reference", self.lab.solution, seed, threads, first=not number)
            if not number:
                self.report.suite_seconds = time.perf_counter() - started

    def in_variant(self, variant: Path) -> None:
        self.report.variants += 1
        number = 1 + variants(self.lab).index(variant)
        with _scratch() as folder:
            self.lab.copy_to(folder, variant)
            for threads, seed in self.plan.runs(number):
                self._must_pass(f"{VARIANT}{variant.name}", folder, seed, threads)

    def _must_pass(
        self, who: str, folder: Path, seed: int, threads: int, first: bool = False
    ) -> None:
        key = b"public" if seed == 0 else f"public:{seed}".encode()
        self.report.runs += 1
        missing = 0
        backend = LocalBackend(self.suite.code_spec(folder), self.suite.limits())
        with _threads(threads), _collectives_checked(not seed):
            for case in self.cases():
                if not (case.test.scored or first):
                    continue  # an optional library agrees once; its answers do not depend on seeds
                outcome = self.run(case, backend, folder, key)
                self.cost[case.id] = outcome.seconds
                if outcome.status == TestStatus.NOT_VERIFIED:
                    missing += 1
                elif not outcome.status.is_pass:
                    seen = " / ".join([outcome.called, *outcome.lines])
                    self.fault(f"{who}, seed {seed}, {threads} threads: {case.id}: {seen}")
        if first:
            self.report.not_verified = missing + len(self.suite.cases) - len(self.cases())

    def misconceptions(self, task: Task) -> None:
        wrongs = self.suite.misconceptions_of(task.id)
        if not wrongs and task.tier != "stretch":
            place = f"misconceptions/{task.id}.py"
            self.fault(f"task `{task.id}` has no misconception: there is none in {place}.")
        if not self._can_run(task.id):
            return
        runs = {}
        for wrong in wrongs:
            self.report.misconceptions += 1
            if len(wrong.sentence.split()) < 5:
                self.fault(f"misconception {wrong.name}: its sentence has fewer than five words.")
            if not self._is_source(wrong):
                self.fault(f"misconception {wrong.name} makes of {wrong.file} what is not Python.")
            runs[wrong] = self._run_of(wrong)
        for wrong, run in runs.items():
            self._must_die(task, wrong, run)
            self._remarks(task, wrong, run)

    def _is_source(self, wrong: Misconception) -> bool:
        """Whether the wrong file can be loaded at all: one that cannot shows no mistake."""
        text = wrong.text((self.lab.solution / wrong.file).read_text(encoding="utf-8"))
        try:
            return not wrong.file.endswith(".py") or bool(ast.parse(text))
        except (SyntaxError, ValueError):
            return False

    def _must_die(self, task: Task, wrong: Misconception, run: SuiteRun) -> None:
        """A misconception fails a gate, or a step if it says so, and reads its own sentence
        there."""
        self._explain(task.id, run)
        failing = [row for row in run.known(task.id) if is_failing(row)]
        dead = [row for row in failing if _is_gate(row) == wrong.gate]
        if not wrong.gate and (closed := next(filter(_is_gate, failing), None)):
            self.fault(
                f"misconception {wrong.name} fails the gate {closed.case.name}: it is not one of "
                "gate=False."
            )
            return
        for outcome in dead:
            if wrong.sentence in outcome.causes:
                message = "\n".join([outcome.called, *outcome.lines, wrong.sentence])
                row = {"task": task.id, "name": wrong.name, "message": message}
                self.report.messages.append(row)
                return
        if dead:
            said = [f"{row.case.name}: {self._said(task, row)}" for row in dead]
            self.fault(f"misconception {wrong.name} dies, but not with its sentence: {said[:3]}")
        else:
            kind = "gate" if wrong.gate else "step"
            self.fault(f"misconception {wrong.name} passes every {kind} of `{task.id}`.")

    def _said(self, task: Task, outcome: Outcome) -> str:
        """The names of what a failing test says, or how it ended."""
        known = self.suite.misconceptions_of(task.id)
        names = [wrong.name for wrong in known if wrong.sentence in outcome.causes]
        return " or ".join(names) or str(outcome.status)

    def _remarks(self, task: Task, wrong: Misconception, run: SuiteRun) -> None:
        """What an author may want to change in a misconception that is named."""
        rows = run.known(task.id)
        others = {cause for row in rows for cause in row.causes} - {wrong.sentence}
        for twin in self.suite.misconceptions_of(task.id):
            if twin.sentence in others:
                others.remove(twin.sentence)
                text = f"{wrong.name} fails as {twin.name} does, and a learner reads both sentences"
                self.report.notes.append(f"`{task.id}`: {text}.")
        failing = [row for row in rows if is_failing(row)]
        forgets = [row.case.name for row in failing if extra_of(row) is Extra.FORGOTTEN]
        if 0 < len(forgets) < len(failing):
            does = "it also raises, or does not refuse, in"
            text = f"{wrong.name} may be wider than its sentence: {does}"
            self.report.notes.append(f"`{task.id}`: {text} {', '.join(forgets[:3])}.")

    def _gates(self, task_id: str) -> list[Case]:
        """The scored gates that can run here, the quickest first."""
        rows = [case for case in self.cases(task_id) if case.test.gate and case.test.scored]
        return sorted(rows, key=self._seconds)

    def _run_of(self, wrong: Misconception) -> SuiteRun:
        """A misconception as an answer that a learner gave: its task's scored cases. In a quick
        check, the heavy ones only as long as its sentence is not certain. A misconception agrees
        with itself everywhere, so one that is ahead after some cases is ahead after all."""
        diagnoser = Diagnoser(self.replays, math.inf)
        folder = self.replays.wrong_folder(wrong)
        run = SuiteRun(self.suite, folder, PUBLIC_SEED, diagnoser, ())
        cases = run.scored(wrong.task)
        for case in sorted(cases, key=self._seconds):
            heavy = self._seconds(case) > LIGHT_SECONDS and not self.plan.everything
            if heavy and self._is_told(wrong, run):
                break
            run.note(run.unrun(case) or self.replays.outcome(wrong, case, run.seed_of(case)))
        return run

    def _seconds(self, case: Case) -> float:
        return self.cost.get(case.id, 0.0)

    def _is_told(self, wrong: Misconception, run: SuiteRun) -> bool:
        """Whether what ran so far shows that a learner reads its sentence where it must, alone."""
        self._explain(wrong.task, run)
        rows = [row for row in run.known(wrong.task) if _is_gate(row) == wrong.gate]
        return any(row.causes == [wrong.sentence] for row in rows)

    def _explain(self, task_id: str, run: SuiteRun) -> None:
        if error := run.explain(task_id, partly=True):
            raise error

    def fakes(self, task: Task) -> None:
        if not task.file.endswith(".py"):
            self._fake_files(task)
            return
        for name in _functions_of(self.lab, task):
            for label, patch in fakes(name):
                self.report.fakes += 1
                backend = LocalBackend(self.suite.code_spec(self.lab.solution), self.suite.limits())
                put_in(backend, patch)
                self._must_earn_nothing(task, backend, self.lab.solution, f"`{name}` {label}")

    def _fake_files(self, task: Task) -> None:
        reference = (self.lab.solution / task.file).read_text(encoding="utf-8")
        comments = [line for line in reference.splitlines() if line.lstrip()[:1] in ("#", "/")]
        texts = {
            "an empty file": "",
            "comments only": "\n".join(comments) + "\n",
            "the skeleton": skeleton.skeleton(self.lab, task.file),
            "an empty block": skeleton.with_block(reference, task.id, ""),
        }
        for label, text in texts.items():
            self.report.fakes += 1
            with _scratch() as folder:
                self.lab.copy_to(folder)
                (folder / task.file).write_text(text, encoding="utf-8")
                backend = LocalBackend(self.suite.code_spec(folder), self.suite.limits())
                self._must_earn_nothing(task, backend, folder, label)

    def _must_earn_nothing(self, task: Task, backend: Backend, folder: Path, label: str) -> None:
        for case in self._gates(task.id):
            outcome = self.run(case, backend, folder)
            if outcome.disturbed:
                self.fault(
                    f"fake: {label} is refused before {case.id} judges it: {outcome.lines[0]}"
                )
            if outcome.status.asks_for_work:
                return
        if self._can_run(task.id):
            self.fault(f"fake: {label} passes every gate of `{task.id}`.")


def _is_gate(outcome: Outcome) -> bool:
    return outcome.case.test.gate


def _functions_of(lab: Lab, task: Task) -> list[str]:
    """The top-level functions and classes that hold a task's blocks."""
    path = lab.solution / task.file
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: list[str] = []
    for block in skeleton.blocks(path):
        for node in tree.body:
            named = isinstance(node, ast.FunctionDef | ast.ClassDef)
            end = getattr(node, "end_lineno", 0) or 0
            inside = (
                named
                and node.lineno <= block.first <= max(end, block.last)
                and (block.first <= end + 1)
            )
            if inside and block.task == task.id and node.name not in found:  # type: ignore[attr-defined]
                found.append(node.name)  # type: ignore[attr-defined]
    return found


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="infralens-") as name:
        yield Path(name).resolve()


@contextmanager
def _collectives_checked(checked: bool) -> Iterator[None]:
    """Ranks whose torch compares their collectives, which costs as much as the rest of a launch,
    or does not. A right answer passes with and without."""
    before = os.environ.get(DEBUG)
    if not checked:
        os.environ[DEBUG] = "OFF"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(DEBUG, None)
        else:
            os.environ[DEBUG] = before


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """torch with that many threads, if torch is loaded."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else 0
    if torch:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch:
            torch.set_num_threads(before)
