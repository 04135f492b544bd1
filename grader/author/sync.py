"""`infralens sync`: committed skeletons are what the references demand."""

from __future__ import annotations

from pathlib import Path

from grader.errors import LabError
from grader.lab import handed_out, notes, skeleton
from grader.lab.manifest import Lab, all_labs
from grader.lab.reset import committed, reset


def differing(root: Path) -> list[tuple[Lab, list[str]]]:
    """Labs with generated files that are missing or differ, and those files' names."""
    found = [(lab, skeleton.stale(lab)) for lab in all_labs(root) if lab.has_solution]
    return [(lab, names) for lab, names in found if names]


def refuse_a_release(root: Path) -> None:
    """Raises LabError for a copy of the kit that has no references to make anything from."""
    if handed_out.is_release(root):
        raise LabError(
            f"{root} is a release without references; only the kit itself makes its skeletons anew."
        )


def misplaced(root: Path) -> list[str]:
    """What is wrong with the places of given files, a sentence each; no sync can mend it."""
    return [text for lab in all_labs(root) for text in skeleton.misplaced(lab)]


def write(changes: list[tuple[Lab, list[str]]], force: bool = False) -> list[str]:
    """Bring the skeletons up to date; a file with a text that no commit has is left alone unless
    `force`, and even then its former text is kept. Returns what was done, a line each."""
    said = []
    for lab, names in changes:
        edited = [name for name in names if _edited(lab, name)]
        if edited and not force:
            said.append(
                f"left alone: {', '.join(f'{lab.id}/{name}' for name in edited)} "
                "(no commit has this text; --force overwrites it and keeps a copy)"
            )
            names = [name for name in names if name not in edited]
        if force and edited:
            _, backup = reset(lab)
            said.append(f"{lab.id}: made again; the former files are in {backup}")
            continue
        skeleton.write(lab, names)
        remember(lab, names)
        said += [f"wrote {lab.id}/{name}" for name in names]
    return said


def remember(lab: Lab, names: list[str]) -> None:
    """Note what was written, so that the next sync knows it for its own work."""
    data = notes.read(lab.root)
    written = data["synced"]
    for name in names:
        written[f"{lab.id}/{name}"] = notes.digest(lab.exercise / name)
    notes.save(lab.root, data)


def _edited(lab: Lab, name: str) -> bool:
    """Whether a person may have edited the file: neither sync nor the last commit has its text.
    Outside of git nothing else holds it, so that its loss would be final."""
    path = lab.exercise / name
    written = notes.read(lab.root)["synced"].get(f"{lab.id}/{name}")
    if not path.is_file() or notes.digest(path) == written:
        return False
    return name not in committed(lab, (name,))
