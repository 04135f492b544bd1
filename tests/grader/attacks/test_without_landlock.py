"""The tier `contained` on a kernel without Landlock: users and modes of files are what is left."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .catalogue import CONTAINED, SMALL, Attack
from .conftest import Scene, plain
from .contained_scene import play_in_container
from .everything import ATTACKS
from .test_attacks import DONE, points, said

pytestmark = pytest.mark.attack

NAMES = (
    *("reads-everything", "imports-the-reference", "other-processes", "network", "odd-sockets"),
    *("writes-everywhere", "neighbours-tmp", "kills", "gains-privileges", "namespaces"),
    *("debugs-processes", "bends-limits", "inherited-descriptors"),
)
# What is open without Landlock, and why.
NOT_PROMISED = {
    "other-processes": (
        "the canary in sight|names of the suite",
        "without a pid namespace /proc lists the names and arguments of all processes",
    ),
}
PLAYED = [attack for attack in ATTACKS if attack.id in NAMES]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder: Path = tmp_path_factory.mktemp("without-landlock")
    return play_in_container(folder, SMALL, [*PLAYED], landlock=False)


@pytest.mark.parametrize("attack", PLAYED, ids=str)
def test_it_gains_nothing(scene: Scene, attack: Attack) -> None:
    record, control = scene.of(attack.id), scene.of(attack.base)
    text = said(record)
    assert record.tier == CONTAINED
    assert "landlock" not in record.mechanisms
    got, want = points(record), points(control)
    assert not {task for task in got if got[task] > want[task]}, text
    assert re.search(attack.mark, text), text
    pattern, _ = NOT_PROMISED.get(attack.id, ("", ""))
    done = [found.strip() for found in DONE.findall(text)]
    assert [found for found in done if not (pattern and re.search(pattern, found))] == []
    assert not [word for word in scene.stage.words.values() if word in text]


def test_nobody_else_is_touched(scene: Scene) -> None:
    assert scene.graded.code == 0, scene.graded.printed
    assert {n for n, r in scene.witnesses().items() if plain(r) != plain(scene.quiet)} == set()
    assert (scene.left, scene.graded.left) == ({}, [])
    assert scene.files_after == scene.files_before
    assert scene.process_after == scene.process_before
    assert scene.received == []


def test_each_of_them_is_played() -> None:
    assert {attack.id for attack in PLAYED} == set(NAMES) >= set(NOT_PROMISED)
