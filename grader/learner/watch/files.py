"""Which saves there are: a thread sees the folder and says what changed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from grader.errors import LabError
from grader.lab.manifest import Lab

STEP_MILLISECONDS = 10
"""Changes that come within this time of each other are one."""
DEBOUNCE_MILLISECONDS = 40
_OURS = (".py", ".toml", ".json", ".h", ".cpp")


def library() -> None:
    """Fail with a sentence where the library that sees changes is not installed."""
    try:
        import watchfiles  # noqa: F401
    except ImportError:
        raise LabError(
            "`infralens watch` needs two libraries that are not installed here. "
            "Type: pip install -e '.[watch]'"
        ) from None


class Saves:
    """Calls `said` from a thread of its own with "learner" when a file that the lab grades changed,
    and with "kit" when a given file, the suite or the grader did."""

    def __init__(self, lab: Lab, said: Callable[[str], None]) -> None:
        self.lab = lab
        self.said = said
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="saves")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(2.0)

    def _watch(self) -> None:
        from watchfiles import watch

        package = Path(__file__).resolve().parents[2]
        places = [self.lab.exercise, self.lab.suite, package]
        changes = watch(
            *(place for place in places if place.is_dir()),
            watch_filter=None,
            step=STEP_MILLISECONDS,
            debounce=DEBOUNCE_MILLISECONDS,
            stop_event=self._stop,
            raise_interrupt=False,
            rust_timeout=1000,
        )
        for found in changes:
            for kind in self.kinds(path for _, path in found):
                self.said(kind)

    def kinds(self, paths: Iterable[str]) -> list[str]:
        """What changed, of `learner` and `kit`, by the names of the files."""
        found = set()
        for text in paths:
            folder, name = os.path.split(text)
            if _same(folder, self.lab.exercise):
                if name in self.lab.edit:
                    found.add("learner")
                elif name in (*self.lab.given, "lab.toml"):
                    found.add("kit")
            elif name.endswith(_OURS) and not name.startswith("."):
                found.add("kit")
        return sorted(found)


def _same(folder: str, other: Path) -> bool:
    return os.path.realpath(folder) == os.path.realpath(other)


def fault(lab: Lab) -> str:
    """Why the lab's files cannot be run as they are; "" if they can."""
    for name in lab.edit:
        path = lab.exercise / name
        if not path.exists():
            return (
                f"exercises/{lab.id}/{name} is missing. Save it again, or: infralens reset {lab.id}"
            )
        if path.is_symlink() or not path.is_file():
            return (
                f"exercises/{lab.id}/{name} is a link or not a plain file: what is graded must lie "
                f"in exercises/{lab.id} itself. Replace it by a file of its own."
            )
    return ""
