"""Writes the files of a release as a folder, a zip or a git repository, and reads back what was
written. The same files always give the same bytes."""

from __future__ import annotations

import os
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

from grader.errors import LabError

TOP = "infralens-labs"  # the folder in a zip
_ZIP_DATE = (2020, 1, 1, 0, 0, 0)
_GIT_DATE = "2020-01-01T00:00:00+0000"
_AUTHOR = "InfraLens Labs"
_ADDRESS = "release@infralens.invalid"
_FILE_MODE, _FOLDER_MODE = 0o644, 0o755


def write_folder(target: Path, files: dict[str, bytes]) -> None:
    """Write the files below a folder that is made."""
    target.mkdir()
    target.chmod(_FOLDER_MODE)
    for name, data in files.items():
        path = target / name
        for parent in reversed(path.relative_to(target).parents[:-1]):
            folder = target / parent
            if not folder.is_dir():
                folder.mkdir()
                folder.chmod(_FOLDER_MODE)
        path.write_bytes(data)
        path.chmod(_FILE_MODE)


def write_zip(target: Path, files: dict[str, bytes]) -> None:
    """Write one zip, in which all lies below one folder. Nothing is compressed: what compresses
    differs from one zlib to the next."""
    with zipfile.ZipFile(target, "x", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(f"{TOP}/{name}", _ZIP_DATE)
            info.create_system = 3  # Unix, wherever it is made
            info.external_attr = (0o100000 | _FILE_MODE) << 16
            archive.writestr(info, data)
    target.chmod(_FILE_MODE)


def write_git(target: Path, files: dict[str, bytes]) -> None:
    """Write a folder with all files in one commit on the branch `main`."""
    write_folder(target, files)
    _git(target, "init", "--quiet", "--initial-branch=main", "--template=")
    _git(target, "add", "--all", "--force")
    _git(target, "commit", "--quiet", "--no-verify", "--message", "The labs")
    # As `add` leaves it, the index holds the times of files.
    (target / ".git" / "index").unlink()
    _git(target, "read-tree", "HEAD")
    for left in ("COMMIT_EDITMSG", "logs"):
        _remove(target / ".git" / left)


def _git(folder: Path, *words: str) -> None:
    who = ("AUTHOR", "COMMITTER")
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        **{f"GIT_{each}_NAME": _AUTHOR for each in who},
        **{f"GIT_{each}_EMAIL": _ADDRESS for each in who},
        **{f"GIT_{each}_DATE": _GIT_DATE for each in who},
    }
    settings = ("-c", "core.autocrlf=false", "-c", "core.fileMode=false", "-c", "gc.auto=0")
    try:
        done = subprocess.run(
            ["git", *settings, *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            umask=0o022,
        )
    except FileNotFoundError:
        raise LabError("git is not installed; install it, or leave out --git.") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().replace("\n", "; ")
        raise LabError(f"`git {words[0]}` failed in the release: {said}.")


def _remove(path: Path) -> None:
    if path.is_dir():
        for inner in sorted(path.iterdir()):
            _remove(inner)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def read_back(written: Path) -> Iterator[tuple[str, bytes]]:
    """Every file that was written, by its path in the release; in a zip below its folder."""
    if written.is_file():
        with zipfile.ZipFile(written) as archive:
            for info in archive.infolist():
                yield info.filename.removeprefix(f"{TOP}/"), archive.read(info)
        return
    for path in sorted(written.rglob("*")):
        name = path.relative_to(written).as_posix()
        if path.is_symlink():
            raise LabError(f"The release holds a link, {name}; it must hold files alone.")
        if path.is_file():
            yield name, path.read_bytes()
