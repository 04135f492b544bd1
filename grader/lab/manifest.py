"""What a lab is: its manifest and its three folders (`exercises/`, `solutions/`, `tests/`).

A manifest is read once, checked at once, and every fault is one sentence that names the file, the
value and what to do. Nothing here knows a lab by name.
"""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, Literal, TypeGuard, cast

from grader.errors import LabError
from grader.lab import places, toml_file

TRACKS = ("exercises", "solutions")
TOPICS = ("memory", "training", "kernels", "profiling", "serving")
TASK_TIERS = ("core", "hard", "stretch")
NEEDS = ("triton", "cxx", "gloo", "gpu", "data")  # or "data:<file>", see grader/lab/datasets.py
LAB_ID = re.compile(r"lab\d\d\Z")
_TASK_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LAB_VERSION = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}\Z", re.ASCII)
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,2}\Z", re.ASCII)
_TAKEN = {*sys.stdlib_module_names, "grader", "numpy", "pytest", "torch", "triton"}
_TOP_KEYS = {
    *("id", "title", "version", "topic", "edit", "given", "task"),
    *("call_seconds", "processor_seconds"),
}
_GIVEN_KEYS = {"file", "crosses", "for"}
_TASK_KEYS = {
    "id",
    "title",
    "tier",
    "points",
    "minutes",
    "file",
    "needs",
    "mutates",
    "returns_new",
    "forbids",
    "public",
}

Tier = Literal["core", "hard", "stretch"]


@dataclass(frozen=True)
class Task:
    """One row of a manifest: what a learner solves, and what it is worth."""

    lab: str
    id: str
    title: str
    tier: Tier
    points: float
    minutes: int
    file: str
    needs: tuple[str, ...] = ()
    mutates: tuple[str, ...] = ()  # `function.parameter` or `Class.method.parameter`
    new: tuple[str, ...] = ()  # functions whose result shares nothing with their arguments
    forbids: tuple[str, ...] = ()  # of libraries, what the task asks to write; where it is defined
    public: tuple[str, ...] = ()  # names of the tests that a release may show to learners

    @property
    def name(self) -> str:
        """The name that markers, hints and messages use: `lab07.online_softmax`."""
        return f"{self.lab}.{self.id}"


@dataclass(frozen=True)
class Lab:
    """A lab: `root` is the folder that holds `exercises/`, the rest comes from the manifest. Of the
    files `given`, those `crossing` define the dataclasses that cross the wall, and `pictures` is
    the one that `infralens show` draws from, if there is one. `topic` is one of TOPICS, or empty;
    `version` is semantic: the first number changes with what a right answer is. `call_seconds` and
    `processor_seconds`: what a call into student code may take by the clock, and of processor time
    (None: as in other labs)."""

    root: Path
    id: str
    title: str
    edit: tuple[str, ...]
    given: tuple[str, ...]
    call_seconds: float
    tasks: tuple[Task, ...] = field(repr=False)
    crossing: tuple[str, ...] = ()
    pictures: str = ""
    topic: str = ""
    version: str = ""
    processor_seconds: float | None = None

    @property
    def kit(self) -> Path:
        """The folder with references and suites: `root`, but for a workspace."""
        return places.kit_of(self.root)

    def track(self, name: str) -> Path:
        """Folder of this lab in `exercises` or `solutions`."""
        return self.solution if name == "solutions" else self.exercise

    @property
    def exercise(self) -> Path:
        return self.root / "exercises" / self.id

    @property
    def solution(self) -> Path:
        return self.kit / "solutions" / self.id

    @property
    def suite(self) -> Path:
        return self.kit / "tests" / self.id

    @property
    def has_solution(self) -> bool:
        return self.solution.is_dir()

    def given_source(self, name: str) -> Path:
        """Where a given file is: beside the exercises, and nowhere else."""
        return self.exercise / name

    def how_to_restore_given(self, name: str) -> str:
        """A given file is not generated: only the kit has it."""
        if places.is_workspace(self.root):
            missing = not (self.exercise / name).exists()
            first = "" if missing else f"remove exercises/{self.id}/{name}, and "
            return f"{first}`infralens update` restores the kit's own"
        return f"`git checkout -- exercises/{self.id}/{name}` restores the kit's own"

    def shown(self, path: Path) -> str:
        """A path by its name in the kit, whichever folder holds it; another one as it is."""
        for folder in (self.kit, self.root):  # a workspace may hold the environment
            if path.is_relative_to(folder):
                return path.relative_to(folder).as_posix()
        return str(path)

    @property
    def points(self) -> float:
        """What all its tasks are worth."""
        return sum(task.points for task in self.tasks)

    def copy_to(self, folder: Path, instead: Path | None = None) -> None:
        """Put the reference's files into `folder`, which is made if need be. A file that the folder
        `instead` has is taken from there."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in self.edit:
            other = instead / name if instead else None
            source = other if other and other.is_file() else self.solution / name
            shutil.copy(source, folder / name)

    def task(self, task_id: str) -> Task:
        """The task with that id; `LabError` names the ids there are."""
        for task in self.tasks:
            if task.id == task_id:
                return task
        known = ", ".join(task.id for task in self.tasks)
        raise LabError(f"{self.id} has no task `{task_id}`; its tasks are: {known}.")

    @property
    def mutates(self) -> tuple[str, ...]:
        """The arguments that the contracts of its tasks let a call change."""
        return tuple(row for task in self.tasks for row in task.mutates)

    @property
    def new(self) -> tuple[str, ...]:
        """The functions whose results the contracts of its tasks call new."""
        return tuple(row for task in self.tasks for row in task.new)

    @property
    def public(self) -> tuple[str, ...]:
        """The tests of all its tasks that a release may show to learners."""
        return tuple(dict.fromkeys(name for task in self.tasks for name in task.public))

    @property
    def forbids(self) -> tuple[str, ...]:
        """What any of its tasks forbids."""
        return tuple(dict.fromkeys(name for task in self.tasks for name in task.forbids))

    def tasks_of(self, file: str) -> tuple[Task, ...]:
        return tuple(task for task in self.tasks if task.file == file)


def find_root(start: Path | None = None) -> Path:
    """The folder of the labs that one works on: the first one at or above `start` with `exercises/`
    and `pyproject.toml` in it, or else the clone that this package is installed from."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "exercises").is_dir() and (folder / "pyproject.toml").is_file():
            return folder
    if found := places.clone():
        return found
    if places.packaged():
        raise LabError(
            f"No labs at or above {here}. `infralens init my-labs` writes them into a new folder; "
            "where they are there already, go into it."
        )
    raise LabError(f"No labs at or above {here}: go to the folder that holds `exercises/`.")


