"""What a copy of the kit was handed out with. `infralens release` writes a note of it; the kit's
own checkout has none, and holds everything."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast, get_args

from grader.errors import LabError
from grader.lab import places, toml_file

FILE = "release.toml"
SKELETONS = "skeletons"  # the files under `edit` as they were handed out
Tests = Literal["all", "public", "none"]
PUBLIC_TESTS_SAID = "These are the public tests; the hidden ones decide the points."


def is_release(root: Path) -> bool:
    """Whether this copy of the kit was handed out, without references."""
    return (root / FILE).is_file()


def tests(root: Path) -> Tests:
    """Which tests this copy of the kit has."""
    path = root / FILE
    if not is_release(root):
        return "all"
    value = toml_file.read(path).get("tests")
    if value not in get_args(Tests):
        known = ", ".join(get_args(Tests))
        raise LabError(f"{path}: tests is {value!r}; unpack the release again ({known} are known).")
    return cast(Tests, value)


def note(which: Tests) -> str:
    """The text of the note."""
    return (
        "# Which tests this copy of the labs was handed out with: all, public or none.\n"
        f'tests = "{which}"\n'
    )


def no_suite(root: Path, lab_id: str) -> str:
    """Why a lab cannot be run here, as a sentence."""
    if tests(root) == "none":
        return (
            f"This release holds no tests, so {lab_id} cannot be run here. Write your answer and "
            "hand it in: your instructor grades it."
        )
    suite = places.kit_of(root) / "tests" / lab_id
    if not (root / "tests").is_dir() and not places.is_workspace(root):
        return (
            f"{lab_id} has no suite: {suite} is missing. If `infralens init` wrote this folder, "
            f"its {places.RECORD} is gone: `infralens update` writes it anew."
        )
    return f"{lab_id} has no suite: {suite} is missing."
