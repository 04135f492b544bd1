"""What a workspace is given of the labs, and the record of it: a hash for each file as the kit
shipped it, so that a later `infralens update` tells the learner's work from the kit's."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from grader import durable
from grader.errors import LabError
from grader.lab import handed_out, lab_page, places, skeleton, task_hints
from grader.lab.manifest import Lab, all_labs

FORM = 1
_HASH = re.compile(r"[0-9a-f]{64}\Z")
_VERSION = re.compile(r"\d+(\.\d+)*")
_PYTEST = re.compile(r"^\[tool\.pytest\.ini_options\]\n.*?(?=^\[|\Z)", re.MULTILINE | re.DOTALL)
_TEST_PATHS = re.compile(r"^testpaths = .*$", re.MULTILINE)
_PROJECT = """\
# Written by `infralens init`: what `pytest exercises/lab01` needs. `infralens update` keeps it.
"""
_IGNORED = """\
.venv/
__pycache__/
.pytest_cache/
.hypothesis/
.infralens/
/interviews/
"""
Files = dict[str, bytes]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Shipment:
    """The files of a kit for learners, by their path in a workspace. skeletons: those that a
    learner writes into."""

    version: str
    files: Files
    skeletons: frozenset[str]

    @property
    def hashes(self) -> dict[str, str]:
        return {name: sha256(data) for name, data in self.files.items()}


def shipment(version: str) -> Shipment:
    """What the installed kit gives to a workspace. Raises LabError for a kit that has no
    references, as a release has none."""
    kit = places.installed()
    if handed_out.is_release(kit):
        raise LabError(
            f"{kit} is a release of an instructor's, which is itself the place to work in: "
            f"`cd {kit}`, then `pytest exercises/lab01`."
        )
    files: Files = {"pyproject.toml": _project(kit), ".gitignore": _IGNORED.encode()}
    files["conftest.py"] = (kit / "conftest.py").read_bytes()
    for name in ("README.md", "roles.toml"):
        if (kit / "exercises" / name).is_file():
            files[f"exercises/{name}"] = (kit / "exercises" / name).read_bytes()
    skeletons = set()
    for lab in all_labs(kit):
        for name in names(lab):
            files[f"exercises/{lab.id}/{name}"] = (lab.exercise / name).read_bytes()
        for name, text in skeleton.wanted(lab).items():
            files[f"exercises/{lab.id}/{name}"] = text.encode()
            skeletons.add(f"exercises/{lab.id}/{name}")
    return Shipment(version, dict(sorted(files.items())), frozenset(skeletons))


def names(lab: Lab) -> Iterator[str]:
    """The files of a lab that a learner is given beside the skeletons: the page and its pictures,
    the manifest, the hints, given files, the reports that the page quotes."""
    given = [lab_page.FILE, "lab.toml", task_hints.FILE, *lab.given, *lab_page.pictures(lab)]
    yield from dict.fromkeys(given)
    for path in sorted((lab.exercise / "reports").glob("*.md")):
        yield f"reports/{path.name}"


def _project(kit: Path) -> bytes:
    """The kit's own settings of pytest; a bare `pytest` runs the labs."""
    path = kit / "pyproject.toml"
    found = _PYTEST.search(path.read_text(encoding="utf-8"))
    if found is None:
        raise LabError(f"{path} has no table [tool.pytest.ini_options], which a workspace takes.")
    table = _TEST_PATHS.sub('testpaths = ["exercises"]', found[0]).rstrip()
    return f"{_PROJECT}{table}\n".encode()


class BrokenRecord(LabError):
    """A record that no kit wrote so."""


@dataclass
class WorkspaceRecord:
    """What a workspace was last given. version: of the kit. given: the hash of each file. beside:
    the hash of each `NAME.new` that was laid there."""

    version: str
    given: dict[str, str]
    beside: dict[str, str] = field(default_factory=dict)

    def write(self, root: Path) -> None:
        about = "What `infralens init` and `infralens update` gave to this folder. Do not edit."
        data = {
            "about": about,
            "form": FORM,
            "version": self.version,
            "given": dict(sorted(self.given.items())),
            "beside": dict(sorted(self.beside.items())),
        }
        durable.write_atomically(root / places.RECORD, json.dumps(data, indent=1) + "\n")


def record(root: Path) -> WorkspaceRecord:
    """The record of a workspace. Raises LabError for one of a newer form, and `BrokenRecord`
    for one that is broken."""
    path = root / places.RECORD
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BrokenRecord(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise BrokenRecord(
            f"{path} is not a record that `infralens init` writes: not JSON."
        ) from None
    if not isinstance(data, dict) or not isinstance(data.get("form"), int):
        raise BrokenRecord(f"{path} is not a record that `infralens init` writes: no `form`.")
    if data["form"] > FORM:
        raise LabError(
            f"{path} has the form {data['form']}, and this kit knows {FORM}: a newer kit wrote it. "
            "Type: pip install --upgrade infralens-labs"
        )
    version, given, beside = data.get("version"), data.get("given"), data.get("beside", {})
    if not isinstance(version, str) or not (_is_hashes(given) and _is_hashes(beside)):
        raise BrokenRecord(f"{path} is not a record that `infralens init` writes: incomplete.")
    return WorkspaceRecord(version, {**given}, {**beside})


def age(root: Path, version: str) -> str:
    """A sentence where a workspace has the labs of another kit than the installed one; else ""."""
    if not places.is_workspace(root):
        return ""
    try:
        known = record(root)
    except BrokenRecord as error:
        return f"{error} `infralens update` writes it anew."
    except LabError as error:
        return str(error)
    if known.version == version:
        return ""
    what = f"This folder has the labs of infralens-labs {known.version}; {version} is installed."
    if order(known.version) > order(version):
        return f"{what} Type: pip install --upgrade infralens-labs"
    return f"{what} Type: infralens update"


def _is_hashes(value: object) -> TypeGuard[dict[str, str]]:
    return isinstance(value, dict) and all(
        isinstance(digest, str) and _HASH.match(digest) for digest in value.values()
    )


def order(version: str) -> tuple[int, ...]:
    """What versions are compared by; empty for none."""
    found = _VERSION.match(version)
    return tuple(map(int, found[0].split("."))) if found else ()
