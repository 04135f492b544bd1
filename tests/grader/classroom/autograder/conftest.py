"""A kit of one lab, for which autograders are made."""

from __future__ import annotations

import pytest

from grader.lab.manifest import Lab, load_lab
from tests.grader.attacks.stage import Stage


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    made = Stage(tmp_path_factory.mktemp("stage"))
    made.build()
    return made


@pytest.fixture(scope="module")
def lab(stage: Stage) -> Lab:
    return load_lab(stage.kit, "lab91")
