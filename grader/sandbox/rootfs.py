"""The file system that student code sees: the Python environment, the system's programs, and a
private folder in memory, and nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import grader
from grader.sandbox import linux

PRIVATE = Path("/private")
UNIT, SCRATCH, HOME, SHM = (PRIVATE / name for name in ("unit", "tmp", "home", "shm"))
_PRIVATE_FOLDERS = (UNIT, SCRATCH, HOME, SHM)
INSIDE_UID = 1000

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_CONFIGURATION = (
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/localtime", "/etc/fonts"),
)
# No /dev/zero: a shared mapping of it is memory that `MemoryMonitor` would not see.
_DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")
_LINKS = {
    "/tmp": str(SCRATCH),
    "/var/tmp": str(SCRATCH),
    "/dev/shm": str(SHM),
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
}
_FILES = {
    "/etc/passwd": f"learner:x:{INSIDE_UID}:{INSIDE_UID}::{HOME}:/bin/sh\n",
    "/etc/group": f"learner:x:{INSIDE_UID}:\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "/etc/host.conf": "multi on\n",
}
# The parts of the kit that a worker needs; suites, solutions and the classroom stay outside.
_KIT = (
    *("__init__.py", "errors.py", "readable.py", "status.py"),
    *("sandbox", "kernels", "meters", "ranks"),
)


@dataclass(frozen=True)
class RootfsSpec:
    """What the root shows: folders and files of this machine (`visible`), read-only, and folders
    that stay empty even where they lie inside a visible one (`hidden`)."""

    visible: tuple[str, ...]
    hidden: tuple[str, ...]

    @property
    def moved(self) -> list[tuple[str, str]]:
        """Visible paths that a private folder would cover (a kit below /tmp): where each is kept
        meanwhile, and where a worker finds it."""
        places = [(path, _place(path)) for path in self.visible]
        moved = [place for path, place in places if place != path]
        return [(f"/kept/{number}", place) for number, place in enumerate(moved)]


def plan(hidden: Iterable[Path], shown: Iterable[Path] = ()) -> RootfsSpec:
    """The root for the Python that runs this; `hidden`: the kit, submissions, results, keys;
    `shown`: more visible paths."""
    visible = [Path(path) for path in (*_SYSTEM, *_CONFIGURATION) if Path(path).exists()]
    visible += _environment()
    package = Path(grader.__file__).resolve().parent
    visible += [*(package / name for name in _KIT), *shown]
    seen = {str(path) for path in visible}
    secret = {str(path) for path in {path.resolve() for path in hidden} if _inside_any(path, seen)}
    needed = [path for path in seen if not _covered(path, seen, secret)]
    return RootfsSpec(tuple(sorted(needed)), tuple(sorted(secret)))


def _place(path: str) -> str:
    """A path with the links of the root resolved."""
    for link, target in _LINKS.items():
        if Path(path).is_relative_to(link):
            return f"{target}{path.removeprefix(link)}"
    return path


def _environment() -> list[Path]:
    """Folders that this Python imports from. The interpreter's own, also with links resolved."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    found = {Path(prefix) for prefix in prefixes}
    found |= {Path(os.path.realpath(prefix)) for prefix in prefixes}
    found.add(Path(os.path.realpath(sys.executable)).parent)
    for entry in map(Path, sys.path):
        if entry.name in ("site-packages", "dist-packages") and entry.is_dir():
            found.add(entry)
    return sorted(path for path in found if not _system(path))


def _system(path: Path) -> bool:
    """Whether a path is shown already, or is the root of this machine, never shown."""
    return path == Path("/") or any(path.is_relative_to(folder) for folder in _SYSTEM)


def _covered(path: str, shown: set[str], secret: set[str]) -> bool:
    """Whether a folder above it is shown already, with nothing hidden between the two."""
    for parent in Path(path).parents:
        if str(parent) in secret:
            return False
        if str(parent) in shown:
            return True
    return False


def _inside_any(path: Path, folders: Iterable[str]) -> bool:
    return any(path.is_relative_to(os.path.realpath(folder)) for folder in folders)


def build(root: str, wanted: RootfsSpec, owner: str) -> None:
    """Mount the root on the existing folder `root`, in a mount namespace of this process's own,
    and move into it. The old root becomes unreachable. `owner`: mount options that name the owner
    of the private folder, which the zygote needs while it imports; each worker mounts its own."""
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("tmpfs", root, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755,size=1m")
    top = Path(root)
    for name in ("proc", "dev", "etc", "var", "kept", "private"):
        (top / name).mkdir()
    options = f"mode=700,size=16m{owner}"
    linux.mount("tmpfs", str(top / "private"), "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)
    for folder in _PRIVATE_FOLDERS:
        (top / str(folder)[1:]).mkdir(mode=0o777)
        (top / str(folder)[1:]).chmod(0o777)
    for name, target in _LINKS.items():
        (top / name[1:]).symlink_to(target)
    for name, text in _FILES.items():
        (top / name[1:]).write_text(text)
    for device in _DEVICES:
        _bind(top, device, linux.ATTR_NOSUID | linux.ATTR_NOEXEC)
    # A fresh /proc may be mounted in a nested namespace only where a whole one is in sight.
    linux.mount("/proc", str(top / "proc"), None, linux.MS_BIND | linux.MS_REC)
    steps = [(path, True) for path in wanted.visible] + [(path, False) for path in wanted.hidden]
    for path, seen in sorted(steps, key=lambda step: len(Path(step[0]).parts)):
        if seen:
            _show(top, path)
        else:
            _hide(top, path)
    for kept, inside in wanted.moved:
        _mount_on(str(top / inside[1:]), top / kept[1:])
    for path in wanted.hidden:
        linux.restrict_mount(str(top / _place(path)[1:]), linux.ATTR_RDONLY, below=False)
    linux.restrict_mount(str(top), linux.ATTR_RDONLY, below=False)
    linux.change_root(root)


def _show(top: Path, path: str) -> None:
    target = top / _place(path)[1:]
    if os.path.islink(path) and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(os.readlink(path))
        return
    _bind(top, path, linux.ATTR_RDONLY | linux.ATTR_NOSUID | linux.ATTR_NODEV)


def _bind(top: Path, path: str, attributes: int) -> None:
    target = top / _place(path)[1:]
    _mount_on(path, target)
    linux.restrict_mount(str(target), attributes)


def _mount_on(path: str, target: Path) -> None:
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.isdir(path):
            target.mkdir()
        else:
            target.touch()
    linux.mount(path, str(target), None, linux.MS_BIND | linux.MS_REC)


def _hide(top: Path, path: str) -> None:
    """Mount an empty folder over a hidden one. It stays writable until the end, because visible
    paths inside it are mounted on it later."""
    target = top / _place(path)[1:]
    if target.is_dir():
        linux.mount("tmpfs", str(target), "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=1m")
    elif target.exists():
        linux.mount("/dev/null", str(target), None, linux.MS_BIND)


def private(bytes_limit: int, files_limit: int, moved: Iterable[tuple[str, str]] = ()) -> None:
    """Mount the private folder of one worker, with the paths that the plan `moved`."""
    options = f"mode=700,size={bytes_limit},nr_inodes={files_limit}"
    flags = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("tmpfs", str(PRIVATE), "tmpfs", flags, options)
    for folder in _PRIVATE_FOLDERS:
        folder.mkdir(mode=0o700)
    for kept, inside in moved:
        _mount_on(kept, Path(inside))
