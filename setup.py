"""Puts the labs into the wheel: `grader/kit` has the exercises, references and suites of this
repository, which holds each of them once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
PLACE = Path("grader") / "kit"
LEFT_OUT = {"__pycache__", ".infralens", ".pytest_cache", ".hypothesis", ".ipynb_checkpoints"}


def labs() -> Iterator[Path]:
    """Every file of the kit's folder, by its path in this repository. A release for learners has
    no references: it is made to be used as it is, and its wheel would be of no use."""
    yield from (Path("pyproject.toml"), Path("conftest.py"))
    for top in ("exercises", "solutions", "tests"):
        for path in sorted((HERE / top).rglob("*")):
            inside = path.relative_to(HERE)
            if top == "tests" and not inside.parts[1].startswith("lab"):
                continue  # the tests of the kit itself
            if path.is_file() and not LEFT_OUT & {*inside.parts} and path.suffix != ".pyc":
                yield inside


class BuildWithLabs(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:  # the clone has them
            return
        target = Path(self.build_lib) / PLACE
        shutil.rmtree(target, ignore_errors=True)  # of a former build
        for path in labs():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(HERE / path, target / path)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        placed = (
            [] if self.editable_mode else [str(Path(self.build_lib) / PLACE / p) for p in labs()]
        )
        return [*super().get_outputs(include_bytecode), *placed]


setup(cmdclass={"build_py": BuildWithLabs})
