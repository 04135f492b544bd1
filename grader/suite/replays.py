"""Known wrong answers, run again on the cases that a submission failed."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from types import CodeType

from grader.sandbox.backends import LocalBackend
from grader.sandbox.modules import compiled
from grader.status import TestStatus
from grader.suite import known_outcomes
from grader.suite.causes import Extra, OutOfTime
from grader.suite.known_outcomes import KnownOutcomes
from grader.suite.model import Case, Suite
from grader.suite.pieces import Pieces
from grader.suite.replay_process import ReplayProcess
from grader.suite.replay_table import ReplayTable, table_of
from grader.suite.replayed import Replayed, alike, same_place
from grader.suite.run import Outcome, run_case, seed_of
from grader.suite.splice import Misconception

Held = Callable[[], AbstractContextManager[None]]


class Replays:
    """Runs a suite's cases on the reference with a misconception in it, and keeps what it saw: for
    the inputs that many submissions get, in a table."""

    def __init__(
        self, suite: Suite, on_disk: bool = False, process: ReplayProcess | None = None
    ) -> None:
        """on_disk: keep replays in the user's cache folder, for runs to come. process: replays run
        there, with limits (Linux); it answers by `packed`, of the lab that it is asked for."""
        self.suite = suite
        self._on_disk = on_disk
        self._process = process
        self.until = math.inf
        """When replays in a process of their own end, in seconds of `time.monotonic`."""
        self._pieces: dict[str, Pieces] = {}
        self._wrong_backends: dict[tuple[str, str], LocalBackend] = {}
        self._wrong_folders: tempfile.TemporaryDirectory[str] | None = None

    @cached_property
    def _table(self) -> ReplayTable:
        return table_of(self.suite) if self._on_disk else ReplayTable(None)

    @cached_property
    def _known(self) -> KnownOutcomes:
        return known_outcomes.read(self.suite)

    def wrong_backend(self, wrong: Misconception) -> LocalBackend:
        """The reference with one misconception spliced in. Trusted code: a local backend."""
        key = (wrong.task, wrong.name)
        if key not in self._wrong_backends:
            kit = self.suite.code_spec(self.wrong_folder(wrong))
            backend = self._wrong_backends[key] = LocalBackend(kit, self.suite.limits())
            backend.server.files.codes = lambda path: self._codes(path, wrong)
        return self._wrong_backends[key]

    def _codes(self, path: Path, wrong: Misconception) -> Sequence[CodeType]:
        """The code of a file that such a backend loads; the reference's is compiled once."""
        lab = self.suite.lab
        if path.name != wrong.file:
            return [compiled(lab.solution / path.name if path.name in lab.edit else path)]
        if path.name not in self._pieces:
            self._pieces[path.name] = Pieces(lab.solution / path.name)
        return self._pieces[path.name].changed(path, path.read_text(encoding="utf-8"))

    def wrong_folder(self, wrong: Misconception) -> Path:
        """The folder of that backend's files: a copy of the reference's with a wrong file."""
        lab = self.suite.lab
        if self._wrong_folders is None:  # made where a grading job has its temporary files
            self._wrong_folders = tempfile.TemporaryDirectory(
                prefix="infralens-wrong-", ignore_cleanup_errors=True
            )
        folder = Path(self._wrong_folders.name) / wrong.task / wrong.name / lab.id
        if not folder.is_dir():
            text = wrong.text((lab.solution / wrong.file).read_text(encoding="utf-8"))
            lab.copy_to(folder)
            (folder / wrong.file).write_text(text, encoding="utf-8")
        return folder

    def run(self, wrong: Misconception, case: Case, seed: bytes) -> Outcome:
        """The case again, on the reference with that misconception in it."""
        return run_case(self.suite, case, self.wrong_backend(wrong), self.wrong_folder(wrong), seed)

    def fails_like(
        self,
        wrong: Misconception,
        outcome: Outcome,
        seed: bytes,
        held: Held = nullcontext,
        kept: bool = True,
    ) -> bool:
        """Whether a misconception fails a case as `outcome` did. kept: many submissions get these
        inputs, so that the replay is kept. What is known of the public ones comes first: if it
        failed there at another place, or passed, no other inputs are tried."""
        case = outcome.case
        seed, kept = _inputs(case, seed, kept)
        known = self._known.of(wrong, case)
        if known and not same_place(outcome, known):
            return False
        if kept or not known:
            found = self.seen(wrong, case, seed if kept else seed_of(case))
            if not same_place(outcome, found):
                return False
        if not (kept and found.whole):
            found = self.again(wrong, case, seed)
        if not found.whole:  # not plain data
            found = Replayed.of(self.run(wrong, case, seed))
        with held():
            return alike(outcome, found)

    def extra(self, wrong: Misconception, case: Case, seed: bytes, kept: bool = True) -> Extra:
        """What a misconception does in a case that the learner's code passes. If it failed with the
        public inputs, that rules it out; that it is sound is asked of the same inputs, unless it is
        known of several."""
        seed, kept = _inputs(case, seed, kept)
        if (steady := self._known.extra_of_any(wrong, case)) is not None:
            return steady
        known = self._known.of(wrong, case)
        if known and seed == seed_of(case):
            return known.extra
        if kept:
            return self.seen(wrong, case, seed).extra
        if not known and self.seen(wrong, case, seed_of(case)).extra is Extra.HARD:
            return Extra.HARD
        return self.again(wrong, case, seed).extra

    def has_hard_extra(self, wrong: Misconception, case: Case) -> bool:
        """Whether it is known, without a replay, that a misconception is ruled out by a case that
        the learner's code passes."""
        return self._known.extra_of_any(wrong, case) is Extra.HARD

    def seen(self, wrong: Misconception, case: Case, seed: bytes) -> Replayed:
        """How a case goes with that misconception. It is replayed once, unless that is known."""
        known = self._known.of(wrong, case)
        if known and known.whole and seed == seed_of(case):
            return known
        root, key = self.suite.lab.kit, (f"{wrong.task}/{wrong.name}", case.id, seed)
        if (data := self._table.get(*key)) is not None:
            with contextlib.suppress(ValueError):  # a damaged row costs a replay
                return Replayed.unpacked(data, root, self.suite.records)
        found = self.again(wrong, case, seed)
        self._table.put(*key, found.packed(root), found.is_lasting)
        return found

    def again(self, wrong: Misconception, case: Case, seed: bytes) -> Replayed:
        """How a case goes with that misconception, run now."""
        process = self._process
        if process is None or not process.is_possible():
            return Replayed.of(self.run(wrong, case, seed))
        question: list[str | bytes] = [self.suite.lab.id, wrong.task, wrong.name, case.id, seed]
        try:
            data = process.ask(question, self.until)
        except TimeoutError:
            raise OutOfTime from None
        if data is None:
            return Replayed(TestStatus.ERROR, ("", 0), None, 0.0, 0.0, Extra.NONE, whole=False)
        return Replayed.unpacked(data, self.suite.lab.kit, self.suite.records)

    def packed(self, task: str, name: str, case_id: str, seed: bytes) -> bytes:
        """What the process of replays answers."""
        wrong = next(w for w in self.suite.misconceptions_of(task) if w.name == name)
        case = next(c for c in self.suite.cases if c.id == case_id)
        return Replayed.of(self.run(wrong, case, seed)).packed(self.suite.lab.kit, None)


def _inputs(case: Case, seed: bytes, kept: bool) -> tuple[bytes, bool]:
    """The seed of a case's replays, and whether they are kept: a case that draws nothing has the
    public inputs, whatever the seed."""
    return (seed, kept) if case.test.draws else (seed_of(case), True)


class WholeReplays(Replays):
    """Keeps the whole outcome of each replay in memory, for those who read more of it than its
    place: its lines, its error. It believes no file."""

    def __init__(self, suite: Suite) -> None:
        super().__init__(suite)
        self._known = KnownOutcomes(suite.lab.kit, None, {})
        self._outcomes: dict[tuple[str, str, bytes], Outcome] = {}

    def outcome(self, wrong: Misconception, case: Case, seed: bytes) -> Outcome:
        key = (f"{wrong.task}/{wrong.name}", case.id, seed)
        if key not in self._outcomes:
            self._outcomes[key] = self.run(wrong, case, seed)
        return self._outcomes[key]

    def seen(self, wrong: Misconception, case: Case, seed: bytes) -> Replayed:
        return Replayed.of(self.outcome(wrong, case, seed))
