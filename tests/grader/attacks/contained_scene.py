"""The scene of the tier `contained`: the stage, the canaries and the run are in a container laid
out as Gradescope's (`made_container`), whose root may make no namespaces.

As a program, `python -m tests.grader.attacks.contained_scene ORDER RESULT` is what runs in it.
"""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.grader.sandbox import made_container
from tests.grader.sandbox.made_container import AUTOGRADER, ContainerSettings

from .catalogue import CONTAINED, Attack
from .conftest import Scene, play
from .odd import Odd
from .stage import Stage

SECONDS = 900.0
# Of the container, by the names that a stage has for them.
PLACES = {"kit": "source", "handed-in": "submission", "run": "results"}


@dataclass
class GradescopeStage(Stage):
    """A stage in Gradescope's folders, with the modes that `run_autograder` gives them."""

    @property
    def kit(self) -> Path:
        return self.root / "source"

    @property
    def submissions(self) -> Path:
        return self.root / "submission"

    @property
    def out(self) -> Path:
        return self.root / "results"

    def build(self) -> None:
        super().build()
        metadata = self.root / "submission_metadata.json"
        metadata.write_text(f'{{"users": ["{self.words["homesecret"]}"]}}')
        (self.root / "run_autograder").write_text("#!/bin/sh\n")
        for path in (self.kit, self.submissions, self.out, metadata, self.key_file):
            path.chmod(0o700)


def play_in_container(
    folder: Path, group: str, handed_in: list[Attack | Odd], landlock: bool = True
) -> Scene:
    """`conftest.play` in a container; skips, with the reason, where none can be made."""
    if reason := made_container.reason_against():
        pytest.skip(f"no container to grade in: {reason}")
    line = folder / "line"
    for name in (*PLACES, "line", "root"):
        (folder / name).mkdir()
    (line / "order").write_bytes(pickle.dumps((group, handed_in)))
    writable = {str(folder / name): str(AUTOGRADER / inside) for name, inside in PLACES.items()}
    command = [sys.executable, "-m", "tests.grader.attacks.contained_scene", "/line/order"]
    done = made_container.run(
        ContainerSettings(
            root=str(folder / "root"),
            command=[*command, "/line/scene"],
            environment={
                "PATH": os.environ["PATH"],
                "HOME": "/autograder/home",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            writable={**writable, str(line): "/line"},
            landlock=landlock,
        ),
        SECONDS,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    scene: Scene = pickle.loads((line / "scene").read_bytes())
    return replace(scene, stage=replace(scene.stage, root=folder))


def main(order: str, result: str) -> None:
    group, handed_in = pickle.loads(Path(order).read_bytes())
    Path.home().mkdir(mode=0o700)
    Path(order).parent.chmod(0o700)
    stage = GradescopeStage(AUTOGRADER, boxed=True)
    scene = play(stage, CONTAINED, group, handed_in)
    seen = Stage(stage.root, stage.token, stage.words, stage.known)  # this program's class is not
    Path(result).write_bytes(pickle.dumps(replace(scene, stage=seen)))  # known outside


if __name__ == "__main__":
    main(*sys.argv[1:])
