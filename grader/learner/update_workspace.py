"""`infralens update`: a newer kit's corrections in a workspace. What a learner wrote is never
changed; each other change is shown first.

Every file is written whole and the record last, so that a call that was interrupted goes on when it
is repeated: a file that is as the kit ships it is up to date, whatever the record says.
"""

from __future__ import annotations

import difflib
import enum
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import typer

from grader import durable, readable
from grader.errors import LabError
from grader.lab import places, shipped
from grader.lab.shipped import BrokenRecord, Shipment, WorkspaceRecord, sha256
from grader.suite.suite_digest import version

Say = Callable[[str], None]
MOST_LINES = 60  # of one file's difference
_TEXTS = (".py", ".md", ".toml", ".cu", ".sh", ".yaml", "")


class UpdateStep(enum.Enum):
    """What becomes of a file. The words stand before its name."""

    ADD = "new"
    REPLACE = "corrected"
    RESTORE = "restored"
    REMOVE = "removed"
    LAY_BESIDE = "kept"
    LEAVE = "left"


@dataclass(frozen=True)
class FileChange:
    """One file's step. seen: the hash that was found, empty for no file; target: what is written,
    beside the file for LAY_BESIDE; why: for the learner."""

    name: str
    step: UpdateStep
    seen: str
    target: str = ""
    why: str = ""


def run(start: Path, dry_run: bool, yes: bool, say: Say) -> int:
    """Bring a workspace up to date; the exit status: 1 where nothing was written though something
    is to do, else 0. Raises LabError."""
    root = _root(start.resolve())
    shipment = shipped.shipment(version("infralens-labs"))
    known = _record(root, shipment, say)
    changes = list(_plan(root, shipment, known))
    writes = [one for one in changes if one.step is not UpdateStep.LEAVE]
    for change in changes:
        _show(root, shipment, change, say)
    if not writes:
        if not dry_run:
            _write_record(root, shipment, known, changes)
        say(f"{'Nothing to do' if not changes else 'Nothing was changed'}: {_is_of(shipment)}.")
        return 0
    if dry_run:
        say(f"{_files(len(writes))} would be written. Nothing was changed (--dry-run).")
        return 0
    if not yes and not _agreed(say):
        return 1
    late = _apply(root, shipment, known, changes, say)
    say(f"{_files(len(writes) - late)} written: {_is_of(shipment)}.")
    return 0


def _is_of(shipment: Shipment) -> str:
    return f"the labs are those of infralens-labs {shipment.version or '(not installed)'}"


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"


def _agreed(say: Say) -> bool:
    if not sys.stdin.isatty():
        say("Nothing was changed. To write this: infralens update --yes")
        return False
    if not typer.confirm("Write this?"):
        say("Nothing was changed.")
        return False
    return True


# -- the workspace and its record -----------------------------------------------------------------


def _root(start: Path) -> Path:
    """The workspace at or above a folder. Without a record, the settings of pytest tell it."""
    for folder in (start, *start.parents):
        if places.is_workspace(folder):
            return folder
        if (folder / "exercises").is_dir() and (folder / "pyproject.toml").is_file():
            if _was_workspace(folder):
                return folder
            raise LabError(
                f"{folder} is not a workspace of `infralens init`. A clone or an instructor's "
                "release is brought up to date where it came from (git pull)."
            )
    raise LabError(
        f"No workspace at or above {start}: go into the folder that `infralens init` wrote."
    )


def _was_workspace(folder: Path) -> bool:
    """Whether this has a workspace's own settings, and no suites or references."""
    try:
        data = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    alone = not any((folder / name).exists() for name in ("grader", "tests", "solutions"))
    return alone and "project" not in data and "tool" in data


def _record(root: Path, shipment: Shipment, say: Say) -> WorkspaceRecord:
    """The record. A missing one is taken as empty: what differs from the kit is the learner's."""
    path = root / places.RECORD
    if not path.exists():
        say(f"{path.name} is missing. What differs from the kit counts as yours, and is kept.")
        return WorkspaceRecord("", {})
    try:
        known = shipped.record(root)
    except BrokenRecord as error:
        say(f"{error} What differs from the kit counts as yours, and is kept.")
        return WorkspaceRecord("", {})
    if shipped.order(known.version) > shipped.order(shipment.version):
        raise LabError(
            f"{root} has the labs of infralens-labs {known.version}, and {shipment.version} is "
            "installed, which is older. Nothing was changed. "
            "Type: pip install --upgrade infralens-labs"
        )
    return known


# -- what is to do --------------------------------------------------------------------------------


def _plan(root: Path, shipment: Shipment, known: WorkspaceRecord) -> Iterator[FileChange]:
    for name, new in shipment.hashes.items():
        if change := _of_shipped(root, shipment, known, name, new):
            yield change
    for name in sorted(known.given.keys() - shipment.files.keys()):
        if change := _of_dropped(root, name, known.given[name]):
            yield change


def _of_shipped(
    root: Path, shipment: Shipment, known: WorkspaceRecord, name: str, new: str
) -> FileChange | None:
    if why := _obstacle(root, name):
        return FileChange(name, UpdateStep.LEAVE, "", why=why)
    old, here = known.given.get(name, ""), _hash(root / name)
    is_skeleton = name in shipment.skeletons
    if not here:
        if not old:
            return FileChange(name, UpdateStep.ADD, here, name)
        if is_skeleton:
            why = f"you removed it; `infralens reset {name.split('/')[1]}` puts the skeleton back"
            return FileChange(name, UpdateStep.LEAVE, here, why=why)
        return FileChange(name, UpdateStep.RESTORE, here, name, "it was missing")
    if here == new:
        return None
    if here == old:
        why = "you have not begun it" if is_skeleton else ""
        return FileChange(name, UpdateStep.REPLACE, here, name, why)
    if new == old:
        return None
    target = _free_name(root, name, new, known)
    what = "skeleton" if is_skeleton else "version"
    if _hash(root / target) == new:
        return FileChange(
            name, UpdateStep.LEAVE, here, why=f"yours; the kit's new {what} is {target}"
        )
    why = f"yours, as it is; the kit's new {what} comes beside it: {target}"
    return FileChange(name, UpdateStep.LAY_BESIDE, here, target, why)


