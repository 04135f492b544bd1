"""One grading run a tier and group of labs for all attacks that were asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest

from grader.classroom.gradebook.records import UnitResult

from .catalogue import CONTAINED, PATIENCE, Attack
from .odd import Odd
from .stage import Canaries, Graded, Stage, adopting, descendants, end, settled

collect_ignore = ["kit"]

QUIET, NEXT = "000-quiet", "next"


@dataclass
class Scene:
    """What one run with attackers did to everything that was there."""

    stage: Stage
    graded: Graded
    quiet: UnitResult
    files_before: dict[str, str]
    files_after: dict[str, str]
    process_before: str
    process_after: str
    received: list[str]
    left: dict[int, str]

    def of(self, name: str) -> UnitResult:
        """The result of an attack, a control or an odd submission."""
        found = [r for student, r in self.graded.records.items() if student[4:] == name]
        assert found, f"{name} has no result:\n{self.graded.printed[-3000:]}"
        return found[0]

    def witnesses(self) -> dict[str, UnitResult]:
        return {s: r for s, r in self.graded.records.items() if s.endswith(f"-{NEXT}")}


def plain(record: UnitResult) -> UnitResult:
    """A record without what may differ between two equal submissions: its name and its times."""
    rows = [msgspec.structs.replace(row, seconds=0.0) for row in record.tests]
    return msgspec.structs.replace(record, student="", tests=rows)


Scenes = Callable[[str, str], Scene]


@pytest.fixture(scope="session")
def scenes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    """The run of a tier and a group, with the attacks and odd submissions that were selected."""
    wanted = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    made: dict[tuple[str, str], Scene] = {}

    def scene(tier: str, group: str) -> Scene:
        if (tier, group) not in made:
            chosen = [
                params[kind]
                for params in wanted
                for kind in ("attack", "odd")
                if params.get("tier") == tier and kind in params
            ]
            handed_in = [item for item in chosen if item.group == group]
            folder = tmp_path_factory.mktemp(f"{tier}-{group}")
            made[tier, group] = _play(folder, tier, group, handed_in)
        return made[tier, group]

    return scene


def _play(folder: Path, tier: str, group: str, handed_in: list[Attack | Odd]) -> Scene:
    if tier != CONTAINED:
        return play(Stage(folder), tier, group, handed_in)
    from .contained_scene import play_in_container

    return play_in_container(folder, group, handed_in)


def play(stage: Stage, tier: str, group: str, handed_in: list[Attack | Odd]) -> Scene:
    stage.build()
    canaries = Canaries(stage)
    try:
        canaries.open()
        quiet = _quiet(stage, tier, group)
        _hand_in(stage, handed_in)
        files, process, pids = canaries.files(), canaries.process_state(), descendants(os.getpid())
        with adopting():
            graded = stage.grade(tier, PATIENCE[group])
            left = settled(pids)
        end(left)
        after = canaries.files()
        received, now = canaries.received(), canaries.process_state()
        return Scene(stage, graded, quiet, files, after, process, now, received, left)
    finally:
        canaries.close()


def _quiet(stage: Stage, tier: str, group: str) -> UnitResult:
    """The result of an honest submission in a run without attackers."""
    stage.hand_in(QUIET, "lab91", stage.right("lab91").encode())
    alone = replace(stage)
    graded = alone.grade(tier, PATIENCE[group], jobs=1)
    assert graded.code == 0, graded.printed
    return graded.records[QUIET]


def _hand_in(stage: Stage, items: list[Attack | Odd]) -> None:
    """Controls, then each item with an honest submission behind it."""
    bases = dict.fromkeys(item.base for item in items if isinstance(item, Attack))
    for base in bases:
        lab = next(i.lab for i in items if isinstance(i, Attack) and i.base == base)
        stage.hand_in(f"001-{base}", lab, stage.armed(base, "", "control"))
    for lab in dict.fromkeys(item.lab for item in items if isinstance(item, Odd)):
        stage.hand_in(f"001-{lab}", lab, stage.right(lab).encode())
    for number, item in enumerate(items, start=10):
        student = f"{number:03d}-{item.id}"
        if isinstance(item, Attack):
            stage.attack(item, student)
            stage.hand_in(f"{student}-{NEXT}", "lab91", stage.right("lab91").encode())
        else:
            stage.odd(item, student)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if sys.platform != "linux":
        here = str(Path(__file__).parent)
        for item in items:
            if str(item.path).startswith(here):
                item.add_marker(pytest.mark.skip(reason="the attacks are Linux's"))
