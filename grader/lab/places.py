"""Where labs lie: in a clone of the kit, inside the installed package, or in a learner's workspace,
which has the exercises alone and takes references and suites from the kit that is installed."""

from __future__ import annotations

from pathlib import Path

from grader.errors import LabError

RECORD = "infralens.lock"  # what a workspace was given, file by file
_PACKAGE = Path(__file__).resolve().parents[1]
PACKAGED = _PACKAGE / "kit"  # filled when a wheel is built


def packaged() -> Path | None:
    """The labs inside the installed package; None where it is installed from a clone."""
    return PACKAGED if (PACKAGED / "exercises").is_dir() else None


def clone() -> Path | None:
    """The clone that this package is imported from; None where there is none."""
    return _PACKAGE.parent if (_PACKAGE.parent / "exercises").is_dir() else None


def installed() -> Path:
    """The kit that is installed: references and suites, with the exercises as they are shipped."""
    found = packaged() or clone()
    if found is None:
        raise LabError(
            f"{_PACKAGE} holds no labs: it was installed in part. Type: pip install "
            "--force-reinstall --no-deps infralens-labs"
        )
    return found


def is_workspace(root: Path) -> bool:
    return (root / RECORD).is_file()


def kit_of(root: Path) -> Path:
    """The folder with the references and suites of the exercises in `root`."""
    return installed() if is_workspace(root) else root