def _of_dropped(root: Path, name: str, old: str) -> FileChange | None:
    """A file that the kit no longer has."""
    if not _is_inside(name):
        return None  # a record that was edited must not reach outside
    if why := _obstacle(root, name):
        return FileChange(name, UpdateStep.LEAVE, "", why=why)
    here = _hash(root / name)
    if not here:
        return None
    if here == old:
        return FileChange(name, UpdateStep.REMOVE, here, name, "the kit no longer has it")
    return FileChange(name, UpdateStep.LEAVE, here, why="yours; the kit no longer has it")


def _is_inside(name: str) -> bool:
    path = Path(name)
    return not path.is_absolute() and ".." not in path.parts


def _obstacle(root: Path, name: str) -> str:
    """Why a file cannot be brought up to date where it stands; "" if it can."""
    path = Path(name)
    for part in (*reversed(path.parents[:-1]), path):
        if (root / part).is_symlink():
            what = "it is a link" if part == path else f"{part} is a link"
            return f"{what}, which is not followed"
        if part != path and (root / part).exists() and not (root / part).is_dir():
            return f"{part} is a file, where a folder should be"
    if (root / path).exists() and not (root / path).is_file():
        return "it is not a plain file"
    return ""


def _hash(path: Path) -> str:
    try:
        return sha256(path.read_bytes())
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}.") from None


def _free_name(root: Path, name: str, new: str, known: WorkspaceRecord) -> str:
    """Where a new version can be laid: over an earlier one, and over nothing else."""
    number = 1
    while True:
        target = f"{name}.new{number if number > 1 else ''}"
        path = root / target
        if not path.is_symlink() and (not path.exists() or path.is_file()):
            here = _hash(path)
            if not here or here in (new, known.beside.get(target)):
                return target
        number += 1


# -- what is shown --------------------------------------------------------------------------------


def _show(root: Path, shipment: Shipment, change: FileChange, say: Say) -> None:
    why = f" ({change.why})" if change.why else ""
    say(f"{change.step.value:<10} {readable.line(change.name)}{why}")
    if change.step is UpdateStep.REPLACE and Path(change.name).suffix in _TEXTS:
        old = (root / change.name).read_bytes().decode("utf-8", "replace").splitlines()
        new = shipment.files[change.name].decode("utf-8", "replace").splitlines()
        rows = list(difflib.unified_diff(old, new, "yours", "the kit's", lineterm="", n=2))
        for row in rows[:MOST_LINES]:
            say(f"    {readable.line(row)}" if row else "")
        if len(rows) > MOST_LINES:
            say(f"    ({len(rows) - MOST_LINES} more lines)")


# -- what is written ------------------------------------------------------------------------------


def _apply(
    root: Path,
    shipment: Shipment,
    known: WorkspaceRecord,
    changes: list[FileChange],
    say: Say,
) -> int:
    """Write the files, then the record; the number of files that a learner changed meanwhile, and
    which stay as they are."""
    late: list[FileChange] = []
    path = root
    try:
        for change in changes:
            if change.step is UpdateStep.LEAVE:
                continue
            path = root / change.target
            if _obstacle(root, change.target) or _hash(root / change.name) != change.seen:
                late.append(change)
            elif change.step is UpdateStep.REMOVE:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                durable.write_atomically(path, shipment.files[change.name])
    except OSError as error:
        raise LabError(
            f"{path} cannot be written: {error.strerror}. What you wrote is as it was; mend that, "
            "and the same call goes on."
        ) from None
    for change in late:
        say(f"left       {change.name} (it changed meanwhile; infralens update looks again)")
    _write_record(root, shipment, known, [one for one in changes if one not in late], late)
    return len(late)


def _write_record(
    root: Path,
    shipment: Shipment,
    known: WorkspaceRecord,
    changes: list[FileChange],
    late: list[FileChange] | None = None,
) -> None:
    """Note what the workspace has now. A file that was left keeps its old note, so that the next
    call says the same again, and so does one that changed meanwhile."""
    given = shipment.hashes
    beside = dict(known.beside)
    for change in changes:
        if change.step is UpdateStep.LAY_BESIDE:
            beside[change.target] = given[change.name]
    same = {one.name for one in late or []}
    same |= {
        one.name for one in changes if one.step is UpdateStep.LEAVE and _stays_open(one, given)
    }
    for name in same:
        given.pop(name, None)
        if name in known.given:
            given[name] = known.given[name]
    made = WorkspaceRecord(shipment.version, given, beside)
    if made == known:
        return
    try:
        made.write(root)
    except OSError as error:
        raise LabError(
            f"{root / places.RECORD} cannot be written: {error.strerror}. The other files are; "
            "mend that, and the same call notes them."
        ) from None


def _stays_open(change: FileChange, given: dict[str, str]) -> bool:
    """Whether a file that was left is to be looked at again: a link, or a skeleton that is missing.
    One whose new version lies beside it already is done."""
    return not change.seen or change.name not in given