def kit_root() -> Path:
    """The folder of the kit that grades: `find_root`, with the installed kit in the place of a
    workspace, or where there are no labs."""
    try:
        return places.kit_of(find_root())
    except LabError:
        if (found := places.packaged()) is None:
            raise
        return found


def clone_root(command: str) -> Path:
    """The kit's own folder, for a command that changes the kit or makes something from its
    sources."""
    try:
        root = find_root()
    except LabError:
        if places.packaged() is None:
            raise
        root = None
    if root is None or places.is_workspace(root):
        where = "there is none here" if root is None else f"{root} is a workspace"
        raise LabError(
            f"`infralens {command}` needs a clone of the kit's repository, and {where}. Clone it, "
            "type `pip install -e .` in it, and then this command."
        )
    return root


def lab_ids(root: Path) -> list[str]:
    """Ids of the labs that have a manifest, in order."""
    return sorted(path.parent.name for path in (root / "exercises").glob("lab*/lab.toml"))


def all_labs(root: Path) -> list[Lab]:
    return [load_lab(root, lab_id) for lab_id in lab_ids(root)]


def load_lab(root: Path, lab_id: str) -> Lab:
    """Read `exercises/<lab_id>/lab.toml`; raises `LabError` with one sentence a fault."""
    path = root / "exercises" / lab_id / "lab.toml"
    if not path.is_file():
        known = ", ".join(lab_ids(root)) or "none"
        raise LabError(f"No lab `{lab_id}` here ({path} is missing); the labs are: {known}.")
    return _load(root, lab_id, path, path.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _load(root: Path, lab_id: str, path: Path, _mtime: int) -> Lab:
    return _ManifestReader(path).lab(root, lab_id, toml_file.read(path))


class _ManifestReader:
    """Turns parsed TOML into a `Lab`, refusing what the contract does not allow."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fail(self, text: str) -> LabError:
        return LabError(f"{self.path}: {text}")

    def lab(self, root: Path, lab_id: str, data: dict[str, Any]) -> Lab:
        self.keys("the manifest", data, _TOP_KEYS)
        if not LAB_ID.match(lab_id):
            raise self.fail(f"the folder is {lab_id!r}; write `lab` and two digits, as in lab14.")
        if data.get("id") != lab_id:
            raise self.fail(f"id is {data.get('id')!r}, the folder says {lab_id!r}.")
        edit = self.names("edit", data.get("edit"))
        if not edit:
            raise self.fail("`edit` must list at least one file.")
        shipped = self.given(data.get("given", []))
        given = self.names("given", [row["file"] for row in shipped])
        if both := set(edit) & set(given):
            raise self.fail(
                f"{sorted(both)} stand in `edit` and in `given`; list each in one of them."
            )
        seconds = data.get("call_seconds")
        if not _positive(seconds):
            raise self.fail(f"call_seconds is {seconds!r}; give a number above 0.")
        worked = data.get("processor_seconds")
        if worked is not None and not (_positive(worked) and worked <= seconds):
            raise self.fail(
                f"processor_seconds is {worked!r}; give a number above 0, and not above the "
                f"{seconds:g} of call_seconds."
            )
        rows = data.get("task") or []
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self.fail("write each task under its own [[task]], with two brackets.")
        tasks = tuple(self.task(lab_id, edit, row) for row in rows)
        ids = [task.id for task in tasks]
        if twice := {name for name in ids if ids.count(name) > 1}:
            raise self.fail(f"task ids must be unique, but {sorted(twice)} stand twice.")
        for name in edit:
            if not any(task.file == name for task in tasks):
                raise self.fail(f"`{name}` is in `edit` but no task has it as its file.")
        title = self.text("title", data.get("title"))
        crossing = tuple(row["file"] for row in shipped if row.get("crosses"))
        pictures = "".join(row["file"] for row in shipped if row.get("for") == "pictures")
        topic = data.get("topic", "")
        if topic not in ("", *TOPICS):
            raise self.fail(f"topic is {topic!r}, not one of {TOPICS}.")
        version = data.get("version", "")
        if version != "" and not (isinstance(version, str) and _LAB_VERSION.match(version)):
            raise self.fail(f'version is {version!r}; write three numbers, as in "1.0.0".')
        more = crossing, pictures, topic, version, None if worked is None else float(worked)
        return Lab(root, lab_id, title, edit, given, float(seconds), tasks, *more)

    def given(self, rows: object) -> list[dict[str, Any]]:
        """The rows under `given`, each with a file and what it is for."""
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self.fail('write each file of `given` as a table, as in { file = "limits.py" }.')
        for row in rows:
            self.given_file(row)
        drawn = [row["file"] for row in rows if row.get("for") == "pictures"]
        if len(drawn) > 1:
            raise self.fail(f"{drawn} are all for pictures; a lab has one such file.")
        return rows

    def given_file(self, row: dict[str, Any]) -> None:
        name, crosses, use = row.get("file"), row.get("crosses", False), row.get("for")
        if not isinstance(name, str):
            raise self.fail(f"a row of `given` has the file {name!r}; write the file's name.")
        where = f"given file `{name}`"
        self.keys(where, row, _GIVEN_KEYS)
        if not isinstance(crosses, bool):
            raise self.fail(f"{where}: crosses is {crosses!r}; write true, or leave it out.")
        if use not in (None, "pictures"):
            raise self.fail(f'{where}: for is {use!r}; write "pictures", or leave it out.')
        if (crosses or use) and not name.endswith(".py"):
            raise self.fail(f"{where}: only a Python file has dataclasses or pictures.")
        if crosses and use:
            raise self.fail(f"{where}: pictures stay on the trusted side; leave out `crosses`.")

    def task(self, lab_id: str, edit: tuple[str, ...], row: dict[str, Any]) -> Task:
        name = row.get("id")
        if not isinstance(name, str) or not _TASK_ID.match(name):
            raise self.fail(f"a task's id is {name!r}; it must be a plain Python name.")
        where = f"task `{name}`"
        self.keys(where, row, _TASK_KEYS)
        if row.get("tier") not in TASK_TIERS:
            raise self.fail(f"{where}: tier is {row.get('tier')!r}, not one of {TASK_TIERS}.")
        points, minutes = row.get("points"), row.get("minutes")
        if not _positive(points):
            raise self.fail(f"{where}: points is {points!r}; give a number above 0.")
        if not isinstance(minutes, int) or isinstance(minutes, bool) or minutes <= 0:
            raise self.fail(f"{where}: minutes is {minutes!r}; give a whole number above 0.")
        if row.get("file") not in edit:
            raise self.fail(f"{where}: file is {row.get('file')!r}, which `edit` does not list.")
        needs = row.get("needs", [])
        if not isinstance(needs, list) or not all(_is_need(need) for need in needs):
            raise self.fail(f"{where}: needs is {needs!r}; it may hold {', '.join(NEEDS)}.")
        return Task(
            lab=lab_id,
            id=name,
            title=self.text(f"{where}: title", row.get("title")),
            tier=cast(Tier, row["tier"]),
            points=float(points),
            minutes=minutes,
            file=row["file"],
            needs=tuple(needs),
            mutates=self.mutates(where, name, row.get("mutates", [])),
            new=self.new(where, name, row.get("returns_new", False)),
            forbids=self.forbids(where, row.get("forbids", [])),
            public=self.public(where, row.get("public", [])),
        )

    def mutates(self, where: str, task: str, rows: object) -> tuple[str, ...]:
        """The arguments that a task changes in place: of its own function by the parameter's name
        alone, of others as `function.parameter`, of methods as `Class.method.parameter`."""
        if not isinstance(rows, list) or not all(_is_dotted(row) for row in rows):
            raise self.fail(
                f"{where}: mutates is {rows!r}; list parameters, as in "
                '["flat", "helper.values", "Pool.free.blocks"].'
            )
        return tuple(row if "." in row else f"{task}.{row}" for row in rows)

    def new(self, where: str, task: str, rows: object) -> tuple[str, ...]:
        """The functions whose results are new: the task's own, or those listed."""
        if isinstance(rows, bool):
            return (task,) if rows else ()
        if not isinstance(rows, list) or not all(_is_dotted(row) for row in rows):
            raise self.fail(
                f"{where}: returns_new is {rows!r}; write true for the task's own function, or "
                'list functions, as in ["unpack", "Pool.blocks"].'
            )
        return tuple(rows)

    def forbids(self, where: str, rows: object) -> tuple[str, ...]:
        """Modules, classes and functions of libraries, by the names of where they are defined."""
        if not isinstance(rows, list) or not all(_is_library_name(row) for row in rows):
            raise self.fail(
                f"{where}: forbids is {rows!r}; list modules, classes and functions of libraries "
                'where they are defined, as in ["torch.optim.adamw"].'
            )
        return tuple(rows)

    def public(self, where: str, rows: object) -> tuple[str, ...]:
        """The tests that a learner may have; whether the suite has them, `infralens lint` says."""
        names = isinstance(rows, list) and all(
            isinstance(row, str) and row.isidentifier() and row.startswith("test_") for row in rows
        )
        if not names or len(set(cast(list[str], rows))) < len(cast(list[str], rows)):
            raise self.fail(
                f"{where}: public is {rows!r}; list names of tests, each once, as in "
                '["test_rows_sum_to_one"].'
            )
        return tuple(cast(list[str], rows))

    def keys(self, where: str, data: dict[str, Any], allowed: set[str]) -> None:
        if unknown := sorted(set(data) - allowed):
            raise self.fail(f"{where} has unknown keys {unknown}; known are {sorted(allowed)}.")

    def text(self, what: str, value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self.fail(f"{what} is {value!r}; write a sentence or a name.")
        return value

    def names(self, what: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise self.fail(f"`{what}` must be a list of file names.")
        for name in value:
            if not name or "/" in name or "\\" in name or name.startswith("."):
                raise self.fail(f"`{what}` lists {name!r}; give plain file names in the folder.")
            if value.count(name) > 1:
                raise self.fail(f"`{what}` lists {name!r} twice.")
            stem, _, suffix = name.rpartition(".")
            if suffix == "py" and stem in _TAKEN:
                raise self.fail(f"`{what}` lists {name!r}, which would hide the module `{stem}`.")
            if suffix == "py" and not stem.isidentifier():
                raise self.fail(f"`{what}` lists {name!r}, which no file could import.")
        return tuple(value)


def _is_dotted(value: object) -> bool:
    return isinstance(value, str) and bool(_DOTTED.match(value))


def _is_library_name(value: object) -> bool:
    """A dotted name of at least two parts, so that no whole library is forbidden."""
    parts = value.split(".") if isinstance(value, str) else []
    return len(parts) > 1 and all(part.isidentifier() for part in parts)


def _is_need(value: object) -> bool:
    if isinstance(value, str) and value.startswith("data:"):
        from grader.lab import datasets  # its errors are this module's

        return value.removeprefix("data:") in datasets.FILES
    return isinstance(value, str) and value in NEEDS


def _positive(value: object) -> TypeGuard[int | float]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and isfinite(cast(float, value)) and cast(float, value) > 0
