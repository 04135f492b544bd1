"""`infralens release OUT`: writes what learners get, looks for leaks in it, and leaves nothing
behind if there is one."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast, get_args

from grader.classroom.release import contents, destinations
from grader.classroom.release.byte_code import KnownCode
from grader.classroom.release.leak_check import Leak, LeakCheck
from grader.errors import LabError
from grader.lab import handed_out, skeleton
from grader.lab.handed_out import Tests
from grader.lab.manifest import Lab, all_labs, load_lab
from grader.suite import secret_lines
from grader.suite.reachable import all_tests
from grader.suite.secret_lines import NotSecret, SecretLine

Say = Callable[[str], None]
MOST_SHOWN = 20  # leaks; more of them say no more
_WRITE = {
    "folder": destinations.write_folder,
    "zip": destinations.write_zip,
    "git": destinations.write_git,
}


def run(root: Path, out: Path, labs: str, tests: str, kind: str, say: Say) -> int:
    """Write a release; 0, or 1 with the leaks said and nothing at `out`. LabError for a call or a
    kit that cannot be released."""
    which = _which_tests(tests)
    chosen = _chosen(root, labs)
    target = _free_place(root, out, kind)
    _refuse_what_cannot_be_released(root, chosen)
    if which == "public":
        _refuse_without_public_tests(chosen)
    files = contents.build(root, chosen, which)
    check = leak_check(root, which)
    with _staging_beside(target) as staged:
        _written(staged, files, kind, target)
        leaks = list(check.leaks(_unscanned(destinations.read_back(staged), kind)))
        if leaks:
            for line in _said(leaks, target):
                say(line)
            return 1
        _put(staged, target)
    labs_said = "1 lab" if len(chosen) == 1 else f"{len(chosen)} labs"
    say(f"{out}: {labs_said}, {len(files)} files, tests: {which}.")
    say(f"{check.number:,} secret lines were looked for, and none is in it.")
    return 0


def _which_tests(value: str) -> Tests:
    if value not in get_args(Tests):
        known = ", ".join(("public", "all", "none"))
        raise LabError(f"--tests is {value!r}; write one of: {known}.")
    return cast(Tests, value)


def _chosen(root: Path, labs: str) -> list[Lab]:
    if not labs:
        return all_labs(root)
    names = [name.strip() for name in labs.split(",") if name.strip()]
    if not names:
        raise LabError(f"--labs is {labs!r}; write ids with commas, as in lab01,lab07.")
    return [load_lab(root, name) for name in sorted(set(names))]


def _free_place(root: Path, out: Path, kind: str) -> Path:
    """Where the release goes: a place that is empty, outside of the kit."""
    target = Path(os.path.abspath(out))
    parent = target.parent
    if parent.resolve().is_relative_to(root.resolve()) or target.resolve() == root.resolve():
        raise LabError(f"{out} lies in the kit ({root}); give a place outside of it.")
    if not parent.is_dir():
        raise LabError(f"{parent} is not a folder; make it first, or give another place.")
    if target.is_symlink() or (target.exists() and not _is_empty_folder(target)):
        raise LabError(f"{out} is there already; give a name that is not.")
    if target.is_dir() and kind == "zip":
        raise LabError(f"{out} is a folder; give the name of the zip to write.")
    return target


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _refuse_what_cannot_be_released(root: Path, labs: Sequence[Lab]) -> None:
    if handed_out.tests(root) != "all" or (root / handed_out.FILE).exists():
        raise LabError(f"{root} is itself a release; only the kit with its references makes one.")
    for lab in all_labs(root):
        for folder in (lab.exercise, lab.solution, lab.suite):
            contents.refuse_what_is_not_text(folder)
    for lab in labs:
        if not lab.has_solution:
            raise LabError(
                f"{lab.solution} is missing: without the reference no leak can be found."
            )
        for text in skeleton.misplaced(lab):
            raise LabError(text)
        if names := skeleton.stale(lab):
            raise LabError(
                f"exercises/{lab.id}/{names[0]} is not what its reference demands; "
                "type `infralens sync`, then release again."
            )


def _refuse_without_public_tests(labs: Sequence[Lab]) -> None:
    for lab in labs:
        known = set(all_tests(lab))
        for task in lab.tasks:
            missing = [name for name in task.public if not known & {(task.id, name), ("", name)}]
            if missing or not task.public:
                what = f"{missing[0]}, which no suite has" if missing else "nothing"
                raise LabError(
                    f"exercises/{lab.id}/lab.toml: `public` of the task `{task.id}` lists {what}; "
                    f"`infralens lint {lab.id}` says what it needs."
                )


def leak_check(root: Path, tests: Tests) -> LeakCheck:
    """Looks for the lines of all labs of the kit, whichever labs are handed out."""
    labs = [lab for lab in all_labs(root) if lab.has_solution]
    allowed = {lab.id: NotSecret(lab, tests) for lab in labs}
    found = [secret for lab in labs for secret in _secrets(lab, tests)]
    handed = [text for lab in labs for text in contents.suite_texts(lab, tests)]
    secrets = secret_lines.not_shown(secret_lines.not_common(root, labs, found), handed)
    return LeakCheck(secrets, allowed, _known_code(labs))


def _secrets(lab: Lab, tests: Tests) -> Iterator[SecretLine]:
    yield from secret_lines.of_reference(lab)
    yield from secret_lines.of_misconceptions(lab, sentences_too=tests != "all")
    if tests != "all":
        yield from secret_lines.of_hidden_tests(lab, contents.handed_out_tests(lab, tests))


def _known_code(labs: Sequence[Lab]) -> KnownCode:
    python = [(lab, name) for lab in labs for name in lab.edit if name.endswith(".py")]
    references = KnownCode(lab.solution / name for lab, name in python)
    return references.without(KnownCode(lab.exercise / name for lab, name in python))


@contextmanager
def _staging_beside(target: Path) -> Iterator[Path]:
    """A place beside the target for what is being written; it is removed whatever happens."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=".release-", dir=target.parent))
    except OSError as error:
        raise LabError(f"{target.parent} takes no files: {error.strerror}.") from None
    try:
        yield folder / target.name
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _written(staged: Path, files: dict[str, bytes], kind: str, target: Path) -> None:
    try:
        _WRITE[kind](staged, files)
    except OSError as error:
        raise LabError(f"{target} cannot be written: {error.strerror}; nothing is left.") from None


def _put(staged: Path, target: Path) -> None:
    if target.is_dir():
        target.rmdir()
    staged.rename(target)


def _unscanned(files: Iterator[tuple[str, bytes]], kind: str) -> Iterator[tuple[str, bytes]]:
    """The files to look into: in a git repository each text is there twice, as a file and as an
    object, and is looked at once."""
    objects = ".git/objects/"
    known: set[str] = set()
    late: list[tuple[str, bytes]] = []
    for name, data in files:
        if kind == "git" and name.startswith(objects):
            late.append((name, data))
            continue
        known.add(hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest())
        yield name, data
    for name, data in late:
        if name.removeprefix(objects).replace("/", "") not in known:
            yield name, data


def _said(leaks: Sequence[Leak], target: Path) -> Iterator[str]:
    yield f"Nothing is written to {target}, because it would hold:"
    for leak in leaks[:MOST_SHOWN]:
        yield f"  {leak}"
    if len(leaks) > MOST_SHOWN:
        yield f"  and {len(leaks) - MOST_SHOWN} more"
    yield (
        "Take each one out. If a line is not a secret, say so with the reason in the lab's "
        f"tests/labNN/{secret_lines.ALLOWED}."
    )
