"""What other systems hand out when a teacher downloads submissions: whose each part is, and when it
was handed in.

Folders of Gradescope, Canvas, Moodle and GitHub Classroom; one that came as an archive is unpacked
by `unpacked_download`. Only names are read here, Gradescope's own list, and the last commit of a
clone; files are opened by those who take them, without following links. Names are the students'
own, and are shown escaped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import MAXYEAR, UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from grader import readable
from grader.classroom.intake import git_commit
from grader.errors import LabError

METADATA = "submission_metadata.yml"
MOST_METADATA = 64 * 2**20
MOST_ENTRIES = 100_000
MOST_WRAPPERS = 3
OLDEST = datetime(1990, 1, 1, tzinfo=UTC)
BY_SYSTEM, BY_COMMIT = "system", "last commit"
# The parts of a name as Canvas' own content_zipper.rb joins them; ids of a consortium are long. Of
# an anonymous assignment `anon_x7Ab2` stands for name and user. Text and links have no file's id.
_CANVAS = re.compile(
    r"(?:(?P<name>.+?)_)??(?P<late>LATE_)?(?P<user>[0-9]{1,20}|anon_[0-9A-Za-z]{5})_"
    r"(?:(?P<id>[0-9]{1,20})_(?P<file>.+)|(?P<entry>text|link)\.html)"
)
_SUBMISSION = re.compile(r"submission_[0-9]{1,15}")
_SYSTEM_S = ("__MACOSX", "Thumbs.db", "desktop.ini")
_AGAIN = re.compile(r"-[0-9]{1,4}(?=\.[A-Za-z0-9]+\Z|\Z)")
_MOODLE = re.compile(
    r"(?P<name>.+?)_(?P<participant>[0-9]{1,12})_assignsubmission_(?P<kind>file|onlinetext)_?"
    r"(?P<file>.*)"
)


@dataclass(frozen=True)
class Part:
    """One attempt, or a part of one, in a download. Of what it says about its student: `id` (of a
    registrar), `email`, `login`, `name`, and `number`, the system's own. at: when it was handed in,
    None where the download does not say; at_from: whose clock that is, the system's or a commit's.
    late: as the system has it. files: the files by the name that they were handed in under,
    relative to `folder`. note: a clause on what is odd about it."""

    system: str
    folder: Path
    files: Mapping[str, str]
    id: str = ""
    email: str = ""
    login: str = ""
    name: str = ""
    number: str = ""
    at: datetime | None = None
    late: bool = False
    label: str = field(default="", compare=False)
    at_from: str = ""
    note: str = ""


def system_of(folder: Path) -> str:
    """Which system a folder was downloaded from: gradescope, canvas, moodle or github; "" if it is
    none of these. Raises LabError for what cannot be listed."""
    names = _names(folder)
    if METADATA in names:
        return "gradescope"
    if any(_MOODLE.fullmatch(name) for name in names):
        return "moodle"
    if any(_canvas_name(name) for name in names if not (folder / name).is_dir()):
        return "canvas"
    if any(_is_clone(folder / name) for name in names):
        return "github"
    return ""


def inside(folder: Path) -> Path:
    """The folder that holds the submissions: the one given, or the one that it holds alone, as
    after unpacking (`assignment_123_export/`)."""
    for _ in range(MOST_WRAPPERS):
        if system_of(folder):
            break
        names = [name for name in _names(folder) if not name.startswith(".") and name != "__MACOSX"]
        within = folder / names[0] if len(names) == 1 else folder
        if within == folder or within.is_symlink() or not within.is_dir():
            break
        folder = within
    return folder


def parts(folder: Path, assignment: str = "") -> list[Part]:
    """Everything that a download holds. assignment: of GitHub Classroom, what stands before the
    login in a clone's name. Raises LabError with the file and what to do."""
    given, folder = folder, inside(folder)
    system = system_of(folder)
    if system == "gradescope":
        return list(_gradescope(folder))
    if system == "moodle":
        return list(_moodle(folder))
    if system == "canvas":
        return list(_canvas(folder))
    if system == "github":
        return list(_github(folder, assignment))
    raise LabError(
        f"{given} is not a download of Gradescope ({METADATA}), Canvas (name_123_456_file.py), "
        "Moodle (Name_123_assignsubmission_file_) or GitHub Classroom (a clone for each student). "
        "Submissions in our own layout need no intake."
    )


