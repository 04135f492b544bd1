"""`infralens reset lab07`: the skeleton again; what stood there is kept."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from grader import progress, skeleton
from grader.labs import Lab, LabError


def reset(lab: Lab) -> tuple[list[str], Path | None]:
    """Put the lab's files back as they were shipped. Returns the names that changed and the folder
    that their former versions were copied to (None if nothing was lost)."""
    if not lab.has_solution:
        raise LabError(
            f"{lab.solution} is missing, so there is nothing to make {lab.id} anew from."
        )
    names = skeleton.stale(lab)
    existing = [name for name in names if (lab.exercise / name).is_file()]
    backup = None
    if existing:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        backup = progress.state_folder(lab.root) / "backup" / f"{lab.id}-{stamp}"
        while backup.exists():
            backup = backup.with_name(backup.name + "x")
        backup.mkdir(parents=True)
        for name in existing:
            shutil.copy2(lab.exercise / name, backup / name)
    skeleton.write(lab, names)
    data = progress.read(lab.root)
    data.get("labs", {}).pop(lab.id, None)
    progress.save(lab.root, data)
    return names, backup
