"""What an attack is, and the catalogue that the attacks are taken from.

Rows `1.x` are the attacks that were measured against grading in one process, rows `2.n` what has
been tried against Python graders, rows `3.x` what has been tried against kernel graders.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

CONTAINED = "contained"
APART = ("process", CONTAINED, "sandbox")
WALLED = (CONTAINED, "sandbox")
EVERYTHING = "everything"
# Deadlines are kept short where attacks run into them, and left alone where real work is measured.
SMALL, REAL = "small", "real"
PATIENCE = {SMALL: 0.1, REAL: 1.0}

MEASURED = {
    "1.equal": "an object whose __eq__ is always True",
    "1.exit": "os._exit(0) at import",
    "1.constants": "the expected value read from the caller's co_consts",
    "1.runtest": "_pytest.python.Function.runtest replaced",
    "1.callinfo": "CallInfo.from_call replaced",
    "1.plugin": "a makereport hook registered through gc",
    "1.atexit": "result files rewritten at exit",
    "1.skip": "pytest.skip() inside the function",
    "1.skip-module": "a module-level skip",
    "1.read": "hidden tests read from disk",
    "1.assert": "np.testing.assert_allclose replaced",
    "1.print": "a fake '3 passed', then exit",
    "1.daemon": "a daemon that rewrites results later",
}
PYTHON = {
    "2.1": "sys.exit, os._exit, atexit",
    "2.2": "__eq__, __bool__, __array__, tensor subclasses",
    "2.3": "pytest, unittest, numpy.testing, allclose, time replaced",
    "2.4": "conftest.py, pytest.ini, addopts, plugins",
    "2.5": "sitecustomize, .pth, PYTHONPATH, module shadows",
    "2.6": "hidden tests, solutions, expected values read from disk",
    "2.7": "frames, gc, sys.modules, /proc/self/mem",
    "2.8": "the reference solution or its library imported",
    "2.9": "results file, report on stdout, inherited descriptors",
    "2.10": "signed results in the same process",
    "2.11": "pickle and its kin back to the parent",
    "2.12": "daemons that outlive the run",
    "2.13": "fork bomb",
    "2.14": "endless loop, sleep, SIGALRM ignored",
    "2.15": "memory bomb",
    "2.16": "huge output, huge files",
    "2.17": "network",
    "2.18": "links, devices, odd files in a submission",
    "2.19": "answers kept between tests or runs",
    "2.20": "public cases hard-coded",
    "2.21": "tests leak through messages",
    "2.22": "score probing by repeated submission",
    "2.23": "tests edited in one's own repository",
}
KERNELS = {
    "3.thread": "a background thread finishes later",
    "3.lazy": "a lazy tensor subclass",
    "3.patch": "clock and statistics patched",
    "3.replay": "a result replayed",
    "3.stale": "uninitialised memory reused",
    "3.mutate": "inputs mutated so that the reference agrees",
    "3.alias": "the output aliases the input",
    "3.nan": "NaN as a wildcard, counters reset",
    "3.rng": "the replay of a known seed",
    "3.precision": "lower precision than asked for",
    "3.constant": "constant answers",
    "3.fallback": "a fallback to the library",
    "3.hide": "work or memory hidden from what measures it",
}
# What an attack may get where a tier does not promise to refuse it: pattern, and the reason.
NOT_PROMISED: dict[tuple[str, str], tuple[str, str]] = {
    (CONTAINED, "other-processes"): (
        "the canary in sight|names of the suite",
        "without a pid namespace /proc lists the names and arguments of all processes",
    ),
}
# The same where it depends on what runs at the same moment.
AT_TIMES: dict[tuple[str, str], tuple[str, str]] = {
    (CONTAINED, "looks-for-answers"): (
        "answers in /dev/shm: DONE",
        "/dev/shm is shared while the accomplice's unit runs; what it left is removed with it",
    ),
}
NOT_ATTACKED = {
    "2.10": "no verdict is made where student code runs, so there is nothing to sign; stale and "
    "forged replies stand under 2.9",
    "2.22": "a submission hears nothing while it is graded; how often somebody may hand in is the "
    "course's decision",
}


@dataclass(frozen=True)
class Attack:
    """A submission with one attack in it.

    `code` is appended to the submission `base` of `lab`; `files` lie beside it (a text, or `-> x`
    for a link to x, `(fifo)` for a pipe). `tiers` promise to stop it. `loses` are the tasks that
    the attack itself breaks, `EVERYTHING` for all; with `may_lose` it may break any. `mark` is a
    pattern that the instructor's details must hold: the proof that the attack was carried out and
    what became of it. `noted` is a pattern for the notes, by tier. `disturbed` are
    the tasks whose measurement it disturbs. A `patient` attack needs the deadlines of a course.
    """

    id: str
    rows: tuple[str, ...]
    tries: str
    code: str = ""
    mark: str = ""
    base: str = "half"
    tiers: tuple[str, ...] = APART
    loses: tuple[str, ...] | str = ()
    may_lose: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    noted: Mapping[str, str] = field(default_factory=dict)
    disturbed: tuple[str, ...] = ()
    patient: bool = False

    @property
    def meters(self) -> bool:
        """Whether it is aimed at a measurement, which may end as disturbed."""
        return any(row.startswith("3.") for row in self.rows)

    @property
    def group(self) -> str:
        """The run that it belongs to: short deadlines, or those of a course."""
        return SMALL if self.lab == "lab91" and not self.patient else REAL

    @property
    def lab(self) -> str:
        return LAB_OF[self.base]

    def __str__(self) -> str:
        return self.id

    def is_played(self, tier: str) -> bool:
        """Whether the suite carries it out at a tier. What is aimed at a meter is aimed at a
        worker's inside, which is the same at both forked tiers: at `contained` it is played with
        INFRALENS_EVERY_ATTACK=1 alone."""
        spared = tier == CONTAINED and self.meters and "INFRALENS_EVERY_ATTACK" not in os.environ
        return tier in self.tiers and not spared


# The submissions that attacks are built on: their lab, and the function that carries the report.
LAB_OF = {
    "half": "lab91",
    "partial01": "lab01",
    "partial07": "lab07",
    "square07": "lab07",
    "library07": "lab07",
}
REPORTER = {"lab91": "passphrase", "lab01": "fits_where", "lab07": "paged_attention"}