def others(folder: Path) -> list[str]:
    """Files and folders of a download that are not named as the system names what students hand
    in."""
    folder = inside(folder)
    system = system_of(folder)
    names = [name for name in _names(folder) if not name.startswith(".") and name not in _SYSTEM_S]
    if system == "gradescope":
        return [name for name in names if name != METADATA and not _SUBMISSION.fullmatch(name)]
    if system == "moodle":
        return [
            name for name in names if not _MOODLE.fullmatch(name) or (folder / name).is_symlink()
        ]
    if system == "canvas":
        return [
            name for name in names
            if not _canvas_name(name) or (folder / name).is_symlink() or (folder / name).is_dir()
        ]  # fmt: skip
    return [name for name in names if not _is_clone(folder / name)]


# -- Gradescope -----------------------------------------------------------------------------------


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases: a few of them make any size out of a small text. A plain word is a text
    or a time: `0010` is an id, and not the number 8."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # PyYAML's own form
        first: [row for row in rows if row[0].rpartition(":")[2] in ("timestamp", "null", "merge")]
        for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias, which Gradescope does not write")
        return super().compose_node(parent, index)


def _gradescope(folder: Path) -> Iterator[Part]:
    """One part for each submitter of each submission: `submission_123/` beside the list."""
    path = folder / METADATA
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_METADATA + 1)
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}.") from None
    if len(raw) > MOST_METADATA:
        raise LabError(f"{path} is larger than {MOST_METADATA // 2**20} MiB.")
    try:
        data = yaml.load(raw, _PlainLoader)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise LabError(f"{path} is not YAML as Gradescope writes it: {said[:200]}.") from None
    if not isinstance(data, dict):
        raise LabError(f"{path} does not list submissions: download the export anew.")
    for name, row in data.items():
        if not isinstance(name, str) or not _SUBMISSION.fullmatch(name):
            raise LabError(f"{path}: {_shown(name)} is not a submission's name.")
        submitters = row.get(":submitters") if isinstance(row, dict) else None
        if not isinstance(submitters, list) or not submitters:
            raise LabError(f"{path}: {name} has no :submitters.")
        own = folder / name
        files = files_in(own) if own.is_dir() and not own.is_symlink() else {}
        at = _moment(row.get(":created_at"))
        for submitter in submitters:
            who = submitter if isinstance(submitter, dict) else {}
            yield Part(
                "gradescope", own, files, id=_text(who.get(":sid")),
                email=_text(who.get(":email")), name=_text(who.get(":name")),
                number=name.removeprefix("submission_"), at=at, label=name,
                at_from=BY_SYSTEM if at else "",
            )  # fmt: skip


def _moment(value: Any) -> datetime | None:
    if not isinstance(value, datetime) or not 1 < value.year < MAXYEAR:
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


# -- Canvas and Moodle ----------------------------------------------------------------------------


def _canvas_name(name: str) -> re.Match[str] | None:
    """The parts of a file's name in a download of Canvas; None for a name of something else."""
    match = _CANVAS.fullmatch(name)
    anonymous = match is not None and match["user"].startswith("anon_")
    return match if match and bool(match["name"]) != anonymous else None


def _canvas(folder: Path) -> Iterator[Part]:
    """Files of one user, of the last attempt, which alone Canvas packs. Of a file that was handed
    in again Canvas writes the number of the time behind its name; the file with the largest number
    of its own counts."""
    found: dict[str, dict[str, tuple[int, str]]] = {}
    names: dict[str, str] = {}
    late: set[str] = set()
    for name in _names(folder):
        match = _canvas_name(name)
        if match is None or not (folder / name).is_file() or (folder / name).is_symlink():
            continue
        user = match["user"]
        names[user] = match["name"] or ""
        if match["late"]:
            late.add(user)
        meant = _AGAIN.sub("", match["file"] or f"{match['entry']}.html")
        number = int(match["id"] or 0)
        before = found.setdefault(user, {}).get(meant)
        if before is None or number > before[0]:
            found[user][meant] = number, name
    for user, files in found.items():
        is_anonymous = user.startswith("anon_")
        yield Part(
            "canvas", folder, {meant: name for meant, (_, name) in files.items()},
            name=names[user], number=user, late=user in late,
            label=user if is_anonymous else f"{names[user]}_{user}",
            note="is anonymous: turn that off in Canvas, and download anew" * is_anonymous,
        )  # fmt: skip


