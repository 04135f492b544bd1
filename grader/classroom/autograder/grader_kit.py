"""What grading needs of the kit, as files: the package, and pages, references and tests of labs."""

from __future__ import annotations

import shlex
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import grader
from grader.errors import LabError
from grader.lab import handed_out, places
from grader.lab.manifest import Lab, load_lab

KIT = "kit"
PROGRAM_MODE, FILE_MODE = 0o755, 0o600
_DATE = (2020, 1, 1, 0, 0, 0)
_LEFT_OUT = ("__pycache__", ".infralens", ".pytest_cache", ".hypothesis")

Files = dict[str, bytes]


def chosen(root: Path, labs: str) -> list[Lab]:
    """The labs of `--labs`. Raises LabError for what cannot be graded from here."""
    if handed_out.tests(root) != "all":
        raise LabError(
            f"{root} is a release without the hidden tests, which decide the marks; "
            "make an autograder from the kit itself."
        )
    names = [name.strip() for name in labs.split(",") if name.strip()]
    if not names:
        raise LabError("--labs names no lab: write it as in --labs lab07.")
    found = [load_lab(root, name) for name in dict.fromkeys(names)]
    for lab in found:
        if not lab.has_solution:
            raise LabError(f"{lab.solution} is missing: grading needs the reference of {lab.id}.")
    return found


def files(root: Path, labs: Sequence[Lab]) -> Files:
    """Everything by its path below the kit, in order. Raises LabError for a link."""
    found: Files = {}
    package = Path(grader.__file__).resolve().parent
    for path in _below(package):
        if path.is_relative_to(places.PACKAGED):  # labs of a wheel; those chosen come from `root`
            continue
        found[f"grader/{path.relative_to(package).as_posix()}"] = path.read_bytes()
    for name in ("pyproject.toml", "conftest.py", "README.md", "LICENSE", "exercises/README.md"):
        if (root / name).is_file():
            found[name] = (root / name).read_bytes()
    for lab in labs:
        for folder in (lab.exercise, lab.solution, lab.suite):
            for path in _below(folder):
                found[path.relative_to(root).as_posix()] = path.read_bytes()
    return dict(sorted(found.items()))


def key_bytes(key_file: Path) -> bytes:
    """The course key, which goes along. Raises LabError."""
    try:
        return key_file.read_bytes()
    except OSError as error:
        raise LabError(f"The course key {key_file} cannot be read: {error.strerror}.") from None


def torch_line(found: Files, index: str, indent: int = 0, root: str = "") -> str:
    """A line of a script that installs PyTorch's CPU build, in a version that the kit takes, from
    an index; empty without one. found: the kit's files."""
    if not index:
        return ""
    rows = tomllib.loads(found["pyproject.toml"].decode())["project"]["dependencies"]
    torch = shlex.quote(next(row for row in rows if row.startswith("torch>")))
    pip = "/opt/infralens/bin/pip install --quiet --no-cache-dir"
    return f"{' ' * indent}{root}{pip} --index-url {shlex.quote(index)} {torch}\n"


def requirement(labs: Sequence[Lab], place: str) -> str:
    """The kit as pip's argument, with what the labs need. place: its folder, `{}` for its name."""
    needs_triton = any("triton" in task.needs for lab in labs for task in lab.tasks)
    return place.format(f"{KIT}[triton]" if needs_triton else KIT)


def _below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if set(parts) & set(_LEFT_OUT) or path.suffix == ".pyc":
            continue
        if path.is_symlink():
            raise LabError(f"{path} is a link; copy the file there.")
        if path.is_file():
            yield path


def write_zip(out: Path, found: Mapping[str, bytes], programs: Sequence[str]) -> None:
    """A zip that always has the same bytes; nothing is compressed, because what compresses differs
    from one zlib to the next. Raises LabError."""
    try:
        with zipfile.ZipFile(out, "x", zipfile.ZIP_STORED) as archive:
            for name, data in found.items():
                info = zipfile.ZipInfo(name, _DATE)
                info.create_system = 3  # Unix, wherever it is made
                mode = PROGRAM_MODE if name in programs else FILE_MODE
                info.external_attr = (0o100000 | mode) << 16
                archive.writestr(info, data)
        out.chmod(FILE_MODE)
    except FileExistsError:
        raise LabError(f"{out} is there already; give a name that is not.") from None
    except OSError as error:
        raise LabError(f"{out} cannot be written: {error.strerror}.") from None


def write_folder(out: Path, found: Mapping[str, bytes], programs: Sequence[str]) -> None:
    """The same as a new folder. Raises LabError."""
    try:
        out.mkdir()
        for name, data in found.items():
            path = out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(PROGRAM_MODE if name in programs else 0o644)
    except FileExistsError:
        raise LabError(f"{out} is there already; give a name that is not.") from None
    except OSError as error:
        raise LabError(f"{out} cannot be written: {error.strerror}.") from None
