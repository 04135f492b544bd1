"""`infralens reset lab07`: the skeleton again; what stood there is kept."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from grader import durable
from grader.errors import LabError
from grader.lab import notes, places, skeleton
from grader.lab.manifest import Lab


def reset(lab: Lab) -> tuple[list[str], Path | None]:
    """Put the lab's files back as they were shipped. Returns the names that changed and the folder
    that their former versions were copied to (None if nothing was lost)."""
    if not skeleton.can_be_made(lab):
        raise LabError(f"{lab.solution} is missing, and a reset makes {lab.id}'s files from it.")
    names = skeleton.stale(lab)
    existing = [name for name in names if (lab.exercise / name).is_file()]
    backup = None
    if existing:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        backup = durable.state_folder(lab.root) / "backup" / f"{lab.id}-{stamp}"
        while backup.exists():
            backup = backup.with_name(backup.name + "x")
        backup.mkdir(parents=True)
        for name in existing:
            shutil.copy2(lab.exercise / name, backup / name)
    skeleton.write(lab, names)
    data = notes.read(lab.root)
    data["labs"].pop(lab.id, None)
    notes.save(lab.root, data)
    return names, backup


def not_reset(lab: Lab) -> list[str]:
    """A sentence for each given file that is missing, or that was edited: it is not generated, so
    only its commit, or the package, has it."""
    missing = {name for name in lab.given if not lab.given_source(name).is_file()}
    edited = _edited(lab) - missing
    return [
        f"{name} is {'missing' if name in missing else 'edited'}, and a reset leaves given files "
        f"alone: {lab.how_to_restore_given(name)}."
        for name in lab.given
        if name in missing | edited
    ]


def _edited(lab: Lab) -> set[str]:
    """Given files that are not the kit's own: those of a workspace beside those of the package."""
    if not places.is_workspace(lab.root):
        return changed_since_commit(lab, lab.given)
    kit = lab.kit / "exercises" / lab.id
    return {
        name for name in lab.given if notes.digest(lab.exercise / name) != notes.digest(kit / name)
    }


def changed_since_commit(lab: Lab, names: tuple[str, ...]) -> set[str]:
    """Those files of an exercise that are not what was committed; none where there is no git."""
    words = ("diff", "HEAD", "--name-only", "--relative", "--diff-filter=MD")
    return _listed_by_git(lab, words, names)


def committed(lab: Lab, names: tuple[str, ...]) -> set[str]:
    """Those files of an exercise whose text is that of the last commit; none where there is no
    git."""
    known = _listed_by_git(lab, ("ls-tree", "--name-only", "HEAD"), names)
    return known - changed_since_commit(lab, names)


def _listed_by_git(lab: Lab, command: tuple[str, ...], names: tuple[str, ...]) -> set[str]:
    words = ["git", *command, "--", *names]
    try:
        done = subprocess.run(words, cwd=lab.exercise, capture_output=True, text=True, check=False)
    except OSError:
        return set()
    return set(done.stdout.splitlines()) & set(names) if done.returncode == 0 else set()