def _moodle(folder: Path) -> Iterator[Part]:
    """A folder for each participant, or all files in one with the participant before their name.
    Who wrote a text in Moodle alone has a part without files."""
    flat: dict[tuple[str, str], dict[str, str]] = {}
    texts: dict[tuple[str, str], str] = {}
    seen: set[tuple[str, str]] = set()
    for name in _names(folder):
        match = _MOODLE.fullmatch(name)
        if match is None or (folder / name).is_symlink():
            continue
        who = match["name"], match["participant"]
        if match["kind"] != "file":
            texts[who] = name
        elif (folder / name).is_dir():
            seen.add(who)
            yield Part(
                "moodle", folder / name, files_in(folder / name), name=who[0], number=who[1],
                label=name,
            )  # fmt: skip
        elif match["file"]:
            flat.setdefault(who, {})[match["file"]] = name
    for (name, participant), files in flat.items():
        yield Part(
            "moodle", folder, files, name=name, number=participant, label=f"{name}_{participant}"
        )
    for who, label in texts.items():
        if who not in seen and who not in flat:
            yield Part(
                "moodle", folder, {}, name=who[0], number=who[1], label=label,
                note="is a text that was written in Moodle, without a file",
            )  # fmt: skip


# -- GitHub Classroom -----------------------------------------------------------------------------


def _github(folder: Path, assignment: str) -> Iterator[Part]:
    """A clone for each student, `assignment-login`. Both may hold hyphens, so the assignment must
    be named."""
    if not assignment:
        raise LabError(
            f"{folder} holds clones: name their assignment as it stands before each login, with "
            "--assignment."
        )
    for name in _names(folder):
        if not _is_clone(folder / name):
            continue
        if not name.startswith(f"{assignment}-") or name == f"{assignment}-":
            raise LabError(
                f"{folder / name} does not begin with {assignment + '-'!r}, as --assignment says."
            )
        at, note = _last_commit(folder / name)
        yield Part(
            "github", folder / name, files_in(folder / name),
            login=name.removeprefix(f"{assignment}-"), label=name, at=at,
            at_from=BY_COMMIT if at else "", note=note,
        )  # fmt: skip


def _is_clone(folder: Path) -> bool:
    return not folder.is_symlink() and os.path.lexists(folder / ".git")


def _last_commit(clone: Path) -> tuple[datetime | None, str]:
    """When it was made, or why that is not known."""
    try:
        at = git_commit.last_commit(clone).at
    except git_commit.NoCommit as error:
        return None, f"{error}: its time is not known"
    if at is None:
        return None, "has a commit with a time that no calendar has: its time is not known"
    if at < OLDEST:
        return None, f"was committed in {at.year}, by a clock that is wrong: its time is not known"
    return at, ""


# -- names ----------------------------------------------------------------------------------------


def _names(folder: Path) -> list[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise LabError(f"{folder} cannot be listed: {error.strerror}.") from None
    if len(names) > MOST_ENTRIES:
        raise LabError(f"{folder} has more than {MOST_ENTRIES:,} entries.")
    return names


def files_in(folder: Path) -> dict[str, str]:
    """The files of a folder and those below it, by their path from there; no link is followed."""
    found: dict[str, str] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders
            if name not in (".git", "__pycache__") and not os.path.islink(os.path.join(place, name))
        )  # fmt: skip
        for name in sorted(names):
            path = os.path.join(place, name)
            if not os.path.islink(path) and os.path.isfile(path):
                shown = os.path.relpath(path, folder)
                found[shown] = shown
        if len(found) > MOST_ENTRIES:
            raise LabError(f"{folder} has more than {MOST_ENTRIES:,} files.")
    return found


def _text(value: Any) -> str:
    return str(value).strip()[:500] if isinstance(value, str | int) else ""


def _shown(value: Any) -> str:
    return repr(readable.line(str(value), 60))
