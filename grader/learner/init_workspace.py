"""`infralens init my-labs`: a folder of one's own with the exercises, from the installed kit."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from grader import durable
from grader.errors import LabError
from grader.lab import places, shipped
from grader.suite.suite_digest import version


def run(folder: Path) -> Iterator[str]:
    """Write a workspace; what was done, a line each. A call that was interrupted goes on when it is
    repeated. Raises LabError, and nothing is written over."""
    _refuse_place(folder)
    shipment = shipped.shipment(version("infralens-labs"))
    _refuse_others(folder, shipment.files)
    path = folder
    try:
        for name, data in shipment.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                durable.write_atomically(path, data)
        path = folder / places.RECORD
        shipped.WorkspaceRecord(shipment.version, shipment.hashes).write(folder)
    except OSError as error:
        raise LabError(
            f"{path} cannot be written: {error.strerror}. Mend that and type the same again."
        ) from None
    labs = len({name.split("/")[1] for name in shipment.skeletons})
    shown = shlex.quote(_short(folder))
    yield f"{labs} labs are in {shown}. Next:"
    yield f"  cd {shown}" if shown != "." else "  (you are in it)"
    yield "  pytest exercises/lab01      # a lab's tests on your code"
    yield "  infralens                   # the board, and the next task"
    yield "The pages to read are exercises/labNN/README.md; exercises/README.md lists them."


def _short(folder: Path) -> str:
    """A folder as one would type it from here."""
    near = os.path.relpath(folder)
    return os.path.abspath(folder) if near.startswith("..") else near


def _refuse_place(folder: Path) -> None:
    here = Path(os.path.abspath(folder))
    if here.is_symlink() and not here.exists():
        raise LabError(f"{folder} is a link to nothing: remove it, or give another name.")
    if here.exists() and not here.is_dir():
        raise LabError(f"{folder} is a file: give the name of a new folder.")
    if places.is_workspace(here):
        raise LabError(
            f"{folder} has labs already ({places.RECORD} is there). For a newer kit's corrections, "
            "type in it: infralens update"
        )
    real = here.resolve()
    kit = places.installed().resolve()
    if real == kit or real.is_relative_to(kit):
        raise LabError(
            f"{folder} lies in the kit itself ({kit}), where you can work without a folder of your "
            "own: pytest exercises/lab01. Or give a place outside of it."
        )
    for above in real.parents:
        if places.is_workspace(above):
            raise LabError(f"{folder} lies in the workspace {above}: give a place outside of it.")


def _refuse_others(folder: Path, files: shipped.Files) -> None:
    """LabError where something else stands in the place of a file. The same text may stand there:
    an interrupted call wrote it."""
    for name, data in files.items():
        path = folder / name
        for above in (*path.relative_to(folder).parents[:-1], Path(name)):
            if (folder / above).is_symlink():
                raise LabError(f"{folder / above} is a link: give a new folder.")
            if above != Path(name) and (folder / above).is_file():
                raise LabError(f"{folder / above} is a file, not a folder: give a new folder.")
        if path.exists() and not (path.is_file() and path.read_bytes() == data):
            raise LabError(
                f"{path} is there already, and not as `infralens init` writes it: give a new "
                "folder."
            )
