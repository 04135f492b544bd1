"""Attacks on the evidence of one lab: what such an attack is, and the files that hold them.

A lab whose figures are witnessed in the student's process has attacks on that evidence in
`labNN.py` beside this file, four at least (`infralens lint` counts them). Each hands in the lab's
reference with one task answered by the attack. Its values should be right, so that nothing but the
evidence can refuse it; `passes` and `mark` hold that this is so.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from grader.lab import skeleton
from grader.lab.manifest import Lab, load_lab

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class LabAttack:
    """One attack on one task of a lab.

    `code`: what answers the task. In a Python file it is appended to the reference, whose blocks of
    that task are as in the skeleton; in another file it stands in the place of those blocks.
    `changes` are exchanged in the reference first: (old text, new text), each old one stands there
    once. `base`: the same answer without the attack, where that one earns points; the attack may
    earn no more. `mark`: a pattern that the instructor's details or notes hold, of the evidence
    that refused it. `passes`: tests of the task that it passes, to show that its values are right;
    none where the whole task is refused or disturbed. `lifts_forbids`: the task forbids nothing in
    this run, so that its measurements stand alone.
    """

    id: str
    task: str
    tries: str
    code: str = ""
    mark: str = ""
    passes: tuple[str, ...] = ()
    base: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    lifts_forbids: bool = False
    lab: str = ""

    def __str__(self) -> str:
        return self.id

    @cached_property
    def _lab(self) -> Lab:
        return load_lab(ROOT, self.lab)

    def submission(self) -> dict[str, str]:
        """The files to hand in, by name."""
        return self._with(self.code, self.changes)

    def control(self) -> dict[str, str]:
        """The same without the attack."""
        return self._with(self.base, ())

    def _with(self, code: str, changes: tuple[tuple[str, str], ...]) -> dict[str, str]:
        lab, name = self._lab, self._lab.task(self.task).file
        found = {file: (lab.solution / file).read_text(encoding="utf-8") for file in lab.edit}
        text = skeleton.changed(found[name], *changes)
        if name.endswith(".py") and (code or not changes):
            text = skeleton.undone(lab, name, text, (self.task,)) + "\n\n" + code
        elif code:
            text = skeleton.with_block(text, self.task, code)
        elif not changes:
            text = skeleton.undone(lab, name, text, (self.task,))
        return found | {name: text}


def attacks_of(lab: str) -> list[LabAttack]:
    """The attacks in a lab's file; none where there is no such file."""
    if not (Path(__file__).parent / f"{lab}.py").is_file():
        return []
    module = importlib.import_module(f"{__package__}.{lab}")
    return [replace(attack, lab=lab) for attack in module.ATTACKS]
